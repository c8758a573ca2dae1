"""Local search from a seed, compiled: the initial placement of the exact solvers, by which they prune.

Moves: one operator to another node, an exchange of two operators, an exchange of all operators of two nodes. At a local
optimum a few random moves are made, and the search continues from there; worse results are undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...core.jit import allocation_free, inlined
from ...core.typing import Array
from ..arrays import TINY, copy

if TYPE_CHECKING:
    from ..objective import Costs
    from ..problem import Problem


class ProblemArrays(NamedTuple):
    """The objective, the graph and the limits of one problem; i is an operator, e a stream, u and v nodes."""

    node: Array  # [i, v] cost of i on v; inf where it may not be
    link: Array  # [kind, u, v] cost of a stream of this kind from u to v
    kind: Array  # [e]
    ends: Array  # [e, :] its operators
    alpha: float  # cost of a second of response time
    times: Array  # [i, v] seconds of i on v
    delay: Array  # [u, v]
    order: Array  # operators, downstream
    into: Array  # streams into i: edge_in[into[i]:into[i + 1]]
    edge_in: Array
    rates: Array  # [e] records/s
    bandwidth: Array  # [u, v] records/s
    tight: bool  # whether that could ever be too little
    demand: Array  # [i]
    capacity: Array  # [v]


def problem_arrays(problem: Problem, costs: Costs) -> ProblemArrays:
    """Return the arrays of a problem for the compiled searches."""
    app, net = problem.application, problem.network
    edge_in = np.argsort(app.ends[:, 1], kind="stable")
    into = np.searchsorted(app.ends[edge_in, 1], np.arange(len(app.operators) + 1))
    tight = bool((net.bandwidth_per_s < app.rate_per_s.sum()).any())
    return ProblemArrays(
        costs.node, costs.link, costs.kind, app.ends, costs.response, problem.times_s, net.delay_s,
        np.array(app.order, np.int64), into, edge_in, app.rate_per_s, net.bandwidth_per_s, tight, app.demand,
        net.capacity,
    )  # fmt: skip


@inlined
def _random(state: Array) -> float:
    """Return a random number, uniform in [0, 1), by Marsaglia's xorshift."""
    s = state[0]
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    state[0] = s
    return np.float64(s >> np.uint64(11)) / 9007199254740992.0


@inlined
def value(x: Array, ready: Array, arrays: ProblemArrays) -> float:  # noqa: C901  (compiled: one sum, in three parts)
    """Return the loss of a placement without its constant; infinite if a node, a link or bandwidth forbids it."""
    link, kind, ends, rates, bandwidth = arrays.link, arrays.kind, arrays.ends, arrays.rates, arrays.bandwidth
    alpha, times, delay, order, into, edge_in = (
        arrays.alpha,
        arrays.times,
        arrays.delay,
        arrays.order,
        arrays.into,
        arrays.edge_in,
    )
    total = 0.0
    for i in range(len(x)):
        total += arrays.node[i, x[i]]
    for e in range(len(kind)):
        total += link[kind[e], x[ends[e, 0]], x[ends[e, 1]]]
    if not total < np.inf:
        return np.inf
    if arrays.tight:
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


@allocation_free
def construct(x: Array, free: Array, sequence: Array, noise: float, random: Array, arrays: ProblemArrays) -> bool:
    """Place operators one by one, each where it adds the least loss (up to noise); return False if one fits nowhere."""
    node, link, kind, ends, alpha = arrays.node, arrays.link, arrays.kind, arrays.ends, arrays.alpha
    times, delay, demand = arrays.times, arrays.delay, arrays.demand
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


@allocation_free
def climb(  # noqa: C901, PLR0915  (compiled: three kinds of moves in one loop, which share their state)
    x: Array, kept: Array, free: Array, ready: Array, random: Array, kicks: int, most: int, arrays: ProblemArrays
) -> float:
    """Improve x until `kicks` kicks in a row fail or `most` placements were evaluated; return the least loss."""
    node, demand = arrays.node, arrays.demand
    operators, nodes = node.shape
    now: float = value(x, ready, arrays)
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
                    new = value(x, ready, arrays)
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
                    new = value(x, ready, arrays)
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
                    new = value(x, ready, arrays)
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
        now = value(x, ready, arrays)
