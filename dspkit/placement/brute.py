"""Exhaustive search: the referee of small problems."""

from __future__ import annotations

import time
from itertools import product

import numpy as np

from ..errors import InfeasibleError, PlacementError
from .answer import Answer
from .check import violations
from .costs import Costs
from .problem import Problem

MOST = 1_000_000


def brute_force(problem: Problem, costs: Costs) -> Answer:
    """Look at every placement; the first of the best ones."""
    started = time.perf_counter()
    choices = [np.flatnonzero(row).tolist() for row in np.isfinite(costs.node)]
    count = int(np.prod([float(len(c)) for c in choices]))
    if count > MOST:
        raise PlacementError(f"{count} placements", expected=f"at most {MOST}", fix="use another solver")
    best, least = None, np.inf
    for x in product(*choices):
        found = costs.of(problem, x)
        if found < least - 1e-12 and not violations(problem, x):
            best, least = x, found
    if best is None:
        raise InfeasibleError(
            "a problem without any feasible placement", expected="room for all operators", fix="add capacity or links"
        )
    return Answer(problem, np.array(best), least, least, time.perf_counter() - started, "brute")
