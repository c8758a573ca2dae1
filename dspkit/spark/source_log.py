"""Logs outside of Spark: what those of files, Redis and Kafka have in common.

Records of a partition are numbered from 0, where the job began to read. Spark's checkpoint holds how far each partition
is read, as it does for a trace; the driver looks how far each is filled, and the source's tasks fetch what they are
told to take. Where a record is to be found, the *marks* say: `(number, where, micros)` means that records from that
number on are at `where`, up to the next mark, and were first seen at that time. Marks are written down before anybody
is told of the records, so the same numbers always lead to the same records.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from ..errors import DspkitError
from ..files import write
from .errors import SourceError
from .frames import Records

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[Any]]
SINCE = ("earliest", "latest")
_CLIENTS = 8  # open in one process
_TRIMMED = 1 << 20  # bytes of a partition's marks, beyond which those of records that are done are dropped


class Mark(NamedTuple):
    """From record `number` on, records are at `where`; the first of them was seen at that time."""

    number: int
    where: Any
    micros: int


class Follower(Protocol):
    """The driver's look at a log."""

    def look(self) -> list[tuple[int, list[Mark]]]:
        """For each partition: how many records there are, and marks that are new."""
        ...

    def close(self) -> None: ...


class Reader(Protocol):
    """A task's hands on a log."""

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        """Records low to high of a partition, and when each came about, in microseconds."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class LogSource(ABC):
    """A log that is read through its own client; see FileSource, RedisSource, KafkaSource."""

    folder: Path | None = field(default=None, kw_only=True, repr=False, compare=False)  # of the marks: the job says it

    schema: Any = field(init=False, repr=False, default=None)

    @property
    @abstractmethod
    def partitions(self) -> int: ...

    @property
    @abstractmethod
    def log(self) -> str:
        """Which log it is, for the checkpoint."""

    @abstractmethod
    def begin(self) -> list[Any]:
        """Where each partition begins, for a job that has no checkpoint."""

    @abstractmethod
    def follower(self, marks: list[list[Mark]]) -> Follower:
        """Looks at the log from these marks on."""

    @abstractmethod
    def reader(self) -> Reader: ...

    def place(self, mark: Mark) -> str:
        """Of several places that grow side by side, the one that a mark is in."""
        return ""

    def at(self, folder: Path) -> Self:
        """The source with a place for its marks."""
        return replace(self, folder=folder)

    def records(self, frame: bytes, read_to: dict[int, int]) -> tuple[Records, dict[int, int]]:
        """What a frame of the source stands for: its stretches, fetched."""
        import numpy as np
        import pyarrow as pa

        words = np.frombuffer(frame, "<i8")
        stretches = words[2:].reshape(-1, 3).tolist()
        reader, catalog = self._open()
        parts = []
        for p, low, high in stretches:
            try:
                parts.append(reader.read(p, catalog.marks(p), low, high))
            except DspkitError:
                raise
            except Exception as error:
                raise SourceError(
                    f"{type(error).__name__} from {self.log}: {error}",
                    expected="a log that can be read",
                    fix="see to the log; the job goes on from its checkpoint",
                ) from error
        event = np.concatenate([event for _, event in parts])
        batch = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks().to_batches()[0]
        read_to = read_to | {p: high for p, _, high in stretches}
        return Records(batch, event, np.full(len(event), int(words[0]))), read_to

    def _open(self) -> tuple[Reader, Catalog]:
        """This process's own client: workers live longer than tasks."""
        assert self.folder is not None
        if self.folder not in _opened:
            if len(_opened) >= _CLIENTS:  # of jobs that are over, most likely
                close_all()
            _opened[self.folder] = (self.reader(), Catalog(self.folder, self.partitions))
        return _opened[self.folder]


_opened: dict[Path, tuple[Reader, Catalog]] = {}


def close_all() -> None:
    """End all clients of this process; what is needed is opened again."""
    while _opened:
        _opened.popitem()[1][0].close()


