"""Estimates with intervals: the scalability law of one operator, ratios of sums, means.

| paper [gunther2007usl] | here |
|---|---|
| $N$ | `k`, instances |
| $1/\\gamma$ | `seconds`, of one instance that is alone |
| $\\sigma, \\kappa$ | `contention`, `coherency` |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from ...core.queueing import finite_source_rate
from ...core.typing import Array

NAMES = ("seconds", "contention", "coherency")
_FAR = 4.5  # robust standard deviations, in logarithms, beyond which a window is an outlier
_CROWD = 5  # windows at one parallelism whose median is trusted above the law
_FINEST = 1e-6  # smallest relative width of an interval: rounding
_BUSY = 0.9  # utilisation of fully busy windows, in which an external rate limit shows
_LIGHT = 0.5  # load of an external server below which its wait is predictable
_ABOVE = 1.2  # most that an external rate limit is above the rate of the busiest windows
_CLEARLY = 6.0  # by how much the BIC of the less usual model must be better
_WILD = 4.0  # greatest plausible squared coefficient of variation of service times of records


class Interval(NamedTuple):
    """A value with the ends of its confidence interval, None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Interval:
        """Return the interval multiplied by a factor."""
        return Interval(*(None if x is None else x * factor for x in self))  # type: ignore[arg-type]


class Windows(NamedTuple):
    """The windows of one operator, in order of time."""

    k: Array
    y: Array  # seconds of one instance per record
    n: Array  # records
    busy: Array  # utilisation

    def only(self, mask: Array) -> Windows:
        """Return the windows of a mask."""
        return Windows(*(x[mask] for x in self))


@dataclass(frozen=True)
class Law:
    """A fitted law; None for parameters that the observed parallelisms do not determine."""

    seconds: Interval
    contention: Interval | None
    coherency: Interval | None
    ceiling: Interval | None
    seen: tuple[int, ...]
    residuals: Array  # logarithms, window by window
    records: Array
    outliers: int
    misfit: float  # largest relative distance between the law and the mean at an observed parallelism


def law(w: Windows, contention: float, coherency: float, confidence: float, ceiling: float = math.inf) -> Law:
    """Fit $y = s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ by weighted least squares of relative errors.

    All parameters are at least 0.

    Relative errors have mean 0 whatever their distribution, whereas logarithms do not. A window has the weight
    $1/(v+c/n)$: noise v of whole windows, and sampling variance c/n of its n records. Parameters that so few
    parallelisms do not determine stay as given, as does an external rate limit that no window reached. Intervals are
    profiles: the values at which the best fit of all other parameters is not worse than chance makes it.

    >>> k = np.repeat([1, 2, 4, 6], 5)
    >>> windows = Windows(k, 0.002 * (1 + 0.1 * (k - 1)), np.full(20, 1e4), np.ones(20))
    >>> fitted = law(windows, 0, 0, 0.95)
    >>> round(fitted.seconds.value, 6), round(fitted.contention.value, 4), round(fitted.coherency.value, 4)
    (0.002, 0.1, 0.0)
    """
    unit = float(np.median(w.y))
    w = w._replace(y=w.y / unit)
    given = {"contention": contention, "coherency": coherency}
    kept = _typical(w, given)
    outliers, w = int((~kept).sum()), w.only(kept)
    top = _ceiling(w, contention, coherency, confidence)
    seen = w if top is None and math.isinf(ceiling) else _without_call(w, top.value if top else ceiling * unit)
    if top is not None:
        given["coherency"] = 0.0
    fixed = _fixed(seen, given, most=3 if top is None else 2)
    theta, interval = _least_squares(seen, fixed, confidence)
    found = {n: interval(n) for n in NAMES if n not in fixed}
    residuals = np.log(seen.y / _seconds(theta, seen.k))
    groups = [residuals[seen.k == k] for k in np.unique(seen.k)]
    return Law(
        seconds=found["seconds"].times(unit),
        contention=found.get("contention"),
        coherency=found.get("coherency"),
        ceiling=None if top is None else top.times(1 / unit),
        seen=tuple(int(k) for k in np.unique(seen.k)),
        residuals=residuals,
        records=seen.n,
        outliers=outliers,
        misfit=max((abs(math.expm1(g.mean())) for g in groups if len(g) >= _CROWD), default=0.0),
    )


