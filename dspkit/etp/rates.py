"""Rates of a running job as ETP needs them, read from snapshots, mappings or data frames; congestion; projection.

| paper | here |
|---|---|
| $in(o)$ | `inputs(...)`: what o's parents send it, and what comes from outside |
| $proc(o)$, `ExecuteRate` | `Rates.processing` |
| $emit(p \\to o)$, `EmitRate` | `Rates.emit` |
| $CongestionRate$ | `congestion_rate`, 1.2 by default as in the paper |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core import Snapshot
from ..errors import KnobError, MetricError
from ..structure import Topology
from .checks import rates_fit, whole
from .graph import Graph, graph


class Rates(NamedTuple):
    """Records/s. `outside` is what reaches an operator from where the graph does not show, a source's load say."""

    processing: Mapping[Any, float]
    emit: Mapping[tuple[Any, Any], float] = {}
    outside: Mapping[Any, float] = {}


def rates(measured: Any, edges: Any = None, *, sources: bool = False) -> Rates:
    """The rates of a Snapshot, {operator: (input, processing)} or a frame `operator, input_rate, processing_rate`.

    `edges` adds what each edge carries, {(start, end): rate} or a frame `start, end, rate`, which projecting needs;
    inputs are then what the edges carry. With `sources` a source's offered load counts as its input, so that it can be
    congested; the paper's sources have none. An operator that is missing was not measured.
    """
    if isinstance(measured, Rates):
        return measured
    if isinstance(measured, Snapshot):
        processing = {name: m.processing_rate for name, m in measured.operators.items()}
        return Rates(processing, dict(measured.edge_rates), dict(measured.source_rates) if sources else {})
    came, done = _table(measured)
    emit = _edges(edges)
    if emit:
        fed = {end for _, end in emit}
        came = {o: rate for o, rate in came.items() if sources and o not in fed}
    return Rates(done, emit, came)


def inputs(rates: Rates) -> dict[Any, float]:
    """$in(o) = \\sum_p emit(p \\to o)$, and what comes from outside."""
    came = dict(rates.outside)
    for (_, o), rate in rates.emit.items():
        came[o] = came.get(o, 0.0) + rate
    return came


def congested(topology: Any, measured: Any, congestion_rate: float = 1.2) -> tuple[Any, ...]:
    """Operators with $in(o)/proc(o) > CongestionRate$, in topological order.

    One that processes nothing of what comes is congested; one to which nothing comes is not, nor one not measured.

    >>> congested([("a", "b")], {"a": (120, 100), "b": (121, 100)})
    ('b',)
    """
    limit = _checked(congestion_rate) * (1 + 1e-12)  # 115 of 100 is not more than 1.15 times: rounding
    known, g = rates(measured), graph(topology)
    rates_fit(g, *known)
    came, done = inputs(known), known.processing
    return tuple(o for o in g.order if o in done and came.get(o, 0.0) > limit * done[o])


def project(graph: Graph, rates: Rates, target: Any, instances: int, *, cap: bool = False) -> Rates:
    """What one more instance beside `instances` lets through: the target's own rates times (k+1)/k, nobody else's.

    The factor is not capped by what comes in, as printed; with `cap` it is.
    """
    k = whole("instances", instances, 1)
    factor = (k + 1) / k
    done = rates.processing.get(target, 0.0)
    if cap and done > 0:
        factor = max(1.0, min(factor, inputs(rates).get(target, math.inf) / done))
    emit = dict(rates.emit)
    for child in graph.children[target]:
        if (target, child) in emit:
            emit[target, child] *= factor
    return rates._replace(processing={**rates.processing, target: done * factor}, emit=emit)


def mean(samples: Iterable[Rates]) -> Rates:
    """The mean over windows; an operator counts in those in which it was measured."""
    columns: list[dict[Any, list[float]]] = [{}, {}, {}]
    for sample in samples:
        for column, values in zip(columns, sample, strict=True):
            for key, value in values.items():
                column.setdefault(key, []).append(value)
    return Rates(*({key: math.fsum(x) / len(x) for key, x in column.items()} for column in columns))


