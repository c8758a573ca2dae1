"""A search at a higher rate: one that has the model of the old rate beside one from scratch."""

from __future__ import annotations

from dataclasses import dataclass

from ...bo import Lattice, Library, Model, Optimizer, Sample, Search, score, stop_threshold
from ...bo.prior import KINDS
from ...bo.transfer import ALIGNS, blend, recommend
from ...core import Knobs, knob
from ...plots import Plot, scores
from .scorer import MOST, base_of, latency_s

LEVELS, LONGEST = 3, 25


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
    prior: str = knob("constant", "what is taken to hold before anything ran", choices=KINDS)

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
        >>> from dspkit.ui.lessons.scorer import MOST, base_of
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
