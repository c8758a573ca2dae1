r"""The metrics of a placement or deployment, and their weighted objective, the loss [nardelli].

| here | thesis |
|---|---|
| `response_s` | R, the slowest path: (4.1)-(4.4), (6.10) |
| `log_availability` | log A, product over operators AND streams (4.5)-(4.8); over USED nodes and links (6.15) |
| `traffic`, `usage`, `energy` | T, N, EE (4.18)-(4.21), (6.17)-(6.20): sums of $\lambda$, $\lambda d$, $\lambda d^2$ |
| `cost` | C (6.13): replicas and links |
| `Weights` | w_r, w_a, w_z, w_c, w_d, and which of the three is Z |
| `Ranges` | R_min and R_max, log A_min and log A_max, Z_min and Z_max, C_min and C_max |
| `Limits` | R_max, C_max, T_D,max of chapter 8: bounds (8.15)-(8.17) and normalisers |
| `utility` | F of (4.9), (4.22), (6.21): 1 is best |
| `loss` | F of chapters 5 and 8: (sum of weights) - utility, 0 is best |
| `Objective` | the same as coefficients, for problems with replication |

Metrics are computed from scratch for any placement, independently of the solvers. Load and streams are split evenly
over replicas and pairs of replicas; a path waits for the slowest pair of nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import Knobs, PlacementError, knob, knobs_of
from .problem import Problem

NETWORK_METRICS = ("traffic", "usage", "energy")
REPLICA_AIMS = ("response_s", "log_availability", "cost", *NETWORK_METRICS)


class Metrics(NamedTuple):
    """The metrics of a placement; infinite where a link is missing or a replica cannot keep up.

    Parameters
    ----------
    response_s
        Seconds of the slowest path from a source to a sink.
    log_availability
        Natural logarithm of the availability.
    traffic
        Records/s between nodes; bytes/s in a problem with replication.
    usage
        The same times the delay of the link: records (bytes) in flight.
    energy
        The same times the squared delay.
    cost
        Cost of replicas and links; 0 in a problem without replication.

    Examples
    --------
    >>> from dspkit import placement
    >>> found = placement.metrics(placement.example("A"), {"s": "0", "m": "1", "t": "2"})
    >>> found.response_s, round(found.availability, 4), found.network("traffic")
    (0.048, 0.9396, 190.0)
    """

    response_s: float
    log_availability: float
    traffic: float
    usage: float
    energy: float
    cost: float = 0.0

    @property
    def availability(self) -> float:
        """The probability that all used nodes and links are up."""
        return math.exp(self.log_availability)

    def network(self, metric: str) -> float:
        """Return T, N or EE.

        Parameters
        ----------
        metric
            "traffic", "usage" or "energy".

        Examples
        --------
        >>> Metrics(0.2, -0.1, 500.0, 20.0, 1.0).network("usage")
        20.0
        """
        return {"traffic": self.traffic, "usage": self.usage, "energy": self.energy}[metric]


@dataclass(frozen=True)
class Weights(Knobs):
    """The weights of the objective: at least one is above 0; in the thesis they add up to 1.

    Parameters
    ----------
    response, availability, network
        Weights of the response time, the availability and the network metric, each from 0 to 1.
    metric
        The network metric: "traffic", "usage" or "energy".
    cost
        Weight of the cost, which is 0 in problems without replication.
    downtime
        Weight of the downtime of a change of a running deployment.

    Examples
    --------
    >>> Weights(response=0.5, network=0.5, metric="traffic")
    Weights(response=0.5, availability=0.0, network=0.5, metric='traffic', cost=0.0, downtime=0.0)
    """

    response: float = knob(1.0, "weight of the response time (w_r)", low=0.0, high=1.0)
    availability: float = knob(0.0, "weight of the availability (w_a)", low=0.0, high=1.0)
    network: float = knob(0.0, "weight of the network metric (w_z)", low=0.0, high=1.0)
    metric: str = knob("usage", "the network metric: traffic T, usage N or energy EE", choices=NETWORK_METRICS)
    cost: float = knob(0.0, "weight of the cost (w_c)", low=0.0, high=1.0)
    downtime: float = knob(0.0, "weight of the downtime of a change (w_d)", low=0.0, high=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total <= 0:
            raise PlacementError("weights that are all 0", expected="one above 0", fix="set a weight")

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return float(sum(k.value for k in knobs_of(self) if isinstance(k.value, float)))


class Ranges(NamedTuple):
    """The least and the greatest value of each metric, which normalise the weights: keep them with the results.

    If both are equal, every placement has the best value (the paper's 0/0).

    Parameters
    ----------
    response_s, log_availability, network, cost
        Pairs of the least and the greatest value.

    Examples
    --------
    >>> from dspkit import placement
    >>> placement.find_ranges(placement.example("A"), "traffic").network
    (90.0, 190.0)
    """

    response_s: tuple[float, float]
    log_availability: tuple[float, float]
    network: tuple[float, float]
    cost: tuple[float, float] = (0.0, 0.0)


class Limits(NamedTuple):
    """The values that a deployment must not exceed, (8.15)-(8.17).

    Parameters
    ----------
    response_s
        Seconds of the response time.
    cost
        Cost of replicas and links.
    downtime_s
        Seconds of the downtime of a change.

    Examples
    --------
    >>> from dspkit import placement
    >>> placement.solve(placement.example("replicas"), "cost", limits=Limits(response_s=0.18)).replicas
    {'1': 1, '2': 2, '3': 1}
    """

    response_s: float = math.inf
    cost: float = math.inf
    downtime_s: float = math.inf


class Objective(NamedTuple):
    """The loss per unit of each metric: at least 0, except that of log availability, which is at most 0."""

    response: float = 0.0  # per second
    log_availability: float = 0.0
    cost: float = 0.0
    network: float = 0.0
    metric: str = "traffic"
    downtime: float = 0.0  # per second
    constant: float = 0.0

    def of(self, found: Metrics, downtime_s: float = 0.0) -> float:
        """Return the loss of a deployment."""
        terms = (
            (self.response, found.response_s),
            (self.log_availability, found.log_availability),
            (self.cost, found.cost),
            (self.network, getattr(found, self.metric)),
            (self.downtime, downtime_s),
        )
        return self.constant + math.fsum(c * value for c, value in terms if c)  # 0 times infinity is 0 here


def single_objective(aim: str) -> Objective:
    """Return the objective that minimises one metric (maximises log_availability)."""
    if aim not in REPLICA_AIMS:
        raise PlacementError(f"metric {aim!r}", expected=f"one of {', '.join(REPLICA_AIMS)}", fix="correct the name")
    if aim in NETWORK_METRICS:
        return Objective(network=1.0, metric=aim)
    at = ("response_s", "log_availability", "cost").index(aim)
    return Objective(*((1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0))[at])


def weighted_objective(weights: Weights, ranges: Ranges) -> Objective:
    """Return the objective (6.21) as a loss: the sum of weights minus F, so that 0 is best."""
    made, constant = [], 0.0
    terms = (
        (weights.response, ranges.response_s, 1),
        (weights.availability, ranges.log_availability, -1),
        (weights.cost, ranges.cost, 1),
        (weights.network, ranges.network, 1),
    )
    for weight, low_high, sign in terms:
        at_0, at_1 = (share(value, low_high, sign) for value in (0.0, 1.0)) if weight else (0.0, 0.0)
        made.append(weight * (at_1 - at_0))
        constant += weight * at_0
    response, availability, cost, network = made
    return Objective(response, availability, cost, network, weights.metric, constant=constant)


def limited_objective(weights: Weights, limits: Limits) -> Objective:
    """Return chapter 8's objective: each metric as a share of its limit; a weight of 0 needs no limit."""
    if weights.availability or weights.network:
        raise PlacementError(
            f"{weights} with limits alone", expected="weights of response, cost and downtime", fix="pass ranges, too"
        )
    shares = []
    for weight, limit in zip((weights.response, weights.cost, weights.downtime), limits, strict=True):
        if weight and math.isinf(limit):
            raise PlacementError(f"{limits} with {weights}", expected="a finite limit for each weight", fix="set it")
        shares.append(weight / limit)
    return Objective(response=shares[0], cost=shares[1], downtime=shares[2])


def metrics(problem: Problem, placement: Any) -> Metrics:
    """Return all metrics of a placement, feasible or not (see `check`).

    Parameters
    ----------
    problem
        The problem that it places.
    placement
        {operator: node} or indices of nodes; with replication {operator: node or nodes}, or counts.

    Examples
    --------
    >>> from dspkit import placement
    >>> problem = placement.example("replicas")
    >>> found = placement.metrics(problem, {"1": "a", "2": ("b", "b"), "3": "c"})
    >>> round(found.response_s, 4), round(found.cost, 2)
    (0.1786, 4.4)
    """
    needs_problem(problem)
    if problem.replication is not None:
        return replica_metrics(problem, placement)
    x = problem.place(placement)
    app, net = problem.application, problem.network
    starts, ends = app.ends[:, 0], app.ends[:, 1]
    u, v = x[starts], x[ends]
    delays, rates, apart = net.delay_s[u, v], app.rate_per_s, u != v
    ready = problem.times_s[np.arange(len(x)), x].copy()
    own = ready.copy()
    into: list[list[tuple[int, float]]] = [[] for _ in x]
    for a, b, d in zip(starts.tolist(), ends.tolist(), delays.tolist(), strict=True):
        into[b].append((a, d))
    for i in app.order:
        if into[i]:
            ready[i] = own[i] + max(ready[a] + d for a, d in into[i])
    far = np.where(apart & (rates > 0), delays, 0.0)  # without records no traffic: 0 times infinity is 0 here
    log_a = np.log(net.availability[x]).sum() + np.log(net.link_availability[u, v]).sum()
    return Metrics(
        float(ready[list(app.sinks)].max()),
        float(log_a),
        float(rates[apart].sum()),
        float((rates * far).sum()),
        float((rates * far**2).sum()),
    )


def replica_metrics(problem: Problem, deployment: Any) -> Metrics:
    """Return the metrics of a deployment, as defined in chapter 6."""
    counts = problem.deploy(deployment)
    app, net, model = problem.application, problem.network, problem.replica_model
    sizes, used = counts.sum(axis=1), counts > 0
    parts = (counts if model.traffic == "multiplicity" else used) / sizes[:, None]
    own = [float(problem.replica_times_s(i, int(n))[used[i]].max()) for i, n in enumerate(sizes)]
    hops, linked = {}, np.zeros(net.delay_s.shape, bool)
    links_cost, network = 0.0, np.zeros(3)
    for (i, j), rate, size in zip(app.ends.tolist(), app.rate_per_s, model.bytes_per_record, strict=True):
        pairs = np.outer(used[i], used[j])
        linked |= pairs
        hops[i, j] = float(net.delay_s[pairs].max())
        shares = np.outer(parts[i], parts[j]) * rate
        np.fill_diagonal(shares, 0.0)
        sent = shares > 0  # without records no traffic, even if there is no link
        links_cost += float((shares * model.link_price).sum())
        bytes_per_s, delay = shares[sent] * size, net.delay_s[sent]
        network += [bytes_per_s.sum(), (bytes_per_s * delay).sum(), (bytes_per_s * delay**2).sum()]
    ready = list(own)
    for j in app.order:
        if app.upstream[j]:
            ready[j] = own[j] + max(ready[i] + hops[i, j] for i in app.upstream[j])
    traffic, usage, energy = map(float, network)
    return Metrics(
        max(ready[i] for i in app.sinks),
        float(np.log(net.availability[used.any(axis=0)]).sum() + np.log(net.link_availability[linked]).sum()),
        traffic,
        usage,
        energy,
        float((sizes * model.price * app.demand).sum()) + links_cost,
    )


def needs_problem(problem: Any, *, once: bool = False) -> None:
    """Raise an error unless this is a problem, without replication if each operator must run `once`."""
    if not isinstance(problem, Problem):
        raise PlacementError(f"problem {problem!r}"[:100], expected="a Problem", fix="as in Problem(app, network)")
    if once and problem.replication is not None:
        raise PlacementError("a problem with replication", expected="one without", fix="use solve()")


def needs_weights(weights: Any) -> None:
    """Raise an error unless these are weights."""
    if not isinstance(weights, Weights):
        raise PlacementError(f"weights {weights!r}"[:100], expected="Weights", fix="as in Weights(0.5, 0.2, 0.3)")


def needs_ranges(weights: Weights, ranges: Any) -> None:
    """Raise an error unless there is a range for each metric with a weight."""
    if not isinstance(ranges, Ranges):
        raise PlacementError(f"ranges {ranges!r}"[:100], expected="Ranges", fix="find them by find_ranges(problem)")
    counts = (weights.response, weights.availability, weights.network, weights.cost)
    for weight, low_high in zip(counts, ranges, strict=True):
        if weight > 0:
            _ends(low_high)


def needs_limits(limits: Any) -> None:
    """Raise an error unless these are limits above 0."""
    if not isinstance(limits, Limits):
        raise PlacementError(f"limits {limits!r}"[:100], expected="Limits", fix="as in Limits(response_s=0.2)")
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
            raise PlacementError(f"limit {limit!r}", expected="a number above 0", fix="correct the limits")


def loss(found: Metrics, weights: Weights, ranges: Ranges | Limits, downtime_s: float = 0.0) -> float:
    """Return the weighted, normalised objective to MINIMISE: 0 is best; nothing is clipped.

    Parameters
    ----------
    found
        Metrics of a placement.
    weights
        Weights of the metrics.
    ranges
        The least and the greatest value of each metric (chapters 4 to 6), or limits, each of which counts as 1
        (chapter 8).
    downtime_s
        Downtime of the change, which only limits normalise.

    Examples
    --------
    >>> found = Metrics(0.2, -0.1, 500.0, 20.0, 1.0, cost=3.0)
    >>> round(loss(found, Weights(0.5, network=0.5), Ranges((0.1, 0.3), (-1, 0), (0, 100))), 6)
    0.35
    >>> loss(found, Weights(0.25, cost=0.5, downtime=0.25), Limits(0.4, 6, 4), downtime_s=1)
    0.4375
    """
    if isinstance(ranges, Limits):
        return limited_objective(weights, ranges).of(found, downtime_s)
    terms = (
        (weights.response, found.response_s, ranges.response_s, 1),
        (weights.availability, found.log_availability, ranges.log_availability, -1),
        (weights.network, found.network(weights.metric), ranges.network, 1),
        (weights.cost, found.cost, ranges.cost, 1),
    )
    return sum(w * share(value, low_high, sign) for w, value, low_high, sign in terms if w > 0)


def utility(found: Metrics, weights: Weights, ranges: Ranges) -> float:
    """Return the weighted, normalised objective to MAXIMISE: the sum of weights is best.

    Parameters
    ----------
    found, weights, ranges
        As of `loss`.

    Examples
    --------
    >>> found = Metrics(0.2, -0.1, 500.0, 20.0, 1.0)
    >>> round(utility(found, Weights(0.5, network=0.5), Ranges((0.1, 0.3), (-1, 0), (0, 100))), 6)
    0.65
    """
    return weights.total - loss(found, weights, ranges)


def share(value: float, low_high: tuple[float, float], sign: int) -> float:
    """Return a value's distance from its best end, as a share of its range, not clipped; sign -1: large is good."""
    low, high = _ends(low_high)
    if high == low:
        return 0.0 if math.isfinite(value) else math.inf
    return (value - low if sign > 0 else high - value) / (high - low)


def _ends(low_high: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in low_high)
        fits = math.isfinite(low) and math.isfinite(high) and low <= high
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise PlacementError(
            f"a range of {low_high!r}"[:100], expected="two finite numbers, the least first", fix="see find_ranges()"
        )
    return low, high
