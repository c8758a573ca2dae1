"""A run without latencies: events offered and processed, replicas, what waits; for jobs that drop what is too much."""

from __future__ import annotations

from html import escape

from ..core import Step
from ..errors import DspkitError
from ..events_lost import events_lost
from ..history import History, changes, why_text
from .base import DASHES, MOST_POINTS, PALETTE, Plot, Spec, axis, plot, si

RULES = {
    "mid-term": ("diamond", PALETTE[1]),
    "short-term": ("triangle-up", PALETTE[0]),
    "decision": ("circle", PALETTE[6]),
}


def elastic(history: History, *, title: str = "") -> Plot:
    """Offered and processed events, replicas of each operator with a mark for each decision by its rule, and queues."""
    if not len(history):
        raise DspkitError("an empty history", expected="at least one step", fix="run a policy first")
    thin = history.steps[:: max(1, -(-len(history) // MOST_POINTS))]
    t = [step.snapshot.t for step in thin]
    traces = [
        _line(t, [s.snapshot.source_rate for s in thin], "offered", PALETTE[6], "dash", 1),
        _line(t, [s.snapshot.throughput for s in thin], "processed", PALETTE[2], "solid", 1),
    ]
    for i, name in enumerate(history.topology.order):
        counts = [s.snapshot.deployment.parallelism[name] for s in thin]
        colour, dash = PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)]
        traces.append(_line(t, counts, escape(name), colour, dash, 2, shape="vh"))
        seen = [s.snapshot.operators.get(name) for s in thin]
        traces.append(
            _line(t, [m.backlog if m else None for m in seen], escape(name), colour, dash, 3, showlegend=False)
        )
    most = max(max(s.snapshot.deployment.parallelism.values()) for s in thin)
    for rule, (symbol, colour) in RULES.items():
        acted = [s for s in history if s.rescaled and s.decision and _rule(s) == rule]
        if acted:
            traces.append(_marks(acted, rule, symbol, colour, most))
    layout: Spec = {
        "xaxis": axis("", matches="x3", showticklabels=False, anchor="y"),
        "xaxis2": axis("", matches="x3", showticklabels=False, anchor="y2"),
        "xaxis3": axis("seconds since the start", anchor="y3", range=[0, t[-1]]),
        "yaxis": axis("events/s", domain=[0.64, 1], rangemode="tozero"),
        "yaxis2": axis("replicas", domain=[0.29, 0.60], anchor="x2", range=[0, most * 1.18 + 0.5]),
        "yaxis3": axis("events waiting", domain=[0, 0.25], anchor="x3", rangemode="tozero"),
    }
    return plot(traces, layout, _tell(history), height=470, title=title)


def _tell(history: History) -> str:
    lost = events_lost(history)
    rules = [_rule(s) for s in history if s.rescaled and s.decision]
    counts = ", ".join(f"{rules.count(rule)} {rule}" for rule in RULES if rule in rules) or "none"
    most = max(s.snapshot.deployment.instances for s in history)
    return (
        f"Of {si(lost.offered)} events {100 * lost.share:.2f} % were not processed, with at most {most} replicas and "
        f"{si(lost.replica_seconds)} replica-seconds; decisions that changed something: {counts}."
    )


def _rule(step: Step) -> str:
    why = step.decision.why if step.decision else {}
    return next((rule for rule in RULES if rule in why), "decision")


def _line(t: list[float], values: list[float | None] | list[float] | list[int], name: str, colour: str, dash: str,
          row: int, shape: str = "linear", showlegend: bool = True) -> Spec:  # fmt: skip
    n = "" if row == 1 else str(row)
    return {
        "type": "scatter", "mode": "lines", "x": t, "y": list(values), "name": name, "legendgroup": name,
        "xaxis": f"x{n}", "yaxis": f"y{n}", "showlegend": showlegend,
        "line": {"color": colour, "dash": dash, "width": 1.8, "shape": shape},
    }  # fmt: skip


def _marks(steps: list[Step], rule: str, symbol: str, colour: str, most: int) -> Spec:
    told = [
        f"t = {s.snapshot.t:g} s: {escape(changes(s.snapshot.deployment, s.decision.deployment))}<br>"
        + "<br>".join(map(escape, why_text(s.decision.why).split("; ")))
        for s in steps
        if s.decision is not None
    ]
    return {
        "type": "scatter", "mode": "markers", "xaxis": "x2", "yaxis": "y2", "name": rule, "text": told,
        "x": [s.snapshot.t for s in steps], "y": [most * 1.1 + 0.3] * len(steps), "hoverinfo": "text",
        "marker": {"symbol": symbol, "color": colour, "size": 9 if rule == "mid-term" else 6},
    }  # fmt: skip
