"""Branch and bound over deployments with replicas, compiled; `replica_branch.py` prepares its arrays.

Operators get their multisets one by one, downstream. What is still open is bounded by `kernels_onward.py`.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import compiled, lean
from .kernels import Array
from .kernels_onward import onward, rest


@compiled
def dig(
    steps: int, width: int, state: Array, cutoff: float,
    # what may be chosen: of each option its operator's first, nodes, counts, seconds, price, downtime, a bound
    first: Array, where: Array, counts: Array, support: Array, size: Array, seconds: Array, price: Array,
    moved: Array, bound: Array,
    # the graph: streams into each operator and out of it, and units of room it takes
    tails: Array, pred: Array, come: Array, heads: Array, succ: Array, via: Array, demand: Array, unit: Array,
    scale: float, extra: Array, single: Array, spread: Array,
    # the network, and what links and nodes cost in units of the loss, and in price
    delay: Array, nearest: Array, toll: Array, toll_ahead: Array, fare: Array, tolled: bool, node_loss: Array,
    link_loss: Array, linked: bool, rate: Array, width_per_s: Array, narrow: bool, support_only: bool,
    # weights and limits
    weight: float, idle: float, dearer: float, most_s: float, most_price: float, cheapest: Array,
    # the way to where the search stands
    chosen: Array, done: Array, reach: Array, free: Array, used: Array, pairs: Array, load: Array, share: Array,
    child: Array, child_bound: Array, children: Array, position: Array, best_rows: Array, best_loss: Array,
    # room for bounds, one for each of the three
    room: Array, arrive: Array, stay: Array, away: Array, here: Array, best: Array, nothing: Array, no_toll: Array,
    ways: Array, bars: Array, others: Array,
) -> int:  # fmt: skip
    """Look at up to `steps` more branches, at most `width` of each; 1 once there are none, else 0.

    Three bounds count: of the loss; below a limit of the response time, that no way takes longer; and of the loss if
    each second above the limit costs `dearer` more (Lagrange).

    state: 0 level, 1 whether it is to be looked at, 2 branches so far. done[level]: 0 extra, 1 downtime, 2 response
    at sinks, 3 price, 4 loss by links and nodes.
    """
    levels, nodes = len(tails) - 1, delay.shape[0]
    ways[0], ways[1], ways[2] = weight, 1.0, weight + dearer
    kinds = 1 if most_s == np.inf else 3 if dearer > 0.0 else 2
    for _ in range(steps):
        level = state[0]
        bar = best_loss[0] - max(cutoff, 1e-9) * abs(best_loss[0]) - 1e-12 if best_loss[0] < np.inf else np.inf
        bars[0], bars[1], bars[2] = bar, most_s, bar + dearer * most_s
        if state[1] == 0:  # on to the next child
            while level >= 0:
                at = position[level]
                if at < min(children[level], width) and child_bound[level, at] < bar:
                    break
                level -= 1
            if level < 0:
                return 1
            position[level] += 1
            o = child[level, position[level] - 1]
            _place(
                level, o, chosen, done, reach, free, used, pairs, load, share, where, counts, support, size, seconds,
                price, moved, first, tails, pred, come, heads, demand, extra, delay, toll, fare, tolled, node_loss,
                link_loss, linked, rate, narrow, support_only, nodes,
            )  # fmt: skip
            level += 1
            state[0] = level
        state[1] = 0
        state[2] += 1
        if level == levels:
            loss = weight * done[level, 2] + done[level, 0] + idle * done[level, 1] + done[level, 4]
            if loss < best_loss[0]:
                best_loss[0] = loss
                for k in range(levels):
                    best_rows[k] = chosen[k]
            state[0] = level - 1
            continue
        children[level] = 0
        position[level] = 0
        for v in range(nodes):
            room[v] = min(stay.shape[3] - 1, int(free[level, v] * scale + 1e-6))
        so_far = done[level, 0] + done[level, 4] + idle * done[level, 1]
        hopeless = False
        for b in range(kinds):
            if b == 0 and weight == 0.0 and not tolled:
                continue  # nothing is to come: its tables are all 0
            onward(
                level, room, ways[b], nothing if b == 1 else extra, unit, heads, succ, via, single, spread, delay,
                nearest, no_toll if b == 1 else toll_ahead, stay[b], away[b], here[b], best[b],
            )  # fmt: skip
            others[b] = ways[b] * done[level, 2]
            for p in range(level):
                for at in range(heads[p], heads[p + 1]):
                    s, least = succ[at], np.inf
                    if s > level:
                        for u in range(nodes):
                            if reach[p, u] < np.inf:
                                least = min(least, ways[b] * reach[p, u] + best[b, s, u])
                        others[b] = max(others[b], least)
            hopeless = hopeless or others[b] + (0.0 if b == 1 else so_far) > bars[b]
        if hopeless:
            state[0] = level - 1
            continue
        for u in range(nodes):
            arrive[u] = 0.0
            for at in range(tails[level], tails[level + 1]):
                arrive[u] = max(arrive[u], reach[pred[at], u])
        ended = heads[level] == heads[level + 1]
        found = 0
        for o in range(first[level], first[level + 1]):
            if bound[o] >= bar:
                break
            fits, came = True, 0.0
            for k in range(support[o]):
                u = where[o, k]
                if counts[o, k] * demand[level] > free[level, u] + 1e-12:
                    fits = False
                    break
                came = max(came, arrive[u])
            if not fits:
                continue
            ready = came + seconds[o]
            if not ready < np.inf or ready > most_s:
                continue
            n = size[o]
            more = so_far + extra[level, n] + idle * max(0.0, moved[o] - done[level, 1])
            if more + max(others[0], weight * ready) >= bar:
                continue
            paid = done[level, 3] + price[o] + cheapest[level + 1]
            if tolled or linked or narrow:
                loss_here, fare_here, passes = _links(
                    level, o, where, counts, support, size, tails, pred, come, share, toll, fare, node_loss, link_loss,
                    linked, used, pairs, load, rate, width_per_s, narrow, support_only, nodes,
                )  # fmt: skip
                if not passes:
                    continue
                more += loss_here
                paid += fare_here
            if paid > most_price:
                continue
            left = room[where[o, 0]] - counts[o, 0] * unit[level] if support[o] == 1 else 0
            low, hopeless = bound[o], False
            for b in range(kinds):
                after = (
                    0.0
                    if ended
                    else rest(level, where[o], support[o], left, ways[b], heads, succ, delay, stay[b], away[b], best[b])
                )
                least = max(others[b], ways[b] * ready + after) + (0.0 if b == 1 else more)
                if least > bars[b]:
                    hopeless = True
                    break
                if b != 1:
                    low = max(low, least - (dearer * most_s if b == 2 else 0.0))
            if hopeless or low >= bar:
                continue
            child[level, found], child_bound[level, found] = o, low
            found += 1
        if found == 0:
            state[0] = level - 1
            continue
        order = np.argsort(child_bound[level, :found], kind="mergesort")
        options, bounds = child[level, :found].copy(), child_bound[level, :found].copy()
        for k in range(found):
            child[level, k], child_bound[level, k] = options[order[k]], bounds[order[k]]
        children[level] = found
    return 0


@lean
def _links(
    level: int, o: int, where: Array, counts: Array, support: Array, size: Array, tails: Array, pred: Array,
    come: Array, share: Array, toll: Array, fare: Array, node_loss: Array, link_loss: Array, linked: bool,
    used: Array, pairs: Array, load: Array, rate: Array, width_per_s: Array, narrow: bool, support_only: bool,
    nodes: int,
) -> tuple[float, float, bool]:  # fmt: skip
    """Loss and price that an option adds by its links and new nodes, and whether its links are wide enough."""
    loss, paid = 0.0, 0.0
    if linked:
        for k in range(support[o]):
            if used[level, where[o, k]] == 0:
                loss += node_loss[where[o, k]]
    for at in range(tails[level], tails[level + 1]):
        p, e = pred[at], come[at]
        for k in range(support[o]):
            v = where[o, k]
            mine = (1.0 if support_only else counts[o, k]) / size[o]
            for u in range(nodes):
                part = share[p, u] * mine
                if part > 0.0:
                    loss += part * toll[e, u, v]
                    paid += part * fare[e, u, v]
                    if narrow and u != v:
                        sent = load[level, u, v] + part * rate[e]
                        for before in range(tails[level], at):  # two streams into the same operator share the link
                            sent += share[pred[before], u] * mine * rate[come[before]]
                        if sent > width_per_s[u, v]:
                            return loss, paid, False
                    if linked and pairs[level, u, v] == 0:
                        new = True
                        for before in range(tails[level], at):
                            if share[pred[before], u] > 0.0:
                                new = False
                        if new:
                            loss += link_loss[u, v]
    return loss, paid, True


@lean
def _place(
    level: int, o: int, chosen: Array, done: Array, reach: Array, free: Array, used: Array, pairs: Array, load: Array,
    share: Array, where: Array, counts: Array, support: Array, size: Array, seconds: Array, price: Array,
    moved: Array, first: Array, tails: Array, pred: Array, come: Array, heads: Array, demand: Array, extra: Array,
    delay: Array, toll: Array, fare: Array, tolled: bool, node_loss: Array, link_loss: Array, linked: bool,
    rate: Array, narrow: bool, support_only: bool, nodes: int,
) -> None:  # fmt: skip
    """Go one level down by option o."""
    chosen[level] = o
    for k in range(5):
        done[level + 1, k] = done[level, k]
    came = 0.0
    for k in range(support[o]):
        for at in range(tails[level], tails[level + 1]):
            came = max(came, reach[pred[at], where[o, k]])
    ready = came + seconds[o]
    for u in range(nodes):
        far = 0.0
        for k in range(support[o]):
            far = max(far, delay[where[o, k], u])
        reach[level, u] = ready + far
        free[level + 1, u] = free[level, u]
        used[level + 1, u] = used[level, u]
    if heads[level] == heads[level + 1]:
        done[level + 1, 2] = max(done[level, 2], ready)
    done[level + 1, 0] += extra[level, size[o]]
    done[level + 1, 1] = max(done[level, 1], moved[o])
    done[level + 1, 3] += price[o]
    for k in range(support[o]):
        free[level + 1, where[o, k]] -= counts[o, k] * demand[level]
    if not (tolled or linked or narrow):
        return
    loss, paid, _ = _links(
        level, o, where, counts, support, size, tails, pred, come, share, toll, fare, node_loss, link_loss, linked,
        used, pairs, load, rate, load[level], False, support_only, nodes,
    )  # fmt: skip
    done[level + 1, 4] += loss
    done[level + 1, 3] += paid
    for u in range(nodes):
        share[level, u] = 0.0
        for v in range(nodes):
            pairs[level + 1, u, v] = pairs[level, u, v]
            load[level + 1, u, v] = load[level, u, v]
    for k in range(support[o]):
        v = where[o, k]
        used[level + 1, v] = 1
        mine = (1.0 if support_only else counts[o, k]) / size[o]
        share[level, v] = mine
        for at in range(tails[level], tails[level + 1]):
            for u in range(nodes):
                part = share[pred[at], u] * mine
                if part > 0.0:
                    pairs[level + 1, u, v] = 1
                    load[level + 1, u, v] += part * rate[come[at]]
