r"""Greedy first fit, and the link penalty that orders the nodes (chapter 5) [nardelli].

Operators are placed in breadth-first order, each on the first node of a list that has room. The link penalty of two
nodes, from 0 to 1, is the cost of placing two neighbouring operators on them.

| here | thesis |
|---|---|
| `penalties` | $\delta(u,v) = w_r\delta_R + w_a\delta_A + w_z\delta_Z$ |
| `reference_s` | R_1, the time of a reference operator; lambda_1 = 1 cancels out |
| `ordered_nodes` | L: nodes by $\sum_{v \in P}\delta(u,v)$ |

Loops have a penalty, too: two operators on one node have that node's availability, counted once, as printed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np

from ...core import InfeasibleError
from ...core.typing import Array
from ..certificate import violations
from ..metrics import Ranges, Weights, needs_problem, needs_weights
from ..objective import Costs, weighted_costs
from ..problem import Application, Network, Placement, Problem
from ..solution import Solution
from ..solvers.solve import find_ranges

REFERENCE_S = 1e-3


def penalties(network: Network, weights: Weights, reference_s: float = REFERENCE_S) -> Array:
    """Return the penalty of each ordered pair of nodes, loops included; infinite where there is no link.

    >>> line = Network(("0", "1", "2"), [[0, 10, 30], [10, 0, 20], [30, 20, 0]])
    >>> penalties(line, Weights(1, 0, 0)).round(6).tolist()[0]
    [0.0, 0.333333, 1.0]
    """
    d, loop = network.delay_s, np.eye(len(network.nodes), dtype=bool)
    time = reference_s / network.speed
    log_a = np.log(network.availability)
    both = np.log(network.link_availability) + log_a[:, None] + log_a[None, :]
    terms = (
        (weights.response, d + time[:, None] + time[None, :]),
        (weights.availability, -np.where(loop, log_a[:, None], both)),
        (weights.network, {"traffic": np.where(loop, 0.0, 1.0), "usage": d, "energy": d**2}[weights.metric]),
    )
    total = np.zeros_like(d)
    for weight, term in terms:
        if weight > 0:
            known = term[np.isfinite(term)]
            low, high = float(known.min()), float(known.max())
            total = total + weight * ((term - low) / (high - low) if high > low else 0.0 * known.min())
    return np.where(np.isfinite(d), total, np.inf)


def symmetric(penalty: Array) -> Array:
    """Return the mean of both directions, 0 from a node to itself: the distance by which nodes are clustered."""
    made: Array = (penalty + penalty.T) / 2
    np.fill_diagonal(made, 0.0)
    return made


def ordered_nodes(problem: Problem, penalty: Array | None) -> Array:
    """Return L: all nodes by their penalty towards the hosts of pinned operators; by index if `penalty` is None.

    The problem has to have pinned operators: pass the result of `anchored`.
    """
    nodes = np.arange(len(problem.network.nodes))
    if penalty is None:
        return nodes
    hosts = sorted(set(problem.pinned.values()))
    return np.lexsort((nodes, penalty[:, hosts].sum(axis=1).round(12)))


def anchored(problem: Problem, penalty: Array) -> Problem:
    """Return the problem with pinned operators: if none is, sources and sinks on nodes of least penalty with room."""
    if problem.pinned:
        return problem
    app, net = problem.application, problem.network
    left, kept = net.capacity.astype(float), dict(problem.candidates)
    order = np.lexsort((np.arange(len(left)), penalty.sum(axis=1)))
    for i in dict.fromkeys((*app.sources, *app.sinks)):
        fits = [u for u in order.tolist() if problem.allowed[i, u] and left[u] >= app.demand[i] - 1e-9]
        if not fits:
            raise InfeasibleError(
                f"no node with room for {app.operators[i]!r}", expected="capacity for all", fix="add capacity"
            )
        left[fits[0]] -= app.demand[i]
        kept[app.operators[i]] = net.nodes[fits[0]]
    return Problem(app, net, kept)


class PinnedProblem:
    """The input of a heuristic: the problem with its ends pinned, the objective, and the order of nodes."""

    def __init__(self, problem: Problem, weights: Weights, ranges: Ranges | None, *, penalised: bool = True) -> None:
        needs_problem(problem, once=True)
        needs_weights(weights)
        ranges = find_ranges(problem, weights.metric) if ranges is None else ranges
        self.given, self.weights, self.ranges, self.started = problem, weights, ranges, time.perf_counter()
        self.penalty = penalties(problem.network, weights)
        self.problem = anchored(problem, self.penalty)
        self.costs: Costs = weighted_costs(self.problem, weights, ranges)
        self.nodes: Array = ordered_nodes(self.problem, self.penalty if penalised else None)

    def infeasible(self) -> InfeasibleError:
        """Return the error for a problem without a placement, or without one that keeps the ends pinned here."""
        if self.problem is self.given:
            return InfeasibleError("a problem without any feasible placement", expected="room", fix="add capacity")
        kept = {o: n for o, n in self.problem.candidates.items() if o not in self.given.candidates}
        return InfeasibleError(
            f"no placement with sources and sinks pinned by the heuristic: {kept}"[:200],
            expected="room near these nodes, and links to them",
            fix="pin them yourself, or use solve()",
        )

    def solution(self, x: Placement, name: str, **details: Any) -> Solution:
        """Return the solution with this placement, checked but without a bound."""
        if broken := violations(self.given, x):
            raise InfeasibleError(
                f"a placement by {name!r} with {broken[0]}",
                expected="a feasible one",
                fix="use solve(), which finds one",
            )
        seconds = time.perf_counter() - self.started
        return Solution(self.given, x, self.costs.of(self.given, x), -math.inf, seconds, name, details)


def greedy(problem: Problem, weights: Weights, ranges: Ranges | None = None, *, penalised: bool = True) -> Solution:
    """Place by first fit, on nodes in the order of their penalty towards those of pinned operators.

    Examples
    --------
    >>> from dspkit import placement
    >>> greedy(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    task = PinnedProblem(problem, weights, ranges, penalised=penalised)
    return task.solution(first_fit(task), "greedy" if penalised else "greedy_without_penalty")


def first_fit(task: PinnedProblem) -> Placement:
    """Return each operator on the first node that has room, and links to the neighbours placed already.

    The thesis has complete networks only, and so need not check links.
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
    for i in breadth_first(app):
        if x[i] >= 0:
            continue
        may = (u for u in task.nodes.tolist() if math.isfinite(costs.node[i, u]) and left[u] >= app.demand[i] - 1e-9)
        place = next((u for u in may if _reaches(task, i, u, near[i], x, carried)), None)
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


def _reaches(
    task: PinnedProblem, i: int, u: int, streams: list[int], x: Placement, carried: dict[tuple[int, int], float]
) -> bool:
    """Return whether links from u can carry the streams of operator i from and to its placed neighbours."""
    app, net, costs = task.problem.application, task.problem.network, task.costs
    asked: dict[tuple[int, int], float] = {}
    for e in streams:
        a, b = app.ends[e].tolist()
        v = int(x[b if a == i else a])
        if v < 0:
            continue
        link = (u, v) if a == i else (v, u)
        asked[link] = asked.get(link, carried.get(link, 0.0)) + float(app.rate_per_s[e])
        if not math.isfinite(costs.link[costs.kind[e]][link]) or _too_much(net.bandwidth_per_s[link], asked[link]):
            return False
    return True


def breadth_first(app: Application) -> list[int]:
    """Return the operators in breadth-first order from the sources, successors by index."""
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
