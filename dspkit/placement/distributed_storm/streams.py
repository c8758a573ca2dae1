"""Streams between executors, derived from the rates between operators, and placements that use them.

`least_traffic` is T-Storm's scheduler: executors by decreasing traffic, each on the slot where it adds the least
traffic between nodes [xu2014tstorm].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ...core import Deployment, Edge, InfeasibleError, Snapshot, Topology, instances_of
from ..problem import Application, Network, Problem
from .cluster import Executor, StormCluster, Worker
from .schedulers import Slot


def streams(
    topology: Topology, parallelism: Mapping[str, int], rates: Mapping[Edge, float]
) -> dict[Executor, tuple[tuple[Executor, float], ...]]:
    """Return the neighbours of each executor with rates: an edge's records spread evenly over all pairs of executors.

    Parameters
    ----------
    topology : Topology
        The application.
    parallelism : mapping
        Number of executors of each operator.
    rates : mapping
        Records/s of each edge; 0 if missing.

    Examples
    --------
    >>> streams(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10})["a", 0]
    ((('b', 0), 5.0), (('b', 1), 5.0))
    """
    found: dict[Executor, list[tuple[Executor, float]]] = {e: [] for e in instances_of(topology, parallelism)}
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
    """Return the records/s that are sent between nodes.

    Parameters
    ----------
    topology, parallelism, rates
        As of `streams`.
    nodes : mapping
        Node of each executor.

    Examples
    --------
    >>> nodes = {("a", 0): "x", ("b", 0): "x", ("b", 1): "y"}
    >>> traffic(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10}, nodes)
    5.0
    """
    both = streams(topology, parallelism, rates)
    return sum(rate for e, others in both.items() for other, rate in others if nodes[e] != nodes[other]) / 2


def deployed(deployment: Deployment, where: Mapping[Executor, Slot], names: tuple[str, ...]) -> Deployment:
    """Return the deployment with its executors on these slots.

    Parameters
    ----------
    deployment : Deployment
        The deployment whose placement is replaced.
    where : mapping
        Slot of each executor: index of the node, and of the slot on it.
    names : tuple of str
        Names of the nodes.

    Examples
    --------
    >>> dict(deployed(Deployment({"a": 1}), {("a", 0): (1, 0)}, ("x", "y")).placement)
    {('a', 0): 'y'}
    """
    return replace(deployment, placement={e: names[node] for e, (node, _) in where.items()})


def cluster_of(snapshot: Snapshot) -> StormCluster | None:
    """Return the nodes of a backend, as workers with the delays that pings have measured, or without delays.

    Nodes in use that are not measured any more are down, unless none is measured. None if no node is known.

    Parameters
    ----------
    snapshot : Snapshot
        Metrics, with the nodes in use.

    Examples
    --------
    >>> from dspkit import apps
    >>> backend = apps.word_count().simulator()
    >>> cluster = cluster_of(backend.observe())
    >>> cluster.names if cluster else ()
    ('node-1', 'node-2', 'node-3', 'node-4')
    """
    names = snapshot.nodes or set(snapshot.deployment.placement.values())
    if not names:
        return None
    return StormCluster({name: Worker() for name in sorted(names)}, delays=snapshot.delays)


def problem_of(
    topology: Topology,
    parallelism: Mapping[str, int],
    rates: Mapping[Edge, float],
    cluster: StormCluster,
    pinned: Mapping[str, str],
    *,
    slot_executors: int = 4,
) -> Problem:
    """Return the placement problem of executors that S-ODP solves [nardelli, 4.5].

    Executors are operators of demand 1, slots are capacity, and delays are half round trips.

    Parameters
    ----------
    topology, parallelism, rates
        As of `streams`.
    cluster : StormCluster
        The nodes.
    pinned : mapping
        Name of the node of each pinned operator.
    slot_executors : int
        Most executors of a slot.

    Examples
    --------
    >>> from dspkit.placement.distributed_storm import thesis_cluster
    >>> problem = problem_of(
    ...     Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10}, thesis_cluster(), {"a": "node-1"}
    ... )
    >>> problem.application.operators, problem.pinned
    (('a[0]', 'b[0]', 'b[1]'), {0: 0})
    """
    sent = cluster.mean_delays() / 1e3
    network = Network(
        cluster.names,
        (sent + sent.T) / 2,
        [slot_executors * n for n in cluster.slots],
        availability=cluster.availability(0.0),
    )
    return executors_problem(topology, parallelism, rates, network, pinned)


def executors_problem(
    topology: Topology,
    parallelism: Mapping[str, int],
    rates: Mapping[Edge, float],
    network: Network,
    pinned: Mapping[str, str],
    *,
    time_s: Mapping[str, float] | None = None,
) -> Problem:
    """Return the placement problem whose operators are executors of demand 1, named as in "count[0]".

    Parameters
    ----------
    topology, parallelism, rates, pinned
        As of `problem_of`.
    network : Network
        The nodes, whose capacity is counted in executors.
    time_s : mapping, optional
        Seconds per record by operator; 1 ms by default.

    Examples
    --------
    >>> network = Network(("x", "y"), 0.01, capacity=2)
    >>> problem = executors_problem(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10}, network, {"a": "x"})
    >>> problem.application.operators, problem.application.rate_per_s.tolist()
    (('a[0]', 'b[0]', 'b[1]'), [5.0, 5.0])
    """
    both = streams(topology, parallelism, rates)
    names = {e: f"{e[0]}[{e[1]}]" for e in both}
    carried = {
        (names[e], names[other]): rate
        for e, others in both.items()
        for other, rate in others
        if (e[0], other[0]) in topology.edges
    }
    seconds = 0.001 if time_s is None else [time_s[operator] for operator, _ in both]
    app = Application(tuple(names.values()), tuple(carried), 1.0, seconds, tuple(carried.values()) or 0.0)
    return Problem(app, network, {names[e]: pinned[e[0]] for e in both if e[0] in pinned})


T = TypeVar("T", bound=Any)
TINY = 1e-9


def least_traffic(
    streams: Mapping[T, tuple[tuple[T, float], ...]],
    capacity: Mapping[Slot, float],
    fixed: Mapping[T, Slot],
    *,
    demand: Mapping[T, float] | None = None,
    may: Callable[[T, Slot], bool] = lambda thing, slot: True,
) -> dict[T, Slot]:
    """Return the slot of each executor: by decreasing traffic, where it adds the least traffic between nodes.

    Of equal slots the fullest is chosen, then the first. Streams to executors that are not placed yet do not count.

    Parameters
    ----------
    streams : mapping
        The neighbours of each executor, with rates, as returned by `streams`.
    capacity : mapping
        Capacity of each slot.
    fixed : mapping
        Slots of executors that are placed already.
    demand : mapping, optional
        Capacity that each executor takes, by default 1.
    may : callable, optional
        Function that returns whether an executor may use a slot.

    Examples
    --------
    >>> talk = streams(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10})
    >>> least_traffic(talk, {(0, 0): 2, (1, 0): 2}, {})
    {('a', 0): (0, 0), ('b', 0): (0, 0), ('b', 1): (1, 0)}
    """
    where, used = dict(fixed), dict.fromkeys(capacity, 0.0)
    asks = {e: 1.0 if demand is None else demand[e] for e in streams}
    for e, slot in fixed.items():
        used[slot] += asks[e]
    total = {e: sum(rate for _, rate in others) for e, others in streams.items()}
    number = {slot: n for n, slot in enumerate(capacity)}
    for e in sorted((e for e in streams if e not in fixed), key=lambda e: (-total[e], e)):
        fits = [s for s in capacity if used[s] + asks[e] <= capacity[s] + TINY and may(e, s)]
        if not fits:
            raise InfeasibleError(
                f"no slot left for {e!r}, in order of traffic", expected="room for all", fix="add nodes or capacity"
            )
        added = {s: sum(rate for other, rate in streams[e] if other in where and where[other][0] != s[0]) for s in fits}
        where[e] = min(fits, key=lambda s: (round(added[s], 9), -used[s], number[s]))
        used[where[e]] += asks[e]
    return where
