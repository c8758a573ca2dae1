"""Several runs in one picture: what the sinks put out, window by window."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from ..errors import DspkitError
from ..history import History
from .base import DASHES, PALETTE, Plot, Spec, axis, plot, si


def throughputs(runs: Mapping[str, History], *, asked_s: float | None = None, title: str = "") -> Plot:
    """Records/s that the sinks process in each of these runs, the paper's throughput; a line where it was asked."""
    if not runs or not all(len(history) for history in runs.values()):
        raise DspkitError("runs without a step", expected="{name: History} of runs", fix="run the policies first")
    traces: list[Spec] = []
    ends = {}
    for i, (name, history) in enumerate(runs.items()):
        seen = [step.snapshot for step in history]
        sinks = history.topology.sinks
        y = [sum(s.operators[n].processing_rate for n in sinks if n in s.operators) for s in seen]
        line = {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i % len(DASHES)], "width": 2}
        traces.append(
            {"type": "scatter", "mode": "lines", "name": escape(name), "x": [s.t for s in seen], "y": y, "line": line}
        )
        ends[name] = sum(y[-len(y) // 3 :]) / len(y[-len(y) // 3 :])
    layout: Spec = {"xaxis": axis("seconds since the start"), "yaxis": axis("sinks, records/s", rangemode="tozero")}
    if asked_s is not None:
        layout["shapes"] = [
            {"type": "line", "x0": asked_s, "x1": asked_s, "yref": "paper", "y0": 0, "y1": 1,
             "line": {"width": 1, "dash": "dot", "color": "#777777"}}
        ]  # fmt: skip
        layout["annotations"] = [
            {"x": asked_s, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "asked", "showarrow": False}
        ]
    last = ", ".join(f"{name} {si(rate)}" for name, rate in ends.items())
    return plot(
        traces,
        layout,
        f"In the last third of the run the sinks process, in records/s: {last}.",
        height=330,
        title=title,
    )
