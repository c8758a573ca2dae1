"""Logs outside of Spark: the common part of files, Redis streams and Kafka topics.

Records of a partition are numbered from 0, where the job began to read. Spark's checkpoint holds how far each partition
is read, as it does for a trace; the driver (`LogTailer`) looks twenty times per second how far each is filled, and the
source's tasks fetch the records that they are assigned. The *marks* contain the position of a record: `(number, where,
micros)` means that records from that number on are at `where`, up to the next mark, and were first seen at that time.
Marks are on the disk before the records are announced, so the same numbers always lead to the same records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from ...core import DspkitError
from ...core.files import file_error, write_atomically
from ...core.typing import Array
from ..dataflow.exchange import Records
from ..dataflow.state import seal, synchronise, unseal
from ..errors import ServiceThread, SourceError
from ..metering import ClockWatch

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger("dspkit")
SINCE = ("earliest", "latest")
_CLIENTS = 8  # open in one process
_COUNTS = "counts.json"  # beside the marks
_NOTHING = rb"(?!)"  # that needs no checksum: only marks of older versions may do without
_TRIMMED = 1 << 20  # bytes of a partition's marks, beyond which those of committed records are dropped


class Mark(NamedTuple):
    """The position of records: from `number` on they are at `where`; the first of them was seen at `micros`."""

    number: int
    where: Any
    micros: int


class Follower(Protocol):
    """The driver's view of a log."""

    def began(self, zero_s: float, read: Sequence[int]) -> None:
        """Note when the job began to read, in seconds, and what is read; a log that fills by itself need not know."""
        return

    def look(self) -> list[tuple[int, list[Mark]]]:
        """Return for each partition the number of its records, and new marks."""
        ...

    def close(self) -> None: ...


class Reader(Protocol):
    """A task's client of a log."""

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        """Return records low to high of a partition, and their event times in microseconds."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class LogSource(ABC):
    """Base of logs that are read through their own client: FileSource, RedisSource, KafkaSource.

    Parameters
    ----------
    folder
        Folder of the marks, which the job sets.
    """

    folder: Path | None = field(default=None, kw_only=True, repr=False, compare=False)  # of the marks: the job sets it

    look_every_s: ClassVar[float] = 0.05  # the driver looks how far it is filled

    schema: Any = field(init=False, repr=False, default=None)

    @property
    @abstractmethod
    def partitions(self) -> int:
        """Number of partitions of the log."""

    @property
    @abstractmethod
    def log(self) -> str:
        """Name of the log, for the checkpoint and messages."""

    @abstractmethod
    def begin(self) -> list[Any]:
        """Return the beginning of each partition, for a job without a checkpoint."""

    @abstractmethod
    def follower(self, marks: list[list[Mark]]) -> Follower:
        """Return the driver's view of the log, from these marks on.

        Parameters
        ----------
        marks : list of list of Mark
            The known marks of each partition.
        """

    @abstractmethod
    def reader(self) -> Reader:
        """Return a client for a task."""

    def place(self, mark: Mark) -> str:
        """Return the file, or another place of several that grow side by side, of a mark.

        Parameters
        ----------
        mark : Mark
            A mark.
        """
        return ""

    def at(self, folder: Path) -> Self:
        """Return the source with a folder for its marks.

        Parameters
        ----------
        folder : Path
            The folder.
        """
        return replace(self, folder=folder)

    def records(self, frame: bytes, read_to: dict[int, int]) -> tuple[Records, dict[int, int]]:
        """Fetch the records of a frame, and return them and how far each partition is read.

        Parameters
        ----------
        frame : bytes
            Two words, and three for each stretch: partition, first number, number after the last.
        read_to : dict
            How far each partition was read before.
        """
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
                    fix="repair the log; the job continues from its checkpoint",
                ) from error
        event = np.concatenate([event for _, event in parts])
        batch = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks().to_batches()[0]
        read_to = read_to | {p: high for p, _, high in stretches}
        return Records(batch, event, np.full(len(event), int(words[0]))), read_to

    def partition_of(self, stretches: Array) -> Array:
        """Return the partition of each of the records of stretches (partition, from, to), in the order of `records`.

        Parameters
        ----------
        stretches : array
            One row per stretch: partition, first number, number after the last.
        """
        import numpy as np

        partition: Array = np.repeat(stretches[:, 0], stretches[:, 2] - stretches[:, 1])
        return partition

    def _open(self) -> tuple[Reader, Catalog]:
        """Return this process's own client: workers live longer than tasks."""
        assert self.folder is not None
        if self.folder not in _opened:
            if len(_opened) >= _CLIENTS:  # most likely of jobs that have ended
                close_all()
            _opened[self.folder] = (self.reader(), Catalog(self.folder, self.partitions))
        return _opened[self.folder]


