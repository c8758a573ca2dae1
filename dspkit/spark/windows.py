"""Windows over event time: tumbling, sliding, session and count windows of a keyed operator.

Each record becomes a value, and values of one window are merged. A window sends its result when the watermark has
passed its end. Since merging is associative and commutative, and what is late follows from the logs alone, results
depend on the records only: not on parallelism, frames, epochs or the order in which senders are heard.

The state of a key is a list of parts: whole windows, or slices of sliding ones, or single records of count windows.
"""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import ArgumentError
from ..core.typing import Array
from .errors import FunctionError, SchemaError
from .event_time import Late, micros
from .functions import Function, as_type, keyed

if TYPE_CHECKING:
    import pyarrow as pa


_START, _END = "start", "end"  # columns of a result
_BEFORE = -(1 << 62)
_AFTER = 1 << 62
_COUNTED = -(1 << 62)  # as the end of the part of a record that count windows have counted


class EventWindow(NamedTuple):
    """The window of a result: from `start_s` up to but not including `end_s`, in seconds.

    Parameters
    ----------
    start_s, end_s
        Its bounds; of a session the first record, and the last one plus the gap; of a count window the first and the
        last record.

    Examples
    --------
    >>> EventWindow(0.0, 10.0).end_s
    10.0
    """

    start_s: float
    end_s: float


def windowed(  # noqa: PLR0913  (keyword-only properties of windows)
    schema: Any,
    *,
    key: str | Sequence[str],
    time: str | tuple[str, str],
    size_s: float | None = None,
    slide_s: float | None = None,
    gap_s: float | None = None,
    count: int | None = None,
    slide: int | None = None,
    of: Callable[[dict[str, Any]], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    state: Any = "int64",
    result: Callable[[Any, EventWindow, Any], Any] | None = None,
    late: str = "",
) -> Function:
    """Return an operator that merges the records of each key and window, and sends a result when a window is over.

    Without `of` and `merge` it counts records. Its sources need an `EventTime`. A result has the columns of the key,
    `start` and `end` (float64 seconds, or timestamps), and `value`, or the fields of a value that is a dict; `schema`
    names those that are sent. With `lateness_s` at the source, late records make it send a window's result again.

    Parameters
    ----------
    schema
        Columns of the results, as "word string, start float64, end float64, value int64".
    key
        The column of the input that is the key, or several.
    time
        The column with the event time; or two, the start and end of windows that the records are results of.
    size_s
        Length of a window: tumbling, or sliding with `slide_s`.
    slide_s
        Seconds between the starts of sliding windows, a divisor of `size_s`.
    gap_s
        Session windows: seconds without a record of the key after which a session is over.
    count
        Count windows of so many records of a key, in the order of event time.
    slide
        Records between the ends of count windows; `count` if left out.
    of
        The value of a record, which is a dict of its columns; 1 if left out.
    merge
        The value of two values together; the order in which values are merged must not matter.
    state
        Arrow type of the values.
    result
        Further columns of a result, from key, `EventWindow` and value: a dict, a list of them for several results, or
        None for none. They have other names than `start`, `end` and the key.
    late
        Operator that receives late records, with the columns of the input; they are dropped if it is empty.

    Examples
    --------
    >>> counts = windowed("word string, end float64, value int64", key="word", time="at_s", size_s=10, slide_s=5)
    >>> counts.schema.names, counts.stateful
    (['word', 'end', 'value'], True)
    >>> dearest = windowed("shop string, value float64", key="shop", time="at", gap_s=30, of=lambda row: row["price"],
    ...                    merge=max, state="float64")
    """
    import pyarrow as pa

    pair = not isinstance(time, str)
    kinds = [name for name, value in (("size_s", size_s), ("gap_s", gap_s), ("count", count)) if value is not None]
    if pair:
        kinds.append("time=(start, end)")
    if len(kinds) != 1 or (slide_s is not None and size_s is None) or (slide is not None and count is None):
        raise ArgumentError(
            f"windows by {' and '.join(kinds) or 'nothing'}",
            expected="one of size_s, gap_s, count, or a pair of columns as time; slide_s with size_s, slide with count",
            fix="as in windowed(..., time='at_s', size_s=10, slide_s=2)",
        )
    if pair and not (len(time) == 2 and all(isinstance(name, str) and name for name in time)):
        raise ArgumentError(f"time={time!r}", expected="a column, or two", fix="as in time=('start', 'end')")
    if (of is None) != (merge is None):
        raise ArgumentError(
            "one of `of` and `merge`", expected="both, or none to count", fix="as in of=lambda row: row['n'], merge=max"
        )
    if not isinstance(key, str) and isinstance(key, Sequence) and len(key) == 1:
        key = key[0]  # which is not a tuple in the state then
    made = _Windows(
        keyed=(key,) if isinstance(key, str) else tuple(key),
        time=(time,) if isinstance(time, str) else tuple(time),
        size=_micros(size_s, "size_s"),
        slide=_micros(size_s if slide_s is None else slide_s, "slide_s"),
        gap=_micros(gap_s, "gap_s"),
        count=_whole(count, "count"),
        step=_whole(count if slide is None else slide, "slide"),
        of=of,
        merge=merge or operator.add,
        result=result,
    )
    if made.size % (made.slide or 1) or made.step > made.count:
        raise ArgumentError(
            f"size_s={size_s}, slide_s={slide_s}, count={count}, slide={slide}",
            expected="a size_s that is a multiple of slide_s, and a slide of at most count",
            fix="as in size_s=10, slide_s=2",
        )
    kind = as_type(state)
    parts = pa.list_(pa.struct({"at": pa.int64(), "until": pa.int64(), "value": kind}))
    function = keyed(
        made,
        schema,
        key=key,
        state=pa.struct({"due": pa.int64(), "done": pa.int64(), "parts": parts}),
        timer="due",
    )
    if function.schema is None:
        raise SchemaError("no schema", expected="the columns of the results", fix="as in 'word string, value int64'")
    there, fields = [*made.keyed, _START, _END], [field.name for field in kind] if pa.types.is_struct(kind) else []
    # a field may repeat the key, which its results are checked for
    twice = [name for name in fields if name in (_START, _END)] if fields else {"value"}.intersection(made.keyed)
    if twice and result is None:
        raise SchemaError(
            f"{sorted(twice)} in both a window's value and its key or bounds",
            expected=f"names other than {there} in a value, which is called 'value' if it is no struct",
            fix="rename them, or return the columns of a result from windowed(result=)",
        )
    there += fields or ["value"]
    unknown = [name for name in function.schema.names if name not in there]
    if unknown and result is None:
        raise SchemaError(
            f"columns {unknown} of the results", expected=f"some of {there}", fix="compute them with windowed(result=)"
        )
    for name in (_START, _END):
        if name in function.schema.names and name not in made.keyed:
            _times([], function.schema.field(name).type)
    run = replace(made, schema=function.schema)
    return replace(function, run=run, late=late, times=made.time, windows=made.described)


def _micros(seconds: float | None, name: str) -> int:
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1e-6 <= seconds <= 1e9:
        raise ArgumentError(f"{name}={seconds!r}", expected="seconds from 1e-6 to 1e9", fix=f"as in {name}=10")
    return round(seconds * 1e6)


def _whole(number: int | None, name: str) -> int:
    if number is None:
        return 0
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name}={number!r}", expected="a whole number from 1 up", fix=f"as in {name}=100")
    return number


