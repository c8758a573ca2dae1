"""Heaps of (time, whose) side by side in two arrays; the earliest is at a heap's base.

Taking the earliest leaves a hole, which the next one put in fills: most events bring the next one of their kind, so
this saves half of the work. A heap with a hole must be `settled` before anyone looks at its earliest.
"""

from __future__ import annotations

from typing import Any

from .tuples_state import inlined


@inlined
def rise(due: Any, who: Any, base: int, at: int, time: float, whose: int) -> None:
    """Put (time, whose) at place `at` or above it."""
    while at > 0:
        above = (at - 1) >> 1
        if due[base + above] <= time:
            break
        due[base + at] = due[base + above]
        who[base + at] = who[base + above]
        at = above
    due[base + at] = time
    who[base + at] = whose


@inlined
def sink(due: Any, who: Any, base: int, n: int, time: float, whose: int) -> None:
    """Put (time, whose) at the top of n or below it."""
    at = 0
    while True:
        below = 2 * at + 1
        if below >= n:
            break
        if below + 1 < n and due[base + below + 1] < due[base + below]:
            below += 1
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
        heap.n += 1
        rise(s.due, s.who, heap.base, heap.n - 1, time, whose)


@inlined
def settle(s: Any, h: int) -> int:
    """How many are in it, once there is no hole."""
    heap = s.heaps[h]
    if heap.hole:
        heap.hole = 0
        heap.n -= 1
        end = heap.base + heap.n
        if heap.n > 0:
            sink(s.due, s.who, heap.base, heap.n, s.due[end], s.who[end])
    return heap.n  # type: ignore[no-any-return]