class Marks:
    """The marks of one partition, in order."""

    def __init__(self, marks: list[Mark]):
        self.marks, self.counts = marks, [mark.number for mark in marks]

    def add(self, mark: Mark) -> None:
        self.marks.append(mark)
        self.counts.append(mark.number)

    def at(self, number: int) -> tuple[Mark, int | None]:
        """The mark that a record is behind, and the number at which the next one begins."""
        i = bisect_right(self.counts, number) - 1
        return self.marks[i], self.counts[i + 1] if i + 1 < len(self.counts) else None


class Catalog:
    """Marks on the checkpoint's disk, a file a partition: the driver writes them, tasks read what has been added."""

    def __init__(self, folder: Path, partitions: int):
        self.folder, self._seen = folder, [_Seen() for _ in range(partitions)]

    def path(self, p: int) -> Path:
        return self.folder / f"{p}.marks"

    def marks(self, p: int) -> Marks:
        """All marks of a partition that are written down by now."""
        seen = self._seen[p]
        try:
            now = os.stat(self.path(p))
            if (now.st_ino, now.st_size) != (seen.inode, seen.size):
                with self.path(p).open("rb") as file:
                    inode = os.fstat(file.fileno()).st_ino
                    if inode != seen.inode or now.st_size < seen.size:
                        seen = self._seen[p] = _Seen(inode, trim_at=seen.trim_at)
                    file.seek(seen.size)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                for line in whole.splitlines():
                    seen.marks.add(Mark(*json.loads(line)))
                seen.size += len(whole)
        except (OSError, ValueError, TypeError) as error:
            raise SourceError(
                f"marks that cannot be read ({error})",
                expected=f"those of the job, in {self.folder}",
                fix="keep a checkpoint's folder whole, on a disk that all workers see",
            ) from error
        return seen.marks

    @staticmethod
    def begin(folder: Path, where: list[Any], micros: int) -> None:
        """The first mark of each partition; the folder is there with all of them, or not at all."""
        fresh = folder.with_name(f"{folder.name}.new")
        fresh.mkdir(parents=True, exist_ok=True)
        for p, place in enumerate(where):
            (fresh / f"{p}.marks").write_text(json.dumps(Mark(0, place, micros)) + "\n")
        fresh.rename(folder)

    def mend(self) -> list[list[Mark]]:
        """What a former run wrote down, after cutting off what it did not finish."""
        for p in range(len(self._seen)):
            whole = self.marks(p)
            if self.path(p).stat().st_size > self._seen[p].size:
                self._rewrite(p, whole.marks)
        return [list(seen.marks.marks) for seen in self._seen]

    def add(self, p: int, marks: list[Mark]) -> None:
        with self.path(p).open("ab") as file:
            file.write(b"".join(json.dumps(mark).encode() + b"\n" for mark in marks))

    def trim(self, p: int, done: Callable[[], Sequence[int]], place: Callable[[Mark], str]) -> None:
        """Drop marks of what is done for good, if they are many; of each place the last stays known, and its end."""
        size = self.path(p).stat().st_size
        if size < self._seen[p].trim_at:
            return
        known, upto = self.marks(p), [*done(), 0]
        needed = bisect_right(known.counts, upto[p]) - 1
        last = set({place(mark): i for i, mark in enumerate(known.marks)}.values())
        kept = [mark for i, mark in enumerate(known.marks) if i >= needed or i in last or i - 1 in last]
        self._rewrite(p, kept)
        self._seen[p] = _Seen(trim_at=max(_TRIMMED, 2 * self.path(p).stat().st_size))

    def _rewrite(self, p: int, marks: list[Mark]) -> None:
        text = "".join(json.dumps(mark) + "\n" for mark in marks)
        write(self.path(p), lambda path: path.write_text(text), overwrite=True)


@dataclass
class _Seen:
    inode: int = 0
    size: int = 0
    trim_at: int = _TRIMMED
    marks: Marks = field(default_factory=lambda: Marks([]))
