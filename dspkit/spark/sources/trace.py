"""The sources of experiments: replayable logs that fill at the pace of a Workload.

`TurnedSource` is one whose load a person scales while it fills. From a mark on, at which the log had $n_0$ records at
the second $t_0$ and the factor became $f$, it has $n(t) = n_0 + f (C(t) - C(t_0))$, where $C$ counts the records that
the workload itself has offered. So the time of a record is the inverse of a formula, also when it is read again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ...core import ArgumentError, WorkloadError
from ...core.typing import Array
from ...workload import Workload
from ..dataflow.exchange import Records
from ..functions import as_schema
from .log import Follower, LogSource, Mark, Marks, Reader

if TYPE_CHECKING:
    import pyarrow as pa


def numbered_records(ids: Array, event_s: Array) -> pa.RecordBatch:
    """Return records with their number, and their event time in seconds since the start.

    Parameters
    ----------
    ids : array
        Numbers of the records.
    event_s : array
        Their event times, in seconds.

    Examples
    --------
    >>> import numpy as np
    >>> numbered_records(np.array([7]), np.array([0.5])).to_pylist()
    [{'id': 7, 'event_s': 0.5}]
    """
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(event_s)], names=["id", "event_s"])


@dataclass(frozen=True)
class TraceSource:
    """A log that fills at the pace of a `Workload`; the same records at the same times, however often it is read.

    Record i is created when the workload has offered i + 1 records.

    Parameters
    ----------
    workload
        The load, in records/s over time.
    make
        Makes the records, as an Arrow batch, from their numbers and their event times in seconds.
    schema
        Columns of the records.
    partitions
        Partitions of the log, the most instances that can read it; at most 256.
    horizon_s
        Time up to which the load is sampled; afterwards the last rate continues.
    step_s
        Time between samples of the load, in seconds.

    Examples
    --------
    >>> from dspkit import workload
    >>> source = TraceSource(workload.Constant(500), partitions=4)
    >>> source.offered(10), source.schema.names
    (5000.0, ['id', 'event_s'])
    """

    workload: Workload
    make: Callable[[Array, Array], pa.RecordBatch] = numbered_records
    schema: Any = "id int64, event_s float64"
    partitions: int = 16
    horizon_s: float = 3600.0
    step_s: float = 0.25
    _times: Any = field(init=False, repr=False, compare=False)
    _counts: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        import numpy as np

        if not isinstance(self.workload, Workload):
            raise WorkloadError(repr(self.workload), expected="a Workload", fix="as in TraceSource(Constant(500))")
        if not (0 < self.step_s <= self.horizon_s < math.inf and 1 <= self.partitions <= 256):
            raise ArgumentError(
                f"partitions={self.partitions}, horizon_s={self.horizon_s}, step_s={self.step_s}",
                expected="0 < step_s <= horizon_s, and 1 to 256 partitions",
                fix="use the defaults",
            )
        object.__setattr__(self, "schema", as_schema(self.schema))
        edges = np.arange(0, self.horizon_s + self.step_s, self.step_s)
        rates = self.workload.rates((edges[:-1] + edges[1:]) / 2)
        turns = np.flatnonzero(np.diff(rates)) + 1  # a straight line needs no points in between
        keep = np.concatenate([[0], turns, [len(rates)]])
        counts = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])
        object.__setattr__(self, "_times", edges[keep])
        object.__setattr__(self, "_counts", counts[keep])

    def points(self) -> str:
        """Return the trace in the format of the jar: records by second.

        Examples
        --------
        >>> from dspkit import workload
        >>> TraceSource(workload.Constant(2), horizon_s=1.0).points()
        '0.0:0.0,1.0:2.0'
        """
        return ",".join(f"{t!r}:{n!r}" for t, n in zip(self._times.tolist(), self._counts.tolist(), strict=True))

    def offered(self, seconds: float) -> float:
        """Return the records offered up to a time.

        Parameters
        ----------
        seconds
            Time since the start of the log, in seconds.

        Examples
        --------
        >>> from dspkit import workload
        >>> TraceSource(workload.Constant(500)).offered(7200)
        3600000.0
        """
        import numpy as np

        last = float(self._counts[-1] - self._counts[-2]) / float(self._times[-1] - self._times[-2])
        beyond = max(0.0, seconds - float(self._times[-1])) * last
        return float(np.interp(seconds, self._times, self._counts)) + beyond

    def records(self, frame: bytes, read_to: dict[int, int]) -> tuple[Records, dict[int, int]]:
        """Return the records of a frame, and how far each partition is read.

        Parameters
        ----------
        frame
            A frame of the log: time of reading, beginning of the log, and stretches (partition, from, to).
        read_to
            How far each partition was read before.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import workload
        >>> frame = np.array([0, 0, 1, 0, 2], "<i8").tobytes()
        >>> records, read_to = TraceSource(workload.Constant(1), partitions=2).records(frame, {})
        >>> records.batch.column("id").to_pylist(), read_to
        ([1, 3], {1: 2})
        """
        import numpy as np

        words = np.frombuffer(frame, "<i8")
        stretches = words[2:].reshape(-1, 3).tolist()
        ids = np.concatenate([np.arange(a, b) * self.partitions + p for p, a, b in stretches])
        ids.sort()
        read_to = read_to | {p: b for p, _, b in stretches}
        return self.made(ids, self.event_s(ids), words), read_to

    def made(self, ids: Array, event_s: Array, words: Array) -> Records:
        """Return the records with these numbers and times, of a frame that begins with these words.

        Parameters
        ----------
        ids, event_s
            Their numbers, in order, and their event times in seconds since the beginning of the log.
        words
            The time of reading and the beginning of the log, in microseconds.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import workload
        >>> source = TraceSource(workload.Constant(1))
        >>> source.made(np.array([7]), np.array([8.0]), np.array([9_000_000, 500_000])).event.tolist()
        [8500000]
        """
        import numpy as np
        import pyarrow as pa

        batch = self.make(ids, event_s)
        if not batch.schema.equals(self.schema):
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        event = int(words[1]) + (event_s * 1e6).astype(np.int64)
        return Records(batch, event, np.full(len(ids), int(words[0])))

    def partition_of(self, stretches: Array) -> Array:
        """Return the partition of each of the records of stretches (partition, from, to), in the order of `records`.

        Parameters
        ----------
        stretches
            One row for each: partition, from, to.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import workload
        >>> source = TraceSource(workload.Constant(1), partitions=2)
        >>> source.partition_of(np.array([[0, 0, 2], [1, 0, 1]])).tolist()
        [0, 1, 0]
        """
        import numpy as np

        ids = np.concatenate([np.arange(a, b) * self.partitions + p for p, a, b in stretches.tolist()])
        partition: Array = np.sort(ids) % self.partitions
        return partition

    def event_s(self, ids: Array) -> Array:
        """Return the event times of records: the inverse of the trace.

        Parameters
        ----------
        ids
            Their numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import workload
        >>> TraceSource(workload.Constant(2)).event_s(np.array([0, 1, 3])).round(3).tolist()
        [0.5, 1.0, 2.0]
        """
        import numpy as np

        times, counts = self._times, self._counts
        rising = counts + 1e-6 * np.arange(len(counts))  # where nothing is offered, time jumps at one record
        found = np.interp(ids + 1, rising, times)
        slope = (times[-1] - times[-2]) / max(1e-12, counts[-1] - counts[-2])
        seconds: Array = np.where(ids + 1 > counts[-1], times[-1] + (ids + 1 - counts[-1]) * slope, found)
        return seconds


@dataclass(frozen=True)
class TurnedSource(LogSource):
    """A `TraceSource` whose load is multiplied by `factor()`, which may return another number while the log fills.

    Each change is in the marks of the log, so that a record is the same, at the same time, however often it is read.
    The driver counts the records, fifty times per second; a `TraceSource` is counted where it is read, and without that
    delay of 10 ms on average.

    Parameters
    ----------
    trace
        The log at a factor of 1.
    factor
        Returns the present factor, from 0 up.
    folder
        Folder of the marks, which the job sets.

    Examples
    --------
    >>> from dspkit import workload
    >>> source = TurnedSource(TraceSource(workload.Constant(500)), lambda: 2.0)
    >>> source.partitions, source.begin()[0]
    (16, [0.0, 0.0, 2.0])
    """

    look_every_s: ClassVar[float] = 0.02
    trace: TraceSource
    factor: Callable[[], float] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", self.trace.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "factor": None}  # the driver's: a person turns it

    @property
    def partitions(self) -> int:
        return self.trace.partitions

    @property
    def log(self) -> str:
        return "a load whose height can be changed"

    def begin(self) -> list[Any]:
        return [[0.0, 0.0, self._now()]] * self.partitions

    def _now(self) -> float:
        factor = float(self.factor())
        if not 0 <= factor < math.inf:
            raise ArgumentError(
                f"a load times {factor}", expected="a factor from 0 up", fix="return another from the function"
            )
        return factor

    def follower(self, marks: list[list[Mark]]) -> _Turning:
        return _Turning(self, *marks[0][-1].where)

    def reader(self) -> Reader:
        return _Numbers()

    def count(self, seconds: float, begun: float, since_s: float, factor: float) -> float:
        """Return the records at a time, by the last mark before it.

        Parameters
        ----------
        seconds
            The time since the beginning of the log.
        begun, since_s, factor
            The records that the log had at the mark, its time in seconds, and the factor from then on.

        Examples
        --------
        >>> from dspkit import workload
        >>> TurnedSource(TraceSource(workload.Constant(500)), lambda: 2.0).count(12, 5000, 10, 2.0)
        7000.0
        """
        return begun + factor * (self.trace.offered(seconds) - self.trace.offered(since_s))

    def event_s(self, ids: Array, begun: float, since_s: float, factor: float) -> Array:
        """Return the event times of records, by the last mark before them: the inverse of `count`.

        Parameters
        ----------
        ids
            Their numbers.
        begun, since_s, factor
            As of `count`.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import workload
        >>> source = TurnedSource(TraceSource(workload.Constant(500)), lambda: 2.0)
        >>> source.event_s(np.array([6999]), 5000, 10, 2.0).round(3).tolist()
        [12.0]
        """
        return self.trace.event_s(self.trace.offered(since_s) + (ids + 1 - begun) / factor - 1)

    def records(self, frame: bytes, read_to: dict[int, int]) -> tuple[Records, dict[int, int]]:
        import numpy as np

        words = np.frombuffer(frame, "<i8")
        stretches = words[2:].reshape(-1, 3).tolist()
        _, catalog = self._open()
        numbers, times = [], []
        for p, low, high in stretches:
            marks, at = catalog.marks(p), low
            while at < high:
                mark, end = marks.at(at)
                upto = high if end is None else min(high, end)
                numbers.append(np.arange(at, upto) * self.partitions + p)
                times.append(self.event_s(numbers[-1], *mark.where))
                at = upto
        ids, event_s = np.concatenate(numbers), np.concatenate(times)
        order = np.argsort(ids)
        read_to = read_to | {p: high for p, _, high in stretches}
        return self.trace.made(ids[order], event_s[order], words), read_to

    def partition_of(self, stretches: Array) -> Array:
        return self.trace.partition_of(stretches)


class _Turning(Follower):
    """The driver's view of a log that a person turns; it fills once the job has begun to read."""

    def __init__(self, source: TurnedSource, begun: float, since_s: float, factor: float):
        self._source, self._mark = source, (begun, since_s, factor)
        self._zero_s, self._upto_s, self._read = math.inf, since_s, 0

    def began(self, zero_s: float, read: Sequence[int]) -> None:
        """Note when the log began. What was read was offered, also if the clock was set back since then."""
        import numpy as np

        parts = self._source.partitions
        self._read = max(((n - 1) * parts + p + 1 for p, n in enumerate(read) if n), default=0)
        if self._read > self._mark[0] and self._mark[2] > 0:
            last_s = float(self._source.event_s(np.array([self._read - 1]), *self._mark)[0])
            self._upto_s = max(self._upto_s, last_s)
        self._zero_s = zero_s

    def look(self) -> list[tuple[int, list[Mark]]]:
        source, now = self._source, time.time()
        # Of a clock that was set back nothing is taken back: the log rests until the clock is there again.
        seconds = self._upto_s = max(self._upto_s, now - self._zero_s)
        count = max(source.count(seconds, *self._mark), self._read)
        parts, whole = source.partitions, math.floor(count + 1e-9)
        counts = [(whole - p + parts - 1) // parts for p in range(parts)]
        factor = source._now() if self._zero_s < math.inf else self._mark[2]
        if factor == self._mark[2]:
            return [(each, []) for each in counts]
        self._mark = (count, seconds, factor)
        return [(each, [Mark(each, list(self._mark), round(now * 1e6))]) for each in counts]

    def close(self) -> None:
        pass


class _Numbers(Reader):
    """A task's client of a log that consists of numbers: there is nothing to open."""

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        raise NotImplementedError("records() makes them of their numbers")

    def close(self) -> None:
        pass
