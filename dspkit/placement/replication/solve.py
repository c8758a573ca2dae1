"""ODRP and EDRP: replicas and their nodes in one step (chapter 6), and whether to change them (chapter 8) [nardelli].

EDRP keeps or changes the running deployment, with the downtime of the change in the objective.

| here | thesis |
|---|---|
| `Weights`: `response`, `cost`, `downtime` | w_r, w_c, w_d |
| `Limits` | R_max, C_max, T_D,max: bounds (8.15)-(8.17) and normalisers |
| `restricted` | rEDRP: each operator changes by one step; "printed" lets two replicas start at once |
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.validation import number
from ..certificate import check, violations
from ..metrics import Limits, Objective, Ranges, replica_metrics, single_objective
from ..problem import Problem
from ..solution import Solution
from .downtime import Downtime, Running
from .options import Options, deployments, listable, neighbours, options
from .problem import Replicas
from .program import Change, ReplicaProgram, replica_program

MOST = 1_000_000  # most deployments of an exhaustive search
TIES = ("stay", "any")


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
        from ..solvers.integer_program import optimum

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


def reoptimise(
    problem: Problem,
    running: Any,
    objective: Objective,
    limits: Limits,
    *,
    restricted: bool | str = False,
    solver: str = "exact",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    thesis: bool = False,
    branches: float = math.inf,
    ties: str = "stay",
) -> Solution:
    """Return the best next deployment; call it through `placement.solve`, which documents the settings.

    If `running` is None, it is a first deployment, whose downtime does not count.
    """
    if restricted not in (False, True, "printed"):
        raise PlacementError(f"restricted={restricted!r}", expected="False, True or 'printed'", fix="choose one")
    if ties not in TIES:
        raise PlacementError(f"ties={ties!r}", expected=f"one of {', '.join(TIES)}", fix="choose one")
    number(branches, "branches", 0, infinite=True, error=PlacementError)
    if running is not None and problem.downtime is None:
        raise PlacementError(
            "a running deployment, and a problem without downtime",
            expected="one with it",
            fix="Problem(..., downtime=Downtime())",
        )
    runs = None if running is None else problem.running(running)
    search = _Search(problem, runs, objective, restricted, solver, time_limit_s, gap, thesis, branches, ties)
    try:
        return search.best(limits)
    except InfeasibleError:
        if runs is None:
            raise
    if not runs.lost.any() and not violations(problem, runs.counts):
        loss = objective.of(replica_metrics(problem, runs.counts))
        return Solution(problem, runs.counts, loss, loss, search.seconds, solver, running=runs, status="infeasible")
    return search.best(limits._replace(response_s=math.inf), "relaxed")


def one_step(runs: Running, *, printed: bool = False) -> Any:
    """Return the filter of rEDRP's options; an operator that lost all replicas may start anywhere."""

    def keep(i: int, rows: Any) -> Any:
        return neighbours(rows, runs.counts[i], printed=printed) if runs.counts[i].any() else np.ones(len(rows), bool)

    return keep


def change_of(found: Options, downtime: Downtime, runs: Running) -> Change:
    """Return the downtime of each option."""
    hosts: Any = runs.counts.any(axis=0)
    seconds, at = [], []
    for i, rows in enumerate(found.counts):
        lost, old = bool(runs.lost[i]), runs.counts[i]
        seconds.append(downtime.operators_s(i, old, rows, lost=lost, hosts=hosts))
        same = np.flatnonzero((rows == old).all(axis=1))
        at.append(None if lost or not len(same) else int(same[0]))
    restart = max(downtime.restart_s(i, old) for i, old in enumerate(runs.counts))
    return Change(tuple(seconds), restart, tuple(at))


def elastic_program(
    found: Options,
    downtime: Downtime | None,
    runs: Running | None,
    objective: Objective,
    limits: Limits,
    *,
    thesis: bool = False,
) -> ReplicaProgram:
    """Return the program (8.12)-(8.23) over these options."""
    listable(found)  # checked before all downtimes are computed
    if runs is None or downtime is None:
        first = objective._replace(downtime=0.0)
        return replica_program(found, first, limits=limits._replace(downtime_s=math.inf), thesis=thesis)
    change = change_of(found, downtime, runs)
    return replica_program(found, objective, limits=limits, change=change, thesis=thesis)


