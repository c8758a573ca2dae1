r"""One step of a search: the surrogate of the samples, and the configuration to run next, both as pure functions.

The surrogate is a prior mean of the score F(k), which holds before anything is measured, and a Gaussian process of the
remainder, for instance of contention, by which too many instances make a job slower. The paper's prior is a constant.

| prior | mean of F(k) |
|---|---|
| "constant" | the samples' mean, as in the paper |
| "cost" | the known cost of slots, $(1-\alpha)\frac1N\sum k'_i/k_i$, and a constant for the latency |
| "monotone" | the same, and $\alpha\min(1, l_t/\hat l(k))$ with a latency that falls with each $k_i$ |
| "latency" | none: the process is one of $\ln l(k)$ around $\ln\hat l(k)$, and F follows from it |

"latency" uses all that is known: the cost of slots and the target exactly, so that only the latency is learned, with
the noise of its measurements. Its expected improvement takes into account that more speed earns nothing beyond the
target. It needs measured latencies and scores that are F of them. "auto", the default, is "latency" where it can be
used, otherwise "constant" (scores of one's own, scikit-optimize).

The paper's search begins with six equal levels up to the most instances, and with each operator alone at its most: ten
of thirty runs far from the cheapest configuration that meets the target. A process of the score with one length scale
then learns mostly that these are poor. On chains of M/M/c queues (`benchmarks/bo_quality.py`) this is worse than random
search; both are thus options here (`prior="constant"`, `Optimizer(bootstrap=True)`), not the default.

$\hat l(k)=a+\sum_i\sum_d b_{id}\,d/(k_i-k'_i+d)+c_ik'_i/k_i$ with $a,b_{id},c_i\ge0$ never rises. It falls like a wait
whose capacity exceeds the load by d instances at the base, d = 0.1, 0.5 or 2, or like divided work. It is fitted to
the measured latencies with relative errors. What it leaves is a process over the logarithms of the instances above the
base.

`trim` continues after a run that meets the target and removes superfluous instances (not in the paper). The score
saturates once the latency is met, so that its process says little about smaller configurations. The cost of slots is
known, however; only whether fewer instances still meet the latency is not. So the configuration that maximises

$$\Big(\tfrac1N\sum_i\frac{k'_i}{k_i}-\tfrac1N\sum_i\frac{k'_i}{\kappa_i}\Big)\,P(l(k)\le l_t)$$

is run next, with $\kappa$ the best one known, among those with no operator above every run that met the target:
constrained expected improvement with a certain gain [gardner2014constrained]. With `feasibility` the whole search is
one of this kind: $P(l(k)\le l_t)\,P(\text{throughput}\ge(1-\epsilon)v_e)$ takes the place of the mean latency, and
what is kept has at least that probability.

Changes cost time: with `rescale_s` and `move_s` the improvement is one per second of the run and of the change from the
present configuration (expected improvement per second [snoek2012practical]).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from ..core import ArgumentError, KnobError, Knobs, MetricError, knob
from ..core.lazy import load
from ..core.typing import Array
from ..core.validation import choice, number, numbers
from .acquisition import Proposal, best_of, log_h, propose
from .gp import GP, NOISE, fit
from .score import Sample, resource_score, score
from .space import Config, Lattice

if TYPE_CHECKING:
    from .sklearn_adapter import SkoptSearch


ENGINES = ("ours", "gpytorch", "skopt")
SCORE_PRIORS = ("constant", "cost", "monotone")  # those with a process of the score
PRIORS = ("auto", "latency", *SCORE_PRIORS)
Mean = Callable[[Any], Array]
Posterior: TypeAlias = "Surrogate | LatencySurrogate"
_SHORTFALLS = (0.1, 0.5, 2.0)  # candidates of the instances by which the base exceeds the load
_RIDGE = 1e-2  # pulls toward equal shares if samples do not distinguish operators


def prior_mean(
    kind: str, base: Sequence[int], samples: Sequence[Sample], alpha: float, target_latency_s: float
) -> Mean:
    """Return the prior mean of one kind, given the samples."""
    if choice(kind, "prior", SCORE_PRIORS) == "constant":
        return lambda X: np.zeros(len(np.atleast_2d(X)))

    def cost(X: Any) -> Array:
        return (1 - alpha) * np.atleast_1d(resource_score(np.atleast_2d(X), base))

    if kind == "cost" or not samples:
        return cost
    late = falling(base, samples, target_latency_s, alpha)
    return lambda X: cost(X) + alpha / np.maximum(1.0, late(X))


def falling(base: Sequence[int], samples: Sequence[Sample], target_latency_s: float, alpha: float = 0.8) -> Mean:
    r"""Return $\hat l(k)$ relative to the target, fitted to the samples."""
    a = _fitted(base, samples, alpha, target_latency_s)
    return lambda X: _features(X, base) @ a


def _features(X: Any, base: Sequence[int]) -> Array:
    X = np.atleast_2d(np.asarray(X, dtype=float))
    low = np.asarray(base)
    beyond = np.maximum(X - low, 0.0)
    falls = [d / (beyond + d) for d in _SHORTFALLS]
    return np.column_stack([np.ones(len(X)), *falls, low / np.maximum(X, low)])


def _fitted(base: Sequence[int], samples: Sequence[Sample], alpha: float, target_latency_s: float) -> Array:
    """Return $a, b_i, c_i$ of the latency relative to the target, all non-negative."""
    from scipy.optimize import nnls

    late = np.array([_latency(s, base, alpha, target_latency_s) for s in samples])
    weight = 1.0 / np.maximum(late, 0.2)
    A = _features([s.k for s in samples], base)
    ridge = np.sqrt(_RIDGE) * np.eye(A.shape[1])
    found: Array = nnls(np.vstack([A * weight[:, None], ridge]), np.concatenate([late * weight, np.zeros(len(ridge))]))[
        0
    ]
    return found


def _latency(sample: Sample, base: Sequence[int], alpha: float, target_latency_s: float) -> float:
    """Return the latency relative to the target; if it was not kept, at least 1 as derived from the score."""
    if sample.latency_s is not None:
        return min(sample.latency_s / target_latency_s, 1e3)
    share = (sample.score - (1 - alpha) * resource_score(sample.k, base)) / alpha if alpha else 1.0
    return 1.0 / min(max(share, 1e-3), 1.0)


class Process(Protocol):
    """A Gaussian process over the unit cube."""

    def predict(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation at each row."""
        ...


