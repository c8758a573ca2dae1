"""Lessons on Bayesian search: one search step by step, and one that has the model of an old rate."""

from __future__ import annotations

from dataclasses import dataclass

from ...bo import Lattice, Library, Model, Optimizer, Sample, Search, score, stop_threshold
from ...bo.search import PRIORS, SCORE_PRIORS
from ...bo.transfer import ALIGNS, blend, recommend
from ...core import CapacityError, Knobs, knob
from ...core.queueing import sojourn
from ...plots import Plot, posterior, scores

NAMES = ("parse", "count")
MOST = 24
LEVELS, LONGEST = 3, 25
_RATES, _CONTENTION = (32.0, 21.0), ((0.004, 0.0015), (0.004, 0.004))


def latency_s(k: tuple[int, ...], rate: float = 100.0) -> float:
    """Return the mean latency of two operators in a row: M/M/k, with instances that slow each other down.

    An operator that cannot keep up counts 2 s, the time in its full queue.
    """
    total = 0.0
    for n, v, (sigma, kappa) in zip(k, _RATES, _CONTENTION, strict=True):
        service = (1 + sigma * (n - 1) + kappa * n * (n - 1)) / v
        total += min(2.0, sojourn(n, rate, service)[0]) if rate * service < n * 0.999 else 2.0
    return total


def base_of(rate: float) -> tuple[int, ...]:
    """Return the smallest numbers of instances that keep up with the rate."""
    found = []
    for v, (sigma, kappa) in zip(_RATES, _CONTENTION, strict=True):
        enough = (n for n in range(1, MOST + 1) if n * v / (1 + sigma * (n - 1) + kappa * n * (n - 1)) > 1.01 * rate)
        n = next(enough, None)
        if n is None:
            raise CapacityError(f"{rate} records/s", expected=f"what {MOST} instances do", fix="a lower rate")
        found.append(n)
    return tuple(found)


@dataclass(frozen=True)
class Scorer(Knobs):
    r"""Two operators under 100 records/s, each with its least instances at the lower left; more wait less, to a point.

    The score is $\alpha\min(1, l_t/l)+(1-\alpha)$ times the mean of base over instances; a search may stop where the
    target is met and the score passes $\alpha+(1-\alpha)/(1+w)$, the dashed line.
    """

    runs: int = knob(9, "real runs so far: five of the bootstrap set, then by expected improvement", low=1, high=30)
    target_latency_s: float = knob(0.13, "latency to meet", low=0.09, high=0.5, unit="s")
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0)
    over: float = knob(1.0, "w: over-allocation that is accepted", low=0.0, high=4.0)
    xi: float = knob(0.01, "improvement that does not count: more of it explores", low=0.0, high=0.2)
    prior: str = knob("auto", "what is taken to hold before anything ran", choices=PRIORS)
    spread: float = knob(0.02, "by how much a measured latency varies", low=0.0, high=0.3)
    seed: int = knob(1, "another seed, other luck", low=0, high=99)

    def search(self) -> Optimizer:
        """Return the search after `runs` runs."""
        import numpy as np

        random = np.random.default_rng(self.seed)
        made = Optimizer(
            Lattice(base_of(100.0), MOST),
            Search(self.target_latency_s, self.alpha, self.xi, prior=self.prior),
            levels=3,
        )
        for _ in range(self.runs):
            k = made.ask()
            if k is None:
                break
            made.tell(k, latency_s=latency_s(k) * float(np.exp(self.spread * random.standard_normal())))
        return made

    def plot(self) -> Plot:
        """Draw what the search expects of all configurations, and the next one that it runs."""
        made = self.search()
        limit = stop_threshold(self.alpha, self.over)
        good = [
            i
            for i, s in enumerate(made.samples, 1)
            if s.latency_s is not None and s.latency_s <= self.target_latency_s and s.score >= limit - 1e-12
        ]
        done = (
            f" Target and threshold {limit:.3f} were met in run {good[0]}."
            if good
            else " The threshold is not met yet."
        )
        proposal = made.search.propose(made.lattice, made.samples, seed=self.seed)
        picture = posterior(made.surrogate, made.samples, proposal, names=NAMES, xi=self.xi, threshold=limit)
        return Plot(picture.spec, picture.summary + done)


