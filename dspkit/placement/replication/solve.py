"""ODRP: the number of replicas of each operator, and their nodes, in one step (chapter 6) [nardelli]."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core import InfeasibleError, PlacementError
from ..certificate import check, violations
from ..metrics import Objective, Ranges, replica_metrics, single_objective
from ..problem import Problem
from ..solution import Solution
from .options import Options, deployments, options
from .problem import Replicas

MOST = 1_000_000  # most deployments of an exhaustive search


def solve_replicas(
    problem: Problem,
    objective: Objective,
    *,
    solver: str = "exact",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    branches: float = math.inf,
    thesis: bool = False,
) -> Solution:
    """Return the deployment of least loss of a problem with replication; call it through `placement.solve`."""
    started = time.perf_counter()
    found = options(problem)
    if solver == "brute":
        best, least = exhaust(found, lambda deployment: objective.of(replica_metrics(problem, deployment)))
        return Solution(problem, best, least, least, time.perf_counter() - started, "brute")
    left = time_limit_s - (time.perf_counter() - started)
    if solver == "exact":
        from .branch_and_bound import branch_replicas

        best, bound, details = branch_replicas(found, objective, time_limit_s=left, gap=gap, branches=branches)
    else:
        from ..solvers.highs import optimum
        from .program import replica_program

        program = replica_program(found, objective, thesis=thesis)
        z, bound, details = optimum(program, time_limit_s=left, gap=gap)
        best = program.deployment(z)
    loss = objective.of(check(problem, best))
    return Solution(problem, best, loss, bound, time.perf_counter() - started, solver, details)


def replica_ranges(problem: Problem, metric: str, *, solver: str, time_limit_s: float) -> Ranges:
    """Return each metric's optimum, and its worst value among the four optima."""
    aims = ("response_s", "log_availability", metric, "cost")
    found = [
        solve_replicas(problem, single_objective(aim), solver=solver, time_limit_s=time_limit_s).metrics for aim in aims
    ]
    return Ranges(*((min(v), max(v)) for v in ([getattr(m, aim) for m in found] for aim in aims)))


def feasible(found: Options) -> Iterator[Replicas]:
    """Yield every feasible combination of options, in their order; full nodes end a branch early."""
    problem = found.problem
    if (count := deployments(found)) > MOST:
        raise PlacementError(f"{count} deployments", expected=f"at most {MOST}", fix="use another solver")
    room, demand = problem.network.capacity * (1 + 1e-9) + 1e-9, problem.application.demand

    def fill(rows: list[int], left: Any) -> Iterator[Replicas]:
        i = len(rows)
        if i == len(found.counts):
            if not violations(problem, made := found.chosen(rows)):
                yield made
            return
        for r in np.flatnonzero((found.counts[i] * demand[i] <= left + 1e-12).all(axis=1)).tolist():
            yield from fill([*rows, r], left - found.counts[i][r] * demand[i])

    yield from fill([], room)


def exhaust(found: Options, loss: Callable[[Replicas], float]) -> tuple[Replicas, float]:
    """Return the best feasible deployment, the first of equal ones, and its loss."""
    best, least = None, math.inf
    for deployment in feasible(found):
        value = loss(deployment)
        if value < least - 1e-12:
            best, least = deployment, value
    if best is None:
        raise InfeasibleError(
            "a problem without any feasible deployment", expected="room for all operators", fix="add capacity or links"
        )
    return best, least
