"""A run from top to bottom, and a load, over time.

Made from the steps themselves: a live view draws several times a second, and data frames of a long run take longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..core import Step
from ..errors import DspkitError
from ..history import History, changes, why_text
from .base import DASHES, MOST_LINES, MOST_POINTS, PALETTE, Plot, Spec, axis, numbers, plot, si

if TYPE_CHECKING:
    from ..workload import Workload

Values = Sequence[float | None]
LONGEST = 40  # letters of a name in the legend, which would else leave the chart no room


def timeline(
    history: History,
    *,
    target_latency_s: float | None = None,
    thresholds: Mapping[str, tuple[str, float]] | None = None,
    until_s: float | None = None,
    title: str = "",
) -> Plot:
    """A run from top to bottom: load and throughput, latency, parallelism, backlog.

    Each decision is a diamond, what was done by hand a circle. `thresholds` are lines, {name: (row, value)} as
    `knobs.thresholds(policy)` gives them; one on the row "busy" adds that row, with the busy share of each operator.
    `until_s` is where the time axis ends, for a run that is still going.
    """
    if not len(history):
        raise DspkitError("an empty history", expected="at least one step", fix="run a policy first")
    seen = [step.snapshot for step in _thin(history.steps)]
    t = [s.t for s in seen]
    traces = [
        _line(1, t, [s.source_rate for s in seen], "input rate", 0, dash="dash", shape="vh"),
        _line(1, t, [s.throughput for s in seen], "throughput", 1),
        _line(2, t, [s.latency.mean if s.latency else None for s in seen], "mean latency", 2),
        _line(2, t, [s.latency.p99 if s.latency else None for s in seen], "99th percentile", 3, dash="dot"),
    ]
    if target_latency_s is not None:
        traces.append(_line(2, t, [target_latency_s] * len(t), "latency target", 6, dash="dash"))
    lined = dict(thresholds or {})
    busy = any(row == "busy" for row, _ in lined.values())
    for i, (name, (row, value)) in enumerate(lined.items()):
        if row == "latency" and value == target_latency_s:
            continue  # drawn already
        at, colour, dash = 6 if row == "busy" else 2, 6 if row == "busy" else 7, DASHES[1 + i % (len(DASHES) - 1)]
        traces.append(_line(at, t, [value] * len(t), f"{escape(name)} {value:g}", colour, dash=dash))
    most = 1
    for i, name in enumerate(history.topology.order):
        mine, dash = [s.operators.get(name) for s in seen], DASHES[i % len(DASHES)]
        shown = escape(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…", quote=False)
        instances, waiting = [m.parallelism if m else None for m in mine], [m.backlog if m else None for m in mine]
        traces.append(_line(3, t, instances, shown, i, dash=dash, shape="vh", legendgroup=str(i)))
        traces.append(_line(4, t, waiting, shown, i, dash=dash, legendgroup=str(i), showlegend=False))
        if busy:
            used = [m.utilisation if m else None for m in mine]
            traces.append(_line(6, t, used, shown, i, dash=dash, legendgroup=str(i), showlegend=False))
        most = max([most, *(k for k in instances if k)])
    marks, lines = _marks(history)
    layout: dict[str, Any] = {"shapes": lines}
    heights = (0.23, 0.19, 0.21, 0.2, 0.17) if busy else (0.27, 0.24, 0.26, 0.23)
    rows = (
        {1: "records/s", 2: "latency, s", 3: "instances"} | ({6: "busy share"} if busy else {}) | {4: "records waiting"}
    )
    for (number, said), domain in zip(rows.items(), _rows(*heights), strict=True):
        n = _axis_number(number)
        layout[f"yaxis{n}"] = axis(said, domain=domain, anchor=f"x{n}", rangemode="tozero")
        layout[f"xaxis{n}"] = axis("", matches="x4", anchor=f"y{n}", showticklabels=number == 4)
    if busy:
        layout["yaxis6"]["tickformat"] = ".0%"
    layout["yaxis3"]["dtick"] = math.ceil(most / 6)  # whole instances
    layout["yaxis5"] = {"overlaying": "y3", "anchor": "x3", "range": [0, 1], "visible": False, "fixedrange": True}
    ends = [t[0] - seen[0].window_s, t[-1] if until_s is None else until_s]
    layout["xaxis4"] = axis("seconds since the start", anchor="y4", range=ends)
    return plot([*traces, *marks], layout, tell(history, target_latency_s), height=760 if busy else 640, title=title)


def workload(load: Workload, duration_s: float, *, title: str = "", height: int = 220) -> Plot:
    """The offered load over time."""
    import numpy as np

    t = np.linspace(0, duration_s, MOST_POINTS)
    rates = load.rates(t)
    trace = _line(1, t.tolist(), rates.tolist(), "input rate", 0, shape="hv", fill="tozeroy")
    layout = {"xaxis": axis("seconds since the start"), "yaxis": axis("records/s", rangemode="tozero")}
    said = f"Between {si(rates.min())} and {si(rates.max())} records/s, {si(rates.mean())} on average."
    return plot([trace], layout, said, height=height, title=title)


def tell(history: History, target_latency_s: float | None = None) -> str:
    """A run in one sentence."""
    seen = [step.snapshot for step in history]
    seconds = seen[-1].t - seen[0].t + seen[0].window_s
    did, offered = (sum(values) / len(seen) for values in ([s.throughput for s in seen], [s.source_rate for s in seen]))
    said = f"In {seconds:,.0f} s the job did {si(did)} of {si(offered)} records/s"
    if latencies := [s.latency.mean for s in seen if s.latency is not None]:
        said += f" at a mean latency of {sum(latencies) / len(latencies):.3g} s"
        if target_latency_s is not None:
            late = sum(latency > target_latency_s for latency in latencies) / len(latencies)
            said += f" (above its target of {target_latency_s:g} s in {late:.0%} of the windows that had any)"
    first, last = seen[0].deployment.instances, seen[-1].deployment.instances
    said += f"; {_count(sum(step.rescaled for step in history), 'rescaling')}"
    if history.notes:
        said += f" and {_count(len(history.notes), 'change')} by hand"
    return f"{said} led from {first} to {last} instances; {si(seen[-1].lag)} records wait at the end."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _marks(history: History) -> tuple[list[Spec], list[Spec]]:
    """A diamond with its reason for each decision that changed something, a circle for what was done by hand, and a
    line through all rows for each, unless there are too many to tell apart.
    """
    acted = [(s.snapshot, s.decision) for s in history if s.rescaled and s.decision is not None]
    told = [[changes(s.deployment, d.deployment), *why_text(d.why).split("; ")] for s, d in acted]
    decisions = [(s.t, "<br>".join(map(escape, lines))) for (s, _), lines in zip(acted, told, strict=True)]
    by_hand = [(t, escape(what)) for t, what in history.notes]
    lines = [
        {"type": "line", "x0": t, "x1": t, "xref": "x4", "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
         "line": {"width": 1, "dash": "dot", "color": "#999999"}}
        for t, _ in [*decisions, *by_hand]
    ]  # fmt: skip
    kinds = (("decision", "diamond", decisions), ("by hand", "circle-open", by_hand))
    return [_points(*kind) for kind in kinds if kind[2]], lines if len(lines) <= MOST_LINES else []


def _points(name: str, symbol: str, points: Sequence[tuple[float, str]]) -> Spec:
    return {
        "type": "scatter", "mode": "markers", "name": name, "xaxis": "x3", "yaxis": "y5",
        "x": [t for t, _ in points], "y": [0.06] * len(points), "text": [text for _, text in points],
        "marker": {"symbol": symbol, "size": 10, "color": "#000000", "line": {"width": 2}},
        "hovertemplate": f"t = %{{x:g}} s<br>%{{text}}<extra>{name}</extra>",
    }  # fmt: skip


def _line(
    row: int, x: Values, y: Values, name: str, colour: int, *, dash: str = "solid", shape: str = "linear", **more: Any
) -> Spec:
    line = {"color": PALETTE[colour % len(PALETTE)], "dash": dash, "shape": shape, "width": 2}
    axes = {"xaxis": f"x{_axis_number(row)}", "yaxis": f"y{_axis_number(row)}"}
    points = {"x": numbers(x), "y": numbers(y)}
    return {"type": "scatter", "mode": "lines", "name": name, "line": line, **points, **axes, **more}


def _axis_number(row: int) -> str:
    """plotly calls the first axis "x", the second "x2"."""
    return "" if row == 1 else str(row)


def _thin(steps: Sequence[Step]) -> Sequence[Step]:
    """Every n-th step and the last, so that no line has more than MOST_POINTS or so."""
    every = -(-len(steps) // MOST_POINTS)
    return steps if every <= 1 else [*steps[:-1:every], steps[-1]]


def _rows(*heights: float, gap: float = 0.035) -> list[list[float]]:
    """Where each row of a figure lies, from the top down, with a gap between rows."""
    room, top, domains = 1 - gap * (len(heights) - 1), 1.0, []
    for height in heights:
        domains.append([max(0.0, top - height * room), top])
        top -= height * room + gap
    return domains
