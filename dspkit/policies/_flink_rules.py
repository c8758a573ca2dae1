r"""The Flink autoscaler's arithmetic, one vertex at a time: capacity, band, alignment, effect [flink_operator].

| operator | here |
|---|---|
| TARGET_DATA_RATE, CATCH_UP_DATA_RATE | `rate`, `lag_rate` |
| TRUE_PROCESSING_RATE (of all subtasks together) | `true_rate` |
| SCALE_UP_RATE_THRESHOLD, SCALE_DOWN_RATE_THRESHOLD | `least`, `most`: the band |
| max parallelism, number of key groups | `groups` |
"""

from __future__ import annotations

import math

ALIGNS = ("evenly spread", "maximise utilisation", "off")


def capacity(
    rate: float, lag_rate: float, utilisation: float, *, catch_up_s: float, restart_s: float = 0.0, whole: bool = True
) -> float:
    r"""Records/s to be able to do: $L/C + rR/C + r/u$, for a lag L, catch-up time C, restart time R, rate r, share u.

    The first term is `lag_rate`. Infinite at u = 0. Rounded to a whole number, as in the operator, if `whole`.

    >>> capacity(700, 50, 0.7, catch_up_s=1800, restart_s=300)
    1167.0
    """
    u = min(1.0, max(0.0, utilisation))
    if u == 0:
        return math.inf
    restart = rate * restart_s / catch_up_s if catch_up_s > 0 else 0.0
    exact = lag_rate + restart + rate / u
    return float(math.floor(exact + 0.5)) if whole else exact


def aligned(new: int, now: int, groups: int, *, lowest: int, highest: int, mode: str = ALIGNS[0]) -> int:
    """`new` moved to where all instances own equally many key groups, never past `now` the other way.

    Upward to the next divisor of `groups` ("maximise utilisation": or the next number at which an instance owns fewer
    of them); where there is none, downward to the fewest instances with the same share.

    >>> aligned(5, 2, 24, lowest=1, highest=24), aligned(13, 4, 24, lowest=1, highest=20)
    (6, 12)
    """
    if new == now or mode == "off":
        return new
    top = min(groups, highest)
    for p in range(new, (top if new > now else min(now, top)) + 1):
        if groups % p == 0 or (mode == ALIGNS[1] and groups // p < groups // new):
            return p
    p = new
    while p > 1 and groups // p <= groups // new:
        p -= 1
    if groups // p > groups // new and groups % p:
        p += 1
    p = max(p, lowest)
    return now if (p <= now if new > now else p >= now) else p


def effect(before: float, expected: float, after: float) -> float:
    """The part of the increase that was expected of a scale-up which came.

    >>> effect(100, 200, 105)
    0.05
    """
    return (after - before) / (expected - before) if expected != before else math.inf