@dataclass(frozen=True)
class Surrogate:
    """The posterior over a lattice: the prior mean plus a Gaussian process of the residuals.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    prior : callable
        Returns the prior mean of configurations, one per row.
    gp : Process
        The process of the residuals over the unit cube.
    unit : float
        Unit of the residuals: scores of one's own are fitted in units of their spread.

    Examples
    --------
    >>> surrogate = Search().surrogate(Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)])
    >>> surrogate.mean([(2, 3)]).round(2).tolist()
    [0.7]
    """

    lattice: Lattice
    prior: Mean
    gp: Process
    unit: float = 1.0

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score of each configuration."""
        mean, sigma = self.gp.predict(self.lattice.scaled(X))
        return mean * self.unit + self.prior(X), sigma * self.unit

    def mean(self, X: Any) -> Array:
        """Return the mean of the score of each configuration.

        Parameters
        ----------
        X : array_like
            One configuration per row.

        Examples
        --------
        >>> surrogate = Search().surrogate(Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)])
        >>> surrogate.mean([(9, 3)]).round(2).tolist()
        [0.8]
        """
        return self(X)[0]


@dataclass(frozen=True)
class LatencySurrogate:
    r"""The posterior of the score over a lattice that follows from a process of the logarithm of the latency.

    With $z=\ln l/l_t\sim N(m,s^2)$ and the known cost c of the slots, $F=\alpha\min(1,e^{-z})+c$. The noise of measured
    latencies is learned, also from configurations that ran more than once.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    samples : sequence of Sample
        Measured configurations, each with a latency; one that ran several times has several.
    alpha : float
        Weight of the latency.
    target_latency_s : float
        The latency to meet.
    engine : {"ours", "gpytorch"}
        The library of the process.
    prior : callable, optional
        Expected $\ln l/l_t$ of configurations, one per row; by default a falling latency that is fitted to the samples.

    Examples
    --------
    >>> samples = [Sample((2, 3), 0.73, 0.3), Sample((9, 3), 0.92, 0.1)]
    >>> surrogate = LatencySurrogate(Lattice((2, 3), 9), samples, 0.8, 0.2)
    >>> surrogate.mean([(9, 3)]).round(2).tolist()
    [0.92]
    """

    lattice: Lattice
    samples: Sequence[Sample]
    alpha: float
    target_latency_s: float
    engine: str = "ours"
    prior: Mean | None = None

    @cached_property
    def expected(self) -> Mean:
        """The prior mean of $\\ln l/l_t$."""
        if self.prior is not None:
            return self.prior
        late = falling(self.lattice.base, self.samples, self.target_latency_s)
        return lambda k: np.log(np.maximum(late(k), 1e-6))

    @cached_property
    def process(self) -> GP:
        """The process of what the prior mean does not explain."""
        late = np.log([min(max(s.latency_s or 0.0, 1e-6) / self.target_latency_s, 1e3) for s in self.samples])
        ran = [s.k for s in self.samples]
        return fit(
            _beyond_base(self.lattice, ran),
            late - self.expected(ran),
            mean=0.0,
            engine=self.engine,
            noise=_LATENCY_NOISES,
            variance=_LATENCY_VARIANCES,
            around=_LATENCY_BELIEFS,
        )

    def log_latency(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of $\\ln l/l_t$ of each configuration, one per row.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        mean, sigma = self.process.predict(_beyond_base(self.lattice, X))
        return mean + self.expected(X), np.maximum(sigma, 1e-9)

    def log_meets(self, X: Any) -> Array:
        """Return the logarithm of the probability that the mean latency of each configuration meets the target.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        mean, sigma = self.log_latency(X)
        found: Array = log_ndtr(-mean / sigma)
        return found

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score of each configuration."""
        mean, sigma = self.log_latency(X)
        first, second = (np.clip(_moment(mean, sigma, p), 0.0, 1.0) for p in (1, 2))
        return self.alpha * first + self._cost(X), self.alpha * np.sqrt(np.maximum(second - first**2, 0.0))

    def mean(self, X: Any) -> Array:
        """Return the mean of the score of each configuration.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        return self(X)[0]

    def _cost(self, X: Any) -> Array:
        return (1 - self.alpha) * _cheapness(X, self.lattice)

    def log_improvement(self, X: Any, best: float) -> Array:
        r"""Return the logarithm of the expected improvement on `best`: $E\max(0, F-best)$ in closed form.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        best : float
            The score to improve on.
        """
        return self.log_gain(Improvement(self.lattice, self.alpha, best))(X)

    def log_gain(self, gain: Gain, running: Sequence[Config] = (), draws: int = 32) -> Callable[[Any], Array]:
        r"""Return a function that gives the log of the gain which a configuration adds to those that run beside it.

        For the improvement of the score that is $E[\max(F(x),F(x_1),\dots,F(x_p),best)-\max(F(x_1),\dots,F(x_p),best)]$
        under the joint posterior: the outer expectation over the latencies of $x_1\dots x_p$ by quasi-random draws, the
        inner one in closed form. Choosing one configuration after the other by it maximises the joint expected
        improvement greedily.

        Parameters
        ----------
        gain : Gain
            What is gained.
        running : sequence of configurations
            $x_1\dots x_p$.
        draws : int
            Number of draws, a power of two.
        """
        if not running:
            return lambda X: gain.log_expected(X, *self.log_latency(X), gain.floor)
        from scipy.stats import qmc

        at = _beyond_base(self.lattice, running)
        mean, _ = self.log_latency(running)
        spread = self.process.covariance(at, at)
        lower = np.linalg.cholesky(spread + (1e-10 + 1e-8 * np.trace(spread)) * np.eye(len(at)))
        normal = ndtri(np.clip(qmc.Sobol(len(at), seed=0).random(draws), 1e-9, 1 - 1e-9))
        so_far = np.maximum(gain.floor, gain.value(running, mean + normal @ lower.T).max(axis=1))

        def log_added(X: Any) -> Array:
            m, s = self.log_latency(X)
            shared = solve_triangular(lower, self.process.covariance(at, _beyond_base(self.lattice, X)), lower=True)
            left = np.sqrt(np.maximum(s**2 - (shared**2).sum(axis=0), 1e-18))
            each = [
                gain.log_expected(X, m + row @ shared, left, floor) for row, floor in zip(normal, so_far, strict=True)
            ]
            found: Array = logsumexp(each, axis=0) - math.log(draws)
            return found

        return log_added


