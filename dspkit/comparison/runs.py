"""One run of a comparison: what is played, and its scores as one row of numbers.

| score | meaning |
|---|---|
| late_share, late_s | windows in which the SLO is violated: share of the time, seconds |
| late_area_s2 | by how much, summed over time: seconds of delay beyond the SLO, times seconds |
| cost | `instance_seconds` + `penalty` x `late_s` + `change_cost` x `rescales`; less the oracle's it is the `regret` |

A window is late if the mean `event_latency` of what ended in it is above the SLO, if records wait at its end that came
longer ago than the SLO, if records were refused, or if some came and nothing ended. A record that was refused never
ends and counts as waiting: where more are lost than came in the last `slo_s`, all windows after that are late.
All other scores are those of `dspkit.scores` and `dspkit.events_lost`, under their names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..core import Deployment, Policy
from ..errors import KnobError
from ..events_lost import events_lost
from ..frozen import FrozenMap
from ..history import History
from ..loop import run
from ..scores import TRACE, latency, scores
from ..simulator import Simulator
from ..simulator.simulator import by_source, offered
from ..topologies import App
from ..workload import Workload
from .oracle import ROUNDING, Oracle, allowance, known, peak_instances, whole_windows

KEYS = ("policy", "load", "job", "plant", "seed")
SCORES = (
    "cost", "oracle", "regret", "regret_share", "late_share", "late_s", "late_area_s2", "lost_share", "dropped",
    "waiting", "latency_s", "latency_p95_s", "latency_p99_s", "event_latency_s", "event_latency_p95_s",
    "event_latency_p99_s", "lag_mean", "lag_max", "instance_seconds", "node_seconds", "rescales", "downtime_s",
    "settling_s", "overshoot", "stability", "accuracy", "oscillations", "degradation", "degradation_dropped",
    "nodes_saved",
)  # fmt: skip
Loads = Workload | Mapping[str, Workload]


class Rules(NamedTuple):
    """What all runs of a comparison have in common."""

    duration_s: float = 3600.0
    window_s: float = 10.0
    tick_s: float = 1.0
    settle: int = 0
    engine: str = "fluid"
    slo_s: float | None = None  # None: the target of the job
    penalty: float | None = None  # instances that a late second is worth; None: those that the job needs at its peak
    change_cost: float = 0.0  # instance-seconds that a change is worth

    def check(self) -> Rules:
        numbers = (self.duration_s, self.window_s, self.tick_s)
        if not all(isinstance(x, (int, float)) and 0 < x < math.inf for x in numbers):
            raise KnobError(f"{self}", expected="times above 0", fix="as in duration_s=3600")
        if not self.tick_s <= self.window_s <= self.duration_s:
            raise KnobError(f"{self}", expected="tick_s <= window_s <= duration_s", fix="lengthen the run")
        whole_windows(self.duration_s, self.window_s)
        costs = {"slo_s": self.slo_s, "penalty": self.penalty, "change_cost": self.change_cost}
        for name, value in costs.items():
            if value is None and name != "change_cost":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise KnobError(f"{name}={value!r}", expected="a finite number >= 0", fix="see dspkit.compare")
        return self


@dataclass(frozen=True)
class Run:
    """A policy on a job under a load: all that its row follows from. Without a policy it is the oracle's."""

    names: tuple[str, str, str, str]  # of policy, load, job, plant
    seed: int
    policy: Policy | None
    app: App
    workload: Loads
    start: Deployment | None
    rules: Rules
    failed: str = ""  # why there is no policy to run

    @property
    def slo_s(self) -> float:
        return self.app.target_latency_s if self.rules.slo_s is None else self.rules.slo_s

    def row(self) -> dict[str, Any]:
        """Keys and scores; of the oracle, its cost."""
        keys = dict(zip(KEYS, (*self.names, self.seed), strict=True))
        if self.failed:
            return {**keys, "error": self.failed}
        if self.policy is None:
            return {**keys, "cost": self.oracle().cost, "error": ""}
        history = self.play()
        return {**keys, **measured(history, self), "error": ""}

    def play(self) -> History:
        """The run itself."""
        rules, app = self.rules, self.app
        assert self.policy is not None
        backend = Simulator(
            app.topology, app.plant, self.workload, deployment=self.start, window_s=rules.window_s,
            tick_s=rules.tick_s, seed=self.seed, engine=rules.engine,
        )  # fmt: skip
        steps = round(rules.duration_s / rules.window_s)
        with backend:
            return run(self.policy, backend, steps=steps, settle=rules.settle, seed=self.seed)

    def oracle(self) -> Oracle:
        """The oracle of this load and seed."""
        r, plant = self.rules, self.app.plant
        seed = self.seed if plant.noise else 0
        load = self.workload if isinstance(self.workload, Workload) else FrozenMap(self.workload)
        return known(
            self.app.topology, plant, load, r.duration_s, r.window_s, r.tick_s, self.slo_s, self.penalty,
            r.change_cost, seed,
        )  # fmt: skip

    @property
    def penalty(self) -> float:
        """Instances that a late second is worth."""
        if self.rules.penalty is not None:
            return self.rules.penalty
        return peak_of(self.app, self.workload, self.rules)


