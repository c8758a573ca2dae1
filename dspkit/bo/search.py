"""One step of a search: a surrogate of the samples, and what to run next. Pure: samples in, proposal out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import MetricError
from ..knobs import Knobs, knob
from ._given import numbers, real
from .acquisition import Proposal, propose
from .gp import FITS, GP, NOISE, fit
from .prior import KINDS, Mean, prior_mean
from .score import Sample
from .space import Array, Config, Lattice


@dataclass(frozen=True)
class Surrogate:
    """The posterior over a lattice: a Gaussian process on what the prior mean leaves."""

    lattice: Lattice
    prior: Mean
    gp: GP

    def __call__(self, X: Any) -> tuple[Array, Array]:
        """Mean and standard deviation of the score at each configuration."""
        mean, sigma = self.gp.predict(self.lattice.scaled(X))
        return mean + self.prior(X), sigma

    def mean(self, X: Any) -> Array:
        return self(X)[0]


@dataclass(frozen=True)
class Search(Knobs):
    """How a search learns and chooses; the defaults are the paper's, where it has any."""

    target_s: float = knob(0.18, "latency to meet", low=1e-6, high=3600.0, unit="s")
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0, source="Tables II and III")
    xi: float = knob(0.01, "improvement that does not count", low=0.0, high=1.0)
    noise: float = knob(NOISE, "variance of measured scores", low=0.0, high=1.0)
    prior: str = knob("constant", "prior mean; the paper's is constant", choices=KINDS)
    fit: str = knob("grid", "who finds the likeliest kernel", choices=FITS)

    def surrogate(self, lattice: Lattice, samples: Sequence[Sample]) -> Surrogate:
        """What these samples say about every configuration of the lattice."""
        if not samples:
            raise MetricError("no samples", expected="one at least", fix="run the bootstrap first")
        X, y = numbers([s.k for s in samples], "configurations", low=1), numbers([s.score for s in samples], "scores")
        if X.ndim != 2 or X.shape[1] != len(lattice.base):
            raise MetricError(
                f"samples of shape {X.shape}", expected=f"{len(lattice.base)} operators each", fix="one job, one search"
            )
        measured = [s for s in samples if s.latency_s is not None]  # of a transfer, those that really ran
        numbers([s.latency_s for s in measured], "latencies", low=0.0, infinite=True)
        prior = prior_mean(self.prior, lattice.base, measured or samples, self.alpha, self.target_s)
        return Surrogate(lattice, prior, fit(lattice.scaled(X), y - prior(X), noise=self.noise, by=self.fit))

    def propose(
        self,
        lattice: Lattice,
        samples: Sequence[Sample],
        *,
        tried: Collection[Config] | None = None,
        best: float | None = None,
        seed: int | tuple[int, ...] = 0,
    ) -> Proposal | None:
        """The configuration of the greatest expected improvement that is not among `tried` (the samples' own)."""
        known = {s.k for s in samples} if tried is None else tried
        top = max((s.score for s in samples), default=-math.inf) if best is None else real(best, "best")
        return propose(self.surrogate(lattice, samples), lattice, top, xi=self.xi, tried=known, seed=seed)
