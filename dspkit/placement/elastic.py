"""EDRP: keep what runs, or change it, with the downtime of the change weighed in (chapter 8) [nardelli].

| here | thesis |
|---|---|
| `ElasticWeights` | w_r, w_c, w_d |
| `Limits` | R_max, C_max, T_D,max: bounds (8.15)-(8.17) and normalisers |
| `restricted` | rEDRP: each operator one step from where it runs; "printed" lets two replicas come at once |
| `ElasticAnswer.status` | "optimal", "gap"; "infeasible": what runs is kept; "violated": above R_max |
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import InfeasibleError, PlacementError
from ..frozen import FrozenMap
from ..knobs import knob
from .answer import Proof, limits_allowed
from .arrays import number
from .downtime import Downtime, Running
from .metrics import Weighing
from .multisets import neighbours
from .replica_check import replica_check, replica_violations
from .replica_metrics import Objective, ReplicaMetrics, replica_metrics
from .replica_options import Options, listable, options
from .replica_problem import Replicas
from .replica_program import Change, Limits, ReplicaProgram, replica_program
from .replicate import REPLICA_SOLVERS, exhaust

TIES = ("stay", "any")


@dataclass(frozen=True)
class ElasticWeights(Weighing):
    """What counts how much: the thesis's "balanced" setting; baseline is (0.5, 0.5, 0)."""

    response: float = knob(0.3, "weight of the response time (w_r)", low=0.0, high=1.0)
    cost: float = knob(0.3, "weight of the cost (w_c)", low=0.0, high=1.0)
    downtime: float = knob(0.4, "weight of the downtime of the change (w_d)", low=0.0, high=1.0)

    def objective(self, limits: Limits) -> Objective:
        """Each metric as a share of its limit; a weight of 0 needs none."""
        shares = []
        for weight, limit in zip((self.response, self.cost, self.downtime), limits, strict=True):
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
                raise PlacementError(f"limit {limit!r}", expected="a number above 0", fix="correct the limits")
            if weight and math.isinf(limit):
                raise PlacementError(f"{limits} with {self}", expected="a finite limit for each weight", fix="set it")
            shares.append(weight / limit)
        return Objective(response=shares[0], cost=shares[1], downtime=shares[2])


@dataclass(frozen=True, eq=False, repr=False)
class ElasticAnswer(Proof):
    """What to run next, why, and what the change costs."""

    downtime: Downtime
    running: Running | None
    deployment: Replicas
    loss: float
    bound: float
    seconds: float
    solver: str
    status: str
    details: Mapping[str, Any] = field(default_factory=FrozenMap)

    @property
    def metrics(self) -> ReplicaMetrics:
        return replica_metrics(self.downtime.problem, self.deployment)

    @property
    def downtime_s(self) -> float:
        """T_D, computed anew; 0 for a first deployment."""
        return 0.0 if self.running is None else self.downtime.of(self.running, self.deployment)

    @property
    def named(self) -> dict[str, tuple[str, ...]]:
        return self.downtime.problem.named(self.deployment)

    @property
    def replicas(self) -> dict[str, int]:
        """How many of each operator."""
        return {operator: len(nodes) for operator, nodes in self.named.items()}

    @property
    def actions(self) -> dict[str, str]:
        """For each operator "none", "migrate", "scale-out" or "scale-in"; "deploy" where nothing runs yet."""
        operators = self.downtime.problem.problem.application.operators
        if self.running is None:
            return dict.fromkeys(operators, "deploy")
        found = {}
        for o, old, new, lost in zip(operators, self.running.counts, self.deployment, self.running.lost, strict=True):
            more = int(new.sum()) - int(old.sum())
            same = not lost and (old == new).all()
            found[o] = "none" if same else "scale-out" if more > 0 else "scale-in" if more < 0 else "migrate"
        return found


def adapt(
    downtime: Downtime, running: Any, weights: ElasticWeights, limits: Limits, *, restricted: bool | str = False,
    solver: str = "highs", time_limit_s: float = math.inf, gap: float = 0.0, thesis: bool = False,
    branches: float = math.inf, ties: str = "stay",
) -> ElasticAnswer:  # fmt: skip
    """The best deployment to run next; `running` None is a first deployment, whose downtime does not count.

    If nothing keeps all limits, what runs is kept (status "infeasible"); if that cannot run either, R_max is dropped
    ("violated"). Where a change gains nothing, operators stay where they are; with `ties="any"` they may
    move all the same, as in a program that knows nothing of what runs. `solver="own"` solves what is too large for a
    program; `branches` limits it as time does, but the same on every machine.

    >>> from dspkit import placement
    >>> moves = Downtime(placement.replica_example(), state_bytes=(0, 1.25e6, 0))
    >>> found = adapt(moves, {"1": "a", "2": "a", "3": "c"}, ElasticWeights(), Limits(0.4, 6, 4), solver="brute")
    >>> found.named["2"], round(found.loss, 6), found.status
    (('a',), 0.398125, 'optimal')
    """
    if not isinstance(downtime, Downtime) or not isinstance(weights, ElasticWeights) or not isinstance(limits, Limits):
        came = ", ".join(type(v).__name__ for v in (downtime, weights, limits))
        raise PlacementError(came, expected="a Downtime, ElasticWeights and Limits", fix="see placement.adapt")
    if restricted not in (False, True, "printed"):
        raise PlacementError(f"restricted={restricted!r}", expected="False, True or 'printed'", fix="correct it")
    if ties not in TIES:
        raise PlacementError(f"ties={ties!r}", expected=f"one of {', '.join(TIES)}", fix="correct it")
    limits_allowed(solver, REPLICA_SOLVERS, time_limit_s, gap)
    number(branches, "branches", infinite=True)
    runs = None if running is None else downtime.running(running)
    objective = weights.objective(limits)
    search = _Search(downtime, runs, objective, restricted, solver, time_limit_s, gap, thesis, branches, ties)
    try:
        return search.best(limits)
    except InfeasibleError:
        if runs is None:
            raise
    if not runs.lost.any() and not replica_violations(downtime.problem, runs.counts):
        loss = objective.of(replica_metrics(downtime.problem, runs.counts))
        return ElasticAnswer(downtime, runs, runs.counts, loss, loss, search.seconds, solver, "infeasible")
    return search.best(limits._replace(response_s=math.inf), "violated")


