"""From the readings of windows to a History: the order of windows, and quantities derived from others.

A quantity that was not measured is derived, or the operator is dropped from that window and counted:

| quantity | if it was not read |
|---|---|
| `utilisation` | processing rate / (true rate of an instance x instances) |
| `true_rate` | processing rate / (utilisation x instances); None if it processed nothing |
| a source's `processing_rate` | the records it sent, for engines that do not count what a source reads |
| `input_rate` | processing rate plus the growth of its backlog |
| `output_rate` | the sum of its edges; for a sink its processing rate |
| edge rates | from the receivers' input where one sender remains, then from the senders' output |
| `backlog` | 0, and `history.about["backlog_unmeasured"]` names the operator |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import Deployment, DspkitError, Edge, History, Latency, OperatorMetrics, Snapshot, Step, Topology
from .base import Limits, LoaderError, Problems
from .units import Unusable

_ROUND = 0.05  # shares above 1 by this much come from clocks that are read one after the other
_IMPOSSIBLE = 1.2  # times its capacity: impossible, a unit is wrong
_TOUCH = 0.05  # of a window: ends and starts that are this near are one moment


@dataclass
class Window:
    """The readings between `start` and `end` (seconds on one clock), in dspkit's units.

    Beside the quantities of `units.QUANTITIES`, readings may have "busy" and "held": seconds/s that all instances
    together were busy, or back-pressured, and "growth": the growth of the backlog in records/s.
    """

    start: float
    end: float
    where: str
    readings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    parallelism: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[Edge, float] = field(default_factory=dict)
    source_rates: Mapping[str, float] = field(default_factory=dict)  # of sources that are not among the readings
    latency: Latency | None = None
    commit_s: float = 0.0  # in which no task ran because a batch was planned or committed
    absence_counted: set[str] = field(default_factory=set)  # operators whose absence has been counted


def history_of_windows(
    topology: Topology,
    windows: Iterable[Window],
    problems: Problems,
    limits: Limits,
    about: Mapping[str, Any],
    *,
    execution: str = "pipelined",
    parallelism: Mapping[str, int] | None = None,
) -> History:
    """Return all usable windows, in order; `parallelism` applies where a window has none."""
    found = list(ordered(windows, problems, limits))
    running = _parallelism(topology, found, parallelism or {}, problems)
    zero = found[0].start if found else 0.0
    steps: list[Step] = []
    before: Window | None = None
    backlogs: dict[str, float] = {}
    for window in found:
        touches = before is not None and window.start - before.end <= _TOUCH * (window.end - window.start)
        deployment = Deployment(running | {n: k for n, k in window.parallelism.items() if n in running})
        running = dict(deployment.parallelism)
        try:
            made = _snapshot(topology, window, deployment, backlogs if touches else {}, zero, execution, problems)
        except Unusable as reason:
            problems.count(str(reason), window.where)
        except DspkitError as error:
            problems.count("a window that cannot be", f"{window.where}: {error.got}")
        else:
            steps.append(Step(len(steps), made, None))
        before = window
        backlogs = {n: r["backlog"] for n, r in window.readings.items() if "backlog" in r}
    if not steps:
        raise LoaderError(
            f"no window that can be used ({problems!r})",
            expected="at least one with the rates and busy times of its operators",
            fix="check names, units and times; see .problems",
        )
    silent = [n for n in topology.order if not any("backlog" in w.readings.get(n, {}) for w in found)]
    told = ({"dropped": dict(problems)} if problems else {}) | ({"backlog_unmeasured": silent} if silent else {})
    return History(topology, steps, {"policy": "recorded", **about, "began_unix_s": zero, **told})


def ordered(windows: Iterable[Window], problems: Problems, limits: Limits) -> Iterator[Window]:
    """Yield consecutive windows: overlapping or earlier ones are dropped, gaps are counted."""
    end: float | None = None
    for count, window in enumerate(windows, 1):
        limits.check("readings", count)
        length = window.end - window.start
        if not length > 0:
            problems.count("window without length", window.where)
        elif end is not None and window.end <= end:
            problems.count("clock stepped back", window.where)
        elif end is not None and window.start < end - _TOUCH * length:
            problems.count("overlaps the window before", window.where)
        else:
            if end is not None and window.start > end + _TOUCH * length:
                problems.count("gap before the window", f"{window.where}: {window.start - end:.3g} s")
            start = window.start if end is None else max(window.start, end)  # an overlap by rounding
            window.start, end = start, window.end
            yield window


def _parallelism(
    topology: Topology, windows: list[Window], given: Mapping[str, int], problems: Problems
) -> dict[str, int]:
    """Return the initial number of instances of each operator."""
    first: dict[str, int] = {}
    for window in windows:
        for name, k in window.parallelism.items():
            first.setdefault(name, k)
    for name in topology.order:
        if name not in first and name not in given and windows:
            problems.count("operator that was never heard of", f"{name!r}: taken as one instance")
    return {name: first.get(name) or given.get(name) or topology[name].min_parallelism for name in topology.order}


def _snapshot(
    topology: Topology,
    window: Window,
    deployment: Deployment,
    backlogs: Mapping[str, float],
    zero: float,
    execution: str,
    problems: Problems,
) -> Snapshot:
    w = window.end - window.start
    heard: dict[str, dict[str, float]] = {}
    for name in window.readings:
        if name not in deployment.parallelism:
            problems.count("unknown operator", f"{window.where}: {name!r}")
    for name in topology.order:
        if name not in window.readings:
            if name not in window.absence_counted:
                problems.count("operator without readings", f"{window.where}: {name!r}")
            continue
        grown = window.readings[name].get("backlog", 0.0) - backlogs.get(name, 0.0) if name in backlogs else 0.0
        try:
            heard[name] = _complete(topology, name, window.readings[name], deployment.parallelism[name], grown / w)
        except Unusable as reason:
            problems.count(str(reason), f"{window.where}: {name!r}")
    rates = {n: heard[n]["input_rate"] if n in heard else window.source_rates.get(n) for n in topology.sources}
    if silent := [name for name, rate in rates.items() if rate is None]:
        raise Unusable(f"window without its source {silent[0][:100]!r}")
    out = {n: r["output_rate"] for n, r in heard.items() if "output_rate" in r}
    out |= {n: rate for n, rate in window.source_rates.items() if n not in heard}
    edges = edge_rates(topology, {n: r["input_rate"] for n, r in heard.items()}, out, window.edges)
    operators = {}
    for name, reading in heard.items():
        try:
            operators[name] = _metrics(topology, name, reading, deployment.parallelism[name], edges)
        except Unusable as reason:
            problems.count(str(reason), f"{window.where}: {name!r}")
        except DspkitError as error:
            problems.count("metrics that cannot be", f"{window.where}: {name!r}: {error.got}")
    if not operators:
        raise Unusable("window without a usable operator")
    ended = {n: operators[n].processing_rate if n in operators else rates[n] or 0.0 for n in topology.sources}
    return Snapshot(
        t=window.end - zero,
        window_s=w,
        deployment=deployment,
        operators=operators,
        source_rates={n: rate or 0.0 for n, rate in rates.items()},
        throughput=sum(ended.values()),
        latency=window.latency,
        event_latency=None,
        lag=sum(operators[n].backlog for n in topology.sources if n in operators),
        edge_rates=edges,
        execution=execution,
        commit_s=min(w, window.commit_s),
    )


def _complete(topology: Topology, name: str, reading: Mapping[str, float], k: int, growth: float) -> dict[str, float]:
    """Return the reading with its shares and rates, or raise Unusable."""
    found, sent = dict(reading), reading.get("output_rate", 0.0)
    if name in topology.sources and not found.get("processing_rate") and sent > 0:
        found["processing_rate"] = sent
    if (done := found.get("processing_rate")) is None:
        raise Unusable("no processing rate")
    _complete_shares(found, done, k)
    if "true_rate" not in found and done > 0 and found["utilisation"] > 0:
        found["true_rate"] = done / (found["utilisation"] * k)
    if "true_rate" in found and done > _IMPOSSIBLE * found["true_rate"] * k:
        raise Unusable("processed more than its instances can")
    if done > 0 and found["utilisation"] == 0:
        raise Unusable("processed without any busy time")
    found.setdefault("input_rate", max(0.0, done + found.get("growth", growth)))
    return found


def _complete_shares(found: dict[str, float], done: float, k: int) -> None:
    """Add utilisation and blocked share, as far as times, capacity or true rate determine them."""
    for share, total in (("utilisation", "busy"), ("blocked", "held")):
        if share not in found and total in found:
            found[share] = found[total] / k
    if "true_rate" not in found and "capacity" in found:
        found["true_rate"] = found["capacity"] / k
    if "utilisation" not in found:
        if not found.get("true_rate"):
            raise Unusable("neither busy time nor true rate")
        found["utilisation"] = done / (found["true_rate"] * k)
    for share in ("utilisation", "blocked"):
        if found.get(share, 0.0) > 1 + _ROUND:
            raise Unusable(f"{share} above 1")
        if share in found:
            found[share] = min(1.0, found[share])


def _metrics(
    topology: Topology, name: str, reading: Mapping[str, float], k: int, edges: Mapping[Edge, float]
) -> OperatorMetrics:
    sent, children = reading.get("output_rate"), topology.downstream(name)
    if sent is None and all((name, child) in edges for child in children):
        sent = sum(edges[name, child] for child in children) if children else reading["processing_rate"]
    if sent is None:
        raise Unusable("no output rate, and receivers that do not tell it")
    done = reading["processing_rate"]
    return OperatorMetrics(
        input_rate=reading["input_rate"],
        processing_rate=done,
        output_rate=sent,
        true_rate=reading.get("true_rate") if done > 0 else None,
        utilisation=reading["utilisation"],
        backlog=reading.get("backlog", 0.0),
        parallelism=k,
        cpu=reading.get("cpu"),
        blocked=reading.get("blocked"),
        dropped=reading.get("dropped", 0.0),
        waited_s=reading.get("waited_s"),
    )


def edge_rates(
    topology: Topology, received: Mapping[str, float], sent: Mapping[str, float], measured: Mapping[Edge, float]
) -> dict[Edge, float]:
    """Return records/s along each edge, as far as inputs and outputs determine them.

    The input of a receiver with one sender is the rate of its edge, and a remainder belongs to the last unknown edge.
    Edges that stay ambiguous share the receiver's input in proportion to their senders' outputs.
    """
    found = {edge: rate for edge, rate in measured.items() if edge in topology.edges}
    ends = [(received, [(u, v) for u in topology.upstream(v)], v) for v in topology.order]
    ends += [(sent, [(u, v) for v in topology.downstream(u)], u) for u in topology.order]
    again = True
    while again:
        again = False
        for total, edges, name in ends:
            unknown = [edge for edge in edges if edge not in found]
            if name in total and len(unknown) == 1:
                found[unknown[0]] = max(0.0, total[name] - sum(found[e] for e in edges if e in found))
                again = True
    for v in topology.order:
        unknown = [(u, v) for u in topology.upstream(v) if (u, v) not in found]
        weights = [sent.get(u, 0.0) for u, _ in unknown]
        if v in received and sum(weights) > 0:
            rest = max(0.0, received[v] - sum(found[u, v] for u in topology.upstream(v) if (u, v) in found))
            found |= {edge: rest * weight / sum(weights) for edge, weight in zip(unknown, weights, strict=True)}
    return found
