"""What AuTraScale remembers, and the parts of its method that need no knob."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from ..bo.library import Library
from ..bo.score import Sample
from ..bo.space import Config
from ..core import Snapshot, Topology
from ._runs import Run
from ._throughput import Trial

PHASES = ("throughput", "bootstrap", "search", "transfer", "hold")


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

    Without a confidence the mean of the run decides, as in the paper. With one, Student's interval of the mean over
    windows must lie on one side of the target. Windows are taken as independent; 0.02 ms is enough of a spread.

    >>> verdict([0.10, 0.20, 0.19], 0.18, 0.0), verdict([0.10, 0.20, 0.19], 0.18, 0.9)
    (True, None)
    """
    if not latencies:
        return False
    mean = fmean(latencies)
    if confidence <= 0.5:
        return mean <= target_s
    if len(latencies) < 2:
        return None
    from scipy.special import stdtrit

    error = max(stdev(latencies), 2e-5) / math.sqrt(len(latencies))
    margin = float(stdtrit(len(latencies) - 1, confidence)) * error
    return True if mean + margin <= target_s else False if mean - margin > target_s else None
