"""Branch and bound for any application: the arrays, the compiled search, and its time limit.

Operators are placed one by one in a fixed order. Equal operators form a class: a node that one of them has tried is
closed to the others afterwards, so that no two permutations of the same nodes are searched. Once only one class is
left, it is placed exactly in one step. `bounds.py` has the lower bound.

| array | contents |
|---|---|
| classes | equal operators: same demand, neighbours and costs; pinned operators have no class, they are placed first |
| `sequence`, `last` | operators to branch over, and the class that is placed exactly when it alone is left |
| `pairs[g, h, v, n]` | cost of the n cheapest places of class h, for an operator of class g on v; half of it bounds |
| `up0[i, v]`, `down0[i, v]` | least time from any source to the end of i on v, and from its start to any sink |
| `alike` | nodes that can be exchanged without changing the problem |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.jit import allocation_free
from ...core.typing import Array
from ..arrays import TINY, copy
from ..certificate import violations
from ..objective import Costs, equal_operators
from ..problem import Problem
from ..solution import Clock, Longer
from .bounds import BoundTables, Estimates, LossArrays, Partial, estimate, insert, room_for


@allocation_free
def _last(  # noqa: C901  (compiled: one loop over ever shorter paths)
    count: int,
    price: Array,
    length: Array,
    free: Array,
    demand: float,
    alpha: float,
    summary: Array,
    best: Array,
    take: Array,
    keep: Array,
    limit: float,
) -> float:
    """Place the members of the last class: on the cheapest places, then on the cheapest ones with shorter paths.

    This is exact, as no price or length depends on another open operator. `keep` counts the places taken; the least
    loss is returned.
    """
    nodes, placed, slowest, floor = len(price), summary[0], summary[1], summary[3]
    bar, least = np.inf, limit
    while True:
        filled = 0
        for v in range(nodes):
            if price[v] < np.inf and length[v] < bar:
                filled = insert(best, filled, count, price[v], room_for(free[v], demand, count))
        if filled < count:
            return least
        dearest, total = best[count - 1], 0.0
        for k in range(count):
            total += best[k]
        left = 0  # number of places needed at the highest price taken
        for k in range(count):
            if best[k] == dearest:
                left += 1
        reached = slowest
        for v in range(nodes):
            take[v] = 0
            if price[v] < np.inf and length[v] < bar and price[v] <= dearest:
                room = room_for(free[v], demand, count)
                if price[v] == dearest:
                    room = min(room, left)
                    left -= room
                take[v] = room
                if room > 0:
                    reached = max(reached, length[v])
        value = placed + total + alpha * reached
        if value < least:
            least = value
            copy(keep, take)
        if alpha == 0.0 or reached <= slowest or placed + total + alpha * max(slowest, floor) >= least:
            return least
        bar = reached


class Classes(NamedTuple):
    """Equal operators: same needs, same neighbours, same costs; pinned ones are in none, they are placed at once."""

    sequence: Array  # operators to branch over
    last: int  # the class that is placed exactly when it alone is left, or -1
    group: Array  # [i] class, or -1
    alike: Array  # [v] first node that v can be exchanged with


class Occupation(NamedTuple):
    """Nodes and links as the placed operators use them."""

    used: Array  # [v] operators
    load: Array  # [u, v] records/s
    rate: Array  # [i, j] records/s of the stream from i to j
    bandwidth: Array  # [u, v] records/s
    tight: bool  # whether that could ever be too little


class PlacementTree(NamedTuple):
    """The branches that are open, and the best placement; t is a depth."""

    state: Array  # 0 depth, 1 whether this depth is to be looked at, 2 branches so far
    child: Array  # [t, :] nodes by their bound
    child_bound: Array
    children: Array  # [t] their number
    position: Array  # [t] children looked at
    best_x: Array
    best_loss: Array
    take: Array  # [v] members of the last class, tried
    keep: Array  # [v] and chosen


@allocation_free
def search(  # noqa: C901, PLR0915  (compiled: one loop over branches, whose parts share their arrays)
    steps: int,
    gap: float,
    arrays: LossArrays,
    classes: Classes,
    tables: BoundTables,
    placed: Partial,
    occupied: Occupation,
    found: Estimates,
    tree: PlacementTree,
) -> int:
    """Search up to `steps` more branches; return 1 once the search is complete, else 0.

    The state of the search is in the arrays, so that another call continues it.
    """
    node, kinds, alpha, demand = arrays.node, arrays.kinds, arrays.alpha, arrays.demand
    used, load, rate = occupied.used, occupied.load, occupied.rate
    bandwidth, tight, toll, head = occupied.bandwidth, occupied.tight, tables.toll, tables.head
    sequence, last, group, alike = classes.sequence, classes.last, classes.group, classes.alike
    x, free, count, closed = placed.x, placed.free, placed.members, placed.closed
    price, length, summary = found.price, found.length, found.summary
    state, child, child_bound, children = tree.state, tree.child, tree.child_bound, tree.children
    position, best_x, best_loss, keep = tree.position, tree.best_x, tree.best_loss, tree.keep
    operators, nodes = node.shape
    depth_end = len(sequence)
    for _ in range(steps):
        t = state[0]
        cutoff = best_loss[0] - max(gap * abs(best_loss[0]), 1e-9 * abs(best_loss[0]) + 1e-13)
        if best_loss[0] == np.inf:
            cutoff = np.inf
        if state[1] == 1:
            state[1], state[2] = 0, state[2] + 1
            position[t] = 0
            children[t] = 0
            bound = estimate(placed, cutoff, arrays, tables, found)
            if bound >= cutoff:
                continue
            if t == depth_end:
                if last < 0:
                    best_loss[0] = bound
                    copy(best_x, x)
                    continue
                for v in range(nodes):
                    keep[v] = 0
                i = head[last]
                least = _last(
                    count[last],
                    price[last],
                    length[last],
                    free,
                    demand[i],
                    alpha,
                    summary,
                    found.best,
                    tree.take,
                    keep,
                    cutoff,
                )
                if least < cutoff:
                    best_loss[0] = least
                    copy(best_x, x)
                    v = 0
                    for j in range(operators):
                        if x[j] < 0:
                            while keep[v] == 0:
                                v += 1
                            best_x[j] = v
                            keep[v] -= 1
                continue
            i = sequence[t]
            g = group[i]
            dearest = summary[5 + g]
            made = 0
            for v in range(nodes):
                if not price[g, v] < np.inf:
                    continue
                asked = price[g, v] + (demand[i] * toll[v] if summary[4] > 0.0 else 0.0)
                below = summary[0] + summary[2] + max(0.0, asked - dearest)
                below += alpha * (max(summary[3], length[g, v]) if alpha > 0.0 else 0.0)
                if below >= cutoff:
                    continue
                twin = False
                if used[v] == 0:
                    for k in range(made):
                        u = child[t, k]
                        if alike[u] == alike[v] and used[u] == 0:
                            twin = True
                            for h in range(len(count)):
                                twin = twin and (closed[h, u] > 0) == (closed[h, v] > 0)
                            if twin:
                                break
                if twin:
                    continue
                k = made
                while k > 0 and child_bound[t, k - 1] > below:
                    child_bound[t, k] = child_bound[t, k - 1]
                    child[t, k] = child[t, k - 1]
                    k -= 1
                child[t, k] = v
                child_bound[t, k] = below
                made += 1
            children[t] = made
            continue
        if t < depth_end:
            i = sequence[t]
            g = group[i]
            if position[t] > 0:  # after a child, close its node, and nodes like it, to this class
                v = child[t, position[t] - 1]
                if closed[g, v] == 0:
                    if used[v] == 0:
                        for u in range(nodes):
                            if u != v and alike[u] == alike[v] and used[u] == 0 and closed[g, u] == 0:
                                same = True
                                for h in range(len(count)):
                                    same = same and (closed[h, u] > 0) == (closed[h, v] > 0)
                                if same:
                                    closed[g, u] = t + 1
                    closed[g, v] = t + 1
            if position[t] < children[t] and child_bound[t, position[t]] < cutoff:
                v = child[t, position[t]]
                position[t] += 1
                fits = True
                if tight:
                    for a in range(operators):
                        if x[a] >= 0 and x[a] != v:
                            if kinds[a, i] >= 0:
                                load[x[a], v] += rate[a, i]
                                fits = fits and load[x[a], v] <= bandwidth[x[a], v] * (1 + TINY)
                            elif kinds[i, a] >= 0:
                                load[v, x[a]] += rate[i, a]
                                fits = fits and load[v, x[a]] <= bandwidth[v, x[a]] * (1 + TINY)
                x[i] = v
                free[v] -= demand[i]
                used[v] += 1
                count[g] -= 1
                state[0] = t + 1
                state[1] = 1 if fits else 0
                if not fits:
                    children[t + 1] = 0
                    position[t + 1] = 0
                continue
            for v in range(nodes):
                if closed[g, v] == t + 1:
                    closed[g, v] = 0
        if t == 0:
            return 1
        i = sequence[t - 1]
        v = x[i]
        x[i] = -1
        free[v] += demand[i]
        used[v] -= 1
        count[group[i]] += 1
        if tight:
            for a in range(operators):
                if x[a] >= 0 and x[a] != v:
                    if kinds[a, i] >= 0:
                        load[x[a], v] -= rate[a, i]
                    elif kinds[i, a] >= 0:
                        load[v, x[a]] -= rate[i, a]
        state[0] = t - 1
    return 0


STEPS = 20_000  # branches between two readings of the clock


def branch(
    problem: Problem, costs: Costs, x: Array, loss: float, clock: Clock, longer: Longer
) -> tuple[Array, float, float, int]:
    """Return the best placement, its loss, a lower bound, and the number of branches; x, loss: the best so far."""
    arrays = _loss_arrays(problem, costs)
    equal = equal_operators(problem, costs)
    pinned = np.isfinite(costs.node).sum(axis=1) == 1
    head = list(dict.fromkeys(equal[i] for i in range(len(pinned)) if not pinned[i]))
    group = np.array([head.index(equal[i]) if not pinned[i] else -1 for i in range(len(pinned))], np.int64)
    count = np.array([int((group == g).sum()) for g in range(len(head))], np.int64)
    placed, occupied = _pinned(problem, costs, pinned, count)
    width = occupied.bandwidth
    if (placed.free < -1e-9 * (1 + problem.network.capacity)).any() or (occupied.load > width * (1 + 1e-9)).any():
        return x, loss, np.inf, 0
    tables, found = _tables(problem, costs, arrays, group, head, count), _estimates(problem, len(head))
    if not estimate(placed, np.inf, arrays, tables, found) < np.inf:
        return x, loss, np.inf, 0
    kept, least, floor = np.array(x, np.int64), np.array([loss]), -np.inf
    if len(head) > 1:
        tables.toll[:] = capacity_prices(found.price, count, arrays.demand[tables.head], placed.free)
        if arrays.alpha:
            floor, guess, worth = _first_bound(problem, costs, arrays, group, placed, found)
            if worth < least[0]:
                kept[:], least[0] = guess, worth
            if floor >= least[0] - clock.slack(float(least[0])):
                return kept, float(least[0]), float(least[0]), 1
    last = -1 if occupied.tight or not len(head) else int(count.argmax())
    sequence = _sequence(costs, group, arrays.kinds, last)
    classes = Classes(sequence, last, group, _alike(problem, costs, occupied.tight))
    depth, nodes = len(sequence), len(placed.free)
    tree = PlacementTree(
        np.array([0, 1, 0], np.int64),
        np.zeros((depth + 1, nodes), np.int64),
        np.zeros((depth + 1, nodes)),
        np.zeros(depth + 1, np.int64),
        np.zeros(depth + 1, np.int64),
        kept,
        least,
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int64),
    )
    return _searched((arrays, classes, tables, placed, occupied, found, tree), floor, clock, longer)


def _searched(work: tuple[Any, ...], floor: float, clock: Clock, longer: Longer) -> tuple[Array, float, float, int]:
    """Search to the end, or until the time is over."""
    tree: PlacementTree = work[-1]
    state, kept, least = tree.state, tree.best_x, tree.best_loss
    bound, steps, depth = floor, STEPS - 1, len(tree.children) - 1
    while True:
        before = least[0]
        if search(steps, clock.gap, *work):
            return kept, float(least[0]), float(least[0]), int(state[2])
        if steps < STEPS:  # after the first steps, once
            steps = STEPS
            other, its_loss = longer()
            if its_loss < least[0]:
                kept[:], least[0] = other, its_loss
        open_bounds = [
            tree.child_bound[t, max(0, tree.position[t] - 1)]
            for t in range(min(state[0] + 1, depth))
            if tree.children[t] > 0
        ]
        bound = max(bound, min(open_bounds, default=-np.inf))
        if least[0] < before:
            clock.tell(least[0], bound, kept)
        if clock.over:
            return kept, float(least[0]), float(min(bound, least[0])), int(state[2])


def _loss_arrays(problem: Problem, costs: Costs) -> LossArrays:
    app = problem.application
    kinds = np.full((len(costs.node), len(costs.node)), -1, np.int64)
    kinds[app.ends[:, 0], app.ends[:, 1]] = costs.kind
    return LossArrays(
        costs.node,
        costs.link,
        kinds,
        costs.response,
        problem.times_s,
        problem.network.delay_s,
        app.demand,
        np.array(app.order, np.int64),
    )


def _pinned(problem: Problem, costs: Costs, pinned: Array, count: Array) -> tuple[Partial, Occupation]:
    """Place the operators that can be in one place only."""
    app, net = problem.application, problem.network
    nodes = len(net.nodes)
    where = np.full(len(pinned), -1, np.int64)
    free, used, load = net.capacity.copy(), np.zeros(nodes, np.int64), np.zeros((nodes, nodes))
    rate = np.zeros((len(pinned), len(pinned)))
    rate[app.ends[:, 0], app.ends[:, 1]] = app.rate_per_s
    for i in np.flatnonzero(pinned):
        where[i] = np.isfinite(costs.node[i]).argmax()
        free[where[i]] -= app.demand[i]
        used[where[i]] += 1
    for a, b in app.ends.tolist():
        if where[a] >= 0 and where[b] >= 0:
            load[where[a], where[b]] += rate[a, b]
    tight = bool((net.bandwidth_per_s < app.rate_per_s.sum()).any())
    closed = np.zeros((len(count), nodes), np.int64)
    return Partial(where, free, count, closed), Occupation(used, load, rate, net.bandwidth_per_s, tight)


def _estimates(problem: Problem, classes: int) -> Estimates:
    operators, nodes = len(problem.application.operators), len(problem.network.nodes)
    return Estimates(
        np.zeros(operators + classes),
        np.zeros(operators),
        np.full((classes, nodes), np.inf),
        np.zeros((classes, nodes)),
        np.zeros(max(nodes, operators)),
        np.zeros(5 + classes),
        np.zeros((6, max(nodes, operators)), np.int64),
    )


def _first_bound(
    problem: Problem, costs: Costs, arrays: LossArrays, group: Array, placed: Partial, found: Estimates
) -> tuple[float, Array, float]:
    """A bound by the slowest path, a placement that comes from it, and its loss (inf if it is not feasible)."""
    slowest, places = _bottleneck(found.price, found.length, group, arrays.demand, placed.free)
    floor = found.summary[0] + found.summary[2] + arrays.alpha * max(slowest, found.summary[3])
    guess = np.where(placed.x >= 0, placed.x, places)
    if places.min() < 0 or violations(problem, guess):
        return floor, guess, np.inf
    return floor, guess, costs.of(problem, guess) - costs.constant


def _sequence(costs: Costs, group: Array, kinds: Array, last: int) -> Array:
    """Return the operators class by class: first those that affect the loss, the most linked to placed ones first."""
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
    """Return a bound on the slowest path if each operator has a place of its own, and such places (-1: none).

    The bound is found by bisection over the lengths: an assignment of operators to places shows whether the places
    below a length suffice.
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
    """Return the prices of capacity before the search: the dual of a transport problem."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    group, node = np.nonzero(np.isfinite(price))
    columns = np.arange(len(group))
    once = csr_matrix((np.ones(len(group)), (group, columns)), shape=(len(count), len(group)))
    used = csr_matrix((demand[group], (node, columns)), shape=(len(free), len(group)))
    solved = linprog(price[group, node], A_ub=used, b_ub=free, A_eq=once, b_eq=count, method="highs")
    if solved.status != 0:  # infeasible even with fractions: the search will report it
        return np.zeros(len(free))
    toll: Array = np.maximum(0.0, -solved.ineqlin.marginals)
    return toll


def _spread(costs: Array) -> float:
    finite = costs[np.isfinite(costs)]
    return float(np.ptp(finite)) if len(finite) else 0.0


def _tables(
    problem: Problem, costs: Costs, arrays: LossArrays, group: Array, head: list[int], count: Array
) -> BoundTables:
    app, net = problem.application, problem.network
    nodes = len(net.nodes)
    kinds = arrays.kinds
    pairs = np.zeros((len(head), len(head), nodes, int(count.max(initial=1)) + 1))
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
    half = np.full((len(head), len(head)), 0.5)
    return BoundTables(np.array(head, np.int64), up0, down0, pairs, half, np.zeros(nodes))


def _longest(problem: Problem, costs: Costs, times: Array, i: int, beside: Any, delay: Array, group: Array) -> None:
    """Add to the times of i those from (or to) its neighbours: with n equal ones, that of the n-th best place."""
    wait = np.zeros(len(problem.network.nodes))
    for a in beside:
        n = int((group == group[a]).sum()) if group[a] >= 0 else 1
        sums = _cheapest(problem, costs, delay + times[a][None, :], i, a, n)
        with np.errstate(invalid="ignore"):
            wait = np.maximum(wait, np.where(np.isfinite(sums[:, n]), sums[:, n] - sums[:, n - 1], np.inf))
    times[i] += wait


def _cheapest(problem: Problem, costs: Costs, link: Array, i: int, j: int, most: int) -> Array:
    """Return, for i on each node (row), the sums of the 0 to `most` least costs to operators like j that have room."""
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
    """Return for each node the index of the first one that it can be exchanged with."""
    net = problem.network
    columns = [costs.node, problem.times_s] if costs.response else [costs.node]
    squares = [*costs.link, *([net.delay_s] if costs.response else []), *([net.bandwidth_per_s] if tight else [])]
    found = np.arange(len(net.nodes))
    first: dict[Any, list[int]] = {}
    for v in range(len(found)):
        key = (
            float(net.capacity[v]),
            *(np.ascontiguousarray(c[:, v]).tobytes() for c in columns),
            *(np.sort(line).tobytes() for m in squares for line in (m[v], m[:, v])),
        )
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
