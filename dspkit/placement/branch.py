"""Branch and bound for any application: what the compiled search needs, and the watch over its time.

| here | what it holds |
|---|---|
| classes | equal operators: same needs, same neighbours, same costs; pinned ones are none, they are placed at once |
| sequence, last | operators to branch over, and the class that is placed exactly when it alone is left |
| `pairs[g, h, v, n]` | the n cheapest places of class h as seen from an operator of g on v; halves are bounds |
| `up0[i, v]`, `down0[i, v]` | the least time from any source to the end of i on v, and from its begin to any sink |
| alike | nodes that can be exchanged without changing anything |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .answer import Clock, Longer
from .check import violations
from .costs import Costs, equal_operators
from .kernels_bound import estimate
from .kernels_branch import search
from .problem import Array, Problem

STEPS = 20_000  # branches between two looks at the clock


def branch(
    problem: Problem, costs: Costs, x: Array, loss: float, clock: Clock, longer: Longer
) -> tuple[Array, float, float, int]:
    """The best placement, its loss, a bound on all others, and the branches looked at; x, loss: the best so far."""
    app, net = problem.application, problem.network
    operators, nodes = costs.node.shape
    tight = bool((net.bandwidth_per_s < app.rate_per_s.sum()).any())
    kinds = np.full((operators, operators), -1, np.int64)
    rate = np.zeros((operators, operators))
    for e, (a, b) in enumerate(app.ends.tolist()):
        kinds[a, b], rate[a, b] = costs.kind[e], app.rate_per_s[e]
    equal = equal_operators(problem, costs)
    single = np.isfinite(costs.node).sum(axis=1) == 1
    where = np.full(operators, -1, np.int64)
    free, used = net.capacity.copy(), np.zeros(nodes, np.int64)
    load = np.zeros((nodes, nodes))
    for i in np.flatnonzero(single):
        where[i] = np.isfinite(costs.node[i]).argmax()
        free[where[i]] -= app.demand[i]
        used[where[i]] += 1
    for a, b in app.ends.tolist():
        if where[a] >= 0 and where[b] >= 0:
            load[where[a], where[b]] += rate[a, b]
    if (free < -1e-9 * (1 + net.capacity)).any() or (load > net.bandwidth_per_s * (1 + 1e-9)).any():
        return x, loss, np.inf, 0
    head = list(dict.fromkeys(equal[i] for i in range(operators) if not single[i]))
    group = np.array([head.index(equal[i]) if not single[i] else -1 for i in range(operators)], np.int64)
    count = np.array([int((group == g).sum()) for g in range(len(head))], np.int64)
    last = -1 if tight or not len(head) else int(count.argmax())
    sequence = _sequence(costs, group, kinds, last)
    most = int(count.max(initial=1))
    alpha, delay = costs.response, net.delay_s
    up0, down0, pairs = _tables(problem, costs, kinds, head, group, count, most)
    half = np.full((len(head), len(head)), 0.5)
    depth = len(sequence)
    kept, least = np.array(x, np.int64), np.array([loss])
    state = np.array([0, 1, 0], np.int64)
    child_bound, children, position = (
        np.zeros((depth + 1, nodes)),
        np.zeros(depth + 1, np.int64),
        np.zeros(depth + 1, np.int64),
    )
    ready, tail = np.zeros(operators + len(head)), np.zeros(operators)
    price, length = np.full((len(head), nodes), np.inf), np.zeros((len(head), nodes))
    closed, best, summary = (
        np.zeros((len(head), nodes), np.int64),
        np.zeros(max(nodes, operators)),
        np.zeros(5 + len(head)),
    )
    graph = (costs.node, costs.link, kinds, alpha, problem.times_s, delay, app.demand, np.array(app.order, np.int64))
    classes, tables = np.array(head, np.int64), (up0, down0, pairs, half)
    toll, work = np.zeros(nodes), np.zeros((6, max(nodes, operators)), np.int64)
    open_ = (where, free, count, closed, np.inf, ready, tail, price, length, best, summary)
    if not estimate(*open_, *graph, classes, *tables, toll, work) < np.inf:
        return x, loss, np.inf, 0
    floor = -np.inf
    if len(head) > 1:
        toll = capacity_prices(price, count, app.demand[classes], free)
        if alpha:
            slowest, places = _bottleneck(price, length, group, app.demand, free)
            floor = summary[0] + summary[2] + alpha * max(slowest, summary[3])
            guess = np.where(where >= 0, where, places)
            worth = (
                costs.of(problem, guess) - costs.constant
                if places.min() >= 0 and not violations(problem, guess)
                else np.inf
            )
            if worth < least[0]:
                kept[:], least[0] = guess, worth
            if floor >= least[0] - clock.slack(float(least[0])):
                return kept, float(least[0]), float(least[0]), 1
    arrays: tuple[Any, ...] = (
        state, where, free, used, count, closed, load, np.zeros((depth + 1, nodes), np.int64), child_bound, children,
        position, kept, least, clock.gap, sequence, last, ready, tail, price, length, best, summary,
        np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), *graph, group, classes, *tables, toll, work,
        _alike(problem, costs, tight), rate, net.bandwidth_per_s, tight,
    )  # fmt: skip
    bound, steps = floor, 19_999
    while True:
        before = least[0]
        if search(steps, *arrays):
            return kept, float(least[0]), float(least[0]), int(state[2])
        if steps < STEPS:
            steps = STEPS
            other, its_loss = longer()
            if its_loss < least[0]:
                kept[:], least[0] = other, its_loss
        open_bounds = [
            child_bound[t, max(0, position[t] - 1)] for t in range(min(state[0] + 1, depth)) if children[t] > 0
        ]
        bound = max(bound, min(open_bounds, default=-np.inf))
        if least[0] < before:
            clock.tell(least[0], bound, kept)
        if clock.over:
            return kept, float(least[0]), float(min(bound, least[0])), int(state[2])


def _sequence(costs: Costs, group: Array, kinds: Array, last: int) -> Array:
    """Class by class: first those that matter to the loss, of these the ones most linked to what is placed."""
    linked = (kinds >= 0) | (kinds.T >= 0)
    matters = np.array([_spread(row) for row in costs.node]) > 0
    for kind, link in enumerate(costs.link):
        if costs.response or _spread(link) > 0:
            matters |= (kinds == kind).any(axis=0) | (kinds == kind).any(axis=1)
    placed = group == -1
    waiting = [g for g in range(int(group.max(initial=-1)) + 1) if g != last]
    found: list[int] = []
    while waiting:
        scores = [
            (
                bool(matters[group == g].any()),
                *(int(linked[group == g][:, to].sum()) for to in (placed, group == last)),
                -g,
            )
            for g in waiting
        ]
        g = waiting.pop(scores.index(max(scores)))
        found += np.flatnonzero(group == g).tolist()
        placed |= group == g
    return np.array(found, np.int64)


def _bottleneck(price: Array, length: Array, group: Array, demand: Array, free: Array) -> tuple[float, Array]:
    """The slowest path at least, if each operator has a place of its own, and such places (-1: none).

    By bisection over the lengths; each time an assignment of operators to places says whether those below suffice.
    """
    from scipy.optimize import linear_sum_assignment

    asks = np.flatnonzero((group >= 0) & (demand > 0))
    places = np.where(group >= 0, -1, 0)
    for i in np.flatnonzero((group >= 0) & (demand <= 0)):
        places[i] = np.where(price[group[i]] < np.inf, length[group[i]], np.inf).argmin()
    if not len(asks):
        return 0.0, places
    slots = np.minimum(np.floor((free + 1e-9) / demand[asks].min()), len(asks)).astype(int)
    node = np.repeat(np.arange(len(free)), slots)
    if len(node) < len(asks):
        return np.inf, places
    table = np.where(price[group[asks]] < np.inf, length[group[asks]], np.inf)[:, node]
    lengths = np.unique(table[np.isfinite(table)])
    low, high = 0, len(lengths)
    while low < high:
        middle = (low + high) // 2
        rows, columns = linear_sum_assignment(table > lengths[middle])
        if (table[rows, columns] <= lengths[middle]).all():
            high, places[asks[rows]] = middle, node[columns]
        else:
            low = middle + 1
    return float(lengths[low]) if low < len(lengths) else np.inf, places


def capacity_prices(price: Array, count: Array, demand: Array, free: Array) -> Array:
    """What capacity is worth before anything is placed: the dual of a transport problem."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    group, node = np.nonzero(np.isfinite(price))
    columns = np.arange(len(group))
    once = csr_matrix((np.ones(len(group)), (group, columns)), shape=(len(count), len(group)))
    used = csr_matrix((demand[group], (node, columns)), shape=(len(free), len(group)))
    solved = linprog(price[group, node], A_ub=used, b_ub=free, A_eq=once, b_eq=count, method="highs")
    if solved.status != 0:  # not even in shares: the search will find out
        return np.zeros(len(free))
    toll: Array = np.maximum(0.0, -solved.ineqlin.marginals)
    return toll


