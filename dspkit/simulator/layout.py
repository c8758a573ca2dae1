"""A topology, its plant and a deployment as arrays of numbers, the input of the compiled engines.

Operators are counted in topological order, edges in the topology's order, nodes in the plant's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..core import Deployment, DeploymentError, Topology
from ..core.typing import Array
from .system import NodeDown, NodeSlow, Places, Plant, ProcessAssignment, Scheduler, Skew, assign_processes

LAW = {"exponential": 0, "deterministic": 1, "gamma": 2}


class IndexedGraph(NamedTuple):
    """The topology by index: edge e goes from operator `start[e]` to `end[e]`.

    Incoming edges of i are `into[into_at[i]:into_at[i + 1]]`, outgoing ones `out[out_at[i]:out_at[i + 1]]`.
    """

    start: Array
    end: Array
    into: Array
    into_at: Array
    out: Array
    out_at: Array


class Layout(NamedTuple):
    """Parameters of the engines, constant while deployment and faults are. i is an operator, e an edge, j a node."""

    instances: Array  # [i] number of instances
    seconds: Array  # [i] per record, of one instance at speed 1; with the scalability law, without the external call
    io: Array  # [i] share of these that takes no CPU
    law: Array  # [i] 0 exponential, 1 deterministic, 2 gamma
    cv: Array  # [i] coefficient of variation of service times
    call: Array  # [i] seconds of the external server per record, 0 without one
    room: Array  # [i] capacity of the queue in records, over all instances; inf if unbounded
    drops: Array  # [i] whether a full queue drops records instead of blocking the senders
    split: Array  # [i] whether each instance has a queue of its own
    hottest: Array  # [i] share of the records that instance 0 gets; 0 without skew
    selectivity: Array  # [e]
    size: Array  # [e] bytes of a record
    node_instances: Array  # [j, i] number of i's instances on node j
    inside: Array  # [p, j, i] number of them in its process p; empty along p without worker processes
    cores: Array  # [j] that instances share; 0 while the node is down
    speed: Array  # [j]
    delay: Array  # [j, j] seconds from node to node
    bandwidth: Array  # [j, j] bytes/s from node to node, inf without a limit


@lru_cache(maxsize=64)
def index_topology(topology: Topology) -> IndexedGraph:
    """Return the topology by index."""
    index = {name: i for i, name in enumerate(topology.order)}
    start = np.array([index[u] for u, _ in topology.edges], dtype=np.int64)
    end = np.array([index[v] for _, v in topology.edges], dtype=np.int64)
    into, into_at = _lists(end, len(index))
    out, out_at = _lists(start, len(index))
    return IndexedGraph(start, end, into, into_at, out, out_at)


def _lists(ends: Array, n: int) -> tuple[Array, Array]:
    order = np.argsort(ends, kind="stable")
    return order, np.searchsorted(ends[order], np.arange(n + 1))


def busiest_share(hottest: Array, instances: Array) -> Array:
    """Return the share of an operator's records that its busiest instance gets: the hot one, or one of the others."""
    k = np.maximum(1, instances)
    others = np.divide(1 - hottest, k - 1, out=np.ones(len(k)), where=k > 1)
    return np.where(hottest > 0, np.maximum(hottest, others), 1 / k)


