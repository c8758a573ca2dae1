"""Metrics in files and frames: CSV, Parquet, a pandas DataFrame, one row a window and operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import Topology
from ..history import History
from . import windows
from .base import LIMITS, Limits, LoaderError, Problems
from .given import Given, given_parallelism, given_topology, given_window
from .table_rows import read
from .units import BEYOND_S, OPTIONAL, QUANTITIES, Unit, Unusable, dated, number, unit, whole

if TYPE_CHECKING:
    import pandas as pd

_LONGEST = 1000  # characters of an operator's name
_CLOCKS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_GAP = 1.5  # windows without a row


@dataclass
class _Row:
    """A row as it was read: numbers in their own units."""

    t: float
    operator: str
    where: str
    window_s: float | None
    values: dict[str, float]
    parallelism: int | None


class Table:
    """A .csv or .parquet file, or a DataFrame, with one row a window and operator.

    `columns` says what the columns are called: `{"t": "time", "operator": "task", "processing_rate": "out"}`, and in
    which unit where it is not dspkit's: `{"utilisation": ("busy", "ms/s"), "processing_rate": ("total", "counter")}`.
    Columns with dspkit's own names need no mention. `t` is when the window ended, in seconds; `window_s` a column, a
    number of seconds, or else the usual distance of the rows.
    """

    def __init__(
        self,
        data: str | Path | pd.DataFrame,
        *,
        columns: Mapping[str, str | tuple[str, str]] | None = None,
        topology: Topology | Sequence[str] | None = None,
        parallelism: int | Mapping[str, int] | None = None,
        window_s: float | None = None,
        law: str = "pipeline",
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        self._data, self._law, self._limits, self._strict = data, law, limits, strict
        self._given = Given(given_topology(topology), given_parallelism(parallelism))
        self._names, self._units, self._clock = _mapping(columns or {})
        self._asked = set(columns or {})
        self._text = isinstance(data, (str, Path)) and Path(data).suffix.lower() == ".csv"
        self._window_s = given_window(window_s)

    def history(self) -> History:
        """Read the table."""
        self.problems = Problems(strict=self._strict)
        rows = _in_time(self._rows(), self.problems)
        names = list(dict.fromkeys(row.operator for row in rows))
        topology = self._given.topology_for(names)
        found = _windows(rows, self._units, self._window_s, self.problems)
        source = "DataFrame" if hasattr(self._data, "columns") else Path(self._data).name
        about = {"loader": "Table", "source": source}
        given = self._given.parallelism_for(topology)
        return windows.history(topology, found, self.problems, self._limits, about, law=self._law, parallelism=given)

    def _rows(self) -> Iterator[_Row]:
        for place, raw in read(self._data, self._names, self._asked, self._limits):
            try:
                yield self._row(raw, place)
            except Unusable as reason:
                self.problems.count(str(reason), place)

    def _row(self, raw: Mapping[str, Any], place: str) -> _Row:
        def take(name: str) -> float:
            try:
                return number(raw[name], text=self._text, signed=name == "t")
            except Unusable as reason:
                raise Unusable(f"{name}: {reason}") from None

        operator = raw.get("operator")
        if "operator" not in raw:
            operator = self._given.only
        if not isinstance(operator, str) or not operator.strip() or len(operator) > _LONGEST:
            raise Unusable("operator: not a name")
        if not self._given.known(operator):
            raise Unusable("unknown operator")
        values = {}
        for name in self._units:
            if name in raw:
                try:
                    values[name] = take(name)
                except Unusable as reason:
                    if name not in OPTIONAL:
                        raise
                    if not str(reason).endswith("missing"):
                        self.problems.count(str(reason), f"{place}: taken as not measured")
        k = None
        if "parallelism" in raw:
            try:
                k = whole(raw["parallelism"], text=self._text)
            except Unusable as reason:
                raise Unusable(f"parallelism: {reason}") from None
        elif not self._given.parallelism:
            raise LoaderError(
                "a table without a column 'parallelism'",
                expected="how many instances each operator has",
                fix="name the column with columns=, or pass parallelism=2 or parallelism={'name': 2}",
            )
        window = take("window_s") if "window_s" in raw else None
        date = dated(raw["t"])
        t = take("t") * self._clock if date is None else date
        if not abs(t) < BEYOND_S:
            raise Unusable("t: not a time in seconds (say so with columns={'t': (name, 'ms')})")
        return _Row(t, operator, place, window, values, k)


def _mapping(columns: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Unit], float]:
    """Column names by quantity, units by quantity, and seconds in a unit of the clock."""
    known = ["t", "operator", "window_s", *QUANTITIES]
    names, units, clock = {n: n for n in known}, {n: unit(n) for n in QUANTITIES if n != "parallelism"}, 1.0
    if not isinstance(columns, Mapping):
        raise LoaderError(f"columns={columns!r}", expected="a mapping", fix="pass {'t': 'time', ...}")
    for quantity, told in columns.items():
        name, of = told if isinstance(told, tuple) and len(told) == 2 else (told, None)
        if quantity not in known or not isinstance(name, str):
            raise LoaderError(
                f"columns={{{quantity!r}: {told!r}}}",
                expected=f"one of {', '.join(known)}, and the name of a column",
                fix="correct the mapping",
            )
        names[quantity] = name
        if quantity == "t":
            if of is not None and of not in _CLOCKS:
                raise LoaderError(f"unit {of!r} for t", expected=", ".join(_CLOCKS), fix="correct the mapping")
            clock = _CLOCKS[of or "s"]
        elif quantity in units:
            units[quantity] = unit(quantity, of)
        elif of is not None:
            raise LoaderError(f"unit {of!r} for {quantity}", expected="no unit", fix=f"pass only {name!r}")
    return names, units, clock


def _in_time(rows: Iterable[_Row], problems: Problems) -> list[_Row]:
    """Rows by time, be they written operator by operator; what steps back within an operator is dropped."""
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
    """Rows of one moment are one window."""
    times = list(dict.fromkeys(row.t for row in rows))
    steps = sorted(b - a for a, b in zip(times, times[1:], strict=False) if b > a)
    usual = fixed or (steps[len(steps) // 2] if steps else 1.0)
    if not steps and fixed is None and any(row.window_s is None for row in rows):
        raise LoaderError("rows of one moment", expected="windows", fix="say how long it was with window_s=")
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
            open_.told.add(row.operator)
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
