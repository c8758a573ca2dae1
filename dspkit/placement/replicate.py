"""ODRP: how many replicas of each operator, and where each runs, found in one step (chapter 6) [nardelli]."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InfeasibleError, PlacementError
from ..frozen import FrozenMap
from .answer import Proof, limits_allowed
from .metrics import NETWORK_METRICS
from .replica_check import replica_check, replica_violations
from .replica_metrics import (
    ReplicaMetrics,
    ReplicaRanges,
    ReplicaWeights,
    replica_metrics,
    single_objective,
    weighted_objective,
)
from .replica_options import Options, deployments, options
from .replica_problem import ReplicaProblem, Replicas

REPLICA_SOLVERS = ("highs", "own", "brute")
MOST = 1_000_000  # deployments that exhaustive search looks at


@dataclass(frozen=True, eq=False, repr=False)
class ReplicaAnswer(Proof):
    """A deployment and its proof."""

    problem: ReplicaProblem
    deployment: Replicas
    loss: float
    bound: float
    seconds: float
    solver: str
    details: Mapping[str, Any] = field(default_factory=FrozenMap)

    @property
    def metrics(self) -> ReplicaMetrics:
        """Computed anew from the deployment, never read off the program."""
        return replica_metrics(self.problem, self.deployment)

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        return self.problem.named(self.deployment)

    @property
    def replicas(self) -> dict[str, int]:
        """How many of each operator."""
        return {operator: len(nodes) for operator, nodes in self.named.items()}


def replicate(
    problem: ReplicaProblem,
    weights: ReplicaWeights | str = "response_s",
    ranges: ReplicaRanges | None = None,
    *,
    solver: str = "highs",
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    thesis: bool = False,
) -> ReplicaAnswer:
    """The deployment of least loss: proven, or with its gap once the time limit is over.

    `weights` are weights, normalised by `ranges` (`replica_ranges` if not given), or one metric by its name, which is
    then made as small as possible (log_availability as large). `thesis` builds the thesis's own, larger program.

    >>> from dspkit import placement
    >>> base = placement.example("A")
    >>> answer = replicate(ReplicaProblem(base, most=2, service_rate_per_s=(500, 120, 500)), "cost", solver="brute")
    >>> answer.loss, answer.proven
    (3.0, True)
    """
    if not isinstance(problem, ReplicaProblem):
        raise PlacementError(
            repr(problem)[:80], expected="a ReplicaProblem", fix="see dspkit.placement.replica_problem"
        )
    if isinstance(weights, str):
        objective = single_objective(weights)
    else:
        if ranges is None:
            ranges = replica_ranges(problem, weights.metric, solver=solver, time_limit_s=time_limit_s)
        objective = weighted_objective(weights, ranges)
    limits_allowed(solver, REPLICA_SOLVERS, time_limit_s, gap)
    started = time.perf_counter()
    found = options(problem)
    if solver == "brute":
        best, least = exhaust(found, lambda deployment: objective.of(replica_metrics(problem, deployment)))
        return ReplicaAnswer(problem, best, least, least, time.perf_counter() - started, "brute")
    left = time_limit_s - (time.perf_counter() - started)
    if solver == "own":
        from .replica_branch import branch_replicas

        best, bound, details = branch_replicas(found, objective, time_limit_s=left, gap=gap)
    else:
        from .highs import optimum
        from .replica_program import replica_program

        program = replica_program(found, objective, thesis=thesis)
        z, bound, details = optimum(program, time_limit_s=left, gap=gap)
        best = program.deployment(z)
    loss = objective.of(replica_check(problem, best))
    return ReplicaAnswer(problem, best, loss, bound, time.perf_counter() - started, solver, details)


def replica_ranges(
    problem: ReplicaProblem, metric: str = "traffic", *, solver: str = "highs", time_limit_s: float = math.inf
) -> ReplicaRanges:
    """What normalises the weights: each metric's optimum, and its worst value among the four optima.

    Where several deployments are optimal for one metric the worst values of the others depend on the solver's choice:
    keep the ranges with the results.
    """
    if metric not in NETWORK_METRICS:
        raise PlacementError(f"metric {metric!r}", expected=f"one of {', '.join(NETWORK_METRICS)}", fix="correct it")
    aims = ("response_s", "log_availability", "cost", metric)
    found = [replicate(problem, aim, solver=solver, time_limit_s=time_limit_s).metrics for aim in aims]
    return ReplicaRanges(*((min(v), max(v)) for v in ([getattr(m, aim) for m in found] for aim in aims)))


def feasible(found: Options) -> Iterator[Replicas]:
    """Every combination of options that keeps all rules, in their order; nodes that are full end a branch early."""
    problem = found.problem
    if (count := deployments(found)) > MOST:
        raise PlacementError(f"{count} deployments", expected=f"at most {MOST}", fix="use another solver")
    room, demand = problem.problem.network.capacity * (1 + 1e-9) + 1e-9, problem.problem.application.demand

    def fill(rows: list[int], left: Any) -> Iterator[Replicas]:
        i = len(rows)
        if i == len(found.counts):
            if not replica_violations(problem, made := found.chosen(rows)):
                yield made
            return
        for r in np.flatnonzero((found.counts[i] * demand[i] <= left + 1e-12).all(axis=1)).tolist():
            yield from fill([*rows, r], left - found.counts[i][r] * demand[i])

    yield from fill([], room)


def exhaust(found: Options, loss: Callable[[Replicas], float]) -> tuple[Replicas, float]:
    """Look at every deployment that keeps the rules; the first of the best ones."""
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
