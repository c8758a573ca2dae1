"""Simulated jobs for the quality of searches: contention and noise on, and ways to find a configuration for them."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from statistics import fmean
from typing import Any

import numpy as np

from dspkit import Deployment, Plant, Simulator, Topology
from dspkit.bo import Lattice, Library, Model, Optimizer, Sample, Search, score, stop_threshold
from dspkit.bo.transfer import blend, recommend
from dspkit.core import Operator, Snapshot
from dspkit.plant import Link, Node, Service
from dspkit.policies._plan import verdict
from dspkit.policies._runs import together
from dspkit.policies._throughput import Trial, best
from dspkit.policies._throughput import recommend as needs
from dspkit.policies.drs import allocate
from dspkit.policies.ds2 import demands
from dspkit.workload import Sine

MOST, CAP = 40, 60  # instances of an operator; real runs of a search
THRESHOLD = stop_threshold(0.8, 1.0)


@dataclass(frozen=True)
class Outcome:
    """What a search came to: real runs, the configuration it keeps, and whether that meets latency and rate."""

    runs: int
    slots: int
    score: float
    met: bool
    k: tuple[int, ...] = ()


@dataclass(frozen=True)
class Job:
    """A chain whose instances disturb each other, with a latency that its throughput base misses."""

    seed: int
    topology: Topology
    plant: Plant
    rate: float
    base: tuple[int, ...]
    target_s: float

    @property
    def lattice(self) -> Lattice:
        return Lattice(self.base, MOST)

    def run(self, k: Sequence[int], turn: int, confidence: float = 0.0) -> tuple[Sample, bool, Snapshot]:
        """A trial of two minutes, the second of which counts: its sample, and whether it met latency and rate.

        With a `confidence` it goes on for up to three minutes more until it is clear whether latency is met.
        """
        windows = _windows(self.topology, self.plant, self.rate, k, 1000 * self.seed + turn, 24 if confidence else 6)
        counted = windows[:6]
        look = 1 - (1 - confidence) / 4 if confidence else 0.0  # of four looks, the first after the usual minute
        while (sure := verdict(_latencies(counted), self.target_s, look)) is None and len(counted) < len(windows):
            counted = windows[: len(counted) + 6]
        seen = _whole(counted)
        late = seen.latency.mean if seen.latency else math.inf
        sample = Sample(tuple(k), score(k, self.base, late, self.target_s), late if math.isfinite(late) else None)
        met = sure is True if confidence else late <= self.target_s
        return sample, met and seen.throughput >= 0.98 * self.rate, seen

    def truly_met(self, k: Sequence[int]) -> bool:
        """Whether the mean latency of such trials meets the target: of twenty more, by themselves."""
        runs = [
            _whole(_windows(self.topology, self.plant, self.rate, k, 10**7 + 100 * self.seed + i, 6)) for i in range(20)
        ]
        return fmean(s.latency.mean if s.latency else math.inf for s in runs) <= self.target_s


def _windows(topology: Topology, plant: Plant, rate: float, k: Sequence[int], seed: int, count: int) -> list[Snapshot]:
    """Ten seconds each, after a minute that does not count."""
    deployment = Deployment(dict(zip(topology.order, (int(n) for n in k), strict=True)))
    job = Simulator(topology, plant, Sine(rate, 0.15 * rate, 10.0), deployment=deployment, seed=seed, tick_s=1.0)
    return [job.observe() for _ in range(6 + count)][6:]


def _whole(windows: Sequence[Snapshot]) -> Snapshot:
    return reduce(together, windows)


def _latencies(windows: Sequence[Snapshot]) -> list[float]:
    return [s.latency.mean for s in windows if s.latency is not None]


def _base(topology: Topology, plant: Plant, rate: float, seed: int) -> tuple[int, ...]:
    """The throughput phase: demand over true rates until the same is recommended twice."""
    k, trials = (1,) * len(topology.order), []
    for turn in range(10):
        seen = _whole(_windows(topology, plant, rate, k, 10**6 + 100 * seed + turn, 6))
        wanted = tuple(min(n, MOST) for n in topology.clip(needs(topology, seen)[0]).values())
        trials.append(Trial(k, seen.throughput, rate, wanted))
        if wanted == k or (seen.throughput >= 0.98 * rate and sum(wanted) >= sum(k)):
            break
        k = wanted
    return best(trials).k


@cache
def job(seed: int) -> Job:
    """Job number `seed`: 3 to 8 operators."""
    draw = random.Random(seed)
    while True:
        topology, plant = _drawn(draw)
        found, ends = _timed(topology, plant, draw.uniform(1.5e4, 4e4), seed)
        if ends is not None:
            return replace(found, target_s=ends[0] + 0.4 * (ends[1] - ends[0]))


@cache
def pair(seed: int) -> tuple[Job, Job]:
    """A job at a rate, and at 1.25 to 2 times it, with one target that both bases miss and both can meet."""
    draw = random.Random(1000 + seed)
    while True:
        topology, plant = _drawn(draw)
        rate, factor = draw.uniform(1e4, 2e4), draw.uniform(1.25, 2.0)
        old, first = _timed(topology, plant, rate, seed)
        new, second = _timed(topology, plant, rate * factor, seed + 500)
        if first is not None and second is not None:
            target = max(low + 0.4 * (high - low) for low, high in (first, second))
            if target < 0.9 * min(first[1], second[1]):
                return replace(old, target_s=target), replace(new, target_s=target)


def beside(job: Job, factor: float) -> Job:
    """The same job at a multiple of its rate, with the same target."""
    rate, seed = job.rate * factor, job.seed + round(1000 * factor)
    return replace(job, rate=rate, base=_base(job.topology, job.plant, rate, seed), seed=seed)


def _drawn(draw: random.Random) -> tuple[Topology, Plant]:
    names = [f"op_{i}" for i in range(draw.randint(3, 8))]
    services = {
        n: Service(
            1 / draw.uniform(2e3, 2e4), contention=draw.uniform(0, 0.01), coherency=draw.uniform(1e-4, 1.5e-3),
            queue_records=3000,
        )
        for n in names
    }  # fmt: skip
    operators = tuple(Operator(n, max_parallelism=MOST) for n in names)
    nodes = {f"node-{i}": Node(cores=32) for i in range(3)}
    plant = Plant(services, nodes, noise=0.05, network=Link(delay_s=0.01))
    return Topology(operators, tuple(zip(names, names[1:], strict=False))), plant


def _timed(topology: Topology, plant: Plant, rate: float, seed: int) -> tuple[Job, tuple[float, float] | None]:
    """The job at this rate, and the least latency that is seen on the way up beside that of its base.

    None if the base is not clearly late, or leaves no room above itself.
    """
    base = _base(topology, plant, rate, seed)
    found = Job(seed, topology, plant, rate, base, 1.0)
    if max(base) > MOST / 1.6:
        return found, None
    more = [tuple(math.ceil(n * f) for n in base) for f in (1.2, 1.4, 1.6)]
    seen = [found.run(k, 900 + i)[2] for i, k in enumerate([base, *more])]
    late = [s.latency.mean if s.latency and s.throughput >= 0.98 * rate else math.inf for s in seen]
    return found, (min(late), late[0]) if math.isfinite(late[0]) and min(late) < 0.6 * late[0] else None


def _search(
    job: Job,
    ask: Callable[[list[Sample]], Any],
    tell: Callable[[Sample], object],
    least: int = 0,
    confidence: float = 0.0,
) -> Outcome:
    """Until a run meets latency and rate with a score at the threshold, or the runs are spent."""
    told: list[tuple[Sample, bool]] = []
    for turn in range(CAP):
        k = ask([s for s, _ in told])
        if k is None:
            break
        sample, met, _ = job.run(k, turn, confidence)
        told.append((sample, met))
        tell(sample)
        if turn + 1 >= least and any(met and sample.score >= THRESHOLD for sample, met in told):
            break
    final, met = max(told, key=lambda pair: (pair[1], pair[0].score))
    return Outcome(len(told), sum(final.k), final.score, met, final.k)


def ours(job: Job, *, start: str = "bootstrap", whole: bool = False, confidence: float = 0.0, **knobs: Any) -> Outcome:
    """dspkit's Optimizer, from the "bootstrap" set or the "base"; `whole`: all of that set runs first, as printed."""
    search = Search(target_s=job.target_s, **knobs)
    made = Optimizer(job.lattice, search, bootstrap=start == "bootstrap", seed=job.seed)
    least = len(job.lattice.bootstrap(6)) if whole else 0
    return _search(
        job, lambda _: made.ask(), lambda s: made.tell(s.k, s.score, latency_s=s.latency_s), least, confidence
    )


