"""A table of the newest rows, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...core import ArgumentError
from ..dataflow.state import KEPT
from .parquet import ParquetSink
from .staging import StagedFile


@dataclass(frozen=True)
class TableSink(ParquetSink):
    """The newest rows, which `job.table(operator)` returns as a DataFrame; they are kept in the job's checkpoint.

    Parameters
    ----------
    rows
        How many rows are kept at least, if there are so many.

    Examples
    --------
    >>> TableSink(rows=1000)
    TableSink(rows=1000)
    """

    folder: str | Path = field(default="", init=False, repr=False)
    rows: int = 10_000

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ArgumentError(f"rows={self.rows!r}", expected="at least 1", fix="as in TableSink(rows=1000)")

    def at(self, folder: Path) -> TableSink:
        """Return the sink with its folder.

        Parameters
        ----------
        folder
            The folder.

        Examples
        --------
        >>> TableSink().at(Path("checkpoint/table"))
        TableSink(rows=10000)
        """
        made = replace(self)
        object.__setattr__(made, "folder", folder)
        return made

    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        """Add the rows of an epoch, and remove old ones.

        Parameters
        ----------
        writer
            The name of the writer.
        epoch
            The number of the epoch.
        token
            The name of its attempt.
        files
            The rows.

        Examples
        --------
        >>> TableSink().publish("4f1c", 9, "9-0c6e85e8", files)  # doctest: +SKIP
        """
        super().publish(writer, epoch, token, files)
        newer = 0
        for kept, (_, path) in enumerate(reversed(self._epochs(writer))):
            if newer >= self.rows and kept > KEPT:  # the job may go back over as many epochs
                self._remove(path)
                continue
            newer += sum(self._manifest(path)["files"].values())
