"""Waiting in queues, from theory: Erlang C and the sojourn time of M/M/c stations in a row.

| paper | here |
|---|---|
| $\\lambda, \\mu$ | arrivals and one server's services, records/s |
| $c$ | servers |
| $a = \\lambda/\\mu$ | offered load |
| $C$ | probability that an arrival waits |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival to M/M/c waits: $C = B/(1-\\frac ac(1-B))$ with Erlang's B by recursion.

    >>> round(erlang_c(2, 1.5), 4)
    0.6429
    """
    if load >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def sojourn(servers: int, arrivals: float, service_s: float) -> tuple[float, float]:
    """Mean and variance of the time in M/M/c, waiting and service, for a load below its capacity.

    The wait is zero with probability $1-C$ and else exponential with rate $c\\mu-\\lambda$.
    """
    waits, spare = erlang_c(servers, arrivals * service_s), servers / service_s - arrivals
    return waits / spare + service_s, waits * (2 - waits) / spare**2 + service_s**2


def percentiles(mean: float, variance: float, shares: Iterable[float]) -> list[float]:
    """Quantiles of a time of this mean and variance, taken as gamma distributed (exact for one M/M/1)."""
    from scipy.special import gammaincinv

    if mean <= 0 or variance <= 0:
        return [mean for _ in shares]
    shape = mean**2 / variance
    return [float(gammaincinv(shape, share)) * variance / mean for share in shares]


def virtual_delay(t: Array, came: Array, left: Array) -> Array:
    """How long what leaves at each time `t` has waited, first in first out, from two cumulative curves.

    That is the horizontal distance $t - A^{-1}(D(t))$ of arrivals A and departures D, straight lines between points.

    >>> virtual_delay([0, 1, 2], came=[0, 30, 60], left=[0, 15, 30]).tolist()
    [0.0, 0.5, 1.0]
    """
    import numpy as np

    t, came, left = (np.asarray(x, dtype=float) for x in (t, came, left))
    grows = np.concatenate(([True], np.diff(came) > 0))  # where nothing comes, the last to come is meant
    delay: Array = np.maximum(0.0, t - np.interp(left, came[grows], t[grows]))
    return delay
