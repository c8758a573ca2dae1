"""Watermarks, which say how far event time has come, and the timers that wait for it.

The watermark of an instance of a source is the least of its partitions'. It goes to every instance of every receiver,
in a frame of its own behind the records that it speaks of. A receiver keeps the watermark of each instance of each
sender; its own is the least of these, and is sent on once the function has had all that came before. So what a record
on time still can change is never behind the watermark.

Partitions that are idle, because their log has held no further record for `idle_s`, are left out; if all are, the
greatest counts, until one wakes: what is sent then goes back to it, though no receiver does. At the end of an epoch all
marks have arrived, so that the watermark of an operator depends on the records that were read alone. It is kept with
the epoch, as are the partitions' newest times: see `save`.

A field of a key's value says when its function wants to see the key again. So timers are saved with the state, move
with their keys, and need no place of their own. An instance holds those that are set in a heap, which follows from its
state: it is built from the runs when the instance has new keys.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.typing import Array
from ..errors import FunctionError
from ..event_time import EventTime, one_micros
from .exchange import keys_of, with_one_nan
from .state import KeyedState, Plan, incomplete, synchronise
from .store import read_sealed, write_sealed

if TYPE_CHECKING:
    import pyarrow as pa

    from ..functions import Function


BEFORE = -(1 << 62)  # the watermark as long as nothing is known
MARK = -1  # in the place of the number of records of a frame, says that it is a watermark
MARK_S = 0.1  # seconds between the watermarks that a source sends
_MARK = struct.Struct("<iq?")  # instance of the sender, watermark, whether it is idle


class PartitionTimes:
    """The newest event times of the partitions that one instance of a source reads.

    Parameters
    ----------
    declared
        The source's event time.
    partitions
        The instance's partitions.
    now
        Time of the clock, in microseconds.
    saved
        Of each partition the newest event time, and when it was last read, as an epoch kept them.
    """

    def __init__(self, declared: EventTime, partitions: Iterable[int], now: int, saved: Mapping[int, tuple[int, int]]):
        self._delay, self._lateness = round(declared.delay_s * 1e6), round(declared.lateness_s * 1e6)
        self._idle = round(declared.idle_s * 1e6)
        self.newest = {p: saved.get(p, (BEFORE, now))[0] for p in partitions}
        self.read_at = {p: saved.get(p, (BEFORE, now))[1] for p in partitions}
        self._empty_at: dict[int, int] = {}  # when that was read: its frame may wait for long, and records behind it
        self._began = now  # or earlier, by the read times of its records
        self._read: set[int] = set()  # in this epoch
        self.now = self.sent = BEFORE
        self.idle = False

    def late(self, partition: Array, at: Array, read_at: int) -> Array:
        """Return which of the next records are late, given the partition and event time of each in the log's order."""
        import numpy as np

        late = np.zeros(len(at), bool)
        for p in np.unique(partition).tolist():
            mine = np.flatnonzero(partition == p)
            newest = np.maximum.accumulate(np.concatenate([[self.newest[p]], at[mine]]))
            late[mine] = at[mine] < newest[:-1] - self._delay - self._lateness
            self.newest[p], self.read_at[p] = int(newest[-1]), read_at
            self._empty_at.pop(p, None)
            self._read.add(p)
        self._began = min(self._began, read_at)
        return late

    def empty(self, partitions: Iterable[int], at: int) -> None:
        """Note that the log held no further record of these partitions at a time of the clock."""
        self._empty_at.update(dict.fromkeys(partitions, at))

    def clock_set(self, by: int) -> None:
        """Move the times of the clock with it, which was set by so many microseconds: no partition is idle by that."""
        self.read_at = {p: at + by for p, at in self.read_at.items()}
        self._empty_at = {p: at + by for p, at in self._empty_at.items()}
        self._began += by

    def rest_is_empty(self) -> None:
        """Note that the log held no record of the partitions of which this epoch has read none, when it began."""
        self.empty(set(self.newest) - self._read, self._began)

    def advance(self) -> bool:
        """Move the watermark to where it is by now; return whether that changed it."""
        before = self.now, self.sent, self.idle
        idle = {p for p, at in self._empty_at.items() if at - self.read_at[p] >= self._idle}
        times = [time for p, time in self.newest.items() if p not in idle]
        found = min(times) if times else max(self.newest.values(), default=BEFORE)
        self.sent = found - self._delay if found > BEFORE else BEFORE
        self.now, self.idle = max(self.now, self.sent), not times
        return (self.now, self.sent, self.idle) != before

    def saved(self) -> dict[str, list[int]]:
        """Return what the next epoch needs to know."""
        return {str(p): [time, self.read_at[p]] for p, time in self.newest.items()}


