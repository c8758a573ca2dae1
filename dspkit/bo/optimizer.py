"""An ask-tell search for notebooks and scripts: it proposes configurations and receives their measured latencies."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..core import ArgumentError, MetricError
from ..core.validation import number, numbers, share, whole
from .acquisition import Proposal
from .library import Library
from .score import MOST_SCORE, Sample, score, stop_threshold
from .search import LatencySurrogate, Search, Surrogate
from .space import Config, Lattice
from .stopping import Confirmation
from .transfer import first_run, guarded


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
    error : float, optional
        Probability with which the configuration that is kept in the end may miss the latency on average, or the rate in
        most runs. The search is then one for the fewest slots; when no saving is expected, it confirms what it would
        keep by further runs (`bo.stopping`), and `ask()` returns None once `decided` is known.
    library : Library, optional
        Models of old rates, which are used as far as they prove right (`bo.guarded`).
    rate : float
        The rate of this search in records/s, which says how far the old rates are.

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
        error: float | None = None,
        library: Library | None = None,
        rate: float = 0.0,
    ):
        if not isinstance(lattice, Lattice) or not isinstance(search, Search | None):
            raise ArgumentError(
                f"{lattice!r:.60}, {search!r:.60}", expected="a Lattice, a Search", fix="check the arguments"
            )
        self.lattice, self.search, self.seed = lattice, search or Search(), whole(seed, "seed")
        self.error = error
        if error is not None:
            if not 0 < share(error, "error", fix="as in 0.05") < 1:
                raise ArgumentError(f"error={error!r}", expected="between 0 and 1", fix="as in 0.05")
            if self.search.prior_for(lattice, ()) != "latency":
                raise ArgumentError(
                    "error with a process of the score", expected="one of the latency", fix="use prior='latency'"
                )
            if not self.search.feasibility:
                self.search = replace(self.search, feasibility=min(max(1 - error, 0.5), 0.9999))
        self.library, self.rate = library or Library(), number(rate, "rate", low=0.0)
        if self.library.models and self.search.prior_for(lattice, ()) != "latency":
            raise ArgumentError(
                "a library with a process of the score", expected="one of the latency", fix="use prior='latency'"
            )
        self.decided: Config | None = None
        self.confirmation: Confirmation | None = None
        self._refuted: list[Config] = []
        self.samples: list[Sample] = []
        for sample in samples:
            if not isinstance(sample, Sample):
                raise MetricError(f"{sample!r:.60}", expected="a Sample", fix="Sample(k, score, latency_s)")
            self.tell(sample.k, sample.score, latency_s=sample.latency_s, served=sample.served)
        self._bootstrap, self._levels = bootstrap, levels
        lattice.bootstrap(levels)  # raises an error for a wrong number of levels
        self.proposal: Proposal | None = None  # the last proposal; None during the bootstrap

    def ask(self, *, again: bool = False, at: Config | None = None) -> Config | None:
        """Return the configuration to run next; None if all were run, or if `decided` is known.

        Parameters
        ----------
        again : bool
            Whether a reported configuration may be proposed again.
        at : tuple of int, optional
            The present configuration, if changes cost time (`rescale_s` and `move_s` of the search).

        Examples
        --------
        >>> Optimizer(Lattice(base=(2, 3), max_parallelism=9)).ask()
        (2, 3)
        """
        if self.decided is not None:
            return None
        if self.confirmation is not None:
            return self.confirmation.k
        k = self._next(again, at, ())
        if self.error is None or (self.proposal is None and k is not None):
            return k
        if self.proposal is None or self.proposal.improvement < self.search.xi:
            trusted = [s for s in self.samples if s.k not in self._refuted]
            kept = self.search.kept(self.lattice, trusted, self._latency()) if trusted else None
            if kept is not None:
                self.confirmation = Confirmation(kept, self.error, len(self._refuted) + 1)
                return kept
        return k

    def batch(self, q: int, *, at: Config | None = None) -> tuple[Config, ...]:
        """Return up to q configurations to run side by side, fewer only if fewer are left.

        Each is the one that adds most to those before it (`LatencySurrogate.log_gain`), so that they differ in what
        they teach; where the process is one of the score, as if those before it had been measured as expected.

        Parameters
        ----------
        q : int
            Number of configurations.
        at : tuple of int, optional
            As for `ask`.

        Examples
        --------
        >>> o = Optimizer(Lattice(base=(2, 3), max_parallelism=9), Search(target_latency_s=0.1))
        >>> len(set(o.batch(4)))
        4
        """
        if self.error is not None:
            raise ArgumentError(
                "batch() of a search with a stated error",
                expected="ask(), which confirms one configuration at a time",
                fix="use ask(), or leave error= out",
            )
        asked: list[Config] = []
        for _ in range(whole(q, "q", low=1)):
            k = self._next(False, at, tuple(asked))
            if k is None:
                break
            asked.append(k)
        return tuple(asked)

    def _next(self, again: bool, at: Config | None, running: tuple[Config, ...]) -> Config | None:
        known = {*(s.k for s in self.samples), *running}
        self.proposal = None
        learns_score = "constant" in (self.search.prior, self.search.prior_for(self.lattice, ())) or (
            bool(self.samples) and self.search.prior_for(self.lattice, self.samples) == "constant"
        )
        whole_set = learns_score if self._bootstrap is None else self._bootstrap
        if first := [k for k in (self.lattice.bootstrap(self._levels) if whole_set else ()) if k not in known]:
            return first[0]
        if not self.samples:
            first_one = first_run(self.library, self.rate, self.lattice, self.search)
            every = (first_one, self.lattice.base, *self.lattice.bootstrap(self._levels))
            return next((k for k in every if k not in known), None)
        samples, seed = self.samples, (self.seed, len(known))
        if running and not isinstance(self.surrogate, LatencySurrogate):
            believed = self.surrogate.mean(running)
            samples = [*samples, *(Sample(k, float(f)) for k, f in zip(running, believed, strict=True))]
            running = ()
        if self._refuted:  # they are not what is to be improved on
            samples = [s for s in samples if s.k not in self._refuted]
        self.proposal = self.search.propose(
            self.lattice,
            samples,
            tried=() if again else known,
            seed=seed,
            at=at,
            running=running,
            surrogate=self._latency(),
        )
        return self.proposal.k if self.proposal else None

    def _latency(self) -> LatencySurrogate | None:
        """Return the posterior if it is one of the latency."""
        found = self.surrogate if self.search.engine != "skopt" else None
        return found if isinstance(found, LatencySurrogate) else None

    def tell(
        self,
        k: Iterable[int],
        score: float | None = None,
        *,
        latency_s: float | None = None,
        served: float | None = None,
    ) -> Sample:
        """Record the measurement of a configuration, and return it as a Sample.

        Parameters
        ----------
        k : iterable of int
            The configuration.
        score : float, optional
            A custom score; by default that of the latency.
        latency_s : float, optional
            Mean latency in seconds.
        served : float, optional
            Throughput over the offered rate.

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
        part = None if served is None else _one(served, "served", 0.0)
        sample = Sample(config, _one(score, "score", -MOST_SCORE, MOST_SCORE), late, part)
        self.samples.append(sample)
        self.__dict__.pop("surrogate", None)
        if self.confirmation is not None and config == self.confirmation.k:
            self._confirm(sample)
        return sample

    def _confirm(self, sample: Sample) -> None:
        """Test the candidate with one more run."""
        assert self.confirmation is not None
        late = math.inf if sample.latency_s is None else sample.latency_s
        relative = math.log(max(late, 1e-9) / self.search.target_latency_s)
        least = 1 - self.search.tolerance
        short = None if sample.served is None else math.log(least / min(max(sample.served, 1e-9), 1.0))
        self.confirmation = self.confirmation.told(relative, short)
        verdict = self.confirmation.verdict
        if verdict is True:
            self.decided = self.confirmation.k
        elif verdict is False:
            self._refuted.append(self.confirmation.k)
        if verdict is not None:
            self.confirmation = None

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

    @cached_property
    def surrogate(self) -> Surrogate | LatencySurrogate:
        """The posterior of all samples, and of the old models if there are any."""
        found = (
            guarded(self.library, self.rate, self.lattice, self.search, self.samples) if self.library.models else None
        )
        return found or self.search.surrogate(self.lattice, self.samples)

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
