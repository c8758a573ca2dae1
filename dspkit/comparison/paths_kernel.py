"""One window of the oracle's dynamic programming. Compiled."""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import compiled
from ..simulator.layout import Array


@compiled
def window(
    first: bool, k: Array, stop: Array, waits: Array, cost: Array, gain: Array, rest: Array, price: Array,
    after: Array, late_cost: float, change_cost: float, allowed: float, to_go: float, last: float, loses: bool,
) -> tuple[Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """From all ways before a window to those after it that nothing beats: k, stop, waits, cost, parent, late.

    `gain` and `rest` are x and y of this window, [stop, k]; ways that must end above `last` are left out.
    """
    n, stops, count = len(price), len(after), len(k)
    nobody = np.zeros(count, dtype=np.int64)
    front = unbeaten(nobody, 1, waits, cost) if not first else nobody[:0]
    most = count + n * len(front)
    a, b, q, c = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most)
    parent, late, group, used = np.empty(most, np.int64), np.empty(most, np.bool_), np.empty(most, np.int64), 0
    for j in range(most):
        if j < count:
            origin, kk, ss, spent = j, k[j], stop[j], cost[j]
        else:
            origin, kk, ss = front[(j - count) % len(front)], (j - count) // len(front), min(1, stops - 1)
            spent = cost[origin] + change_cost
        left = max(waits[origin] + gain[ss, kk], rest[ss, kk])
        missed = left > allowed
        spent += price[kk] + (late_cost if missed else 0.0)
        if spent + to_go <= last:
            a[used], b[used], c[used], parent[used], late[used] = kk, after[ss], spent, origin, missed
            q[used] = 0.0 if missed and loses else left
            group[used] = kk * stops + after[ss]
            used += 1
    kept = unbeaten(group[:used], n * stops, q[:used], c[:used])
    return a[kept], b[kept], q[kept], c[kept], parent[kept], late[kept]


@compiled
def unbeaten(group: Array, groups: int, waits: Array, cost: Array) -> Array:
    """Of each group those that no other one of it beats in both."""
    at = np.zeros(groups + 1, dtype=np.int64)
    for g in group:
        at[g + 1] += 1
    at = np.cumsum(at)
    place, members = at.copy(), np.empty(len(group), dtype=np.int64)
    for j in range(len(group)):
        members[place[group[j]]] = j
        place[group[j]] += 1
    kept, used = np.empty(len(group), dtype=np.int64), 0
    for g in range(groups):
        mine = members[at[g] : at[g + 1]]
        begin = used
        for x in np.argsort(cost[mine]):
            j = mine[x]
            if used == begin or waits[j] < waits[kept[used - 1]]:
                if used > begin and cost[kept[used - 1]] == cost[j]:
                    used -= 1  # as dear, and more waits
                kept[used] = j
                used += 1
    return kept[:used]
