r"""Expected improvement, and the configuration that maximises it.

| paper | here |
|---|---|
| $\mu(x)$, $\sigma(x)$ | posterior mean and standard deviation (Table I of the paper says variance: a misprint) |
| $f(x^+)$ | `best`, the best known score |
| $\xi$ | `xi`: improvement that does not count |
| $K$, $Z$ | $\mu-f(x^+)-\xi$ and $K/\sigma$ |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, ndtr

from ..core import MetricError
from ..core.typing import Array
from ..core.validation import number, numbers
from .space import ENUMERATED, Config, Lattice

Posterior = Callable[[Array], tuple[Array, Array]]  # one configuration per row -> mean and sigma of the scores
Worth = Callable[[Array], Array]  # one configuration per row -> their values
LEAST = 1e-6  # improvements below it do not count
DRAWN, FEWER, CLIMBERS, CHUNK = 20_000, 2_000, 10, 2048
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


class Proposal(NamedTuple):
    """The configuration to run next, with the model's expectations.

    Parameters
    ----------
    k : tuple of int
        Instances of each operator.
    mean, sigma : float
        Posterior mean and standard deviation of its score.
    improvement : float
        Expected improvement.

    Examples
    --------
    >>> Proposal((2, 3), mean=0.8, sigma=0.1, improvement=0.02).k
    (2, 3)
    """

    k: Config
    mean: float
    sigma: float
    improvement: float


def expected_improvement(mean: Any, sigma: Any, best: float, xi: float = 0.01) -> Any:
    r"""$EI=K\Phi(Z)+\sigma\phi(Z)$ (Eq. 5-7), 0 where $\sigma$ is 0 (up to $10^{-12}$).

    Parameters
    ----------
    mean, sigma : float or array
        Posterior mean and standard deviation of the score.
    best : float
        The best known score.
    xi : float
        Improvement that does not count.

    Examples
    --------
    >>> round(float(expected_improvement(0.95, 0.05, best=0.90)), 10)
    0.0460103617
    """
    return np.exp(log_expected_improvement(mean, sigma, best, xi))


def log_expected_improvement(mean: Any, sigma: Any, best: float, xi: float = 0.01) -> Any:
    """Return the logarithm of the expected improvement; -inf where sigma is 0.

    It still distinguishes points whose expected improvement is too small for a float.

    Parameters
    ----------
    mean, sigma, best, xi
        As for `expected_improvement`.

    Examples
    --------
    >>> round(float(log_expected_improvement(0.0, 0.01, best=0.9, xi=0.0)), 1)
    -4064.5
    """
    mean, sigma = numbers(mean, "posterior mean"), numbers(sigma, "standard deviation", low=0.0)
    best, xi = number(best, "best"), number(xi, "xi", low=0.0)
    if mean.ndim and sigma.ndim and mean.shape != sigma.shape:
        raise MetricError(f"{mean.shape} means, {sigma.shape} sigmas", expected="as many", fix="one for each point")
    unsure = sigma > 1e-12
    some = np.where(unsure, sigma, 1.0)
    return np.where(unsure, log_h((mean - best - xi) / some) + np.log(some), -np.inf)


def log_h(z: Array) -> Array:
    r"""$\log(\phi(z)+z\Phi(z))$: directly near 0, by the scaled erfc below, and by its series in the far tail."""
    z = np.asarray(z, dtype=float)
    near = np.maximum(z, -1.0)
    plain = np.log(np.exp(-0.5 * near * near - _LOG_ROOT_2PI) + near * ndtr(near))
    if (z >= -1.0).all():
        return plain  # type: ignore[no-any-return]
    a = np.clip(-z, 1.0, 1e3)
    tail = np.log1p(-a * math.sqrt(math.pi / 2) * erfcx(a / math.sqrt(2)))
    b = np.maximum(-z, 1e3)
    far = -2 * np.log(b) + np.log1p(-3 / b**2 + 15 / b**4)
    found: Array = np.where(z >= -1.0, plain, -0.5 * z * z - _LOG_ROOT_2PI + np.where(z >= -1e3, tail, far))
    return found


def propose(
    posterior: Posterior,
    lattice: Lattice,
    best: float,
    *,
    xi: float = 0.01,
    tried: Collection[Config] = (),
    seed: int | tuple[int, ...] = 0,
    per_second: Callable[[Worth], Worth] | None = None,
) -> Proposal | None:
    """Return the untried configuration of the greatest expected improvement; None if all were tried.

    Small boxes are enumerated. In large ones, 20,000 random points are evaluated, and the best ten climb operator by
    operator. Ties go to the fewest slots, then to the first in order.

    Parameters
    ----------
    posterior : callable
        Returns mean and standard deviation of the scores of configurations, one per row.
    lattice : Lattice
        The configurations.
    best : float
        The best known score.
    xi : float
        Improvement that does not count.
    tried : collection of configurations
        Configurations that are not proposed.
    seed : int or tuple of int
        Seed of random candidates.
    per_second : callable, optional
        Converts the log improvement into what is compared, for instance one per second of a run.

    Examples
    --------
    >>> def posterior(X):
    ...     return 1 / X[:, 0], np.full(len(X), 0.1)
    >>> propose(posterior, Lattice((2, 3), 9), best=0.4).k
    (2, 3)
    """
    worth: Worth = lambda X: log_expected_improvement(*posterior(X), best, xi)  # noqa: E731
    found = best_of(per_second(worth) if per_second else worth, lattice, tried, seed)
    if found is None:
        return None
    mean, sigma = posterior(np.array([found]))
    improvement = float(expected_improvement(mean[0], sigma[0], best, xi))
    return Proposal(found, float(mean[0]), float(sigma[0]), improvement)


def best_of(
    worth: Worth,
    lattice: Lattice,
    tried: Collection[Config],
    seed: int | tuple[int, ...] = 0,
    near: Sequence[Config] = (),
) -> Config | None:
    """Return the untried configuration of the greatest value; None if all were tried.

    Parameters
    ----------
    worth : callable
        Returns the values of configurations, one per row.
    lattice : Lattice
        The configurations.
    tried : collection of configurations
        Configurations that are not returned.
    seed : int or tuple of int
        Seed of random candidates.
    near : sequence of configurations
        Configurations from which a climb begins, too; fewer points are then drawn at random.

    Examples
    --------
    >>> best_of(lambda X: -X.sum(axis=1), Lattice((2, 3), 9), tried=[(2, 3)])
    (2, 4)
    """
    known = _codes(lattice, [tuple(k) for k in tried if k in lattice])

    def parts(X: Array) -> Array:
        return np.concatenate([worth(X[i : i + CHUNK]) for i in range(0, len(X), CHUNK)])

    if lattice.size <= ENUMERATED:
        X = _fresh(lattice.points(), known, lattice)
        found = parts(X) if len(X) else np.empty(0)
    else:
        random = np.random.default_rng(seed)
        X = lattice.draw(random, FEWER if len(near) else DRAWN)
        if len(near):
            X = np.concatenate([X, lattice.neighbours(np.array([lattice.base, *near]))])
        X = _fresh(X, known, lattice)
        found = parts(X)
        X, found = _climb(X, found, parts, lattice, known)
    if not len(X):
        return None
    top = X[found >= found.max() - 1e-9] if np.isfinite(found.max()) else X
    return tuple(top[np.lexsort((*top.T[::-1], top.sum(axis=1)))[0]].tolist())


def _climb(
    X: Array, found: Array, worth: Callable[[Array], Array], lattice: Lattice, known: Array
) -> tuple[Array, Array]:
    """Return the best points and those uphill of them, by steps of 1, 8, 64 and so on instances of one operator.

    All climb together until none of them finds a better neighbour. The greatest step is at most half the widest side,
    so that the number of rounds grows with the logarithm of the box.
    """
    widest = max(8, int((lattice.high - lattice.low).max()) // 2)
    steps = [8**i for i in range(64) if 8**i <= widest]
    order = np.argsort(-found, kind="stable")[:CLIMBERS]
    at, height = X[order], found[order]
    while True:
        around = _fresh(np.concatenate([lattice.neighbours(at, step) for step in steps]), known, lattice)
        if not len(around):
            return at, height
        around = around[np.unique(_codes(lattice, around), return_index=True)[1]]
        everything, heights = np.concatenate([at, around]), np.concatenate([height, worth(around)])
        first = np.unique(_codes(lattice, everything), return_index=True)[1]
        everything, heights = everything[first], heights[first]
        order = np.argsort(-heights, kind="stable")[:CLIMBERS]
        if heights[order[0]] <= height[0] + 1e-12:
            return at, height
        at, height = everything[order], heights[order]


def _codes(lattice: Lattice, X: Any) -> Array:
    """Return a number for each configuration; beyond 2**64 configurations two may share one."""
    if not len(X):
        return np.empty(0, dtype=np.int64)
    place = [1]
    for a, b in zip(lattice.base[:-1], lattice.max_parallelism[:-1], strict=True):
        place.append(place[-1] * (b - a + 1) % 2**64)
    found: Array = (np.asarray(X, dtype=np.int64) - lattice.low) @ np.array(place, dtype=np.uint64).astype(np.int64)
    return found


def _fresh(X: Array, known: Array, lattice: Lattice) -> Array:
    """Return the rows whose code is unknown."""
    if not len(known):
        return X
    known, codes = np.sort(known), _codes(lattice, X)
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    fresh: Array = X[known[place] != codes]
    return fresh
