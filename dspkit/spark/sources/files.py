"""A folder of text files that grow, as a log: each line is a record."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ...core import ArgumentError
from ...core.typing import Array
from ..errors import SourceError
from ..functions import as_schema
from .log import Follower, LogSource, Mark, Marks

if TYPE_CHECKING:
    import pyarrow as pa


_MARK_S = 0.25  # time between marks of a growing file: the accuracy of the time of a line
_MOST = 1 << 24  # most bytes read from one file in one look


@dataclass(frozen=True)
class FileSource(LogSource):
    """Lines of all files below `path` whose names match. Files may grow, and new ones may appear, but none may shrink.

    A file belongs to one partition, by its name. A line counts when its end is written. The time at which it is first
    seen is its event time.

    Parameters
    ----------
    path
        The folder.
    pattern
        Pattern of the names of the files, as in `Path.glob`.
    partitions
        Partitions of the log, the most instances that can read it; at most 256.
    folder
        Folder of the marks, which the job sets.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = FileSource(folder, "*.log")
    >>> source.partitions, source.schema.names
    (16, ['line'])
    """

    path: str | Path
    pattern: str = "*"
    partitions: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", as_schema("line string"))
        if not 1 <= self.partitions <= 256:
            raise ArgumentError(
                f"partitions={self.partitions}", expected="1 to 256 partitions", fix="as in FileSource(path)"
            )
        if not Path(self.path).is_dir():
            raise SourceError(
                str(self.path), expected="a folder that is there", fix="make the folder, or pass another path"
            )

    @property
    def log(self) -> str:
        return f"files {Path(self.path).absolute()}/{self.pattern}"

    def begin(self) -> list[Any]:
        return [["", 0]] * self.partitions

    def follower(self, marks: list[list[Mark]]) -> _Look:
        return _Look(Path(self.path), self.pattern, marks)

    def reader(self) -> _Lines:
        return _Lines(Path(self.path))

    def place(self, mark: Mark) -> str:
        return str(mark.where[0])


class _Look(Follower):
    """The driver's count of lines as files grow; a mark is set when a partition changes from one file to another."""

    def __init__(self, path: Path, pattern: str, marks: list[list[Mark]]):
        self._path, self._pattern = path, pattern
        self._counts: list[int] = []
        self._last = [known[-1] for known in marks]
        self._ends: dict[str, int] = {}  # counted bytes of each file
        self._nodes: dict[str, int] = {}  # the file that had each name when it was seen first
        for known in marks:
            until = [mark.number for mark in known[1:]]
            for mark, end in zip(known, until, strict=False):
                name, at = mark.where
                self._ends[name] = _after(path / name, at, end - mark.number) if name else 0
            name, at = known[-1].where  # lines added since precede those of any other file
            lines, size = _rest(path / name, at) if name else (0, 0)
            self._ends[name] = at + size
            self._counts.append(known[-1].number + lines)
        self._fresh: list[list[Mark]] = [[] for _ in marks]  # since the last look that came to its end

    def look(self) -> list[tuple[int, list[Mark]]]:
        for file in sorted(self._path.glob(self._pattern)):
            name = file.relative_to(self._path).as_posix()
            about = file.stat()
            size, begun = about.st_size, self._ends.get(name, 0)
            if size < begun or self._nodes.setdefault(name, about.st_ino) != about.st_ino:
                other = "" if size < begun else ", another file than before"
                raise SourceError(
                    f"{file} with {size} bytes, after it had {begun}{other}",
                    expected="files that only grow",
                    fix="rotate by giving the file with new lines a new name",
                )
            if size == begun or file.is_dir():
                continue
            with file.open("rb") as opened:
                opened.seek(begun)
                text = opened.read(_MOST)
            lines, whole = text.count(b"\n"), text.rfind(b"\n") + 1
            if not lines and len(text) == _MOST:
                raise SourceError(
                    f"a line of more than {_MOST >> 20} MB in {file}",
                    expected="shorter lines",
                    fix="write binary data to another file",
                )
            if not lines:
                continue
            p = zlib.crc32(name.encode()) % len(self._counts)
            now = max(round(time.time() * 1e6), self._last[p].micros)  # a clock that was set back makes no line late
            if self._last[p].where[0] != name or now - self._last[p].micros > _MARK_S * 1e6:
                self._last[p] = Mark(self._counts[p], [name, begun], now)
                self._fresh[p].append(self._last[p])
            self._counts[p] += lines
            self._ends[name] = begun + whole
        fresh, self._fresh = self._fresh, [[] for _ in self._counts]
        return list(zip(self._counts, fresh, strict=True))

    def close(self) -> None:
        pass


def _after(file: Path, at: int, lines: int) -> int:
    """Return the position in a file after so many lines from `at`; a file that is gone is done."""
    try:
        with file.open("rb") as opened:
            opened.seek(at)
            return at + sum(map(len, islice(opened, lines)))
    except FileNotFoundError:
        return at


def _rest(file: Path, at: int) -> tuple[int, int]:
    """Return the number of complete lines of a file from `at` on, and their bytes."""
    lines = size = 0
    with file.open("rb") as opened:
        opened.seek(at)
        for line in opened:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
    return lines, size


_NOTHING: tuple[int, str, BinaryIO | None] = (-1, "", None)


class _Lines:
    """A task's reader, which continues at its position, or searches from the mark before."""

    def __init__(self, path: Path):
        self._path = path
        self._open: dict[int, tuple[int, str, BinaryIO]] = {}  # by partition: the next line, its file

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        import numpy as np
        import pyarrow as pa

        lines: list[bytes] = []
        event = np.empty(high - low, np.int64)
        while low + len(lines) < high:
            first = low + len(lines)
            mark, end = marks.at(first)
            file = self._at(p, first, mark)
            most = min(high, end if end is not None else high) - first
            got = list(islice(file, most))
            if len(got) < most:
                raise SourceError(
                    f"{self._path / mark.where[0]} that ends early", expected="a file that only grows", fix="restore it"
                )
            event[len(lines) : len(lines) + most] = mark.micros
            lines += got
            self._open[p] = (first + most, mark.where[0], file)
        text = [line.rstrip(b"\r\n").decode(errors="replace") for line in lines]
        return pa.RecordBatch.from_arrays([pa.array(text, pa.string())], names=["line"]), event

    def close(self) -> None:
        for _, _, file in self._open.values():
            file.close()

    def _at(self, p: int, number: int, mark: Mark) -> BinaryIO:
        name, at = mark.where
        nxt, now, file = self._open.get(p, _NOTHING)
        if file is not None and (nxt, now) == (number, name) and (number > mark.number or file.tell() == at):
            return file
        if file is not None:
            file.close()
            del self._open[p]
        opened: BinaryIO = (self._path / name).open("rb")
        self._open[p] = (-1, name, opened)
        opened.seek(at)
        for _ in islice(opened, number - mark.number):
            pass
        return opened
