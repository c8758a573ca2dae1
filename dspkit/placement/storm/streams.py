"""Streams between executors, from what was measured between operators; and executors' slots as a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...core import Deployment, Edge, Snapshot, Topology
from ..problem import Application, Network, Problem
from .adaptive import Slot
from .cluster import Cluster, Executor, Worker


def streams(
    topology: Topology, parallelism: Mapping[str, int], rates: Mapping[Edge, float]
) -> dict[Executor, tuple[tuple[Executor, float], ...]]:
    """Whom each executor talks to, and how much: an edge's records are spread evenly over all pairs of executors.

    >>> streams(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10})["a", 0]
    ((('b', 0), 5.0), (('b', 1), 5.0))
    """
    found: dict[Executor, list[tuple[Executor, float]]] = {
        (name, i): [] for name in topology.order for i in range(parallelism[name])
    }
    for a, b in topology.edges:
        each = rates.get((a, b), 0.0) / (parallelism[a] * parallelism[b])
        for i in range(parallelism[a]):
            for j in range(parallelism[b]):
                found[a, i].append(((b, j), each))
                found[b, j].append(((a, i), each))
    return {e: tuple(others) for e, others in found.items()}


def traffic(
    topology: Topology, parallelism: Mapping[str, int], rates: Mapping[Edge, float], nodes: Mapping[Executor, str]
) -> float:
    """Tuples/s that cross from node to node."""
    both = streams(topology, parallelism, rates)
    return sum(rate for e, others in both.items() for other, rate in others if nodes[e] != nodes[other]) / 2


def deployed(deployment: Deployment, where: Mapping[Executor, Slot], names: tuple[str, ...]) -> Deployment:
    """The deployment with its executors on these slots."""
    return replace(deployment, placement={e: names[node] for e, (node, _) in where.items()})


def cluster_of(snapshot: Snapshot) -> Cluster:
    """The nodes of a backend of whose network nothing is known."""
    names = set(snapshot.nodes) | set(snapshot.deployment.placement.values())
    return Cluster({name: Worker() for name in sorted(names) or ["node-1"]})


def problem_of(
    topology: Topology,
    parallelism: Mapping[str, int],
    rates: Mapping[Edge, float],
    cluster: Cluster,
    pinned: Mapping[str, str],
    *,
    slot_executors: int = 4,
) -> Problem:
    """What S-ODP solves [nardelli, 4.5]: executors as operators of demand 1, slots as capacity, half round trips."""
    both = streams(topology, parallelism, rates)
    names = {e: f"{e[0]}[{e[1]}]" for e in both}
    carried = {
        (names[e], names[other]): rate
        for e, others in both.items()
        for other, rate in others
        if (e[0], other[0]) in topology.edges
    }
    sent = cluster.mean_delays() / 1e3
    app = Application(tuple(names.values()), tuple(carried), 1.0, 0.001, tuple(carried.values()))
    network = Network(
        cluster.names, (sent + sent.T) / 2, [slot_executors * n for n in cluster.slots],
        availability=cluster.availability(0.0),
    )  # fmt: skip
    return Problem(app, network, {names[e]: pinned[e[0]] for e in both if e[0] in pinned})
