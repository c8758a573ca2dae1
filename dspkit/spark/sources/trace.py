"""The source of experiments: a replayable log that fills at the pace of a Workload."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import ArgumentError, WorkloadError
from ...core.typing import Array
from ...workload import Workload
from ..dataflow.exchange import Records
from ..functions import as_schema

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
        import pyarrow as pa

        words = np.frombuffer(frame, "<i8")
        read, zero, stretches = words[0], words[1], words[2:].reshape(-1, 3)
        ids = np.concatenate([np.arange(a, b) * self.partitions + p for p, a, b in stretches.tolist()])
        ids.sort()
        event_s = self.event_s(ids)
        batch = self.make(ids, event_s)
        if not batch.schema.equals(self.schema):
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        event = zero + (event_s * 1e6).astype(np.int64)
        read_to = read_to | {int(p): int(b) for p, _, b in stretches.tolist()}
        return Records(batch, event, np.full(len(ids), read)), read_to

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