class Gain(Protocol):
    """A gain of a configuration over a floor, given its log latency z relative to the target."""

    @property
    def floor(self) -> float:
        """The value to exceed."""
        ...

    def value(self, k: Any, z: Array) -> Array:
        """Return what configurations are worth with these z, to be compared with the floor."""
        ...

    def log_expected(self, k: Any, m: Array, s: Array, floor: float) -> Array:
        """Return the log of the expected gain over a floor if $z\\sim N(m,s^2)$."""
        ...


@dataclass(frozen=True)
class Improvement:
    """The improvement of the score F over `floor`."""

    lattice: Lattice
    alpha: float
    floor: float

    def value(self, k: Any, z: Array) -> Array:
        """Return F."""
        found: Array = self.alpha * np.exp(-np.maximum(z, 0.0)) + (1 - self.alpha) * _cheapness(k, self.lattice)
        return found

    def log_expected(self, k: Any, m: Array, s: Array, floor: float) -> Array:
        """Return $\\ln E\\max(0, F-floor)$."""
        return _log_gain(m, s, floor - (1 - self.alpha) * _cheapness(k, self.lattice), self.alpha)


@dataclass(frozen=True)
class Saving:
    r"""The saving of slots over the share `floor`, if latency and rate are met: constrained expected improvement.

    $\max(0,\tfrac1N\sum k'_i/k_i-floor)\,P(l\le l_t)\,P(\text{rate})$ [gardner2014constrained]; -inf stands for no
    configuration that is kept, and all of $\tfrac1N\sum k'_i/k_i$ is gained.
    """

    lattice: Lattice
    floor: float
    log_served: Callable[[Any], Array]

    def value(self, k: Any, z: Array) -> Array:
        """Return the share of slots where the latency is met, otherwise none."""
        return np.where(z <= 0, _cheapness(k, self.lattice), -np.inf)

    def log_expected(self, k: Any, m: Array, s: Array, floor: float) -> Array:
        """Return the log of the saving times the probabilities."""
        saving = _cheapness(k, self.lattice) - max(floor, 0.0)
        likely = log_ndtr(-m / s) + self.log_served(k)
        return np.where(saving > 1e-12, np.log(np.maximum(saving, 1e-300)) + likely, -np.inf)


