"""Compiled: what a placement costs, and the best of its neighbours, by co-locating, swapping and moving.

The cost is the loss but for its constant. Everything here is numbers; the searches that use it are in `local.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .costs import Costs
from .problem import Problem

Array = np.ndarray[Any, Any]
MARGIN = 1e-12
STRATEGIES = ("co-locate", "swap", "move")


class Instance(NamedTuple):
    """A problem under an objective, as arrays. i is an operator, e a stream, u and v are nodes."""

    order: Array  # [i] topological
    into_at: Array  # streams into i are into[into_at[i]:into_at[i + 1]]
    into: Array
    ends: Array  # [e] the two operators
    rate: Array  # [e] records/s
    time: Array  # [i, u] seconds, times the weight of R
    node: Array  # [i, u] cost; infinite where i may not run
    link: Array  # [kind, u, v] cost; infinite where there is no link
    kind: Array  # [e] of stream
    delay: Array  # [u, v] seconds, times the weight of R
    demand: Array  # [i]
    capacity: Array  # [u]
    bandwidth: Array  # [u, v]
    responds: bool  # whether R counts
    limited: bool  # whether streams together could overfill a link


def instance(problem: Problem, costs: Costs) -> Instance:
    """The arrays of a problem under an objective."""
    app, net = problem.application, problem.network
    order = np.argsort(app.ends[:, 1], kind="stable")
    return Instance(
        np.array(app.order, np.int64),
        np.searchsorted(app.ends[order, 1], np.arange(len(app.operators) + 1)),
        order,
        app.ends,
        app.rate_per_s,
        np.ascontiguousarray(costs.response * problem.times_s),
        costs.node,
        np.ascontiguousarray(costs.link),
        costs.kind,
        costs.response * np.where(np.isfinite(net.delay_s), net.delay_s, 0.0),
        app.demand,
        net.capacity,
        net.bandwidth_per_s,
        costs.response > 0,
        bool((net.bandwidth_per_s < app.rate_per_s.sum()).any()),
    )


@njit(cache=True, nogil=True)
def cost(p, x, ready):  # type: ignore[no-untyped-def]
    """The cost of placement x; infinite where a stream has no link."""
    total = 0.0
    for i in range(len(x)):
        total += p.node[i, x[i]]
    for e in range(len(p.ends)):
        u, v = x[p.ends[e, 0]], x[p.ends[e, 1]]
        total += p.link[p.kind[e], u, v]
    if p.responds and total < np.inf:
        longest = 0.0
        for i in p.order:
            u = x[i]
            wait = 0.0
            for k in range(p.into_at[i], p.into_at[i + 1]):
                a = p.ends[p.into[k], 0]
                wait = max(wait, ready[a] + p.delay[x[a], u])
            ready[i] = wait + p.time[i, u]
            longest = max(longest, ready[i])
        total += longest
    return total


@njit(cache=True, nogil=True)
def carries(p, x):  # type: ignore[no-untyped-def]
    """Whether every link has the bandwidth for the streams over it."""
    for e in range(len(p.ends)):
        u, v = x[p.ends[e, 0]], x[p.ends[e, 1]]
        if u != v and p.bandwidth[u, v] < np.inf:
            carried = 0.0
            for f in range(len(p.ends)):
                if x[p.ends[f, 0]] == u and x[p.ends[f, 1]] == v:
                    carried += p.rate[f]
            if carried > p.bandwidth[u, v] * (1 + 1e-9) + 1e-9:
                return False
    return True


@njit(cache=True, nogil=True)
def _is_tabu(x, tabu):  # type: ignore[no-untyped-def]
    for row in range(len(tabu)):
        same = True
        for i in range(len(x)):
            if tabu[row, i] != x[i]:
                same = False
                break
        if same:
            return True
    return False


@njit(cache=True, nogil=True)
def _better(p, x, best, tabu, ready):  # type: ignore[no-untyped-def]
    """The cost of x if it beats `best`, keeps bandwidths and is not tabu; else `best`."""
    if p.limited and not carries(p, x):
        return best
    found = cost(p, x, ready)
    if found < best - MARGIN and not (len(tabu) and _is_tabu(x, tabu)):
        return found
    return best


@njit(cache=True, nogil=True)
def best_neighbour(p, x, strategy, nodes, movable, tabu, limit):  # type: ignore[no-untyped-def]
    """The first of the best neighbours that costs less than `limit`: (cost, what moves, to which node), or -1.

    What moves is an operator, under strategy 1 (swap) all that may move on a node.
    """
    n = len(x)
    ready, left = np.zeros(n), p.capacity.copy()
    hosts = np.zeros(len(left), np.int64)
    for i in range(n):
        left[x[i]] -= p.demand[i]
        hosts[x[i]] += 1
    best, what, to = limit, -1, -1
    if strategy == 0:
        for e in range(len(p.ends)):
            for k in range(2):
                i, v = p.ends[e, k], x[p.ends[e, 1 - k]]
                u = x[i]
                if u == v or not movable[i] or p.node[i, v] == np.inf or left[v] < p.demand[i] - 1e-9:
                    continue
                x[i] = v
                found = _better(p, x, best, tabu, ready)
                x[i] = u
                if found < best:
                    best, what, to = found, i, v
    elif strategy == 1:
        group = np.empty(n, np.int64)
        for u in range(len(left)):
            if hosts[u] == 0:
                continue
            size, demand = 0, 0.0
            for i in range(n):
                if x[i] == u and movable[i]:
                    group[size] = i
                    demand += p.demand[i]
                    size += 1
            if size == 0:
                continue
            for v in nodes:
                if hosts[v] or p.capacity[v] < demand - 1e-9:
                    continue
                fits = True
                for k in range(size):
                    fits = fits and p.node[group[k], v] < np.inf
                if not fits:
                    continue
                for k in range(size):
                    x[group[k]] = v
                found = _better(p, x, best, tabu, ready)
                for k in range(size):
                    x[group[k]] = u
                if found < best:
                    best, what, to = found, u, v
    else:
        for i in range(n):
            if not movable[i]:
                continue
            u = x[i]
            for v in nodes:
                if u == v or p.node[i, v] == np.inf or left[v] < p.demand[i] - 1e-9:
                    continue
                x[i] = v
                found = _better(p, x, best, tabu, ready)
                x[i] = u
                if found < best:
                    best, what, to = found, i, v
    return best, what, to


def moved(x: Array, movable: Array, strategy: int, what: int, to: int) -> Array:
    """The neighbour that `best_neighbour` named."""
    made: Array = x.copy()
    if strategy == 1:
        made[(x == what) & movable] = to
    else:
        made[what] = to
    return made