class Watermarks:
    """The watermark of an instance, from those of all instances of its senders.

    Parameters
    ----------
    senders
        Number of instances by sender.
    now
        The watermark to begin with.

    Examples
    --------
    >>> marks = Watermarks({0: 2})
    >>> marks.mark(0, 0, 5, False), marks.advance()
    (None, False)
    >>> marks.mark(0, 1, 3, False), marks.advance(), marks.now
    (None, True, 3)
    """

    def __init__(self, senders: Mapping[int, int], now: int = BEFORE):
        self._marks = {(sender, i): (BEFORE, False) for sender, k in senders.items() for i in range(k)}
        self.now, self.sent, self.idle = now, BEFORE, False

    def mark(self, sender: int, instance: int, watermark: int, idle: bool) -> None:
        """Note the watermark of an instance of a sender."""
        self._marks[sender, instance] = (watermark, idle)

    def advance(self) -> bool:
        """Move to the least watermark of the senders that are not idle; return whether that changed it."""
        before = self.now, self.sent, self.idle
        active = [time for time, idle in self._marks.values() if not idle]
        self.sent = min(active) if active else max(time for time, _ in self._marks.values())
        self.now, self.idle = max(self.now, self.sent), not active
        return (self.now, self.sent, self.idle) != before


def pack(instance: int, watermark: int, idle: bool) -> bytes:
    """Return the frame of a watermark."""
    return _MARK.pack(instance, watermark, idle)


def unpack(frame: bytes) -> tuple[int, int, bool]:
    """Return the instance, its watermark, and whether it is idle, of a frame."""
    return _MARK.unpack(frame)


def _path(folder: Path, token: str, operator: int, instance: int) -> Path:
    return folder / "state" / token / f"time-{operator}-{instance}.json"


def save(folder: Path, plan: Plan, operator: int, instance: int, content: Any) -> None:
    """Write the event time of an instance at the end of an attempt; when this returns it is on the disk."""
    path = _path(folder, plan.token, operator, instance)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, content)
    for each in (path.parent, path.parent.parent):
        synchronise(each)


def load(folder: Path, plan: Plan | None, operator: int) -> list[Any]:
    """Return what the instances of an operator wrote at the end of an epoch; of no epoch, nothing."""
    if plan is None:
        return []
    return [read_sealed(_path(folder, plan.token, operator, i)) for i in range(plan.k[operator])]


def previous(plan: Plan) -> Plan | None:
    """Return the plan of the epoch before; None for the first one."""
    if plan.epoch > 0 and plan.previous is None:
        raise incomplete(f"no plan of epoch {plan.epoch - 1}")
    return plan.previous


TIMERS = "timers"  # the sender of batches with keys that are due
MOST = 1 << 13  # keys in one of them


