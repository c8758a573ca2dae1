r"""Transfer from an old rate to a new one: an old model plus a Gaussian process of its errors (Algorithm 2, corrected).

| paper | here |
|---|---|
| $M_{old}$ | `Blend`: the model whose rate is nearest, or several by weight |
| $D_c$ | `samples`, measured at the new rate |
| $M'_c$ | residual process, of $s_t-M_{old}(k_t)$ |
| $D_{pred}$ | `predicted`: $D_c$ and $M_{old}+M'_c$ at the bootstrap set |

Readings not taken: the whole of Algorithm 1 inside the loop (one step is meant), and the best *predicted* score as the
one to improve on (`incumbent="predicted"`). Beyond the paper: `models="weighted"`, and `align="relative"`, which
evaluates the old model at the same multiple of its own base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import ArgumentError
from ..core.typing import Array
from ..core.validation import choice, number
from .acquisition import Proposal
from .gp import fit
from .library import Library, Model
from .score import Sample
from .search import SCORE_PRIORS, LatencySurrogate, Search, Surrogate
from .space import Lattice

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
) -> Proposal | None:
    """Return the configuration to run next at the new rate, of those not measured there: one step of Algorithm 2."""
    choice(incumbent, "incumbent", INCUMBENTS)
    search = _of_scores(search)
    everything = predicted(old, samples, search, levels)
    known = samples if incumbent == "measured" and samples else everything
    best = max(s.score for s in known)
    return search.propose(old.lattice, everything, tried={s.k for s in samples}, best=best, seed=seed)


def _of_scores(search: Search) -> Search:
    """Return the search with a process of the score, as predictions of old models are scores without latencies."""
    return search if search.prior in SCORE_PRIORS else replace(search, prior="constant")


def _aligned(configs: Any, model: Model, lattice: Lattice, align: str) -> Array:
    X: Array = np.atleast_2d(np.asarray(configs, dtype=float))
    if align == "relative":
        X = np.maximum(X * (np.array(model.base) / lattice.low), 1.0)
    return X
