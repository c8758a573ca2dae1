"""Runs of several policies under one load: the load, the nodes and the instances that each of them chose."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from .. import scores
from ..errors import DspkitError
from ..history import History
from .base import DASHES, MOST_POINTS, PALETTE, Plot, Spec, axis, plot


def nodes(runs: Mapping[str, History], available: int | None = None, *, title: str = "") -> Plot:
    """Throughput, nodes and instances over time, a line a run; `available` nodes are what was saved is counted from."""
    if not runs or not all(len(h) for h in runs.values()):
        raise DspkitError(
            "runs without steps", expected="at least one History by name", fix="pass {'elysium': history}"
        )
    first = next(iter(runs.values()))
    thin = first.steps[:: max(1, -(-len(first) // MOST_POINTS))]
    t = [s.snapshot.t for s in thin]
    traces = [_line(t, [s.snapshot.source_rate for s in thin], "load", "#999999", "solid", 1)]
    told = []
    for i, (name, history) in enumerate(runs.items()):
        colour, dash = PALETTE[i % 6], DASHES[i % len(DASHES)]
        steps = history.steps[:: max(1, -(-len(history) // MOST_POINTS))]
        t = [s.snapshot.t for s in steps]
        traces.append(_line(t, [s.snapshot.throughput for s in steps], name, colour, dash, 1))
        for row, of in ((2, scores.nodes), (3, lambda s: s.deployment.instances)):
            traces.append(_line(t, [of(s) for s in steps], name, colour, dash, row, shape="hv"))
        lost = scores.degradation(history).mean
        saved = (
            "" if available is None else f" and {scores.nodes_saved(history, available, every_s=60.0):.0%} nodes saved"
        )
        told.append(f"{name}: degradation {lost:.2f}{saved}, {scores.rescales(history)} changes")
    layout: Spec = {
        "xaxis": axis("", matches="x3", showticklabels=False, anchor="y"),
        "xaxis2": axis("", matches="x3", showticklabels=False, anchor="y2"),
        "xaxis3": axis("seconds since the start", anchor="y3"),
        "yaxis": axis("records/s", domain=[0.56, 1], rangemode="tozero"),
        "yaxis2": axis("nodes", domain=[0.29, 0.50], anchor="x2", rangemode="tozero"),
        "yaxis3": axis("instances", domain=[0, 0.23], anchor="x3", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    }
    return plot(traces, layout, "; ".join(told) + ".", height=520, title=title)


def _line(
    x: list[float], y: list[float | None], name: str, colour: str, dash: str, row: int, shape: str = "linear"
) -> Spec:
    suffix = "" if row == 1 else str(row)
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "name": escape(name), "legendgroup": name,
        "showlegend": row == 1, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}",
        "line": {"color": colour, "dash": dash, "width": 1.8, "shape": shape},
    }  # fmt: skip