@dataclass(frozen=True)
class Transfer(Knobs):
    """The two operators of `Scorer` under a rate that rises; scores of real runs at the new rate until both may stop.

    From scratch the bootstrap set comes first. With the old model the base runs once, and what the old model and a
    process of its errors expect takes the place of the bootstrap set.
    """

    factor: float = knob(1.5, "new rate over the old 70 records/s", low=1.1, high=2.0)
    target_latency_s: float = knob(0.15, "latency to meet", low=0.1, high=0.5, unit="s")
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0)
    over: float = knob(1.0, "w: over-allocation that is accepted", low=0.0, high=4.0)
    xi: float = knob(0.01, "improvement that does not count", low=0.0, high=0.2)
    align: str = knob("absolute", "the old model is asked about k, or k over its base", choices=ALIGNS)
    prior: str = knob("constant", "what is taken to hold before anything ran", choices=SCORE_PRIORS)

    @property
    def search(self) -> Search:
        """The options of both searches."""
        return Search(self.target_latency_s, self.alpha, self.xi, prior=self.prior)

    def run(self, k: tuple[int, ...], rate: float) -> Sample:
        """Return the score of one configuration.

        Parameters
        ----------
        k : tuple of int
            Instances of the two operators.
        rate : float
            Records per second.

        Examples
        --------
        >>> sample = Transfer().run((8, 10), 105.0)
        >>> sample.k, sample.latency_s < 0.15
        ((8, 10), True)
        """
        late = latency_s(k, rate)
        return Sample(k, float(score(k, base_of(rate), late, self.target_latency_s, self.alpha)), late)

    def from_scratch(self, rate: float) -> list[Sample]:
        """Return every run until target and threshold are met, beginning with the whole bootstrap set.

        Parameters
        ----------
        rate : float
            Records per second.

        Examples
        --------
        >>> samples = Transfer().from_scratch(70.0)
        >>> len(samples) <= 25
        True
        """
        made = Optimizer(Lattice(base_of(rate), MOST), self.search, levels=LEVELS)
        first = len(made.lattice.bootstrap(LEVELS))
        while len(made.samples) < first or (not made.reached(self.over) and len(made.samples) < LONGEST):
            k = made.ask()
            if k is None:
                break
            made.samples.append(self.run(k, rate))
        return made.samples

    def with_model(self, model: Model, rate: float) -> list[Sample]:
        """Return every run until target and threshold are met, beginning with the base and an old model.

        Parameters
        ----------
        model : Model
            The model of another rate.
        rate : float
            Records per second.

        Examples
        --------
        >>> from dspkit.bo import Model
        >>> from dspkit.ui.lessons.search import MOST, base_of
        >>> lesson = Transfer()
        >>> old = Model(70.0, base_of(70.0), (MOST, MOST), tuple(lesson.from_scratch(70.0)))
        >>> samples = lesson.with_model(old, 105.0)
        >>> samples[0].k == base_of(105.0)
        True
        """
        box, limit = Lattice(base_of(rate), MOST), stop_threshold(self.alpha, self.over)
        samples, library = [self.run(box.base, rate)], Library(("parse", "count"), (model,))
        while len(samples) < LONGEST:
            last = samples[-1]
            if last.latency_s is not None and last.latency_s <= self.target_latency_s and last.score >= limit - 1e-12:
                break
            old = blend(library, rate, box, self.search, samples, align=self.align)
            found = recommend(old, samples, self.search, LEVELS, seed=len(samples))
            if found is None or found.improvement < 1e-6:
                found = self.search.propose(box, samples, seed=len(samples))
            if found is None:
                break
            samples.append(self.run(found.k, rate))
        return samples

    def plot(self) -> Plot:
        """Draw the scores of both searches, run by run."""
        old = self.from_scratch(70.0)
        model = Model(70.0, base_of(70.0), (MOST, MOST), tuple(old))
        rate = 70.0 * self.factor
        ways = {"from scratch": self.from_scratch(rate), "with the old model": self.with_model(model, rate)}
        return scores(ways, stop_threshold(self.alpha, self.over))