def _spread(costs: Array) -> float:
    finite = costs[np.isfinite(costs)]
    return float(np.ptp(finite)) if len(finite) else 0.0


def _tables(
    problem: Problem, costs: Costs, kinds: Array, head: list[int], group: Array, count: Array, most: int
) -> tuple[Array, Array, Array]:
    app, net = problem.application, problem.network
    nodes = len(net.nodes)
    pairs = np.zeros((len(head), len(head), nodes, most + 1))
    for g, i in enumerate(head):
        for h, j in enumerate(head):
            kind = max(kinds[i, j], kinds[j, i])
            if kind >= 0:
                link = costs.link[kind] if kinds[i, j] >= 0 else costs.link[kind].T
                pairs[g, h] = np.inf
                pairs[g, h, :, : count[h] + 1] = _cheapest(problem, costs, link, i, j, int(count[h]))
    up0, down0 = problem.times_s.copy(), problem.times_s.copy()
    if costs.response:
        for i in app.order:
            _longest(problem, costs, up0, i, app.upstream[i], net.delay_s.T, group)
        for i in reversed(app.order):
            _longest(problem, costs, down0, i, app.downstream[i], net.delay_s, group)
    return up0, down0, pairs


def _longest(problem: Problem, costs: Costs, times: Array, i: int, beside: Any, delay: Array, group: Array) -> None:
    """Add to the times of i the way from (or to) its neighbours: of n equal ones the n-th best place."""
    wait = np.zeros(len(problem.network.nodes))
    for a in beside:
        n = int((group == group[a]).sum()) if group[a] >= 0 else 1
        sums = _cheapest(problem, costs, delay + times[a][None, :], i, a, n)
        with np.errstate(invalid="ignore"):
            wait = np.maximum(wait, np.where(np.isfinite(sums[:, n]), sums[:, n] - sums[:, n - 1], np.inf))
    times[i] += wait


