"""Sources: logs that records wait in until a job takes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import KnobError, WorkloadError
from ..workload import Workload
from .frames import Records
from .functions import as_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[Any]]


def numbers(ids: Array, event_s: Array) -> pa.RecordBatch:
    """Records that hold their number, and the second since the start at which they came about."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(event_s)], names=["id", "event_s"])


@dataclass(frozen=True)
class TraceSource:
    """A log that fills at the pace of a `Workload`; the same records at the same times, however often it is read.

    Record i comes about when the workload has offered i + 1 records. `records(ids, event_s)` makes what they say from
    their numbers. Beyond `horizon_s` the last rate goes on. No more than `partitions` readers can share the log.
    """

    workload: Workload
    make: Callable[[Array, Array], pa.RecordBatch] = numbers
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
            raise KnobError(
                f"partitions={self.partitions}, horizon_s={self.horizon_s}, step_s={self.step_s}",
                expected="0 < step_s <= horizon_s, and 1 to 256 partitions",
                fix="the defaults will do for most",
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
        """The trace as the jar reads it: records by second."""
        return ",".join(f"{t!r}:{n!r}" for t, n in zip(self._times.tolist(), self._counts.tolist(), strict=True))

    def offered(self, seconds: float) -> float:
        import numpy as np

        last = float(self._counts[-1] - self._counts[-2]) / float(self._times[-1] - self._times[-2])
        beyond = max(0.0, seconds - float(self._times[-1])) * last
        return float(np.interp(seconds, self._times, self._counts)) + beyond

    def records(self, frame: bytes, read_to: dict[int, int]) -> tuple[Records, dict[int, int]]:
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

    def event_s(self, ids: Array) -> Array:
        """When a record came about: the inverse of the trace."""
        import numpy as np

        times, counts = self._times, self._counts
        rising = counts + 1e-6 * np.arange(len(counts))  # where nothing is offered, time jumps at one record
        found = np.interp(ids + 1, rising, times)
        slope = (times[-1] - times[-2]) / max(1e-12, counts[-1] - counts[-2])
        seconds: Array = np.where(ids + 1 > counts[-1], times[-1] + (ids + 1 - counts[-1]) * slope, found)
        return seconds