def _fixed(w: Windows, given: Mapping[str, float], most: int = 3) -> dict[str, float]:
    """Return the parameters that cannot be determined: one parallelism shows one, two show two, three or more all."""
    return {name: given[name] for name in NAMES[min(most, len(np.unique(w.k))) :]}


def _seconds(theta: tuple[float, ...], k: Array) -> Array:
    s, sigma, kappa = theta
    factor: Array = 1 + sigma * (k - 1) + kappa * k * (k - 1)
    return s * factor


def _typical(w: Windows, given: Mapping[str, float]) -> Array:
    """Return a mask of windows that are not outliers against the median at their parallelism, or against the law.

    The law is used where the median has few windows.
    """
    ks, index, count = np.unique(w.k, return_inverse=True, return_counts=True)
    middle = np.array([np.median(w.y[w.k == k]) for k in ks])
    theta, _ = _best(_root(Windows(ks, middle, count, count), middle, count), _fixed(w, given))
    centre = np.where(count >= _CROWD, middle, _seconds(theta, ks))
    if len(ks) <= 3:  # the law passes through every median, and adds no information
        centre = middle
    r = np.log(w.y / centre[index])
    crowd = r[count[index] >= 2] if (count >= 2).any() else r
    scale = max(1.4826 * float(np.median(np.abs(crowd))), 1e-3)
    kept: Array = np.abs(r) <= _FAR * scale
    return kept if kept.mean() > 0.5 else np.ones_like(kept)


def _root(w: Windows, about: Array, weight: Array) -> Array:
    """Return the least squares problem in four rows: the triangle of its weighted columns and their target."""
    scale = np.sqrt(weight / weight.mean()) / about
    columns = np.column_stack([np.ones(len(w.k)), w.k - 1, w.k * (w.k - 1.0), w.y]) * scale[:, None]
    return np.asarray(np.linalg.qr(np.vstack([columns, np.zeros((4, 4))]), mode="r"))


def _best(root: Array, fixed: Mapping[str, float]) -> tuple[tuple[float, ...], float]:
    """Return the best fit with some parameters fixed, and its sum of squares; sigma and kappa are at most 1."""
    target = root[:, 3]
    first = root[:, 0] + sum(root[:, j] * fixed.get(name, 0.0) for j, name in enumerate(NAMES) if j)
    free = [name for name in NAMES if name not in fixed]
    columns = [first if name == "seconds" else root[:, NAMES.index(name)] for name in free]
    if "seconds" in fixed:
        target = target - fixed["seconds"] * first
    value, rest = optimize.nnls(np.column_stack(columns), target) if columns else ([], float(np.linalg.norm(target)))
    found = {**fixed, **dict(zip(free, (float(x) for x in value), strict=True))}
    s = found["seconds"]
    for name in NAMES[1:]:
        if name in free:
            if found[name] > s and "seconds" not in fixed:  # more than all of the work
                return _best(root, {**fixed, name: 1.0})
            found[name] = found[name] / s if s > 0 else 0.0
    return tuple(found[name] for name in NAMES), float(rest) ** 2