class Timers:
    """The timers of one instance.

    Parameters
    ----------
    declared
        The state that has them.
    field
        Field of its values with the time: a float64 of seconds, a timestamp, or an int64 of microseconds.
    """

    def __init__(self, declared: KeyedState, field: str):
        self.declared, self._field, self._kind = declared, field, declared.value.field(field).type
        self._next: dict[Any, int] = {}
        self._heap: list[tuple[int, int, Any]] = []
        self._number = 0

    def load(self, rows: Iterable[tuple[pa.Array, pa.Array]]) -> None:
        """Set the timers of these keys and values."""
        import pyarrow.compute as pc

        for keys, values in rows:
            times = pc.struct_field(values, self._field)
            set_ = times.is_valid()
            for key, time in zip(keys_of(keys.filter(set_)), times.filter(set_).to_pylist(), strict=True):
                self._set(key, one_micros(time, self._kind))

    def note(self, known: Mapping[Any, Any], keys: Iterable[Any]) -> None:
        """Read the timers of keys that may have changed."""
        for key in keys:
            self._set(key, self._due(known, key))

    def due(
        self, known: Mapping[Any, Any], watermark: int, prefetch: Callable[[pa.RecordBatch], None] | None = None
    ) -> dict[Any, int]:
        """Return up to `MOST` keys whose time the watermark has reached, with that time, and forget their timers.

        `prefetch` looks up the state of a batch of keys together.
        """
        found: dict[Any, int] = {}
        while not found and (reached := self._reached(watermark)):
            if prefetch is not None:
                prefetch(self.batch(reached))
            for key, time in reached.items():
                if (now := self._due(known, key)) == time:
                    found[key] = time
                else:  # the function has changed it while it worked on another key
                    self._set(key, now)
        return found

    def _reached(self, watermark: int) -> dict[Any, int]:
        reached: dict[Any, int] = {}
        while self._heap and self._heap[0][0] <= watermark and len(reached) < MOST:
            time, _, key = heapq.heappop(self._heap)
            if self._next.get(key) == time:  # otherwise it was set again since
                reached[key] = self._next.pop(key)
        return reached

    def batch(self, keys: Iterable[Any]) -> pa.RecordBatch:
        """Return keys that are due as a batch of their columns."""
        import pyarrow as pa

        array = self.declared.key_array(list(keys))
        columns = [array] if self.declared.single else array.flatten()
        fields = zip(self.declared.columns, self.declared.kinds, strict=True)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*fields], metadata={"from": TIMERS}))

    def check_moved(self, fired: Mapping[Any, int]) -> None:
        """Raise an error if a function left a timer at its time, at which it would be called for ever."""
        for key, time in fired.items():
            if self._next.get(key, time + 1) <= time:
                raise FunctionError(
                    f"known[{key!r:.200}] at operator {self.declared.operator!r}, whose time {self._field!r} is not "
                    "later after its timer",
                    expected="a later time, None, or no such key",
                    fix=f"change {self._field!r} or delete the key, for each key of a batch from {TIMERS!r}",
                )

    def _due(self, known: Mapping[Any, Any], key: Any) -> int | None:
        if (value := known.get(key)) is None:
            return None
        try:
            return one_micros(value[self._field], self._kind)
        except (TypeError, ValueError, OverflowError, KeyError, IndexError):
            raise FunctionError(
                f"known[{key!r:.200}] = {value!r:.200} at operator {self.declared.operator!r}",
                expected=f"a value with a time, or None, in its field {self._field!r}, of {self._kind}",
                fix=f"as in known[key] = {{..., {self._field!r}: None}}; a float64 has seconds, an int64 microseconds",
            ) from None

    def _set(self, key: Any, time: int | None) -> None:
        if self.declared.has_floats:
            key = with_one_nan(key)
        if time is None:
            self._next.pop(key, None)
        elif self._next.get(key) != time:
            self._next[key] = time
            self._number += 1
            heapq.heappush(self._heap, (time, self._number, key))
        if len(self._heap) > 64 + 2 * len(self._next):  # mostly of timers that were set again since
            self._heap = [entry for entry in self._heap if self._next.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    @property
    def earliest(self) -> int | None:
        """The time of the next timer; None if none is set."""
        return min(self._next.values(), default=None)


def with_timers(name: str, function: Function, batches: Iterable[pa.RecordBatch], known: Any) -> Iterator[Any]:
    """Yield batches, then all keys in the order of their timers: the input of a function in a run without an engine."""
    timers: Timers | None = None
    for batch in batches:
        if function.timer and timers is None:
            assert function.value is not None
            kinds = tuple(batch.schema.field(key).type for key in function.keys)
            single = isinstance(function.key, str)
            timers = Timers(KeyedState(name, function.keys, kinds, function.value, single), function.timer)
        yield batch
        if timers is not None:
            timers.note(known, keys_of(timers.declared.batch_keys(batch)))
    while timers is not None and (now := timers.earliest) is not None:
        fired = timers.due(known, now)
        yield timers.batch(fired).replace_schema_metadata({"from": TIMERS, "watermark": str(now)})
        timers.note(known, fired)
        timers.check_moved(fired)
