"""Plots over time: of one run, of several runs side by side, and of a load.

`timeline` shows all metrics of one run, `elastic` one of a job that drops records. `throughputs`, `nodes` and `managed`
compare runs. Plots are made from the steps and not from data frames, because a live view draws several times per
second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..comparison import scores
from ..comparison.scores import events_lost
from ..core import ArgumentError, History, Step, changes, why_text
from .theme import DASHES, MOST_LINES, MOST_POINTS, PALETTE, Plot, Spec, axis, plot, si, with_gaps

if TYPE_CHECKING:
    from ..workload import Workload


Values = Sequence[float | None]
LONGEST = 40  # most letters of a name in the legend, so that the chart keeps its width


def timeline(
    history: History,
    *,
    target_latency_s: float | None = None,
    thresholds: Mapping[str, tuple[str, float]] | None = None,
    until_s: float | None = None,
    title: str = "",
) -> Plot:
    """Plot a run: load and throughput, latency, parallelism and backlog, one below the other.

    Each decision is a diamond, each change by hand a circle.

    Parameters
    ----------
    history : History
        The run.
    target_latency_s : float, optional
        The latency to meet, in seconds, drawn as a line.
    thresholds : mapping, optional
        Lines to draw, {name: (row, value)}, as returned by `core.parameters.thresholds(policy)`; one on the row "busy"
        adds that row, with the busy share of each operator.
    until_s : float, optional
        End of the time axis, for a run that is still active.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> timeline(history, target_latency_s=1.0).summary
    'In 50 s the job processed ...; ... records wait at the end.'
    """
    if not len(history):
        raise ArgumentError("an empty history", expected="at least one step", fix="run a policy first")
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
            continue  # already drawn
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
    """Plot a load over time.

    Parameters
    ----------
    load : Workload
        The load.
    duration_s : float
        Seconds from the start.
    title : str, optional
        Title of the figure.
    height : int
        Height in pixels.

    Examples
    --------
    >>> from dspkit import workload as loads
    >>> workload(loads.Jump(100, 200, 300), 600).summary
    'Between 100 and 200 records/s, 150 on average.'
    """
    import numpy as np

    t = np.linspace(0, duration_s, MOST_POINTS)
    rates = load.rates(t)
    trace = _line(1, t.tolist(), rates.tolist(), "input rate", 0, shape="hv", fill="tozeroy")
    layout = {"xaxis": axis("seconds since the start"), "yaxis": axis("records/s", rangemode="tozero")}
    said = f"Between {si(rates.min())} and {si(rates.max())} records/s, {si(rates.mean())} on average."
    return plot([trace], layout, said, height=height, title=title)


def tell(history: History, target_latency_s: float | None = None) -> str:
    """Return the summary of a run in one sentence.

    Parameters
    ----------
    history : History
        The run.
    target_latency_s : float, optional
        The latency to meet, in seconds.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> tell(history)
    'In 50 s the job processed ... records wait at the end.'
    """
    seen = [step.snapshot for step in history]
    seconds = seen[-1].t - seen[0].t + seen[0].window_s
    did, offered = (sum(values) / len(seen) for values in ([s.throughput for s in seen], [s.source_rate for s in seen]))
    said = f"In {seconds:,.0f} s the job processed {si(did)} of {si(offered)} records/s"
    if latencies := [s.latency.mean for s in seen if s.latency is not None]:
        said += f" at a mean latency of {sum(latencies) / len(latencies):.3g} s"
        if target_latency_s is not None:
            late = sum(latency > target_latency_s for latency in latencies) / len(latencies)
            said += f" (above its target of {target_latency_s:g} s in {late:.0%} of the windows that have a latency)"
    first, last = seen[0].deployment.instances, seen[-1].deployment.instances
    said += f"; {_count(sum(step.rescaled for step in history), 'rescaling')}"
    if history.notes:
        said += f" and {_count(len(history.notes), 'change')} by hand"
    return f"{said} led from {first} to {last} instances; {si(seen[-1].lag)} records wait at the end."


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _marks(history: History) -> tuple[list[Spec], list[Spec]]:
    """Return a diamond per decision that changed something, a circle per change by hand, and a line through all rows.

    The lines are left out if they are too many to be distinguished.
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
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "xaxis": "x3",
        "yaxis": "y5",
        "x": [t for t, _ in points],
        "y": [0.06] * len(points),
        "text": [text for _, text in points],
        "marker": {"symbol": symbol, "size": 10, "color": "#000000", "line": {"width": 2}},
        "hovertemplate": f"t = %{{x:g}} s<br>%{{text}}<extra>{name}</extra>",
    }


