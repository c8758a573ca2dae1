"""Several runs under control: response time, what runs, and when the job stood still, one below the other."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from ..errors import DspkitError
from ..history import History
from .base import DASHES, MOST_POINTS, PALETTE, Plot, Spec, axis, plot


def managed(runs: Mapping[str, History], *, limit_s: float | None = None, title: str = "") -> Plot:
    """Response time (log scale), instances, the load, and a mark wherever a run stood still; `limit_s` is agreed.

    Response times are those of windows in which the job ran throughout.
    """
    if not runs or not all(len(history) for history in runs.values()):
        raise DspkitError("runs without a step", expected="{name: History} of runs", fix="run the policies first")
    traces: list[Spec] = []
    told = []
    for i, (name, history) in enumerate(runs.items()):
        seen = [step.snapshot for step in history]
        thin = seen[:: max(1, len(seen) // MOST_POINTS)]
        calm = [s for s in thin if s.latency and not s.downtime_s]
        look = {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i % len(DASHES)], "width": 1.6}
        common: Spec = {"type": "scatter", "legendgroup": str(i), "name": escape(name)}
        response = [1000 * s.latency.mean for s in calm if s.latency]
        traces.append({**common, "mode": "lines", "x": [s.t for s in calm], "y": response, "line": look,
                       "hovertemplate": "%{y:.0f} ms at %{x:.0f} s<extra>" + escape(name) + "</extra>"})  # fmt: skip
        instances = [s.deployment.instances for s in thin]
        traces.append({**common, "mode": "lines", "x": [s.t for s in thin], "y": instances, "yaxis": "y2",
                       "showlegend": False, "line": {**look, "shape": "hv"}})  # fmt: skip
        stops = [s for s in seen if s.downtime_s]
        marker = {"symbol": "line-ns-open", "size": 13, "color": look["color"], "line": {"width": 1.5}}
        traces.append({**common, "mode": "markers", "x": [s.t for s in stops], "y": [escape(name)] * len(stops),
                       "yaxis": "y3", "showlegend": False, "marker": marker,
                       "customdata": [s.downtime_s for s in stops],
                       "hovertemplate": "%{customdata:.1f} s at %{x:.0f} s<extra></extra>"})  # fmt: skip
        down, whole = sum(s.downtime_s for s in seen), sum(s.window_s for s in seen)
        told.append(f"{name} ran {1 - down / whole:.1%} of the time with {sum(s.rescaled for s in history)} changes")
    first = [step.snapshot for step in next(iter(runs.values()))]
    thin = first[:: max(1, len(first) // MOST_POINTS)]
    traces.append({"type": "scatter", "mode": "lines", "name": "load", "x": [s.t for s in thin], "yaxis": "y4",
                   "y": [s.source_rate for s in thin], "line": {"color": "#777777", "width": 1}})  # fmt: skip
    layout: Spec = {
        "xaxis": axis("seconds since the start", anchor="y4", range=[0, first[-1].t]),
        "yaxis": axis("response, ms", type="log", domain=[0.6, 1], dtick=1),
        "yaxis2": axis("instances", domain=[0.37, 0.55], rangemode="tozero"),
        "yaxis3": axis("stops", domain=[0.22, 0.32], type="category", showticklabels=False),
        "yaxis4": axis("records/s", domain=[0, 0.17], rangemode="tozero"),
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    }
    if limit_s is not None:
        layout["shapes"] = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1000 * limit_s, "y1": 1000 * limit_s,
             "line": {"width": 1, "dash": "dot", "color": "#000000"}}
        ]  # fmt: skip
    return plot(traces, layout, f"{'; '.join(told)}.", height=560, title=title)
