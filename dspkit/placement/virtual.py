"""Where in the latency plane an operator would like to be: springs (Pietzuch), and the geometric median (Rizou).

    | paper | here |
    |---|---|
    | $\\vec P_j$, $DR(i,j)$ | `neighbours`, `rates`: points of the nodes that host them, tuples/s |
    | $\\vec F$ | the force: $\\sum_j DR_j (\\vec P_j - \\vec P)$ |
    | $\\gamma$, $F_t$ | `gamma`, `force_limit` |
    | $\\Lambda$ | $\\sum_j DR_j$ |

Springs come to rest where $\\sum DR\\,d^2$ is least (elastic energy), the median where $\\sum DR\\,d$ is (network
usage). As printed, springs swing for ever if $\\gamma\\Lambda \\ge 2$; here a step is at most
$1/\\Lambda$, unless `strict`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import KnobError
from .arrays import number

Array = np.ndarray[Any, np.dtype[Any]]
MOST_STEPS = 10_000


def springs(
    neighbours: Any, rates: Any, start: Any, *, gamma: float = 0.1, force_limit: float = 1.0, strict: bool = False
) -> Array:
    """Let go of an operator at `start` between springs as strong as its streams, until the force is small.

    $\\vec P \\leftarrow \\vec P + \\gamma \\vec F$; the last force looked at is the one before the last move.

    >>> springs([[0, 0], [10, 0]], [3, 1], [10, 0], strict=True).round(6).tolist()
    [2.625971, 0.0]
    """
    points, weights, place = _checked(neighbours, rates, start)
    number(gamma, "gamma", open_low=True, kind=KnobError)
    number(force_limit, "force_limit", kind=KnobError)
    total = float(weights.sum())
    if total == 0:
        return place  # nothing measured yet: no force
    step = gamma if strict else min(gamma, 1 / total)
    for _ in range(MOST_STEPS):
        force = weights @ (points - place)
        place = place + step * force
        if not (strength := float(np.linalg.norm(force))) < 1e100:
            raise KnobError(
                f"springs that fly apart: gamma {gamma:g} times rates of {total:g}", expected="less than 2",
                fix="leave out strict",
            )  # fmt: skip
        if strength < force_limit:
            break
    return place


def median(neighbours: Any, rates: Any, start: Any) -> Array:
    """The point of least $\\sum DR_j\\,\\lVert P - P_j \\rVert$: Weiszfeld's iteration from the weighted centroid.

    A neighbour's own point is the answer iff the pull of the others does not exceed its rate.

    >>> median([[0, 0], [3, 0]], [1, 2], [0, 0]).tolist()
    [3.0, 0.0]
    """
    points, weights, place = _checked(neighbours, rates, start)
    if weights.sum() == 0:
        return place
    points, weights = points[weights > 0], weights[weights > 0]
    for point in points:
        away = points - point
        far = np.linalg.norm(away, axis=1)
        others = far > 0
        pull = (weights[others] / far[others]) @ away[others]
        if float(np.linalg.norm(pull)) <= weights[~others].sum() * (1 + 1e-12):
            return np.array(point)
    place = weights @ points / weights.sum()
    for _ in range(1000):
        # No neighbour is optimal, so the way from the centroid down meets none but by chance; then step aside.
        far = np.maximum(np.linalg.norm(points - place, axis=1), 1e-12)
        pulls = weights / far
        moved = pulls @ points / pulls.sum()
        if float(np.linalg.norm(moved - place)) < 1e-6:
            return np.asarray(moved)
        place = moved
    return np.asarray(place)


def _checked(neighbours: Any, rates: Any, start: Any) -> tuple[Array, Array, Array]:
    try:
        points, weights, place = (np.asarray(x, float) for x in (neighbours, rates, start))
    except (TypeError, ValueError):
        points = weights = place = np.full(1, np.nan)
    points = points.reshape(len(weights), len(place)) if points.size == len(weights) * len(place) else points
    good = points.ndim == 2 and points.shape == (len(weights), len(place)) and bool(np.isfinite(points).all())
    if not (good and np.isfinite(place).all() and (weights >= 0).all() and np.isfinite(weights).all()):
        raise KnobError(
            f"points of shape {points.shape} and rates {weights.tolist()}",
            expected="a finite point and a rate >= 0 for each neighbour",
            fix="leave out neighbours whose place is unknown",
        )
    return points, weights, place
