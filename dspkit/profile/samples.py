"""Measurements of a run as ELYSIUM's metric store keeps them: means over a sliding minute, in which nothing changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import fmean

from ..core import Edge, OperatorMetrics, Snapshot, Step, Topology
from ..errors import MetricError
from ..etp import rebalance
from ..history import History

FULL = 0.999  # share of a node's cores in use from which it tells only that it is full: of use if it always was
TRACE = 1e-9  # records/s that are none


@dataclass(frozen=True)
class Samples:
    """Measurements to learn from, as rows of (x, y)."""

    cpu: Mapping[str, Sequence[tuple[float, float]]]  # of each operator: an instance's input rate, its cores in use
    nodes: Sequence[tuple[float, float]]  # cores in use by a node's instances, the node's share in use
    selectivity: Mapping[Edge, Sequence[float]]  # of each stream: records sent for each that its start took in
    shares: Mapping[str, float]  # of all that the sources emit


def samples(history: History, *, mean_over_s: float = 60.0) -> Samples:
    """What a run tells: each sample is a mean over `mean_over_s`, or over as long as nothing changed.

    Windows in which the job stood still, and those in which the deployment had just changed, are left out. An
    instance's input rate is what it takes in: what waits before it costs no CPU yet.
    """
    if not isinstance(history, History) or not len(history):
        raise MetricError(f"history {history!r}"[:100], expected="a History with steps", fix="pass what run() returns")
    if isinstance(mean_over_s, bool) or not isinstance(mean_over_s, Real) or not 0 < mean_over_s < math.inf:
        raise MetricError(f"mean_over_s={mean_over_s!r}", expected="seconds above 0", fix="as in 60")
    topology = history.topology
    cpu: dict[str, list[tuple[float, float]]] = {name: [] for name in topology.order}
    nodes: list[tuple[float, float]] = []
    alpha: dict[Edge, list[float]] = {edge: [] for edge in topology.edges}
    emitted = dict.fromkeys(topology.sources, 0.0)
    for group in _minutes(history.steps, mean_over_s):
        deployment = group[0].deployment
        for name in topology.order:
            if known := [(m.processing_rate, cores(m)) for s in group if (m := s.operators.get(name))]:
                k = deployment.parallelism[name]
                cpu[name].append((fmean(r for r, _ in known) / k, fmean(c for _, c in known) / k))
        for edge, kept in alpha.items():
            both = [(s.operators[edge[0]].processing_rate, s.edge_rates[edge]) for s in group if _knows(s, edge)]
            if (took := sum(r for r, _ in both)) > TRACE:
                kept.append(sum(e for _, e in both) / took)
        for source in emitted:
            emitted[source] += sum(s.operators[source].processing_rate for s in group if source in s.operators)
        nodes += node_samples(topology, group)
    total = sum(emitted.values())
    shares = {s: rate / total if total > 0 else 1 / len(emitted) for s, rate in emitted.items()}
    return Samples(cpu, [row for row in nodes if row[1] < FULL] or nodes, alpha, shares)


def cores(m: OperatorMetrics) -> float:
    """Cores that an operator's instances use; where CPU is not metered, their busy time stands for it."""
    return m.cpu if m.cpu is not None else m.utilisation * m.parallelism


def node_samples(topology: Topology, group: Sequence[Snapshot]) -> Iterator[tuple[float, float]]:
    """Cores of instances and share of cores in use, of each node; nothing where an operator is silent."""
    deployment, order = group[0].deployment, topology.order
    names = list(group[0].nodes)
    if not names or any(set(s.nodes) != set(names) or set(order) - set(s.operators) for s in group):
        return
    usable = names[: deployment.workers] if deployment.workers else names
    places = {**rebalance(topology, deployment.parallelism, usable), **deployment.placement}
    each = {name: fmean(cores(s.operators[name]) for s in group) / deployment.parallelism[name] for name in order}
    for node in names:
        used = sum(each[name] for (name, _), place in places.items() if place == node)
        share = fmean(s.nodes[node] for s in group)
        yield used, share


def _knows(s: Snapshot, edge: Edge) -> bool:
    return edge in s.edge_rates and edge[0] in s.operators


def _minutes(steps: Sequence[Step], mean_over_s: float) -> Iterator[list[Snapshot]]:
    """Neighbouring windows without change that make up a minute; a stretch that is shorter is one by itself."""
    for stretch in _stretches(steps):
        count = max(1, round(mean_over_s / stretch[0].window_s))
        if len(stretch) <= count:
            yield stretch
        for first in range(len(stretch) - count + 1) if len(stretch) > count else ():
            yield stretch[first : first + count]


def _stretches(steps: Sequence[Step]) -> Iterator[list[Snapshot]]:
    """Windows in a row of one deployment in which the job never stood still."""
    row: list[Snapshot] = []
    for step in steps:
        s = step.snapshot
        stood = s.downtime_s > 0
        if row and (stood or s.deployment != row[0].deployment):
            yield row
            row = []
        if not stood:
            row.append(s)
    if row:
        yield row
