"""Queueing theory: Erlang C, the sojourn time in M/M/c stations, and a server with few callers.

| paper | here |
|---|---|
| $\\lambda, \\mu$ | arrivals and services of one server, records/s |
| $c$ | servers |
| $a = \\lambda/\\mu$ | offered load |
| $C$ | probability that an arrival waits |
| $n, Z, D$ | callers of one server, time of a caller between two calls, time of a call |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from statistics import NormalDist


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that an arrival to M/M/c waits: $C = B/(1-\\frac ac(1-B))$ with Erlang's B by recursion.

    Examples
    --------
    >>> round(erlang_c(2, 1.5), 4)
    0.6429
    """
    if load >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def finite_source_rate(callers: int, own_s: float, call_s: float) -> float:
    """Return the calls/s that one server answers if each caller calls again an exponential time after its answer.

    The exact throughput of M/D/1 with a finite source:
    $\\frac1D\\big(1-\\big[1+n\\frac DZ\\sum_{r<n}\\binom{n-1}r\\prod_{i\\le r}(e^{iD/Z}-1)\\big]^{-1}\\big)$
    [takacs1962queues].

    Parameters
    ----------
    callers : int
        Number of callers, n.
    own_s : float
        Mean time of a caller between an answer and its next call, Z.
    call_s : float
        Time of a call, D, always the same.

    Examples
    --------
    >>> [round(finite_source_rate(n, 0.02, 1 / 80), 2) for n in (1, 2, 3, 100)]
    [30.77, 56.01, 72.15, 80.0]
    """
    total, term, x = 0.0, 1.0, call_s / max(own_s, 1e-300)
    for r in range(callers):
        total += term
        if (r + 1) * x > 500.0 or total > 1e15:
            return 1.0 / call_s  # never idle, to the last bit
        term *= (callers - 1 - r) / (r + 1) * math.expm1((r + 1) * x)
    return (1.0 - 1.0 / (1.0 + callers * x * total)) / call_s


def sojourn(servers: int, arrivals: float, service_s: float) -> tuple[float, float]:
    """Return mean and variance of the sojourn time in M/M/c, wait and service, for a load below its capacity.

    The wait is zero with probability $1-C$ and otherwise exponential with rate $c\\mu-\\lambda$.

    Examples
    --------
    >>> sojourn(1, 0.5, 1.0)
    (2.0, 4.0)
    """
    waits, spare = erlang_c(servers, arrivals * service_s), servers / service_s - arrivals
    return waits / spare + service_s, waits * (2 - waits) / spare**2 + service_s**2


def percentiles(mean: float, variance: float, shares: Iterable[float]) -> list[float]:
    """Return quantiles of a time with this mean and variance under a gamma distribution, which is exact for one M/M/1.

    Examples
    --------
    >>> [round(q, 3) for q in percentiles(2.0, 4.0, [0.5, 0.95])]
    [1.386, 5.991]
    """
    if mean <= 0 or variance <= 0:
        return [mean for _ in shares]
    shape = mean**2 / variance
    return [float(_gamma_quantiles()(shape, share)) * variance / mean for share in shares]


@cache
def _gamma_quantiles() -> Callable[[float, float], float]:
    """Return SciPy's inverse of the regularised lower incomplete gamma function, or ours where SciPy is missing."""
    try:
        from scipy.special import gammaincinv
    except ImportError:
        return _gamma_quantile
    return gammaincinv  # type: ignore[no-any-return]


def _gamma_quantile(shape: float, share: float) -> float:
    """Return the x with P(shape, x) = share: Newton's steps on the logarithm of x, kept in a bracket that shrinks.

    The error is below 1e-9 of the quantile for shapes from 1e-3 to 1e6 and shares from 1e-6 to 0.9999.
    """
    if share <= 0 or share >= 1:
        return 0.0 if share == 0 else math.inf if share == 1 else math.nan
    low, high = -745.0, math.log(shape + 40 * math.sqrt(shape) + 800.0)  # of log x
    # Below all: P is about x^shape / Gamma(shape + 1). Else Wilson and Hilferty's cube of a normal quantile.
    at = (math.log(share) + math.lgamma(shape + 1)) / shape
    if shape > 0.5:
        cube = 1 - 1 / (9 * shape) + NormalDist().inv_cdf(share) / (3 * math.sqrt(shape))
        at = math.log(shape) + 3 * math.log(cube) if cube > 0.1 else at
    at = min(max(at, low), high)
    for _ in range(200):
        x = math.exp(at)
        excess = _gamma_share(shape, x) - share
        low, high = (low, at) if excess > 0 else (at, high)
        slope = math.exp(shape * at - x - math.lgamma(shape))  # of P by log x
        step = excess / slope if slope > 0 else math.inf
        new = at - step
        if not low < new < high:
            new = (low + high) / 2
        if abs(new - at) <= 1e-13 * max(1.0, abs(at)):
            return math.exp(new)
        at = new
    return math.exp(at)


def _gamma_share(shape: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P: a series below the mean, Lentz's fraction above."""
    if x <= 0:
        return 0.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        n = shape
        while term > total * 1e-17:
            n += 1
            term *= x / n
            total += term
        return total * scale
    b = x + 1 - shape
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 100_000):
        a = -i * (i - shape)
        b += 2
        d, c = 1 / ((a * d + b) or 1e-300), (b + a / c) or 1e-300
        fraction *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return 1 - scale * fraction
