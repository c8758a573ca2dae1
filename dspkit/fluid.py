"""One tick of a fluid job: rates instead of records, back-pressure, cores shared by those who want them.

Plain lists and loops over operators in topological order, so that a compiler can take it as it is.

    | here | meaning |
    |---|---|
    | queue[i] | records waiting for operator i; a source's queue is its log |
    | mass[i] | source records that these stem from; a record's mass is shared equally by the branches it takes |
    | able[i] | records that i could process in this tick |
    | want, can, done | what it would process with room downstream; with the room there is; what it did |
| limit[i] | records that the room downstream lets i send on |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = list[float]


@dataclass
class Graph:
    """The topology as numbers: edges by index, operators in topological order."""

    parents: list[list[tuple[int, int]]]  # (edge, operator) feeding each operator
    children: list[list[tuple[int, int]]]
    selectivity: Vector  # by edge


@dataclass
class Tick:
    """What happened in one tick, in records; `ended` in source records."""

    arrived: Vector
    done: Vector
    sent: Vector  # by edge
    ended: float


def plan(graph: Graph, queue: Vector, offered: Vector, able: Vector, room: Vector) -> tuple[Vector, Vector]:
    """Records each operator will process in this tick, and those it would if it alone were infinitely fast.

    The first is what happens; the second is what an operator has to ask cores for.
    """
    n = len(queue)
    want = [0.0] * n
    for i in range(n):
        inflow = sum(graph.selectivity[edge] * want[parent] for edge, parent in graph.parents[i])
        want[i] = min(able[i], queue[i] + offered[i] + inflow)

    # From the sinks up: nobody may send more than fits behind what the receiver can take away.
    limit = [math.inf] * n
    can = want[:]
    for i in reversed(range(n)):
        for edge, child in graph.children[i]:
            if graph.selectivity[edge] > 0:
                inflow = sum(graph.selectivity[e] * want[p] for e, p in graph.parents[child])
                space = max(0.0, room[child] - queue[child] + can[child])
                if inflow > space:  # those who feed the same operator share its space as they want it
                    most = want[i] * (space / inflow)
                else:
                    most = want[i] + (space - inflow) / graph.selectivity[edge]
                limit[i] = min(limit[i], most)
        can[i] = min(can[i], limit[i])

    done, ask = [0.0] * n, [0.0] * n
    for i in range(n):
        there = queue[i] + offered[i]
        there += sum(graph.selectivity[edge] * done[parent] for edge, parent in graph.parents[i])
        done[i] = min(can[i], there)
        ask[i] = min(there, limit[i])
    return done, ask


def tick(graph: Graph, queue: Vector, mass: Vector, offered: Vector, able: Vector, room: Vector) -> Tick:
    """Move records one tick forward, changing `queue` and `mass`; `room` is how much each queue holds.

    Records that arrive in a tick may be processed in the same tick: the fluid takes no time to pass an idle
    operator. Service and random waiting are added by the caller, from theory.
    """
    done, _ = plan(graph, queue, offered, able, room)
    arrived, sent, ended = offered[:], [0.0] * len(graph.selectivity), 0.0
    flow = offered[:]  # mass arriving
    for i in range(len(queue)):
        for edge, parent in graph.parents[i]:
            sent[edge] = graph.selectivity[edge] * done[parent]
            arrived[i] += sent[edge]
        there = queue[i] + arrived[i]
        done[i] = min(done[i], there)  # the same sum in another order may differ in its last bit
        behind = mass[i] + flow[i]
        moved = behind * (done[i] / there) if there > 0 else behind
        mass[i] = behind - moved
        queue[i] = there - done[i]
        if not graph.children[i]:
            ended += moved
        for _, child in graph.children[i]:
            flow[child] += moved / len(graph.children[i])
    return Tick(arrived, done, sent, ended)


def fair_share(demands: list[tuple[float, int]], cores: float) -> float:
    """The level s at which $\\sum_j n_j\\min(d_j, s)$ fills the cores: what each instance may use, at most 1.

    `demands` holds (share of a core wanted, how many instances want it).

    >>> fair_share([(1.0, 2), (0.5, 2)], cores=2)
    0.5
    >>> fair_share([(1.0, 2), (0.2, 2)], cores=2)
    0.8
    """
    left, count = float(cores), sum(n for _, n in demands)
    for demand, n in sorted(demands):
        if demand * count >= left:
            return left / count
        left -= demand * n
        count -= n
    return 1.0
