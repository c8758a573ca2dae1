"""Search for the configuration that meets a latency with few slots: score, Gaussian process, expected improvement,
transfer from old rates [autrascale].

`Optimizer` is the one to begin with; `search`, `transfer` and `trim` are pure functions, which policies call.
`dspkit.bo.face` is the scikit-learn face; it and `fit="gpytorch"` need the extra `bo`.
"""

from .acquisition import Proposal, expected_improvement, log_expected_improvement, propose
from .gp import GP, fit
from .library import Library, Model
from .optimizer import Optimizer
from .score import Sample, score, stop_threshold, thrift
from .search import Search, Surrogate
from .space import Lattice

__all__ = [
    "GP", "Lattice", "Library", "Model", "Optimizer", "Proposal", "Sample", "Search", "Surrogate",
    "expected_improvement", "fit", "log_expected_improvement", "propose", "score", "stop_threshold", "thrift",
]  # fmt: skip