def _line(
    row: int, x: Values, y: Values, name: str, colour: int, *, dash: str = "solid", shape: str = "linear", **more: Any
) -> Spec:
    line = {"color": PALETTE[colour % len(PALETTE)], "dash": dash, "shape": shape, "width": 2}
    axes = {"xaxis": f"x{_axis_number(row)}", "yaxis": f"y{_axis_number(row)}"}
    points = {"x": with_gaps(x), "y": with_gaps(y)}
    return {"type": "scatter", "mode": "lines", "name": name, "line": line, **points, **axes, **more}


def _axis_number(row: int) -> str:
    """Return plotly's suffix of an axis: the first is "x", the second "x2"."""
    return "" if row == 1 else str(row)


def _thin(steps: Sequence[Step]) -> Sequence[Step]:
    """Return every n-th step and the last, so that lines have about MOST_POINTS points at most."""
    every = -(-len(steps) // MOST_POINTS)
    return steps if every <= 1 else [*steps[:-1:every], steps[-1]]


def _rows(*heights: float, gap: float = 0.035) -> list[list[float]]:
    """Return the domain of each row of a figure, from top to bottom, with gaps between rows."""
    room, top, domains = 1 - gap * (len(heights) - 1), 1.0, []
    for height in heights:
        domains.append([max(0.0, top - height * room), top])
        top -= height * room + gap
    return domains


def throughputs(runs: Mapping[str, History], *, asked_s: float | None = None, title: str = "") -> Plot:
    """Plot the records/s that the sinks process in several runs, the throughput of Stela's paper.

    Parameters
    ----------
    runs : mapping
        Runs by name.
    asked_s : float, optional
        Time of the request to scale, marked by a line.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> throughputs({"ds2": history}).summary
    'In the last third of the run the sinks process, in records/s: ds2 ...'
    """
    _require_steps(runs)
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
            {
                "type": "line",
                "x0": asked_s,
                "x1": asked_s,
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"width": 1, "dash": "dot", "color": "#777777"},
            }
        ]
        layout["annotations"] = [
            {"x": asked_s, "y": 1, "yref": "paper", "yanchor": "bottom", "text": "request", "showarrow": False}
        ]
    last = ", ".join(f"{name} {si(rate)}" for name, rate in ends.items())
    return plot(
        traces,
        layout,
        f"In the last third of the run the sinks process, in records/s: {last}.",
        height=330,
        title=title,
    )


