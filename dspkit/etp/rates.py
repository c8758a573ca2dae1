"""Rates of a running job as ETP needs them, from snapshots, mappings or data frames; congestion; projection.

| paper | here |
|---|---|
| $in(o)$ | `inputs(...)`: the output of o's parents to o, plus external arrivals |
| $proc(o)$, `ExecuteRate` | `Rates.processing` |
| $emit(p \\to o)$, `EmitRate` | `Rates.emit` |
| $CongestionRate$ | `congestion_rate`, 1.2 by default as in the paper |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..core import MetricError, Snapshot, Topology
from ..core.validation import number
from .graph import Graph, as_graph, count_of, rates_fit

_FULL = 0.95  # share of its time, or of its input, that a source that keeps up may leave unused by chance


class Rates(NamedTuple):
    """Rates of a job in records/s.

    Parameters
    ----------
    processing : mapping
        Processing rate by operator.
    emit : mapping
        Rate by edge (start, end).
    outside : mapping
        Arrivals from outside the graph by operator, such as the load of a source.

    Examples
    --------
    >>> Rates({"a": 9, "b": 9}, {("a", "b"): 9}).outside
    {}
    """

    processing: Mapping[Any, float]
    emit: Mapping[tuple[Any, Any], float] = {}
    outside: Mapping[Any, float] = {}


def rates(measured: Any, edges: Any = None, *, sources: bool = False) -> Rates:
    """Return the rates of a Snapshot, of {operator: (input, processing)} or of a data frame.

    An operator that is missing was not measured.

    Parameters
    ----------
    measured : Snapshot, mapping, data frame or Rates
        The measurements; a frame has the columns `operator, input_rate, processing_rate`.
    edges : mapping or data frame, optional
        Rates of the edges, {(start, end): rate} or a frame `start, end, rate`, which `project` needs; inputs are then
        the sums over the edges.
    sources : bool
        Whether a source's offered load counts as its input, so that it can be congested; the paper's sources have none.

    Examples
    --------
    >>> rates({"a": (9, 9), "b": (9, 5)}).processing
    {'a': 9.0, 'b': 5.0}
    """
    if isinstance(measured, Rates):
        return measured
    if isinstance(measured, Snapshot):
        processing = {name: m.processing_rate for name, m in measured.operators.items()}
        return Rates(processing, dict(measured.edge_rates), dict(measured.source_rates) if sources else {})
    arriving, done = _table(measured)
    emit = _edges(edges)
    if emit:
        fed = {end for _, end in emit}
        arriving = {o: rate for o, rate in arriving.items() if sources and o not in fed}
    return Rates(done, emit, arriving)


def inputs(rates: Rates) -> dict[Any, float]:
    """Return $in(o) = \\sum_p emit(p \\to o)$, plus external arrivals, by operator.

    Parameters
    ----------
    rates : Rates
        The rates.

    Examples
    --------
    >>> inputs(Rates({"b": 5}, {("a", "b"): 9}, {"b": 1}))
    {'b': 10}
    """
    arriving = dict(rates.outside)
    for (_, o), rate in rates.emit.items():
        arriving[o] = arriving.get(o, 0.0) + rate
    return arriving


def congested(topology: Any, measured: Any, congestion_rate: float = 1.2) -> tuple[Any, ...]:
    """Return the operators with $in(o)/proc(o) > CongestionRate$, in topological order.

    An operator that processes none of its input is congested; one without input, or that was not measured, is not.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.

    Examples
    --------
    >>> congested([("a", "b")], {"a": (120, 100), "b": (121, 100)})
    ('b',)
    """
    limit = _checked(congestion_rate) * (1 + 1e-12)  # despite rounding, 115 is not more than 1.15 times 100
    known, g = rates(measured), as_graph(topology)
    rates_fit(g, *known)
    arriving, done = inputs(known), known.processing
    return tuple(o for o in g.order if o in done and arriving.get(o, 0.0) > limit * done[o])


def project(graph: Graph, rates: Rates, target: Any, instances: int, *, cap: bool = False) -> Rates:
    """Return the rates after one more instance beside `instances`: the target's own rates grow by (k+1)/k.

    The factor is not bounded by the input, as printed, unless `cap` is set.

    Parameters
    ----------
    graph : Graph
        The operators.
    rates : Rates
        The rates now.
    target : hashable
        The operator that gets the instance.
    instances : int
        Its present number of instances, k.
    cap : bool
        Whether the input bounds the processing rate.

    Examples
    --------
    >>> project(as_graph([("a", "b")]), Rates({"a": 10, "b": 10}, {("a", "b"): 10}), "a", 2).processing["a"]
    15.0
    """
    k = count_of(instances, "instances", 1)
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
    """Return the mean over windows; an operator counts in the windows in which it was measured.

    Parameters
    ----------
    samples : iterable of Rates
        The rates of each window.

    Examples
    --------
    >>> mean([Rates({"a": 1}), Rates({"a": 3})]).processing
    {'a': 2.0}
    """
    columns: list[dict[Any, list[float]]] = [{}, {}, {}]
    for sample in samples:
        for column, values in zip(columns, sample, strict=True):
            for key, value in values.items():
                column.setdefault(key, []).append(value)
    return Rates(*({key: math.fsum(x) / len(x) for key, x in column.items()} for column in columns))


def unblocked(topology: Topology, snapshot: Snapshot, *, sources: bool = True) -> Rates:
    """Return the rates that would be measured without back-pressure, for engines that have it (not in the paper).

    Full queues block upstream operators, until all rates are equal and no operator looks congested. So the offered
    load is propagated down the graph with the measured selectivities, and each operator processes as much as its
    instances can: $\\min(in, v k)$, for a true rate v of one instance. In micro-batches operators take turns: each
    then has an equal share of the time, so that some operator is congested if the job is.

    Parameters
    ----------
    topology : Topology
        The operators.
    snapshot : Snapshot
        The measurements.
    sources : bool
        As for `rates`.

    Examples
    --------
    >>> from dspkit import apps
    >>> job = apps.word_count().simulator()
    >>> sorted(unblocked(job.topology, job.observe()).processing)
    ['count', 'flat_map', 'sink', 'source']
    """
    share = len(topology.order) if snapshot.execution == "micro-batch" else 1
    processing: dict[Any, float] = {}
    emit: dict[Any, float] = {}
    arriving = dict.fromkeys(topology.order, 0.0) | dict(snapshot.source_rates)
    for name in topology.order:
        m = snapshot.operators.get(name)
        if m is not None:
            able = m.true_rate * m.parallelism / share if m.true_rate else math.inf
            processing[name] = min(arriving[name], able)
        for child in topology.downstream(name):
            s = snapshot.latest_selectivity((name, child))
            emit[name, child] = (processing[name] if m is not None else arriving[name]) * (1.0 if s is None else s)
            arriving[child] += emit[name, child]
    return Rates(processing, emit, dict(snapshot.source_rates) if sources else {})


def held_back(snapshot: Snapshot) -> bool:
    """Return whether measured rates hide congestion: an operator is back-pressured, or operators take turns.

    A source is back-pressured also if its log grows although it is not busy: then a flow control stops it.

    Parameters
    ----------
    snapshot : Snapshot
        The measurements.

    Examples
    --------
    >>> from dspkit import apps
    >>> held_back(apps.star().simulator().observe())
    False
    """
    if snapshot.execution == "micro-batch" or any((m.blocked or 0.0) > 0.01 for m in snapshot.operators.values()):
        return True
    if snapshot.downtime_s > 0:  # which stops a source as well
        return False
    sources = (snapshot.operators.get(name) for name in snapshot.source_rates)
    return any(
        m is not None and m.utilisation < _FULL and m.backlog > 0 and m.processing_rate < _FULL * m.input_rate
        for m in sources
    )


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
    arriving = {o: _rate(o, "input rate", i) for o, (i, _) in rows.items()}
    return arriving, {o: _rate(o, "processing rate", p) for o, (_, p) in rows.items()}


def _row(o: Any, row: Any) -> tuple[Any, Any]:
    try:
        arriving, done = (row["input_rate"], row["processing_rate"]) if isinstance(row, Mapping) else row
    except (TypeError, ValueError, KeyError):
        raise MetricError(
            f"{row!r} of operator {o!r}", expected="(input rate, processing rate)", fix="pass two numbers"
        ) from None
    return arriving, done


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
    return number(congestion_rate, "congestion_rate", 0, above=True, fix="as in 1.2, which is the paper's")
