"""Virtual delay: how long each record waited, from the curves of what came to a queue and what left it. Compiled.

First in, first out, the record that leaves now came when the curve of arrivals was where that of departures is now: its
wait is the horizontal distance between the two. (The mean queue over throughput is that only of a queue that does not
grow: of one that grows by half of what it serves, it says half as much again.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .compiled import lean
from .layout import Array


class Curves(NamedTuple):
    """What has come to each queue, as curves: row 0 is the start of the oldest tick that records still wait from."""

    t: Array  # [m] seconds
    came: Array  # [m, i] records since the start, refused ones apart
    left: Array  # [m, i] records that left in the tick that ends there
    at: Array  # [i] row before the arrival of the record that leaves next
    rows: Array  # number of rows in use, one number


def curves(rows: int, operators: int) -> Curves:
    """With room for so many rows, of which the first, in which nothing has come yet, is in use."""
    came, left = np.zeros((2, rows, operators))
    return Curves(np.zeros(rows), came, left, np.zeros(operators, dtype=np.int64), np.ones(1, dtype=np.int64))


def extended(old: Curves, ticks: int) -> Curves:
    """Curves with room for more ticks; what no waiting record came in is forgotten."""
    used, first = int(old.rows[0]), int(old.at.min())
    if used + ticks <= len(old.t):
        return old
    kept = used - first
    new = curves(2 * (kept + ticks), old.came.shape[1])
    new.t[:kept], new.came[:kept], new.left[:kept] = old.t[first:used], old.came[first:used], old.left[first:used]
    new.at[:], new.rows[0] = old.at - first, kept
    return new


@lean
def age(
    t: Array, came: Array, left: Array, at: Array, head: Array, queued: Array, waits: Array, first: int, end: int
) -> None:  # fmt: skip
    """Add how long the records waited that left in rows `first` to `end`, and move on to who leaves next."""
    for i in range(len(head)):
        p = at[i]
        if queued[i] <= 0 or came[p, i] >= came[end - 1, i]:
            at[i], head[i] = end - 1, came[end - 1, i]
            continue
        for m in range(first, end):
            rest, middle = left[m, i], (t[m] + t[m - 1]) / 2
            while rest > 0 and p + 1 < end:
                piece = min(rest, came[p + 1, i] - head[i])
                if piece > 0:
                    whole = came[p + 1, i] - came[p, i]
                    part = (head[i] + piece / 2 - came[p, i]) / whole
                    waits[i] += piece * max(0.0, middle - (t[p] + part * (t[p + 1] - t[p])))
                    head[i] += piece
                    rest -= piece
                if rest > 0 or head[i] >= came[p + 1, i]:
                    p += 1
        at[i] = min(p, end - 1)