def one_step(runs: Running, *, printed: bool = False) -> Any:
    """Which options rEDRP leaves each operator; one whose replicas are all lost may start anywhere."""

    def keep(i: int, rows: Any) -> Any:
        return neighbours(rows, runs.counts[i], printed=printed) if runs.counts[i].any() else np.ones(len(rows), bool)

    return keep


def change_of(found: Options, downtime: Downtime, runs: Running) -> Change:
    """What each option means for the downtime."""
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
    found: Options, downtime: Downtime, runs: Running | None, objective: Objective, limits: Limits, *,
    thesis: bool = False,
) -> ReplicaProgram:  # fmt: skip
    """(8.12)-(8.23) over these options."""
    listable(found)  # before all their downtimes are computed
    if runs is None:
        first = objective._replace(downtime=0.0)
        return replica_program(found, first, limits=limits._replace(downtime_s=math.inf), thesis=thesis)
    change = change_of(found, downtime, runs)
    return replica_program(found, objective, limits=limits, change=change, thesis=thesis)


class _Search:
    def __init__(
        self, downtime: Downtime, runs: Running | None, objective: Objective, restricted: bool | str, solver: str,
        time_limit_s: float, gap: float, thesis: bool, branches: float, ties: str,
    ):  # fmt: skip
        self.downtime, self.runs, self.objective, self.restricted = downtime, runs, objective, restricted
        self.solver, self.time_limit_s, self.gap, self.thesis = solver, time_limit_s, gap, thesis
        self.branches, self.ties, self.started = branches, ties, time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def best(self, limits: Limits, status: str = "") -> ElasticAnswer:
        keep = None
        if self.restricted and self.runs is not None:
            keep = one_step(self.runs, printed=self.restricted == "printed")
        found = options(self.downtime.problem, keep)
        details: dict[str, Any] = {}
        if self.solver == "brute":
            deployment, bound = exhaust(found, lambda deployment: self.loss(deployment, limits))
        elif self.solver == "own":
            deployment, bound, details = self.own(found, limits)
        else:
            from .highs import optimum

            program = elastic_program(found, self.downtime, self.runs, self.objective, limits, thesis=self.thesis)
            left = self.time_limit_s - self.seconds
            z, bound, details = optimum(program, time_limit_s=left, gap=self.gap)
            deployment = program.deployment(z)
        if self.solver != "brute":
            replica_check(self.downtime.problem, deployment)
        deployment, loss = (
            self.settled(deployment, limits) if self.ties == "stay" else (deployment, self.loss(deployment, limits))
        )
        made = ElasticAnswer(
            self.downtime, self.runs, deployment, loss, bound, self.seconds, self.solver, status, details
        )
        return made if status else replace(made, status="optimal" if made.proven else "gap")

    def own(self, found: Options, limits: Limits) -> tuple[Replicas, float, dict[str, Any]]:
        """By branch and bound."""
        from .replica_branch import branch_replicas

        limited: dict[str, Any] = {
            "time_limit_s": self.time_limit_s - self.seconds,
            "gap": self.gap,
            "branches": self.branches,
        }
        if self.runs is None:
            first = self.objective._replace(downtime=0.0)
            limits = limits._replace(downtime_s=math.inf)
            return branch_replicas(found, first, limits, **limited)
        start, now = None, self.runs.counts
        stays = self.ties == "stay" and not self.runs.lost.any()
        if stays and not replica_violations(self.downtime.problem, now):
            start = (now, mine) if math.isfinite(mine := self.loss(now, limits)) else None
        change = change_of(found, self.downtime, self.runs)
        return branch_replicas(found, self.objective, limits, change=change, start=start, **limited)

    def loss(self, deployment: Replicas, limits: Limits) -> float:
        """The objective; infinite above a limit."""
        found = replica_metrics(self.downtime.problem, deployment)
        moved = 0.0 if self.runs is None else self.downtime.of(self.runs, deployment)
        over = (
            value > limit * (1 + 1e-6)
            for value, limit in zip((found.response_s, found.cost, moved), limits, strict=True)
        )
        return math.inf if any(over) else self.objective.of(found, moved)

    def settled(self, deployment: Replicas, limits: Limits) -> tuple[Replicas, float]:
        """The same with every operator put back that gains nothing by its change, all at once or one by one."""
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
            if not tried.any(axis=1).all() or replica_violations(self.downtime.problem, tried):
                continue
            if (value := self.loss(tried, limits)) <= loss + 1e-9:
                if tried is self.runs.counts:
                    return tried, value
                return self.settled(tried, limits)
        return deployment, loss
