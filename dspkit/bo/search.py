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

$\hat l(k)=a+\sum_i b_i/(2(k_i-k'_i)+1)+c_ik'_i/k_i$ with $a,b_i,c_i\ge0$ never rises. It falls steeply at first, like a
wait when capacity grows from just sufficient, or like divided work. It is fitted to the measured latencies with
relative errors.

`trim` continues after a run that meets the target and removes superfluous instances (not in the paper). The score
saturates once the latency is met, so that its process says little about smaller configurations. The cost of slots is
known, however; only whether fewer instances still meet the latency is not. So the configuration that maximises

$$\Big(\tfrac1N\sum_i\frac{k'_i}{k_i}-\tfrac1N\sum_i\frac{k'_i}{\kappa_i}\Big)\,P(l(k)\le l_t)$$

is run next, among those with no operator above the best one known, $\kappa$: constrained expected improvement with a
certain gain [gardner2014constrained]. $\ln l$ is a Gaussian process around $\ln\hat l$.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy.special import log_ndtr, ndtr

from ..core import ArgumentError, KnobError, Knobs, MetricError, knob
from ..core.lazy import load
from ..core.typing import Array
from ..core.validation import choice, number, numbers
from .acquisition import Proposal, best_of, propose
from .gp import NOISE, fit
from .score import Sample, resource_score, score
from .space import Config, Lattice

if TYPE_CHECKING:
    from .sklearn_adapter import SkoptSearch


ENGINES = ("ours", "gpytorch", "skopt")
SCORE_PRIORS = ("constant", "cost", "monotone")  # those with a process of the score
PRIORS = ("auto", "latency", *SCORE_PRIORS)
Mean = Callable[[Any], Array]
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
    return np.column_stack([np.ones(len(X)), 1.0 / (2.0 * beyond + 1.0), low / np.maximum(X, low)])


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

    With $z=\ln l/l_t\sim N(m,s^2)$ and the known cost c of the slots, $F=\alpha\min(1,e^{-z})+c$.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    samples : sequence of Sample
        Measured configurations, each with a latency.
    alpha : float
        Weight of the latency.
    target_latency_s : float
        The latency to meet.
    engine : {"ours", "gpytorch"}
        The library of the process.

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

    @cached_property
    def _parts(self) -> tuple[Mean, Process]:
        known = list(self.samples)
        late = np.log([min(max(s.latency_s or 0.0, 1e-6) / self.target_latency_s, 1e3) for s in known])
        prior = falling(self.lattice.base, known, self.target_latency_s)

        def expected(k: Any) -> Array:
            found: Array = np.log(np.maximum(prior(k), 1e-6))
            return found

        X, left = self.lattice.scaled([s.k for s in known]), late - expected([s.k for s in known])
        of_noise = (fit(X, left, noise=v, mean=0.0, variance=_LATENCY_VARIANCES) for v in _LATENCY_NOISES)
        process: Process = max(of_noise, key=lambda g: g.log_likelihood)
        if self.engine != "ours":
            process = fit(X, left, noise=process.noise, mean=0.0, variance=_LATENCY_VARIANCES, engine=self.engine)  # type: ignore[attr-defined]
        return expected, process

    def log_latency(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of $\\ln l/l_t$ of each configuration, one per row.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        expected, process = self._parts
        mean, sigma = process.predict(self.lattice.scaled(X))
        return mean + expected(X), np.maximum(sigma, 1e-9)

    def meets(self, X: Any) -> Array:
        """Return the probability that the mean latency of each configuration meets the target.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        mean, sigma = self.log_latency(X)
        found: Array = ndtr(-mean / sigma)
        return found

    def _cost(self, X: Any) -> Array:
        return (1 - self.alpha) * np.atleast_1d(resource_score(np.atleast_2d(X), self.lattice.base))

    def _moment(self, mean: Array, sigma: Array, power: int) -> Array:
        """Return $E\\min(1,e^{-z})^p$."""
        tail = np.exp(np.minimum(-power * mean + (power * sigma) ** 2 / 2, 700.0))
        found: Array = ndtr(-mean / sigma) + np.where(tail < 1e300, tail * ndtr((mean - power * sigma**2) / sigma), 0.0)
        return found

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score of each configuration."""
        mean, sigma = self.log_latency(X)
        first, second = (np.clip(self._moment(mean, sigma, p), 0.0, 1.0) for p in (1, 2))
        return self.alpha * first + self._cost(X), self.alpha * np.sqrt(np.maximum(second - first**2, 0.0))

    def mean(self, X: Any) -> Array:
        """Return the mean of the score of each configuration.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        """
        return self(X)[0]

    def log_improvement(self, X: Any, best: float) -> Array:
        r"""Return the logarithm of the expected improvement on `best`: $E\max(0, F-best)$ in closed form.

        Parameters
        ----------
        X : array_like
            One configuration per row.
        best : float
            The score to improve on.
        """
        short = best - self._cost(X)  # the latency's part must exceed it: z must be below z1
        if self.alpha == 0:  # only the cost counts, and it is known
            return np.log(np.maximum(-short, 1e-300))
        m, s = self.log_latency(X)
        z1 = np.where(short > 0, np.log(self.alpha / np.maximum(short, 1e-300)), _FAR)
        z1 = np.minimum(z1, _FAR)
        tail = np.exp(np.minimum(-m + s**2 / 2, 700.0)) * (ndtr((z1 - m + s**2) / s) - ndtr((s**2 - m) / s))
        gain = (self.alpha - short) * ndtr(-m / s) + self.alpha * tail - short * (ndtr((z1 - m) / s) - ndtr(-m / s))
        return np.where(z1 > 0, np.log(np.maximum(gain, 1e-300)), -np.inf)


_SPREAD = 0.2  # standard deviation of scores in the units of `noise` and `xi`: typical of the paper's score
_FAR = 50.0  # logarithm of a latency that is as good as none
_LATENCY_NOISES = (1e-4, 1e-3, 1e-2)  # candidate variances of a measured log latency; the most likely one is used
_LATENCY_VARIANCES = (1e-5, 1.0)  # bounds of the kernel's variance


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
    xi: float = knob(0.01, "improvement that does not count", low=0.0, high=1.0)
    noise: float = knob(NOISE, "variance of measured scores", low=0.0, high=1.0)
    prior: str = knob("auto", "what is known of the score; in the paper nothing, 'constant'", choices=PRIORS)
    engine: str = knob("ours", "library of the surrogate and the search", choices=ENGINES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == "skopt" and self.prior not in ("auto", "constant"):
            raise KnobError(
                f"engine='skopt' with prior={self.prior!r}", expected="the prior 'constant'", fix="use engine='ours'"
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
        return cls(**{"prior": "constant", **knobs})

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

        Examples
        --------
        >>> Search().propose(Lattice((2, 3), 9), [Sample((2, 3), 0.7), Sample((9, 3), 0.8)]).k
        (8, 3)
        """
        known = {s.k for s in samples} if tried is None else tried
        if self.engine == "skopt":
            if best is not None:
                raise ArgumentError(
                    "best with engine='skopt'",
                    expected="none: it improves on its samples' best",
                    fix="leave it out, or use engine='ours'",
                )
            self._checked(lattice, samples)
            return self._skopt(lattice, samples, seed).ask(tried=known)
        top = max((s.score for s in samples), default=-math.inf) if best is None else number(best, "best")
        surrogate = self.surrogate(lattice, samples)
        if isinstance(surrogate, Surrogate):
            return propose(surrogate, lattice, top, xi=self.xi * surrogate.unit, tried=known, seed=seed)
        top = top if best is not None else float(surrogate.mean([s.k for s in surrogate.samples]).max())
        found = best_of(lambda X: surrogate.log_improvement(X, top + self.xi), lattice, known, seed)
        if found is None:
            return None
        mean, sigma = (float(v[0]) for v in surrogate([found]))
        return Proposal(found, mean, sigma, float(np.exp(surrogate.log_improvement([found], top + self.xi)[0])))


NOISES = (1e-3, 1e-2, 1e-1)  # candidate variances of a measured log latency; the most likely one is used


def meets(lattice: Lattice, samples: Sequence[Sample], target_latency_s: float) -> Callable[[Array], Array]:
    """Return a function that gives the log probability that a configuration's mean latency meets the target.

    Examples
    --------
    >>> log_p = meets(Lattice((2, 3), 9), [Sample((2, 3), 0.7, 0.3), Sample((9, 3), 0.8, 0.1)], 0.2)
    >>> low, high = np.exp(log_p(np.array([(2, 3), (9, 3)])))
    >>> bool(low < 0.1 < 0.9 < high)
    True
    """
    known = [s for s in samples if s.latency_s is not None]
    if not known:
        raise MetricError("no latencies", expected="at least one", fix="report runs with their latency_s")
    X = lattice.scaled([s.k for s in known])
    late = np.log([min(max(s.latency_s or 0.0, 1e-6) / target_latency_s, 1e3) for s in known])
    prior = falling(lattice.base, known, target_latency_s)

    def expected(k: Array) -> Array:
        found: Array = np.log(np.maximum(prior(k), 1e-6))
        return found

    left = late - expected(np.array([s.k for s in known]))
    process = max((fit(X, left, noise=v, mean=0.0) for v in NOISES), key=lambda g: g.log_likelihood)

    def log_probability(k: Array) -> Array:
        mean, sigma = process.predict(lattice.scaled(k))
        found: Array = log_ndtr(-(expected(k) + mean) / np.maximum(sigma, 1e-9))
        return found

    return log_probability


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
    inside = Lattice(lattice.base, kept)
    log_probability, now = meets(lattice, samples, target_latency_s), float(resource_score(kept, lattice.base))

    def worth(X: Array) -> Array:
        gain = np.atleast_1d(resource_score(X, lattice.base)) - now
        return np.log(np.maximum(gain, 1e-300)) + log_probability(X)

    found = best_of(worth, inside, {kept, *(s.k for s in samples)}, seed)
    if found is None:
        return None
    saving = float(resource_score(found, lattice.base)) - now
    return Trim(found, saving, float(np.exp(log_probability(np.array([found]))[0])))
