"""Heaps of (time, whose) side by side in two arrays; the earliest is at a heap's base.

Taking the earliest leaves a hole, which the next one put in fills: most events bring the next one of their kind, so
this saves half of the work. A heap with a hole must be `settled` before anyone looks at its earliest.

Places are unsigned, so that numba need not ask of each whether it counts from the end of the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inlined

_0, _1 = np.uint64(0), np.uint64(1)


@inlined
def rise(due: Any, who: Any, base: Any, at: Any, time: float, whose: int) -> None:
    """Put (time, whose) at place `at` or above it."""
    while at > _0:
        above = (at - _1) >> _1
        if due[base + above] <= time:
            break
        due[base + at] = due[base + above]
        who[base + at] = who[base + above]
        at = above
    due[base + at] = time
    who[base + at] = whose


@inlined
def sink(due: Any, who: Any, base: Any, n: Any, time: float, whose: int) -> None:
    """Put (time, whose) at the top of n or below it."""
    at = _0
    while True:
        below = at + at + _1
        if below >= n:
            break
        if below + _1 < n and due[base + below + _1] < due[base + below]:
            below += _1
        if time <= due[base + below]:
            break
        due[base + at] = due[base + below]
        who[base + at] = who[base + below]
        at = below
    due[base + at] = time
    who[base + at] = whose


@inlined
def put(s: Any, h: int, time: float, whose: int) -> None:
    heap = s.heaps[h]
    if heap.hole:
        heap.hole = 0
        sink(s.due, s.who, heap.base, heap.n, time, whose)
    else:
        heap.n += _1
        rise(s.due, s.who, heap.base, heap.n - _1, time, whose)


@inlined
def settle(s: Any, h: int) -> Any:
    """How many are in it, once there is no hole."""
    heap = s.heaps[h]
    if heap.hole:
        heap.hole = 0
        heap.n -= _1
        end = heap.base + heap.n
        if heap.n > _0:
            sink(s.due, s.who, heap.base, heap.n, s.due[end], s.who[end])
    return heap.n
