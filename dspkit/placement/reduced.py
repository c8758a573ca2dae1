"""The same problem on fewer nodes, and what heuristics that solve it exactly have in common."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InfeasibleError
from .answer import Answer
from .costs import weighted
from .metrics import Ranges, Weights
from .problem import Array, Network, Placement, Problem
from .solve import minimise


@dataclass
class Exact:
    """An exact solver with its settings; counts what it was asked."""

    weights: Weights
    ranges: Ranges
    solver: str = "own"
    time_limit_s: float = float("inf")
    solves: int = 0

    def within(self, problem: Problem, nodes: Collection[int]) -> Placement | None:
        """The best placement on these nodes, as indices into all; None if there is none."""
        kept = np.array(sorted(nodes), np.int64)
        try:
            answer = self.solve(on_nodes(problem, kept))
        except InfeasibleError:
            return None
        return kept[answer.placement]

    def solve(self, problem: Problem) -> Answer:
        """The best placement, or the best found within the time limit."""
        if problem.application.demand.sum() > problem.network.capacity.sum() * (1 + 1e-9):
            raise InfeasibleError("less capacity than is asked for", expected="as much", fix="add nodes")
        self.solves += 1
        costs = weighted(problem, self.weights, self.ranges)
        return minimise(problem, costs, solver=self.solver, time_limit_s=self.time_limit_s)


def on_nodes(problem: Problem, kept: Array) -> Problem:
    """The problem on the nodes of these indices; InfeasibleError if an operator has no candidate among them."""
    net, nodes = problem.network, [problem.network.nodes[u] for u in kept.tolist()]
    square: Any = np.ix_(kept, kept)
    fewer = Network(
        tuple(nodes), net.delay_s[square], net.capacity[kept], net.speed[kept], net.availability[kept],
        net.link_availability[square], net.bandwidth_per_s[square],
    )  # fmt: skip
    candidates = {}
    for operator, may in problem.candidates.items():
        left = tuple(n for n in may if n in fewer.index)
        if not left:
            raise InfeasibleError(
                f"no candidate of {operator!r} among {len(nodes)} nodes", expected="one", fix="add it"
            )
        candidates[operator] = left
    return Problem(problem.application, fewer, candidates)