def unblocked(topology: Topology, snapshot: Snapshot, *, sources: bool = True) -> Rates:
    """The rates that would be measured if nobody were held back: for engines with back-pressure. Ours, not the paper's.

    Where full queues hold back who feeds them, all rates are equal in the end and no operator looks congested. So the
    offered load goes down the graph with the measured selectivities, and each operator lets through what it is able
    to: $\\min(in, v k)$, for a true rate v of one instance. In a micro-batch operators take turns: each then has an
    equal share of the time, so that some operator is congested if the job is.
    """
    share = len(topology.order) if snapshot.law == "sequential" else 1
    processing: dict[Any, float] = {}
    emit: dict[Any, float] = {}
    came = dict.fromkeys(topology.order, 0.0) | dict(snapshot.source_rates)
    for name in topology.order:
        m = snapshot.operators.get(name)
        if m is not None:
            able = m.true_rate * m.parallelism / share if m.true_rate else math.inf
            processing[name] = min(came[name], able)
        for child in topology.downstream(name):
            s = snapshot.selectivity((name, child))
            emit[name, child] = (processing[name] if m is not None else came[name]) * (1.0 if s is None else s)
            came[child] += emit[name, child]
    return Rates(processing, emit, dict(snapshot.source_rates) if sources else {})


def held_back(snapshot: Snapshot) -> bool:
    """Whether measured rates hide congestion: somebody waits for whom it feeds, or operators take turns."""
    blocked = any((m.blocked or 0.0) > 0.01 for m in snapshot.operators.values())
    return blocked or snapshot.law == "sequential"


def _table(measured: Any) -> tuple[dict[Any, float], dict[Any, float]]:
    if hasattr(measured, "columns"):
        wanted = ("operator", "input_rate", "processing_rate")
        if missing := [name for name in wanted if name not in measured.columns]:
            raise MetricError(f"a frame without {missing}", expected=f"columns {', '.join(wanted)}", fix="rename them")
        if measured["operator"].duplicated().any():
            raise MetricError(
                "several rows of an operator", expected="one row each", fix="choose a window: frame[frame.t == t]"
            )
        rows = {o: (i, p) for o, i, p in zip(*(measured[name] for name in wanted), strict=True)}
    elif isinstance(measured, Mapping):
        rows = {o: _row(o, row) for o, row in measured.items()}
    else:
        raise MetricError(
            repr(measured)[:80], expected="a Snapshot, a data frame or {operator: (input, processing)}", fix="see rates"
        )
    came = {o: _rate(o, "input rate", i) for o, (i, _) in rows.items()}
    return came, {o: _rate(o, "processing rate", p) for o, (_, p) in rows.items()}


def _row(o: Any, row: Any) -> tuple[Any, Any]:
    try:
        came, done = (row["input_rate"], row["processing_rate"]) if isinstance(row, Mapping) else row
    except (TypeError, ValueError, KeyError):
        raise MetricError(
            f"{row!r} of operator {o!r}", expected="(input rate, processing rate)", fix="pass two numbers"
        ) from None
    return came, done


def _edges(edges: Any) -> dict[Any, float]:
    if edges is None:
        return {}
    if hasattr(edges, "columns"):
        if missing := [name for name in ("start", "end", "rate") if name not in edges.columns]:
            raise MetricError(f"edges without {missing}", expected="columns start, end, rate", fix="rename them")
        edges = dict(zip(zip(edges["start"], edges["end"], strict=True), edges["rate"], strict=True))
    if not isinstance(edges, Mapping) or not all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges):
        raise MetricError(repr(edges)[:80], expected="{(start, end): rate}", fix="or a frame start, end, rate")
    return {edge: _rate(edge, "rate", rate) for edge, rate in edges.items()}


def _rate(of: Any, what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise MetricError(
            f"{what} {value!r} of {of!r}", expected="a finite number >= 0", fix="leave out what was not measured"
        )
    return number


def _checked(congestion_rate: float) -> float:
    number = isinstance(congestion_rate, (int, float)) and not isinstance(congestion_rate, bool)
    if not (number and 0 < congestion_rate < math.inf):
        raise KnobError(f"congestion_rate={congestion_rate!r}", expected="a number above 0", fix="the paper has 1.2")
    return float(congestion_rate)
