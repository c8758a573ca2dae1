"""Metrics in tables: CSV, Parquet or a pandas DataFrame, one row per window and operator, read in small batches."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import DspkitError, History, Topology, untrusted
from ..core.files import open_regular
from ..core.lazy import load
from ..core.validation import mapping
from .common import windows
from .common.base import LIMITS, Limits, LoaderError, Problems
from .common.units import BEYOND_S, OPTIONAL, QUANTITIES, Unit, Unusable, dated, number, unit, whole
from .common.user_hints import Given, given_parallelism, given_path, given_topology, given_window

if TYPE_CHECKING:
    import pandas as pd


_BATCH = 1024  # rows of Parquet at a time
_LONGEST_CELL = 1000  # characters of a word in Parquet: longer ones are dropped before they are repeated


def read_rows(
    data: Any, names: Mapping[str, str], required: set[str], limits: Limits
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows by quantity, each with its place."""
    if hasattr(data, "columns") and hasattr(data, "itertuples"):
        columns = _choose(list(data.columns), names, required)
        limits.check("readings", len(data))
        frame = data[[names[quantity] for quantity in columns]]
        for index, row in enumerate(frame.itertuples(index=False, name=None)):
            yield f"row {index}", dict(zip(columns, row, strict=True))
        return
    if not isinstance(data, (str, Path)):
        raise LoaderError(f"{type(data).__name__}", expected="a path or a DataFrame", fix="pass one")
    path = given_path(data)
    readers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise LoaderError(f"file {path.name!r}", expected=" or ".join(readers), fix="convert it first")
    try:
        yield from readers[path.suffix.lower()](path, names, required, limits)
    except OSError as error:
        raise LoaderError(
            f"{path}: {error.strerror or error}", expected="a file to read", fix="check the path and its permissions"
        ) from error


def _choose(there: list[Any], names: Mapping[str, str], asked: set[str]) -> list[str]:
    """Return the quantities with a column; the time and the requested ones must have one."""
    for quantity, column in names.items():
        if (quantity in asked or quantity == "t") and there.count(column) != 1:
            raise LoaderError(
                f"columns {', '.join(map(str, there))!s:.300}",
                expected=f"a column {column!r} for {quantity}, once",
                fix="name it with columns={...}",
            )
    return [quantity for quantity, column in names.items() if there.count(column) == 1]


