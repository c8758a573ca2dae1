"""The entry point to all placement problems: the best solution, and the ranges that normalise its loss [nardelli].

`solve` covers operators that run once (chapters 4 and 5), replicas and their nodes (chapter 6), and changes of a
running deployment, whose downtime counts (chapter 8). The exact solver finds an initial placement by local search, then
uses label setting for chains and branch and bound for other applications. Exhaustive search is the reference for small
problems, HiGHS the independent solver.
"""

from __future__ import annotations

import math
import time
from itertools import product
from typing import Any

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.typing import Array
from ..certificate import violations
from ..metrics import (
    NETWORK_METRICS,
    Limits,
    Objective,
    Ranges,
    Weights,
    limited_objective,
    needs_limits,
    needs_problem,
    needs_ranges,
    needs_weights,
    single_objective,
    weighted_objective,
)
from ..objective import AIMS, Costs, along, chain_of, equal_operators, folded, metric_costs, weighted_costs
from ..problem import Problem
from ..replication.solve import reoptimise, replica_ranges, solve_replicas
from ..solution import Clock, Progress, Solution, Watch, limits_allowed
from .branch_and_bound import branch
from .chain import chain as by_labels
from .chain import slots_of
from .climb import climb, construct, problem_arrays

MOST = 1_000_000


def brute_force(problem: Problem, costs: Costs) -> Solution:
    """Return the best of all placements, the first of equal ones."""
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
    return Solution(problem, np.array(best), least, least, time.perf_counter() - started, "brute")


def solve_exact(
    problem: Problem,
    costs: Costs,
    *,
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    progress: Watch | None = None,
    seed: int = 1,
) -> Solution:
    """Return the placement of least loss, proven, or the best one within the time limit, and a bound."""
    started = time.perf_counter()
    deadline = started + time_limit_s
    chain = chain_of(problem)
    shape = folded(problem, costs) if chain else costs
    x, loss = first_placement(problem, shape, seed=seed, trials=1, kicks=3)
    if progress is not None and math.isfinite(loss):
        progress(Progress(time.perf_counter() - started, loss + costs.constant, -math.inf, x.copy()))

    def longer() -> tuple[Array, float]:  # called if the initial placement does not suffice for a quick proof
        return first_placement(problem, shape, seed=seed + 1)

    clock = Clock(started, deadline, gap, costs.constant, progress)
    details: dict[str, object] = {}
    shared = problem.network.bandwidth_per_s < problem.application.rate_per_s.sum()
    if chain and slots_of(problem) and not shared.any():
        x, loss, bound, details["labels"] = by_labels(problem, shape, chain, x, loss, clock, longer)
    else:
        x, loss, bound, details["branches"] = branch(problem, shape, x, loss, clock, longer)
    if not math.isfinite(loss):
        if time.perf_counter() > deadline:
            raise PlacementError("no placement in time", expected="one within the limit", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible placement", expected="room for all operators", fix="add capacity or links"
        )
    bound -= gap * abs(loss) if bound >= loss else 0.0  # smaller improvements than the gap were not searched
    seconds = time.perf_counter() - started
    return Solution(problem, x, costs.of(problem, x), bound + costs.constant, seconds, "exact", details)


def first_placement(
    problem: Problem, costs: Costs, *, seed: int = 1, trials: int = 4, kicks: int = 40
) -> tuple[Array, float]:
    """Return a good placement by local search, and its loss without the constant; infinite if none was found."""
    app, net = problem.application, problem.network
    operators = len(app.operators)
    random = np.array([seed * 0x9E3779B97F4A7C15 % 2**64 or 1], np.uint64)
    arrays = problem_arrays(problem, costs)
    pinned_first = sorted(app.order, key=lambda i: np.isfinite(costs.node[i]).sum() > 1)
    by_size = sorted(pinned_first, key=lambda i: -app.demand[i] if np.isfinite(costs.node[i]).sum() > 1 else -np.inf)
    best, least = np.zeros(operators, np.int64), np.inf
    for trial in range(trials + 8):
        x, free = np.zeros(operators, np.int64), net.capacity.copy()
        sequence = np.array(by_size if trial % 2 else pinned_first, np.int64)
        if not construct(x, free, sequence, 0.1 * trial, random, arrays):
            continue
        kept, ready = x.copy(), np.zeros(operators)
        found = climb(x, kept, free, ready, random, kicks, 150_000, arrays)
        if found < least:
            best, least = kept.copy(), found
        if trial >= trials - 1 and math.isfinite(least):
            break
    return best, float(least)