_opened: dict[Path, tuple[Reader, Catalog]] = {}


def close_all() -> None:
    """Close all clients of this process; they are opened again when needed."""
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
        """Return the mark of a record, and the number at which the next one begins."""
        i = bisect_right(self.counts, number) - 1
        return self.marks[i], self.counts[i + 1] if i + 1 < len(self.counts) else None


class Catalog:
    """Marks on the checkpoint's disk, one file per partition: the driver appends to them, tasks read what was added.

    A file begins with a head, and the checksum of each line continues that of the line before. `counts.json` has the
    number of marks that each partition was ever given. So a line that is missing, doubled or in another place is found,
    also the last one. The numbers are written after the marks and before their records are announced: there may be more
    marks than that, but not fewer.
    """

    def __init__(self, folder: Path, partitions: int):
        self.folder, self._seen = folder, [_Seen() for _ in range(partitions)]

    def path(self, p: int) -> Path:
        return self.folder / f"{p}.marks"

    def marks(self, p: int) -> Marks:
        """Return all marks of a partition that are written down by now."""
        seen = self._seen[p]
        try:
            now = os.stat(self.path(p))
            if (now.st_ino, now.st_size) != (seen.inode, seen.size):
                least = self._counts()[p]  # before the marks are read: more may be added meanwhile
                with self.path(p).open("rb") as file:
                    inode = os.fstat(file.fileno()).st_ino
                    if inode != seen.inode or now.st_size < seen.size:
                        seen = self._seen[p] = _Seen(inode, trim_at=seen.trim_at)
                    file.seek(seen.size)
                    text = file.read()
                for line in text.split(b"\n")[:-1]:
                    seen.take(p, line, old=least is None)
                seen.check(p, least or 1)
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._seen[p] = _Seen(trim_at=seen.trim_at)
            if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):  # of the disk, and it may pass
                raise file_error(self.path(p), error, expected="marks that can be read") from error
            raise SourceError(
                f"marks that cannot be read ({error})",
                expected=f"the marks of the job as they were written, in {self.folder}",
                fix="restore the folder from a copy, and keep it whole, on a disk that all workers see; "
                "or start in another folder",
            ) from error
        return seen.marks

    @staticmethod
    def begin(folder: Path, where: list[Any], micros: int) -> None:
        """Write the first mark of each partition durably; the folder exists with all of them, or not at all."""
        fresh = Catalog(folder.with_name(f"{folder.name}.new"), len(where))
        for p, place in enumerate(where):
            fresh._rewrite(p, [Mark(0, place, micros)], 1)
        fresh._count([1] * len(where))
        fresh.folder.rename(folder)
        synchronise(folder.parent)

    def repair(self) -> list[list[Mark]]:
        """Return the marks of a former run, after cutting off an incomplete one."""
        if not (self.folder / _COUNTS).exists() and all(_is_old(self.path(p)) for p in range(len(self._seen))):
            log.warning(
                "the marks in %s are of an older dspkit, which did not count them: a line that is missing cannot be "
                "seen; from now on they are counted",
                self.folder,
            )
            self._count([None] * len(self._seen))
        for p in range(len(self._seen)):
            marks = self.marks(p).marks
            if self._seen[p].sum is None:  # of an older version
                self._rewrite(p, marks, len(marks))
            elif self.path(p).stat().st_size > self._seen[p].size:
                os.truncate(self.path(p), self._seen[p].size)
        self._count(self._added())
        return [list(seen.marks.marks) for seen in self._seen]

    def add(self, fresh: Mapping[int, Sequence[Mark]]) -> None:
        """Append marks to partitions, durably; if that fails it can be repeated, and none is there twice."""
        for p, marks in fresh.items():
            known, seen = self.marks(p), self._seen[p]
            newest = known.marks[-len(marks) :]
            missing = [mark for mark in marks if mark not in newest]
            with self.path(p).open(
                "r+b", buffering=0
            ) as file:  # a buffer would be written after the repair, at its end
                try:
                    file.truncate(seen.size)  # of what an attempt that failed has left
                    file.seek(seen.size)
                    rest = _lines(missing, seen.sum or 0)
                    while rest:  # on a disk that is almost full, a write may take a part
                        rest = rest[os.write(file.fileno(), rest) :]
                    os.fsync(file.fileno())  # an epoch that reads these records may be committed at once
                except OSError:
                    with contextlib.suppress(OSError):
                        os.truncate(file.fileno(), seen.size)
                    raise
        if fresh:
            self._count(self._added())

    def trim(self, p: int, committed: Callable[[], Sequence[int]], place: Callable[[Mark], str]) -> None:
        """Drop marks of committed records, if they are many; the last mark of each place is kept, and its end.

        Where there is no room for the file that takes their place, they stay until they are twice as many.
        """
        size = self.path(p).stat().st_size
        if size < self._seen[p].trim_at:
            return
        known, upto = self.marks(p), [*committed(), 0]
        needed = bisect_right(known.counts, upto[p]) - 1
        last = set({place(mark): i for i, mark in enumerate(known.marks)}.values())
        kept = [mark for i, mark in enumerate(known.marks) if i >= needed or i in last or i - 1 in last]
        try:
            self._rewrite(p, kept, self._seen[p].added)
        except OSError as error:
            self._seen[p].trim_at = 2 * size
            log.warning("the marks of committed records stay, for now: %s", error)
            return
        self._seen[p] = _Seen(trim_at=max(_TRIMMED, 2 * self.path(p).stat().st_size))

    def _rewrite(self, p: int, marks: list[Mark], added: int) -> None:
        head = seal({"partition": p, "added": added, "kept": len(marks)})
        lines = head + b"\n" + _lines(marks, _sum(head))
        write_atomically(self.path(p), lambda path: path.write_bytes(lines), overwrite=True)

    def _added(self) -> list[int]:
        """Return the number of marks that each partition was ever given, by its file."""
        for p in range(len(self._seen)):
            self.marks(p)
        return [seen.added for seen in self._seen]

    def _counts(self) -> list[int | None]:
        """Return the number of marks that each partition has at least; None for marks of an older version."""
        counts = unseal((self.folder / _COUNTS).read_bytes(), plain=_NOTHING)
        if len(counts) != len(self._seen):
            raise ValueError(f"{_COUNTS} of {len(counts)} partitions instead of {len(self._seen)}")
        return list(counts)

    def _count(self, counts: Sequence[int | None]) -> None:
        data = seal(counts)
        write_atomically(self.folder / _COUNTS, lambda path: path.write_bytes(data), overwrite=True)