def rules_of(given: Mapping[str, Any]) -> Rules:
    """Rules by name, or an error that says which there are."""
    if unknown := [name for name in given if name not in Rules._fields]:
        raise KnobError(f"rule {unknown[0]!r}", expected=f"some of {', '.join(Rules._fields)}", fix="correct the name")
    return Rules(**given).check()


def peak_of(app: App, workload: Loads, rules: Rules) -> float:
    """Instances that the job needs under the load's greatest rate, noise apart."""
    ticks = np.arange(rules.tick_s / 2, rules.duration_s, rules.tick_s)
    rates = offered(by_source(app.topology, workload), app.topology, ticks)
    return peak_instances(app.topology, app.plant, rates.max(axis=0))


def lateness(history: History, slo_s: float) -> tuple[list[bool], list[float]]:
    """Of each window whether it is late, and the delay that it is judged by, in seconds."""
    window_s = history[0].snapshot.window_s
    came = np.array([s.snapshot.source_rate * window_s for s in history])
    ended = np.array([s.snapshot.throughput * window_s for s in history])
    total, done = np.cumsum(came), np.cumsum(ended)
    allowed = allowance(came, window_s, slo_s) + ROUNDING / 100 * total
    behind = total - done > allowed
    ages = _ages(total, done, window_s)
    late, delays = [], []
    for i, step in enumerate(history):
        s = step.snapshot
        mean = s.event_latency.mean if s.event_latency else 0.0
        stuck = bool(came[i] > TRACE and ended[i] <= TRACE)
        late.append(bool(behind[i]) or mean > slo_s or s.dropped > TRACE or stuck)
        delays.append(max(mean, float(ages[i])))
    return late, delays


def _ages(total: Any, done: Any, window_s: float) -> Any:
    """How long ago the oldest record came that has not ended, at the end of each window; arrivals even within one."""
    ends = window_s * np.arange(len(total) + 1)
    curve = np.concatenate(([0.0], total))
    at = np.minimum(np.searchsorted(curve, done * (1 + 1e-12), side="right"), len(total))
    low, high = curve[at - 1], curve[at]
    part = np.clip(np.divide(done - low, high - low, out=np.ones(len(done)), where=high > low), 0.0, 1.0)
    waits = total - done > ROUNDING / 100 * total
    return np.where(waits, np.maximum(0.0, ends[1:] - (ends[at - 1] + part * window_s)), 0.0)


def measured(history: History, of: Run) -> dict[str, float | None]:
    """All scores of a run but the regret, which needs the oracle."""
    window_s = history[0].snapshot.window_s
    late, delays = lateness(history, of.slo_s)
    lost, told = events_lost(history), scores(history, len(of.app.plant.nodes))
    late_s = window_s * sum(late)
    price = told["instance_seconds"] + of.penalty * late_s + of.rules.change_cost * told["rescales"]
    lags = [s.snapshot.lag for s in history]
    told |= {
        "cost": price,
        "late_share": sum(late) / len(late),
        "late_s": late_s,
        "late_area_s2": window_s * sum(max(0.0, d - of.slo_s) for d in delays),
        "lost_share": 0.0 if abs(lost.share) < 1e-9 else lost.share,
        "dropped": lost.dropped,
        "waiting": lost.waiting,
        "latency_p99_s": latency(history, part="p99"),
        "event_latency_p95_s": latency(history, "event_latency", "p95"),
        "event_latency_p99_s": latency(history, "event_latency", "p99"),
        "lag_mean": fmean(lags),
        "lag_max": max(lags),
        "oscillations": turns(history),
    }
    return {name: None if told[name] is None else float(told[name]) for name in SCORES if name in told}


def turns(history: History) -> int:
    """How often the number of instances turned back: more after fewer, or the reverse."""
    counts = [history[0].snapshot.deployment.instances, *(s.deployment.instances for s in history)]
    moves = [b - a for a, b in pairwise(counts) if b != a]
    return sum(a * b < 0 for a, b in pairwise(moves))
