"""A topology, its plant and a deployment as arrays of numbers, which is what the compiled engines take.

Operators are counted in topological order, edges in the topology's order, nodes in the plant's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core import Deployment, Topology
from ..errors import DeploymentError
from ..plant import Places, Plant, Scheduler, Seats, Skew, seats
from ..plant.faults import NodeDown, NodeSlow

Array = np.ndarray[Any, np.dtype[Any]]
LAW = {"exponential": 0, "deterministic": 1, "gamma": 2}


class Graph(NamedTuple):
    """The topology: edge e goes from operator `start[e]` to `end[e]`; operator i's edges lie side by side in lists.

    Incoming edges of i are `into[into_at[i]:into_at[i + 1]]`, outgoing ones `out[out_at[i]:out_at[i + 1]]`.
    """

    start: Array
    end: Array
    into: Array
    into_at: Array
    out: Array
    out_at: Array


class Layout(NamedTuple):
    """What holds while deployment and faults stay the same. i is an operator, e an edge, j a node."""

    instances: Array  # [i] how many run
    seconds: Array  # [i] of one instance at speed 1 for a record, scalability law included, external call apart
    io: Array  # [i] part of these that takes no CPU
    law: Array  # [i] 0 exponential, 1 deterministic, 2 gamma
    cv: Array  # [i] coefficient of variation of service times
    call: Array  # [i] seconds of the external server for each record, 0 where there is none
    room: Array  # [i] records that the queue holds, over all instances; inf where it is endless
    drops: Array  # [i] whether a full queue refuses, instead of holding back who feeds it
    split: Array  # [i] whether each instance has a queue of its own
    hottest: Array  # [i] share of the records that instance 0 gets; 0 where all get the same
    selectivity: Array  # [e]
    size: Array  # [e] bytes of a record
    here: Array  # [j, i] how many of i's instances run on node j
    inside: Array  # [p, j, i] how many of them in its process p; no p where processes are not told apart
    cores: Array  # [j] that instances share; 0 while the node is down
    speed: Array  # [j]
    delay: Array  # [j, j] seconds from node to node
    bandwidth: Array  # [j, j] bytes/s from node to node, inf where nothing limits


@lru_cache(maxsize=64)
def graph(topology: Topology) -> Graph:
    index = {name: i for i, name in enumerate(topology.order)}
    start = np.array([index[u] for u, _ in topology.edges], dtype=np.int64)
    end = np.array([index[v] for _, v in topology.edges], dtype=np.int64)
    into, into_at = _lists(end, len(index))
    out, out_at = _lists(start, len(index))
    return Graph(start, end, into, into_at, out, out_at)


def _lists(ends: Array, n: int) -> tuple[Array, Array]:
    order = np.argsort(ends, kind="stable")
    return order, np.searchsorted(ends[order], np.arange(n + 1))


def busiest_share(hottest: Array, instances: Array) -> Array:
    """Share of an operator's records that its busiest instance gets: the hot one, or one of the others."""
    k = np.maximum(1, instances)
    others = np.divide(1 - hottest, k - 1, out=np.ones(len(k)), where=k > 1)
    return np.where(hottest > 0, np.maximum(hottest, others), 1 / k)


def places(
    topology: Topology, plant: Plant, deployment: Deployment, scheduler: Scheduler, down: Sequence[str] = ()
) -> dict[tuple[str, int], str]:
    """Where each instance runs: where the deployment says so, else where the scheduler puts it.

    With `workers=n` the scheduler has the first n nodes, and never those that are `down` while others are up.
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
                fix="correct the name, or add the node to the plant",
            )
    if set(chosen) != {(name, i) for name, k in deployment.parallelism.items() for i in range(k)}:
        raise DeploymentError(
            f"a scheduler that placed {len(chosen)} instances",
            expected=f"each of the {deployment.instances} once",
            fix="let it return {(operator, index): node} for every instance",
        )
    return chosen


def layout(
    topology: Topology,
    plant: Plant,
    where: Places,
    parallelism: Mapping[str, int],
    t: float = 0.0,
    seated: Seats | None = None,
) -> Layout:
    """The numbers that hold at `t`, faults included; in the processes of `seated`, or as at the start."""
    order, nodes = topology.order, list(plant.nodes)
    services = [plant.services[name] for name in order]
    k = np.array([parallelism[name] for name in order], dtype=np.int64)
    row, column = {n: j for j, n in enumerate(nodes)}, {n: i for i, n in enumerate(order)}
    here = np.zeros((len(nodes), len(order)), dtype=np.int64)
    for (name, _), node in where.items():
        here[row[node], column[name]] += 1
    inside = np.zeros((0, *here.shape), dtype=np.int64)
    if plant.processes:
        seated = seats(plant, where, {}) if seated is None else seated
        inside = np.zeros((1 + max(p for _, p in seated.values()), *here.shape), dtype=np.int64)
        for (name, _), (node, process) in seated.items():
            inside[process, row[node], column[name]] += 1
    room = np.array([s.queue_records * n for s, n in zip(services, k, strict=True)])
    for i, name in enumerate(order):
        if not topology.upstream(name) and services[i].overflow == "block":
            room[i] = math.inf  # the log of a source
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
        call=np.array([1 / s.ceiling_per_s for s in services]),
        room=room,
        drops=np.array([s.overflow == "drop" for s in services]),
        split=np.array([s.grouping == "split" for s in services]) | (hottest > 0) | (plant.processes > 0),
        hottest=hottest,
        selectivity=np.array([plant.services[u].toward(v) for u, v in topology.edges], dtype=float),
        size=np.array([plant.services[u].record_bytes for u, _ in topology.edges], dtype=float),
        here=here,
        inside=inside,
        cores=cores,
        speed=speed,
        delay=np.array([[link.delay_s for link in line] for line in between]),
        bandwidth=np.array([[link.bandwidth_bytes_per_s for link in line] for line in between]),
    )
