"""Network coordinates, and the ideal point of an operator among them.

Vivaldi: each node estimates a point of a plane from a few pings, so that distances are latencies [dabek2004vivaldi].

| paper | here |
|---|---|
| $x_i$, $e_i$ | `Coordinate.x`, `Coordinate.error` |
| $l$ | `latency`: half a round trip, so that distances are one-way delays |
| $w$ | weight of a sample: the smaller, the smaller the node's own error |
| $\\alpha$, $\\beta$ | `alpha`, `beta` |

Readings not taken: the released prototype divides by the sum of the components instead of their Euclidean length, and
computes $w$ again between the two updates. A latency of 0 is ignored here; there it sets the error to 0.

The ideal point of an operator is where springs to its neighbours are at rest (Pietzuch), or their geometric median
(Rizou).

| paper | here |
|---|---|
| $\\vec P_j$, $DR(i,j)$ | `neighbours`, `rates`: points of the neighbours' nodes, tuples/s |
| $\\vec F$ | the force: $\\sum_j DR_j (\\vec P_j - \\vec P)$ |
| $\\gamma$, $F_t$ | `gamma`, `force_limit` |
| $\\Lambda$ | $\\sum_j DR_j$ |

Springs minimise $\\sum DR\\,d^2$ (elastic energy), the median $\\sum DR\\,d$ (network usage). As printed, springs
oscillate for ever if $\\gamma\\Lambda \\ge 2$; here a step is at most $1/\\Lambda$, unless `strict`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import ArgumentError, FrozenMap
from ..core.typing import Array
from ..core.validation import number, whole


@dataclass(frozen=True)
class Coordinate:
    """The coordinates that a node has estimated, and the error of its distances (1: all wrong)."""

    x: tuple[float, ...] = (0.0, 0.0)
    error: float = 1.0

    def __post_init__(self) -> None:
        number(self.error, "error", 0)
        for along in self.x:
            number(along, "x", -math.inf)

    def distance(self, other: Coordinate) -> float:
        """Return the latency that the coordinates predict."""
        return math.dist(self.x, other.x)


def update(
    mine: Coordinate,
    theirs: Coordinate,
    latency: float,
    *,
    alpha: float = 0.5,
    beta: float = 0.5,
    random: np.random.Generator | None = None,
) -> Coordinate:
    """Return the node's coordinate after a ping of `latency` to a node at `theirs`.

    $e_i \\leftarrow e_s\\beta w + e_i(1-\\beta w)$ and $x_i \\leftarrow x_i + \\alpha w (l - d)\\,u(x_i - x_j)$ with
    $w = e_i/(e_i+e_j)$ and $e_s = |d-l|/l$. Two nodes at one point are moved apart in a direction drawn from `random`.

    >>> update(Coordinate((0, 0), 1), Coordinate((3, 4), 1), 10)
    Coordinate(x=(-0.75, -1.0), error=0.875)
    """
    for name, value in (("latency", latency), ("alpha", alpha), ("beta", beta)):
        number(value, name, 0)
    if latency == 0:
        return mine
    both = mine.error + theirs.error
    w = mine.error / both if both > 0 else 1.0
    d = mine.distance(theirs)
    e_s = abs(d - latency) / latency
    error = e_s * beta * w + mine.error * (1 - beta * w)
    if d > 0:
        u = [(a - b) / d for a, b in zip(mine.x, theirs.x, strict=True)]
    else:
        drawn = (random or np.random.default_rng(0)).standard_normal(len(mine.x))
        u = (drawn / np.linalg.norm(drawn)).tolist()
    step = alpha * w * (latency - d)
    return Coordinate(tuple(a + step * b for a, b in zip(mine.x, u, strict=True)), error)


def embed(
    delays: Array, *, rounds: int = 200, dimensions: int = 2, alpha: float = 0.5, beta: float = 0.5, seed: int = 0
) -> Array:
    """Return the coordinates of all nodes after each has pinged one random other per round; a ping updates both.

    `delays[u, v]` is one way. Few networks fit a plane exactly: `embedding_error` measures the difference.

    >>> line = np.abs(np.subtract.outer([0, 10, 30], [0, 10, 30]))
    >>> bool(embedding_error(embed(line), line) < 0.01)
    True
    """
    for name, value, low in (("rounds", rounds, 0), ("dimensions", dimensions, 1), ("seed", seed, 0)):
        whole(value, name, low)
    try:
        delays = np.asarray(delays, float)
    except (TypeError, ValueError):
        delays = np.zeros(0)
    if delays.ndim != 2 or delays.shape[0] != delays.shape[1] or not ((delays >= 0) & (delays < np.inf)).all():
        raise ArgumentError(
            f"delays of shape {delays.shape}", expected="a square of finite numbers >= 0", fix="pass one row per node"
        )
    random, n = np.random.default_rng(seed), len(delays)
    points = [Coordinate((0.0,) * dimensions)] * n
    half = (delays + delays.T) / 2  # half a round trip
    for _ in range(rounds if n > 1 else 0):
        for u in range(n):
            v = int(random.integers(n - 1))
            v += v >= u
            points[u], points[v] = (
                update(points[u], points[v], half[u, v], alpha=alpha, beta=beta, random=random),
                update(points[v], points[u], half[u, v], alpha=alpha, beta=beta, random=random),
            )
    return np.array([p.x for p in points])


def embedding_error(points: Array, delays: Array) -> float:
    """Return the median relative error of the predicted latencies over all pairs of nodes."""
    foretold = np.linalg.norm(points[:, None] - points[None], axis=2)
    true = (np.asarray(delays, float) + np.asarray(delays, float).T) / 2
    pairs = np.triu(true > 0, 1)
    if not pairs.any():
        return 0.0
    return float(np.median(np.abs(foretold - true)[pairs] / true[pairs]))


class DelaySpace(NamedTuple):
    """Delays between nodes that pings have measured so far, and Vivaldi's coordinates for pairs without pings.

    For a pair that never pings, the distance is an estimate only: springs without it may rest in a fold of the plane.

    Parameters
    ----------
    measured : mapping
        Delay in seconds by pair of nodes, as it was measured last.
    points : mapping
        Coordinate by node, in milliseconds.

    Examples
    --------
    >>> line = {("a", "b"): 0.01, ("b", "c"): 0.02}
    >>> space = DelaySpace()
    >>> for _ in range(50):
    ...     space = space.watch(line)
    >>> space.delay_s("a", "b"), 0.005 < space.delay_s("a", "c") < 0.035, space.delay_s("a", "d")
    (0.01, True, None)
    """

    measured: Mapping[tuple[str, str], float] = FrozenMap()
    points: Mapping[str, Coordinate] = FrozenMap()

    def watch(self, delays: Mapping[tuple[str, str], float]) -> DelaySpace:
        """Return the space after these pings, of which each moves the coordinates of both nodes.

        Examples
        --------
        >>> DelaySpace().watch({("a", "b"): 0.01}).delay_s("b", "a")
        0.01
        """
        points = dict(self.points)
        for (a, b), seconds in delays.items():
            one, other = points.get(a, Coordinate()), points.get(b, Coordinate())
            # A direction of its own for each pair: nodes that begin at one point would else stay on one line.
            random = np.random.default_rng([*a.encode(), 0, *b.encode()])
            points[a], points[b] = (
                update(one, other, 1e3 * seconds, random=random),
                update(other, one, 1e3 * seconds, random=random),
            )
        return DelaySpace(FrozenMap({**self.measured, **delays}), FrozenMap(points))

    def delay_s(self, a: str, b: str, *, pinged: bool = True) -> float | None:
        """Return the delay between two nodes: as measured, or else their distance; None if a node is unknown.

        Examples
        --------
        >>> DelaySpace().watch({("a", "b"): 0.01}).delay_s("a", "c") is None
        True
        """
        measured = self.measured.get((a, b), self.measured.get((b, a)))
        if a == b or (pinged and measured is not None):
            return 0.0 if a == b else measured
        if a in self.points and b in self.points:
            return self.points[a].distance(self.points[b]) / 1e3
        return None


MOST_STEPS = 10_000


def springs(
    neighbours: Any, rates: Any, start: Any, *, gamma: float = 0.1, force_limit: float = 1.0, strict: bool = False
) -> Array:
    """Return the rest position of an operator between springs as strong as its streams, starting from `start`.

    $\\vec P \\leftarrow \\vec P + \\gamma \\vec F$, until the force before a move is below the limit.

    >>> springs([[0, 0], [10, 0]], [3, 1], [10, 0], strict=True).round(6).tolist()
    [2.625971, 0.0]
    """
    points, weights, place = _checked(neighbours, rates, start)
    number(gamma, "gamma", 0, above=True)
    number(force_limit, "force_limit", 0)
    total = float(weights.sum())
    if total == 0:
        return place  # no rates measured yet: no force
    step = gamma if strict else min(gamma, 1 / total)
    for _ in range(MOST_STEPS):
        force = weights @ (points - place)
        place = place + step * force
        if not (strength := float(np.linalg.norm(force))) < 1e100:
            raise ArgumentError(
                f"diverging springs: gamma {gamma:g} times rates of {total:g}",
                expected="less than 2",
                fix="leave out strict",
            )
        if strength < force_limit:
            break
    return place


def median(neighbours: Any, rates: Any, start: Any) -> Array:
    """Return the point of least $\\sum DR_j\\,\\lVert P - P_j \\rVert$.

    It is found by Weiszfeld's iteration from the weighted centroid.

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
        # No neighbour is optimal, so the descent meets one only by chance; the limit avoids a division by 0 there.
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
        raise ArgumentError(
            f"points of shape {points.shape} and rates {weights.tolist()}",
            expected="a finite point and a rate >= 0 for each neighbour",
            fix="leave out neighbours whose position is unknown",
        )
    return points, weights, place
