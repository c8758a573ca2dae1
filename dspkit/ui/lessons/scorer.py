"""A search step by step: two operators, the expected scores, and the next configuration to run."""

from __future__ import annotations

from dataclasses import dataclass

from ...bo import Lattice, Optimizer, Search, stop_threshold
from ...bo.prior import KINDS
from ...core import CapacityError, Knobs, knob
from ...core.queueing import sojourn
from ...plots import Plot, posterior

NAMES = ("parse", "count")
MOST = 24
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
    prior: str = knob("constant", "what is taken to hold before anything ran", choices=KINDS)
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
