"""The interface of a sink, which gets the rows of an operator by epochs, each exactly once.

Two phases make it so. The tasks write the rows of an epoch to files, which are on the disk before Spark commits the
epoch. Afterwards the driver (`publisher.py`) hands these files to the sink, which takes them and the number of the
epoch in one step. After a crash in between it asks the sink which epochs it has, and hands it the others again. Rows of
an epoch that was not committed never reach a sink.

    sinks/<operator>/mark.json                       how far the sink is, and its writer's name
    sinks/<operator>/<token>/<instance>.json         the file of an instance, if it has rows, and its checksum
    sinks/<operator>/<token>/<instance>-<random>.parquet

As with state, files lie under the token of their attempt, and those of an attempt that failed are never read. An epoch
ends only when the sink has got the rows of the second epoch before it, so that a slow target slows the job down and the
plans of all unpublished epochs are kept.
"""

from __future__ import annotations

import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...core.files import make_folder, write_atomically
from ..dataflow.state import Plan, incomplete, seal, synchronise, unseal
from ..dead_letters import own_copy
from ..errors import CheckpointError, SchemaError, SinkError

if TYPE_CHECKING:
    import pyarrow as pa


class Sink(ABC):
    """Base of sinks: derive a class from it, with `open` and `publish`, for a target of your own.

    The tasks get `for_tasks()`, pickled, and call `check_rows`; all other methods run in the driver, one at a time but
    for `newest`. An exception of `publish` is final if it is a SinkError; after any other one the epoch is published
    again, for half a minute.

    Examples
    --------
    >>> class Printer(Sink):
    ...     published = {}
    ...
    ...     def open(self, writer, schema):
    ...         return self.published
    ...
    ...     def publish(self, writer, epoch, token, files):
    ...         if epoch not in self.published:
    ...             print(epoch, sum(file.rows for file in files), "rows")
    ...             self.published[epoch] = token
    >>> Printer().publish("4f1c", 0, "0-5e884898", [])
    0 0 rows
    """

    def at(self, folder: Path) -> Self:
        """Return the sink with a folder in the job's checkpoint, for one that keeps files there.

        Parameters
        ----------
        folder
            The folder.

        Examples
        --------
        >>> from dspkit.spark import TableSink
        >>> TableSink().at(Path("checkpoint/table"))
        TableSink(rows=10000)
        """
        return self

    def for_tasks(self) -> Self:
        """Return the sink as the tasks need it, which may run elsewhere: without passwords.

        Examples
        --------
        >>> from dspkit.spark import SqlSink
        >>> SqlSink("sqlite:////home/me/rows.db", "rows").for_tasks()
        SqlSink(url='sqlite:////tasks', table='rows')
        """
        return self

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise a SchemaError if the sink cannot hold a column exactly; called before Spark starts.

        Parameters
        ----------
        schema
            The columns of the rows.
        """
        return

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a ValueError if the sink cannot hold a row exactly; called in the tasks, before the epoch's commit.

        Parameters
        ----------
        batch
            Some of the operator's rows.
        """
        return

    @abstractmethod
    def open(self, writer: str, schema: pa.Schema) -> Mapping[int, str]:
        """Prepare the target, and return what it has of this writer: the token of each epoch, at least of the newest 8.

        Parameters
        ----------
        writer
            The name of this operator of this job; a target can have several writers.
        schema
            The columns of the rows.
        """

    @abstractmethod
    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        """Take the rows of an epoch and its token in one step, or nothing; one that is there already is left as it is.

        Parameters
        ----------
        writer
            The name that `open` got.
        epoch
            The number of the epoch, larger than those before.
        token
            The name of the epoch's attempt that was committed.
        files
            The rows; the files may be moved.
        """

    def withdraw(self, writer: str, epoch: int) -> None:
        """Remove the rows of all later epochs, which the job will repeat; a sink that cannot do so raises a SinkError.

        Parameters
        ----------
        writer
            The name that `open` got.
        epoch
            The last epoch that stays; -1 if none does.
        """
        raise SinkError(
            f"rows of epochs after {epoch} in {self!r}, which the job repeats, as its checkpoint went back",
            expected="a sink that removes them",
            fix="remove them by hand, or choose another target and another checkpoint",
        )

    def newest(self, writer: str, rows: int) -> pa.Table:
        """Return the newest rows of a writer, in the order of their epochs.

        Parameters
        ----------
        writer
            The name that `open` got.
        rows
            How many, at most.
        """
        raise SinkError(
            f"a question for the newest rows of {self!r}",
            expected="a ParquetSink, a SqlSink or a TableSink",
            fix="ask the target itself",
        )


AHEAD = 2  # epochs that may end before the sink has got the first of them; less than KEPT - 1
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 32 << 20  # of a row group, which is in memory until it is written
_LOOK_S = 0.05


