"""A lower bound on all ways to complete a placement, compiled; `branch.py` says what its arrays hold.

What is placed, plus for each class the cheapest places that its members can have (or, if that says more, the cheapest
with a toll for capacity, less what the capacity left is worth), plus the slowest path through places of which the n-th
best is taken when n members need one.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import inlined, lean
from .kernels import TINY, Array


@inlined
def insert(best: Array, filled: int, most: int, value: float, copies: int) -> int:
    """Put copies of a value into the sorted list of the `most` least ones; returns how many it holds."""
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


@lean
def matched(count: Array, free: Array, price: Array, demand: Array, head: Array, work: Array) -> bool:
    """Whether all open operators can have a place at once, each as small as the smallest (augmenting paths).

    work, rows: 0 class of each operator, 1 its place, 2 those to look at; 3 places taken on each node, 4 whether it was
    seen, 5 the operator that it was seen from.
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
        while v >= 0:  # each moves on to the place it was seen from
            j = work[5, v]
            v, work[1, j] = work[1, j], v
    return True


@lean
def estimate(
    x: Array, free: Array, count: Array, closed: Array, limit: float, ready: Array, tail: Array, price: Array,
    length: Array, best: Array, summary: Array, node: Array, link: Array, kinds: Array, alpha: float, times: Array,
    delay: Array, demand: Array, order: Array, head: Array, up0: Array, down0: Array, pairs: Array, half: Array,
    toll: Array, work: Array,
) -> float:  # fmt: skip
    """A bound on every way to go on; fills price and length of each place of each open class.

    summary: 0 loss of what is placed, 1 slowest path so far, 2 cheapest rest, 3 bound on the slowest path, 4 whether
    the rest was found with tolls, from 5 on the dearest place taken for each class.
    """
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
    # Once more with tolls for capacity, which the classes share; all capacity left is worth its tolls.
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
    if alpha > 0.0:  # places that alone make a path too slow are of no use
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
        if kinds_open > 2 and 2 * kinds_open > members and not matched(count, free, price, demand, head, work):
            return np.inf
    summary[2], summary[3] = rest, farthest
    return placed + rest + alpha * farthest
