r"""A Gaussian process with a Matérn 5/2 kernel, which interpolates the score between measured configurations.

| paper | here |
|---|---|
| $\mu(x)$, $\sigma(x)$ | `predict` |
| $\ell$, $s^2$ | `length`, `variance` of the kernel |
| $m$ | `mean`, of the samples |
| $K$ | kernel matrix of the samples with the noise on its diagonal |

$k(d)=s^2(1+\sqrt5d/\ell+5d^2/3\ell^2)e^{-\sqrt5d/\ell}$, $\mu=m+k_*^TK^{-1}(y-m)$, $\sigma^2=s^2-k_*^TK^{-1}k_*$.

The posterior is exact. `GP` is plain numpy, so that a prediction takes microseconds; `TorchGP` is the same process in
GPyTorch, in double precision with given noise. $\ell$ and $s^2$ maximise the marginal likelihood, on a grid that is
refined (`engine="ours"`) or by GPyTorch's gradients (`engine="gpytorch"`). The noise is given, or learned with them
within bounds; samples that coincide then tell it apart from the process. Log-normal beliefs of the three
(`around`) keep few samples from an overconfident fit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ..core import ArgumentError, MetricError
from ..core.lazy import load
from ..core.typing import Array
from ..core.validation import choice, number, numbers

LENGTHS, VARIANCES, NOISE = (0.05, 5.0), (1e-4, 1.0), 1e-4
FITTERS = ("ours", "gpytorch")
_ROOT = math.sqrt(5.0)


def matern(distance: Array, length: float | Array) -> Array:
    """Return the Matérn 5/2 correlation at these distances, $(1+r+r^2/3)e^{-r}$, computed in place to save memory."""
    r = distance * (_ROOT / length)
    found: Array = r / 3.0
    found += 1.0
    found *= r
    found += 1.0
    found *= np.exp(np.negative(r, out=r), out=r)
    return found


def distances(A: Array, B: Array) -> Array:
    """Return the Euclidean distances between the rows of A and of B."""
    found: Array = A @ (-2.0 * B.T)
    found += (A * A).sum(axis=1)[:, None]
    found += (B * B).sum(axis=1)
    return np.sqrt(np.maximum(found, 0.0, out=found), out=found)


@dataclass(frozen=True, eq=False)
class GP:
    """The exact posterior for given hyper-parameters.

    Parameters
    ----------
    X : array
        One sample per row, scaled to [0, 1].
    y : array
        Their scores.
    mean : float
        Prior mean.
    length, variance : float
        Length scale and variance of the kernel.
    noise : float
        Variance of a measured score.

    Examples
    --------
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
            got = f"points of shape {X.shape} with scores of shape {y.shape}"
            raise MetricError(got, expected="a row and a score for each sample, at least one", fix="see fit()")
        for name, low, above in (
            ("mean", -math.inf, False),
            ("length", 0, True),
            ("variance", 0, True),
            ("noise", 0, False),
        ):
            object.__setattr__(self, name, number(getattr(self, name), name, low=low, above=above))
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)

    @cached_property
    def _lower(self) -> Array:
        n = len(self.y)
        apart = np.sqrt(((self.X[:, None, :] - self.X) ** 2).sum(axis=-1))  # exactly 0 for samples that coincide
        K = self.variance * matern(apart, self.length) + self.noise * np.eye(n)
        for jitter in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):  # needed for coinciding samples without noise
            try:
                lower: Array = cho_factor(K + jitter * self.variance * np.eye(n), lower=True)[0]
                return lower
            except np.linalg.LinAlgError:
                continue
        raise MetricError(
            "indistinguishable samples", expected="a positive definite kernel matrix", fix="pass noise > 0"
        )

    @cached_property
    def _halves(self) -> Array:
        """$L^{-T}$: multiplication by it is faster than one solution per point."""
        halves: Array = solve_triangular(self._lower, np.eye(len(self.y)), lower=True).T
        return halves

    @cached_property
    def _weights(self) -> Array:
        weights: Array = cho_solve((self._lower, True), self.y - self.mean)
        return weights

    def predict(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score at each row, without the noise of measurements.

        Parameters
        ----------
        X : array_like
            One point per row.

        Examples
        --------
        >>> g = fit([[0.0], [1.0]], [0.8, 0.9])
        >>> g.predict([[1.0]])[0].round(1).tolist()
        [0.9]
        """
        X = self._rows(X)
        near = self.variance * matern(distances(X, self.X), self.length)
        part = near @ self._halves
        left = self.variance - np.einsum("ij,ij->i", part, part)
        left[left < 1e-12 * self.variance] = 0.0  # rounding errors at a sample
        return self.mean + near @ self._weights, np.sqrt(left)

    def covariance(self, A: Any, B: Any) -> Array:
        """Return the posterior covariance of the process between each row of A and each of B.

        Parameters
        ----------
        A, B : array_like
            One point per row.

        Examples
        --------
        >>> g = fit([[0.0], [1.0]], [0.8, 0.9])
        >>> bool(np.isclose(g.covariance([[0.5]], [[0.5]])[0, 0], g.predict([[0.5]])[1][0] ** 2))
        True
        """
        rows = self._rows(A), self._rows(B)
        a, b = (self.variance * matern(distances(R, self.X), self.length) @ self._halves for R in rows)
        found: Array = self.variance * matern(distances(*rows), self.length) - a @ b.T
        return found

    def _rows(self, X: Any) -> Array:
        """Return points as rows of as many numbers as the samples have, or raise an error."""
        points: Array = np.atleast_2d(numbers(X, "points"))
        if points.ndim != 2 or points.shape[1] != self.X.shape[1]:
            raise MetricError(
                f"points of shape {points.shape}", expected=f"{self.X.shape[1]} numbers each", fix="as in the samples"
            )
        return points

    @property
    def log_likelihood(self) -> float:
        """Logarithm of the marginal likelihood of the samples."""
        z = solve_triangular(self._lower, self.y - self.mean, lower=True)
        n = len(self.y)
        return float(-0.5 * z @ z - np.log(np.diag(self._lower)).sum() - 0.5 * n * math.log(2 * math.pi))


def fit(
    X: Any,
    y: Any,
    *,
    noise: float | tuple[float, float] = NOISE,
    mean: float | None = None,
    length: tuple[float, float] = LENGTHS,
    variance: tuple[float, float] = VARIANCES,
    around: Mapping[str, tuple[float, float]] | None = None,
    engine: str = "ours",
) -> GP:
    """Return the GP whose kernel maximises the likelihood of the samples, within bounds.

    Parameters
    ----------
    X : array_like
        One sample per row, scaled to [0, 1].
    y : array_like
        Their scores.
    noise : float or (float, float)
        Variance of a measured score, or the bounds between which it is learned.
    mean : float, optional
        Prior mean; by default the mean of the scores.
    length, variance : (float, float)
        Bounds of the kernel's length scale and variance.
    around : mapping, optional
        Beliefs of "length", "variance" and "noise": the median, and the standard deviation of the logarithm. Their
        densities multiply the likelihood. By default all values within the bounds are equally likely.
    engine : {"ours", "gpytorch"}
        The library that fits the kernel and evaluates the posterior; GPyTorch comes with the extra `bo`.

    Examples
    --------
    >>> g = fit([[0.0], [0.5], [1.0]], [0.7, 0.9, 0.8])
    >>> g.predict([[0.5]])[0].round(2).tolist()
    [0.9]
    """
    X, y = np.atleast_2d(numbers(X, "points")), numbers(y, "scores")
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or not len(y):
        raise MetricError(
            f"{len(X)} points with {y.size} scores", expected="a finite score for each, at least one", fix="see fit()"
        )
    choice(engine, "engine", FITTERS)
    m = float(y.mean()) if mean is None else number(mean, "mean")
    learned = isinstance(noise, tuple)
    noises = tuple(
        number(v, "noise", low=0.0, above=learned) for v in (noise if isinstance(noise, tuple) else (noise,) * 2)
    )
    for name, ends in (("length", length), ("variance", variance), ("noise", noises)):
        if number(ends[0], name, low=0.0, above=name != "noise") > number(ends[1], name):
            raise ArgumentError(f"{name}={ends}", expected="the lower bound first", fix="swap them")
    if engine == "ours" or learned or around:
        found = _likeliest(X, y - m, (length, variance, (noises[0], noises[1])), around or {})
    if engine == "gpytorch":
        v = found[2] if learned else noises[0]
        return TorchGP(X, y, m, *(found[:2] if around else likeliest(X, y, m, v, length, variance)), v)
    return GP(X, y, m, *found)


def _likeliest(
    X: Array, y: Array, bounds: Sequence[tuple[float, float]], around: Mapping[str, tuple[float, float]]
) -> tuple[float, float, float]:
    """Return the best point of a grid over the logarithms of length, variance and noise, refined around its best point.

    One decomposition serves all variances and noises at a length, so that the grid covers the whole range and misses no
    local optimum.
    """
    apart = np.sqrt(((X[:, None, :] - X) ** 2).sum(axis=-1))
    given = bounds[2][0] == bounds[2][1]
    ends = [np.log(np.maximum(b, 1e-12)) for b in bounds]
    at, width = [0.5 * sum(e) for e in ends], [e[1] - e[0] for e in ends]
    for counts in ((24, 33, 1), *((7, 13, 1),) * 4) if given else ((12, 13, 9), *((5, 9, 5),) * 3):
        logs = [
            np.clip(np.linspace(a - w / 2, a + w / 2, c), *e) if c > 1 else np.array([a])
            for a, w, c, e in zip(at, width, counts, ends, strict=True)
        ]
        l, s, v = (np.exp(x) for x in logs)
        values, vectors = np.linalg.eigh(matern(apart, l[:, None, None]))
        z = (y @ vectors) ** 2
        spread = np.maximum(values, 0.0)[:, None, None, :] * s[:, None, None] + v[:, None]
        likelihood = -0.5 * (z[:, None, None, :] / spread + np.log(spread)).sum(axis=-1)
        for axis, name in enumerate(("length", "variance", "noise")):
            if name in around:
                median, deviation = around[name]
                belief = -0.5 * ((logs[axis] - math.log(median)) / deviation) ** 2
                likelihood = likelihood + belief.reshape([-1 if i == axis else 1 for i in range(3)])
        best = np.unravel_index(np.argmax(likelihood), likelihood.shape)
        at = [float(x[i]) for x, i in zip(logs, best, strict=True)]
        width = [2 * w / max(c - 1, 1) for w, c in zip(width, counts, strict=True)]
    return math.exp(at[0]), math.exp(at[1]), bounds[2][0] if given else math.exp(at[2])


_CHUNK = 256  # points per call, because GPyTorch computes the covariance of all pairs of them


def libraries() -> tuple[Any, Any]:
    """Return gpytorch and torch, loaded on first use without the deprecation warnings of their own code."""
    gpytorch, torch = (load(name, "bo", otherwise="engine='ours'", quiet=True) for name in ("gpytorch", "torch"))
    return gpytorch, torch


@contextmanager
def _exactly() -> Iterator[tuple[Any, Any]]:
    """Set up exact algebra on one thread: matrices of a few dozen rows are too small for more."""
    gpytorch, torch = libraries()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
            warnings.simplefilter("ignore")  # GPyTorch warns of the jitter that it adds for coinciding samples
            yield gpytorch, torch
    finally:
        torch.set_num_threads(threads)


class TorchGP(GP):
    """A GP with a posterior of GPyTorch, as `fit(engine="gpytorch")` returns it.

    Parameters
    ----------
    X, y, mean, length, variance, noise
        As for `GP`.

    Examples
    --------
    >>> g = TorchGP(np.array([[0.0], [1.0]]), np.array([0.8, 0.9]), mean=0.85, length=1.0, variance=0.01, noise=0.0)
    >>> [round(float(v[0]), 6) for v in g.predict([[2.0]])]
    [0.890476, 0.083664]
    """

    @cached_property
    def _trained(self) -> Any:
        kernel = {"mean": self.mean, "length": self.length, "variance": self.variance, "noise": self.noise}
        return model(self.X, self.y, **kernel).eval()

    def predict(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score at each row, without the noise of measurements."""
        rows, parts = self._rows(X), []
        with _exactly() as (_, torch), torch.no_grad():
            for at in range(0, len(rows), _CHUNK):
                posterior = self._trained(torch.as_tensor(rows[at : at + _CHUNK], dtype=torch.double))
                parts.append((posterior.mean.numpy(), posterior.variance.clamp_min(0.0).sqrt().numpy()))
        mean, sigma = (np.concatenate(column) for column in zip(*parts, strict=True))
        return mean, sigma


def model(X: Any, y: Any, *, mean: float, length: float, variance: float, noise: float) -> Any:
    """Return a `gpytorch.models.ExactGP` of these samples and hyper-parameters; call `.eval()` on it to predict.

    Only length scale and variance of the kernel can be trained.
    """
    gpytorch, torch = libraries()

    class TorchGP(gpytorch.models.ExactGP):  # type: ignore[misc,name-defined]
        def __init__(self, X: Any, y: Any, likelihood: Any):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    inputs, scores = (torch.as_tensor(np.asarray(v), dtype=torch.double) for v in (X, y))
    known = torch.full((len(scores),), max(noise, 1e-10), dtype=torch.double)  # GPyTorch rejects zero
    with gpytorch.settings.min_fixed_noise(double_value=1e-10):
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise=known)
    made = TorchGP(inputs, scores, likelihood).double()
    made.mean_module.constant = mean
    made.mean_module.raw_constant.requires_grad_(False)
    made.covar_module.outputscale = variance
    made.covar_module.base_kernel.lengthscale = length
    return made