@dataclass(frozen=True)
class StagedFile:
    """A Parquet file with rows of one instance in one epoch.

    Parameters
    ----------
    path
        The file.
    rows
        Number of its rows.
    size
        Number of its bytes.
    sum
        Its crc32.

    Examples
    --------
    >>> StagedFile(Path("0-5e88.parquet"), 10, 900, 0).rows
    10
    """

    path: Path
    rows: int
    size: int
    sum: int

    def check(self) -> None:
        """Raise a CheckpointError if the file is not as it was written."""
        try:
            found = _measured(self.path)
        except OSError as error:
            raise incomplete(f"rows for a sink, {self.path.name}: {error}") from error
        if found != (self.size, self.sum):
            raise incomplete(f"rows for a sink, {self.path.name}: it does not have its length and checksum")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches()


def _measured(path: Path) -> tuple[int, int]:
    """Return the length and the crc32 of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return size, crc


@dataclass(frozen=True)
class SinkMark:
    """The progress of a sink, as the checkpoint knows it; the sink itself may be one epoch further."""

    writer: str
    published: int  # no epoch up to this one has rows that the sink lacks
    held: int  # the newest epoch of which the sink has rows; -1 without any

    @staticmethod
    def path(folder: Path, operator: int) -> Path:
        return folder / "sinks" / str(operator) / "mark.json"

    @classmethod
    def read(cls, folder: Path, operator: int) -> SinkMark:
        """Read the mark of an operator; raise an error if there is none."""
        path = cls.path(folder, operator)
        try:
            mark = cls(**unseal(path.read_bytes()))
            if not (type(mark.writer) is str and type(mark.published) is type(mark.held) is int):
                raise ValueError(f"{mark}")
        except (OSError, ValueError, TypeError) as error:
            raise incomplete(f"{path}, which says how far a sink is: {error}") from error
        return mark

    def write(self, folder: Path, operator: int) -> None:
        """Write the mark durably."""
        data = seal(asdict(self))
        write_atomically(self.path(folder, operator), lambda path: path.write_bytes(data), overwrite=True)


def check_schema(schema: pa.Schema, operator: str) -> None:
    """Raise an error if a Parquet file does not hold these columns as they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for field in schema:
        one = pa.schema([field])
        try:
            file = pa.BufferOutputStream()
            pq.write_table(one.empty_table(), file)
            read = pq.read_table(pa.BufferReader(file.getvalue())).schema.field(0).type
        except pa.ArrowException as error:
            read = error
        if read != field.type:  # which leaves out the names of a list's values: Parquet has its own
            raise SchemaError(
                f"column {field.name!r} of {field.type} from {operator!r} to its sink",
                expected=f"a type that Parquet holds as it is (of this one it makes: {read})",
                fix="send another type, as timestamp[ms], int64 or string",
            )


class Staging:
    """The rows of one instance in one attempt, until they are on the disk."""

    def __init__(self, folder: Path, plan: Plan, operator: int, instance: int, schema: pa.Schema):
        self._folder, self._plan, self._operator, self._instance = folder, plan, operator, instance
        self._schema = schema
        self._place = folder / "sinks" / str(operator) / plan.token
        self._path = self._place / f"{instance}-{secrets.token_hex(4)}.parquet"
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._waiting.append(own_copy(batch))
        self._rows += batch.num_rows
        self._waiting_rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._waiting_rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if self._writer is None:
                make_folder(self._place)
                self._writer = pq.ParquetWriter(self._path, self._schema)
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        except OSError as error:
            raise self._unwritten(error) from error
        self._waiting, self._bytes, self._waiting_rows = [], 0, 0

    def commit(self) -> None:
        """Wait until the rows are on the disk, and until the sink has got those of the epochs before."""
        if self._waiting:
            self._flush()
        made: dict[str, Any] = {}
        try:
            if self._writer is not None:
                self._writer.close()
                synchronise(self._path)
                size, crc = _measured(self._path)
                made = {"file": self._path.name, "rows": self._rows, "size": size, "sum": crc}
            data = seal(made)
            place = self._place / f"{self._instance}.json"
            write_atomically(place, lambda path: path.write_bytes(data), overwrite=True)  # and the folders' names
        except OSError as error:
            raise self._unwritten(error) from error
        while SinkMark.read(self._folder, self._operator).published < self._plan.epoch - AHEAD:
            time.sleep(_LOOK_S)

    def abandon(self) -> None:
        """Close the file of an attempt that failed."""
        if self._writer is not None:
            self._writer.close()

    def _unwritten(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"rows for a sink that cannot be written: {error}",
            expected=f"a disk with room at {self._folder}",
            fix="make room, and start the job again: nothing is lost",
        )


def staged(folder: Path, plan: Plan, operator: int) -> list[StagedFile]:
    """Return the files of an operator's rows in a committed epoch."""
    found = []
    for instance in range(plan.k[operator]):
        path = folder / "sinks" / str(operator) / plan.token / f"{instance}.json"
        try:
            made = unseal(path.read_bytes())
            if made:
                found.append(StagedFile(path.parent / made["file"], made["rows"], made["size"], made["sum"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise incomplete(f"{path.name} of {plan.token}, which names rows for a sink: {error}") from error
    return found