def _csv(path: Path, names: Mapping[str, str], asked: set[str], limits: Limits) -> Iterator[tuple[str, dict[str, Any]]]:
    limits.check("total_bytes", path.stat().st_size)
    try:
        with (
            open_regular(path, error=LoaderError, expected="a table") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(_short(file, limits), strict=True)
            head = next(reader, None)
            if head is None:
                raise LoaderError(
                    f"{path.name}, which is empty", expected="a line of column names", fix="export the table again"
                )
            columns = _choose(head, names, asked)
            places = [head.index(names[quantity]) for quantity in columns]
            for count, row in enumerate(reader, 1):
                limits.check("readings", count)
                if row:
                    full = [row[i] if i < len(row) else None for i in places]
                    yield f"line {reader.line_num}", dict(zip(columns, full, strict=True))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        if isinstance(error, DspkitError):
            raise
        raise LoaderError(
            f"{path.name}: {error!s:.200}", expected="a CSV file in UTF-8", fix="save it as such"
        ) from error


def _short(file: Any, limits: Limits) -> Iterator[str]:
    """Yield lines of text; an endless one is rejected before it fills the memory."""
    while line := file.readline(limits.line_bytes + 1):
        limits.check("line_bytes", len(line))
        yield line


def _parquet(
    path: Path, names: Mapping[str, str], asked: set[str], limits: Limits
) -> Iterator[tuple[str, dict[str, Any]]]:
    pa, pt = load("pyarrow", "standard"), load("pyarrow.types", "standard")
    columns: list[str] = []

    def choose(schema: Any, rows: int) -> list[str]:
        limits.check("readings", rows)
        columns.extend(_choose(list(schema.names), names, asked))
        chosen = [names[quantity] for quantity in columns]
        for name in chosen:
            if pt.is_nested(kind := schema.field(name).type):
                raise LoaderError(f"column {name!r} of {kind!s:.200}", expected="numbers or text", fix="flatten it")
        return chosen

    try:
        with untrusted.parquet(path, error=LoaderError, expected="a table", choose=choose) as (file, allowance):
            index = 0
            rows, wanted = min(_BATCH, allowance.rows), [names[quantity] for quantity in columns]
            for batch in file.iter_batches(rows, columns=wanted):
                values = {column: _values(batch.column(names[column])) for column in columns}
                for i in range(batch.num_rows):
                    yield f"row {index + i}", {column: values[column][i] for column in columns}
                index += batch.num_rows
    except untrusted.TooLarge as error:
        raise LoaderError(
            str(error), expected="a table of a size in proportion to its file's", fix="pass a DataFrame if you trust it"
        ) from None
    except (pa.ArrowException, MemoryError, UnicodeDecodeError, OverflowError) as error:
        raise LoaderError(f"{path.name}: {error!s:.200}", expected="a Parquet file", fix="save it as such") from error


def _values(column: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_string(column.type):  # its pages were delta-encoded
        column = column.dictionary_encode()
    if isinstance(column, pa.DictionaryArray):
        fits = pc.less_equal(pc.binary_length(column.dictionary), _LONGEST_CELL)
        words = pc.if_else(fits, column.dictionary, None).to_pylist()
        return [None if i is None else words[i] for i in column.indices.to_pylist()]
    return list(column.to_pylist())


_LONGEST = 1000  # characters of an operator's name
_CLOCKS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_GAP = 1.5  # windows without a row


@dataclass
class _Row:
    """A row with numbers in the units of its source."""

    t: float
    operator: str
    where: str
    window_s: float | None
    values: dict[str, float]
    parallelism: int | None


class Table:
    """Loader for a .csv or .parquet file, or a DataFrame, with one row per window and operator.

    Parameters
    ----------
    data : str, Path or DataFrame
        The table. Its column `t` is the end of the window, in seconds.
    columns : mapping, optional
        Column names by quantity, `{"t": "time", "operator": "task"}`, with the unit where it differs from dspkit's:
        `{"utilisation": ("busy", "ms/s"), "processing_rate": ("total", "counter")}`. Columns with dspkit's own names
        need no entry.
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    parallelism : int or mapping of str to int, optional
        Instances of all operators, or by operator, if the table has no such column.
    window_s : float, optional
        The length of a window, by default a column of that name, or the usual distance of the rows.
    law : {"pipeline", "sequential"}
        Operators run concurrently, or take turns as in micro-batches.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(t, name, 90.0, 0.5) for t in (10, 20) for name in ("read", "work")]
    >>> frame = pd.DataFrame(rows, columns=["t", "operator", "processing_rate", "busy"])
    >>> loader = Table(frame, columns={"utilisation": "busy"}, topology=["read", "work"], parallelism=2)
    >>> loader.history()[0].snapshot.operators["work"].true_rate
    90.0
    """

    def __init__(
        self,
        data: str | Path | pd.DataFrame,
        *,
        columns: Mapping[str, str | tuple[str, str]] | None = None,
        topology: Topology | Sequence[str] | None = None,
        parallelism: int | Mapping[str, int] | None = None,
        window_s: float | None = None,
        execution: str = "pipelined",
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        self._data, self._execution, self._limits, self._strict = data, execution, limits, strict
        self._given = Given(given_topology(topology), given_parallelism(parallelism))
        self._names, self._units, self._clock = _mapping(columns or {})
        self._asked = set(columns or {})
        self._text = isinstance(data, (str, Path)) and Path(data).suffix.lower() == ".csv"
        self._window_s = given_window(window_s)

    def history(self) -> History:
        """Read the table.

        Examples
        --------
        >>> import pandas as pd
        >>> rows = [(t, "work", 90.0, 0.5) for t in (10, 20)]
        >>> frame = pd.DataFrame(rows, columns=["t", "operator", "processing_rate", "utilisation"])
        >>> len(Table(frame, topology=["work"], parallelism=2).history())
        2
        """
        self.problems = Problems(strict=self._strict)
        rows = _in_time(self._rows(), self.problems)
        names = list(dict.fromkeys(row.operator for row in rows))
        topology = self._given.topology_for(names)
        found = _windows(rows, self._units, self._window_s, self.problems)
        source = "DataFrame" if hasattr(self._data, "columns") else Path(self._data).name
        about = {"loader": "Table", "source": source}
        given = self._given.parallelism_for(topology)
        return windows.history_of_windows(
            topology, found, self.problems, self._limits, about, execution=self._execution, parallelism=given
        )

    def _rows(self) -> Iterator[_Row]:
        for place, raw in read_rows(self._data, self._names, self._asked, self._limits):
            try:
                yield self._row(raw, place)
            except Unusable as reason:
                self.problems.count(str(reason), place)

    def _row(self, raw: Mapping[str, Any], place: str) -> _Row:
        operator = self._operator(raw)
        values = self._values(raw, place)
        k = self._parallelism(raw)
        window = self._number(raw, "window_s") if "window_s" in raw else None
        date = dated(raw["t"])
        t = self._number(raw, "t") * self._clock if date is None else date
        if not abs(t) < BEYOND_S:
            raise Unusable("t: not a time in seconds (say so with columns={'t': (name, 'ms')})")
        return _Row(t, operator, place, window, values, k)

    def _number(self, raw: Mapping[str, Any], name: str) -> float:
        try:
            return number(raw[name], text=self._text, signed=name == "t")
        except Unusable as reason:
            raise Unusable(f"{name}: {reason}") from None

    def _operator(self, raw: Mapping[str, Any]) -> str:
        operator = raw.get("operator")
        if "operator" not in raw:
            operator = self._given.only
        if not isinstance(operator, str) or not operator.strip() or len(operator) > _LONGEST:
            raise Unusable("operator: not a name")
        if not self._given.known(operator):
            raise Unusable("unknown operator")
        return operator

    def _values(self, raw: Mapping[str, Any], place: str) -> dict[str, float]:
        values = {}
        for name in self._units:
            if name in raw:
                try:
                    values[name] = self._number(raw, name)
                except Unusable as reason:
                    if name not in OPTIONAL:
                        raise
                    if not str(reason).endswith("missing"):
                        self.problems.count(str(reason), f"{place}: taken as not measured")
        return values

    def _parallelism(self, raw: Mapping[str, Any]) -> int | None:
        if "parallelism" in raw:
            try:
                return whole(raw["parallelism"], text=self._text)
            except Unusable as reason:
                raise Unusable(f"parallelism: {reason}") from None
        if not self._given.parallelism:
            raise LoaderError(
                "a table without a column 'parallelism'",
                expected="the number of instances of each operator",
                fix="name the column with columns=, or pass parallelism=2 or parallelism={'name': 2}",
            )
        return None


def _mapping(columns: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Unit], float]:
    """Return column names by quantity, units by quantity, and the seconds in a unit of the clock."""
    known = ["t", "operator", "window_s", *QUANTITIES]
    names, units, clock = {n: n for n in known}, {n: unit(n) for n in QUANTITIES if n != "parallelism"}, 1.0
    mapping(columns, "columns", "a mapping", error=LoaderError, fix="pass {'t': 'time', ...}")
    for quantity, told in columns.items():
        name, of = told if isinstance(told, tuple) and len(told) == 2 else (told, None)
        if quantity not in known or not isinstance(name, str):
            raise LoaderError(
                f"columns={{{quantity!r}: {told!r}}}",
                expected=f"one of {', '.join(known)}, and the name of a column",
                fix="use one of these in the mapping",
            )
        names[quantity] = name
        if quantity == "t":
            if of is not None and of not in _CLOCKS:
                raise LoaderError(
                    f"unit {of!r} for t", expected=", ".join(_CLOCKS), fix="use one of these in the mapping"
                )
            clock = _CLOCKS[of or "s"]
        elif quantity in units:
            units[quantity] = unit(quantity, of)
        elif of is not None:
            raise LoaderError(f"unit {of!r} for {quantity}", expected="no unit", fix=f"pass only {name!r}")
    return names, units, clock


def _in_time(rows: Iterable[_Row], problems: Problems) -> list[_Row]:
    """Return rows by time, also of tables sorted by operator; rows that step back within an operator are dropped."""
    last: dict[str, float] = {}
    kept = []
    for row in rows:
        if row.operator in last and row.t <= last[row.operator]:
            again = row.t == last[row.operator]
            problems.count("second row of a window" if again else "clock stepped back", row.where)
        else:
            last[row.operator] = row.t
            kept.append(row)
    return sorted(kept, key=lambda row: row.t)


def _windows(
    rows: list[_Row], units: Mapping[str, Unit], fixed: float | None, problems: Problems
) -> Iterator[windows.Window]:
    """Combine the rows of one moment into one window."""
    times = list(dict.fromkeys(row.t for row in rows))
    steps = sorted(b - a for a, b in zip(times, times[1:], strict=False) if b > a)
    usual = fixed or (steps[len(steps) // 2] if steps else 1.0)
    if not steps and fixed is None and any(row.window_s is None for row in rows):
        raise LoaderError("rows of one moment", expected="windows", fix="pass its length as window_s=")
    last: dict[str, tuple[float, dict[str, float]]] = {}
    open_: windows.Window | None = None
    for row in rows:
        before, last[row.operator] = last.get(row.operator), (row.t, row.values)
        end = round(row.t / fixed) * fixed if fixed else row.t
        length = row.window_s if row.window_s is not None else usual
        try:
            reading = _reading(row, before, length, units)
        except Unusable as reason:
            problems.count(str(reason), row.where)
            reading = {}
        if open_ is not None and end != open_.end:
            yield open_
            open_ = None
        if open_ is None:
            open_ = windows.Window(end - length, end, row.where, {}, {})
        assert isinstance(open_.readings, dict)
        assert isinstance(open_.parallelism, dict)
        if row.operator in open_.readings:
            problems.count("second row of a window", row.where)
            continue
        if abs(open_.end - open_.start - length) > 1e-6 * length:
            problems.count("another window_s than the row before", row.where)
            continue
        if reading:
            open_.readings[row.operator] = reading
        else:
            open_.absence_counted.add(row.operator)
        if row.parallelism is not None:
            open_.parallelism[row.operator] = row.parallelism
    if open_ is not None:
        yield open_


def _reading(
    row: _Row, before: tuple[float, dict[str, float]] | None, length: float, units: Mapping[str, Unit]
) -> dict[str, float]:
    reading: dict[str, float] = {}
    for name, value in row.values.items():
        if not length > 0:
            raise Unusable("window without length")
        how, value = units[name].how, value * units[name].factor
        quantity = name
        if how != "now":
            quantity = {"utilisation": "busy", "blocked": "held"}.get(name, name)
        if how == "window":
            value /= length
        elif how == "total":
            if before is None or name not in before[1]:
                raise Unusable("a counter's first row")
            if row.t - before[0] > _GAP * length:
                raise Unusable("gap before a counter")
            if (value := value - before[1][name] * units[name].factor) < 0:
                raise Unusable("counter was reset")
            value /= row.t - before[0]
        reading[quantity] = value
    return reading


_SAMPLE, _EACH, _READ = 400, 40, 20_000  # rows that a guess looks at: the first, and of each operator among so many
_MANY = 10  # values of an operator that only grow, for a counter
# The first pattern that a column's name has, by quantity; words of Flink, Spark, Storm and of tables made by hand.
_NAMES = {
    "t": r"^(t|ts|time|date|datetime|at|window_?end|end)([_\W]+[mun]?s\W?|_?\W?(sec|mil|mic|nano)\w*\W?)?$|timestamp",
    "operator": r"^(operator|task|vertex|stage|component|bolt|node|name|step)(_?name)?$",
    "parallelism": r"parallelism|sub_?tasks|instances|replicas|executors|threads",
    "input_rate": r"records?_?in|in_?rate|input|received|consumed|numrecordsin",
    "output_rate": r"records?_?out|out_?rate|output|emitted|sent|produced|numrecordsout",
    "processing_rate": r"process|executed|acked|done|handled|throughput",
    "utilisation": r"busy|util",
    "blocked": r"back_?press|blocked",
    "backlog": r"pending|backlog|queue|waiting|lag",
    "cpu": r"cpu|cores",
    "dropped": r"drop|shed",
    "window_s": r"window(_?s|_?seconds|_?length)$",
}
_SPELLED = (  # units that a name spells out
    (r"ms_?per_?s|mspersecond", "ms/s"),
    (r"per_?min", "records/min"),
    (r"per_?(h|hour)$", "records/h"),
    (r"per_?ms$", "records/ms"),
    (r"per_?s|_rate$|^rate_|persecond", "records/s"),
    (r"percent|pct|%", "percent"),
)
_SPELLED_CLOCKS = tuple(
    (rf"(?:{long}|[^a-z0-9]{unit_})[)\]]?$", unit_)
    for unit_, long in (
        ("ms", "milli(?:s|seconds?)"),
        ("us", "micro(?:s|seconds?)"),
        ("ns", "nano(?:s|seconds?)"),
        ("s", "sec(?:s|onds?)?"),  # after the others, whose names end like it
    )
)


@dataclass(frozen=True)
class Guess:
    """A column that probably has a quantity.

    Parameters
    ----------
    column : str
        Its name.
    unit : str, optional
        Its unit; None where there is but one.
    reason : str
        What suggests it.

    Examples
    --------
    >>> Guess("pending", None, "called 'pending'").column
    'pending'
    """

    column: str
    unit: str | None
    reason: str


def peek(data: str | Path | pd.DataFrame, rows: int = 5, *, limits: Limits = LIMITS) -> list[dict[str, Any]]:
    """Return the first rows of a table, by column, as they are in it.

    Parameters
    ----------
    data : str, Path or DataFrame
        The table.
    rows : int
        How many rows.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> import pandas as pd
    >>> peek(pd.DataFrame({"task": ["read", "work"], "busy": [0.5, 0.7]}), rows=1)
    [{'task': 'read', 'busy': 0.5}]
    """
    return list(islice(_whole_rows(data, limits), rows))


def _whole_rows(data: Any, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield rows by column."""
    names = {f"{i} {column}": column for i, column in enumerate(_header(data, limits))}
    for _, row in read_rows(data, names, set(), limits):
        yield {names[name]: value for name, value in row.items()}


def _sample(data: Any, operator: str | None, limits: Limits) -> list[dict[str, Any]]:
    """Return the first rows, and some of each operator, also of many and of a table that is sorted by them."""
    if operator is None:
        return list(islice(_whole_rows(data, limits), _SAMPLE))
    count: Counter[str] = Counter()
    sample = []
    for index, row in enumerate(islice(_whole_rows(data, limits), min(_READ, limits.readings))):
        by = str(row.get(operator))
        count[by] += 1
        if index < _SAMPLE or count[by] <= _EACH:
            sample.append(row)
    return sample


def _header(data: Any, limits: Limits) -> list[str]:
    """Return the names of the columns, without nested ones and those that are there twice."""
    there: list[Any] = []
    if hasattr(data, "columns"):
        there = list(data.columns)
    elif not isinstance(data, (str, Path)):
        raise LoaderError(f"{type(data).__name__}", expected="a path or a DataFrame", fix="pass one")
    elif (path := given_path(data)).suffix.lower() == ".parquet":
        pt = load("pyarrow.types", "standard")

        def choose(schema: Any, rows: int) -> list[str]:
            there.extend(field.name for field in schema if not pt.is_nested(field.type))
            return []

        with untrusted.parquet(path, error=LoaderError, expected="a table", choose=choose):
            pass
    else:
        with (
            open_regular(path, error=LoaderError, expected="a table") as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="", errors="replace") as file,
        ):
            try:
                there = next(csv.reader(_short(file, limits)), [])
            except csv.Error as error:
                raise LoaderError(f"{path.name}: {error}", expected="a CSV file", fix="save it as such") from error
    return [str(column) for column in there if there.count(column) == 1]


def guess_columns(data: str | Path | pd.DataFrame, *, limits: Limits = LIMITS) -> dict[str, Guess]:
    """Return which column of a table probably has which quantity, in which unit, and why.

    These are guesses by the names and by the first values, for a person to confirm; `Table` itself guesses nothing.

    Parameters
    ----------
    data : str, Path or DataFrame
        The table.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(1_700_000_000_000 + 1000 * i, "work", 40 + i) for i in range(3)]
    >>> found = guess_columns(pd.DataFrame(rows, columns=["ts", "task", "busy"]))
    >>> found["t"].unit, found["utilisation"].unit, found["utilisation"].reason
    ('ms', 'percent', "called 'busy'; values up to 42")
    """
    columns = _header(data, limits)
    named: dict[str, str] = {}
    for quantity, pattern in _NAMES.items():
        left = [c for c in columns if c not in named.values()]
        fits = [c for c in left if re.search(pattern, c.lower().replace(" ", "_"))]
        if fits:
            named[quantity] = next((c for c in fits if c == quantity), fits[0])
    operator = named.get("operator")
    sample = _sample(data, operator, limits)
    found: dict[str, Guess] = {}
    for quantity, column in named.items():
        unit_, seen = _guess_unit(quantity, column, sample, operator)
        found[quantity] = Guess(column, unit_, "; ".join(filter(None, (f"called {column!r}", seen))))
    return found


def _guess_unit(
    quantity: str, column: str, sample: list[dict[str, Any]], operator: str | None
) -> tuple[str | None, str]:
    """Return the unit that the name spells out or the values suggest, and what was seen of it."""
    groups: dict[str, list[float]] = {}
    for row in sample:
        with suppress(Unusable):
            value = number(row.get(column), text=True, signed=True)
            groups.setdefault(str(row.get(operator)) if operator else "", []).append(value)
    values = [value for each in groups.values() for value in each]
    top = max(values, default=0.0)
    seen = f"values up to {top:.6g}" if values else ""
    if quantity == "t":
        if not values:
            return None, "dates"
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column).lower()
        spelled = next((u for pattern, u in _SPELLED_CLOCKS if re.search(pattern, name)), None)
        if spelled is not None and top * _CLOCKS[spelled] < BEYOND_S:
            return spelled, "the name says the unit"
        return next((u for u, low in (("ns", 1e17), ("us", 1e14), ("ms", BEYOND_S)) if top > low), "s"), seen
    kind = QUANTITIES.get(quantity)
    if kind not in ("rate", "share", "cores"):
        return None, ""
    spelled = next((u for pattern, u in _SPELLED if re.search(pattern, column.lower())), None)
    with suppress(LoaderError):
        if spelled is not None:
            unit(quantity, spelled)
            return spelled, "the name says the unit"
    # A rate may rise for a while, and the counter of an operator that does nothing stays the same.
    several = [each for each in groups.values() if len(each) >= _MANY and min(each) < max(each)]
    grows = bool(several) and all(a <= b for each in several for a, b in pairwise(each))
    if kind == "rate":
        return ("counter", "it only grows") if grows else ("records/s", seen)
    if grows and top > 1000:
        return "counter ms", "it only grows"
    if kind == "share":
        return ("share" if top <= 1.2 else "percent" if top <= 120 else "ms/s"), seen
    return ("percent", seen) if top > 64 else ("cores", f"{seen}; uncertain, they may be percent")
