"""Parquet files with a manifest, and a table of the newest rows for notebooks, which is kept in the same way.

    <folder>/<writer>-<epoch>-<random>.parquet     rows of one instance in one epoch
    <folder>/_epochs/<writer>-<epoch>.json         the files of an epoch: it is published once this file is there

Only rows of committed epochs are ever in the folder, each once, so that programs which read the whole folder are right,
too; the manifest adds that they see an epoch as a whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import ArgumentError
from ...core.files import given_path, make_folder, write_atomically
from ..dataflow.state import KEPT, link, synchronise
from ..errors import SinkError
from .sink import Sink, StagedFile

if TYPE_CHECKING:
    import pyarrow as pa


_TOKENS = 8  # of the newest epochs
_TRIES = 5  # to read while epochs are removed


@dataclass(frozen=True)
class ParquetSink(Sink):
    """Parquet files in a folder, with a manifest by which each row is read exactly once.

    Parameters
    ----------
    folder
        The folder; it must not be on another machine's disk only.

    Examples
    --------
    >>> ParquetSink("/tmp/counts")
    ParquetSink(folder='/tmp/counts')
    """

    folder: str | Path

    def __post_init__(self) -> None:
        # at once: later the program may be in another working directory
        object.__setattr__(self, "folder", str(given_path(self.folder, error=ArgumentError).absolute()))

    @property
    def _folder(self) -> Path:
        return Path(self.folder)

    def _epochs(self, writer: str = "*") -> list[tuple[int, Path]]:
        """Return the epochs of a writer with their manifests, in order."""
        found = self._folder.glob(f"_epochs/{writer}-*.json")
        return sorted((int(path.stem.rpartition("-")[2]), path) for path in found)

    def _manifest(self, path: Path) -> dict[str, Any]:
        try:
            made = json.loads(path.read_text())
            return {"token": str(made["token"]), "files": dict(made["files"])}
        except (ValueError, TypeError, KeyError) as error:
            raise SinkError(
                f"{path}, which cannot be read: {error}",
                expected="the files of an epoch",
                fix="restore the folder from a copy",
            ) from error

    def files(self) -> list[Path]:
        """Return the files of all published epochs, which hold each row once."""
        return [self._folder / name for _, path in self._epochs() for name in self._manifest(path)["files"]]

    def open(self, writer: str, schema: pa.Schema) -> dict[int, str]:
        epochs = self._epochs(writer)
        newest = epochs[-1][0] if epochs else -1
        for path in self._folder.glob(f"{writer}-*.parquet"):  # of an epoch that was not published to its end
            if int(path.name.split("-")[1]) > newest:
                path.unlink()
        return {epoch: self._manifest(path)["token"] for epoch, path in epochs[-_TOKENS:]}

    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        # The files move into the folder, and a manifest names them.
        if (epochs := self._epochs(writer)) and epochs[-1][0] >= epoch:
            last, known = epochs[-1][0], self._manifest(epochs[-1][1])["token"]
            if (last, known) == (epoch, token):
                return
            raise SinkError(
                f"epoch {last} ({known}) in {self._folder}, where epoch {epoch} ({token}) is to be written",
                expected="one job that writes from a checkpoint",
                fix="close the other job; start this one again with another folder and another checkpoint",
            )
        place = self._folder / "_epochs" / f"{writer}-{epoch}.json"
        names = {f"{writer}-{token}-{file.path.name}": file.rows for file in files}
        make_folder(place.parent)
        for name, file in zip(names, files, strict=True):
            link(file.path, self._folder / name)
        synchronise(self._folder)
        text = json.dumps({"token": token, "files": names})
        write_atomically(place, lambda path: path.write_text(text))  # not over that of a job which was faster

    def withdraw(self, writer: str, epoch: int) -> None:
        for number, path in reversed(self._epochs(writer)):
            if number > epoch:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        for name in self._manifest(path)["files"]:
            (self._folder / name).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        synchronise(path.parent)

    def newest(self, writer: str, rows: int) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        for left in reversed(range(_TRIES)):
            parts: list[pa.Table] = []
            try:
                for name in self._newest_files(writer, rows):
                    parts.insert(0, pq.read_table(self._folder / name))
                break
            except FileNotFoundError:  # an epoch was removed meanwhile
                if not left:
                    raise
        whole = pa.concat_tables(parts) if parts else pa.table({})
        return whole.slice(max(0, whole.num_rows - rows))

    def _newest_files(self, writer: str, rows: int) -> Iterator[str]:
        """Yield the files with the newest rows, the newest first."""
        for _, path in reversed(self._epochs(writer)):
            for name, count in reversed(self._manifest(path)["files"].items()):
                if rows <= 0:
                    return
                yield name
                rows -= count


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
        made = replace(self)
        object.__setattr__(made, "folder", folder)
        return made

    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        super().publish(writer, epoch, token, files)
        newer = 0
        for kept, (_, path) in enumerate(reversed(self._epochs(writer))):
            if newer >= self.rows and kept > KEPT:  # the job may go back over as many epochs
                self._remove(path)
                continue
            newer += sum(self._manifest(path)["files"].values())
