"""One run of a comparison: its inputs, and its scores as one row of numbers.

| score | meaning |
|---|---|
| late_share, late_s | windows in which the SLO is violated: share of the time, seconds |
| late_area_s2 | delay beyond the SLO, integrated over time: seconds times seconds |
| cost | `instance_seconds` + `penalty` x `late_s` + `change_cost` x `rescales`; less the oracle's it is the `regret` |

A window is late if the mean `event_latency` of its finished records is above the SLO, if records wait at its end that
arrived longer ago than the SLO, if records were refused, or if records arrived and none was finished. A refused record
is never finished and counts as waiting: if more are lost than arrived in the last `target_latency_s`, all later windows
are late. All other scores are those of `dspkit.comparison.scores`, under their names there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ..apps import App
from ..core import ArgumentError, Deployment, FrozenMap, History, Policy, run
from ..core.validation import members, number
from ..simulator import Simulator
from ..simulator.simulator import by_source, offered
from ..workload import Workload
from .oracle import ROUNDING, Oracle, allowance, cached_oracle, peak_instances, whole_windows
from .scores import TRACE, events_lost, latency, scores

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
    """The settings that all runs of a comparison share.

    Parameters
    ----------
    duration_s, window_s, tick_s : float
        Seconds of a run, of a window, and of a step of the simulator.
    settle : int
        Windows after a change that the policy does not see.
    engine : {"fluid", "records"}
        Engine of the simulator.
    target_latency_s : float, optional
        The latency to meet, in seconds, by default the target of the job.
    penalty : float, optional
        Cost of a late second, in instances; by default the instances that the job needs at its peak.
    change_cost : float
        Cost of a change of the deployment, in instance-seconds.

    Examples
    --------
    >>> Rules(duration_s=600.0).check().window_s
    10.0
    """

    duration_s: float = 3600.0
    window_s: float = 10.0
    tick_s: float = 1.0
    settle: int = 0
    engine: str = "fluid"
    target_latency_s: float | None = None
    penalty: float | None = None
    change_cost: float = 0.0

    def check(self) -> Rules:
        """Return these rules; raise an error if they contradict each other.

        Examples
        --------
        >>> Rules().check() == Rules()
        True
        """
        for name in ("duration_s", "window_s", "tick_s"):
            number(getattr(self, name), name, 0, above=True)
        if not self.tick_s <= self.window_s <= self.duration_s:
            raise ArgumentError(f"{self}", expected="tick_s <= window_s <= duration_s", fix="lengthen the run")
        whole_windows(self.duration_s, self.window_s)
        costs = {"target_latency_s": self.target_latency_s, "penalty": self.penalty, "change_cost": self.change_cost}
        for name, value in costs.items():
            if value is not None or name == "change_cost":
                number(value, name, 0)
        return self


@dataclass(frozen=True)
class ComparisonRun:
    """All inputs of one run: a policy on a job under a load.

    Parameters
    ----------
    names : tuple of str
        Names of the policy, load, job and plant.
    seed : int
        Seed of the load, the plant and the policy.
    policy : Policy or None
        The policy; None for the oracle.
    app : App
        The job on its plant.
    workload : Workload or mapping
        Its load.
    start : Deployment or None
        The initial deployment.
    rules : Rules
        The rules of the comparison.
    failed : str
        The error if the policy could not be made.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.static import Static
    >>> app, rules = apps.tweet_words(), Rules(duration_s=60.0)
    >>> run = ComparisonRun(("static", "own", "tweet_words", "own"), 1, Static(), app, app.workload, None, rules)
    >>> run.row()["rescales"]
    0.0
    """

    names: tuple[str, str, str, str]
    seed: int
    policy: Policy | None
    app: App
    workload: Loads
    start: Deployment | None
    rules: Rules
    failed: str = ""

    @property
    def target_latency_s(self) -> float:
        """The latency to meet, in seconds."""
        return self.app.target_latency_s if self.rules.target_latency_s is None else self.rules.target_latency_s

    def row(self) -> dict[str, Any]:
        """Return the row of keys and scores; for the oracle, of keys and cost.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.static import Static
        >>> app, rules = apps.tweet_words(), Rules(duration_s=60.0)
        >>> run = ComparisonRun(("static", "own", "tweet_words", "own"), 1, Static(), app, app.workload, None, rules)
        >>> run.row()["policy"], run.row()["error"]
        ('static', '')
        """
        keys = dict(zip(KEYS, (*self.names, self.seed), strict=True))
        if self.failed:
            return {**keys, "error": self.failed}
        if self.policy is None:
            return {**keys, "cost": self.oracle().cost, "error": ""}
        history = self.play()
        return {**keys, **measured(history, self), "error": ""}

    def play(self) -> History:
        """Execute the run, and return its history.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.static import Static
        >>> app, rules = apps.tweet_words(), Rules(duration_s=60.0)
        >>> run = ComparisonRun(("static", "own", "tweet_words", "own"), 1, Static(), app, app.workload, None, rules)
        >>> len(run.play())
        6
        """
        rules, app = self.rules, self.app
        assert self.policy is not None
        # No Experiment: it finds policies by name, so that stored rows would depend on the code of all of them.
        backend = Simulator(
            app.topology,
            app.plant,
            self.workload,
            deployment=self.start,
            window_s=rules.window_s,
            tick_s=rules.tick_s,
            seed=self.seed,
            engine=rules.engine,
        )
        steps = round(rules.duration_s / rules.window_s)
        with backend:
            return run(self.policy, backend, steps=steps, settle=rules.settle, seed=self.seed)

    def oracle(self) -> Oracle:
        """Return the oracle of this load and seed.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.static import Static
        >>> app, rules = apps.tweet_words(), Rules(duration_s=60.0)
        >>> run = ComparisonRun(("static", "own", "tweet_words", "own"), 1, Static(), app, app.workload, None, rules)
        >>> run.oracle().window_s
        10.0
        """
        r, plant = self.rules, self.app.plant
        seed = self.seed if plant.noise else 0
        load = self.workload if isinstance(self.workload, Workload) else FrozenMap(self.workload)
        return cached_oracle(
            self.app.topology,
            plant,
            load,
            r.duration_s,
            r.window_s,
            r.tick_s,
            self.target_latency_s,
            self.penalty,
            r.change_cost,
            seed,
        )

    @property
    def penalty(self) -> float:
        """Cost of a late second, in instances."""
        if self.rules.penalty is not None:
            return self.rules.penalty
        return peak_of(self.app, self.workload, self.rules)


def rules_of(options: Mapping[str, Any]) -> Rules:
    """Return checked rules from options by name."""
    members(options, Rules._fields, "rule")
    return Rules(**options).check()


def peak_of(app: App, workload: Loads, rules: Rules) -> float:
    """Return the instances that the job needs at the peak of the load, without noise."""
    ticks = np.arange(rules.tick_s / 2, rules.duration_s, rules.tick_s)
    rates = offered(by_source(app.topology, workload), app.topology, ticks)
    return peak_instances(app.topology, app.plant, rates.max(axis=0))


def lateness(history: History, target_latency_s: float) -> tuple[list[bool], list[float]]:
    """Return for each window whether it is late, and its delay in seconds."""
    window_s = history[0].snapshot.window_s
    came = np.array([s.snapshot.source_rate * window_s for s in history])
    ended = np.array([s.snapshot.throughput * window_s for s in history])
    total, done = np.cumsum(came), np.cumsum(ended)
    allowed = allowance(came, window_s, target_latency_s) + ROUNDING / 100 * total
    behind = total - done > allowed
    ages = _ages(total, done, window_s)
    late, delays = [], []
    for i, step in enumerate(history):
        s = step.snapshot
        mean = s.event_latency.mean if s.event_latency else 0.0
        stuck = bool(came[i] > TRACE and ended[i] <= TRACE)
        late.append(bool(behind[i]) or mean > target_latency_s or s.dropped > TRACE or stuck)
        delays.append(max(mean, float(ages[i])))
    return late, delays


def _ages(total: Any, done: Any, window_s: float) -> Any:
    """Return the age of the oldest unfinished record at the end of each window, with even arrivals within windows."""
    ends = window_s * np.arange(len(total) + 1)
    curve = np.concatenate(([0.0], total))
    at = np.minimum(np.searchsorted(curve, done * (1 + 1e-12), side="right"), len(total))
    low, high = curve[at - 1], curve[at]
    part = np.clip(np.divide(done - low, high - low, out=np.ones(len(done)), where=high > low), 0.0, 1.0)
    waits = total - done > ROUNDING / 100 * total
    return np.where(waits, np.maximum(0.0, ends[1:] - (ends[at - 1] + part * window_s)), 0.0)


def measured(history: History, run: ComparisonRun) -> dict[str, float | None]:
    """Return all scores of a run except the regret, which needs the oracle."""
    window_s = history[0].snapshot.window_s
    late, delays = lateness(history, run.target_latency_s)
    lost, values = events_lost(history), scores(history, len(run.app.plant.nodes))
    late_s = window_s * sum(late)
    price = values["instance_seconds"] + run.penalty * late_s + run.rules.change_cost * values["rescales"]
    lags = [s.snapshot.lag for s in history]
    values |= {
        "cost": price,
        "late_share": sum(late) / len(late),
        "late_s": late_s,
        "late_area_s2": window_s * sum(max(0.0, d - run.target_latency_s) for d in delays),
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
    return {name: None if values[name] is None else float(values[name]) for name in SCORES if name in values}


def turns(history: History) -> int:
    """Return the number of reversals of the number of instances: more after fewer, or fewer after more."""
    counts = [history[0].snapshot.deployment.instances, *(s.deployment.instances for s in history)]
    moves = [b - a for a, b in pairwise(counts) if b != a]
    return sum(a * b < 0 for a, b in pairwise(moves))