def likeliest(
    X: Array, y: Array, mean: float, noise: float, length: tuple[float, float], variance: tuple[float, float]
) -> tuple[float, float]:
    """Return length scale and variance of the greatest marginal likelihood, by L-BFGS with GPyTorch's gradients."""
    from scipy.optimize import minimize

    gpytorch, torch = libraries()
    made = model(X, y, mean=mean, length=1.0, variance=0.1, noise=noise)
    made.train()
    target = gpytorch.mlls.ExactMarginalLogLikelihood(made.likelihood, made)
    kernel = made.covar_module

    raws = (kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale)
    behind = (kernel.base_kernel.raw_lengthscale_constraint, kernel.raw_outputscale_constraint)

    def loss(logs: Array) -> tuple[float, Array]:
        values = np.exp(logs)
        for raw, constraint, value in zip(raws, behind, values, strict=True):
            raw.data.fill_(constraint.inverse_transform(torch.tensor(value, dtype=torch.double)))
        made.zero_grad()
        worse = -target(made(*made.train_inputs), made.train_targets)
        worse.backward()
        # Raw parameters are the inverse of a softplus, whose slope is a sigmoid; logarithms improve the conditioning.
        slopes = [float(r.grad.sum() / torch.sigmoid(r.data).sum()) * v for r, v in zip(raws, values, strict=True)]
        return float(worse.detach()), np.array(slopes)

    bounds = [tuple(np.log(length)), tuple(np.log(variance))]
    best, found = math.inf, (1.0, 0.1)
    with _exactly():
        for start_l in np.quantile(bounds[0], (0.2, 0.7)):
            for start_s in np.quantile(bounds[1], (0.2, 0.7)):
                done = minimize(loss, [start_l, start_s], jac=True, bounds=bounds, method="L-BFGS-B")
                if done.fun < best:
                    best, found = float(done.fun), (float(np.exp(done.x[0])), float(np.exp(done.x[1])))
    return found
