"""Our surrogate in scikit-learn and scikit-optimize, and scikit-optimize's search in ours; requires the extra `bo`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..core.lazy import load
from ..core.typing import Array
from .acquisition import Proposal, best_of, expected_improvement
from .gp import NOISE, fit
from .score import Sample
from .space import Config, Lattice


class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Our Gaussian process as a scikit-learn regressor.

    Parameters
    ----------
    noise : float
        Variance of a measured score.
    engine : {"ours", "gpytorch"}
        The library that fits the kernel and evaluates the posterior.

    Examples
    --------
    >>> Regressor().fit([[0.0], [0.5], [1.0]], [0.7, 0.9, 0.8]).predict([[0.5]]).round(2).tolist()
    [0.9]
    """

    def __init__(self, noise: float = NOISE, engine: str = "ours"):
        self.noise, self.engine = noise, engine

    def fit(self, X: Any, y: Any) -> Regressor:
        """Fit the kernel to samples, one per row of X, and return the regressor.

        Parameters
        ----------
        X : array_like
            One sample per row, scaled to [0, 1].
        y : array_like
            Their scores.

        Examples
        --------
        >>> Regressor().fit([[0.0], [1.0]], [0.7, 0.9]).n_features_in_
        1
        """
        self.gp_ = fit(X, y, noise=self.noise, engine=self.engine)
        self.n_features_in_ = self.gp_.X.shape[1]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of the score at each row, and its standard deviation on request.

        Parameters
        ----------
        X : array_like
            One point per row.
        return_std : bool
            Whether to return (mean, standard deviation).

        Examples
        --------
        >>> Regressor().fit([[0.0], [1.0]], [0.7, 0.9]).predict([[1.0]]).round(1).tolist()
        [0.9]
        """
        check_is_fitted(self)
        mean, sigma = self.gp_.predict(X)
        return (mean, sigma) if return_std else mean

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """Logarithm of the marginal likelihood of the samples, under scikit-learn's name."""
        return self.gp_.log_likelihood


def skopt_optimizer(lattice: Lattice, *, levels: int = 6, xi: float = 0.01, seed: int = 0, engine: str = "ours") -> Any:
    """Return scikit-optimize's ask-tell optimiser over the lattice, with our surrogate inside.

    It minimises, so that `-score` is reported to it. Its first proposals are the bootstrap set.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    levels : int
        Levels of the bootstrap set.
    xi : float
        Improvement that does not count.
    seed : int
        Seed of random candidates.
    engine : {"ours", "gpytorch"}
        As for `Regressor`.

    Examples
    --------
    >>> o = skopt_optimizer(Lattice(base=(2, 3), max_parallelism=9), levels=2)
    >>> k = o.ask()
    >>> result = o.tell(k, -0.8)
    >>> k
    [3, 3]
    """
    first = [list(k) for k in lattice.bootstrap(levels)]
    made = _skopt().Optimizer(
        lattice.dimensions(),
        base_estimator=Regressor(engine=engine),
        n_initial_points=len(first),
        acq_func="EI",
        acq_optimizer="sampling",
        acq_func_kwargs={"xi": xi},
        random_state=seed,
    )
    made._initial_samples = first
    return made


class SkoptSearch:
    """scikit-optimize's own surrogate and search on given samples.

    Its Gaussian process has one length scale per operator and learned noise, and its minimiser maximises expected
    improvement.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    samples : sequence of Sample
        The measured configurations, at least one.
    xi : float
        Improvement that does not count.
    seed : int or tuple of int
        Seed of random candidates.

    Examples
    --------
    >>> box = Lattice(base=(2, 3), max_parallelism=9)
    >>> search = SkoptSearch(box, [Sample((2, 3), 0.7), Sample((9, 3), 0.8)])
    >>> search.ask(tried=()).k in box
    True
    """

    def __init__(
        self, lattice: Lattice, samples: Sequence[Sample], *, xi: float = 0.01, seed: int | tuple[int, ...] = 0
    ):
        self._lattice, self._seed, self._xi = lattice, seed, xi
        state = int(np.random.default_rng(seed).integers(2**31))
        self._best = max(s.score for s in samples)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of kernel parameters at their bounds
            self._theirs = _skopt().Optimizer(
                lattice.dimensions(),
                base_estimator="GP",
                n_initial_points=1,
                acq_func="EI",
                acq_func_kwargs={"xi": xi},
                random_state=state,
            )
            self._theirs.tell([list(s.k) for s in samples], [-s.score for s in samples])

    def predict(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score at points of the unit cube, as `GP.predict` does."""
        low, high = self._lattice.low, self._lattice.high
        return self._at(np.rint(low + np.atleast_2d(X) * (high - low)).astype(int))

    def ask(self, *, tried: Collection[Config]) -> Proposal | None:
        """Return scikit-optimize's proposal or, if that was tried, the best untried one of its acquisition function."""
        from skopt.acquisition import gaussian_ei

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of random points in the place of known ones
            found: Config | None = tuple(int(v) for v in self._theirs.ask())
        if found in tried:
            model = self._theirs.models[-1]
            found = best_of(
                lambda X: gaussian_ei(self._transformed(X), model, y_opt=-self._best, xi=self._xi),
                self._lattice,
                tried,
                self._seed,
            )
        if found is None:
            return None
        mean, sigma = self._at(np.array([found]))
        improvement = float(expected_improvement(mean[0], sigma[0], self._best, self._xi))
        return Proposal(found, float(mean[0]), float(sigma[0]), improvement)

    def _at(self, X: Array) -> tuple[Array, Array]:
        mean, sigma = self._theirs.models[-1].predict(self._transformed(X), return_std=True)
        return -mean, sigma

    def _transformed(self, X: Array) -> Any:
        return self._theirs.space.transform(X.tolist())


def _skopt() -> Any:
    return load("skopt", "bo", otherwise="engine='ours'", quiet=True)
