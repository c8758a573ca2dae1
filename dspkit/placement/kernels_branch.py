"""Branch and bound over any application, compiled; `branch.py` prepares its arrays and says what they hold.

Operators are placed one by one in a fixed order. Equal operators form a class: a node that one of them has tried is
closed to the others afterwards, so that no two orders of the same nodes are looked at. The last class, whose members
are all that is left, is placed at once, exactly.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import lean
from .kernels import TINY, Array, copy
from .kernels_bound import estimate, insert, room_for


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
                filled = insert(best, filled, count, price[v], room_for(free[v], demand, count))
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


@lean
def search(
    steps: int, state: Array, x: Array, free: Array, used: Array, count: Array, closed: Array, load: Array,
    child: Array, child_bound: Array, children: Array, position: Array, best_x: Array, best_loss: Array, gap: float,
    sequence: Array, last: int, ready: Array, tail: Array, price: Array, length: Array, best: Array, summary: Array,
    take: Array, keep: Array, node: Array, link: Array, kinds: Array, alpha: float, times: Array, delay: Array,
    demand: Array, order: Array, group: Array, head: Array, up0: Array, down0: Array, pairs: Array, half: Array,
    toll: Array, work: Array, alike: Array, rate: Array, bandwidth: Array, tight: bool,
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
                             kinds, alpha, times, delay, demand, order, head, up0, down0, pairs, half,
                             toll, work)  # fmt: skip
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
