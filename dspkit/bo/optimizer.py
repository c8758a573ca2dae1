"""An ask-tell search for notebooks and scripts: it proposes configurations and receives their measured latencies."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from ..core import ArgumentError, MetricError
from ..core.validation import numbers, whole
from .acquisition import Proposal
from .score import MOST_SCORE, Sample, score, stop_threshold
from .search import LatencySurrogate, Search, Surrogate
from .space import Config, Lattice


class Optimizer:
    """An ask-tell search: ask for a configuration, run it, report its latency or its score, and ask again.

    The first proposal is the base, the next ones are those of the greatest expected improvement. The paper's search
    begins with its bootstrap set, as does one for scores of one's own (`tell(k, score)`), which may be of any size up
    to a million. A reported configuration is not proposed again, except with `again=True`.

    Parameters
    ----------
    lattice : Lattice
        The configurations.
    search : Search, optional
        Target and method.
    levels : int
        Levels of the bootstrap set.
    bootstrap : bool, optional
        Whether to begin with the bootstrap set rather than with the base alone; by default if the search learns the
        score itself (`Search.paper()`, scores of one's own, scikit-optimize) rather than the latency.
    samples : iterable of Sample
        Earlier measurements.
    seed : int
        Seed of random candidates.

    Examples
    --------
    >>> o = Optimizer(Lattice(base=(2, 3), max_parallelism=9), Search(target_latency_s=0.1))
    >>> latency = lambda k: 0.05 + 0.2 / k[0]
    >>> for _ in range(8):
    ...     k = o.ask()
    ...     sample = o.tell(k, latency_s=latency(k))
    >>> o.best.k
    (4, 3)
    """

    def __init__(
        self,
        lattice: Lattice,
        search: Search | None = None,
        *,
        levels: int = 6,
        bootstrap: bool | None = None,
        samples: Iterable[Sample] = (),
        seed: int = 0,
    ):
        if not isinstance(lattice, Lattice) or not isinstance(search, Search | None):
            raise ArgumentError(
                f"{lattice!r:.60}, {search!r:.60}", expected="a Lattice, a Search", fix="check the arguments"
            )
        self.lattice, self.search, self.seed = lattice, search or Search(), whole(seed, "seed")
        self.samples: list[Sample] = []
        for sample in samples:
            if not isinstance(sample, Sample):
                raise MetricError(f"{sample!r:.60}", expected="a Sample", fix="Sample(k, score, latency_s)")
            self.tell(sample.k, sample.score, latency_s=sample.latency_s)
        self._bootstrap, self._levels = bootstrap, levels
        lattice.bootstrap(levels)  # raises an error for a wrong number of levels
        self.proposal: Proposal | None = None  # the last proposal; None during the bootstrap

    def ask(self, *, again: bool = False) -> Config | None:
        """Return the configuration to run next; None if all were run.

        Parameters
        ----------
        again : bool
            Whether a reported configuration may be proposed again.

        Examples
        --------
        >>> Optimizer(Lattice(base=(2, 3), max_parallelism=9)).ask()
        (2, 3)
        """
        return self._next(self.samples, again)

    def batch(self, q: int) -> tuple[Config, ...]:
        """Return up to q configurations to run side by side, fewer only if fewer are left.

        Each is proposed as if those before it had been measured as expected, so that they differ in what they teach.

        Parameters
        ----------
        q : int
            Number of configurations.

        Examples
        --------
        >>> o = Optimizer(Lattice(base=(2, 3), max_parallelism=9), Search(target_latency_s=0.1))
        >>> len(set(o.batch(4)))
        4
        """
        samples = list(self.samples)
        asked: list[Config] = []
        for _ in range(whole(q, "q", low=1)):
            k = self._next(samples, False) if samples or not asked else self._untried(asked)
            if k is None:
                break
            asked.append(k)
            if samples:
                samples.append(self._believed(samples, k))
        return tuple(asked)

    def _untried(self, asked: list[Config]) -> Config | None:
        """Return the next configuration of the bootstrap set, before anything is known."""
        return next((k for k in self.lattice.bootstrap(self._levels) if k not in asked), None)

    def _believed(self, samples: list[Sample], k: Config) -> Sample:
        """Return what the surrogate expects of a run."""
        surrogate = self.search.surrogate(self.lattice, samples)
        if isinstance(surrogate, LatencySurrogate):
            late = self.search.target_latency_s * math.exp(float(surrogate.log_latency([k])[0][0]))
            return Sample(k, _score(k, self.lattice, late, self.search), late)
        return Sample(k, float(surrogate.mean([k])[0]))

    def _next(self, samples: list[Sample], again: bool) -> Config | None:
        known = {s.k for s in samples}
        self.proposal = None
        learns_score = "constant" in (self.search.prior, self.search.prior_for(self.lattice, ())) or (
            bool(samples) and self.search.prior_for(self.lattice, samples) == "constant"
        )
        whole_set = learns_score if self._bootstrap is None else self._bootstrap
        if first := [k for k in (self.lattice.bootstrap(self._levels) if whole_set else ()) if k not in known]:
            return first[0]
        if not samples:
            return self.lattice.base
        seed = (self.seed, len(samples))
        self.proposal = self.search.propose(self.lattice, samples, tried=() if again else None, seed=seed)
        return self.proposal.k if self.proposal else None

    def tell(self, k: Iterable[int], score: float | None = None, *, latency_s: float | None = None) -> Sample:
        """Record the measurement of a configuration, and return it as a Sample.

        Parameters
        ----------
        k : iterable of int
            The configuration.
        score : float, optional
            A custom score; by default that of the latency.
        latency_s : float, optional
            Mean latency in seconds.

        Examples
        --------
        >>> Optimizer(Lattice(base=(2, 3), max_parallelism=9)).tell((2, 3), latency_s=0.1).score
        1.0
        """
        config = _config(k, self.lattice)
        late = None if latency_s is None else _one(latency_s, "latency_s", 0.0, infinite=True)
        if score is None:
            if late is None:
                raise MetricError(
                    f"{config} without a result", expected="latency_s, or a score", fix="pass one of them"
                )
            score = _score(config, self.lattice, late, self.search)
        self.samples.append(Sample(config, _one(score, "score", -MOST_SCORE, MOST_SCORE), late))
        return self.samples[-1]

    @property
    def best(self) -> Sample:
        """The best sample: among those that are known to meet the target, otherwise of all."""
        if not self.samples:
            raise MetricError("no results", expected="at least one", fix="ask(), run it, tell()")
        met = [s for s in self.samples if s.latency_s is not None and s.latency_s <= self.search.target_latency_s]
        return max(met or self.samples, key=lambda s: s.score)

    def reached(self, over: float = 1.0) -> bool:
        """Return whether a reported latency meets the target with a score at the stop threshold.

        Parameters
        ----------
        over : float
            Over-allocation that is accepted, a share of the base.

        Examples
        --------
        >>> Optimizer(Lattice(base=(2, 3), max_parallelism=9)).reached()
        False
        """
        if not self.samples:
            return False
        late = self.best.latency_s
        met = late is not None and late <= self.search.target_latency_s
        return met and self.best.score >= stop_threshold(self.search.alpha, over) - 1e-12

    @property
    def surrogate(self) -> Surrogate | LatencySurrogate:
        """The posterior of all samples."""
        return self.search.surrogate(self.lattice, self.samples)

    def __repr__(self) -> str:
        best = f", best {self.best.k} with {self.best.score:.4f}" if self.samples else ""
        return f"Optimizer({len(self.samples)} of {self.lattice.size:,} configurations measured{best})"


def _config(k: Any, lattice: Lattice) -> Config:
    try:
        config = tuple(operator.index(v) for v in k if not isinstance(v, bool))
    except TypeError:
        config = ()
    if len(config) != len(lattice.base) or config not in lattice:
        raise ArgumentError(
            f"configuration {k!r}",
            expected=f"whole numbers from {lattice.base} to {lattice.max_parallelism}",
            fix="see ask()",
        )
    return config


def _one(value: Any, what: str, low: float = -math.inf, high: float = math.inf, *, infinite: bool = False) -> float:
    found = numbers(value, what, low=low, infinite=infinite)
    if found.ndim:
        raise MetricError(f"{what} {value!r:.60}", expected="one number", fix="report each run separately")
    if found > high:
        raise MetricError(f"{what} {value!r:.60}", expected=f"at most {high:g}", fix="report it in another unit")
    return float(found)


def _score(k: Config, lattice: Lattice, latency_s: float, search: Search) -> float:
    return float(score(k, lattice.base, latency_s, search.target_latency_s, search.alpha))
