r"""The autoscaler of Flink's Kubernetes operator, from its documentation and its options' defaults [flink_operator].

Formulas and their letters are in `_flink_rules.py`, means over windows in `_flink_metrics.py`. It is DS2 with room to
spare: capacity for the lag and the restart is added, nobody is touched inside a band, scale-downs wait, and a scale-up
that brought nothing is told.

What differs from the operator: busy time is the mean over instances (it takes their maximum, which snapshots lack); the
rate of a source is what is offered to it, where that is measured, else what it did and by how much its lag grew; key
groups are those of stateful operators, `max_parallelism` in number, and sources' partitions are not known. Not here:
quotas and memory tuning, excluded vertices and periods, restart times that it tracks, observed scalability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from . import _flink_metrics as metrics
from . import _flink_rules as rules

_NEAR = 1e-6


class Waiting(NamedTuple):
    """A scale-down that is put off: since when, and (time, parallelism, outside the band), parallelism falling."""

    since: float
    wanted: tuple[tuple[float, int, bool], ...] = ()


class Scaled(NamedTuple):
    """The last change of a vertex: parallelism before and after, true rate before, and the one expected after."""

    before: int
    after: int
    true_rate: float
    expected: float


class Vertex(NamedTuple):
    """One operator as evaluated over the metric window; None where it is not known."""

    k: int
    rate: float | None
    lag_rate: float
    true_rate: float | None
    least: float = 0.0  # true rates below this are too few
    most: float = math.inf  # and above this too many


class State(NamedTuple):
    topology: Topology
    seen: Deployment | None = None
    running_since: float = -math.inf
    windows: tuple[Snapshot, ...] = ()
    waiting: Mapping[str, Waiting] = FrozenMap()
    last: Mapping[str, Scaled] = FrozenMap()


def _duration(default: float, help: str, option: str, high: float = 86_400.0) -> Any:
    return knob(default, help, low=0.0, high=high, unit="s", source=f"job.autoscaler.{option}")


@dataclass(frozen=True)
class FlinkAutoscaler(Knobs):
    r"""Parallelism for the incoming rate at a target utilisation, with room to catch up; nothing within a band.

    $k' = \lceil k\,c/v \rceil$ with the true rate v of all instances and the capacity $c = L/C + rR/C + r/u$; done
    only if v lies outside the band from $L/C + r/u_{max}$ to $L/C + rR/C + r/u_{min}$ for some vertex that would
    change. Rates r go down the graph by output ratios.
    """

    name: ClassVar[str] = "flink_autoscaler"
    reference: ClassVar[tuple[str, ...]] = ("flink_operator", "kalavri2018ds2")
    target: float = knob(0.7, "utilisation to aim at", low=0.05, high=1.0, source="job.autoscaler.utilization.target")
    boundary: float = knob(
        0.3, "around the target: the band", low=0.0, high=1.0, source="job.autoscaler.target.utilization.boundary"
    )
    utilisation_max: float | None = knob(
        None, "upper end of the band; target + boundary if none", source="job.autoscaler.utilization.max"
    )
    utilisation_min: float | None = knob(
        None, "lower end of the band; target - boundary if none", source="job.autoscaler.utilization.min"
    )
    metrics_window_s: float = _duration(900.0, "metrics are means over this", "metrics.window")
    stabilization_s: float = _duration(300.0, "after a restart, what is not looked at", "stabilization.interval")
    catch_up_s: float = _duration(1800.0, "time to work a lag off; 0: lags do not count", "catch-up.duration")
    restart_s: float = _duration(300.0, "time that a restart is expected to take", "restart.time")
    scale_down_s: float = _duration(3600.0, "how long a scale-down waits", "scale-down.interval")
    max_up: float = knob(
        100_000.0, "most growth at once, in present parallelism", low=0.0, high=1e6, source="scale-up.max-factor"
    )
    max_down: float = knob(0.6, "most of it that goes at once", low=0.0, high=1.0, source="scale-down.max-factor")
    least: int = knob(1, "fewest instances of a vertex", low=1, high=4096, source="vertex.min-parallelism")
    most: int = knob(200, "most instances of a vertex", low=1, high=4096, source="vertex.max-parallelism")
    backlog_s: float = _duration(
        300.0, "with a longer lag the band opens, so that it is worked off in peace", "backlog-processing.lag-threshold"
    )
    observed_lag_s: float = _duration(
        30.0, "lag from which on a source's rate is taken as observed", "observed-true-processing-rate.lag-threshold"
    )
    observed_switch: float = knob(
        0.15, "by how much busy time must flatter for that", low=0.0, high=10.0,
        source="observed-true-processing-rate.switch-threshold",
    )  # fmt: skip
    observed_least: int = knob(
        2, "windows needed for that", low=1, high=100, source="observed-true-processing-rate.min-observations"
    )
    block_ineffective: bool = knob(
        False, "no scale-up after one without effect", choices=(True, False),
        source="scaling.effectiveness.detection.enabled",
    )  # fmt: skip
    effectiveness: float = knob(
        0.1, "part of the expected growth below which it had none", low=0.0, high=1.0,
        source="scaling.effectiveness.threshold",
    )  # fmt: skip
    align: str = knob(
        "evenly spread", "parallelism of stateful operators and their key groups", choices=rules.ALIGNS,
        source="scaling.key-group.partitions.adjust.mode",
    )  # fmt: skip
    whole_rates: bool = knob(True, "capacities are whole numbers of records/s", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("utilisation_max", "utilisation_min"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and 0 <= value <= 1):
                raise KnobError(f"{name}={value!r}", expected="a share 0..1, or None", fix="as in 0.9")
        low, high = self.band
        if not low <= self.target <= high:
            raise KnobError(
                f"a band from {low:g} to {high:g} around {self.target:g}", expected="min <= target <= max", fix="move"
            )
        if self.least > self.most:
            raise KnobError(f"least={self.least}, most={self.most}", expected="least <= most", fix="swap them")

    @property
    def band(self) -> tuple[float, float]:
        """Utilisations between which nothing is done."""
        low = self.target - self.boundary if self.utilisation_min is None else float(self.utilisation_min)
        high = self.target + self.boundary if self.utilisation_max is None else float(self.utilisation_max)
        return max(0.0, low), min(1.0, high)

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        state, now = self._collect(state, snapshot), snapshot.deployment
        begun = state.windows[0].t - state.windows[0].window_s if state.windows else snapshot.t
        if not state.windows or snapshot.t - begun < self.metrics_window_s - _NEAR:
            rule = f"collected {snapshot.t - begun:g} of {self.metrics_window_s:g} s"
            return state, Decision(now, {"rule": rule if state.windows else "stabilises"})
        behind = metrics.behind(state.topology, state.windows, self.backlog_s)
        vertices = self._evaluate(state, behind)
        why: dict[str, Any] = {
            "target rate": {n: v.rate for n, v in vertices.items()},
            "true rate": {n: v.true_rate for n, v in vertices.items()},
            "band": {n: f"{v.least:,.6g} to {v.most:,.6g}" for n, v in vertices.items() if v.rate is not None},
        }
        if behind:
            why["working off the lag of"] = behind
        changes: dict[str, tuple[int, bool, float]] = {}
        for name, vertex in vertices.items():
            state, change = self._vertex(state, name, vertex, snapshot.t, why)
            if change:
                changes[name] = change
        if unknown := [n for n, v in vertices.items() if v.rate is None or v.true_rate is None]:
            why["no data"] = unknown
        if not any(outside for _, outside, _ in changes.values()):
            rule = "every change lies within the band" if changes else "runs as it should"
            return state, Decision(now, {"rule": rule, **why})
        wanted = state.topology.clip({n: k for n, (k, _, _) in changes.items()})
        last = {n: Scaled(now.parallelism[n], wanted[n], vertices[n].true_rate or 0.0, changes[n][2]) for n in wanted}
        state = state._replace(last=FrozenMap({**state.last, **last}))
        return state, Decision(now.scaled(wanted), {"rule": f"scales {', '.join(wanted)}", **why})

    def _collect(self, state: State, snapshot: Snapshot) -> State:
        """The windows that count: after a restart and the time to stabilise, and no older than the metric window."""
        changed = state.seen is not None and state.seen != snapshot.deployment
        start = snapshot.t - snapshot.window_s
        if changed:
            state = state._replace(waiting=FrozenMap())
        if changed or snapshot.downtime_s > 0 or state.seen is None:
            since = snapshot.t if snapshot.downtime_s > 0 else start
            state = state._replace(seen=snapshot.deployment, running_since=since, windows=())
        if start < state.running_since + self.stabilization_s - _NEAR:
            return state
        oldest = snapshot.t - self.metrics_window_s - _NEAR
        kept = tuple(s for s in state.windows if s.t - s.window_s >= oldest)
        return state._replace(windows=(*kept, snapshot))

    def _evaluate(self, state: State, behind: list[str]) -> dict[str, Vertex]:
        """All vertices over the metric window."""
        low, high = (0.0, 1.0) if behind else self.band
        found, k = {}, state.windows[-1].deployment.parallelism
        for name, (rate, lag_rate) in metrics.target_rates(state.topology, state.windows, self.catch_up_s).items():
            vertex = Vertex(k[name], rate, lag_rate, self._true_rate(state, name))
            if rate is not None:
                limits = self._capacity(rate, lag_rate, high, 0.0), self._capacity(rate, lag_rate, low, self.restart_s)
                vertex = vertex._replace(least=limits[0], most=limits[1])
            found[name] = vertex
        return found

    def _true_rate(self, state: State, name: str) -> float | None:
        busy = metrics.true_rate(state.windows, name)
        if busy is None or state.topology.upstream(name):
            return busy
        seen = metrics.observed_rate(state.windows, name, self.observed_lag_s, self.observed_least)
        return seen if seen is not None and busy > seen * (1 + self.observed_switch) else busy

    def _capacity(self, rate: float, lag_rate: float, utilisation: float, restart_s: float) -> float:
        return rules.capacity(
            rate, lag_rate, utilisation, catch_up_s=self.catch_up_s, restart_s=restart_s, whole=self.whole_rates
        )

    def _vertex(
        self, state: State, name: str, vertex: Vertex, t: float, why: dict[str, Any]
    ) -> tuple[State, tuple[int, bool, float] | None]:
        """(parallelism, outside the band, true rate expected) if it shall change."""
        if vertex.rate is None or vertex.true_rate is None:
            return state, None
        factor = self._capacity(vertex.rate, vertex.lag_rate, self.target, self.restart_s) / vertex.true_rate
        factor = min(max(factor, 1 - self.max_down), 1 + self.max_up)
        new = self._parallelism(state.topology, name, vertex.k, factor)
        outside = not vertex.least <= vertex.true_rate <= vertex.most
        if new >= vertex.k and name in state.waiting:
            state = state._replace(waiting=FrozenMap({n: w for n, w in state.waiting.items() if n != name}))
        if new == vertex.k:
            return state, None
        if new > vertex.k:
            last = state.last.get(name)
            if last and last.before < last.after == vertex.k:
                came = rules.effect(last.true_rate, last.expected, vertex.true_rate)
                if came < self.effectiveness:
                    blocked = ", so no more" if self.block_ineffective else ""
                    said = f"{last.before} → {last.after} brought {came:.0%} of what was expected{blocked}"
                    why.setdefault("ineffective", {})[name] = said
                    if self.block_ineffective:
                        return state, None
            return state, (new, outside, vertex.true_rate * factor)
        if self.scale_down_s > 0:
            state, due = self._put_off(state, name, t, new, outside)
            if due is None:
                since = state.waiting[name].since
                why.setdefault("scale-down waits", {})[name] = f"to {new}, until t = {since + self.scale_down_s:g} s"
                return state, None
            new, outside = due
        return state, (new, outside, vertex.true_rate * factor)

    def _parallelism(self, topology: Topology, name: str, now: int, factor: float) -> int:
        lowest, highest = min(now, self.least), min(topology[name].max_parallelism, max(now, self.most))
        new = min(max(lowest, math.ceil(min(factor * now, 1e9) - 1e-9)), highest)
        if not topology[name].stateful:
            return new
        groups = topology[name].max_parallelism
        return rules.aligned(new, now, groups, lowest=lowest, highest=highest, mode=self.align)

    def _put_off(
        self, state: State, name: str, t: float, new: int, outside: bool
    ) -> tuple[State, tuple[int, bool] | None]:
        """The largest wish of the interval once it is over; until then nothing."""
        waits = state.waiting.get(name, Waiting(t))
        wanted = (*(w for w in waits.wanted if w[1] > new), (t, new, outside))
        begins = t - self.scale_down_s
        due = None
        if begins >= waits.since - _NEAR:
            wanted = tuple(w for w in wanted if w[0] >= begins - _NEAR)
            due = wanted[0][1:]
        state = state._replace(waiting=FrozenMap({**state.waiting, name: Waiting(waits.since, wanted)}))
        return state, due
