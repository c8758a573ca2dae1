r"""What a deployment with replicas is worth (6.8)-(6.20), and one number of it all [nardelli].

| here | thesis |
|---|---|
| `response_s`, `cost` | R (6.10), C (6.13): replicas and links |
| `log_availability` | log A (6.15): every USED node and link once, not once per operator as in chapter 4 |
| `traffic`, `usage`, `energy` | T, N, EE (6.17)-(6.20): bytes/s, times d, times d^2, between nodes |
| `ReplicaWeights`, `ReplicaRanges` | w_r, w_a, w_c, w_z; R_min and R_max, and so on |
| `Objective` | the same as coefficients: what a program minimises |

Load and streams split evenly over replicas and pairs of replicas; a path waits for the slowest pair of nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import PlacementError
from ..knobs import knob
from .metrics import NETWORK_METRICS, Weighing, share
from .replica_problem import ReplicaProblem

AIMS = ("response_s", "log_availability", "cost", *NETWORK_METRICS)


class ReplicaMetrics(NamedTuple):
    """A deployment's metrics; the response time is infinite where a replica cannot keep up or a link is missing."""

    response_s: float
    log_availability: float
    cost: float
    traffic: float  # bytes/s between nodes
    usage: float  # bytes/s x s
    energy: float  # bytes/s x s x s

    @property
    def availability(self) -> float:
        return math.exp(self.log_availability)


@dataclass(frozen=True)
class ReplicaWeights(Weighing):
    """What counts how much; the thesis lets the four sum up to 1."""

    response: float = knob(0.25, "weight of the response time (w_r)", low=0.0, high=1.0)
    availability: float = knob(0.25, "weight of the availability (w_a)", low=0.0, high=1.0)
    cost: float = knob(0.25, "weight of the cost (w_c)", low=0.0, high=1.0)
    network: float = knob(0.25, "weight of the network metric (w_z)", low=0.0, high=1.0)
    metric: str = knob("traffic", "the network metric: traffic T, usage N or energy EE", choices=NETWORK_METRICS)


class ReplicaRanges(NamedTuple):
    """The least and the greatest value of each metric; where both are equal the term is dropped."""

    response_s: tuple[float, float]
    log_availability: tuple[float, float]
    cost: tuple[float, float]
    network: tuple[float, float]


class Objective(NamedTuple):
    """What each unit of a metric adds to the loss: all from 0, but that of log availability, which is at most 0."""

    response: float = 0.0  # per second
    log_availability: float = 0.0
    cost: float = 0.0
    network: float = 0.0
    metric: str = "traffic"
    downtime: float = 0.0  # per second
    constant: float = 0.0

    def of(self, found: ReplicaMetrics, downtime_s: float = 0.0) -> float:
        """The loss of a deployment."""
        terms = (
            (self.response, found.response_s),
            (self.log_availability, found.log_availability),
            (self.cost, found.cost),
            (self.network, getattr(found, self.metric)),
            (self.downtime, downtime_s),
        )
        return self.constant + math.fsum(c * value for c, value in terms if c)  # 0 times infinity is 0 here


def single_objective(aim: str) -> Objective:
    """One metric by its name, as small as possible (log_availability as large)."""
    if aim not in AIMS:
        raise PlacementError(f"metric {aim!r}", expected=f"one of {', '.join(AIMS)}", fix="correct the name")
    if aim in NETWORK_METRICS:
        return Objective(network=1.0, metric=aim)
    at = ("response_s", "log_availability", "cost").index(aim)
    return Objective(*((1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0))[at])


def weighted_objective(weights: ReplicaWeights, ranges: ReplicaRanges) -> Objective:
    """(6.21) turned round: the sum of weights minus F, so that 0 is best."""
    made, constant = [], 0.0
    terms = zip((weights.response, weights.availability, weights.cost, weights.network), ranges, strict=True)
    for k, (weight, low_high) in enumerate(terms):
        at_0, at_1 = (share(value, low_high, -1 if k == 1 else 1) for value in (0.0, 1.0)) if weight else (0.0, 0.0)
        made.append(weight * (at_1 - at_0))
        constant += weight * at_0
    response, availability, cost, network = made
    return Objective(response, availability, cost, network, weights.metric, constant=constant)


def replica_utility(found: ReplicaMetrics, weights: ReplicaWeights, ranges: ReplicaRanges) -> float:
    """F of (6.21), to MAXIMISE: the sum of weights is best. Nothing is clipped."""
    return weights.total - weighted_objective(weights, ranges).of(found)


def replica_metrics(problem: ReplicaProblem, deployment: Any) -> ReplicaMetrics:
    """All metrics of a deployment, whether it keeps the rules or not (`replica_violations` says that)."""
    counts = problem.deploy(deployment)
    app, net = problem.problem.application, problem.problem.network
    sizes, used = counts.sum(axis=1), counts > 0
    parts = (counts if problem.traffic == "multiplicity" else used) / sizes[:, None]
    own = [float(problem.times_s(i, int(n))[used[i]].max()) for i, n in enumerate(sizes)]
    hops, linked = {}, np.zeros(net.delay_s.shape, bool)
    links_cost, network = 0.0, np.zeros(3)
    for (i, j), rate, size in zip(app.ends.tolist(), app.rate_per_s, problem.bytes_per_record, strict=True):
        pairs = np.outer(used[i], used[j])
        linked |= pairs
        hops[i, j] = float(net.delay_s[pairs].max())
        shares = np.outer(parts[i], parts[j]) * rate
        np.fill_diagonal(shares, 0.0)
        sent = shares > 0  # no records, no traffic, even where there is no link
        links_cost += float((shares * problem.link_price).sum())
        bytes_per_s, delay = shares[sent] * size, net.delay_s[sent]
        network += [bytes_per_s.sum(), (bytes_per_s * delay).sum(), (bytes_per_s * delay**2).sum()]
    ready = list(own)
    for j in app.order:
        if app.upstream[j]:
            ready[j] = own[j] + max(ready[i] + hops[i, j] for i in app.upstream[j])
    return ReplicaMetrics(
        max(ready[i] for i in app.sinks),
        float(np.log(net.availability[used.any(axis=0)]).sum() + np.log(net.link_availability[linked]).sum()),
        float((sizes * problem.price * app.demand).sum()) + links_cost,
        *map(float, network),
    )
