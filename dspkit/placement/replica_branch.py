"""Our own search for deployments with replicas: short searches, a climb, and a branch and bound that proves."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from ..errors import InfeasibleError, PlacementError
from .kernels_replicas import dig
from .multisets import neighbours
from .replica_levels import Branching
from .replica_metrics import Objective
from .replica_options import Options
from .replica_problem import Replicas
from .replica_program import Change, Limits

Array = np.ndarray[Any, Any]
STEPS = 400  # branches between two looks at the clock
WIDTHS = (1, 2, 3, 5, 8)  # children looked at of each branch, in short searches for a first deployment
SHORT = 2_000  # branches of each
LARGE = 300  # options of an operator above which a local search comes first
STEPS_FEW, STEPS_NEAR = 40_000, 10_000  # branches with few replicas, and of each step of the local search


class _Dig:
    """One search over the options of `made`, that goes on where it stopped."""

    def __init__(self, made: Branching, best: float):
        self.made = made
        levels, nodes = made.levels, made.nodes
        shape = (levels, nodes, made.units)
        self.many = int(np.diff(made.first).max())
        self.state, self.ended = np.array([0, 1, 0], np.int64), False
        done, free = np.zeros((levels + 1, 5)), np.zeros((levels + 1, nodes))
        done[0, 0], free[0] = made.constant, made.free0
        wide = (levels + 1, nodes, nodes) if made.tolled or made.linked or made.narrow else (levels + 1, 1, 1)
        self.child_bound = np.zeros((levels, self.many))
        self.children, self.position = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
        self.rows, self.least = np.full(levels, -1, np.int64), np.array([best])
        width_per_s = made.net.bandwidth_per_s * (1 + 1e-9) + 1e-9
        after = [np.zeros((3, *shape)), np.zeros((3, levels, 2 * nodes)), *np.zeros((2, 3, *shape[:2]))]
        limits = made.limits
        self.arrays = (
            made.first, made.where, made.counts, made.support, made.size, made.seconds, made.price, made.moved,
            made.bound, *made.into, *made.out, made.demand, made.unit, made.scale, made.extra, made.single, made.spread,
            made.net.delay_s, made.nearest, made.toll, made.toll_ahead, made.fare, made.tolled, made.node_loss,
            made.link_loss, made.linked, made.app.rate_per_s, width_per_s, made.narrow,
            made.options.problem.traffic == "support", made.objective.response, made.objective.downtime, made.dearer,
            limits.response_s * (1 + 1e-9), limits.cost * (1 + 1e-9) + 1e-9, made.cheapest,
            np.zeros(levels, np.int64), done, np.zeros((levels, nodes)), free, np.zeros((levels + 1, nodes), np.int64),
            np.zeros(wide, np.int64), np.zeros(wide), np.zeros((levels, nodes)),
            np.zeros((levels, self.many), np.int64), self.child_bound, self.children, self.position, self.rows,
            self.least, np.zeros(nodes, np.int64), np.zeros(nodes), *after,
            np.zeros_like(made.extra), np.zeros_like(made.toll), *np.zeros((3, 3)),
        )  # fmt: skip

    def dig(self, deadline: float, *, width: int = 0, most: float = math.inf, gap: float = 0.0) -> bool:
        """Go on until all is looked at (True), or time or branches are over."""
        while self.state[2] < most:
            if dig(int(min(STEPS, most)), width or self.many, self.state, gap, *self.arrays):
                return True
            if time.perf_counter() > deadline:
                break
        return False

    def again(self) -> None:
        """From the start, with what was found."""
        self.state[:] = 0, 1, 0

    @property
    def found(self) -> Replicas | None:
        if self.rows[0] < 0:
            return None
        made = np.zeros((self.made.levels, self.made.nodes), np.int64)
        made[self.made.order] = self.made.rows[self.rows]
        return made

    @property
    def open(self) -> float:
        """The least bound of what was not looked at."""
        level, look = int(self.state[0]), int(self.state[1])
        left = [math.inf]
        for k in range(level + 1 - look):
            at = self.position[k] - (1 if look and k == level - 1 else 0)
            if at < self.children[k]:
                left.append(float(self.child_bound[k, at]))
        return min(left)


def branch_replicas(
    found: Options, objective: Objective, limits: Limits = Limits(), *, change: Change | None = None,  # noqa: B008
    start: tuple[Replicas, float] | None = None, time_limit_s: float = math.inf, gap: float = 0.0,
    branches: float = math.inf,
) -> tuple[Replicas, float, dict[str, Any]]:  # fmt: skip
    """The best deployment, the bound below all others, and what the search did; `start`: one that may run, its loss."""
    deadline = time.perf_counter() + time_limit_s
    made = Branching(found, objective, limits, change)
    made.bound_options()
    search = _Dig(made, math.inf if start is None else start[1])
    for width in WIDTHS:
        if width < search.many and time.perf_counter() < deadline:
            search.again()
            search.dig(deadline, width=width, most=SHORT, gap=gap)
    best, least = start if start is not None else (None, math.inf)
    if search.found is not None:
        best, least = search.found, float(search.least[0])
    if best is not None and search.many > LARGE:
        best, least = climb(found, objective, limits, change, best, least, deadline, branches)
        if least < search.least[0]:
            search.least[0], search.rows[:] = least, -1
    search.again()
    ended = time.perf_counter() < deadline and search.dig(deadline, most=branches, gap=gap)
    if search.found is not None:
        best, least = search.found, float(search.least[0])
    if best is None:
        if not ended:
            raise PlacementError("no deployment in time", expected="one within the limits", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible deployment", expected="room for all operators", fix="add capacity or links"
        )
    bound = least - max(gap, 1e-9) * abs(least)
    if not ended:
        bound = min(bound, max(made.floor, search.open if search.state[2] else -math.inf))
    return best, bound, {"branches": int(search.state[2]), "options": int(made.first[-1]), "floor": made.floor}


def climb(
    found: Options, objective: Objective, limits: Limits, change: Change | None, best: Replicas, least: float,
    deadline: float, branches: float = math.inf,
) -> tuple[Replicas, float]:  # fmt: skip
    """A better deployment: with few replicas, then ever more; then all operators at once one step from the best."""

    def among(keep: list[Array], most: int) -> bool:
        nonlocal best, least
        near, changed = found.only(keep), None if change is None else change.only(keep)
        try:
            made = Branching(near, objective, limits, changed)
        except InfeasibleError:  # none of these few within the limit of downtime
            return False
        made.bound_options()
        search = _Dig(made, least)
        search.dig(deadline, most=min(most, branches))
        better = search.found is not None and search.least[0] < least - 1e-9 * abs(least)
        if better and search.found is not None:
            best, least = search.found, float(search.least[0])
        return better

    fewest = [int(rows.sum(axis=1).min()) for rows in found.counts]
    for more in range(1, max(int(rows.sum(axis=1).max()) for rows in found.counts) - 1):
        if time.perf_counter() < deadline:
            among([rows.sum(axis=1) <= few + more for rows, few in zip(found.counts, fewest, strict=True)], STEPS_FEW)
    while time.perf_counter() < deadline:
        if not among([neighbours(rows, best[i]) for i, rows in enumerate(found.counts)], STEPS_NEAR):
            break
    return best, least
