"""How long a change disturbs a job: time until its throughput is steady again, and time in which nothing came out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

from ..errors import DspkitError


def convergence_s(
    throughput: Sequence[float], *, window_s: float = 10.0, crossings: int = 2, spread: float = 0.05
) -> float:
    """Time from the start of scaling until throughput swings about its new mean, with little spread; inf if never.

    `throughput` are windows from the start of scaling on. With m the mean of their second half: the least window e
    such that from some window s to e throughput was at least twice above m and twice below, with a standard deviation
    of at most 5 % of m.

    >>> convergence_s([0, 0, 20, 60, 110, 95, 103, 98, 101, 99, 102, 98])
    90.0
    """
    values = _windows(throughput, window_s)
    if not values:
        raise DspkitError("throughput of no window", expected="one finite number a window", fix="check the meter")
    m = fmean(values[len(values) // 2 :])
    found = math.inf
    for s in range(len(values)):
        above = below = 0
        for e in range(s, len(values)):
            above, below = above + (values[e] > m), below + (values[e] < m)
            if above >= crossings and below >= crossings:
                if pstdev(values[s : e + 1]) <= spread * m:
                    found = min(found, (e + 1) * window_s)
                break  # e(s) is the first such window; a later one is another start's
    return found


def downtime_s(throughput: Sequence[float], *, window_s: float = 10.0) -> float:
    """Time of windows in which nothing came out.

    >>> downtime_s([0, 0, 20, 60])
    20.0
    """
    return window_s * sum(1 for x in _windows(throughput, window_s) if x <= 0)


def _windows(throughput: Sequence[float], window_s: float) -> list[float]:
    """One finite number a window, none below 0."""
    try:
        values = [float(x) for x in throughput]
    except (TypeError, ValueError):
        values = [math.nan]
    if not all(0 <= x < math.inf for x in values):
        raise DspkitError(
            f"throughput {throughput!r}"[:80], expected="one finite number >= 0 a window", fix="check the meter"
        )
    if not 0 < window_s < math.inf:
        raise DspkitError(f"window_s={window_s!r}", expected="seconds above 0", fix="as in window_s=10")
    return values
