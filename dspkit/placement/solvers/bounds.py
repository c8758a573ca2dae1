"""A lower bound on the loss of all completions of a partial placement, compiled.

The bound is the sum of

* the loss of the operators that are placed,
* for each class the cheapest places that its members can have; or, if that bound is greater, the cheapest places with a
  toll for capacity, less the value of the capacity left,
* the slowest path, in which a class of n members has the n-th best place.

`branch_and_bound.py` describes the arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.jit import allocation_free, inlined
from ...core.typing import Array
from ..arrays import TINY


class LossArrays(NamedTuple):
    """The loss and the graph; i and j are operators, u and v nodes."""

    node: Array  # [i, v] cost of i on v; inf where it may not be
    link: Array  # [kind, u, v] cost of a stream of this kind from u to v
    kinds: Array  # [i, j] kind of the stream from i to j, -1 where there is none
    alpha: float  # cost of a second of response time
    times: Array  # [i, v] seconds of i on v
    delay: Array  # [u, v]
    demand: Array  # [i]
    order: Array  # operators, downstream


class BoundTables(NamedTuple):
    """Tables computed before the search; g and h are classes of equal operators."""

    head: Array  # [g] first operator
    up0: Array  # [i, v] the least time from any source to the end of i on v
    down0: Array  # [i, v] the least time from the begin of i on v to any sink
    pairs: Array  # [g, h, v, n] the n cheapest places of class h as seen from an operator of g on v
    half: Array  # [g, h] share of `pairs` that g's bound counts
    toll: Array  # [v] price of capacity


class Partial(NamedTuple):
    """The operators that are placed, and what they leave."""

    x: Array  # [i] node, or -1
    free: Array  # [v] capacity
    members: Array  # [g] open operators
    closed: Array  # [g, v] depth + 1 at which v was closed to the class, 0: open


class Estimates(NamedTuple):
    """Results of `estimate` for a partial placement."""

    ready: Array  # [i] seconds from any source to the end of i; behind them, [g] most expensive places with tolls
    tail: Array  # [i] seconds from the begin of i to any sink
    price: Array  # [g, v] of the next member of the class on v; inf where it may not be
    length: Array  # [g, v] seconds of the slowest path through it
    best: Array  # a sorted list
    summary: Array  # 0 loss of what is placed, 1 slowest path so far, 2 cheapest rest, 3 bound on the slowest path, 4
    # whether the rest was found with tolls, from 5 on the most expensive place taken for each class
    work: Array  # of `matched`


@inlined
def insert(best: Array, filled: int, most: int, value: float, copies: int) -> int:
    """Insert copies of a value into the sorted list of the `most` least values; return the length of the list."""
    for _ in range(copies):
        if filled == most:
            if value >= best[most - 1]:
                return filled
            k = most - 1
        else:
            k = filled
            filled += 1
        while k > 0 and best[k - 1] > value:
            best[k] = best[k - 1]
            k -= 1
        best[k] = value
    return filled


@inlined
def room_for(free: float, demand: float, most: int) -> int:
    if demand <= 0.0:
        return most
    return min(most, int((free + TINY) / demand))


@allocation_free
def matched(  # noqa: C901  (compiled: augmenting paths in one loop)
    count: Array, free: Array, price: Array, demand: Array, head: Array, work: Array
) -> bool:
    """Return whether all open operators have room at once, each with the least demand of all (augmenting paths).

    Rows of `work`: 0 class of each operator, 1 its place, 2 queue of operators; 3 places taken on each node, 4 whether
    it was visited, 5 the operator from which it was visited.
    """
    nodes, members, least = len(free), 0, np.inf
    for g in range(len(count)):
        if demand[head[g]] > 0.0:
            least = min(least, demand[head[g]])
            for _ in range(count[g]):
                work[0, members], work[1, members] = g, -1
                members += 1
    for v in range(nodes):
        work[3, v] = 0
    for item in range(members):
        for v in range(nodes):
            work[4, v] = 0
        work[2, 0] = item
        first, last, found = 0, 1, -1
        while first < last and found < 0:
            j = work[2, first]
            first += 1
            for v in range(nodes):
                if work[4, v] == 1 or not price[work[0, j], v] < np.inf:
                    continue
                work[4, v], work[5, v] = 1, j
                if work[3, v] < room_for(free[v], least, members):
                    found = v
                    break
                for k in range(members):
                    if work[1, k] == v:
                        work[2, last] = k
                        last += 1
        if found < 0:
            return False
        work[3, found] += 1
        v = found
        while v >= 0:  # along the augmenting path, each operator takes the place that was reached from it
            j = work[5, v]
            v, work[1, j] = work[1, j], v
    return True


@allocation_free
def estimate(  # noqa: C901, PLR0915  (compiled: one pass over arrays that its parts share)
    open_: Partial, limit: float, loss: LossArrays, tables: BoundTables, found: Estimates
) -> float:
    """Return a bound on all completions; fill in price and length of each place of each open class."""
    x, free, count, closed = open_.x, open_.free, open_.members, open_.closed
    node, link, kinds, alpha = loss.node, loss.link, loss.kinds, loss.alpha
    times, delay, demand, order = loss.times, loss.delay, loss.demand, loss.order
    up0, down0, pairs, half, toll = tables.up0, tables.down0, tables.pairs, tables.half, tables.toll
    ready, tail, price, length = found.ready, found.tail, found.price, found.length
    best, summary, head = found.best, found.summary, tables.head
    operators, nodes = node.shape
    placed, slowest = 0.0, 0.0
    for k in range(operators):
        i = order[k]
        if x[i] < 0:
            continue
        placed += node[i, x[i]]
        latest, sure = 0.0, True
        for a in range(operators):
            if kinds[a, i] >= 0:
                if x[a] < 0:
                    sure = False
                else:
                    placed += link[kinds[a, i], x[a], x[i]]
                    if alpha > 0.0:
                        latest = max(latest, ready[a] + delay[x[a], x[i]])
        ready[i] = latest + times[i, x[i]]
        if not sure:
            ready[i] = max(ready[i], up0[i, x[i]])
    summary[0] = placed
    if not placed < np.inf:
        return np.inf
    if alpha > 0.0:
        for k in range(operators - 1, -1, -1):
            i = order[k]
            if x[i] < 0:
                continue
            onward, sure = 0.0, True
            for b in range(operators):
                if kinds[i, b] >= 0:
                    if x[b] < 0:
                        sure = False
                    else:
                        onward = max(onward, delay[x[i], x[b]] + tail[b])
            tail[i] = onward + times[i, x[i]]
            if not sure:
                tail[i] = max(tail[i], down0[i, x[i]])
            slowest = max(slowest, ready[i] + tail[i] - times[i, x[i]])
    summary[1] = slowest
    rest, farthest = 0.0, slowest
    for g in range(len(count)):
        if count[g] == 0:
            continue
        i = head[g]
        for v in range(nodes):
            price[g, v] = node[i, v] if closed[g, v] == 0 and free[v] >= demand[i] - TINY else np.inf
        sure_in, sure_out = True, True
        for v in range(nodes):
            ready_at, tail_at = 0.0, 0.0
            if not price[g, v] < np.inf:
                continue
            for a in range(operators):
                if x[a] < 0:
                    continue
                if kinds[a, i] >= 0:
                    price[g, v] += link[kinds[a, i], x[a], v]
                    ready_at = max(ready_at, ready[a] + delay[x[a], v])
                elif kinds[i, a] >= 0:
                    price[g, v] += link[kinds[i, a], v, x[a]]
                    tail_at = max(tail_at, delay[v, x[a]] + tail[a])
            length[g, v] = ready_at
            best[v] = tail_at
        for h in range(len(count)):
            if count[h] == 0 or h == g:
                continue
            j = head[h]
            if kinds[j, i] >= 0:
                sure_in = False
            elif kinds[i, j] >= 0:
                sure_out = False
            else:
                continue
            for v in range(nodes):
                price[g, v] += half[g, h] * pairs[g, h, v, count[h]]
        if alpha > 0.0:
            for v in range(nodes):
                if price[g, v] < np.inf:
                    t = times[i, v]
                    first = length[g, v] + t
                    then = best[v] + t
                    if not sure_in:
                        first = max(first, up0[i, v])
                    if not sure_out:
                        then = max(then, down0[i, v])
                    length[g, v] = first + then - t
        filled = 0
        for v in range(nodes):
            if price[g, v] < np.inf:
                filled = insert(best, filled, count[g], price[g, v], room_for(free[v], demand[i], count[g]))
        if filled < count[g]:
            return np.inf
        total = 0.0
        for k in range(count[g]):
            total += best[k]
        summary[5 + g] = best[count[g] - 1]
        if not total < np.inf:
            return np.inf
        rest += total
    # A second bound, with tolls for capacity, which the classes share; the tolls of all capacity left are deducted.
    tolled = 0.0
    for v in range(nodes):
        tolled -= toll[v] * free[v]
    for g in range(len(count)):
        if count[g] > 0:
            i, filled = head[g], 0
            for v in range(nodes):
                if price[g, v] < np.inf:
                    value = price[g, v] + demand[i] * toll[v]
                    filled = insert(best, filled, count[g], value, room_for(free[v], demand[i], count[g]))
            for k in range(count[g]):
                tolled += best[k]
            ready[operators + g] = best[count[g] - 1]
    summary[4] = 0.0
    if tolled > rest:
        rest = tolled
        summary[4] = 1.0
        for g in range(len(count)):
            if count[g] > 0:
                summary[5 + g] = ready[operators + g]
    if alpha > 0.0:  # exclude places that alone make a path too slow
        bar = (limit - placed - rest) / alpha
        for g in range(len(count)):
            if count[g] == 0:
                continue
            filled = 0
            for v in range(nodes):
                if price[g, v] < np.inf:
                    if length[g, v] > bar:
                        price[g, v] = np.inf
                    else:
                        room = room_for(free[v], demand[head[g]], count[g])
                        filled = insert(best, filled, count[g], length[g, v], room)
            if filled < count[g]:
                return np.inf
            farthest = max(farthest, best[count[g] - 1])
        kinds_open, members = 0, 0
        for g in range(len(count)):
            kinds_open += 1 if count[g] > 0 else 0
            members += count[g]
        if kinds_open > 2 and 2 * kinds_open > members and not matched(count, free, price, demand, head, found.work):
            return np.inf
    summary[2], summary[3] = rest, farthest
    return placed + rest + alpha * farthest
