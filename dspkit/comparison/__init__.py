"""Policies side by side: every one on every load with many seeds, with honest intervals and an oracle."""

from .entries import standard_policies
from .loads import standard_loads
from .oracle import Oracle, oracle
from .question import Case, started
from .runs import KEYS, SCORES, Rules, Run
from .statistics import difference, interval, ranking, win_tie_loss
from .sweep import compare

__all__ = [
    "KEYS", "SCORES", "Case", "Oracle", "Rules", "Run", "compare", "difference", "interval", "oracle", "ranking",
    "standard_loads", "standard_policies", "started", "win_tie_loss",
]  # fmt: skip