def solve(  # noqa: PLR0913  (keyword-only settings of the one solver for all problems)
    problem: Problem,
    weights: Weights | str = "response_s",
    ranges: Ranges | None = None,
    *,
    limits: Limits | None = None,
    running: Any = None,
    restricted: bool | str = False,
    ties: str = "stay",
    solver: str = "exact",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    branches: float = math.inf,
    thesis: bool = False,
    progress: Watch | None = None,
) -> Solution:
    """Return the solution of least loss: proven, or with its gap if a limit ends the search.

    Parameters
    ----------
    problem
        Without replication each operator runs once (ODP), with it as several replicas (ODRP); with downtime and
        a running deployment, the change counts, too (EDRP).
    weights
        Weights of the metrics, or the name of one metric, which is then minimised (`log_availability` is maximised).
    ranges
        The least and the greatest value of each metric, which normalise the weights. By default the limits, if
        given, else `find_ranges`.
    limits
        Values that must not be exceeded. If no deployment keeps them all, the running one is kept (status
        "infeasible"), or, if it cannot run, the limit of the response time is dropped ("relaxed").
    running
        The running deployment, as {operator: node or nodes} or counts; None for a first deployment.
    restricted
        Whether each operator may change by one step only (rEDRP); "printed" lets two replicas start at once.
    ties
        "stay": operators stay if a change gains nothing; "any": they may move, as in a program without the running
        deployment.
    solver
        "exact": our search, which uses the structure; "highs": an integer program; "brute": exhaustive search.
    time_limit_s
        Seconds after which the best solution so far is returned.
    gap
        Share of the loss by which the solution may be worse than the optimum.
    branches
        Most branches of the exact search for replicas: a limit with the same result on every machine.
    thesis
        Whether HiGHS solves the thesis's own, larger program for replicas.
    progress
        Function that is called with a `Progress` during the search, for operators that run once.

    Examples
    --------
    >>> from dspkit import placement
    >>> found = solve(placement.example("A"), "response_s")
    >>> found.named, found.loss, found.status
    ({'s': '0', 'm': '1', 't': '2'}, 0.048, 'optimal')
    >>> solve(placement.example("replicas"), "response_s").replicas
    {'1': 1, '2': 2, '3': 1}
    >>> from dataclasses import replace
    >>> problem = replace(placement.example("replicas"), downtime=placement.Downtime(state_bytes=(0, 1.25e6, 0)))
    >>> weights, limits = Weights(0.3, cost=0.3, downtime=0.4), Limits(0.4, 6, 4)
    >>> found = solve(problem, weights, limits=limits, running={"1": "a", "2": "a", "3": "c"})
    >>> found.named["2"], round(found.loss, 6), found.actions["2"]
    ('a', 0.398125, 'none')
    """
    needs_problem(problem)
    limits_allowed(solver, time_limit_s, gap)
    if problem.replication is None:
        asked = {"limits": limits is not None, "running": running is not None, "restricted": restricted}
        asked |= {"branches": branches != math.inf, "thesis": thesis}
        if names := [name for name, there in asked.items() if there]:
            raise PlacementError(
                f"{names[0]} for a problem without replication",
                expected="one with it",
                fix="Problem(..., replication=Replication())",
            )
        costs = _costs(problem, weights, ranges, solver, time_limit_s)
        return minimise(problem, costs, solver=solver, time_limit_s=time_limit_s, gap=gap, progress=progress)
    if progress is not None:
        raise PlacementError("progress with replication", expected="None", fix="leave it out")
    if limits is not None:
        needs_limits(limits)
    objective = _objective(problem, weights, ranges, limits, solver, time_limit_s)
    settings: dict[str, Any] = {
        "solver": solver,
        "time_limit_s": time_limit_s,
        "gap": gap,
        "branches": branches,
        "thesis": thesis,
    }
    if limits is None and running is None:
        return solve_replicas(problem, objective, **settings)
    return reoptimise(problem, running, objective, limits or Limits(), restricted=restricted, ties=ties, **settings)


def _costs(problem: Problem, weights: Weights | str, ranges: Ranges | None, solver: str, time_limit_s: float) -> Costs:
    if isinstance(weights, str):
        if weights not in AIMS:
            raise PlacementError(f"metric {weights!r}", expected=f"one of {', '.join(AIMS)}", fix="choose one")
        return metric_costs(problem, weights, -1 if weights == "log_availability" else 1)
    needs_weights(weights)
    if not (weights.response or weights.availability or weights.network):
        raise PlacementError(
            "weights of cost or downtime alone",
            expected="a problem with replication",
            fix="Problem(..., replication=Replication())",
        )
    if ranges is None:
        ranges = find_ranges(problem, weights.metric, solver=solver, time_limit_s=time_limit_s)
    return weighted_costs(problem, weights, ranges)