def _lines(marks: Sequence[Mark], before: int) -> bytes:
    lines = []
    for mark in marks:
        lines.append(seal(mark, before) + b"\n")
        before = _sum(lines[-1])
    return b"".join(lines)


def _sum(line: bytes) -> int:
    return int(line[:8], 16)


def _is_old(path: Path) -> bool:
    """Return whether a file of marks has no head, as those of older versions."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        return isinstance(unseal(file.readline().rstrip(b"\n")), list)
    return False


@dataclass
class _Seen:
    """The known part of a partition's file."""

    inode: int = 0
    size: int = 0
    trim_at: int = _TRIMMED
    marks: Marks = field(default_factory=lambda: Marks([]))
    added: int = 0  # marks so far, with those that were dropped
    sum: int | None = None  # of the last line; None before the head, and if there is none

    def take(self, p: int, line: bytes, *, old: bool) -> None:
        """Take the next line of the file of a partition; `old` if it may be of an older version, without a head."""
        if self.sum is not None:
            self.marks.add(Mark(*unseal(line, plain=_NOTHING, before=self.sum)))
            self.added, self.sum = self.added + 1, _sum(line)
        elif isinstance(content := unseal(line) if old else unseal(line, plain=_NOTHING), dict):
            if self.size or content["partition"] != p:
                raise ValueError(f"the head of partition {content['partition']} in the marks of partition {p}")
            self.added, self.sum = content["added"] - content["kept"], _sum(line)
        elif old:
            self.marks.add(Mark(*content))
            self.added += 1
        else:
            raise ValueError(f"no head in the marks of partition {p}")
        self.size += len(line) + 1

    def check(self, p: int, least: int) -> None:
        """Raise an error if these are fewer marks than the partition had."""
        if self.added < least:
            raise ValueError(f"{self.added} marks of partition {p}, which had {least}")