Part = dict[str, Any]  # at, until: microseconds; value


@dataclass(frozen=True)
class _Windows:
    """The function of a windowed operator; times are in microseconds."""

    keyed: tuple[str, ...]
    time: tuple[str, ...]
    size: int
    slide: int
    gap: int
    count: int
    step: int
    of: Callable[[dict[str, Any]], Any] | None
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any, EventWindow, Any], Any] | None
    schema: pa.Schema | None = None

    @property
    def described(self) -> str:
        """Return the windows in words, as a checkpoint notes them."""
        numbers = {name: getattr(self, name) for name in ("size", "slide", "gap", "count", "step")}
        return ", ".join([f"by {' and '.join(self.time)}", *(f"{name} {n}" for name, n in numbers.items() if n)])

    def __call__(self, batches: Iterator[pa.RecordBatch], known: MutableMapping[Any, Any]) -> Iterator[Any]:
        for batch in batches:
            about = batch.schema.metadata or {}
            now = int(about.get(b"watermark", _BEFORE))
            lateness = int(about.get(b"lateness", 0))
            results: list[tuple[Any, int, int, Any]] = []
            if about.get(b"from") == b"timers":
                for key in self._keys(batch):
                    if key in known:
                        results += self._settled(known, key, known[key], now, lateness)
            else:
                batch, late = self._on_time(batch, now - lateness)
                if late is not None:
                    yield Late(late)
                for key, parts in self._parts(batch).items():
                    results += self._added(known, key, parts, now, lateness)
            yield from self._sent(results)

    # The input

    def _keys(self, batch: pa.RecordBatch) -> list[Any]:
        import pyarrow as pa

        from .dataflow.exchange import keys_of

        columns = [batch.column(name) for name in self.keyed]
        return keys_of(columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, names=list(self.keyed)))

    def _bounds(self, batch: pa.RecordBatch) -> tuple[Array, Array]:
        """Return from where to where the part of each record reaches."""
        at = micros(batch.column(self.time[0]))
        if self.slide:
            at = at // self.slide * self.slide
            return at, at + self.slide
        if len(self.time) == 2:
            return at, micros(batch.column(self.time[1]))
        return at, at + self.gap

    def _on_time(self, batch: pa.RecordBatch, closed: int) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Return the records of which a window is still open, and the others."""
        import pyarrow as pa

        at, until = self._bounds(batch)
        late = at < closed if self.count else until + self.size - self.slide <= closed
        if not late.any():
            return batch, None
        return batch.filter(pa.array(~late)), batch.filter(pa.array(late))

    def _parts(self, batch: pa.RecordBatch) -> dict[Any, list[Part]]:
        """Return the parts of a batch by key."""
        at, until = (bound.tolist() for bound in self._bounds(batch))
        places = zip(self._keys(batch), at, until, strict=True)
        merged: Iterable[tuple[tuple[Any, int, int], Any]]
        if self.count:
            merged = zip(places, self._values(batch), strict=True)
        elif self.of is None:
            merged = Counter(places).items()
        else:
            values: dict[tuple[Any, int, int], Any] = {}
            for place, value in zip(places, self._values(batch), strict=True):
                values[place] = self.merge(values[place], value) if place in values else value
            merged = values.items()
        found: dict[Any, list[Part]] = {}
        for (key, low, high), value in merged:
            found.setdefault(key, []).append({"at": low, "until": high, "value": value})
        return found

    def _values(self, batch: pa.RecordBatch) -> list[Any]:
        return [1] * batch.num_rows if self.of is None else [self.of(row) for row in batch.to_pylist()]

    # The state

    def _joined(self, parts: list[Part], new: list[Part]) -> list[Part]:
        """Return all parts, merged where they are of one window."""
        if self.count:
            return [*parts, *new]
        joined: list[Part] = []
        for part in sorted([*parts, *new], key=itemgetter("at", "until")):
            last = joined[-1] if joined else None
            if last is not None and (part["at"] < last["until"] if self.gap else _bounds_of(part) == _bounds_of(last)):
                joined[-1] = {
                    "at": last["at"],
                    "until": max(part["until"], last["until"]),
                    "value": self.merge(last["value"], part["value"]),
                }
            else:
                joined.append(part)
        return joined

    def _added(
        self, known: MutableMapping[Any, Any], key: Any, new: list[Part], now: int, lateness: int
    ) -> list[tuple[Any, int, int, Any]]:
        """Add parts to the state of a key, and return new results of windows that are over already."""
        before = known.get(key) or {"due": None, "done": 0 if self.count else now, "parts": []}
        parts, again = self._joined(before["parts"], new), set[tuple[int, int]]()
        if lateness and not self.count:
            old = {id(part) for part in before["parts"]}
            for part in parts:
                if id(part) not in old:
                    again.update(self._windows(part, now - lateness, now))
        return self._settled(known, key, before | {"parts": parts}, now, lateness, again)

    def _windows(self, part: Part, after: int, upto: int) -> Iterator[tuple[int, int]]:
        """Yield the windows that a part is in and that end after one time and not after another."""
        if self.slide:
            first = max(part["until"], (after // self.slide + 1) * self.slide)
            last = min(part["at"] + self.size, upto // self.slide * self.slide)
            for end in range(first, last + 1, self.slide):
                yield end - self.size, end
        elif after < part["until"] <= upto:
            yield part["at"], part["until"]

    def _settled(
        self,
        known: MutableMapping[Any, Any],
        key: Any,
        value: dict[str, Any],
        now: int,
        lateness: int,
        again: set[tuple[int, int]] | frozenset[tuple[int, int]] = frozenset(),
    ) -> list[tuple[Any, int, int, Any]]:
        """Store the state of a key without what is over, and return the results of the windows that are."""
        if self.count:
            return self._counted(known, key, value, now, lateness)
        parts, done = value["parts"], value["done"]
        over = sorted({*again, *(window for part in parts for window in self._windows(part, done, now))})
        results = []
        for start, end in over:
            if self.slide:
                inside = [part["value"] for part in parts if start <= part["at"] < end]
            else:
                inside = [part["value"] for part in parts if _bounds_of(part) == (start, end)]
            if inside:
                results.append((key, start, end, self._merged(inside)))
        rest = self.size - self.slide  # from the end of a slice to that of the last window it is in
        parts = [part for part in parts if part["until"] + rest + lateness > now]
        if not parts:
            known.pop(key, None)
            return results
        next_ends = [next(self._windows(part, now, _AFTER), (0, part["until"] + rest + lateness))[1] for part in parts]
        known[key] = {"due": min(next_ends), "done": max(done, now), "parts": parts}
        return results

    def _counted(
        self, known: MutableMapping[Any, Any], key: Any, value: dict[str, Any], now: int, lateness: int
    ) -> list[tuple[Any, int, int, Any]]:
        """Count the records of a key that none on time can precede any more, in the order of time and value."""
        closed, results, done = now - lateness, [], value["done"]
        counted = [part for part in value["parts"] if part["until"] == _COUNTED]
        waiting = [part for part in value["parts"] if part["until"] != _COUNTED]
        ready = sorted((part for part in waiting if part["at"] < closed), key=lambda p: (p["at"], _ordered(p["value"])))
        for part in ready:
            counted.append(part | {"until": _COUNTED})
            done += 1
            if done >= self.count and (done - self.count) % self.step == 0:
                found = counted[-self.count :]
                results.append((key, found[0]["at"], found[-1]["at"], self._merged([part["value"] for part in found])))
            keep = self.count - self.step + (done - self.count) % self.step
            counted = counted[len(counted) - keep :] if done >= self.count else counted
        waiting = [part for part in waiting if part["at"] >= closed]
        due = min((part["at"] + lateness + 1 for part in waiting), default=None)
        known[key] = {"due": due, "done": done, "parts": counted + waiting}
        return results

    def _merged(self, values: list[Any]) -> Any:
        """Return the value of all together, without a change of those in the state if `merge` changes what it gets."""
        if len(values) == 1:
            return values[0]
        found = _own(values[0])
        for value in values[1:]:
            merged = self.merge(found, value)
            found = _own(value) if merged is value else merged
        return found

    # The results

    def _sent(self, results: list[tuple[Any, int, int, Any]]) -> Iterator[pa.RecordBatch]:
        """Yield the results as a batch of the declared columns."""
        import pyarrow as pa

        from .dataflow.state import InexactError, exact_array

        assert self.schema is not None
        rows = [row for each in results for row in self._rows(*each)]
        if not rows:
            return
        columns = []
        for field in self.schema:
            try:
                values = [row[field.name] for row in rows]
            except KeyError:
                raise FunctionError(
                    f"a result without {field.name!r} of a windowed operator",
                    expected=f"all columns of its schema, {self.schema.names}",
                    fix="return it from windowed(result=), or leave it out of the schema",
                ) from None
            if field.name in (_START, _END) and field.name not in self.keyed:
                columns.append(_times(values, field.type))
                continue
            try:
                columns.append(exact_array(values, field.type))
            except InexactError as error:
                raise FunctionError(
                    f"{field.name}={values[error.position]!r:.200} in a result of a windowed operator: {error.reason}",
                    expected=f"a value that {field.type} holds exactly",
                    fix="declare another type in the schema",
                ) from None
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rows(self, key: Any, start: int, end: int, value: Any) -> list[dict[str, Any]]:
        row = {_START: start, _END: end} | dict(zip(self.keyed, key if type(key) is tuple else (key,), strict=True))
        if self.result is None:
            more = value if isinstance(value, dict) else {"value": value}
        else:
            more = self.result(key, EventWindow(start / 1e6, end / 1e6), value)
        found = [more] if isinstance(more, dict) else more or []
        for each in found:
            twice = [
                name for name in row if name in each and not (name in self.keyed and _equal(each[name], row[name]))
            ]
            if twice:
                raise FunctionError(
                    f"{twice} in a result of a windowed operator, {each!r:.200}",
                    expected=f"columns other than {_START!r}, {_END!r} and those of the key, which a result has anyway",
                    fix="leave them out, or name them differently",
                )
        return [row | each for each in found]


def _own(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else copy.deepcopy(value)


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # NaN


def _bounds_of(part: Part) -> tuple[int, int]:
    return part["at"], part["until"]


def _ordered(value: Any) -> str:
    """Return a text by which values are put in an order that does not depend on how they were stored."""
    if isinstance(value, dict):
        return repr(sorted((name, _ordered(each)) for name, each in value.items()))
    if isinstance(value, list | tuple):
        return repr([_ordered(each) for each in value])
    return repr(value)


def _times(values: list[int], kind: pa.DataType) -> pa.Array:
    """Return microseconds as a column of times."""
    import pyarrow as pa

    if pa.types.is_float64(kind):
        return pa.array([value / 1e6 for value in values], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("us", kind.tz)).cast(kind)
    raise SchemaError(
        f"start or end of a window as {kind}", expected="float64 seconds, or a timestamp", fix="declare one of these"
    )
