"""What AuTraScale remembers, and the parts of its method that need no knob."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from ..bo.library import Library
from ..bo.score import Sample
from ..bo.space import Config
from ..core import Snapshot, Topology
from ._runs import Run
from ._throughput import Trial

PHASES = ("throughput", "bootstrap", "search", "transfer", "trim", "hold")


class State(NamedTuple):
    """Samples and not models: those are fitted again, so the state is small."""

    topology: Topology
    library: Library  # of earlier rates
    seed: int = 0
    phase: str = PHASES[0]
    rate: float | None = None  # records/s that this plan is for
    run: Run = Run()
    asked: Config | None = None  # what shall run; None is what runs
    asked_at: float = 0.0
    first: Config | None = None  # what ran when this rate came
    tried: tuple[Trial, ...] = ()  # runs of the throughput phase
    base: Config | None = None  # k'
    short: Mapping[str, float] | None = None  # operators that need more than they may have, and how many
    samples: tuple[Sample, ...] = ()
    starved: frozenset[Config] = frozenset()  # of these, the ones whose throughput fell short
    queue: tuple[Config, ...] = ()  # of the bootstrap set, still to run
    iterations: int = 0
    added: int = 0  # real samples since the transfer began
    runs: int = 0  # real runs at this rate
    met: bool = False  # whether what is held met all that is asked
    kept: Config | None = None  # what met all; of what a trim ran, the one that saves most
    trims: int = 0  # runs with fewer slots than that


def vector(topology: Topology, parallelism: Mapping[str, int]) -> Config:
    """A parallelism as numbers in the topology's order."""
    return tuple(parallelism[n] for n in topology.order)


def named(topology: Topology, k: Sequence[int] | None) -> dict[str, int]:
    return dict(zip(topology.order, k or (), strict=False))


def with_sample(samples: tuple[Sample, ...], new: Sample, held: bool) -> tuple[Sample, ...]:
    """The samples with one more; a configuration that was held and measured again counts as its latest run."""
    kept = tuple(s for s in samples if not (held and s.k == new.k))
    return (*kept, new)


def fed(seen: Snapshot, tolerance: float) -> bool:
    """Whether the job did what it was offered; above that, a queue drains."""
    return seen.throughput >= (1 - tolerance) * seen.source_rate


def verdict(latencies: Sequence[float], target_s: float, confidence: float) -> bool | None:
    """Whether the mean latency meets the target; None if that cannot be said yet.

    Without a confidence the mean of the run decides, as in the paper. With one, an interval of the mean must lie on one
    side of the target: Cox's for a lognormal mean, as latencies have long tails, with Student's quantile, and with as
    many windows as the correlation from one to the next leaves.

    >>> verdict([0.10, 0.20, 0.19], 0.18, 0.0), verdict([0.10, 0.20, 0.19], 0.18, 0.9)
    (True, None)
    """
    if not latencies:
        return False
    if confidence <= 0.5:
        return fmean(latencies) <= target_s
    n = len(latencies)
    if n < 3:
        return None
    from scipy.special import stdtrit

    logs = [math.log(max(x, 1e-9)) for x in latencies]
    mean = fmean(logs)
    apart = [x - mean for x in logs]
    total = max(sum(x * x for x in apart), 1e-12)
    seen = sum(x * y for x, y in pairwise(apart)) / total
    together = min(max(0.0, seen + (1 + 3 * seen) / n), 0.95)  # few windows show too little of it (Kendall)
    worth = max(2.0, n * (1 - together) / (1 + together))  # windows, if they had nothing to do with each other
    variance = total / (n - 1)
    error = math.sqrt(variance / worth + variance**2 / (2 * (worth - 1)))
    middle, margin = mean + variance / 2, float(stdtrit(worth - 1, confidence)) * error
    goal = math.log(target_s)
    return True if middle + margin <= goal else False if middle - margin > goal else None
