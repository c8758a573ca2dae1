"""Rows on their way to a sink: files that the tasks write before the epoch's commit.

    sinks/<operator>/mark.json                       how far the sink is, and its writer's name
    sinks/<operator>/<token>/<instance>.json         the file of an instance, if it has rows, and its checksum
    sinks/<operator>/<token>/<instance>-<random>.parquet

As with state, files lie under the token of their attempt, and those of an attempt that failed are never read. An epoch
ends only when the sink has got the rows of the second epoch before it, so that a slow target slows the job down and the
plans of all unpublished epochs are kept.
"""

from __future__ import annotations

import json
import secrets
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import make_folder, write_atomically
from ..dataflow.state import Plan, incomplete, synchronise
from ..errors import CheckpointError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


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
        """Raise a CheckpointError if the file is not as it was written.

        Examples
        --------
        >>> file.check()  # doctest: +SKIP
        """
        try:
            found = _measured(self.path)
        except OSError as error:
            raise incomplete(f"rows for a sink, {self.path.name}: {error}") from error
        if found != (self.size, self.sum):
            raise incomplete(f"rows for a sink, {self.path.name}: it does not have its length and checksum")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches.

        Examples
        --------
        >>> sum(batch.num_rows for batch in file.batches())  # doctest: +SKIP
        """
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
            mark = cls(**json.loads(path.read_text()))
            if not (type(mark.writer) is str and type(mark.published) is type(mark.held) is int):
                raise ValueError(f"{mark}")
        except (OSError, ValueError, TypeError) as error:
            raise incomplete(f"{path}, which says how far a sink is: {error}") from error
        return mark

    def write(self, folder: Path, operator: int) -> None:
        """Write the mark durably."""
        text = json.dumps(asdict(self))
        write_atomically(self.path(folder, operator), lambda path: path.write_text(text), overwrite=True)


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
        self._waiting.append(batch)
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
            text = json.dumps(made)
            place = self._place / f"{self._instance}.json"
            write_atomically(place, lambda path: path.write_text(text), overwrite=True)  # and the folders' names
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
            made = json.loads(path.read_text())
            if made:
                found.append(StagedFile(path.parent / made["file"], made["rows"], made["size"], made["sum"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise incomplete(f"{path.name} of {plan.token}, which names rows for a sink: {error}") from error
    return found