def _beyond_base(lattice: Lattice, X: Any) -> Array:
    """Return configurations as points of the unit cube, in logarithms of the instances above the base.

    Waits fall and shares of the rate rise steeply near the base, hardly far from it, and so evenly on this scale.
    """
    beyond = np.atleast_2d(X) - lattice.low
    found: Array = np.log1p(beyond) / np.log1p(np.maximum(lattice.high - lattice.low, 1))
    return found


def _cheapness(k: Any, lattice: Lattice) -> Array:
    """Return $\\frac1N\\sum k'_i/k_i$ of configurations of the box, one per row."""
    found: Array = np.minimum(1.0, lattice.low / np.atleast_2d(k)).mean(axis=-1)
    return found


def _moment(mean: Array, sigma: Array, power: int) -> Array:
    """Return $E\\min(1,e^{-z})^p$."""
    tail = np.exp(np.minimum(-power * mean + (power * sigma) ** 2 / 2, 700.0))
    found: Array = ndtr(-mean / sigma) + np.where(tail < 1e300, tail * ndtr((mean - power * sigma**2) / sigma), 0.0)
    return found


def _log_gain(m: Array, s: Array, short: Array, alpha: float) -> Array:
    """Return $\\ln E\\max(0,\\alpha\\min(1,e^{-z})-short)$ for $z\\sim N(m,s^2)$."""
    if alpha == 0:  # only the cost counts, and it is known
        return np.log(np.maximum(-short, 1e-300))
    z1 = np.log(alpha / np.maximum(short, alpha * math.exp(-_FAR)))  # z must be below it
    met, enough = ndtr(-m / s), ndtr((z1 - m) / s)
    tail = np.exp(np.minimum(-m + s**2 / 2, 700.0)) * (ndtr((z1 - m + s**2) / s) - ndtr((s**2 - m) / s))
    gain = (alpha - short) * met + alpha * tail - short * (enough - met)
    found = np.log(np.maximum(gain, 1e-300))
    if (
        far := gain < 1e-11
    ).any():  # differences of rounding errors: the gain is linear in z near z1, and at most alpha - short
        t = np.minimum((z1 - m) / s, 0.0)[far]
        linear = np.log(np.maximum(short, 1e-12) * s)[far] + log_h(t)
        found[far] = np.minimum(linear, np.log(np.maximum(alpha - short, 1e-300))[far] + log_ndtr(t))
    return np.where(z1 > 0, found, -np.inf)