class _Search:
    def __init__(
        self,
        problem: Problem,
        runs: Running | None,
        objective: Objective,
        restricted: bool | str,
        solver: str,
        time_limit_s: float,
        gap: float,
        thesis: bool,
        branches: float,
        ties: str,
    ):
        self.problem, self.downtime, self.runs = problem, problem.downtime_model, runs
        self.objective, self.restricted = objective, restricted
        self.solver, self.time_limit_s, self.gap, self.thesis = solver, time_limit_s, gap, thesis
        self.branches, self.ties, self.started = branches, ties, time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def best(self, limits: Limits, status: str = "") -> Solution:
        keep = None
        if self.restricted and self.runs is not None:
            keep = one_step(self.runs, printed=self.restricted == "printed")
        found = options(self.problem, keep)
        details: dict[str, Any] = {}
        if self.solver == "brute":
            deployment, bound = exhaust(found, lambda deployment: self.loss(deployment, limits))
        elif self.solver == "exact":
            deployment, bound, details = self.exact(found, limits)
        else:
            from ..solvers.integer_program import optimum

            program = elastic_program(found, self.downtime, self.runs, self.objective, limits, thesis=self.thesis)
            left = self.time_limit_s - self.seconds
            z, bound, details = optimum(program, time_limit_s=left, gap=self.gap)
            deployment = program.deployment(z)
        if self.solver != "brute":
            check(self.problem, deployment)
        deployment, loss = (
            self.settled(deployment, limits) if self.ties == "stay" else (deployment, self.loss(deployment, limits))
        )
        return Solution(self.problem, deployment, loss, bound, self.seconds, self.solver, details, self.runs, status)

    def exact(self, found: Options, limits: Limits) -> tuple[Replicas, float, dict[str, Any]]:
        """Return the best deployment by branch and bound."""
        from .branch_and_bound import branch_replicas

        limited: dict[str, Any] = {
            "time_limit_s": self.time_limit_s - self.seconds,
            "gap": self.gap,
            "branches": self.branches,
        }
        if self.runs is None or self.downtime is None:
            first = self.objective._replace(downtime=0.0)
            limits = limits._replace(downtime_s=math.inf)
            return branch_replicas(found, first, limits, **limited)
        start, now = None, self.runs.counts
        stays = self.ties == "stay" and not self.runs.lost.any()
        if stays and not violations(self.problem, now):
            start = (now, mine) if math.isfinite(mine := self.loss(now, limits)) else None
        change = change_of(found, self.downtime, self.runs)
        return branch_replicas(found, self.objective, limits, change=change, start=start, **limited)

    def loss(self, deployment: Replicas, limits: Limits) -> float:
        """Return the objective; infinite above a limit."""
        found = replica_metrics(self.problem, deployment)
        moved = 0.0 if self.runs is None or self.downtime is None else self.downtime.of(self.runs, deployment)
        over = (
            value > limit * (1 + 1e-6)
            for value, limit in zip((found.response_s, found.cost, moved), limits, strict=True)
        )
        return math.inf if any(over) else self.objective.of(found, moved)

    def settled(self, deployment: Replicas, limits: Limits) -> tuple[Replicas, float]:
        """Return the deployment without changes that gain nothing, undone all at once or operator by operator."""
        loss = self.loss(deployment, limits)
        if math.isinf(loss):
            raise PlacementError("a deployment above a limit", expected="one below", fix="do not trust this solver")
        if self.runs is None:
            return deployment, loss
        back = [self.runs.counts]
        for i, (old, new) in enumerate(zip(self.runs.counts, deployment, strict=True)):
            if (old != new).any():
                one = deployment.copy()
                one[i] = old
                back.append(one)
        for tried in back:
            if not tried.any(axis=1).all() or violations(self.problem, tried):
                continue
            if (value := self.loss(tried, limits)) <= loss + 1e-9:
                if tried is self.runs.counts:
                    return tried, value
                return self.settled(tried, limits)
        return deployment, loss
