r"""Transfer from an old rate to a new one: an old model plus a Gaussian process of its errors (Algorithm 2, corrected).

| paper | here |
|---|---|
| $M_{old}$ | `Blend`: the model whose rate is nearest, or several by weight |
| $D_c$ | `samples`, measured at the new rate |
| $M'_c$ | residual process, of $s_t-M_{old}(k_t)$ |
| $D_{pred}$ | `predicted`: $D_c$ and $M_{old}+M'_c$ at the bootstrap set |

`guarded` is another transfer, of latencies and with a guard (not in the paper). Each old rate gives a prior mean of
the log latency, what its samples say at the same multiple of its own base, and the falling prior without any old rate
is one more. A process of the residuals on each gives the density of every new measurement before it is made; the
weights of the priors are their own (one half without an old rate, the others by distance) times these densities. So
the mixture's log loss is at most $\ln2$ above that of a search without old rates, whatever they say (Bayesian mixture
[cesabianchi2006prediction]), and an old model that is wrong loses its weight with the first runs that it does not
expect.

Readings not taken: the whole of Algorithm 1 inside the loop (one step is meant), and the best *predicted* score as the
one to improve on (`incumbent="predicted"`). Beyond the paper: `models="weighted"`, and `align="relative"`, which
evaluates the old model at the same multiple of its own base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ..core import ArgumentError
from ..core.typing import Array
from ..core.validation import choice, number
from .acquisition import Proposal, best_of
from .gp import fit
from .library import Library, Model
from .score import Sample
from .search import SCORE_PRIORS, Gain, Improvement, LatencySurrogate, Mean, Search, Surrogate
from .space import Config, Lattice


@dataclass(frozen=True)
class LatencyMixture(LatencySurrogate):
    """Posteriors of the latency by weight, which `guarded` returns.

    Parameters
    ----------
    lattice, samples, alpha, target_latency_s, engine, prior
        As for `LatencySurrogate`.
    parts : tuple of (float, float | None, LatencySurrogate)
        Weight, old rate (None for none) and posterior.
    """

    parts: tuple[tuple[float, float | None, LatencySurrogate], ...] = ()

    def _log_mean(self, values: Sequence[Array]) -> Array:
        weights = np.array([w for w, _, _ in self.parts])
        found: Array = logsumexp(np.stack(values), axis=0, b=weights[:, None])
        return found

    @staticmethod
    def _moments(weights: Array, found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
        """Return mean and standard deviation of a mixture."""
        means, sigmas = (np.stack(column) for column in zip(*found, strict=True))
        mean = weights @ means
        return mean, np.sqrt(np.maximum(weights @ (sigmas**2 + (means - mean) ** 2), 0.0))

    def log_latency(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of $\\ln l/l_t$ of each configuration, one per row."""
        return self._moments(np.array([w for w, _, _ in self.parts]), [p.log_latency(X) for _, _, p in self.parts])

    def log_meets(self, X: Any) -> Array:
        """Return the logarithm of the probability that the mean latency of each configuration meets the target."""
        return self._log_mean([p.log_meets(X) for _, _, p in self.parts])

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Return mean and standard deviation of the score of each configuration."""
        return self._moments(np.array([w for w, _, _ in self.parts]), [p(X) for _, _, p in self.parts])

    def log_gain(self, gain: Gain, running: Sequence[Config] = (), draws: int = 32) -> Callable[[Any], Array]:
        """Return a function that gives the log of the expected gain, as `LatencySurrogate.log_gain` does."""
        each = [part.log_gain(gain, running, draws) for _, _, part in self.parts]
        return lambda X: self._log_mean([f(X) for f in each])


def guarded(
    library: Library, rate: float, lattice: Lattice, search: Search, samples: Sequence[Sample]
) -> LatencyMixture | None:
    """Return the posterior of the latency with old models as priors, by weight; None without new or old latencies.

    Parameters
    ----------
    library : Library
        Models of any number of old rates.
    rate : float
        The new rate.
    lattice : Lattice
        The configurations.
    search : Search
        The settings.
    samples : sequence of Sample
        Measured at the new rate, in this order.

    Examples
    --------
    >>> samples = (Sample((1, 2), 0.6, 0.4), Sample((3, 4), 0.9, 0.15))
    >>> library = Library(("map", "join"), (Model(1e3, (1, 2), (9, 9), samples),))
    >>> found = guarded(library, 2e3, Lattice((2, 4), 9), Search(0.2), [Sample((2, 4), 0.6, 0.4)])
    >>> [(weight, old) for weight, old, _ in found.parts]
    [(0.5, None), (0.5, 1000.0)]
    """
    known = tuple(s for s in samples if s.latency_s is not None)
    old = _of_latencies(library, lattice)
    if not known or not old:
        return None
    number(rate, "rate", low=0.0)
    settings = (lattice, search.alpha, search.target_latency_s, search.engine)
    far = np.array([-2 * abs(math.log(m.rate / rate)) if m.rate > 0 and rate > 0 else -20.0 for m in old])
    near = np.exp(far - far.max())
    logs = np.log([0.5, *(0.5 * near / near.sum())])
    models: list[Model | None] = [None, *old]
    for i in range(1, len(known)):
        z = math.log(min(max(known[i].latency_s or 0.0, 1e-6) / search.target_latency_s, 1e3))
        for j, model in enumerate(models):
            part = _part(*settings, model, known[:i])
            mean, sigma = (float(v[0]) for v in part.log_latency([known[i].k]))
            spread = math.sqrt(sigma**2 + part.process.noise + _SPREAD**2)
            logs[j] -= 0.5 * ((z - mean) / spread) ** 2 + math.log(spread)
    weights = np.exp(logs - logsumexp(logs))
    parts = [(w, m, _part(*settings, m, known)) for w, m in zip(weights.tolist(), models, strict=True) if w > 1e-3]
    return LatencyMixture(
        lattice,
        known,
        search.alpha,
        search.target_latency_s,
        search.engine,
        parts=tuple((w / sum(p[0] for p in parts), None if m is None else m.rate, part) for w, m, part in parts),
    )


def first_run(library: Library, rate: float, lattice: Lattice, search: Search) -> Config:
    """Return the configuration to run first at a new rate: the best that the nearest old model expects, or the base.

    Parameters
    ----------
    library : Library
        Models of old rates.
    rate : float
        The new rate.
    lattice : Lattice
        The configurations.
    search : Search
        The settings.

    Examples
    --------
    >>> samples = (Sample((1, 2), 0.6, 0.4), Sample((3, 4), 0.9, 0.15))
    >>> library = Library(("map", "join"), (Model(1e3, (1, 2), (9, 9), samples),))
    >>> first_run(library, 2e3, Lattice((2, 4), 9), Search(0.2))
    (4, 6)
    """
    old = _of_latencies(library, lattice)
    if not old:
        return lattice.base
    expected = _expected(Library(library.operators, old).nearest(rate), lattice, search.alpha, search.target_latency_s)
    gain = Improvement(lattice, search.alpha, 0.0)
    likely = [lattice.clamp(np.ceil(np.array(s.k) * lattice.low / np.array(m.base))) for m in old for s in m.samples]
    found = best_of(lambda X: np.log(np.maximum(gain.value(X, expected(X)), 1e-300)), lattice, (), near=likely)
    return found or lattice.base


def _of_latencies(library: Library, lattice: Lattice) -> tuple[Model, ...]:
    """Return the models with measured latencies."""
    if library.models and len(library.operators) != len(lattice.base):
        raise ArgumentError(
            f"models of {len(library.operators)} operators for {len(lattice.base)}",
            expected="models of this job",
            fix="load the library of this job",
        )
    return tuple(m for m in library.models if any(s.latency_s is not None for s in m.samples))


def _expected(model: Model, lattice: Lattice, alpha: float, target_latency_s: float) -> Mean:
    """Return what an old model expects of the log latency at the same multiple of its base."""
    known = [s for s in model.samples if s.latency_s is not None]
    surrogate = LatencySurrogate(model.lattice, known, alpha, target_latency_s)
    return lambda X: surrogate.log_latency(np.maximum(_aligned(X, model, lattice, "relative"), model.base))[0]


@lru_cache(512)  # a search needs each twice: to propose a run, and to judge what was expected of it
def _part(
    lattice: Lattice,
    alpha: float,
    target_latency_s: float,
    engine: str,
    model: Model | None,
    samples: tuple[Sample, ...],
) -> LatencySurrogate:
    """Return the posterior with one prior."""
    prior = None if model is None else _expected(model, lattice, alpha, target_latency_s)
    return LatencySurrogate(lattice, samples, alpha, target_latency_s, engine, prior)


_SPREAD = 0.05  # of log latencies: smaller differences from what was expected do not count for or against an old model

MODELS, ALIGNS, INCUMBENTS = ("nearest", "weighted"), ("absolute", "relative"), ("measured", "predicted")


@dataclass(frozen=True)
class Blend:
    """The weighted mean of old models over configurations of the new rate."""

    parts: tuple[tuple[float, Model, Surrogate | LatencySurrogate], ...]
    lattice: Lattice
    align: str = "absolute"

    def mean(self, X: Any) -> Array:
        """Return the weighted mean of the score of each configuration."""
        total = np.zeros(len(np.atleast_2d(X)))
        for weight, model, surrogate in self.parts:
            total += weight * surrogate.mean(_aligned(X, model, self.lattice, self.align))
        return total


def blend(
    library: Library,
    rate: float,
    lattice: Lattice,
    search: Search,
    samples: Sequence[Sample] = (),
    *,
    models: str = "nearest",
    align: str = "absolute",
) -> Blend:
    r"""Return the prediction of the old models: of the nearest alone, or of all by weight.

    Weights are $e^{-2|\ln r_j/r|}$ (a model at $\sqrt e$ times the rate counts $1/e$), times the marginal likelihood
    of the new samples under model j and its residual process.
    """
    search = _of_scores(search)
    choice(models, "models", MODELS)
    choice(align, "align", ALIGNS)
    number(rate, "rate", low=0.0)
    if library.models and len(library.operators) != len(lattice.base):
        raise ArgumentError(
            f"models of {len(library.operators)} operators for {len(lattice.base)}",
            expected="models of this job",
            fix="load the library of this job",
        )
    if models == "nearest" or len(library.models) == 1:
        old = library.nearest(rate)
        return Blend(((1.0, old, search.surrogate(old.lattice, old.samples)),), lattice, align)
    logs, parts = [], []
    for old in library.models:
        surrogate = search.surrogate(old.lattice, old.samples)
        far = abs(math.log(old.rate / rate)) if old.rate > 0 and rate > 0 else 10.0
        log = -2 * far
        if len(samples) > 1:
            ran = np.array([s.k for s in samples])
            left = np.array([s.score for s in samples]) - surrogate.mean(_aligned(ran, old, lattice, align))
            log += fit(lattice.scaled(ran), left, noise=search.noise, engine=search.engine).log_likelihood
        logs.append(log)
        parts.append((old, surrogate))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    return Blend(tuple((float(w), *part) for w, part in zip(weights, parts, strict=True)), lattice, align)


def predicted(old: Blend, samples: Sequence[Sample], search: Search, levels: int) -> tuple[Sample, ...]:
    """Return the samples, plus predictions for the part of the bootstrap set that was not measured."""
    search = _of_scores(search)
    lattice, known = old.lattice, {s.k for s in samples}
    fresh = [k for k in lattice.bootstrap(levels) if k not in known]
    if not fresh:
        return tuple(samples)
    guess = old.mean(fresh)
    if samples:
        ran = np.array([s.k for s in samples])
        left = np.array([s.score for s in samples]) - old.mean(ran)
        residual = fit(lattice.scaled(ran), left, noise=search.noise, engine=search.engine)
        guess = guess + residual.predict(lattice.scaled(fresh))[0]
    return (*samples, *(Sample(k, float(f)) for k, f in zip(fresh, guess, strict=True)))


def recommend(
    old: Blend,
    samples: Sequence[Sample],
    search: Search,
    levels: int,
    *,
    incumbent: str = "measured",
    seed: int | tuple[int, ...] = 0,
    at: Config | None = None,
) -> Proposal | None:
    """Return the configuration to run next at the new rate, of those not measured there: one step of Algorithm 2.

    With `at`, the present configuration, the improvement is one per second, as in `Search.propose`.
    """
    choice(incumbent, "incumbent", INCUMBENTS)
    search = _of_scores(search)
    everything = predicted(old, samples, search, levels)
    known = samples if incumbent == "measured" and samples else everything
    best = max(s.score for s in known)
    return search.propose(old.lattice, everything, tried={s.k for s in samples}, best=best, seed=seed, at=at)


def _of_scores(search: Search) -> Search:
    """Return the search with a process of the score, as predictions of old models are scores without latencies."""
    return search if search.prior in SCORE_PRIORS else replace(search, prior="constant")


def _aligned(configs: Any, model: Model, lattice: Lattice, align: str) -> Array:
    X: Array = np.atleast_2d(np.asarray(configs, dtype=float))
    if align == "relative":
        X = np.maximum(X * (np.array(model.base) / lattice.low), 1.0)
    return X
