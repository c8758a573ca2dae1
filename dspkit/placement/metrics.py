r"""What a placement is worth: response time, availability, network metrics, and one number of them all [nardelli].

| here | thesis |
|---|---|
| `response_s` | R, the slowest path: (4.1)-(4.4) |
| `log_availability` | log A, product over operators AND streams: (4.5)-(4.8) |
| `traffic`, `usage`, `energy` | T, N, EE (4.18)-(4.21): sums of $\lambda$, $\lambda d$, $\lambda d^2$ between nodes |
| `Weights` | w_r, w_a, w_z, and which of the three is Z |
| `Ranges` | R_min and R_max, log A_min and log A_max, Z_min and Z_max |
| `utility` | F of (4.9), (4.22): 1 is best |
| `loss` | F of chapter 5: (sum of weights) - utility, 0 is best |

All is computed from scratch for any placement; nothing is trusted that a solver says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import PlacementError
from ..knobs import Knobs, knob, knobs
from .problem import Problem

NETWORK_METRICS = ("traffic", "usage", "energy")


class Metrics(NamedTuple):
    """A placement's metrics; infinite where two operators have no link between them."""

    response_s: float
    log_availability: float
    traffic: float  # records/s between nodes
    usage: float  # records under way: records/s x s
    energy: float  # records/s x s x s

    @property
    def availability(self) -> float:
        return math.exp(self.log_availability)

    def network(self, metric: str) -> float:
        """T, N or EE by its name here."""
        return {"traffic": self.traffic, "usage": self.usage, "energy": self.energy}[metric]


class Weighing(Knobs):
    """Base of weights, each a knob of its own: one at least is above 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total <= 0:
            raise PlacementError("weights that are all 0", expected="one above 0", fix="say what counts")

    @property
    def total(self) -> float:
        return float(sum(k.value for k in knobs(self) if isinstance(k.value, float)))


@dataclass(frozen=True)
class Weights(Weighing):
    """What counts how much; the thesis lets the three sum up to 1.

    >>> Weights(response=0.5, network=0.5, metric="traffic")
    Weights(response=0.5, availability=0.0, network=0.5, metric='traffic')
    """

    response: float = knob(1.0, "weight of the response time (w_r)", low=0.0, high=1.0)
    availability: float = knob(0.0, "weight of the availability (w_a)", low=0.0, high=1.0)
    network: float = knob(0.0, "weight of the network metric (w_z)", low=0.0, high=1.0)
    metric: str = knob("usage", "the network metric: traffic T, usage N or energy EE", choices=NETWORK_METRICS)


class Ranges(NamedTuple):
    """The least and the greatest value of each metric: they decide what the weights mean, so keep them with results.

    Where both are equal the term is at its best for every placement (the paper's 0/0).
    """

    response_s: tuple[float, float]
    log_availability: tuple[float, float]
    network: tuple[float, float]


def metrics(problem: Problem, placement: Any) -> Metrics:
    """All metrics of a placement, whether it keeps the rules or not (`check` says that)."""
    needs_problem(problem)
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
    far = np.where(apart & (rates > 0), delays, 0.0)  # no records, no traffic: 0 times infinity is 0 here
    log_a = np.log(net.availability[x]).sum() + np.log(net.link_availability[u, v]).sum()
    return Metrics(
        float(ready[list(app.sinks)].max()),
        float(log_a),
        float(rates[apart].sum()),
        float((rates * far).sum()),
        float((rates * far**2).sum()),
    )


def needs_problem(problem: Any) -> None:
    """An error unless this is a problem."""
    if not isinstance(problem, Problem):
        raise PlacementError(f"problem {problem!r}"[:100], expected="a Problem", fix="as in Problem(app, network)")


def needs_weights(weights: Any) -> None:
    """An error unless these are weights."""
    if not isinstance(weights, Weights):
        raise PlacementError(f"weights {weights!r}"[:100], expected="Weights", fix="as in Weights(0.5, 0.2, 0.3)")


def needs_ranges(weights: Weights, ranges: Any) -> None:
    """An error unless there is a range for each metric that counts."""
    if not isinstance(ranges, Ranges):
        raise PlacementError(f"ranges {ranges!r}"[:100], expected="Ranges", fix="find them by exact_ranges(problem)")
    for weight, low_high in zip((weights.response, weights.availability, weights.network), ranges, strict=True):
        if weight > 0:
            _ends(low_high)


def loss(found: Metrics, weights: Weights, ranges: Ranges) -> float:
    """The weighted, normalised objective to MINIMISE (chapter 5): 0 is best."""
    terms = (
        (weights.response, found.response_s, ranges.response_s, 1),
        (weights.availability, found.log_availability, ranges.log_availability, -1),
        (weights.network, found.network(weights.metric), ranges.network, 1),
    )
    return sum(w * share(value, low_high, sign) for w, value, low_high, sign in terms if w > 0)


def utility(found: Metrics, weights: Weights, ranges: Ranges) -> float:
    """The weighted, normalised objective to MAXIMISE (chapter 4): the sum of weights is best."""
    return weights.total - loss(found, weights, ranges)


def share(value: float, low_high: tuple[float, float], sign: int) -> float:
    """How far a value is from its best end, as a share of its range; not clipped. sign -1: large is good."""
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
            f"a range of {low_high!r}"[:100], expected="two finite numbers, the least first", fix="see exact_ranges()"
        )
    return low, high
