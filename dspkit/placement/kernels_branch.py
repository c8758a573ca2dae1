"""Branch and bound over any application, compiled; `branch.py` prepares its arrays and says what they hold.

Operators are placed one by one in a fixed order. Equal operators form a class: a node that one of them has tried is
closed to the others afterwards, so that no two orders of the same nodes are looked at. The last class, whose members are
all that is left, is placed at once, exactly (`_last`).

Lower bound: what is placed, plus for each class the cheapest places that its members can have, plus the slowest path
through places of which the n-th best is taken when n members need one.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import inlined, lean
from .kernels import TINY, Array, copy


@inlined
def _insert(best: Array, filled: int, most: int, value: float, copies: int) -> int:
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
def _room(free: float, demand: float, most: int) -> int:
    if demand <= 0.0:
        return most
    return min(most, int((free + TINY) / demand))


@lean
def estimate(
    x: Array, free: Array, count: Array, closed: Array, limit: float, ready: Array, tail: Array, price: Array,
    length: Array, best: Array, summary: Array, node: Array, link: Array, kinds: Array, alpha: float, times: Array,
    delay: Array, demand: Array, order: Array, head: Array, up0: Array, down0: Array, pairs: Array, half: Array,
    toll: Array,
) -> float:  # fmt: skip
    """A bound on every way to go on; fills price and length of each place of each open class.

    summary: 0 loss of what is placed, 1 slowest path so far, 2 cheapest rest, 3 bound on the slowest path, 4 whether the
    rest was found with tolls, from 5 on the dearest place taken for each class.
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
                filled = _insert(best, filled, count[g], price[g, v], _room(free[v], demand[i], count[g]))
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
                    filled = _insert(best, filled, count[g], value, _room(free[v], demand[i], count[g]))
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
                        room = _room(free[v], demand[head[g]], count[g])
                        filled = _insert(best, filled, count[g], length[g, v], room)
            if filled < count[g]:
                return np.inf
            farthest = max(farthest, best[count[g] - 1])
    summary[2], summary[3] = rest, farthest
    return placed + rest + alpha * farthest


@lean
def _last(
    count: int, operator: int, price: Array, length: Array, free: Array, demand: float, alpha: float, placed: float,
    slowest: float, floor: float, best: Array, take: Array, keep: Array, limit: float,
) -> float:  # fmt: skip
    """Place the members of the last class: the cheapest places, then the cheapest on ever shorter paths.

    Exact, since each price and length depends on nothing else that is open. The places taken are counted in keep.
    """
    nodes = len(price)
    bar, least = np.inf, limit
    while True:
        filled = 0
        for v in range(nodes):
            if price[v] < np.inf and length[v] < bar:
                filled = _insert(best, filled, count, price[v], _room(free[v], demand, count))
        if filled < count:
            return least
        dearest, total = best[count - 1], 0.0
        for k in range(count):
            total += best[k]
        left = 0  # of the places at the dearest price, as many as are still needed
        for k in range(count):
            if best[k] == dearest:
                left += 1
        reached = slowest
        for v in range(nodes):
            take[v] = 0
            if price[v] < np.inf and length[v] < bar and price[v] <= dearest:
                room = _room(free[v], demand, count)
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


@lean
def search(
    steps: int, state: Array, x: Array, free: Array, used: Array, count: Array, closed: Array, load: Array,
    child: Array, child_bound: Array, children: Array, position: Array, best_x: Array, best_loss: Array, gap: float,
    sequence: Array, last: int, ready: Array, tail: Array, price: Array, length: Array, best: Array, summary: Array,
    take: Array, keep: Array, node: Array, link: Array, kinds: Array, alpha: float, times: Array, delay: Array,
    demand: Array, order: Array, group: Array, head: Array, up0: Array, down0: Array, pairs: Array, half: Array,
    toll: Array, alike: Array, rate: Array, bandwidth: Array, tight: bool,
) -> int:  # fmt: skip
    """Look at up to `steps` more branches; 1 once all is proven, else 0. All that is needed to go on is in the arrays.

    state: 0 depth, 1 whether this depth is to be looked at, 2 branches so far.
    """
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
            bound = estimate(x, free, count, closed, cutoff, ready, tail, price, length, best, summary, node, link,
                              kinds, alpha, times, delay, demand, order, head, up0, down0, pairs, half, toll)  # fmt: skip
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
                found = _last(count[last], i, price[last], length[last], free, demand[i], alpha, summary[0],
                              summary[1], summary[3], best, take, keep, cutoff)  # fmt: skip
                if found < cutoff:
                    best_loss[0] = found
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
            if position[t] > 0:  # back from a child: its node, and nodes just like it, are done for this class
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
