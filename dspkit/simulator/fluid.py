"""One tick of a fluid job: rates instead of records, back-pressure, cores shared by those who want them.

Plain lists and loops over operators in topological order, so that a compiler can take it as it is.

    | here | meaning |
    |---|---|
    | queue[i] | records waiting for operator i; a source's queue is its log |
    | room[i] | records that this queue holds |
    | mass[i] | source records that these stem from; a record's mass is shared equally by the branches it takes |
    | able[i] | records that i could process in this tick |
    | done[i], wish[i] | what it does process; what more it would, were there room downstream |
    | limit[i] | how much more the room downstream lets it process |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = list[float]
_FILLINGS, _SETTLED = 20, 1e-3  # of room, and the share of its ability that nobody gains any more


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

    The first is what happens; the second is what an operator has to ask cores for. Operators that feed the same
    queue share its room as they wish for it. What one cannot use after all, because another of its receivers is full,
    goes to the others in the next filling, until nothing moves any more.
    """
    n, sel = len(queue), graph.selectivity
    done, ask = [0.0] * n, [0.0] * n
    for _ in range(_FILLINGS):
        came = [sum(sel[e] * done[p] for e, p in graph.parents[i]) for i in range(n)]
        free = [room[i] - queue[i] - came[i] + done[i] for i in range(n)]
        wish, held = [0.0] * n, False
        for i in range(n):
            inflow = sum(sel[e] * (done[p] + wish[p]) for e, p in graph.parents[i])
            wish[i] = max(0.0, min(able[i], queue[i] + offered[i] + inflow) - done[i])
        for i in reversed(range(n)):  # nobody wishes for more than would fit if nobody else sent anything
            fits = [max(0.0, free[c] + wish[c]) / sel[e] for e, c in graph.children[i] if sel[e] > 0]
            held = held or min(fits, default=math.inf) < wish[i]
            wish[i] = min([wish[i], *fits])
        limit, cut = _limits(graph, wish, free)
        grown = 0.0
        for i in range(n):
            there = queue[i] + offered[i] + sum(sel[e] * done[p] for e, p in graph.parents[i])
            before, done[i] = done[i], max(done[i], min(done[i] + min(wish[i], limit[i]), there))
            ask[i] = min(there, before + limit[i])
            if able[i] > 0:
                grown = max(grown, (done[i] - before) / able[i])
        if not (held or cut) or grown < _SETTLED:
            break
    return done, ask


def _limits(graph: Graph, wish: Vector, free: Vector) -> tuple[Vector, bool]:
    """What each operator may send on, in records it processes, and whether that is less than anyone wishes.

    From the sinks up: a queue takes what fits behind what its own operator will take away.
    """
    limit, more, cut = [math.inf] * len(wish), wish[:], False
    for i in reversed(range(len(wish))):
        for edge, child in graph.children[i]:
            if graph.selectivity[edge] > 0:
                wished = sum(graph.selectivity[e] * wish[p] for e, p in graph.parents[child])
                space = max(0.0, free[child] + more[child])
                if wished > space:
                    part, cut = wish[i] * (space / wished), True
                else:
                    part = wish[i] + (space - wished) / graph.selectivity[edge]
                limit[i] = min(limit[i], part)
        more[i] = min(more[i], limit[i])
    return limit, cut


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
