"""The cost space of Distributed Storm: how far an operator's wish is from what a node offers [nardelli, 3.3].

    | paper | here |
    |---|---|
    | $P = (P_{l1}, P_{l2}, P_a, P_u)$ | a row of four: two coordinates of latency, availability, utilisation |
    | $w_l, w_a, w_u$ | `Weights`; they need not sum to 1 |
    | $Lat_{max}$ | `latency_max` |
    | $D_{rel}$, $thr_{migr}$ | `relative_distance`, `threshold` |

An operator wishes for availability 1 and utilisation 0, so its point is $(p_1, p_2, 1, 0)$.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..errors import KnobError
from .arrays import number

Array = np.ndarray[Any, np.dtype[Any]]
TIE = 1e-12


class Weights(NamedTuple):
    latency: float = 1.0
    availability: float = 0.0
    utilisation: float = 0.0


def distances(wish: Any, nodes: Any, weights: Weights, latency_max: float) -> Array:
    """From one point of the cost space to each of `nodes`; without latencies (`latency_max` 0) the plane is left out.

    >>> distances([10, 20, 1, 0], [[40, 60, 0.9, 0.5], [22, 29, 0.99, 0.1]], Weights(1, 0, 0), 100).tolist()
    [0.5, 0.15]
    """
    for name, value in (("latency_max", latency_max), *weights._asdict().items()):
        number(value, name, kind=KnobError)
    try:
        apart = np.asarray(nodes, float).reshape(-1, 4) - np.asarray(wish, float).reshape(4)
    except (TypeError, ValueError):
        apart = np.full(1, np.nan)
    if not np.isfinite(apart).all():
        raise KnobError(
            f"a wish {wish!r}, or nodes, not in the cost space"[:120], expected="four finite numbers each",
            fix="leave out nodes that nothing is known of",
        )  # fmt: skip
    scale = [weights.latency / latency_max if latency_max else 0.0] * 2 + [weights.availability, weights.utilisation]
    return np.asarray(np.linalg.norm(apart * scale, axis=1))


def nearest(far: Array) -> Array:
    """Nodes by distance, nearest first; equal ones by number."""
    return np.lexsort((np.arange(len(far)), np.round(far / TIE) * TIE))


def relative_distance(current: float, candidate: float) -> float:
    """$D_{rel} = |d_{cur} - d_{cand}| / (d_{cur} + d_{cand})$; of two zeros it is 0, of an unknown (infinite) place 1.

    >>> round(relative_distance(0.30, 0.22), 6), relative_distance(0, 0), relative_distance(math.inf, 1)
    (0.153846, 0.0, 1.0)
    """
    for name, value in (("current", current), ("candidate", candidate)):
        number(value, name, infinite=True, kind=KnobError)
    if math.isinf(current):
        return 1.0
    both = current + candidate
    return abs(current - candidate) / both if both > 0 else 0.0


def worth_moving(current: float, candidate: float, threshold: float = 0.15) -> bool:
    """Whether the candidate is nearer, and by more than the threshold. (As printed, a worse one passes too.)"""
    number(candidate, "candidate", infinite=True, kind=KnobError)
    number(current, "current", infinite=True, kind=KnobError)
    return candidate < current and relative_distance(current, candidate) > threshold + TIE
