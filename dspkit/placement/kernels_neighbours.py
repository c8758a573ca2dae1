"""The best of a placement's neighbours, compiled: by co-locating, swapping and moving (5.4 of [nardelli])."""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import compiled, inlined
from .kernels import TINY, Array
from .kernels_climb import value

MARGIN = 1e-12


@inlined
def _is_tabu(x: Array, tabu: Array) -> bool:
    for row in range(len(tabu)):
        same = True
        for i in range(len(x)):
            if tabu[row, i] != x[i]:
                same = False
                break
        if same:
            return True
    return False


@compiled
def cost(
    x: Array, node: Array, link: Array, kind: Array, ends: Array, alpha: float, times: Array, delay: Array,
    order: Array, into: Array, edge_in: Array, rates: Array, bandwidth: Array, tight: bool, demand: Array,
    capacity: Array,
) -> float:  # fmt: skip
    """The loss of a placement but for its constant."""
    ready = np.zeros(len(x))
    return float(
        value(x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates, bandwidth, tight)
    )


@compiled
def best_neighbour(
    x: Array, strategy: int, nodes: Array, movable: Array, tabu: Array, limit: float, node: Array, link: Array,
    kind: Array, ends: Array, alpha: float, times: Array, delay: Array, order: Array, into: Array, edge_in: Array,
    rates: Array, bandwidth: Array, tight: bool, demand: Array, capacity: Array,
) -> tuple[float, int, int]:  # fmt: skip
    """The first of the best neighbours that costs less than `limit`: (cost, what moves, to which node), or what = -1.

    Strategy 0 co-locates an operator with a neighbour, 1 swaps all that may move on a node to an empty one, 2 moves an
    operator. x is put back as it was.
    """
    n = len(x)
    ready, left = np.zeros(n), capacity.copy()
    hosts, group = np.zeros(len(left), np.int64), np.zeros(n, np.int64)
    for i in range(n):
        left[x[i]] -= demand[i]
        hosts[x[i]] += 1
    best, what, to = limit, -1, -1
    things = 2 * len(kind) if strategy == 0 else len(left) if strategy == 1 else n
    for thing in range(things):
        u, size, asked = 0, 0, 0.0
        if strategy == 1:
            u = thing
            for i in range(n):
                if x[i] == u and movable[i]:
                    group[size] = i
                    size += 1
                    asked += demand[i]
        else:
            i = ends[thing // 2, thing % 2] if strategy == 0 else thing
            u = x[i]
            if movable[i]:
                group[0] = i
                size, asked = 1, demand[i]
        if size == 0:
            continue
        for place in range(1 if strategy == 0 else len(nodes)):
            v = x[ends[thing // 2, 1 - thing % 2]] if strategy == 0 else nodes[place]
            if u == v or left[v] < asked - TINY or (strategy == 1 and hosts[v] > 0):
                continue
            for k in range(size):
                x[group[k]] = v
            found = value(
                x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates, bandwidth, tight
            )
            if found < best - MARGIN and not _is_tabu(x, tabu):
                best, to = found, v
                what = u if strategy == 1 else group[0]
            for k in range(size):
                x[group[k]] = u
    return best, what, to
