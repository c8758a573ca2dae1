"""Readers of recorded loads: (timestamp, count) tables, the World Cup's binary logs, Wikipedia's hourly page views.

A defect of a table is reported, or repaired on request: `order="sort"` for unordered rows, `gaps=` for missing steps,
`every_s=` for times on no even grid. Nothing is repaired silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..core import FileError, WorkloadError, files, untrusted
from ..core.typing import Array
from ..core.validation import choice
from .counts import MOST_STEPS, Counts, _must_be_above_zero

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
    r"""Read a table of times and counts, a .csv (also .gz) or .parquet file.

    Rows of the same time are added up. An empty count is a gap.

    Parameters
    ----------
    path : str or Path
        The file.
    time, count : str, optional
        Names of the columns; by default columns with usual names.
    events : bool
        Whether each row is one record, so that there are times only; this requires `every_s`.
    unit : {"s", "ms", "us", "ns", "min", "h"}
        Unit of numeric times, which count from 1970.
    time_format : str, optional
        Format of dates; by default ISO.
    zone : str
        Time zone of dates that name none.
    every_s : float, optional
        Step of the even grid; required if the times are not on one.
    order : {"refuse", "sort"}
        Whether unordered rows are an error or are sorted.
    gaps : {"refuse", "zero", "hold", "line"}
        Whether missing counts are an error, or are zero, the previous count, or on a straight line.
    name, about : str
        Name of the recording (by default the file's), and its source and licence.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "visits.csv")
    ...     _ = path.write_text("time,count\n0,6\n60,12\n120,0\n")
    ...     read(path).total
    18.0
    """
    choice(order, "order", ("refuse", "sort"), error=WorkloadError)
    choice(gaps, "gaps", ("refuse", "zero", "hold", "line"), error=WorkloadError)
    choice(unit, "unit", tuple(UNITS), error=WorkloadError)
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
    """Read the World Cup 1998 logs, `wc_dayD_N.gz`: requests of 20 bytes each, big-endian.

    Parameters
    ----------
    paths : path or iterable of paths
        The files.
    every_s : float
        Length of the steps in which requests are counted.

    Examples
    --------
    >>> world_cup_98([])
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file; expected at least one; check the pattern
    """
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
    """Read hourly page views from Wikimedia's dumps, `pagecounts-20160101-010000.gz`: project, page, views, bytes.

    Parameters
    ----------
    paths : path or iterable of paths
        The files, whose names contain the hour.
    project : str
        The project to count, such as "en".
    page : str, optional
        One page; by default all pages of the project.
    stamp : {"end", "begin"}
        Whether the time in a name is the end of its hour, as in Wikimedia's dumps, or its beginning.
    gaps : {"refuse", "zero", "hold", "line"}
        As for `read`.

    Examples
    --------
    >>> page_views([])
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file; expected at least one; check the pattern
    """
    choice(gaps, "gaps", ("refuse", "zero", "hold", "line"), error=WorkloadError)
    choice(stamp, "stamp", ("end", "begin"), error=WorkloadError)
    rows = []
    for path in _paths(paths):
        found = re.search(r"-(\d{8}-\d{6})(?=\.|$)", path.name)
        if found is None:
            raise FileError(f"name {path.name!r}", expected="pageviews-YYYYMMDD-HHMMSS", fix="keep the dump's name")
        try:
            at = datetime.strptime(found[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
        except ValueError as error:
            raise FileError(f"{path.name}: {error}", expected="a date in its name", fix="keep its name") from None
        hour = at.replace(minute=0, second=0) - timedelta(
            hours=stamp == "end"
        )  # dumps of the first years are seconds late
        rows.append((hour.timestamp(), _views(path, project, page)))
    t, n = np.array(sorted(rows)).T
    if (np.diff(t) == 0).any():
        raise FileError("an hour twice", expected="one file per hour", fix="name each once")
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
    """Return counts at increasing times (NaN: unknown) on an even grid."""
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
            f"{at[-1]:,.0f} steps of {width:g} s",
            expected=f"at most {MOST_STEPS:,}",
            fix="check that unit= is the unit of the times",
        )
    place, length = at.astype(int), int(at[-1]) + 1
    known = np.bincount(place, minlength=length) > 0
    known[place[np.isnan(n)]] = False
    filled = np.bincount(place, np.nan_to_num(n), minlength=length)
    counts = Counts(_fill(filled, known, gaps, first, width), width, float(first))
    return counts if every_s is None or width == every_s else counts.resampled(every_s)


def _step(t: Array) -> float | None:
    """Return the most frequent distance, if all others are multiples of it."""
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
        n = np.bincount(where, n)  # NaN is preserved
    return once, n


def _table(path: Path) -> pd.DataFrame:

    kind = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if kind not in (".csv", ".csv.gz", ".parquet"):
        raise FileError(f"file {path.name!r}", expected=".csv, .csv.gz, .parquet", fix="convert it: docs/data.md")
    if kind == ".parquet":
        table: pd.DataFrame = untrusted.read_table(path, expected="a readable table").to_pandas()
        return table
    return untrusted.read_csv(path, expected="a readable table")


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
    """Return times as seconds since 1970, UTC."""
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
        except Exception as error:  # an ambiguous or missing hour, an unknown zone: errors of several libraries
            raise WorkloadError(
                f"times of zone {zone!r}: {error}", expected="dates of it", fix="give times in UTC"
            ) from None
        bad = parsed.isna().to_numpy()
        t = (parsed - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy()
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise WorkloadError(
            f"row {at}: {_cell(column.iloc[at])}", expected="a time", fix="correct it, or pass time_format= or unit="
        )
    return np.asarray(t)


def _numbers(column: pd.Series[Any]) -> Array:
    """Return counts, with NaN for empty cells."""
    import pandas as pd

    n = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    bad = (np.isnan(n) & column.notna().to_numpy()) | (n < 0) | np.isinf(n)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise WorkloadError(
            f"row {at}: {_cell(column.iloc[at])}", expected="a count >= 0", fix="correct or empty the cell"
        )
    return n


def _cell(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)[:60]


def _bytes(path: Path) -> bytes:
    return untrusted.read_bytes(path, expected="a readable file")


def _paths(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    try:
        found = [files.given_path(p) for p in ([paths] if isinstance(paths, str | Path) else sorted(map(Path, paths)))]
    except TypeError as error:
        raise FileError(f"{paths!r}"[:80], expected="a file's path, or several", fix="as in 'my.csv'") from error
    if not found:
        raise FileError("no file", expected="at least one", fix="check the pattern")
    return found
