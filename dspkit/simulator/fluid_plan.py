"""How many records each operator processes in a tick when full queues hold back who feeds them. Compiled.

    | here | meaning |
    |---|---|
    | there[i] | records that wait for i, and those that a source is offered in this tick |
    | able[i] | records that i could process in this tick |
    | done[i], wish[i] | what it does process; what more it would, were there room downstream |
    | limit[i] | how much more the room downstream lets it process |
    | ask[i] | what it would process if it alone were infinitely fast: what it asks cores for |

Arrays are handed over one by one: numba counts references to all that a tuple holds at each call, which takes longer
than a tick's arithmetic.
"""

from __future__ import annotations

import numpy as np

from .compiled import lean
from .layout import Array

FILLINGS, SETTLED = 20, 1e-3  # of room, and the share of its ability that nobody gains any more


@lean
def plan(
    start: Array, end: Array, into: Array, into_at: Array, out: Array, out_at: Array, selectivity: Array,
    there: Array, room: Array, offered: Array, able: Array, done: Array, ask: Array, work: Array,
) -> None:  # fmt: skip
    """Fill `done` and `ask`. Operators that feed the same queue share its room as they wish for it.

    What one cannot use after all, because another of its receivers is full, goes to the others in the next filling,
    until nothing moves any more.
    """
    n = len(done)
    wish, limit, free, more = work[0], work[1], work[2], work[3]
    done[:] = 0.0
    for _ in range(FILLINGS):
        held = cut = False
        for i in range(n):
            came = inflow = 0.0
            for x in range(into_at[i], into_at[i + 1]):
                e = into[x]
                came += selectivity[e] * done[start[e]]
                inflow += selectivity[e] * (done[start[e]] + wish[start[e]])
            free[i] = room[i] - there[i] + offered[i] - came + done[i]
            wish[i] = max(0.0, min(able[i], there[i] + inflow) - done[i])
            limit[i] = np.inf
        for i in range(n - 1, -1, -1):  # nobody wishes for more than would fit if nobody else sent anything
            for x in range(out_at[i], out_at[i + 1]):
                e = out[x]
                if selectivity[e] > 0:
                    fits = max(0.0, free[end[e]] + wish[end[e]]) / selectivity[e]
                    if fits < wish[i]:
                        held, wish[i] = True, fits
        for i in range(n - 1, -1, -1):  # a queue takes what fits behind what its own operator will take away
            for x in range(out_at[i], out_at[i + 1]):
                e = out[x]
                if selectivity[e] > 0:
                    child, wished = end[e], 0.0
                    for y in range(into_at[child], into_at[child + 1]):
                        wished += selectivity[into[y]] * wish[start[into[y]]]
                    space = max(0.0, free[child] + more[child])
                    if wished > space:
                        cut = True
                        limit[i] = min(limit[i], wish[i] * (space / wished))
                    else:
                        limit[i] = min(limit[i], wish[i] + (space - wished) / selectivity[e])
            more[i] = min(wish[i], limit[i])
        grown = 0.0
        for i in range(n):
            inflow = 0.0
            for x in range(into_at[i], into_at[i + 1]):
                inflow += selectivity[into[x]] * done[start[into[x]]]
            was = done[i]
            done[i] = max(was, min(was + min(wish[i], limit[i]), there[i] + inflow))
            ask[i] = min(there[i] + inflow, was + limit[i])
            if able[i] > 0:
                grown = max(grown, (done[i] - was) / able[i])
        if not (held or cut) or grown < SETTLED:
            break