_SPREAD = 0.2  # standard deviation of scores in the units of `noise` and `xi`: typical of the paper's score
_FAR = 50.0  # logarithm of a latency that is as good as none
_LATENCY_NOISES = (1e-6, 0.25)  # bounds of the variance of a measured log latency
_LATENCY_VARIANCES = (1e-5, 4.0)  # bounds of the kernel's variance
_LATENCY_BELIEFS = {
    "length": (0.5, 0.3),
    "variance": (0.03, 0.7),
    "noise": (1e-4, 2.0),
}  # median, deviation of the logarithm


@dataclass(frozen=True)
class Search(Knobs):
    """Target and method of a search; its numbers are the paper's, if it states any, and `paper()` is its method.

    `engine` names the library of the surrogate and the search. "ours" has no further requirements. "gpytorch" computes
    the same Gaussian process with GPyTorch and searches it with ours. "skopt" is scikit-optimize's Gaussian process
    and search, with a constant prior and learned noise. The latter two come with the extra `bo`.

    Examples
    --------
    >>> box, samples = Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)]
    >>> all(Search(engine=engine).propose(box, samples).k in box for engine in ENGINES)
    True
    """

    target_latency_s: float = knob(0.18, "latency to meet", low=1e-6, high=3600.0, unit="s")
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0, source="Tables II and III")
    xi: float = knob(0.003, "improvement that does not count; 0.01 in `paper()`", low=0.0, high=1.0)
    noise: float = knob(NOISE, "variance of measured scores", low=0.0, high=1.0)
    prior: str = knob("auto", "what is known of the score; in the paper nothing, 'constant'", choices=PRIORS)
    engine: str = knob("ours", "library of the surrogate and the search", choices=ENGINES)
    feasibility: float = knob(
        0.0, "probability that the fewest slots meet latency and rate; 0: the score decides", low=0.0, high=0.9999
    )
    tolerance: float = knob(0.02, "throughput below the rate that still meets it", low=0.0, high=0.5)
    running_s: float = knob(60.0, "time of a run, beside which a change costs", low=1e-3, high=86400.0, unit="s")
    rescale_s: float = knob(0.0, "downtime of a change; the paper does not weigh it", low=0.0, high=86400.0, unit="s")
    move_s: float = knob(0.0, "downtime per instance that starts or stops", low=0.0, high=86400.0, unit="s")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "skopt" and self.prior not in ("auto", "constant"):
            raise KnobError(
                f"engine='skopt' with prior={self.prior!r}", expected="the prior 'constant'", fix="use engine='ours'"
            )
        if self.feasibility and (self.engine == "skopt" or self.prior not in ("auto", "latency")):
            raise KnobError(
                f"feasibility={self.feasibility:g} with engine={self.engine!r}, prior={self.prior!r}",
                expected="a process of the latency",
                fix="use prior='latency' and another engine than skopt",
            )
        if self.engine == "skopt" and (self.rescale_s or self.move_s):
            raise KnobError(
                f"rescale_s={self.rescale_s:g}, move_s={self.move_s:g} with engine='skopt'",
                expected="no cost of changes: scikit-optimize chooses by the improvement alone",
                fix="use engine='ours', or 0 for both",
            )

    @classmethod
    def paper(cls, **knobs: Any) -> Search:
        """Return the search as printed: a process of the score with a constant mean.

        Parameters
        ----------
        **knobs
            Other fields.

        Examples
        --------
        >>> Search.paper(target_latency_s=0.1).prior
        'constant'
        """
        return cls(**{"prior": "constant", "xi": 0.01, **knobs})

    def prior_for(self, lattice: Lattice, samples: Sequence[Sample]) -> str:
        """Return the prior that is used with these samples.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations.

        Examples
        --------
        >>> Search().prior_for(Lattice((2, 3), 9), [Sample((2, 3), 0.7)])
        'constant'
        """
        if self.prior != "auto":
            return self.prior
        if self.feasibility:
            return "latency"
        if self.engine == "skopt":
            return "constant"
        known = all(
            s.latency_s is not None
            and math.isclose(
                s.score, score(s.k, lattice.base, s.latency_s, self.target_latency_s, self.alpha), abs_tol=1e-9
            )
            for s in samples
        )
        return "latency" if known else "constant"

    def surrogate(self, lattice: Lattice, samples: Sequence[Sample]) -> Surrogate | LatencySurrogate:
        """Return the posterior of the samples over the lattice.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations, at least one.

        Examples
        --------
        >>> surrogate = Search().surrogate(Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)])
        >>> surrogate.mean([(2, 3)]).round(2).tolist()
        [0.7]
        """
        X, y = self._checked(lattice, samples)
        kind = self.prior_for(lattice, samples)
        if kind == "latency":
            known = [s for s in samples if s.latency_s is not None]
            if not known:
                raise MetricError("no latencies", expected="at least one", fix="use another prior, or report latency_s")
            return LatencySurrogate(lattice, known, self.alpha, self.target_latency_s, self.engine)
        measured = [s for s in samples if s.latency_s is not None]  # in a transfer, other samples are predictions
        prior = prior_mean(kind, lattice.base, measured or samples, self.alpha, self.target_latency_s)
        if self.engine == "skopt":
            return Surrogate(lattice, prior, self._skopt(lattice, samples, 0))
        left, unit = y - prior(X), self._unit(y)
        return Surrogate(
            lattice, prior, fit(lattice.scaled(X), left / unit, noise=self.noise, engine=self.engine), unit
        )

    def _unit(self, y: Array) -> float:
        """Return the unit of scores of one's own, so that their scale does not matter; 1 for those of the paper."""
        spread = float(np.std(y)) if self.prior == "auto" else 0.0
        return spread / _SPREAD if spread > 0 else 1.0

    def _checked(self, lattice: Lattice, samples: Sequence[Sample]) -> tuple[Array, Array]:
        if not samples:
            raise MetricError("no samples", expected="at least one", fix="run the bootstrap first")
        X, y = numbers([s.k for s in samples], "configurations", low=1), numbers([s.score for s in samples], "scores")
        if X.ndim != 2 or X.shape[1] != len(lattice.base):
            raise MetricError(
                f"samples of shape {X.shape}", expected=f"{len(lattice.base)} operators each", fix="one job, one search"
            )
        numbers([s.latency_s for s in samples if s.latency_s is not None], "latencies", low=0.0, infinite=True)
        return X, y

    def _skopt(self, lattice: Lattice, samples: Sequence[Sample], seed: int | tuple[int, ...]) -> SkoptSearch:
        load("sklearn", "bo", otherwise="engine='ours'")
        from .sklearn_adapter import SkoptSearch

        return SkoptSearch(lattice, samples, xi=self.xi, seed=seed)

    def propose(
        self,
        lattice: Lattice,
        samples: Sequence[Sample],
        *,
        tried: Collection[Config] | None = None,
        best: float | None = None,
        seed: int | tuple[int, ...] = 0,
        at: Config | None = None,
        running: Sequence[Config] = (),
        surrogate: Posterior | None = None,
    ) -> Proposal | None:
        """Return the untried configuration of the greatest expected improvement; None if all were tried.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations, at least one.
        tried : collection of configurations, optional
            Configurations that are not proposed; by default the samples' own.
        best : float, optional
            The score to improve on; by default the samples' best. scikit-optimize accepts no other.
        seed : int or tuple of int
            Seed of random candidates.
        at : tuple of int, optional
            The present configuration: the improvement is one per second of the run and of the change from there, with
            `rescale_s` and `move_s`.
        running : sequence of configurations
            Configurations that run at the same time and have no results yet.
        surrogate : surrogate, optional
            The posterior; by default that of the samples.

        Examples
        --------
        >>> Search().propose(Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)]).k
        (8, 3)
        >>> samples = [Sample((2, 3), 0.73, 0.3), Sample((9, 3), 0.92, 0.1)]
        >>> Search(0.2, feasibility=0.9).propose(Lattice((2, 3), 9), samples).k
        (3, 3)
        """
        known = {*({s.k for s in samples} if tried is None else tried), *running}
        if self.engine == "skopt":
            if best is not None or running:
                raise ArgumentError(
                    f"{'running' if best is None else 'best'} with engine='skopt'",
                    expected="none: it improves on its samples' best",
                    fix="leave it out, or use engine='ours'",
                )
            self._checked(lattice, samples)
            return self._skopt(lattice, samples, seed).ask(tried=known)
        top = max((s.score for s in samples), default=-math.inf) if best is None else number(best, "best")
        found = surrogate or self.surrogate(lattice, samples)

        def per_second(worth: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return worth if at is None else lambda X: worth(X) - np.log(self.seconds(X, at))

        if isinstance(found, Surrogate):
            if running:
                raise ArgumentError(
                    "running with a process of the score",
                    expected="none",
                    fix="use batch(), or prior='latency'",
                )
            return propose(
                found,
                lattice,
                top,
                xi=self.xi * found.unit,
                tried=known,
                seed=seed,
                per_second=per_second if at else None,
            )
        if self.feasibility:
            floor = self._cheapest(lattice, samples, found)
            gain: Gain = Saving(lattice, -math.inf if floor is None else floor, self.served(lattice, samples))
        else:
            top = (
                top if best is not None else float(found.mean([s.k for s in samples if s.latency_s is not None]).max())
            )
            gain = Improvement(lattice, self.alpha, top + self.xi)
        worth = found.log_gain(gain, running)
        k = best_of(per_second(worth), lattice, known, seed, near=[s.k for s in samples])
        if k is None:
            return None
        mean, sigma = (float(v[0]) for v in found([k]))
        return Proposal(k, mean, sigma, float(np.exp(worth(np.array([k]))[0])))

    def seconds(self, X: Any, at: Config) -> Array:
        """Return the time that a run of each configuration takes from the present one: its change and the run.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        at : tuple of int
            The present configuration.

        Examples
        --------
        >>> Search(running_s=60, rescale_s=30, move_s=2).seconds([(2, 3), (4, 3)], at=(2, 3)).tolist()
        [60.0, 94.0]
        """
        moved = np.abs(np.atleast_2d(X) - np.asarray(at)).sum(axis=1)
        found: Array = self.running_s + self.rescale_s * (moved > 0) + self.move_s * moved
        return found

    def served(self, lattice: Lattice, samples: Sequence[Sample]) -> Callable[[Any], Array]:
        """Return a function that gives the log probability that a configuration serves the offered rate.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations; those without a served share do not count.

        Examples
        --------
        >>> samples = [Sample((2, 3), 0.7, 0.3, 0.8), Sample((9, 3), 0.8, 0.1, 1.0)]
        >>> log_p = Search().served(Lattice((2, 3), 9), samples)
        >>> bool(log_p([(2, 3)])[0] < log_p([(9, 3)])[0])
        True
        """
        known = [s for s in samples if s.served is not None]
        if not known:
            return lambda X: np.zeros(len(np.atleast_2d(X)))
        shares = np.log([min(max(s.served or 0.0, 1e-3), 1.0) for s in known])  # above 1 a queue drains
        process = fit(
            _beyond_base(lattice, [s.k for s in known]),
            shares,
            mean=0.0,
            noise=(1e-6, 0.1),
            variance=(1e-6, 1.0),
            around={"variance": (1e-3, 2.0), "noise": (1e-4, 2.0)},
        )
        least = math.log1p(-self.tolerance)

        def log_probability(X: Any) -> Array:
            mean, sigma = process.predict(_beyond_base(lattice, X))
            found: Array = log_ndtr((mean - least) / np.maximum(sigma, 1e-9))
            return found

        return log_probability

    def feasible(
        self, lattice: Lattice, samples: Sequence[Sample], X: Any, surrogate: Posterior | None = None
    ) -> Array:
        """Return the probability that each configuration meets the latency and serves the rate.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations, at least one with a latency.
        X : array_like
            One configuration per row.
        surrogate : surrogate, optional
            The posterior of the latency; by default that of the samples.

        Examples
        --------
        >>> samples = [Sample((2, 3), 0.7, 0.3), Sample((9, 3), 0.8, 0.1)]
        >>> Search(0.2).feasible(Lattice((2, 3), 9), samples, [(2, 3), (9, 3)]).round(1).tolist()
        [0.0, 1.0]
        """
        known = [s for s in samples if s.latency_s is not None]
        if not known:
            raise MetricError("no latencies", expected="at least one", fix="report runs with their latency_s")
        found = surrogate or LatencySurrogate(lattice, known, self.alpha, self.target_latency_s)
        if isinstance(found, Surrogate):
            raise ArgumentError("a process of the score", expected="one of the latency", fix="use prior='latency'")
        return np.exp(found.log_meets(X) + self.served(lattice, samples)(X))  # type: ignore[no-any-return]

    def kept(self, lattice: Lattice, samples: Sequence[Sample], surrogate: Posterior | None = None) -> Config | None:
        """Return the cheapest configuration that ran and meets latency and rate with probability `feasibility`.

        Parameters
        ----------
        lattice : Lattice
            The configurations.
        samples : sequence of Sample
            The measured configurations.
        surrogate : surrogate, optional
            The posterior of the latency; by default that of the samples.

        Examples
        --------
        >>> samples = [Sample((2, 3), 0.7, 0.3), Sample((9, 3), 0.8, 0.1)]
        >>> Search(0.2, feasibility=0.95).kept(Lattice((2, 3), 9), samples)
        (9, 3)
        """
        ran = list(dict.fromkeys(s.k for s in samples if s.latency_s is not None))
        if not ran:
            return None
        sure = self.feasible(lattice, samples, ran, surrogate) >= max(self.feasibility, 0.5)
        met = [k for k, fine in zip(ran, sure, strict=True) if fine]
        return min(met, key=lambda k: (-resource_score(k, lattice.base), sum(k), k)) if met else None

    def _cheapest(self, lattice: Lattice, samples: Sequence[Sample], surrogate: Posterior) -> float | None:
        """Return the share of the slots of what is kept; None if nothing is."""
        k = self.kept(lattice, samples, surrogate)
        return None if k is None else float(resource_score(k, lattice.base))


class Trim(NamedTuple):
    """The next configuration, its saving in $\\frac1N\\sum k'/k$, and the probability that it meets the target."""

    k: Config
    saving: float
    probability: float


def trim(
    lattice: Lattice,
    samples: Sequence[Sample],
    kept: Config,
    target_latency_s: float,
    *,
    seed: int | tuple[int, ...] = 0,
) -> Trim | None:
    """Return the configuration to run next below `kept`, among those not measured; None if all were.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    samples : sequence of Sample
        Measured configurations, at least one with a latency.
    kept : tuple of int
        The best configuration known to meet the target.
    target_latency_s : float
        The latency to meet.
    seed : int or tuple of int
        Seed of random candidates.

    Examples
    --------
    >>> samples = [Sample((2, 3), 0.7, 0.3), Sample((9, 3), 0.8, 0.1)]
    >>> trim(Lattice((2, 3), 9), samples, (9, 3), 0.2).k
    (3, 3)
    """
    known = [s for s in samples if s.latency_s is not None]
    if not known:
        raise MetricError("no latencies", expected="at least one", fix="report runs with their latency_s")
    surrogate = LatencySurrogate(lattice, known, 0.8, target_latency_s)
    now = float(resource_score(kept, lattice.base))
    worth = surrogate.log_gain(Saving(lattice, now, Search(target_latency_s).served(lattice, samples)))
    most = np.max([kept, *(s.k for s in known if (s.latency_s or 0.0) <= target_latency_s)], axis=0).tolist()
    found = best_of(worth, Lattice(lattice.base, most), {kept, *(s.k for s in samples)}, seed)
    saving = 0.0 if found is None else float(resource_score(found, lattice.base)) - now
    if found is None or saving <= 1e-12:
        return None
    return Trim(found, saving, float(np.exp(surrogate.log_meets([found])[0])))
