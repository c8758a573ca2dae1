"""A folder of text files that grow, as a log: each line is a record."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import KnobError
from .errors import SourceError
from .functions import as_schema
from .source_log import LogSource, Mark, Marks

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[Any]]
_MARK_S = 0.25  # between marks of a file that grows: how exactly the time of a line is known
_MOST = 1 << 24  # bytes taken of one file in one look


@dataclass(frozen=True)
class FileSource(LogSource):
    """Lines of all files below `path` whose names match; they may grow, and new ones may come, but none may shrink.

    A file belongs to one of the `partitions`, by its name. A line counts from when its end is written. The time at
    which it is first seen is its event time.
    """

    path: str | Path
    pattern: str = "*"
    parts: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", as_schema("line string"))
        if not 1 <= self.parts <= 256:
            raise KnobError(f"parts={self.parts}", expected="1 to 256 partitions", fix="as in FileSource(path)")
        if not Path(self.path).is_dir():
            raise SourceError(str(self.path), expected="a folder that is there", fix="make it, or correct the path")

    @property
    def partitions(self) -> int:
        return self.parts

    @property
    def log(self) -> str:
        return f"files {Path(self.path).absolute()}/{self.pattern}"

    def begin(self) -> list[Any]:
        return [["", 0]] * self.parts

    def follower(self, marks: list[list[Mark]]) -> _Look:
        return _Look(Path(self.path), self.pattern, marks)

    def reader(self) -> _Lines:
        return _Lines(Path(self.path))

    def place(self, mark: Mark) -> str:
        return str(mark.where[0])


class _Look:
    """Counts lines as files grow; marks where a partition goes from one file to another."""

    def __init__(self, path: Path, pattern: str, marks: list[list[Mark]]):
        self._path, self._pattern = path, pattern
        self._counts: list[int] = []
        self._last = [known[-1] for known in marks]
        self._ends: dict[str, int] = {}  # bytes of each file that are counted
        for known in marks:
            until = [mark.number for mark in known[1:]]
            for mark, end in zip(known, until, strict=False):
                name, at = mark.where
                self._ends[name] = _after(path / name, at, end - mark.number) if name else 0
            name, at = known[-1].where  # what was seen since comes first: before the lines of any other file
            lines, size = _rest(path / name, at) if name else (0, 0)
            self._ends[name] = at + size
            self._counts.append(known[-1].number + lines)

    def look(self) -> list[tuple[int, list[Mark]]]:
        fresh: list[list[Mark]] = [[] for _ in self._counts]
        for file in sorted(self._path.glob(self._pattern)):
            name = file.relative_to(self._path).as_posix()
            size = file.stat().st_size
            begun = self._ends.get(name, 0)
            if size < begun:
                raise SourceError(
                    f"{file} with {size} bytes, after it had {begun}", expected="files that only grow",
                    fix="rotate by renaming: a new file for new lines",
                )  # fmt: skip
            if size == begun or file.is_dir():
                continue
            with file.open("rb") as opened:
                opened.seek(begun)
                text = opened.read(_MOST)
            lines, whole = text.count(b"\n"), text.rfind(b"\n") + 1
            if not lines:
                continue
            p, now = zlib.crc32(name.encode()) % len(self._counts), round(time.time() * 1e6)
            if self._last[p].where[0] != name or now - self._last[p].micros > _MARK_S * 1e6:
                self._last[p] = Mark(self._counts[p], [name, begun], now)
                fresh[p].append(self._last[p])
            self._counts[p] += lines
            self._ends[name] = begun + whole
        return list(zip(self._counts, fresh, strict=True))

    def close(self) -> None:
        pass


def _after(file: Path, at: int, lines: int) -> int:
    """Where a file is after so many lines from there; a file that is gone is done with."""
    try:
        with file.open("rb") as opened:
            opened.seek(at)
            return at + sum(map(len, islice(opened, lines)))
    except FileNotFoundError:
        return at


def _rest(file: Path, at: int) -> tuple[int, int]:
    """Whole lines of a file from there on, and their bytes."""
    lines = size = 0
    with file.open("rb") as opened:
        opened.seek(at)
        for line in opened:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
    return lines, size


_NOTHING: tuple[int, str, BinaryIO | None] = (-1, "", None)


class _Lines:
    """Reads on where it was, or finds its way from the mark before."""

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
