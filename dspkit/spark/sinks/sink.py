"""The interface of a sink, which gets the rows of an operator by epochs, each exactly once.

Two phases make it so. The tasks write the rows of an epoch to files (`staging.py`), which are on the disk before Spark
commits the epoch. Afterwards the driver (`publisher.py`) hands these files to the sink, which takes them and the number
of the epoch in one step. After a crash in between it asks the sink which epochs it has, and hands it the others again.
Rows of an epoch that was not committed never reach a sink.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..errors import SinkError
from .staging import StagedFile

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

        Examples
        --------
        >>> sink.check_schema(pa.schema({"word": pa.string()}))  # doctest: +SKIP
        """
        return

    def check_rows(self, batch: pa.RecordBatch) -> None:
        """Raise a ValueError if the sink cannot hold a row exactly; called in the tasks, before the epoch's commit.

        Parameters
        ----------
        batch
            Some of the operator's rows.

        Examples
        --------
        >>> sink.check_rows(batch)  # doctest: +SKIP
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

        Examples
        --------
        >>> sink.open("4f1c", schema)  # doctest: +SKIP
        {7: '7-5e884898', 8: '8-a1d0c6e8'}
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

        Examples
        --------
        >>> sink.publish("4f1c", 9, "9-0c6e85e8", files)  # doctest: +SKIP
        """

    def withdraw(self, writer: str, epoch: int) -> None:
        """Remove the rows of all later epochs, which the job will repeat; a sink that cannot do so raises a SinkError.

        Parameters
        ----------
        writer
            The name that `open` got.
        epoch
            The last epoch that stays; -1 if none does.

        Examples
        --------
        >>> sink.withdraw("4f1c", 8)  # doctest: +SKIP
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

        Examples
        --------
        >>> sink.newest("4f1c", 1000).to_pandas()  # doctest: +SKIP
        """
        raise SinkError(
            f"a question for the newest rows of {self!r}",
            expected="a ParquetSink, a SqlSink or a TableSink",
            fix="ask the target itself",
        )
