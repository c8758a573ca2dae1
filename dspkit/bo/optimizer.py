"""A search that is asked what to run and told what came of it, for notebooks and scripts."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from ..errors import KnobError, MetricError
from ._given import numbers, whole
from .acquisition import Proposal
from .score import Sample, score, stop_threshold
from .search import Search, Surrogate
from .space import Config, Lattice


class Optimizer:
    """Ask for a configuration, run it, tell its latency (or its score), ask again.

    The first answers are the bootstrap set; then those of the greatest expected improvement. Nothing that was told is
    asked again, unless you say `again=True`.

    >>> o = Optimizer(Lattice(base=(2, 3), most=9), Search(target_s=0.1), levels=2)
    >>> latency = lambda k: 0.05 + 0.2 / k[0]
    >>> while not o.reached():
    ...     k = o.ask()
    ...     said = o.tell(k, latency_s=latency(k))
    >>> len(o.samples), o.best.k
    (3, (9, 3))
    """

    def __init__(
        self,
        lattice: Lattice,
        search: Search | None = None,
        *,
        levels: int = 6,
        bootstrap: bool = True,
        samples: Iterable[Sample] = (),
        seed: int = 0,
    ):
        if not isinstance(lattice, Lattice) or not isinstance(search, Search | None):
            raise KnobError(f"{lattice!r:.60}, {search!r:.60}", expected="a Lattice, a Search", fix="see Optimizer")
        self.lattice, self.search, self.seed = lattice, search or Search(), whole(seed, "seed")
        self.samples: list[Sample] = []
        for sample in samples:
            if not isinstance(sample, Sample):
                raise MetricError(f"{sample!r:.60}", expected="a Sample", fix="Sample(k, score, latency_s)")
            self.tell(sample.k, sample.score, latency_s=sample.latency_s)
        self._first = list(lattice.bootstrap(levels)) if bootstrap else [lattice.base]
        self.proposal: Proposal | None = None  # the last answer and what was thought of it; None for a first run

    def ask(self, *, again: bool = False) -> Config | None:
        """What to run next; None when everything was run. `again` allows what was told already."""
        told = {s.k for s in self.samples}
        self.proposal = None
        if first := [k for k in self._first if k not in told]:
            return first[0]
        seed = (self.seed, len(self.samples))
        self.proposal = self.search.propose(self.lattice, self.samples, tried=() if again else None, seed=seed)
        return self.proposal.k if self.proposal else None

    def tell(self, k: Iterable[int], score: float | None = None, *, latency_s: float | None = None) -> Sample:
        """Record what a configuration gave: its mean latency in seconds, or a score of your own."""
        config = _config(k, self.lattice)
        late = None if latency_s is None else _one(latency_s, "latency_s", 0.0, infinite=True)
        if score is None:
            if late is None:
                raise MetricError(
                    f"{config} without a result", expected="latency_s, or a score", fix="pass one of them"
                )
            score = _score(config, self.lattice, late, self.search)
        self.samples.append(Sample(config, _one(score, "score"), late))
        return self.samples[-1]

    @property
    def best(self) -> Sample:
        """The best that was told: among those known to meet the target, else of all."""
        if not self.samples:
            raise MetricError("no results", expected="one at least", fix="ask(), run it, tell()")
        met = [s for s in self.samples if s.latency_s is not None and s.latency_s <= self.search.target_s]
        return max(met or self.samples, key=lambda s: s.score)

    def reached(self, over: float = 1.0) -> bool:
        """Whether a told latency meets the target with a score at the stop threshold."""
        if not self.samples:
            return False
        late = self.best.latency_s
        met = late is not None and late <= self.search.target_s
        return met and self.best.score >= stop_threshold(self.search.alpha, over) - 1e-12

    @property
    def surrogate(self) -> Surrogate:
        """The posterior of all that was told."""
        return self.search.surrogate(self.lattice, self.samples)

    def __repr__(self) -> str:
        best = f", best {self.best.k} with {self.best.score:.4f}" if self.samples else ""
        return f"Optimizer({len(self.samples)} of {self.lattice.size:,} configurations told{best})"


def _config(k: Any, lattice: Lattice) -> Config:
    try:
        config = tuple(operator.index(v) for v in k if not isinstance(v, bool))
    except TypeError:
        config = ()
    if len(config) != len(lattice.base) or config not in lattice:
        raise KnobError(
            f"configuration {k!r}", expected=f"whole numbers from {lattice.base} to {lattice.most}", fix="see ask()"
        )
    return config


def _one(value: Any, what: str, low: float = -math.inf, *, infinite: bool = False) -> float:
    found = numbers(value, what, low=low, infinite=infinite)
    if found.ndim:
        raise MetricError(f"{what} {value!r:.60}", expected="one number", fix="tell each run by itself")
    return float(found)


def _score(k: Config, lattice: Lattice, latency_s: float, search: Search) -> float:
    return float(score(k, lattice.base, latency_s, search.target_s, search.alpha))
