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