_REMEMBERED = 12_000  # looks that are kept: ten minutes
_PATIENCE_S = 15.0  # timeout of a log that does not answer


class LogTailer:
    """The driver's thread that looks at a log from its beginning, or from the end of a checkpoint's marks.

    `committed()` returns how many records of each partition are committed for good; `known` whether any are.
    """

    def __init__(self, source: LogSource, committed: Callable[[], Sequence[int]], *, known: bool = False):
        assert source.folder is not None
        self._source, self._done = source, committed
        self._catalog = Catalog(source.folder, source.partitions)
        self._new: dict[int, list[Mark]] = {}  # marks that are not on the disk yet
        try:
            if not source.folder.is_dir():
                if known:  # a new beginning would give the numbers of committed records to others
                    raise SourceError(
                        f"no folder {source.folder}",
                        expected="the marks of the records that the checkpoint has committed",
                        fix="restore the folder from a copy, or start in another one",
                    )
                Catalog.begin(source.folder, source.begin(), round(time.time() * 1e6))
            self._follower = source.follower(self._catalog.repair())
            self.counts = [0] * source.partitions
            self._seen: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
            self._clock, self._setting, self._looks = ClockWatch(), threading.Lock(), 0
            self._look()
        except DspkitError:
            raise
        except Exception as error:
            raise self._failed(error) from error
        self.error: DspkitError | None = None
        self.thread: ServiceThread | None = None

    def start(self, report: Callable[[Sequence[int]], None]) -> None:
        """Begin to look repeatedly, and report how many records each partition has."""
        report(self.counts)
        self.thread = ServiceThread("dspkit-follow", f"follows {self._source.log}", partial(self._run, report))
        self.thread.start()

    def began(self, zero_s: float, read: Sequence[int]) -> None:
        """Note when the job began to read, in seconds, and how far each partition is read; wait for a look after that.

        Until then a log that fills since that time does not show what it has offered meanwhile.
        """
        self._follower.began(zero_s, read)
        before, target, end = len(self._seen), self._looks + 2, time.monotonic() + _PATIENCE_S
        while self._looks < target and self.error is None and time.monotonic() < end:
            if self.thread is None or self.thread.failure or self.thread.ended.wait(self._source.look_every_s / 4):
                return
        with self._setting:
            # the first of the two may have begun before
            kept = [look for i, look in enumerate(self._seen) if look[0] <= zero_s or i > before]
            self._seen = deque(kept or [self._seen[-1]], maxlen=_REMEMBERED)

    def offered(self, at: float) -> float:
        """Return how many records there were at that time."""
        import numpy as np

        with self._setting:
            self._follow_clock()
            times, totals = zip(*self._seen, strict=True)
        return float(np.interp(at, times, totals))

    def _follow_clock(self) -> None:
        """Move the times of all looks with the system's clock, if it was set: they must rise."""
        if step := self._clock.step():
            now = time.time()
            self._seen = deque(((min(now, at + step), total) for at, total in self._seen), maxlen=_REMEMBERED)

    def close(self) -> None:
        if self.thread is not None:
            self.thread.close(10)
        self._follower.close()

    def _run(self, report: Callable[[Sequence[int]], None]) -> None:
        assert self.thread is not None
        good, ended = time.monotonic(), self.thread.ended
        while not ended.wait(self._source.look_every_s):
            try:
                self._look()
                good = time.monotonic()
            except Exception as error:
                failed = error if isinstance(error, DspkitError) else self._failed(error)
                final = isinstance(error, DspkitError) and not isinstance(error, OSError)  # a disk may have room again
                if final or time.monotonic() - good > _PATIENCE_S:
                    self.error = failed
                    return
                log.warning("%s", failed)
                ended.wait(1.0)
            try:
                report(self.counts)
            except Exception:  # the query is being restarted: the next look reports to its successor
                continue

    def _look(self) -> None:
        found = self._follower.look()
        for p, (_, marks) in enumerate(found):
            if marks:
                self._new.setdefault(p, []).extend(marks)
        self._catalog.add(self._new)  # if it fails, the next look repeats it
        for p in self._new:
            self._catalog.trim(p, self._done, self._source.place)
        self._new, self.counts = {}, [count for count, _ in found]
        with self._setting:
            self._follow_clock()
            self._seen.append((time.time(), sum(self.counts)))
            self._looks += 1

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(
            f"{type(error).__name__} from {self._source.log}: {error}",
            expected="a log that answers",
            fix="check its server, the name and the address",
        )
