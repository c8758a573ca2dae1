"""Greedy first-fit: operators in breadth-first order, each on the first node of a list that has room [nardelli]."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np

from ..errors import InfeasibleError
from .answer import Answer
from .check import violations
from .costs import Costs, weighted
from .metrics import Ranges, Weights, needs_problem, needs_weights
from .penalty import anchored, ordered_nodes, penalties
from .problem import Application, Array, Placement, Problem
from .solve import exact_ranges


class Task:
    """What a heuristic works on: the problem with its ends pinned, the objective, and the order of nodes."""

    def __init__(self, problem: Problem, weights: Weights, ranges: Ranges | None, *, penalised: bool = True) -> None:
        needs_problem(problem)
        needs_weights(weights)
        ranges = exact_ranges(problem, weights.metric) if ranges is None else ranges
        self.given, self.weights, self.ranges, self.started = problem, weights, ranges, time.perf_counter()
        self.penalty = penalties(problem.network, weights)
        self.problem = anchored(problem, self.penalty)
        self.costs: Costs = weighted(self.problem, weights, ranges)
        self.nodes: Array = ordered_nodes(self.problem, self.penalty if penalised else None)

    def infeasible(self) -> InfeasibleError:
        """There is no placement, or none with the ends where the heuristic has pinned them."""
        if self.problem is self.given:
            return InfeasibleError("a problem without any feasible placement", expected="room", fix="add capacity")
        kept = {o: n for o, n in self.problem.candidates.items() if o not in self.given.candidates}
        return InfeasibleError(
            f"no placement with sources and sinks where heuristics begin: {kept}"[:200],
            expected="room and links beside them",
            fix="pin them yourself, or use solve()",
        )

    def answer(self, x: Placement, name: str, **details: Any) -> Answer:
        """What the heuristic found, if it may run; it proves nothing."""
        if broken := violations(self.given, x):
            raise InfeasibleError(
                f"a placement by {name} with {broken[0]}",
                expected="one that may run",
                fix="use solve(), which finds one",
            )
        seconds = time.perf_counter() - self.started
        return Answer(self.given, x, self.costs.of(self.given, x), -math.inf, seconds, name, details)


def greedy(problem: Problem, weights: Weights, ranges: Ranges | None = None, *, penalised: bool = True) -> Answer:
    """First fit on nodes by their penalty toward those of pinned operators; by id if not `penalised`."""
    task = Task(problem, weights, ranges, penalised=penalised)
    return task.answer(first_fit(task), "greedy" if penalised else "greedy, no penalty")


def first_fit(task: Task) -> Placement:
    """Each operator on the first node with room, and with links to the neighbours that are placed already.

    The thesis knows only complete networks, so that it need not look at links.
    """
    problem, costs = task.problem, task.costs
    app, net = problem.application, problem.network
    left = net.capacity.astype(float)
    x = np.full(len(app.operators), -1, np.int64)
    carried: dict[tuple[int, int], float] = {}
    for i, u in problem.pinned.items():
        x[i] = u
        left[u] -= app.demand[i]
    if (left < -1e-9).any():
        raise _no_room(problem, int(np.argmin(left)))
    near: list[list[int]] = [[] for _ in x]
    for e, (a, b) in enumerate(app.ends.tolist()):
        near[a].append(e)
        near[b].append(e)

    def reaches(i: int, u: int) -> bool:
        asked: dict[tuple[int, int], float] = {}
        for e in near[i]:
            a, b = app.ends[e].tolist()
            v = int(x[b if a == i else a])
            if v < 0:
                continue
            link = (u, v) if a == i else (v, u)
            asked[link] = asked.get(link, carried.get(link, 0.0)) + float(app.rate_per_s[e])
            if not math.isfinite(costs.link[costs.kind[e]][link]) or _too_much(net.bandwidth_per_s[link], asked[link]):
                return False
        return True

    for i in breadth_first(app):
        if x[i] >= 0:
            continue
        may = (u for u in task.nodes.tolist() if math.isfinite(costs.node[i, u]) and left[u] >= app.demand[i] - 1e-9)
        place = next((u for u in may if reaches(i, u)), None)
        if place is None:
            raise InfeasibleError(
                f"no node left for operator {app.operators[i]!r} in greedy order",
                expected="room, and links to its neighbours",
                fix="add capacity or links, or use solve()",
            )
        x[i] = place
        left[place] -= app.demand[i]
        for e in near[i]:
            a, b = x[app.ends[e]].tolist()
            if a >= 0 and b >= 0:
                carried[a, b] = carried.get((a, b), 0.0) + float(app.rate_per_s[e])
    return x


def breadth_first(app: Application) -> list[int]:
    """Operators as a queue meets them from the sources on, successors in order of index."""
    seen, queue, order = set(app.sources), deque(app.sources), []
    while queue:
        i = queue.popleft()
        order.append(i)
        for j in app.downstream[i]:
            if j not in seen:
                seen.add(j)
                queue.append(j)
    return order


def _too_much(bandwidth: float, rate: float) -> bool:
    return bool(rate > bandwidth * (1 + 1e-9) + 1e-9)


def _no_room(problem: Problem, node: int) -> InfeasibleError:
    name = problem.network.nodes[node]
    return InfeasibleError(
        f"pinned operators that need more than the capacity of node {name!r}", expected="room for them", fix="unpin one"
    )
