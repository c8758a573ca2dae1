"""A run from top to bottom, and a load, over time."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from ..errors import DspkitError
from ..history import History
from .base import DASHES, MOST_POINTS, PALETTE, Plot, Spec, axis, numbers, plot, si

if TYPE_CHECKING:
    import pandas as pd

    from ..workload import Workload


def timeline(
    history: History, *, target_latency_s: float | None = None, until_s: float | None = None, title: str = ""
) -> Plot:
    """A run from top to bottom: load and throughput, latency, parallelism, backlog; each decision is a diamond.

    `until_s` is where the time axis ends, for a run that is still going.
    """
    if not len(history):
        raise DspkitError("an empty history", expected="at least one step", fix="run a policy first")
    app, operators = _thin(history.application), history.operators
    traces = [
        _line(1, app.t, app.source_rate, "input rate", 0, dash="dash", shape="vh"),
        _line(1, app.t, app.throughput, "throughput", 1),
        _line(2, app.t, app.latency_mean, "mean latency", 2),
        _line(2, app.t, app.latency_p99, "99th percentile", 3, dash="dot"),
    ]
    if target_latency_s is not None:
        traces.append(_line(2, app.t, 0 * app.t + target_latency_s, "latency target", 6, dash="dash"))
    for i, name in enumerate(history.topology.order):
        mine, shown, dash = _thin(operators[operators.operator == name]), escape(name), DASHES[i % len(DASHES)]
        traces.append(_line(3, mine.t, mine.parallelism, shown, i, dash=dash, shape="vh", legendgroup=shown))
        traces.append(_line(4, mine.t, mine.backlog, shown, i, dash=dash, legendgroup=shown, showlegend=False))
    marks, lines = _decisions(history)
    layout: dict[str, Any] = {"shapes": lines}
    titles = ("records/s", "latency, s", "instances", "records waiting")
    for row, (name, domain) in enumerate(zip(titles, _rows(0.27, 0.24, 0.26, 0.23), strict=True), 1):
        layout[f"yaxis{row}"] = axis(name, domain=domain, anchor=f"x{row}", rangemode="tozero")
        layout[f"xaxis{row}"] = axis("", matches="x4", anchor=f"y{row}", showticklabels=row == 4)
    start = history[0].snapshot.t - history[0].snapshot.window_s
    ends = {"range": [start, until_s if until_s is not None else history[-1].snapshot.t]}
    layout["yaxis3"]["dtick"] = math.ceil(max(operators.parallelism, default=1) / 6)  # whole instances
    layout["xaxis4"] = axis("seconds since the start", anchor="y4", **ends)
    return plot([*traces, *marks], layout, tell(history, target_latency_s), height=640, title=title)


def workload(load: Workload, duration_s: float, *, title: str = "", height: int = 220) -> Plot:
    """The offered load over time."""
    import numpy as np

    t = np.linspace(0, duration_s, MOST_POINTS)
    rates = load.rates(t)
    line = {"color": PALETTE[0], "shape": "hv"}
    trace = {
        "type": "scatter",
        "x": numbers(t),
        "y": numbers(rates),
        "name": "input rate",
        "line": line,
        "fill": "tozeroy",
    }
    layout = {"xaxis": axis("seconds since the start"), "yaxis": axis("records/s", rangemode="tozero")}
    said = f"Between {si(rates.min())} and {si(rates.max())} records/s, {si(rates.mean())} on average."
    return plot([trace], layout, said, height=height, title=title)


def tell(history: History, target_latency_s: float | None = None) -> str:
    """A run in one sentence."""
    app = history.application
    seconds = app.t.iloc[-1] - app.t.iloc[0] + app.window_s.iloc[0]
    said = f"In {seconds:,.0f} s the job did {si(app.throughput.mean())} of {si(app.source_rate.mean())} records/s"
    if app.latency_mean.notna().any():
        said += f" at a mean latency of {app.latency_mean.mean():.3g} s"
        if target_latency_s is not None:
            late = (app.latency_mean > target_latency_s).sum() / len(app)
            said += f" (above its target of {target_latency_s:g} s in {late:.0%} of the windows)"
    said += f"; {int(app.rescaled.sum())} rescalings led from {app.instances.iloc[0]} to {app.instances.iloc[-1]}"
    return said + f" instances; {si(app.lag.iloc[-1])} records wait at the end."


def _decisions(history: History) -> tuple[list[Spec], list[Spec]]:
    """A diamond with the reason for each change, and a line through all rows."""
    decisions = history.decisions
    acted = decisions[decisions.rescaled]
    lines = [
        {"type": "line", "x0": t, "x1": t, "xref": "x4", "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
         "line": {"width": 1, "dash": "dot", "color": "#999999"}}
        for t in acted.t.tolist()
    ]  # fmt: skip
    if not len(acted):
        return [], lines
    text = [f"{escape(str(d.changes))}<br>{escape(str(d.why)).replace('; ', '<br>')}" for d in acted.itertuples()]
    marks = {
        "type": "scatter", "x": numbers(acted.t), "y": [0.0] * len(acted), "xaxis": "x3", "yaxis": "y3",
        "name": "decision", "mode": "markers", "cliponaxis": False,
        "marker": {"symbol": "diamond", "size": 9, "color": "#000000"},
        "text": text, "hovertemplate": "t = %{x:g} s<br>%{text}<extra>decision</extra>",
    }  # fmt: skip
    return [marks], lines


def _line(
    row: int, x: pd.Series, y: pd.Series, name: str, colour: int,
    *, dash: str = "solid", shape: str = "linear", **more: Any,
) -> Spec:  # fmt: skip
    line = {"color": PALETTE[colour % len(PALETTE)], "dash": dash, "shape": shape, "width": 2}
    axes = {"xaxis": f"x{row}", "yaxis": f"y{row}"}
    points = {"x": numbers(x), "y": numbers(y)}
    return {"type": "scatter", "mode": "lines", "name": name, "line": line, **points, **axes, **more}


def _thin(frame: pd.DataFrame) -> pd.DataFrame:
    """Every n-th row and the last, so that no line has more than MOST_POINTS."""
    every = -(-len(frame) // MOST_POINTS)
    return frame if every <= 1 else frame.iloc[[*range(0, len(frame) - 1, every), len(frame) - 1]]


def _rows(*heights: float, gap: float = 0.035) -> list[list[float]]:
    """Where each row of a figure lies, from the top down, with a gap between rows."""
    room, top, domains = 1 - gap * (len(heights) - 1), 1.0, []
    for height in heights:
        domains.append([max(0.0, top - height * room), top])
        top -= height * room + gap
    return domains