def nodes(runs: Mapping[str, History], available: int | None = None, *, title: str = "") -> Plot:
    """Plot throughput, nodes and instances of several runs under one load, one line per run.

    Parameters
    ----------
    runs : mapping
        Runs by name.
    available : int, optional
        Number of nodes that saved nodes are compared with.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> nodes({"ds2": history}).summary
    'ds2: degradation ..., ... changes.'
    """
    if not runs or not all(len(h) for h in runs.values()):
        raise ArgumentError(
            "runs without steps", expected="at least one History by name", fix="pass {'elysium': history}"
        )
    first = next(iter(runs.values()))
    thin = first.steps[:: max(1, -(-len(first) // MOST_POINTS))]
    t = [s.snapshot.t for s in thin]
    traces = [_run_line(t, [s.snapshot.source_rate for s in thin], "load", "#999999", "solid", 1)]
    told = []
    for i, (name, history) in enumerate(runs.items()):
        colour, dash = PALETTE[i % 6], DASHES[i % len(DASHES)]
        steps = history.steps[:: max(1, -(-len(history) // MOST_POINTS))]
        t = [s.snapshot.t for s in steps]
        traces.append(_run_line(t, [s.snapshot.throughput for s in steps], name, colour, dash, 1))
        for row, of in ((2, scores.nodes), (3, lambda s: s.deployment.instances)):
            traces.append(_run_line(t, [of(s) for s in steps], name, colour, dash, row, shape="hv"))
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


def _require_steps(runs: Mapping[str, History]) -> None:
    if not runs or not all(len(history) for history in runs.values()):
        raise ArgumentError("runs without a step", expected="{name: History}", fix="run the policies first")


def _run_line(
    x: list[float], y: list[float | None], name: str, colour: str, dash: str, row: int, shape: str = "linear"
) -> Spec:
    suffix = "" if row == 1 else str(row)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": escape(name),
        "legendgroup": name,
        "showlegend": row == 1,
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "line": {"color": colour, "dash": dash, "width": 1.8, "shape": shape},
    }


def managed(runs: Mapping[str, History], *, target_latency_s: float | None = None, title: str = "") -> Plot:
    """Plot response time (log scale), instances, pauses and the load of several runs, one below the other.

    Response times are those of windows without a pause.

    Parameters
    ----------
    runs : mapping
        Runs by name.
    target_latency_s : float, optional
        The response time to meet, in seconds, drawn as a line.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> managed({"ds2": history}).summary
    'ds2 ran ... of the time with ... changes.'
    """
    _require_steps(runs)
    traces: list[Spec] = []
    told = []
    for i, (name, history) in enumerate(runs.items()):
        seen = [step.snapshot for step in history]
        thin = seen[:: max(1, len(seen) // MOST_POINTS)]
        calm = [s for s in thin if s.latency and not s.downtime_s]
        look = {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i % len(DASHES)], "width": 1.6}
        common: Spec = {"type": "scatter", "legendgroup": str(i), "name": escape(name)}
        response = [1000 * s.latency.mean for s in calm if s.latency]
        traces.append(
            {
                **common,
                "mode": "lines",
                "x": [s.t for s in calm],
                "y": response,
                "line": look,
                "hovertemplate": "%{y:.0f} ms at %{x:.0f} s<extra>" + escape(name) + "</extra>",
            }
        )
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
    if target_latency_s is not None:
        layout["shapes"] = [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 1000 * target_latency_s,
                "y1": 1000 * target_latency_s,
                "line": {"width": 1, "dash": "dot", "color": "#000000"},
            }
        ]
    return plot(traces, layout, f"{'; '.join(told)}.", height=560, title=title)


RULES = {
    "mid-term": ("diamond", PALETTE[1]),
    "short-term": ("triangle-up", PALETTE[0]),
    "decision": ("circle", PALETTE[6]),
}


def elastic(history: History, *, title: str = "") -> Plot:
    """Plot a run of a job that drops records: offered and processed events, replicas with decisions by rule, queues.

    Parameters
    ----------
    history : History
        The run.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.fission import Fission
    >>> history = run(Fission(), apps.news_entities(), steps=60, window_s=1.0)
    >>> elastic(history).summary
    'Of ... events ... % were not processed, with at most ... replicas ...'
    """
    if not len(history):
        raise ArgumentError("an empty history", expected="at least one step", fix="run a policy first")
    thin = history.steps[:: max(1, -(-len(history) // MOST_POINTS))]
    t = [step.snapshot.t for step in thin]
    traces = [
        _elastic_line(t, [s.snapshot.source_rate for s in thin], "offered", PALETTE[6], "dash", 1),
        _elastic_line(t, [s.snapshot.throughput for s in thin], "processed", PALETTE[2], "solid", 1),
    ]
    for i, name in enumerate(history.topology.order):
        counts = [s.snapshot.deployment.parallelism[name] for s in thin]
        colour, dash = PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)]
        traces.append(_elastic_line(t, counts, escape(name), colour, dash, 2, shape="vh"))
        seen = [s.snapshot.operators.get(name) for s in thin]
        traces.append(
            _elastic_line(t, [m.backlog if m else None for m in seen], escape(name), colour, dash, 3, showlegend=False)
        )
    most = max(max(s.snapshot.deployment.parallelism.values()) for s in thin)
    for rule, (symbol, colour) in RULES.items():
        acted = [s for s in history if s.rescaled and s.decision and _rule(s) == rule]
        if acted:
            traces.append(_elastic_marks(acted, rule, symbol, colour, most))
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


def _elastic_line(
    t: list[float],
    values: list[float | None] | list[float] | list[int],
    name: str,
    colour: str,
    dash: str,
    row: int,
    shape: str = "linear",
    showlegend: bool = True,
) -> Spec:
    n = "" if row == 1 else str(row)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": t,
        "y": list(values),
        "name": name,
        "legendgroup": name,
        "xaxis": f"x{n}",
        "yaxis": f"y{n}",
        "showlegend": showlegend,
        "line": {"color": colour, "dash": dash, "width": 1.8, "shape": shape},
    }


def _elastic_marks(steps: list[Step], rule: str, symbol: str, colour: str, most: int) -> Spec:
    told = [
        f"t = {s.snapshot.t:g} s: {escape(changes(s.snapshot.deployment, s.decision.deployment))}<br>"
        + "<br>".join(map(escape, why_text(s.decision.why).split("; ")))
        for s in steps
        if s.decision is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "xaxis": "x2",
        "yaxis": "y2",
        "name": rule,
        "text": told,
        "x": [s.snapshot.t for s in steps],
        "y": [most * 1.1 + 0.3] * len(steps),
        "hoverinfo": "text",
        "marker": {"symbol": symbol, "color": colour, "size": 9 if rule == "mid-term" else 6},
    }
