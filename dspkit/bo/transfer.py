r"""From an old rate to a new one: the old model and a Gaussian process of what it gets wrong (Algorithm 2, repaired).

    | paper | here |
    |---|---|
    | $M_{old}$ | `Blend`: the model whose rate is nearest, or several by weight |
    | $D_c$ | `samples`, really run at the new rate |
    | $M'_c$ | residual process, of $s_t-M_{old}(k_t)$ |
    | $D_{pred}$ | `predicted`: $D_c$ and $M_{old}+M'_c$ at the bootstrap set |

Readings not taken: the whole of Algorithm 1 inside the loop (one step is meant), and the best *predicted* score as the
one to improve on (`incumbent="predicted"`). Beyond the paper: `models="weighted"`, and `align="relative"`, which asks
the old model about the same multiple of its own base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import KnobError
from ._given import choice, real
from .acquisition import Proposal
from .gp import fit
from .library import Library, Model
from .score import Sample
from .search import Search, Surrogate
from .space import Array, Lattice

MODELS, ALIGNS, INCUMBENTS = ("nearest", "weighted"), ("absolute", "relative"), ("measured", "predicted")


@dataclass(frozen=True)
class Blend:
    """The mean of old models, by weight, over configurations of the new rate."""

    parts: tuple[tuple[float, Model, Surrogate], ...]
    lattice: Lattice
    align: str = "absolute"

    def mean(self, X: Any) -> Array:
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
    r"""What the old models say: the nearest's alone, or all of them by weight.

    Weights are $e^{-2|\ln r_j/r|}$ (a model at $\sqrt e$ times the rate counts $1/e$), times the marginal likelihood of
    the new samples under model j and its residual process.
    """
    choice(models, "models", MODELS)
    choice(align, "align", ALIGNS)
    real(rate, "rate", low=0.0)
    if library.models and len(library.operators) != len(lattice.base):
        raise KnobError(
            f"models of {len(library.operators)} operators for {len(lattice.base)}", expected="one job's",
            fix="load the job's own",
        )  # fmt: skip
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
            log += fit(lattice.scaled(ran), left, noise=search.noise, by=search.fit).log_likelihood
        logs.append(log)
        parts.append((old, surrogate))
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    return Blend(tuple((float(w), *part) for w, part in zip(weights, parts, strict=True)), lattice, align)


def predicted(old: Blend, samples: Sequence[Sample], search: Search, levels: int) -> tuple[Sample, ...]:
    """The samples, and what old model and residual together expect of the bootstrap set that was not run."""
    lattice, known = old.lattice, {s.k for s in samples}
    fresh = [k for k in lattice.bootstrap(levels) if k not in known]
    if not fresh:
        return tuple(samples)
    guess = old.mean(fresh)
    if samples:
        ran = np.array([s.k for s in samples])
        left = np.array([s.score for s in samples]) - old.mean(ran)
        residual = fit(lattice.scaled(ran), left, noise=search.noise, by=search.fit)
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
    """One step of Algorithm 2: what to run next at the new rate, of what was not run there."""
    choice(incumbent, "incumbent", INCUMBENTS)
    everything = predicted(old, samples, search, levels)
    known = samples if incumbent == "measured" and samples else everything
    best = max(s.score for s in known)
    return search.propose(old.lattice, everything, tried={s.k for s in samples}, best=best, seed=seed)


def _aligned(configs: Any, model: Model, lattice: Lattice, align: str) -> Array:
    X: Array = np.atleast_2d(np.asarray(configs, dtype=float))
    if align == "relative":
        X = np.maximum(X * (np.array(model.base) / lattice.low), 1.0)
    return X
