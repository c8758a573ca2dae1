"""Timers of keyed state: a field of a key's value says when its function wants to see the key again.

So timers are saved with the state, move with their keys, and need no place of their own. An instance holds those that
are set in a heap, which follows from its state: it is built from the runs when the instance has new keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import FunctionError
from ..event_time import one_micros
from .keys import KeyedState, keys_of, with_one_nan

if TYPE_CHECKING:
    import pyarrow as pa

    from ..functions import Function


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