def _cheapest(problem: Problem, costs: Costs, link: Array, i: int, j: int, most: int) -> Array:
    """For i on each node (row): sums of the 0 to `most` least costs to operators like j, each having room."""
    demand, capacity = problem.application.demand, problem.network.capacity
    nodes = len(capacity)
    price = np.where(np.isfinite(costs.node[j])[None, :], link, np.inf)
    free = np.tile(capacity, (nodes, 1)) - np.diag(np.full(nodes, demand[i]))
    room = np.floor((free + 1e-9) / demand[j]) if demand[j] > 0 else np.where(free >= -1e-9, float(most), 0.0)
    order = price.argsort(axis=1, kind="stable")
    price = np.take_along_axis(price, order, axis=1)
    taken = np.take_along_axis(np.maximum(room, 0.0), order, axis=1).cumsum(axis=1)
    sums = np.zeros((nodes, most + 1))
    for n in range(1, most + 1):
        at = (taken < n).sum(axis=1)
        nth = np.where(at < nodes, price[np.arange(nodes), np.minimum(at, nodes - 1)], np.inf)
        sums[:, n] = sums[:, n - 1] + nth
    return sums


def _alike(problem: Problem, costs: Costs, tight: bool) -> Array:
    """The index of the first node that each can be exchanged with."""
    net = problem.network
    columns = [costs.node, problem.times_s] if costs.response else [costs.node]
    squares = [*costs.link, *([net.delay_s] if costs.response else []), *([net.bandwidth_per_s] if tight else [])]
    found = np.arange(len(net.nodes))
    first: dict[Any, list[int]] = {}
    for v in range(len(found)):
        key = (float(net.capacity[v]), *(np.ascontiguousarray(c[:, v]).tobytes() for c in columns),
               *(np.sort(line).tobytes() for m in squares for line in (m[v], m[:, v])))  # fmt: skip
        for u in first.setdefault(key, []):
            if all(_exchangeable(m, u, v) for m in squares):
                found[v] = u
                break
        else:
            first[key].append(v)
    return found


def _exchangeable(m: Array, u: int, v: int) -> bool:
    swap = np.arange(len(m))
    swap[[u, v]] = v, u
    return bool((m[np.ix_(swap, swap)] == m).all())
