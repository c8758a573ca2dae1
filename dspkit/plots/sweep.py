"""Heat maps of a sweep over two parameters: of any result, or of lost events beside their trade-off with cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import MetricError
from ..core.validation import is_number
from .theme import PALETTE, Plot, Spec, axis, plot, si, with_gaps

if TYPE_CHECKING:
    import pandas as pd


UNITS = {"throughput": "records/s", "source_rate": "records/s", "lost": "records/s", "lag": "records"}
UNITS |= {"worst_lag": "records", "cores": "cores", "instances": "instances", "scale": "times the load"}


def heatmap(
    frame: pd.DataFrame, x: str, y: str, z: str, *, title: str = "", lower_is_better: bool | None = None
) -> Plot:
    """Plot column `z` of a sweep over the columns `x` and `y`, with the best point marked.

    The scale is logarithmic if z spans more than 1:1000. Rows with the same x and y, of a sweep with further axes, are
    averaged, which the summary states.

    Parameters
    ----------
    frame : DataFrame
        One row per point of the sweep.
    x, y, z : str
        Columns of the two axes and of the result.
    title : str, optional
        Title of the figure.
    lower_is_better : bool, optional
        Whether the least value is best, by default unless z is a throughput.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(k, scale, k * 100.0) for k in (1, 2) for scale in (0.5, 1.0)]
    >>> heatmap(pd.DataFrame(rows, columns=["k", "scale", "throughput"]), "k", "scale", "throughput").summary
    'Throughput over 2 values of k and 2 of scale: 100 to 200 records/s, best (star) at k 2, scale 0.5.'
    """
    if len({x, y, z}) < 3:
        raise MetricError(
            f"x={x!r}, y={y!r}, z={z!r}", expected="three different columns", fix="name two axes and a result"
        )
    if missing := [name for name in (x, y, z) if name not in frame]:
        raise MetricError(
            f"column {missing[0]!r}",
            expected=f"one of {', '.join(map(str, frame.columns))}",
            fix="choose one",
        )
    import numpy as np

    frame = _numeric(frame, x, y, z)
    table = frame.pivot_table(index=y, columns=x, values=z)
    values = table.to_numpy(dtype=float)
    known = values[np.isfinite(values)]
    if not known.size:
        raise MetricError(f"{z!r} without a number", expected="at least one number", fix="sweep over valid points")
    low = z not in ("throughput", "source_rate") if lower_is_better is None else lower_is_better
    row, column = np.unravel_index(np.nanargmin(values) if low else np.nanargmax(values), values.shape)
    across, up = np.asarray(table.columns, dtype=float).tolist(), np.asarray(table.index, dtype=float).tolist()
    at = across[int(column)], up[int(row)]
    positive = known[known > 0]
    logarithmic = positive.size == known.size and known.max() > 1000 * known.min()
    shown = np.log10(values) if logarithmic else values
    unit = "s" if z.endswith("_s") else UNITS.get(z, "")
    bar: dict[str, Any] = {"title": {"text": f"{_words(z)}{f' ({unit})' if unit else ''}", "side": "right"}}
    if logarithmic:
        ticks = np.arange(np.ceil(np.log10(known.min())), np.floor(np.log10(known.max())) + 1)
        bar |= {"tickvals": ticks.tolist(), "ticktext": [si(10.0**tick) for tick in ticks]}
    traces = [
        {
            "type": "heatmap",
            "x": across,
            "y": up,
            "z": [with_gaps(line) for line in shown.tolist()],
            "customdata": [with_gaps(line) for line in values.tolist()],
            "colorscale": "Cividis",
            "reversescale": not low,
            "colorbar": bar,
            "hovertemplate": f"{_words(x)} %{{x}}<br>{_words(y)} %{{y}}<br>{_words(z)} %{{customdata:.4g}} {unit}"
            "<extra></extra>",
        },
        {
            "type": "scatter",
            "x": [at[0]],
            "y": [at[1]],
            "mode": "markers",
            "marker": {"symbol": "star", "size": 15, "color": "white", "line": {"color": "black", "width": 1.5}},
            "name": "best",
            "showlegend": False,
            "hovertemplate": "best<extra></extra>",
        },
    ]
    layout = {"xaxis": axis(_named(x)), "yaxis": axis(_named(y))}
    most = int(frame.groupby([y, x])[z].count().max())
    mean = f", each point the mean of {most}" if most > 1 else ""
    said = (
        f"{_words(z).capitalize()} over {len(across)} value{'s' if len(across) > 1 else ''} of {_words(x)} and "
        f"{len(up)} of {_words(y)}{mean}: {si(known.min())} to {si(known.max())}{f' {unit}' if unit else ''}, "
        f"best (star) at {_words(x)} {si(at[0])}, {_words(y)} {si(at[1])}."
    )
    return plot(traces, layout, said, height=420, title=title)


def _numeric(frame: pd.DataFrame, x: str, y: str, z: str) -> pd.DataFrame:
    """Return the columns as numbers, finite on the axes; an infinite result is a gap."""
    import numpy as np
    import pandas as pd

    columns = {}
    for name in (x, y, z):
        try:
            columns[name] = np.asarray(frame[name], dtype=float)
        except (TypeError, ValueError) as error:
            raise MetricError(
                f"column {name!r} of {frame[name].to_numpy().flat[0]!r}", expected="numbers", fix="draw another column"
            ) from error
        if columns[name].ndim != 1:
            raise MetricError(f"two columns {name!r}", expected="one of that name", fix="rename one of them")
        good = np.isfinite(columns[name])
        if name != z and not good.all():
            raise MetricError(f"{name!r} of {columns[name][~good][0]}", expected="finite numbers", fix="leave it out")
        columns[name] = np.where(good, columns[name], np.nan)
    return pd.DataFrame(columns)


def _words(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _named(name: str) -> str:
    unit = "s" if name.endswith("_s") else UNITS.get(name, "")
    return f"{_words(name)}{f' ({unit})' if unit else ''}"


MOST_LABELS = 80  # most cells with numbers, which would overlap otherwise
SHADES = [[0.0, "#FFF9EE"], [0.5, "#F7B977"], [1.0, "#E0752C"]]  # light enough for black numbers on all of them


def tradeoff(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    current: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    title: str = "",
) -> Plot:
    """Plot lost events over the knobs x and y, in per cent, and all settings by replica-seconds and loss.

    Settings that no other one beats in both are joined by a line. Rows without numbers are empty cells.

    Parameters
    ----------
    frame : DataFrame
        The result of `comparison.sensitivity.sweep`.
    x, y : str
        Columns of the two knobs.
    current : mapping, optional
        A setting to mark: its knobs, `lost` and `replica_seconds`.
    labels : mapping, optional
        Labels of the axes by column.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(k, h, 0.1 / k, 100.0 * k) for k in (1, 2) for h in (1, 2)]
    >>> tradeoff(pd.DataFrame(rows, columns=["k", "h", "lost", "replica_seconds"]), "k", "h").summary
    'Of 4 settings the least is lost with 5 % at k 2 and h 1 (200 replica-seconds), ...'
    """
    if missing := [name for name in (x, y, "lost", "replica_seconds") if name not in frame]:
        raise MetricError(f"no column {missing[0]!r}", expected=f"one of {list(frame)}", fix="see sensitivity.sweep")
    known = frame.dropna(subset=["lost", "replica_seconds"])
    if known.empty or x == y:
        raise MetricError(f"{len(frame)} rows over {x!r} and {y!r}", expected="two knobs, one row", fix="sweep first")
    table = frame.pivot_table(index=y, columns=x, values="lost", dropna=False) * 100
    cost = frame.pivot_table(index=y, columns=x, values="replica_seconds", dropna=False)
    columns, rows = [_tick(v) for v in table.columns], [_tick(v) for v in table.index]
    cells = [[None if v != v else round(v, 3) for v in line] for line in table.to_numpy().tolist()]
    spent = [["" if v != v else si(v) for v in line] for line in cost.to_numpy().tolist()]
    few = table.size <= MOST_LABELS
    words = {name: (labels or {}).get(name, _axis_words(name)) for name in (x, y)}
    heat: Spec = {
        "type": "heatmap",
        "x": columns,
        "y": rows,
        "z": cells,
        "customdata": spent,
        "colorscale": SHADES,
        "colorbar": {"title": {"text": "%"}, "x": 0.43, "thickness": 10},
        "showscale": not few,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": f"{words[x]} %{{x}}, {words[y]} %{{y}}<br>%{{z:.2f}} % lost, %{{customdata}} replica-s"
        "<extra></extra>",
    }
    if few:
        heat |= {"texttemplate": "%{z:.1f}", "textfont": {"size": 11, "color": "black"}}
    ordered = known.sort_values(["replica_seconds", "lost"])
    best = _undominated(ordered)
    named = [f"{_valued(x, a)}, {_valued(y, b)}" for a, b in zip(ordered[x], ordered[y], strict=True)]
    points: Spec = {
        "type": "scatter",
        "xaxis": "x2",
        "yaxis": "y2",
        "mode": "markers",
        "name": "a setting",
        "x": ordered.replica_seconds.tolist(),
        "y": (100 * ordered.lost).tolist(),
        "text": named,
        "marker": {"color": PALETTE[5], "size": 7, "line": {"width": 1, "color": PALETTE[0]}},
        "hovertemplate": "%{text}<br>%{y:.2f} % lost, %{x:,.0f} replica-s<extra></extra>",
    }
    front: Spec = {
        "type": "scatter",
        "xaxis": "x2",
        "yaxis": "y2",
        "mode": "lines+markers",
        "name": "undominated",
        "x": best.replica_seconds.tolist(),
        "y": (100 * best.lost).tolist(),
        "hoverinfo": "skip",
        "line": {"color": PALETTE[1], "width": 1.5, "shape": "hv"},
        "marker": {"symbol": "diamond", "size": 8},
    }
    traces = [heat, points, front]
    if current is not None:
        star = {"symbol": "star", "size": 17, "color": "white", "line": {"color": "black", "width": 1.8}}
        common: Spec = {"type": "scatter", "mode": "markers", "name": "this setting", "marker": star}
        if current.get(x) in table.columns and current.get(y) in table.index:
            mark = {"x": [_tick(current[x])], "y": [_tick(current[y])], "showlegend": False, "hoverinfo": "skip"}
            # around the number in the middle of its cell
            frame_of_it = {"symbol": "square-open", "size": 30, "color": "black", "line": {"width": 2.5}}
            traces.append({**common, **mark, "marker": frame_of_it})
        at = {"xaxis": "x2", "yaxis": "y2", "x": [current["replica_seconds"]], "y": [100 * current["lost"]]}
        traces.append({**common, **at, "hovertemplate": "%{y:.2f} % lost, %{x:,.0f} replica-s<extra></extra>"})
    layout = {
        "xaxis": axis(words[x], domain=[0, 0.5 if few else 0.42], type="category", showgrid=False),
        "yaxis": axis(words[y], type="category", showgrid=False),
        "xaxis2": axis("replica-seconds", domain=[0.56, 1], anchor="y2", ticklabelstandoff=4),
        # on the right: in a narrow window its title would overlap the map
        "yaxis2": axis("events lost, %", anchor="x2", rangemode="tozero", side="right", ticklabelstandoff=8),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        "annotations": [
            {
                "text": "<b>events lost, %</b>",
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": 1.02,
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
            }
        ],
    }
    return plot(traces, layout, _tell(known, x, y, best), height=400, title=title)


def _undominated(ordered: Any) -> Any:
    """Return the rows that lose less than all rows of at most their cost; `ordered` by cost, then loss."""
    before = ordered.lost.cummin().shift(fill_value=float("inf"))
    return ordered[ordered.lost < before]


def _tell(frame: Any, x: str, y: str, best: Any) -> str:
    least, most = frame.loc[frame.lost.idxmin()], frame.loc[frame.lost.idxmax()]
    cheap = frame.loc[frame.replica_seconds.idxmin()]

    def words(row: Any) -> str:
        setting = f"{_valued(x, row[x])} and {_valued(y, row[y])}"
        return f"{100 * row.lost:.3g} % at {setting} ({si(row.replica_seconds)} replica-seconds)"

    return (
        f"Of {len(frame)} settings the least is lost with {words(least)}, the most with {words(most)}; the cheapest "
        f"loses {words(cheap)}; {len(best)} are undominated."
    )


def _tick(value: Any) -> str:
    return f"{value:g}" if is_number(value) else str(value)


def _valued(name: str, value: Any) -> str:
    unit = " s" if name.endswith("_s") else ""
    return f"{name.removesuffix('_s').replace('_', ' ')} {_tick(value)}{unit}"


def _axis_words(name: str) -> str:
    return f"{name.removesuffix('_s').replace('_', ' ')}, s" if name.endswith("_s") else name.replace("_", " ")
