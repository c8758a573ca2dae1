"""ELYSIUM where late records are sent again, as Storm does: a backend around the simulated one.

Storm gives a record up that is not done within its timeout (30 s unless set), and the source sends it again; the first
copy is worked on all the same, for nothing. So a backlog makes load, and who is slow to add capacity may never catch
up. Our simulator's queues only wait. Here windows are followed first in, first out: what was sent longer ago than the
timeout and is not done joins the load of the next window, and does not count when it is done. A restart clears no
queue here, as Storm's would: collapses last longer than in Storm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..core import Deployment, Policy, Snapshot
from ..loop import run
from ..scores import degradation, nodes_saved
from ..simulator import Simulator
from ..workload import Workload
from .elysium import MINUTE, NODES, WINDOW_S, app, started
from .elysium_loads import LEVELS, MINUTES, recorded
from .elysium_recorded import YEAR, rivals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Again(Workload):
    """A load, and what is sent again beside it; the one load that changes as it is played."""

    load: Workload
    again_per_s: float = 0.0

    def __post_init__(self) -> None:
        pass

    def rates(self, t: Array) -> Array:
        return self.load.rates(t) + self.again_per_s


class Replaying:
    """The simulated job `job` under `load`, whose records are sent again after `timeout_s`."""

    def __init__(self, job: Simulator, load: Again, timeout_s: float):
        self._job, self._load, self._timeout_s = job, load, timeout_s
        self._sent, self._done, self._given_up = [0.0], 0.0, 0.0  # records since the start, in the order of sending
        self._late: list[tuple[float, float]] = []  # stretches of those that were given up
        self.topology, self.knobs = job.topology, job.knobs

    @property
    def deployment(self) -> Deployment:
        return self._job.deployment

    def deploy(self, deployment: Deployment) -> None:
        self._job.deploy(deployment)

    def observe(self) -> Snapshot:
        """The window, in which only records count that were done in time; load is what came for the first time."""
        s = self._job.observe()
        again, before = self._load.again_per_s, self._done
        self._sent.append(self._sent[-1] + s.source_rate * s.window_s)
        self._done += s.throughput * s.window_s
        windows = round(self._timeout_s / s.window_s)
        due = self._sent[-1 - windows] if len(self._sent) > windows else 0.0
        known = max(self._done, self._given_up)
        if due > known:
            self._late.append((known, due))
            self._given_up = due
        self._load.again_per_s = max(0.0, due - known) / s.window_s
        vain = sum(max(0.0, min(b, self._done) - max(a, before)) for a, b in self._late)
        first = max(0.0, s.source_rate - again) / max(s.source_rate, 1e-9)
        return replace(
            s,
            throughput=max(0.0, s.throughput - vain / s.window_s),
            source_rates={name: rate * first for name, rate in s.source_rates.items()},
        )

    def close(self) -> None:
        self._job.close()

    def __enter__(self) -> Replaying:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def play(name: str, trace: Workload, policy: Policy, timeout_s: float, pause_s: float = 6.5) -> tuple[float, float]:
    """Degradation and nodes saved in % of a run of 48 minutes."""
    now, begin, load = app(name), started(name, trace.rate(0.0)), Again(trace)
    now = replace(now, plant=replace(now.plant, pause_s=pause_s), workers=begin.workers)
    job = now.simulator(load, parallelism=begin.parallelism, window_s=WINDOW_S)
    history = run(policy, Replaying(job, load, timeout_s), steps=round(MINUTES["recorded"] * MINUTE / WINDOW_S))
    return degradation(history).mean, 100 * nodes_saved(history, NODES, every_s=MINUTE)


def replays(timeouts_s: Sequence[float] = (30.0, 60.0), months: Sequence[int] = YEAR) -> pd.DataFrame:
    """A row each timeout and application: means over months, and in how many ELYSIUM degrades throughput no more."""
    import pandas as pd

    rows = []
    for timeout_s in timeouts_s:
        for name in LEVELS:
            found = {
                rival: [play(name, recorded(LEVELS[name][-1], m), policy, timeout_s) for m in months]
                for rival, policy in rivals(name).items()
            }
            row: dict[str, Any] = {"timeout_s": timeout_s, "app": name, "months": len(months)}
            for rival, pairs in found.items():
                row[rival] = fmean(d for d, _ in pairs)
                row[f"{rival}_saved"] = fmean(s for _, s in pairs)
                row[f"{rival}_wins"] = sum(d <= j for (d, _), (j, _) in zip(pairs, found["joint"], strict=True))
            rows.append(row)
    return pd.DataFrame(rows)
