r"""The objective of the solvers: linear in the placement, except for the slowest path.

$$loss = constant + response\cdot R + \sum_i node_{i,x_i} + \sum_{(i,j)} link_{(i,j),x_i,x_j}$$

Coefficients are infinite if forbidden: a node that is not a candidate or too small for the operator, a pair of nodes
without a link or with too little bandwidth for the stream. Capacity that operators share, and bandwidth that streams
share, are checked with the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core import InfeasibleError, PlacementError
from ..core.typing import Array
from .metrics import Ranges, Weights, metrics, needs_ranges, needs_weights
from .problem import Problem

AIMS = ("response_s", "log_availability", "traffic", "usage", "energy")
_POWER = {"traffic": 0, "usage": 1, "energy": 2}


@dataclass(frozen=True, eq=False)
class Costs:
    """The coefficients of the loss; `link` has one matrix per kind of stream, `kind` the kind of each stream."""

    constant: float
    response: float
    node: Array
    link: Array
    kind: Array

    def of(self, problem: Problem, placement: Any) -> float:
        """Return the loss of a placement; capacities and shared bandwidth are not checked."""
        x = problem.place(placement)
        ends = problem.application.ends
        found = self.constant + self.node[np.arange(len(x)), x].sum()
        found += self.link[self.kind, x[ends[:, 0]], x[ends[:, 1]]].sum()
        if self.response:
            found += self.response * metrics(problem, x).response_s
        return float(found)


def weighted_costs(problem: Problem, weights: Weights, ranges: Ranges) -> Costs:
    """Return the costs of `metrics.loss`: each metric's distance from its best value, as a share of its range."""
    needs_weights(weights)
    needs_ranges(weights, ranges)
    scales, constant = [], 0.0
    for weight, (low, high), sign in (
        (weights.response, ranges.response_s, 1),
        (weights.availability, ranges.log_availability, -1),
        (weights.network, ranges.network, 1),
    ):
        scale = weight / (high - low) if weight and high > low else 0.0
        constant -= sign * scale * (low if sign > 0 else high)
        scales.append(sign * scale)
    return _costs(problem, constant, scales[0], scales[1], scales[2], weights.metric)


def metric_costs(problem: Problem, aim: str, sign: int = 1) -> Costs:
    """Return the costs that minimise one metric, or maximise it (sign -1, not for the response time)."""
    if aim not in AIMS or sign not in ((1,) if aim == "response_s" else (1, -1)):
        raise PlacementError(
            f"metric {aim!r}, sign {sign!r}",
            expected=f"one of {', '.join(AIMS)}, and 1 or -1 (response_s: 1)",
            fix="choose a metric, and a sign that it has",
        )
    response, available = float(sign * (aim == "response_s")), float(sign * (aim == "log_availability"))
    network = float(sign) if aim in _POWER else 0.0
    return _costs(problem, 0.0, response, available, network, aim if network else "usage")


def along(problem: Problem, path: tuple[int, ...], sign: int) -> Costs:
    """Return the costs of the response time of one path, times `sign`."""
    base = _costs(problem, 0.0, 0.0, 0.0, 0.0, "usage")
    node, on = base.node.copy(), np.zeros(len(base.node), bool)
    on[list(path)] = True
    node[on] += sign * problem.times_s[on]
    steps = set(zip(path, path[1:], strict=False))
    kind = np.array(
        [k * 2 + ((a, b) in steps) for k, (a, b) in zip(base.kind, problem.application.ends.tolist(), strict=True)],
        np.int64,
    )
    longer = base.link + sign * np.where(np.isfinite(problem.network.delay_s), problem.network.delay_s, 0.0)
    link = np.stack([base.link, longer], axis=1).reshape(-1, *base.link.shape[1:])
    return Costs(0.0, 0.0, node, link, kind)


def _costs(problem: Problem, constant: float, response: float, available: float, network: float, metric: str) -> Costs:
    app, net = problem.application, problem.network
    node = available * np.log(net.availability)[None, :] * np.ones((len(app.operators), 1))
    node = np.where(problem.allowed & (app.demand[:, None] <= net.capacity[None, :] * (1 + 1e-9)), node, np.inf)
    lone = ~np.isfinite(node).any(axis=1)
    if lone.any():
        operator = app.operators[int(lone.argmax())]
        raise InfeasibleError(
            f"operator {operator!r}, which fits on none of its candidate nodes",
            expected="a node with room for it",
            fix="add capacity or candidates",
        )
    rates, kind = np.unique(app.rate_per_s, return_inverse=True)
    reached, apart = np.isfinite(net.delay_s), ~np.eye(len(net.nodes), dtype=bool)
    far = np.where(reached, net.delay_s, 0.0) ** _POWER[metric]
    link = network * rates[:, None, None] * np.where(apart, far, 0.0) + available * np.log(net.link_availability)
    wide = rates[:, None, None] <= net.bandwidth_per_s * (1 + 1e-9)
    return Costs(constant, response, node, np.where(reached & wide, link, np.inf), kind.astype(np.int64))


def chain_of(problem: Problem) -> tuple[int, ...] | None:
    """Return the operators in order if they form one chain, whose response time is a sum; else None."""
    app = problem.application
    single_file = all(len(w) <= 1 for w in (*app.downstream, *app.upstream)) and len(app.sources) == 1
    return app.order if single_file else None


def folded(problem: Problem, costs: Costs) -> Costs:
    """Return the costs of a chain with its response time in `node` and `link`, as it has one path only."""
    reached = np.where(np.isfinite(problem.network.delay_s), problem.network.delay_s, 0.0)
    node = costs.node + costs.response * problem.times_s
    return Costs(costs.constant, 0.0, node, costs.link + costs.response * reached, costs.kind)


def equal_operators(problem: Problem, costs: Costs | None = None) -> list[int]:
    """Return for each operator the index of the first equal one; equal operators can be exchanged."""
    app = problem.application
    size = len(app.operators)
    rate = np.full((size, size), -1.0)
    kinds = np.full((size, size), -1, np.int64)
    for e, (a, b) in enumerate(app.ends.tolist()):
        rate[a, b] = app.rate_per_s[e]
        kinds[a, b] = 0 if costs is None else costs.kind[e]
    node = problem.allowed if costs is None else costs.node
    first: dict[Any, int] = {}
    found = []
    for i in range(size):
        rows = (node[i], problem.times_s[i], rate[i], rate[:, i], kinds[i], kinds[:, i])
        key = (float(app.demand[i]), *(np.ascontiguousarray(row).tobytes() for row in rows))
        found.append(first.setdefault(key, i))
    return found
