"""Bayesian optimisation of configurations that meet a latency target with few slots [autrascale].

The parts are the score of a configuration, a Gaussian process of it, expected improvement, and the transfer of models
from earlier rates. `Optimizer` is the class to begin with; `search`, `transfer` and `trim` are pure functions, which
policies call. `Search(engine="gpytorch" | "skopt")` replaces our library by another one, and `Regressor` and
`skopt_optimizer` make our surrogate available in scikit-learn and scikit-optimize; all these need the extra `bo`.
"""

from typing import TYPE_CHECKING, Any

from ..core.lazy import load
from .acquisition import Proposal, expected_improvement, log_expected_improvement, propose
from .gp import GP, fit
from .library import Library, Model
from .optimizer import Optimizer
from .score import Sample, resource_score, score, stop_threshold
from .search import ENGINES, LatencySurrogate, Search, Surrogate
from .space import Lattice
from .stopping import Confirmation

__all__ = [
    "ENGINES",
    "GP",
    "Confirmation",
    "LatencySurrogate",
    "Lattice",
    "Library",
    "Model",
    "Optimizer",
    "Proposal",
    "Regressor",
    "Sample",
    "Search",
    "Surrogate",
    "expected_improvement",
    "fit",
    "log_expected_improvement",
    "propose",
    "resource_score",
    "score",
    "skopt_optimizer",
    "stop_threshold",
]

if TYPE_CHECKING:
    from .sklearn_adapter import Regressor, skopt_optimizer


def __getattr__(name: str) -> Any:
    """Load the parts that depend on scikit-learn on first use."""
    if name not in ("Regressor", "skopt_optimizer"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load("sklearn", "bo")
    from . import sklearn_adapter as face

    return getattr(face, name)
