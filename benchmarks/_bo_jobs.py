"""Simulated jobs with contention and noise, for the quality of searches."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from statistics import fmean

import numpy as np

from dspkit import Deployment, Plant, Simulator, Topology
from dspkit.bo import Lattice, Sample, score
from dspkit.core import Operator, Snapshot
from dspkit.policies._measurements import merge_stretches
from dspkit.policies.autrascale import ThroughputTrial, best, verdict
from dspkit.policies.autrascale import recommend_instances as needs
from dspkit.simulator import Link, Node, Service
from dspkit.workload import Sine

MOST = 40  # most instances of an operator
WARM_UP, COUNTED = 6, 6  # windows of ten seconds: warm-up of a trial, and windows that count


@dataclass(frozen=True)
class Job:
    """A chain whose instances contend, with a target latency that its throughput base misses."""

    seed: int
    topology: Topology
    plant: Plant
    rate: float
    base: tuple[int, ...]
    target_latency_s: float

    @property
    def lattice(self) -> Lattice:
        return Lattice(self.base, MOST)

    def run(self, k: Sequence[int], turn: int, confidence: float = 0.0) -> tuple[Sample, bool, Snapshot]:
        """Run a trial of two minutes, of which the second counts; return its sample, and whether it met the QoS.

        With a `confidence` it continues for up to three more minutes, until it is clear whether the latency is met.
        """
        most = COUNTED * (4 if confidence else 1)
        windows = _windows(self.topology, self.plant, self.rate, k, 1000 * self.seed + turn, most)
        counted = windows[:COUNTED]
        look = 1 - (1 - confidence) / 4 if confidence else 0.0  # four looks, the first after the usual minute
        while (sure := verdict(_latencies(counted), self.target_latency_s, look)) is None and len(counted) < len(
            windows
        ):
            counted = windows[: len(counted) + COUNTED]
        seen = _whole(counted)
        late = seen.latency.mean if seen.latency else math.inf
        sample = Sample(
            tuple(k), score(k, self.base, late, self.target_latency_s), late if math.isfinite(late) else None
        )
        met = sure is True if confidence else late <= self.target_latency_s
        return sample, met and seen.throughput >= 0.98 * self.rate, seen

    def again(self, k: Sequence[int]) -> tuple[float, bool]:
        """Return the score of the mean latency of 20 more trials, and whether it meets the target at the full rate."""
        runs = [
            _whole(_windows(self.topology, self.plant, self.rate, k, 10**7 + 100 * self.seed + i, COUNTED))
            for i in range(20)
        ]
        late = fmean(s.latency.mean if s.latency else math.inf for s in runs)
        fed = fmean(s.throughput for s in runs) >= 0.98 * self.rate
        return score(k, self.base, late, self.target_latency_s), fed and late <= self.target_latency_s

    def other_noise(self, number: int) -> Job:
        """Return the same job with another seed; number 0 is the job itself."""
        return replace(self, seed=self.seed + 1000 * number)


def _windows(topology: Topology, plant: Plant, rate: float, k: Sequence[int], seed: int, count: int) -> list[Snapshot]:
    """Return windows of ten seconds, after a warm-up of a minute."""
    deployment = Deployment(dict(zip(topology.order, (int(n) for n in k), strict=True)))
    job = Simulator(topology, plant, Sine(rate, 0.15 * rate, 10.0), deployment=deployment, seed=seed, tick_s=1.0)
    return [job.observe() for _ in range(WARM_UP + count)][WARM_UP:]


def _whole(windows: Sequence[Snapshot]) -> Snapshot:
    return reduce(merge_stretches, windows)


def _latencies(windows: Sequence[Snapshot]) -> list[float]:
    return [s.latency.mean for s in windows if s.latency is not None]


def _base(topology: Topology, plant: Plant, rate: float, seed: int) -> tuple[int, ...]:
    """Run the throughput phase: demand over true rates, until the recommendation repeats."""
    k, trials = (1,) * len(topology.order), []
    for turn in range(10):
        seen = _whole(_windows(topology, plant, rate, k, 10**6 + 100 * seed + turn, COUNTED))
        wanted = tuple(min(n, MOST) for n in topology.clip(needs(topology, seen)[0]).values())
        trials.append(ThroughputTrial(k, seen.throughput, rate, wanted))
        if wanted == k or (seen.throughput >= 0.98 * rate and sum(wanted) >= sum(k)):
            break
        k = wanted
    return best(trials).k


@cache
def job(seed: int) -> Job:
    """Return job number `seed`, of 3 to 8 operators."""
    draw = random.Random(seed)
    while True:
        topology, plant = _drawn(draw)
        found, ends = _timed(topology, plant, draw.uniform(1.5e4, 4e4), seed)
        if ends is not None:
            return replace(found, target_latency_s=ends[0] + 0.4 * (ends[1] - ends[0]))


@cache
def pair(seed: int) -> tuple[Job, Job]:
    """Return a job at a rate and at 1.25 to 2 times it, with a target that both bases miss and both can meet."""
    draw = random.Random(1000 + seed)
    while True:
        topology, plant = _drawn(draw)
        rate, factor = draw.uniform(1e4, 2e4), draw.uniform(1.25, 2.0)
        old, first = _timed(topology, plant, rate, seed)
        new, second = _timed(topology, plant, rate * factor, seed + 500)
        if first is not None and second is not None:
            target = max(low + 0.4 * (high - low) for low, high in (first, second))
            if target < 0.9 * min(first[1], second[1]):
                return replace(old, target_latency_s=target), replace(new, target_latency_s=target)


def beside(job: Job, factor: float) -> Job:
    """Return the same job at a multiple of its rate, with the same target."""
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
    """Return the job at this rate, and the least latency while scaling out beside that of its base.

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


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % interval (Student)."""
    from scipy.stats import t

    spread = np.std(differences, ddof=1) / math.sqrt(len(differences))
    return fmean(differences), float(t.ppf(0.975, len(differences) - 1) * spread)
