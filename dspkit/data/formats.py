"""Reading recorded loads: (timestamp, count) tables, the World Cup's binary logs, Wikipedia's hourly page views.

What a table can have wrong is told, or mended the way one asks for: `order="sort"` for rows that are not in order,
`gaps=` for steps that are missing, `every_s=` for times on no even grid. Nothing is mended silently.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import FileError, WorkloadError
from .counts import MOST_STEPS, Array, Counts, _must_be_above_zero

if TYPE_CHECKING:
    import pandas as pd

Gaps = Literal["refuse", "zero", "hold", "line"]
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
TIMES = ("timestamp", "time", "t", "date", "datetime", "event_time")
COUNTS = ("count", "counts", "value", "n", "views", "requests", "records")
WORLD_CUP = np.dtype([("t", ">u4"), ("client", ">u4"), ("object", ">u4"), ("size", ">u4"), ("rest", "V4")])


def read(
    path: str | Path,
    *,
    time: str | None = None,
    count: str | None = None,
    events: bool = False,
    unit: str = "s",
    time_format: str | None = None,
    zone: str = "UTC",
    every_s: float | None = None,
    order: Literal["refuse", "sort"] = "refuse",
    gaps: Gaps = "refuse",
    name: str = "",
    about: str = "",
) -> Counts:
    """A .csv (also .gz) or .parquet table of times and counts; with `events`, of times, each row one record.

    Columns are found by usual names unless `time` and `count` say them. Times are dates (ISO, or `time_format`; of
    `zone` where they say none) or numbers of `unit` since 1970. Rows of the same time are added up. Times lie on an
    even grid, or `every_s` makes one. An empty count is a gap; `gaps` fills these with zero, the count before
    ("hold"), or a straight line.
    """
    _one_of("order", order, ("refuse", "sort"))
    _one_of("gaps", gaps, ("refuse", "zero", "hold", "line"))
    _one_of("unit", unit, tuple(UNITS))
    if every_s is not None:
        _must_be_above_zero("every_s", every_s)
    elif events:
        raise WorkloadError("events without every_s", expected="seconds to count them in", fix="as in every_s=60")
    (path,) = _paths([path])
    table = _table(path)
    when = _seconds(table[_column(table, time, TIMES, "time")], unit, time_format, zone)
    n = np.ones(len(when)) if events else _numbers(table[_column(table, count, COUNTS, "count")])
    when, n = _in_order(when, n, order)
    counts = _gridded(when, n, every_s, "zero" if events else gaps)
    return replace(counts, name=name or path.name.partition(".")[0], about=about)


def world_cup_98(paths: str | Path | Iterable[str | Path], *, every_s: float = 1.0) -> Counts:
    """Requests in each `every_s` of the World Cup 1998 logs: `wc_dayD_N.gz`, 20 bytes a request, big-endian."""
    _must_be_above_zero("every_s", every_s)
    seconds = []
    for path in _paths(paths):
        raw = _bytes(path)
        if not raw or len(raw) % WORLD_CUP.itemsize:
            raise FileError(f"{path}, {len(raw)} bytes", expected="records of 20 bytes", fix="fetch the file again")
        seconds.append(np.frombuffer(raw, WORLD_CUP)["t"].astype(np.int64))
    t = np.sort(np.concatenate(seconds)).astype(float)
    return replace(_gridded(t, np.ones(len(t)), every_s, "zero"), name="world_cup_98")


def page_views(
    paths: str | Path | Iterable[str | Path],
    *,
    project: str = "en",
    page: str | None = None,
    stamp: Literal["end", "begin"] = "end",
    gaps: Gaps = "refuse",
) -> Counts:
    """Views by hour from Wikimedia's dumps (`pagecounts-20160101-010000.gz`: project, page, views, bytes).

    All pages of a project, or one. The time in a name is the end of its hour, as Wikimedia says of these dumps, or
    with `stamp="begin"` its beginning.
    """
    _one_of("gaps", gaps, ("refuse", "zero", "hold", "line"))
    _one_of("stamp", stamp, ("end", "begin"))
    rows = []
    for path in _paths(paths):
        found = re.search(r"-(\d{8}-\d{6})(?=\.|$)", path.name)
        if found is None:
            raise FileError(f"name {path.name!r}", expected="pageviews-YYYYMMDD-HHMMSS", fix="keep the dump's name")
        try:
            at = datetime.strptime(found[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        except ValueError as error:
            raise FileError(f"{path.name}: {error}", expected="a date in its name", fix="keep its name") from None
        hour = at.replace(minute=0, second=0) - timedelta(hours=stamp == "end")  # first years' dumps are seconds late
        rows.append((hour.timestamp(), _views(path, project, page)))
    t, n = np.array(sorted(rows)).T
    if (np.diff(t) == 0).any():
        raise FileError("an hour twice", expected="one file an hour", fix="name each once")
    return replace(_gridded(t, n, 3600.0, gaps), name=f"page views, {page or project}")


def _views(path: Path, project: str, page: str | None) -> float:
    total = 0
    for i, line in enumerate(_bytes(path).splitlines()):
        cells = line.split(b" ")
        if cells[0] == project.encode() and (page is None or cells[1:2] in ([], [page.encode()])):
            if len(cells) < 3 or not cells[2].isdigit():
                raise FileError(f"{path.name}, line {i + 1}", expected="project page views bytes", fix="fetch it again")
            total += int(cells[2])
    return float(total)


def _gridded(t: Array, n: Array, every_s: float | None, gaps: Gaps) -> Counts:
    """Rising times and their counts (NaN: not known) on an even grid."""
    step = _step(t)
    native = step is not None and (every_s is None or every_s >= step) and not _single(t)
    if not native and every_s is None:
        raise WorkloadError(
            f"{len(t)} times on no even grid", expected="one step between all", fix="pass every_s= to count them in"
        )
    width = step if native and step is not None else float(every_s or 0)
    first = t[0] if native else np.floor(t[0] / width) * width
    at = np.rint((t - first) / width) if native else np.floor((t - first) / width)
    if at[-1] >= MOST_STEPS:
        raise WorkloadError(
            f"{at[-1]:,.0f} steps of {width:g} s", expected=f"at most {MOST_STEPS:,}", fix="is unit= that of the times?"
        )
    place, length = at.astype(int), int(at[-1]) + 1
    known = np.bincount(place, minlength=length) > 0
    known[place[np.isnan(n)]] = False
    filled = np.bincount(place, np.nan_to_num(n), minlength=length)
    counts = Counts(_fill(filled, known, gaps, first, width), width, float(first))
    return counts if every_s is None or width == every_s else counts.resampled(every_s)


def _step(t: Array) -> float | None:
    """The most frequent distance, if all others are multiples of it."""
    if _single(t):
        return None
    apart = np.diff(t)
    values, often = np.unique(np.round(apart, 6), return_counts=True)
    step = float(values[np.argmax(often)])
    off = np.abs(apart / step - np.rint(apart / step))
    return step if (off < 1e-3).all() and (np.rint(apart / step) >= 1).all() else None


def _single(t: Array) -> bool:
    return len(t) < 2 or bool((np.diff(t) <= 0).any())


def _fill(n: Array, known: Array, gaps: Gaps, first: float, width: float) -> Array:
    if known.all() or gaps == "zero":
        return n
    missing = np.flatnonzero(~known)
    if gaps == "refuse":
        raise WorkloadError(
            f"{len(missing)} of {len(n)} steps without a count, the first at {first + missing[0] * width:.0f}",
            expected="a count for each step",
            fix="pass gaps='zero', 'hold' or 'line'",
        )
    have = np.flatnonzero(known)
    if not have.size:
        raise WorkloadError("no count at all", expected="some", fix="check the column of counts")
    if gaps == "line":
        return np.interp(np.arange(len(n)), have, n[have])
    return np.asarray(n[have[np.maximum(np.searchsorted(have, np.arange(len(n)), side="right") - 1, 0)]])


def _in_order(t: Array, n: Array, order: str) -> tuple[Array, Array]:
    if not len(t):
        raise WorkloadError("an empty table", expected="at least one row", fix="check the file")
    if (back := np.flatnonzero(np.diff(t) < 0)).size:
        if order == "refuse":
            raise WorkloadError(
                f"row {back[0] + 1}: a time before that of the row above",
                expected="times that rise",
                fix="pass order='sort'",
            )
        by = np.argsort(t, kind="stable")
        t, n = t[by], n[by]
    once, where = np.unique(t, return_inverse=True)
    if len(once) < len(t):
        n = np.bincount(where, n)  # a NaN stays one
    return once, n


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    readers: dict[str, Any] = {".csv": pd.read_csv, ".csv.gz": pd.read_csv, ".parquet": pd.read_parquet}
    if kind not in readers:
        raise FileError(f"file {path.name!r}", expected=", ".join(readers), fix="convert it, or see docs/data.md")
    try:
        found: pd.DataFrame = readers[kind](path)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: {error}", expected="a readable table", fix="check the file") from error
    return found


def _column(table: pd.DataFrame, named: str | None, usual: Sequence[str], what: str) -> str:
    names = [str(c) for c in table.columns]
    if named is None:
        found = [c for wanted in usual for c in names if c.strip().lower() == wanted]
        if found:
            return found[0]
    elif named in names:
        return named
    raise WorkloadError(f"columns {names}", expected=f"a column of {what}s", fix=f"name it with {what}=")


def _seconds(column: pd.Series[Any], unit: str, form: str | None, zone: str) -> Array:
    """Times as seconds since 1970, UTC."""
    import pandas as pd

    if form is None and pd.api.types.is_numeric_dtype(column):
        t: Array = column.to_numpy(dtype=float) * UNITS[unit]
        bad = ~np.isfinite(t)
    else:
        dates = column if pd.api.types.is_datetime64_any_dtype(column) else column.astype(str)
        try:
            parsed = pd.to_datetime(dates, errors="coerce", format=form or "ISO8601", utc=zone == "UTC")
            if parsed.dt.tz is None:
                parsed = parsed.dt.tz_localize(zone, ambiguous="infer")
        except Exception as error:  # an hour twice or never, an unknown zone: what is raised is some other library's
            raise WorkloadError(
                f"times of zone {zone!r}: {error}", expected="dates of it", fix="give times in UTC"
            ) from None
        bad = parsed.isna().to_numpy()
        t = (parsed - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise WorkloadError(
            f"row {at}: {_cell(column.iloc[at])}", expected="a time", fix="mend it, or pass time_format= or unit="
        )
    return np.asarray(t)


def _numbers(column: pd.Series[Any]) -> Array:
    """Counts; NaN where the cell is empty."""
    import pandas as pd

    n = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    bad = (np.isnan(n) & column.notna().to_numpy()) | (n < 0) | np.isinf(n)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise WorkloadError(
            f"row {at}: {_cell(column.iloc[at])}", expected="a count >= 0", fix="mend or empty the cell"
        )
    return n


def _cell(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)[:60]


def _bytes(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: {error}", expected="a readable file", fix="fetch it again") from error


def _paths(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    try:
        found = [Path(paths)] if isinstance(paths, str | Path) else sorted(map(Path, paths))
    except TypeError as error:
        raise FileError(f"{paths!r}"[:80], expected="a file's path, or several", fix="as in 'my.csv'") from error
    if not found:
        raise FileError("no file", expected="at least one", fix="check the pattern")
    return found


def _one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise WorkloadError(f"{name}={value!r}", expected=f"one of {', '.join(choices)}", fix="choose one")
