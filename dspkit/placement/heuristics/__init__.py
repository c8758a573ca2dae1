"""All heuristics by name: those of chapter 5, and the decentralised ones.

>>> from dspkit import placement
>>> problem = placement.example("B")
>>> placement.heuristic("local_search")(problem, placement.Weights(1, 0, 0)).named
{'s': '0', 'a': '1', 'b': '2', 't': '0'}
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from ...core import NotFoundError, PlacementError
from ...core.validation import number
from ..metrics import Ranges, Weights
from ..problem import Problem
from ..solution import Solution
from ..solvers.solve import solve
from .decentralised import rizou, round_robin, spring, xu
from .decomposition import hierarchical, pruned, relaxed
from .greedy import greedy
from .local_search import local_search, tabu_search

TIME_LIMIT_S = 300.0


def time_limited(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    solver: str = "exact",
    time_limit_s: float = TIME_LIMIT_S,
) -> Solution:
    """Solve exactly within a time limit, and return the best placement so far: ODP+T.

    Examples
    --------
    >>> from dspkit import placement
    >>> time_limited(placement.example("B"), Weights(1, 0, 0)).status
    'optimal'
    """
    started = time.perf_counter()
    found = solve(problem, weights, ranges, solver=solver, time_limit_s=time_limit_s)
    return replace(found, solver="time_limited", seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class Heuristic:
    """A placement heuristic; call it like `solve`, with a problem, weights and ranges.

    Parameters
    ----------
    name
        Key in `HEURISTICS`.
    label
        Name in the paper, for tables and legends.
    place
        Function that computes the placement.

    Examples
    --------
    >>> from dspkit import placement
    >>> greedy = placement.HEURISTICS["greedy_without_penalty"]
    >>> greedy.label, greedy(placement.example("B"), placement.Weights(1, 0, 0)).status
    ('greedy, no penalty', 'feasible')
    """

    name: str
    label: str
    place: Callable[..., Solution]

    def __call__(self, problem: Problem, weights: Weights, ranges: Ranges | None = None, **settings: Any) -> Solution:
        return self.place(problem, weights, ranges, **settings)


HEURISTICS: Mapping[str, Heuristic] = {
    h.name: h
    for h in (
        Heuristic("hierarchical", "hierarchical ODP", hierarchical),
        Heuristic("pruned", "ODP-PS", pruned),
        Heuristic("relaxed", "RES-ODP", relaxed),
        Heuristic("local_search", "local search", local_search),
        Heuristic("tabu_search", "tabu search", tabu_search),
        Heuristic("time_limited", "ODP+T", time_limited),
        Heuristic("greedy", "greedy", greedy),
        Heuristic("greedy_without_penalty", "greedy, no penalty", partial(greedy, penalised=False)),
        Heuristic("spring_relaxation", "spring relaxation", spring),
        Heuristic("rizou", "Rizou", rizou),
        Heuristic("xu", "Xu", xu),
        Heuristic("round_robin", "round robin", round_robin),
    )
}


def heuristic(name: str) -> Heuristic:
    """Return the heuristic of that name.

    Parameters
    ----------
    name
        A key of `HEURISTICS`.

    Examples
    --------
    >>> heuristic("tabu_search").label
    'tabu search'
    """
    if name not in HEURISTICS:
        near = get_close_matches(str(name), HEURISTICS, n=1)
        fix = f"did you mean {near[0]!r}?" if near else "see placement.HEURISTICS"
        raise NotFoundError(f"heuristic {name!r}", expected=f"one of {', '.join(HEURISTICS)}", fix=fix)
    return HEURISTICS[name]


def degradation(found: float, best: float, total: float = 1.0) -> float:
    """Return the share of the optimum's utility that a heuristic loses: $(F_h - F_{ODP})/(1 - F_{ODP})$, of two losses.

    Parameters
    ----------
    found
        Loss of the heuristic.
    best
        Loss of the optimum.
    total
        Sum of the weights, the 1 of the formula: the greatest loss within the ranges.

    Examples
    --------
    >>> degradation(0.36, 0.2), degradation(1, 0.2), degradation(1, 1)
    (0.19999999999999996, 1.0, 0.0)
    """
    number(total, "total", 0, above=True, error=PlacementError)
    number(found, "found", -math.inf, infinite=True, error=PlacementError)
    number(best, "best", -math.inf, error=PlacementError)
    return (found - best) / (total - best) if not math.isclose(best, total, abs_tol=1e-12) else 0.0