def _objective(
    problem: Problem,
    weights: Weights | str,
    ranges: Ranges | None,
    limits: Limits | None,
    solver: str,
    time_limit_s: float,
) -> Objective:
    if isinstance(weights, str):
        return single_objective(weights)
    needs_weights(weights)
    if ranges is None and limits is not None:
        return limited_objective(weights, limits)
    if weights.downtime and (limits is None or math.isinf(limits.downtime_s)):
        raise PlacementError(
            f"weight of downtime {weights.downtime:g} without its limit",
            expected="a limit, which normalises it",
            fix="pass Limits(..., downtime_s=...)",
        )
    if ranges is None:
        ranges = replica_ranges(problem, weights.metric, solver=solver, time_limit_s=time_limit_s)
    needs_ranges(weights, ranges)
    made = weighted_objective(weights, ranges)
    return made._replace(downtime=weights.downtime / limits.downtime_s) if limits is not None else made


def minimise(
    problem: Problem,
    costs: Costs,
    *,
    solver: str = "exact",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    progress: Watch | None = None,
) -> Solution:
    """Return the solution of least loss of a problem without replication, with the objective as costs."""
    needs_problem(problem, once=True)
    if costs.node.shape != (len(problem.application.operators), len(problem.network.nodes)):
        raise PlacementError("costs of another problem", expected="this problem's", fix="make them by weighted_costs()")
    limits_allowed(solver, time_limit_s, gap)
    if solver == "brute":
        return brute_force(problem, costs)
    limits: dict[str, Any] = {"time_limit_s": time_limit_s, "gap": gap, "progress": progress}
    if solver == "highs":
        from .integer_program import highs

        return highs(problem, costs, **limits)

    return solve_exact(problem, costs, **limits)


def find_ranges(
    problem: Problem, metric: str = "usage", *, solver: str = "exact", time_limit_s: float = math.inf
) -> Ranges:
    """Return the ranges of all metrics, which normalise the weights.

    Without replication they are exact: the least and the greatest value of all feasible placements. (The thesis only
    says maximum and minimum.) The greatest response time is the maximum over paths, each maximised separately; paths
    that are equal up to an exchange of equal operators count once. An end that is not proven within its time limit is
    the solver's bound, so that the range contains every placement.

    With replication they are each metric's optimum, and its worst value among the four optima. If several deployments
    are optimal for one metric, the worst values of the others depend on the solver's choice: keep the ranges with the
    results.

    Parameters
    ----------
    problem
        The problem whose metrics are to be normalised.
    metric
        The network metric: "traffic", "usage" or "energy".
    solver
        As of `solve`.
    time_limit_s
        Seconds for each end of a range.

    Examples
    --------
    >>> from dspkit import placement
    >>> placement.find_ranges(placement.example("A"), "traffic").network
    (90.0, 190.0)
    """
    needs_problem(problem)
    if metric not in NETWORK_METRICS:
        raise PlacementError(f"metric {metric!r}", expected=f"one of {', '.join(NETWORK_METRICS)}", fix="choose one")
    if problem.replication is not None:
        limits_allowed(solver, time_limit_s, 0.0)
        return replica_ranges(problem, metric, solver=solver, time_limit_s=time_limit_s)

    def least(costs: Costs) -> float:
        found = minimise(problem, costs, solver=solver, time_limit_s=time_limit_s)
        return found.loss if found.proven else found.bound

    twins = equal_operators(problem)
    paths = {tuple(twins[i] for i in path): path for path in problem.application.paths()}
    slowest = max(-least(along(problem, path, -1)) for path in paths.values())
    best = [least(metric_costs(problem, aim)) for aim in ("response_s", "log_availability", metric)]
    return Ranges(
        _range(best[0], slowest),
        _range(best[1], -least(metric_costs(problem, "log_availability", -1))),
        _range(best[2], -least(metric_costs(problem, metric, -1))),
    )


def _range(low: float, high: float) -> tuple[float, float]:
    """Return both ends; equal ones if they differ by rounding only, which must not be scaled up to a full range."""
    return (low, low) if high - low <= 1e-9 * max(abs(low), abs(high)) else (low, high)
