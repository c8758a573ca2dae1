"""The best placement: one call for every objective and solver, and the ranges that normalise it [nardelli]."""

from __future__ import annotations

import math
from typing import Any

from ..errors import PlacementError
from .answer import Answer, Watch, limits_allowed
from .brute import brute_force
from .costs import AIMS, Costs, along, equal_operators, single, weighted
from .metrics import NETWORK_METRICS, Ranges, Weights, needs_problem, needs_weights
from .problem import Problem

SOLVERS = ("own", "highs", "brute")


def solve(
    problem: Problem,
    weights: Weights | str = "response_s",
    ranges: Ranges | None = None,
    *,
    solver: str = "own",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    progress: Watch | None = None,
) -> Answer:
    """The placement of least loss: proven, or with its gap once the time limit is over.

    `weights` are weights, normalised by `ranges` (found exactly if not given), or one metric by its name, which is then
    made as small as possible (log_availability as large). `progress` is called with what is known on the way.

    >>> from dspkit import placement
    >>> answer = solve(placement.example("A"), "response_s")
    >>> answer.named, answer.loss, answer.proven
    ({'s': '0', 'm': '1', 't': '2'}, 0.048, True)
    """
    needs_problem(problem)
    if isinstance(weights, str):
        if weights not in AIMS:
            raise PlacementError(f"metric {weights!r}", expected=f"one of {', '.join(AIMS)}", fix="correct the name")
        costs = single(problem, weights, -1 if weights == "log_availability" else 1)
    else:
        needs_weights(weights)
        if ranges is None:
            ranges = exact_ranges(problem, weights.metric, solver=solver, time_limit_s=time_limit_s)
        costs = weighted(problem, weights, ranges)
    return minimise(problem, costs, solver=solver, time_limit_s=time_limit_s, gap=gap, progress=progress)


def minimise(
    problem: Problem,
    costs: Costs,
    *,
    solver: str = "own",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    progress: Watch | None = None,
) -> Answer:
    """The same for an objective given by its coefficients."""
    needs_problem(problem)
    if costs.node.shape != (len(problem.application.operators), len(problem.network.nodes)):
        raise PlacementError("costs of another problem", expected="this problem's", fix="make them by weighted()")
    limits_allowed(solver, SOLVERS, time_limit_s, gap)
    if solver == "brute":
        return brute_force(problem, costs)
    limits: dict[str, Any] = {"time_limit_s": time_limit_s, "gap": gap, "progress": progress}
    if solver == "highs":
        from .highs import highs

        return highs(problem, costs, **limits)
    from .own import own  # loads compiled code, which pictures and metrics do without

    return own(problem, costs, **limits)


def exact_ranges(
    problem: Problem, metric: str = "usage", *, solver: str = "own", time_limit_s: float = math.inf
) -> Ranges:
    """The least and greatest response time, log availability and network metric of all feasible placements.

    The thesis only says maximum and minimum. The greatest response time is that of the slowest path, each maximised by
    itself (paths that equal operators make alike count once). An end that is not proven within its time limit is the
    solver's bound, so that the range still holds every placement.
    """
    needs_problem(problem)
    if metric not in NETWORK_METRICS:
        raise PlacementError(f"metric {metric!r}", expected=f"one of {', '.join(NETWORK_METRICS)}", fix="correct it")

    def least(costs: Costs) -> float:
        found = minimise(problem, costs, solver=solver, time_limit_s=time_limit_s)
        return found.loss if found.proven else found.bound

    twins = equal_operators(problem)
    paths = {tuple(twins[i] for i in path): path for path in problem.application.paths()}
    slowest = max(-least(along(problem, path, -1)) for path in paths.values())
    return Ranges(
        _range(least(single(problem, "response_s")), slowest),
        _range(least(single(problem, "log_availability")), -least(single(problem, "log_availability", -1))),
        _range(least(single(problem, metric)), -least(single(problem, metric, -1))),
    )


def _range(low: float, high: float) -> tuple[float, float]:
    """Both ends; the same twice where only rounding parts them, or the metric would count for what it is not."""
    return (low, low) if high - low <= 1e-9 * max(abs(low), abs(high)) else (low, high)