def skopt(job: Job) -> Outcome:
    """`skopt.Optimizer` with all its defaults."""
    from skopt import Optimizer as Theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Theirs(job.lattice.dimensions(), random_state=job.seed)
        return _search(job, lambda _: [int(v) for v in made.ask()], lambda s: made.tell(list(s.k), -s.score))


def at_random(job: Job) -> Outcome:
    """Configurations of the same box, all equally likely."""
    drawn = np.random.default_rng(job.seed)
    return _search(job, lambda _: tuple(job.lattice.draw(drawn, 1)[0].tolist()), lambda _: None)


def drs(job: Job, rates: str, start: str = "one") -> Outcome:
    """Until the measured latency is met or nothing changes, at most twelve times.

    From "one" instance each, from the throughput "base", or from the "most" of each.
    """
    k, turn = {"one": (1,) * len(job.base), "base": job.base, "most": job.lattice.most}[start], 0
    for turn in range(12):
        sample, met, seen = job.run(k, turn)
        if sample.latency_s is not None and sample.latency_s <= job.target_s:
            break
        arrivals = [demands(job.topology, seen)[n] or 0.0 for n in job.topology.order]
        each = [seen.operators[n] for n in job.topology.order]
        mu = [m.true_rate if rates == "true" else m.processing_rate / m.parallelism for m in each]
        new = tuple(allocate(arrivals, [v or 1.0 for v in mu], job.rate, target_s=job.target_s, most=[MOST] * len(k)))
        if new == k:
            break
        k = new
    return Outcome(turn + 1, sum(sample.k), sample.score, met, sample.k)