def _least_squares(
    w: Windows, fixed: Mapping[str, float], confidence: float
) -> tuple[tuple[float, ...], Callable[[str], Interval]]:
    weight, n = np.ones(len(w.k)), len(w.k)
    about = np.array([np.median(w.y[w.k == k]) for k in np.unique(w.k)])[np.unique(w.k, return_inverse=True)[1]]
    for _ in range(4):
        root = _root(w, about, weight)
        theta, least = _best(root, fixed)
        about = _seconds(theta, w.k)
        r = w.y / about - 1
        v, c = variance(r, w.n)
        weight = 1 / np.maximum(v + c / w.n, _FINEST**2)
    freedom = n - (3 - len(fixed))
    if freedom < 1:
        return theta, lambda name: Interval(theta[NAMES.index(name)])
    # Errors of consecutive windows may be correlated, and then carry less information.
    again = min(0.9, max(0.0, float(r[1:] @ r[:-1]) / max(float(r @ r), 1e-300)))
    worse = stats.t.ppf((1 + confidence) / 2, freedom) ** 2 * (1 + again) / (1 - again)
    most = least + worse * max(least / freedom, _FINEST**2)

    def interval(name: str) -> Interval:
        at = theta[NAMES.index(name)]
        high = math.inf if name == "seconds" else 1.0
        return Interval(at, *_profile(lambda x: _best(root, {**fixed, name: x})[1] - most, at, high))

    return theta, interval


def _profile(excess: Callable[[float], float], at: float, most: float) -> tuple[float, float]:
    """Return the points on either side of `at` at which `excess` rises above 0, within 0 and `most`."""
    low = 0.0 if at <= 0 or excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, at, rtol=1e-9, xtol=1e-15))
    step, high = max(at * 1e-6, 1e-9), at
    while high < most and excess(min(most, at + step)) <= 0 and step < 1e9:
        high, step = min(most, at + step), step * 2
    if high < most and step < 1e9:
        high = float(optimize.brentq(excess, high, min(most, at + step), rtol=1e-9, xtol=1e-15))
    return low, high


def _ceiling(w: Windows, contention: float, coherency: float, confidence: float) -> Interval | None:
    """Return the external rate limit C on all instances together, if one explains the busy windows clearly better.

    The time of an instance follows the law without coherency; then it calls a server that takes 1/C and waits its turn
    among k callers, so that k of them process what `queueing.finite_source_rate` says. Models are compared by
    $BIC = \\chi^2 + p\\ln N$, with the spread inside each parallelism.
    """
    w = w.only(w.busy >= _BUSY)
    ks = np.unique(w.k)
    if len(ks) < 3:
        return None
    groups = [w.only(w.k == k) for k in ks]
    y, size = (np.array([f(g.y) for g in groups]) for f in (np.mean, len))
    within = sum(float(((g.y / m - 1) ** 2).sum()) for g, m in zip(groups, y, strict=True))
    spread = within / max(1, len(w.k) - len(ks))
    weight = 1 / np.maximum(spread / size, 1e-6)  # at least 0.1 %: no machine follows a law more closely

    def misfit(j: int, call: float, fixed: Mapping[str, float]) -> tuple[tuple[float, ...], float]:
        own = np.array([_own(k, each, call) for k, each in zip(ks[:j], y[:j], strict=True)])
        below = Windows(ks[:j], own, size[:j], size[:j])
        theta, _ = _best(_root(below, below.y, weight[:j]), fixed)
        law = np.maximum(_seconds(theta, ks), _FINEST * y)
        each = law if call <= 0 else ks / [finite_source_rate(int(k), s, call) for k, s in zip(ks, law, strict=True)]
        return theta, float((weight * (each / y - 1) ** 2).sum())

    fixed = _fixed(w, {"contention": contention, "coherency": coherency})
    best = misfit(len(ks), 0.0, fixed)[1] + (3 - len(fixed)) * math.log(len(w.k)) - _CLEARLY
    found: tuple[int, float, dict[str, float], float, float] | None = None
    for j in range(1, len(ks)):
        top = w.only(w.k >= ks[j])
        each = mean(top.y / top.k, confidence)
        if (y[:j] <= ks[:j] * each.value).any():
            continue
        held = _fixed(Windows(ks[:j], y[:j], size[:j], size[:j]), {"contention": contention, "coherency": 0.0}, most=2)
        # The limit is a little above what the busiest windows show, as the server is idle now and then.
        least = optimize.minimize_scalar(
            lambda above, j=j, call=each.value, held=held: misfit(j, call / above, held)[1],
            bounds=(1.0, _ABOVE), method="bounded",
        )  # fmt: skip
        above = float(least.x)
        theta, off = misfit(j, each.value / above, held)
        if (_seconds(theta, ks[j:]) > ks[j:] * each.value * 1.02).any():
            continue  # the law alone would be slower than the limit
        bic = off + (3 - len(held) + 1) * math.log(len(w.k))
        if bic < best:
            best = bic
            freedom = max(1, len(ks) - (3 - len(held) + 1))
            most = off + float(stats.chi2.ppf(confidence, 1)) * max(1.0, off / freedom)
            found = j, each.value, held, above, most
    if found is None:
        return None
    j, call, held, above, most = found
    low, high = _profile(lambda x: misfit(j, call / max(x, 0.1), held)[1] - most, above, 2 * _ABOVE)
    return Interval(above / call, low / call, high / call)


