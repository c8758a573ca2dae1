"""ELYSIUM with replays of records that were not acknowledged: a source around the simulated job, as in Storm.

As `acks.py` explains, a record fails 30 to 60 s after it left the log, and a restart loses the records in flight. Here
the source sends such a record once more: when it has failed, or, with `at_once`, right after the restart that lost it,
like a durable queue that waits for acks. The first copy of a late record is processed as well, in vain, so that a
backlog causes load. Records are processed first in, first out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dspkit.core import BackendBase, Deployment, History, Policy, Snapshot, run
from dspkit.core.typing import Array
from dspkit.simulator import Simulator
from dspkit.workload import Workload

from .study import MINUTE, WINDOW_S, app, started

if TYPE_CHECKING:
    pass


TIMEOUT_S = 30.0


@dataclass
class Again(Workload):
    """A load with replayed records: the only load that changes during its run."""

    load: Workload
    again_per_s: float = 0.0

    def __post_init__(self) -> None:
        pass

    def rates(self, t: Array) -> Array:
        return self.load.rates(t) + self.again_per_s


class Replaying(BackendBase):
    """A simulated job with one source, which sends failed records again.

    Records are numbered as they leave the log. `_gone` have ended or were lost, `_failed` are too old to be acked.
    """

    def __init__(self, job: Simulator, load: Again, timeout_s: float = TIMEOUT_S, *, at_once: bool = False):
        self._job, self._load, self._timeout_s, self._at_once = job, load, timeout_s, at_once
        self._sent, self._gone, self._failed, self._now = [0.0], 0.0, 0.0, 0.0
        self._late: list[tuple[float, float]] = []  # ranges of records that failed while they were in flight
        self._lost: list[tuple[float, float]] = []  # ranges of records that restarts lost, and that have not failed yet
        self.topology, self.knobs = job.topology, job.knobs

    @property
    def deployment(self) -> Deployment:
        return self._job.deployment

    def deploy(self, deployment: Deployment) -> None:
        """Deploy; records in flight are lost if the job's restarts lose them."""
        if deployment != self.deployment and self._job.plant.pause_kind == "restart":
            sent = self._sent[-1]
            if self._at_once:
                self._now += max(
                    0.0, sent - max(self._gone, self._failed)
                )  # failed records have already been sent again
            else:
                self._lost.append((self._gone, sent))
            self._gone = sent
        self._job.deploy(deployment)

    def observe(self) -> Snapshot:
        """Return the window; only records acknowledged in time count, and the load excludes replays."""
        self._load.again_per_s += self._now / self._job.window_s
        again, before, self._now = self._load.again_per_s, self._gone, 0.0
        s = self._job.observe()
        self._sent.append(self._sent[-1] + s.operators[self.topology.sources[0]].processing_rate * s.window_s)
        self._gone += s.throughput * s.window_s
        turns = int(s.t / self._timeout_s + 1e-9) - 1  # of the two buckets, the older one is dropped
        due = self._sent[round(turns * self._timeout_s / s.window_s)] if turns > 0 else 0.0
        failing = _within(self._lost, self._failed, due)
        if due > (known := max(self._gone, self._failed)):
            self._late.append((known, due))
            failing += due - known
        self._failed = max(self._failed, due)
        self._load.again_per_s = failing / s.window_s
        vain = _within(self._late, before, self._gone)
        first = max(0.0, s.source_rate - again) / max(s.source_rate, 1e-9)
        return replace(
            s,
            throughput=max(0.0, s.throughput - vain / s.window_s),
            source_rates={name: rate * first for name, rate in s.source_rates.items()},
        )

    def close(self) -> None:
        super().close()
        self._job.close()


def _within(stretches: list[tuple[float, float]], first: float, last: float) -> float:
    """Return the number of records of these ranges between two numbers."""
    return sum(max(0.0, min(b, last) - max(a, first)) for a, b in stretches)


def play(
    name: str, trace: Workload, policy: Policy, *, pause_s: float = 6.5, minutes: float, at_once: bool = False,
    seed: int = 0,
) -> History:  # fmt: skip
    """Run a policy with restarts that lose the records in flight."""
    now, begin, load = app(name), started(name, trace.rate(0.0)), Again(trace)
    plant = replace(now.plant, pause_s=pause_s, pause_kind="restart")
    job = replace(now, plant=plant, workers=begin.workers).simulator(
        load, parallelism=begin.parallelism, seed=seed, window_s=WINDOW_S
    )
    return run(policy, Replaying(job, load, at_once=at_once), steps=round(minutes * MINUTE / WINDOW_S), seed=seed)
