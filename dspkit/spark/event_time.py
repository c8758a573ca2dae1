"""Event time: when the records of a log happened, and how long a job waits for those that are behind.

The watermark of a partition is the newest event time in it, less `delay_s`: no record on time is older. A record is
late if it is older than the watermark that its own partition had before it, by more than `lateness_s`. That follows
from the order of the log alone, so which records are late depends neither on parallelism nor on frames or epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError
from ..core.typing import Array
from .errors import SchemaError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa


OWN_TIME = "event_time"  # the column with a log's own time
_LARGEST_S = 2**53 * 1e-6  # seconds that a float64 holds to the microsecond


@dataclass(frozen=True)
class EventTime:
    """The event time of a source's records; given to `arrow(..., event_time=)`, or as the source's function.

    Parameters
    ----------
    time
        Column of the log's records with their event time: a timestamp, a date, or a float64 of seconds. Or a function
        of a batch of the log's records that returns such a column. By default the log's own time, which becomes the
        column `event_time` of its records.
    delay_s
        How far a record may be behind the newest one of its partition: results wait for so long, in event time.
    lateness_s
        How much later a record may be and still count: it then corrects results that were sent.
    idle_s
        A partition without a further record for so long does not hold up the others, in seconds of the clock.
    late
        Operator that receives records that are later, with the columns of the log; they are dropped if it is empty.

    Examples
    --------
    >>> EventTime("at_s", delay_s=2.0).delay_s
    2.0
    """

    time: str | Callable[[pa.RecordBatch], Any] | None = None
    delay_s: float = 0.0
    lateness_s: float = 0.0
    idle_s: float = 10.0
    late: str = ""

    def __post_init__(self) -> None:
        for name in ("delay_s", "lateness_s", "idle_s"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _LARGEST_S:
                raise ArgumentError(
                    f"{name}={seconds!r}", expected="seconds, 0 or more", fix="as in EventTime('at_s', delay_s=2.0)"
                )
        if not (self.time is None or callable(self.time) or (isinstance(self.time, str) and self.time)):
            raise ArgumentError(
                f"time={self.time!r}",
                expected="a column, a function of a batch, or None",
                fix="as in EventTime('at_s', delay_s=2.0)",
            )

    @property
    def described(self) -> str:
        """Return the origin of the times, as a checkpoint notes it."""
        if self.time is None:
            return "the log's own"
        return f"column {self.time}" if isinstance(self.time, str) else "a function"

    def sends(self, log: pa.Schema) -> pa.Schema:
        """Return the columns of the log's records, with those that this adds.

        Parameters
        ----------
        log : pyarrow.Schema
            Columns of the log.
        """
        import pyarrow as pa

        if self.time is not None:
            return log
        if OWN_TIME in log.names:
            raise SchemaError(
                f"a log with a column {OWN_TIME!r}, and EventTime() without one",
                expected="the column of the event time, or a log without such a column",
                fix=f"as in EventTime({OWN_TIME!r}, delay_s=2.0)",
            )
        return log.append(pa.field(OWN_TIME, pa.timestamp("us", "UTC")))

    def with_own_time(self, batch: pa.RecordBatch, own: Array) -> pa.RecordBatch:
        """Return records of the log as they are sent, given the log's own time in microseconds.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Records of the log.
        own : array
            The log's own time of each record, in microseconds.
        """
        import pyarrow as pa

        if self.time is not None:
            return batch
        return batch.append_column(self.sends(batch.schema).field(OWN_TIME), pa.array(own, pa.timestamp("us", "UTC")))

    def micros(self, batch: pa.RecordBatch, own: Array) -> Array:
        """Return the event times of the log's records in microseconds, given the log's own time.

        Parameters
        ----------
        batch, own
            As of `with_own_time`.
        """
        if self.time is None:
            return own
        return micros(batch.column(self.time) if isinstance(self.time, str) else self.time(batch))


@dataclass(frozen=True)
class Late:
    """Records that came too late, as a function of windows reports them."""

    batch: pa.RecordBatch


def check_time(kind: pa.DataType, what: str) -> None:
    """Raise an error if a column of this type holds no event times."""
    from pyarrow import types

    if not (types.is_timestamp(kind) or types.is_date(kind) or types.is_float64(kind)):
        raise SchemaError(
            f"event time of type {kind} in {what}",
            expected="a timestamp, a date, or a float64 of seconds",
            fix="cast it before it is sent, as in column.cast(pa.timestamp('ms'))",
        )


def micros(column: Any) -> Array:
    """Return event times in microseconds.

    >>> import pyarrow as pa
    >>> micros(pa.array([0.3, 2.0])).tolist()
    [300000, 2000000]
    """
    import numpy as np
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else pa.array(column)
    check_time(column.type, "a batch")
    if column.null_count:
        raise _timeless("null")
    if pa.types.is_float64(column.type):
        seconds = column.to_numpy()
        if not np.all(np.abs(seconds) <= _LARGEST_S):
            raise _timeless(str(float(seconds[~(np.abs(seconds) <= _LARGEST_S)][0])))
        found: Array = np.rint(seconds * 1e6).astype(np.int64)
        return found
    zone = getattr(column.type, "tz", None)
    exact = column.cast(
        pa.timestamp("us", zone), safe=not pa.types.is_timestamp(column.type) or column.type.unit != "ns"
    )
    whole: Array = exact.cast(pa.int64()).to_numpy()
    return whole


def _timeless(value: str) -> SourceError:
    return SourceError(
        f"a record with the event time {value}",
        expected="a time for every record",
        fix="give it one in the source, or drop it there; or compute times with EventTime(function)",
    )


def one_micros(value: Any, kind: pa.DataType) -> int | None:
    """Return one time of a function's state in microseconds, in the unit of the state's type whatever Python's type is.

    A float64 is of seconds, an int64 of microseconds.

    >>> import pyarrow as pa
    >>> one_micros(2, pa.float64()), one_micros(2.0, pa.int64()), one_micros(None, pa.int64())
    (2000000, 2, None)
    """
    from datetime import UTC, datetime, timedelta

    from pyarrow import types

    if value is None:
        return None
    if types.is_timestamp(kind):
        if not isinstance(value, datetime):
            raise TypeError("no datetime")
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError("no number")
    number: Any = value
    if types.is_int64(kind):
        if (whole := int(number)) != number:
            raise ValueError("a fraction of a microsecond")
        return whole
    if math.isinf(number):
        return None  # never
    return round(float(number) * 1e6)  # which raises an error for a NaN