def places(
    topology: Topology, plant: Plant, deployment: Deployment, scheduler: Scheduler, down: Sequence[str] = ()
) -> dict[tuple[str, int], str]:
    """Return the node of each instance: as the deployment places it, otherwise as the scheduler does.

    With `workers=n` the scheduler gets the first n nodes, without those that are `down` while others are up.
    """
    names = list(plant.nodes)
    if deployment.workers is not None and deployment.workers > len(names):
        raise DeploymentError(
            f"workers={deployment.workers}", expected=f"at most the {len(names)} nodes of the plant", fix="add nodes"
        )
    usable = names[: deployment.workers]
    usable = [name for name in usable if name not in down] or usable
    placed = scheduler(topology, deployment.parallelism, usable)
    if not isinstance(placed, Mapping) or not all(isinstance(key, tuple) and len(key) == 2 for key in placed):
        raise DeploymentError(
            f"a scheduler that returned {placed!r}"[:100], expected="{(operator, index): node}", fix="see round_robin"
        )
    chosen = {**placed, **deployment.placement}
    for (operator, index), node in chosen.items():
        if node not in plant.nodes:
            raise DeploymentError(
                f"placement of instance {index} of {operator!r} on {node!r}",
                expected=f"one of the nodes {', '.join(map(repr, names))}",
                fix="place on a node of the plant, or add the node to it",
            )
    if set(chosen) != {(name, i) for name, k in deployment.parallelism.items() for i in range(k)}:
        raise DeploymentError(
            f"placements of {len(chosen)} instances by the scheduler",
            expected=f"one placement per instance, {deployment.instances} in all",
            fix="return {(operator, index): node} for every instance",
        )
    return chosen


def layout(
    topology: Topology,
    plant: Plant,
    where: Places,
    parallelism: Mapping[str, int],
    t: float = 0.0,
    assigned: ProcessAssignment | None = None,
) -> Layout:
    """Return the layout at time `t`, active faults included.

    `assigned` gives the worker process of each instance; without it processes are assigned as at the start of a job.
    """
    order, nodes = topology.order, list(plant.nodes)
    services = [plant.services[name] for name in order]
    k = np.array([parallelism[name] for name in order], dtype=np.int64)
    row, column = {n: j for j, n in enumerate(nodes)}, {n: i for i, n in enumerate(order)}
    here = np.zeros((len(nodes), len(order)), dtype=np.int64)
    for (name, _), node in where.items():
        here[row[node], column[name]] += 1
    inside = np.zeros((0, *here.shape), dtype=np.int64)
    if plant.processes:
        assigned = assign_processes(plant, where, {}) if assigned is None else assigned
        inside = np.zeros((1 + max(p for _, p in assigned.values()), *here.shape), dtype=np.int64)
        for (name, _), (node, process) in assigned.items():
            inside[process, row[node], column[name]] += 1
    room = np.array([s.queue_records * n for s, n in zip(services, k, strict=True)])
    for i, name in enumerate(order):
        if not topology.upstream(name) and services[i].overflow == "block":
            room[i] = math.inf  # the log of a source is unbounded
    hottest = np.zeros(len(order))
    cores = np.array([node.cores_for_work for node in plant.nodes.values()])
    speed = np.array([node.speed for node in plant.nodes.values()])
    for fault in plant.faults:
        if fault.active(t):
            if isinstance(fault, NodeDown):
                cores[row[fault.node]] = 0.0
            elif isinstance(fault, NodeSlow):
                speed[row[fault.node]] *= fault.factor
            elif isinstance(fault, Skew):
                i = column[fault.operator]
                hottest[i] = max(fault.share, 1 / k[i])
    between = [[plant.link(a, b) for b in nodes] for a in nodes]
    return Layout(
        instances=k,
        seconds=np.array([s.seconds(int(n)) for s, n in zip(services, k, strict=True)]),
        io=np.array([s.io_share for s in services]),
        law=np.array([LAW[s.distribution] for s in services], dtype=np.int64),
        cv=np.array([s.variation for s in services]),
        call=np.array([1 / s.external_rate_limit_per_s for s in services]),
        room=room,
        drops=np.array([s.overflow == "drop" for s in services]),
        split=np.array([s.grouping == "split" for s in services]) | (hottest > 0) | (plant.processes > 0),
        hottest=hottest,
        selectivity=np.array([plant.services[u].toward(v) for u, v in topology.edges], dtype=float),
        size=np.array([plant.services[u].record_bytes for u, _ in topology.edges], dtype=float),
        node_instances=here,
        inside=inside,
        cores=cores,
        speed=speed,
        delay=np.array([[link.delay_s for link in line] for line in between]),
        bandwidth=np.array([[link.bandwidth_bytes_per_s for link in line] for line in between]),
    )
