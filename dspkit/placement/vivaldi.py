"""Network coordinates: points in a plane whose distances are latencies, learned from a few pings [dabek2004vivaldi].

    | paper | here |
    |---|---|
    | $x_i$, $e_i$ | `Coordinate.x`, `Coordinate.error` |
    | $l$ | `latency`: half a round trip, so that distances are one-way delays |
    | $w$ | how much a sample counts: less the surer the node is of itself |
    | $\\alpha$, $\\beta$ | `alpha`, `beta` |

Readings not taken: the released prototype divides by the sum of the components instead of their Euclidean length, and
works $w$ out again between the two updates. A latency of 0 says nothing here; there it sets the error to 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KnobError
from .arrays import number, whole

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Coordinate:
    """Where a node believes to be, and how wrong its distances are (1: all wrong)."""

    x: tuple[float, ...] = (0.0, 0.0)
    error: float = 1.0

    def __post_init__(self) -> None:
        number(self.error, "error", kind=KnobError)
        for along in self.x:
            number(along, "x", -math.inf, kind=KnobError)

    def distance(self, other: Coordinate) -> float:
        """The latency that the coordinates foretell."""
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
    """My coordinate after a ping that took `latency` to a node that believes to be at `theirs`.

    $e_i \\leftarrow e_s\\beta w + e_i(1-\\beta w)$ and $x_i \\leftarrow x_i + \\alpha w (l - d)\\,u(x_i - x_j)$ with
    $w = e_i/(e_i+e_j)$ and $e_s = |d-l|/l$. Two nodes in one point part in a direction drawn from `random`.

    >>> update(Coordinate((0, 0), 1), Coordinate((3, 4), 1), 10)
    Coordinate(x=(-0.75, -1.0), error=0.875)
    """
    for name, value in (("latency", latency), ("alpha", alpha), ("beta", beta)):
        number(value, name, kind=KnobError)
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
    """Coordinates of all nodes after each has pinged one random other in every round; both learn from a ping.

    `delays[u, v]` is one way. Few networks fit a plane exactly: `embedding_error` says how far this one is from it.

    >>> line = np.abs(np.subtract.outer([0, 10, 30], [0, 10, 30]))
    >>> bool(embedding_error(embed(line), line) < 0.01)
    True
    """
    for name, value, low in (("rounds", rounds, 0), ("dimensions", dimensions, 1), ("seed", seed, 0)):
        whole(value, name, low, kind=KnobError)
    try:
        delays = np.asarray(delays, float)
    except (TypeError, ValueError):
        delays = np.zeros(0)
    if delays.ndim != 2 or delays.shape[0] != delays.shape[1] or not ((delays >= 0) & (delays < np.inf)).all():
        raise KnobError(
            f"delays of shape {delays.shape}", expected="a square of finite numbers >= 0", fix="one row a node"
        )
    random, n = np.random.default_rng(seed), len(delays)
    points = [Coordinate((0.0,) * dimensions)] * n
    half = (delays + delays.T) / 2  # what half a round trip takes
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
    """Median over pairs of how far the foretold latency is from the true one, as a share of it."""
    foretold = np.linalg.norm(points[:, None] - points[None], axis=2)
    true = (np.asarray(delays, float) + np.asarray(delays, float).T) / 2
    pairs = np.triu(true > 0, 1)
    if not pairs.any():
        return 0.0
    return float(np.median(np.abs(foretold - true)[pairs] / true[pairs]))
