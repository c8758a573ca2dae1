r"""The link penalty of chapter 5: how bad it is to have two neighbours on these two nodes, from 0 to 1 [nardelli].

| here | thesis |
|---|---|
| `penalties` | $\delta(u,v) = w_r\delta_R + w_a\delta_A + w_z\delta_Z$ |
| `reference_s` | R_1, the time of a reference operator; lambda_1 = 1 cancels out |
| `ordered_nodes` | L: nodes by $\sum_{v \in P}\delta(u,v)$ |

Loops count too: two operators on one node are as available as that node, which is counted once, as printed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InfeasibleError
from .metrics import Weights
from .problem import Network, Problem

Array = np.ndarray[Any, Any]
REFERENCE_S = 1e-3


def penalties(network: Network, weights: Weights, reference_s: float = REFERENCE_S) -> Array:
    """The penalty of each ordered pair of nodes, loops included; infinite where there is no link.

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
    """The mean of both directions, 0 from a node to itself: what clusters are made by."""
    made: Array = (penalty + penalty.T) / 2
    np.fill_diagonal(made, 0.0)
    return made


def ordered_nodes(problem: Problem, penalty: Array | None) -> Array:
    """L: all nodes by their penalty toward those that host pinned operators; by id if equal, or without penalty.

    Sources and sinks are pinned first where nothing is, so give a problem that `anchored` has seen.
    """
    nodes = np.arange(len(problem.network.nodes))
    if penalty is None:
        return nodes
    hosts = sorted(set(problem.pinned.values()))
    return np.lexsort((nodes, penalty[:, hosts].sum(axis=1).round(12)))


def anchored(problem: Problem, penalty: Array) -> Problem:
    """The problem with its sources and sinks pinned, if nothing is: each on the node of least penalty that has room."""
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
