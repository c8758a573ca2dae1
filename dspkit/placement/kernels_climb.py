"""Local search from a seed, compiled: the first placement of the exact solvers, to prune with.

Moves: one operator to another node, two operators exchanged, all operators of two nodes exchanged. Where no move helps,
a few random ones are made and the search goes on from there; what is worse is taken back.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import inlined, lean
from .kernels import TINY, Array, copy


@inlined
def _random(state: Array) -> float:
    """Uniform in [0, 1): Marsaglia's xorshift."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return np.float64(s >> np.uint64(11)) / 9007199254740992.0


@inlined
def value(
    x: Array, ready: Array, node: Array, link: Array, kind: Array, ends: Array, alpha: float, times: Array,
    delay: Array, order: Array, into: Array, edge_in: Array, rates: Array, bandwidth: Array, tight: bool,
) -> float:  # fmt: skip
    """The loss of a placement but for its constant; inf if a pair, a node or shared bandwidth forbids it."""
    total = 0.0
    for i in range(len(x)):
        total += node[i, x[i]]
    for e in range(len(kind)):
        total += link[kind[e], x[ends[e, 0]], x[ends[e, 1]]]
    if not total < np.inf:
        return np.inf
    if tight:
        for e in range(len(kind)):
            u, v = x[ends[e, 0]], x[ends[e, 1]]
            if u != v:
                carried = 0.0
                for f in range(len(kind)):
                    if x[ends[f, 0]] == u and x[ends[f, 1]] == v:
                        carried += rates[f]
                if carried > bandwidth[u, v] * (1 + TINY):
                    return np.inf
    if alpha != 0.0:
        slowest = 0.0
        for k in range(len(order)):
            i = order[k]
            latest = 0.0
            for p in range(into[i], into[i + 1]):
                a = ends[edge_in[p], 0]
                latest = max(latest, ready[a] + delay[x[a], x[i]])
            ready[i] = latest + times[i, x[i]]
            slowest = max(slowest, ready[i])
        total += alpha * slowest
    return total


@lean
def construct(
    x: Array, free: Array, sequence: Array, noise: float, random: Array, node: Array, link: Array, kind: Array,
    ends: Array, alpha: float, times: Array, delay: Array, demand: Array,
) -> bool:  # fmt: skip
    """Operators one by one, each where it adds least (up to noise) beside those placed; false if one fits nowhere."""
    for i in range(len(x)):
        x[i] = -1
    for k in range(len(sequence)):
        i, least, best = sequence[k], np.inf, -1
        for v in range(node.shape[1]):
            if free[v] < demand[i] - TINY or not node[i, v] < np.inf:
                continue
            added = node[i, v] + alpha * times[i, v]
            for e in range(len(kind)):
                a, b = ends[e, 0], ends[e, 1]
                if a == i and x[b] >= 0:
                    added += link[kind[e], v, x[b]] + alpha * delay[v, x[b]]
                elif b == i and x[a] >= 0:
                    added += link[kind[e], x[a], v] + alpha * delay[x[a], v]
            if added < np.inf:
                added += noise * abs(added) * _random(random)
            if added < least:
                least, best = added, v
        if best < 0:
            return False
        x[i] = best
        free[best] -= demand[i]
    return True


@lean
def climb(
    x: Array, kept: Array, free: Array, ready: Array, random: Array, kicks: int, most: int, node: Array, link: Array,
    kind: Array, ends: Array, alpha: float, times: Array, delay: Array, order: Array, into: Array, edge_in: Array,
    rates: Array, bandwidth: Array, tight: bool, demand: Array,
) -> float:  # fmt: skip
    """Search from x until `kicks` in a row are in vain or `most` placements were looked at; the best ends up in x."""
    operators, nodes = node.shape
    now: float = value(
        x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates, bandwidth, tight
    )
    best, looked, failed = now, 0, 0
    copy(kept, x)
    while True:
        better = True
        while better and looked < most:
            better = False
            for i in range(operators):
                for v in range(nodes):
                    u = x[i]
                    if v == u or free[v] < demand[i] - TINY or not node[i, v] < np.inf:
                        continue
                    x[i] = v
                    looked += 1
                    new = value(x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates,
                                bandwidth, tight)  # fmt: skip
                    if new < now - 1e-12 * (1 + abs(new)):
                        now, better = new, True
                        free[u] += demand[i]
                        free[v] -= demand[i]
                    else:
                        x[i] = u
            for i in range(operators):
                for j in range(i):
                    u, v = x[i], x[j]
                    if u == v or not (node[i, v] < np.inf and node[j, u] < np.inf):
                        continue
                    more = demand[i] - demand[j]
                    if free[v] < more - TINY or free[u] < -more - TINY:
                        continue
                    x[i], x[j] = v, u
                    looked += 1
                    new = value(x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates,
                                bandwidth, tight)  # fmt: skip
                    if new < now - 1e-12 * (1 + abs(new)):
                        now, better = new, True
                        free[u] += more
                        free[v] -= more
                    else:
                        x[i], x[j] = u, v
            for u in range(nodes):
                for v in range(u):
                    here, there, may = 0.0, 0.0, True
                    for i in range(operators):
                        if x[i] == u:
                            here += demand[i]
                            may = may and node[i, v] < np.inf
                        elif x[i] == v:
                            there += demand[i]
                            may = may and node[i, u] < np.inf
                    if not may or here + there == 0:
                        continue
                    if free[v] + there - here < -TINY or free[u] + here - there < -TINY:
                        continue
                    for i in range(operators):
                        x[i] = v if x[i] == u else u if x[i] == v else x[i]
                    looked += 1
                    new = value(x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates,
                                bandwidth, tight)  # fmt: skip
                    if new < now - 1e-12 * (1 + abs(new)):
                        now, better = new, True
                        free[u] += here - there
                        free[v] += there - here
                    else:
                        for i in range(operators):
                            x[i] = v if x[i] == u else u if x[i] == v else x[i]
        failed += 1
        if now < best - 1e-12 * (1 + abs(best)):
            best, failed = now, 0
        if now <= best + 1e-12 * (1 + abs(best)):
            copy(kept, x)
        else:
            for i in range(operators):
                free[x[i]] += demand[i]
                free[kept[i]] -= demand[i]
            copy(x, kept)
        if failed >= kicks or looked >= most:
            return best
        moved, tried, wanted = 0, 0, 2 + int(3 * _random(random))
        while moved < wanted and tried < 40:
            tried += 1
            i, v = int(_random(random) * operators), int(_random(random) * nodes)
            if v != x[i] and free[v] >= demand[i] - TINY and node[i, v] < np.inf:
                free[x[i]] += demand[i]
                free[v] -= demand[i]
                x[i] = v
                moved += 1
        now = value(
            x, ready, node, link, kind, ends, alpha, times, delay, order, into, edge_in, rates, bandwidth, tight
        )
