"""What is still open of a deployment with replicas costs at least, compiled; `kernels_replicas.py` searches by it.

Shortest ways from one representative replica to the next, over nodes that have room. A way may stay on a node for as
long as the node's room lasts, then it has to hop; a multiset on several nodes always hops. That is less than any
deployment takes, as the slowest pair of replicas is at least as far apart as the two that represent them, and as ways
forget what they filled.
"""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import lean
from .kernels import Array


@lean
def onward(
    first: int, room: Array, weight: float, extra: Array, unit: Array, heads: Array, succ: Array, via: Array,
    single: Array, spread: Array, delay: Array, nearest: Array, toll: Array, stay: Array, away: Array, here: Array,
    best: Array,
) -> None:  # fmt: skip
    """What operators from `first` on and the ways after them cost at least, over the nodes' room.

    stay[j, v, c]: after j, all of it on v, with c units of v left; away[j, v]: after j on v and elsewhere.
    here[j, v]: j, all of it on v, and after; best[j, v]: the same, or v is one of several nodes.
    """
    nodes, most = len(room), stay.shape[2]
    for j in range(len(heads) - 2, first - 1, -1):
        stay[j] = 0.0
        away[j] = 0.0
        for at in range(heads[j], heads[j + 1]):
            s, e = succ[at], via[at]
            for v in range(nodes):
                hop, from_many = np.inf, np.inf
                for u in range(nodes):
                    if u != v and best[s, u] < np.inf and delay[v, u] < np.inf:
                        far = weight * delay[v, u]
                        from_many = min(from_many, far + best[s, u])
                        hop = min(hop, far + min(here[s, u] + toll[e, v, u], away[s, nodes + u]))
                if nearest[v] < np.inf:
                    from_many = min(from_many, weight * nearest[v] + here[s, v])
                away[j, v] = max(away[j, v], from_many)
                for c in range(most):
                    least = hop
                    for n in range(1, single.shape[1]):
                        if n * unit[s] <= c and single[s, n, v] < np.inf:
                            last = weight * single[s, n, v] + extra[s, n] + stay[s, v, c - n * unit[s]]
                            least = min(least, last)
                    stay[j, v, c] = max(stay[j, v, c], least)
        for v in range(nodes):
            least, many = np.inf, np.inf
            for n in range(1, single.shape[1]):
                if n * unit[j] <= room[v] and single[j, n, v] < np.inf:
                    least = min(least, weight * single[j, n, v] + extra[j, n] + stay[j, v, room[v] - n * unit[j]])
                if unit[j] <= room[v] and spread[j, n, v] < np.inf:
                    many = min(many, weight * spread[j, n, v] + extra[j, n] + away[j, v])
            here[j, v], away[j, nodes + v] = least, many
            best[j, v] = min(least, many)


@lean
def rest(
    level: int, nodes_of: Array, count: int, left: int, weight: float, heads: Array, succ: Array, delay: Array,
    stay: Array, away: Array, best: Array,
) -> float:  # fmt: skip
    """What comes after an operator that was just placed on these nodes, at least."""
    if count == 1:
        return stay[level, nodes_of[0], left]  # type: ignore[no-any-return]
    found = 0.0
    for k in range(count):
        found = max(found, away[level, nodes_of[k]])
    for at in range(heads[level], heads[level + 1]):
        s, least = succ[at], np.inf
        for u in range(delay.shape[0]):
            if best[s, u] < least:
                far = 0.0
                for k in range(count):
                    far = max(far, delay[nodes_of[k], u])
                if far < np.inf:
                    least = min(least, weight * far + best[s, u])
        found = max(found, least)
    return found


@lean
def bounds(
    first: Array, where: Array, counts: Array, support: Array, size: Array, seconds: Array, moved: Array, bound: Array,
    room: Array, constant: float, weight: float, idle: float, unit: Array, extra: Array, heads: Array, succ: Array,
    delay: Array, stay: Array, away: Array, best: Array, heads_r: Array, succ_r: Array, delay_r: Array, stay_r: Array,
    away_r: Array, best_r: Array,
) -> None:  # fmt: skip
    """The least loss of any deployment with each option: what `onward` says both ways. _r: streams reversed."""
    levels = len(first) - 1
    for level in range(levels):
        for o in range(first[level], first[level + 1]):
            left = room[where[o, 0]] - counts[o, 0] * unit[level]
            after = rest(level, where[o], support[o], left, weight, heads, succ, delay, stay, away, best)
            before = rest(
                levels - 1 - level, where[o], support[o], left, weight, heads_r, succ_r, delay_r, stay_r, away_r,
                best_r,
            )  # fmt: skip
            bound[o] = constant + extra[level, size[o]] + idle * moved[o] + weight * seconds[o] + after + before
