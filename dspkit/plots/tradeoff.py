"""A sweep of two knobs: what was lost as a heat map, and beside it what was lost against what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MetricError
from .base import PALETTE, Plot, Spec, axis, plot, si

if TYPE_CHECKING:
    import pandas as pd

MOST_LABELS = 80  # cells: with more the numbers in them would overlap
SHADES = [[0.0, "#FFF9EE"], [0.5, "#F7B977"], [1.0, "#E0752C"]]  # light enough for black numbers on all of them


def tradeoff(
    frame: pd.DataFrame,
    x: str,
    y: str,
    *,
    here: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    title: str = "",
) -> Plot:
    """Events lost over the knobs x and y, in per cent; and all settings as points of replica-seconds and loss.

    Points that no other setting beats in both are joined. `here` marks one setting: its knobs, `lost` and
    `replica_seconds`. Rows without numbers are cells left empty. `labels` are words for the axes in place of names.
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
    words = {name: (labels or {}).get(name, _words(name)) for name in (x, y)}
    heat: Spec = {
        "type": "heatmap", "x": columns, "y": rows, "z": cells, "customdata": spent, "colorscale": SHADES,
        "colorbar": {"title": {"text": "%"}, "x": 0.43, "thickness": 10}, "showscale": not few,
        "xgap": 1, "ygap": 1,
        "hovertemplate": f"{words[x]} %{{x}}, {words[y]} %{{y}}<br>%{{z:.2f}} % lost, %{{customdata}} replica-s"
        "<extra></extra>",
    }  # fmt: skip
    if few:
        heat |= {"texttemplate": "%{z:.1f}", "textfont": {"size": 11, "color": "black"}}
    ordered = known.sort_values(["replica_seconds", "lost"])
    best = _undominated(ordered)
    named = [f"{_valued(x, a)}, {_valued(y, b)}" for a, b in zip(ordered[x], ordered[y], strict=True)]
    points: Spec = {
        "type": "scatter", "xaxis": "x2", "yaxis": "y2", "mode": "markers", "name": "a setting",
        "x": ordered.replica_seconds.tolist(), "y": (100 * ordered.lost).tolist(), "text": named,
        "marker": {"color": PALETTE[5], "size": 7, "line": {"width": 1, "color": PALETTE[0]}},
        "hovertemplate": "%{text}<br>%{y:.2f} % lost, %{x:,.0f} replica-s<extra></extra>",
    }  # fmt: skip
    front: Spec = {
        "type": "scatter", "xaxis": "x2", "yaxis": "y2", "mode": "lines+markers", "name": "beaten by none",
        "x": best.replica_seconds.tolist(), "y": (100 * best.lost).tolist(), "hoverinfo": "skip",
        "line": {"color": PALETTE[1], "width": 1.5, "shape": "hv"}, "marker": {"symbol": "diamond", "size": 8},
    }  # fmt: skip
    traces = [heat, points, front]
    if here is not None:
        star = {"symbol": "star", "size": 17, "color": "white", "line": {"color": "black", "width": 1.8}}
        common: Spec = {"type": "scatter", "mode": "markers", "name": "this setting", "marker": star}
        if here.get(x) in table.columns and here.get(y) in table.index:
            mark = {"x": [_tick(here[x])], "y": [_tick(here[y])], "showlegend": False, "hoverinfo": "skip"}
            # off the number in the middle of its cell
            frame_of_it = {"symbol": "square-open", "size": 30, "color": "black", "line": {"width": 2.5}}
            traces.append({**common, **mark, "marker": frame_of_it})
        at = {"xaxis": "x2", "yaxis": "y2", "x": [here["replica_seconds"]], "y": [100 * here["lost"]]}
        traces.append({**common, **at, "hovertemplate": "%{y:.2f} % lost, %{x:,.0f} replica-s<extra></extra>"})
    layout = {
        "xaxis": axis(words[x], domain=[0, 0.5 if few else 0.42], type="category", showgrid=False),
        "yaxis": axis(words[y], type="category", showgrid=False),
        "xaxis2": axis("replica-seconds", domain=[0.56, 1], anchor="y2", ticklabelstandoff=4),
        # on the right: in a narrow window its title would lie on the map
        "yaxis2": axis("events lost, %", anchor="x2", rangemode="tozero", side="right", ticklabelstandoff=8),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        "annotations": [
            {"text": "<b>events lost, %</b>", "x": 0, "xref": "paper", "xanchor": "left", "y": 1.02, "yref": "paper",
             "yanchor": "bottom", "showarrow": False}
        ],
    }  # fmt: skip
    return plot(traces, layout, _tell(known, x, y, best), height=400, title=title)


def _undominated(ordered: Any) -> Any:
    """Rows that lose less than all that cost no more; `ordered` by cost, then loss."""
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
        f"loses {words(cheap)}; {len(best)} are beaten by none in both."
    )


def _tick(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _valued(name: str, value: Any) -> str:
    unit = " s" if name.endswith("_s") else ""
    return f"{name.removesuffix('_s').replace('_', ' ')} {_tick(value)}{unit}"


def _words(name: str) -> str:
    return f"{name.removesuffix('_s').replace('_', ' ')}, s" if name.endswith("_s") else name.replace("_", " ")