def _own(k: float, each: float, call: float) -> float:
    """Return the time of an instance besides the call if k of them take `each` seconds per record with it."""
    if call <= 0:
        return each

    def excess(own: float) -> float:
        return k / finite_source_rate(int(k), own, call) - each

    low, high = call * 1e-6, each
    return float(optimize.brentq(excess, low, high, rtol=1e-9)) if excess(low) < 0 < excess(high) else low


def _without_call(w: Windows, ceiling: float) -> Windows:
    """Return windows whose rate is well below the external rate limit, with the call and its wait subtracted.

    The wait is that of M/D/1, $\\frac{\\rho}{2(1-\\rho)}$ calls, without that of an instance for itself, and never
    longer than behind all others.
    """
    load = w.busy * w.k / w.y / ceiling
    light = load < max(_LIGHT, float(load.min()) * (1 + _FINEST))
    w, load = w.only(light), np.minimum(load[light], 1 - _FINEST)
    call = (1 + (1 - 1 / w.k) * np.minimum(w.k - 1, load / (2 * (1 - load)))) / ceiling
    return w._replace(y=np.maximum(w.y - call, w.y * _FINEST))


def variance(r: Array, n: Array) -> tuple[float, float]:
    """Return v and c of $E r^2 = v + c/n$: noise of whole windows, and sampling variance of records.

    Sampling variance is assumed only if BIC clearly prefers it, and no more of it than a coefficient of variation of 2
    explains.

    >>> r, n = np.array([0.1, -0.1] * 20), np.array([100, 400] * 20)
    >>> [round(x, 6) for x in variance(r, n)]
    [0.01, 0.0]
    """
    square = r**2

    def model(c: float) -> tuple[float, float, float]:
        """BIC, v, and c."""
        v = max(float(square.mean() - c * (1 / n).mean()), 0.0)
        for _ in range(5):
            weight = 1 / np.maximum(v + c / n, _FINEST**2) ** 2
            v = max(float((weight * (square - c / n)).sum() / weight.sum()), 0.0)
        spread = np.maximum(v + c / n, _FINEST**2)
        count = (v > 0) * math.log(len(r)) + (c > 0) * (math.log(len(r)) + _CLEARLY)
        return float((np.log(spread) + square / spread).sum()) + count, v, c

    _, v, c = min(model(c) for c in (0.0, *np.geomspace(1e-2, _WILD, 14)))
    return v, c


def mean(x: Array, confidence: float) -> Interval:
    """Return the mean with Student's interval.

    >>> [round(v, 3) for v in mean(np.array([1.0, 2.0, 3.0]), 0.95)]
    [2.0, -0.484, 4.484]
    """
    return ratio(x, np.ones(len(x)), confidence)


def ratio(above: Array, below: Array, confidence: float) -> Interval:
    """Return $R = \\sum a / \\sum b$ with Student's interval.

    Its variance is $\\frac{n}{n-1}\\sum (a-Rb)^2/(\\sum b)^2$.
    """
    n, whole = len(above), float(below.sum())
    value = float(above.sum()) / whole
    if n < 2:
        return Interval(value)
    error = math.sqrt(n / (n - 1) * float(((above - value * below) ** 2).sum())) / whole
    error = max(error * float(stats.t.ppf((1 + confidence) / 2, n - 1)), abs(value) * _FINEST)
    return Interval(value, value - error, value + error)