def learned(job: Job, levels: int = 6) -> Model:
    """The model of a whole search at this rate: its bootstrap set and what followed."""
    made = Optimizer(job.lattice, Search(target_s=job.target_s), levels=levels, seed=job.seed)
    for turn in range(levels + len(job.base) + 10):
        k = made.ask()
        if k is None:
            break
        sample, met, _ = job.run(k, 300 + turn)
        made.tell(k, sample.score, latency_s=sample.latency_s)
        if met and sample.score >= THRESHOLD and made.proposal:
            break
    return Model(job.rate, job.base, job.lattice.most, tuple(made.samples))


def transferred(job: Job, old: Sequence[Model], **options: Any) -> Outcome:
    """Algorithm 2 at this job's rate with the models of others, then Algorithm 1 on what was really run."""
    library, levels = Library(job.topology.order, tuple(old)), 6
    search = Search(target_s=job.target_s, prior=options.pop("prior", "constant"))
    incumbent = options.pop("incumbent", "measured")

    def ask(samples: list[Sample]) -> Any:
        if not samples:
            return job.base
        found = None
        if len(samples) <= levels + len(job.base):
            mixed = blend(library, job.rate, job.lattice, search, samples, **options)
            found = recommend(mixed, samples, search, levels, incumbent=incumbent, seed=(job.seed, len(samples)))
        if found is None or found.improvement < 1e-6:
            found = search.propose(job.lattice, samples, seed=(job.seed, len(samples)))
        return found.k if found else None

    return _search(job, ask, lambda _: None)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of Student's 95 % interval of it."""
    from scipy.stats import t

    spread = np.std(differences, ddof=1) / math.sqrt(len(differences))
    return fmean(differences), float(t.ppf(0.975, len(differences) - 1) * spread)
