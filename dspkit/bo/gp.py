r"""A Gaussian process with a Matérn 5/2 kernel: what is known of the score between the configurations that were run.

    | paper | here |
    |---|---|
    | $\mu(x)$, $\sigma(x)$ | `predict` |
    | $\ell$, $s^2$ | `length`, `variance` of the kernel |
    | $m$ | `mean`, of the samples |
    | $K$ | kernel matrix of the samples with the noise on its diagonal |

$k(d)=s^2(1+\sqrt5d/\ell+5d^2/3\ell^2)e^{-\sqrt5d/\ell}$, $\mu=m+k_*^TK^{-1}(y-m)$, $\sigma^2=s^2-k_*^TK^{-1}k_*$.
The posterior is exact and plain numpy, so that a prediction takes microseconds. $\ell$ and $s^2$ are those of the
greatest marginal likelihood, found here on a grid that is narrowed (`by="grid"`), or by GPyTorch's gradients
(`by="gpytorch"`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ..errors import KnobError, MetricError
from ._given import choice, numbers, real

Array = np.ndarray[Any, np.dtype[Any]]
LENGTHS, VARIANCES, NOISE = (0.05, 5.0), (1e-4, 1.0), 1e-4
FITS = ("grid", "gpytorch")
_ROOT = math.sqrt(5.0)


def matern(distance: Array, length: float | Array) -> Array:
    """The Matérn 5/2 correlation at these distances, $(1+r+r^2/3)e^{-r}$; in place, as millions are asked for."""
    r = distance * (_ROOT / length)
    found: Array = r / 3.0
    found += 1.0
    found *= r
    found += 1.0
    found *= np.exp(np.negative(r, out=r), out=r)
    return found


def distances(A: Array, B: Array) -> Array:
    """Euclidean distances between the rows of A and of B."""
    found: Array = A @ (-2.0 * B.T)
    found += (A * A).sum(axis=1)[:, None]
    found += (B * B).sum(axis=1)
    return np.sqrt(np.maximum(found, 0.0, out=found), out=found)


@dataclass(frozen=True, eq=False)
class GP:
    """The exact posterior for given hyper-parameters; `X` one sample a row, scaled to [0, 1].

    >>> g = GP(np.array([[0.0], [1.0]]), np.array([0.8, 0.9]), mean=0.85, length=1.0, variance=0.01, noise=0.0)
    >>> [round(float(v[0]), 8) for v in g.predict([[2.0]])]
    [0.89047575, 0.08366406]
    """

    X: Array
    y: Array
    mean: float
    length: float
    variance: float
    noise: float = NOISE

    def __post_init__(self) -> None:
        X, y = numbers(self.X, "points"), numbers(self.y, "scores")
        if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or not len(y):
            came = f"points of shape {X.shape} with scores of shape {y.shape}"
            raise MetricError(came, expected="a row and a score for each sample, one at least", fix="see fit()")
        for name, low, above in (
            ("mean", -math.inf, False),
            ("length", 0, True),
            ("variance", 0, True),
            ("noise", 0, False),
        ):
            object.__setattr__(self, name, real(getattr(self, name), name, low=low, above=above))
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)

    @cached_property
    def _lower(self) -> Array:
        n = len(self.y)
        apart = np.sqrt(((self.X[:, None, :] - self.X) ** 2).sum(axis=-1))  # exactly 0 for samples that coincide
        K = self.variance * matern(apart, self.length) + self.noise * np.eye(n)
        for jitter in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):  # samples that coincide, where there is no noise
            try:
                lower: Array = cho_factor(K + jitter * self.variance * np.eye(n), lower=True)[0]
                return lower
            except np.linalg.LinAlgError:
                continue
        raise MetricError("samples that cannot be told apart", expected="a kernel matrix", fix="give some noise")

    @cached_property
    def _halves(self) -> Array:
        """$L^{-T}$: products with it are quicker than solving for each of many points."""
        halves: Array = solve_triangular(self._lower, np.eye(len(self.y)), lower=True).T
        return halves

    @cached_property
    def _weights(self) -> Array:
        weights: Array = cho_solve((self._lower, True), self.y - self.mean)
        return weights

    def predict(self, X: Any) -> tuple[Array, Array]:
        """Mean and standard deviation of the score itself, without the noise of a measurement, at each row."""
        X = np.atleast_2d(numbers(X, "points"))
        if X.ndim != 2 or X.shape[1] != self.X.shape[1]:
            raise MetricError(
                f"points of shape {X.shape}", expected=f"{self.X.shape[1]} numbers each", fix="as in the samples"
            )
        near = self.variance * matern(distances(X, self.X), self.length)
        part = near @ self._halves
        left = self.variance - np.einsum("ij,ij->i", part, part)
        left[left < 1e-12 * self.variance] = 0.0  # what is left of the arithmetic at a sample
        return self.mean + near @ self._weights, np.sqrt(left)

    @property
    def log_likelihood(self) -> float:
        """Log marginal likelihood of the samples."""
        z = solve_triangular(self._lower, self.y - self.mean, lower=True)
        n = len(self.y)
        return float(-0.5 * z @ z - np.log(np.diag(self._lower)).sum() - 0.5 * n * math.log(2 * math.pi))


def fit(
    X: Any,
    y: Any,
    *,
    noise: float = NOISE,
    mean: float | None = None,
    length: tuple[float, float] = LENGTHS,
    variance: tuple[float, float] = VARIANCES,
    by: str = "grid",
) -> GP:
    """The GP whose `length` and `variance` make the samples likeliest, within bounds; `mean` is theirs unless given.

    >>> g = fit([[0.0], [0.5], [1.0]], [0.7, 0.9, 0.8])
    >>> g.predict([[0.5]])[0].round(2).tolist()
    [0.9]
    """
    X, y = np.atleast_2d(numbers(X, "points")), numbers(y, "scores")
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or not len(y):
        raise MetricError(
            f"{len(X)} points with {y.size} scores", expected="a finite score for each, one at least", fix="see fit()"
        )
    choice(by, "by", FITS)
    noise, m = real(noise, "noise", low=0.0), float(y.mean()) if mean is None else real(mean, "mean")
    for name, ends in (("length", length), ("variance", variance)):
        if real(ends[0], name, low=0.0, above=True) > real(ends[1], name):
            raise KnobError(f"{name}={ends}", expected="its least, then its most", fix="swap them")
    if by == "gpytorch":
        from .gp_torch import likeliest

        found = likeliest(X, y, m, noise, length, variance)
    else:
        found = _likeliest(X, y - m, noise, length, variance)
    return GP(X, y, m, *found, noise)


def _likeliest(
    X: Array, y: Array, noise: float, length: Sequence[float], variance: Sequence[float]
) -> tuple[float, float]:
    """The best of a grid over the logarithms of both, narrowed around the best four times.

    One decomposition serves all variances at a length, so this is the whole surface and no local optimum is missed.
    """
    apart = np.sqrt(((X[:, None, :] - X) ** 2).sum(axis=-1))
    ends = [np.log(length), np.log(variance)]
    at, width = [0.5 * sum(e) for e in ends], [e[1] - e[0] for e in ends]
    for counts in ((24, 33), (7, 13), (7, 13), (7, 13), (7, 13)):
        l, s = (
            np.exp(np.clip(np.linspace(a - w / 2, a + w / 2, c), *e))
            for a, w, c, e in zip(at, width, counts, ends, strict=True)
        )
        values, vectors = np.linalg.eigh(matern(apart, l[:, None, None]))
        z = (y @ vectors) ** 2
        spread = np.maximum(values, 0.0)[:, None, :] * s[:, None] + max(noise, 1e-12)
        likelihood = -0.5 * (z[:, None, :] / spread + np.log(spread)).sum(axis=-1)
        i, j = np.unravel_index(np.argmax(likelihood), likelihood.shape)
        at = [float(np.log(l[i])), float(np.log(s[j]))]
        width = [2 * w / (c - 1) for w, c in zip(width, counts, strict=True)]
    return float(l[i]), float(s[j])
