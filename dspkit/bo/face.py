"""The surrogate as scikit-learn and scikit-optimize know it; needs the extra `bo`."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped,unused-ignore]
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped,unused-ignore]

from ._given import numbers
from .gp import NOISE, Array, fit
from .space import Lattice


class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc,unused-ignore]
    """Our Gaussian process with `fit(X, y)` and `predict(X, return_std=...)`; GPyTorch finds its kernel."""

    def __init__(self, noise: float = NOISE, by: str = "gpytorch"):
        self.noise, self.by = noise, by

    def fit(self, X: Any, y: Any) -> Regressor:
        self.gp_ = fit(X, y, noise=self.noise, by=self.by)
        self.n_features_in_ = self.gp_.X.shape[1]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        check_is_fitted(self)
        mean, sigma = self.gp_.predict(X)
        return (mean, sigma) if return_std else mean

    @property
    def log_marginal_likelihood_value_(self) -> float:
        return self.gp_.log_likelihood


def skopt_optimizer(lattice: Lattice, *, levels: int = 6, xi: float = 0.01, seed: int = 0, by: str = "gpytorch") -> Any:
    """scikit-optimize's own ask/tell optimiser over the lattice, with this surrogate inside.

    It minimises: tell it `-score`. Its first asks are the bootstrap set.
    """
    from skopt import Optimizer

    first = [list(k) for k in lattice.bootstrap(levels)]
    made = Optimizer(
        lattice.dimensions(),
        base_estimator=Regressor(by=by),
        n_initial_points=len(first),
        acq_func="EI",
        acq_optimizer="sampling",
        acq_func_kwargs={"xi": xi},
        random_state=seed,
    )
    made._initial_samples = first  # type: ignore[attr-defined,unused-ignore]
    return made


def points(X: Any) -> Array:
    """Configurations as scikit-optimize gives them, back as whole numbers."""
    return numbers(X, "configurations").astype(int)
