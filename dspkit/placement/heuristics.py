"""All heuristics by name: those of chapter 5, and those that place without knowing all.

>>> from dspkit import placement
>>> problem = placement.example("B")
>>> placement.heuristic("local search")(problem, placement.Weights(1, 0, 0)).named
{'s': '0', 'a': '1', 'b': '2', 't': '0'}
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

from ..errors import NotFoundError
from .answer import Answer
from .arrays import number
from .decentralised import rizou, round_robin, spring, xu
from .greedy import greedy
from .hierarchy import hierarchical
from .local import local_search, tabu_search
from .metrics import Ranges, Weights
from .problem import Problem
from .pruned import pruned
from .relaxed import relaxed
from .solve import solve

TIME_LIMIT_S = 300.0


def limited(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    solver: str = "highs",
    time_limit_s: float = TIME_LIMIT_S,
) -> Answer:
    """ODP+T: the exact solver stopped after a time, and the best it has by then."""
    started = time.perf_counter()
    found = solve(problem, weights, ranges, solver=solver, time_limit_s=time_limit_s)
    return replace(found, solver="ODP+T", seconds=time.perf_counter() - started)


Heuristic = Callable[..., Answer]  # (problem, weights, ranges=None, **settings)
HEURISTICS: dict[str, Heuristic] = {
    "hierarchical ODP": hierarchical,
    "ODP-PS": pruned,
    "RES-ODP": relaxed,
    "local search": local_search,
    "tabu search": tabu_search,
    "ODP+T": limited,
    "greedy": greedy,
    "greedy, no penalty": partial(greedy, penalised=False),
    "spring relaxation": spring,
    "Rizou": rizou,
    "Xu": xu,
    "round robin": round_robin,
}


def heuristic(name: str) -> Heuristic:
    """The heuristic of that name."""
    if name not in HEURISTICS:
        near = get_close_matches(str(name), HEURISTICS, n=1)
        fix = f"did you mean {near[0]!r}?" if near else "see placement.HEURISTICS"
        raise NotFoundError(f"heuristic {name!r}", expected=f"one of {', '.join(HEURISTICS)}", fix=fix)
    return HEURISTICS[name]


def degradation(found: float, best: float, total: float = 1.0) -> float:
    """How much of what the optimum achieves is lost: $(F_h - F_{ODP})/(1 - F_{ODP})$, of two losses.

    `total` is the sum of weights, the 1 of the formula: the greatest loss within the ranges.

    >>> degradation(0.36, 0.2), degradation(1, 0.2), degradation(1, 1)
    (0.19999999999999996, 1.0, 0.0)
    """
    number(total, "total", open_low=True)
    number(found, "found", -math.inf, infinite=True)
    number(best, "best", -math.inf)
    return (found - best) / (total - best) if not math.isclose(best, total, abs_tol=1e-12) else 0.0
