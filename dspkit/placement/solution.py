"""The solution of a placement problem: nodes of the operators, loss, bound, status and time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..core import FrozenMap, PlacementError
from ..core.typing import Array
from ..core.validation import number
from .metrics import Metrics, metrics
from .problem import Placement, Problem
from .replication.downtime import Running
from .replication.problem import Replicas

SOLVERS = ("exact", "highs", "brute")
STATUSES = ("optimal", "user_limit", "feasible", "infeasible", "relaxed")
PROVEN = 1e-6  # relative gap below which a solution counts as the optimum; HiGHS and CBC have the same setting


class Progress(NamedTuple):
    """The state of a search, as it is passed to `progress`.

    Parameters
    ----------
    seconds
        Time since the search began.
    loss
        Loss of the best placement so far, infinite if there is none.
    bound
        Lower bound of the loss.
    placement
        The best placement so far, as indices of nodes.

    Examples
    --------
    >>> from dspkit import placement
    >>> seen = []
    >>> found = placement.solve(placement.example("B"), progress=seen.append)
    >>> round(seen[0].loss, 6), round(found.loss, 6)
    (0.048, 0.048)
    """

    seconds: float
    loss: float
    bound: float
    placement: Placement | None


Watch = Callable[[Progress], object]
Longer = Callable[[], tuple[Placement, float]]  # a longer local search: a placement and its loss


@dataclass(frozen=True)
class Clock:
    """The clock of a search: its start and deadline, the gap that suffices, and the `progress` function."""

    started: float
    deadline: float
    gap: float
    constant: float
    watch: Watch | None

    @property
    def over(self) -> bool:
        """True after the deadline."""
        return time.perf_counter() > self.deadline

    def slack(self, loss: float) -> float:
        """Return the improvement of the best loss below which the search ends."""
        return max(self.gap * abs(loss), 1e-9 * abs(loss) + 1e-13) if math.isfinite(loss) else 0.0

    def tell(self, loss: float, bound: float, placement: Placement) -> None:
        """Report the state of the search."""
        if self.watch is not None:
            seconds = time.perf_counter() - self.started
            self.watch(Progress(seconds, loss + self.constant, bound + self.constant, placement.copy()))


def limits_allowed(solver: str, time_limit_s: float, gap: float) -> None:
    """Raise an error for an unknown solver or invalid limits."""
    if solver not in SOLVERS:
        raise PlacementError(f"solver {solver!r}", expected=f"one of {', '.join(SOLVERS)}", fix="choose one")
    for name, value in (("time_limit_s", time_limit_s), ("gap", gap)):
        number(value, name, 0, infinite=True, error=PlacementError)


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The solution that a solver or a heuristic found, with a bound of its distance from the optimum.

    Parameters
    ----------
    problem
        The problem that was solved.
    where
        Index of each operator's node; in a problem with replication, counts of replicas (operators x nodes).
    loss
        The objective, to be minimised.
    bound
        Lower bound of the loss of all solutions; minus infinity from heuristics.
    seconds
        Duration of the search.
    solver
        One of `SOLVERS`, or the name of a heuristic.
    details
        Numbers of the search, such as its branches.
    running
        The running deployment, if the problem was to change it.
    status
        "optimal": proven. "user_limit": the best when a limit of time, branches or gap ended the search. "feasible":
        without a bound. "infeasible": no deployment keeps all limits, and the running one is kept. "relaxed": no
        deployment keeps all limits, nor can the running one be kept: the limit of the response time is dropped.

    Examples
    --------
    >>> from dspkit import placement
    >>> found = placement.solve(placement.example("replicas"), "response_s")
    >>> found.status, found.nodes
    ('optimal', {'1': ('a',), '2': ('b', 'b'), '3': ('c',)})
    """

    problem: Problem
    where: Array
    loss: float
    bound: float
    seconds: float
    solver: str
    details: Mapping[str, Any] = field(default_factory=FrozenMap)
    running: Running | None = None
    status: str = ""

    def __post_init__(self) -> None:
        if not self.status:
            open_ = "user_limit" if self.solver in SOLVERS else "feasible"
            object.__setattr__(self, "status", "optimal" if self.proven else open_)

    @property
    def gap(self) -> float:
        """The greatest distance that the solution may have from the optimum, as a share of its loss."""
        distance = max(0.0, self.loss - self.bound)
        return 0.0 if distance <= 1e-9 else distance / max(abs(self.loss), 1e-12)

    @property
    def proven(self) -> bool:
        """True if the gap is so small that the solution counts as the optimum."""
        return self.gap <= PROVEN

    @property
    def metrics(self) -> Metrics:
        """The metrics, computed from the placement and not taken from the solver."""
        return metrics(self.problem, self.where)

    @property
    def downtime_s(self) -> float:
        """T_D of the change, computed from the deployments; 0 for a first deployment."""
        return 0.0 if self.running is None else self.problem.downtime_s(self.running, self.where)

    @property
    def placement(self) -> Placement:
        """Index of each operator's node, if each runs once."""
        if self.where.ndim == 1:
            return self.where
        if (self.where.sum(axis=1) > 1).any():
            raise PlacementError("operators with several replicas", expected="one each", fix="read .nodes")
        found: Placement = self.where.argmax(axis=1)
        return found

    @property
    def named(self) -> dict[str, str]:
        """Each operator's node by name, if each runs once."""
        return self.problem.named(self.placement)

    @property
    def deployment(self) -> Replicas:
        """Counts of replicas: one row per operator, one column per node."""
        return self.problem.deploy(self.where)

    @property
    def nodes(self) -> dict[str, tuple[str, ...]]:
        """Nodes of each operator by name, one per replica."""
        return self.problem.nodes_of(self.where)

    @property
    def replicas(self) -> dict[str, int]:
        """Number of replicas of each operator."""
        return {operator: len(nodes) for operator, nodes in self.nodes.items()}

    @property
    def actions(self) -> dict[str, str]:
        """The action of each operator: "none", "migrate", "scale-out" or "scale-in"; "deploy" in a first deployment."""
        operators = self.problem.application.operators
        if self.running is None:
            return dict.fromkeys(operators, "deploy")
        found = {}
        for o, old, new, lost in zip(operators, self.running.counts, self.where, self.running.lost, strict=True):
            more = int(new.sum()) - int(old.sum())
            same = not lost and (old == new).all()
            found[o] = "none" if same else "scale-out" if more > 0 else "scale-in" if more < 0 else "migrate"
        return found

    def __repr__(self) -> str:
        proof = "proven optimum" if self.proven else f"gap {self.gap:.1%}" if self.gap < math.inf else "no bound"
        return f"<{type(self).__name__} of {self.solver}: loss {self.loss:.6g}, {proof}, {self.seconds:.3g} s>"
