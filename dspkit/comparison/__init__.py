"""Comparison of policies: each on every load with many seeds, with confidence intervals and an oracle.

`scores` measures any single run, and `sensitivity` sweeps the knobs of a policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy_exports

if TYPE_CHECKING:
    from .cases import Case, started
    from .compare import compare
    from .oracle import Oracle, oracle
    from .runs import KEYS, SCORES, ComparisonRun, Rules
    from .standard_loads import standard_loads
    from .standard_policies import standard_policies
    from .statistics import difference, interval, ranking, win_tie_loss

__all__ = [
    "KEYS",
    "SCORES",
    "Case",
    "ComparisonRun",
    "Oracle",
    "Rules",
    "compare",
    "difference",
    "interval",
    "oracle",
    "ranking",
    "standard_loads",
    "standard_policies",
    "started",
    "win_tie_loss",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "cases": "Case started",
        "compare": "compare",
        "oracle": "Oracle oracle",
        "runs": "ComparisonRun KEYS Rules SCORES",
        "standard_loads": "standard_loads",
        "standard_policies": "standard_policies",
        "statistics": "difference interval ranking win_tie_loss",
    },
)
