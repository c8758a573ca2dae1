r"""The autoscaler of Flink's Kubernetes operator 1.16, from documentation and defaults [flink_operator].

It is DS2 with spare capacity: for the lag and the restart. Nothing changes within a band, scale-downs are delayed, and
ineffective scale-ups are reported.

| operator | here |
|---|---|
| TARGET_DATA_RATE, CATCH_UP_DATA_RATE | `rate`, `lag_rate` |
| TRUE_PROCESSING_RATE (of all subtasks together) | `true_rate` |
| SCALE_UP_RATE_THRESHOLD, SCALE_DOWN_RATE_THRESHOLD | `rate_min`, `rate_max`: the band |
| max parallelism, number of key groups | `groups` |

Differences from the operator: busy time is that of the busiest instance, as in the operator, only if the snapshot has
instances, and otherwise their mean; the rate of a source is its offered rate if measured, otherwise its processing rate
plus the growth of its lag; key groups are those of stateful operators, `max_parallelism` in number, and partitions of
sources are unknown. Windows may be of different length; one with downtime begins the metric window again, a routine
commit does not. Not included: quotas and memory tuning, excluded vertices and periods, tracked restart times, observed
scalability.

The module contains means over the collected windows, rates propagated down the graph, the arithmetic of one vertex
(capacity, band, alignment, effect), and the policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    Edge,
    FrozenMap,
    KnobError,
    OperatorMetrics,
    PolicyKnobs,
    Snapshot,
    Topology,
    knob,
)
from ..core.validation import is_number
from ._measurements import fullest

_FULL = 0.9  # busy share from which on an operator stops those upstream
_BASE = 0.05  # back-pressure that an engine shows without overload


def mean_rate(windows: Sequence[Snapshot], value: Callable[[Snapshot], float | None]) -> float | None:
    """Return the time-weighted mean over the windows in which the value was measured."""
    known = [(x, s.window_s) for s in windows if (x := value(s)) is not None]
    whole = math.fsum(w for _, w in known)
    return math.fsum(x * w for x, w in known) / whole if known else None


def metric_of(name: str, field: str) -> Callable[[Snapshot], float | None]:
    """Return a function that reads one metric of one operator."""

    def read(snapshot: Snapshot) -> float | None:
        metrics = snapshot.operators.get(name)
        return None if metrics is None else getattr(metrics, field)

    return read


def output_ratio(windows: Sequence[Snapshot], edge: Edge) -> float | None:
    """Return the records sent along an edge per record processed at its start; 0 if none was, as in the operator."""
    both = [s for s in windows if edge[0] in s.operators and edge in s.edge_rates]
    if not both:
        return None
    taken = mean_rate(both, metric_of(edge[0], "processing_rate")) or 0.0
    return (mean_rate(both, lambda s: s.edge_rates[edge]) or 0.0) / taken if taken > 0 else 0.0


def true_rate(windows: Sequence[Snapshot], name: str) -> float | None:
    """Return the records/s of all instances if they were always busy; infinite without input."""
    rate, busy = (
        mean_rate(windows, metric_of(name, "processing_rate")),
        mean_rate(windows, lambda s: fullest(s.operators.get(name), "busy")),
    )
    if rate is None or busy is None:
        return None
    return rate / busy if rate > 0 and busy > 0 else math.inf


def observed_rate(windows: Sequence[Snapshot], name: str, lag_s: float, least: int) -> float | None:
    """Return the rate of a source with a lag of `lag_s` or more, over the time in which it was not back-pressured.

    None if fewer than `least` windows have such a lag, or back-pressure is not metered. A window does not count if
    another operator is full, and yet the source shows no back-pressure: then a flow control stops it without a meter.
    """

    def one(s: Snapshot, m: OperatorMetrics) -> float | None:
        others = [fullest(x, "busy") or 0.0 for n, x in s.operators.items() if n not in s.source_rates and n != name]
        if m.blocked is None or (m.blocked < _BASE and max(others, default=0.0) >= _FULL):
            return None
        free = 1 - m.blocked
        behind = m.backlog >= lag_s * m.processing_rate
        return m.processing_rate / free if behind and m.processing_rate > 0 and free > 0 else None

    found = [x for s in windows if (m := s.operators.get(name)) and (x := one(s, m)) is not None]
    return math.fsum(found) / len(found) if len(found) >= max(1, least) else None


def lagging(topology: Topology, windows: Sequence[Snapshot], backlog_s: float) -> list[str]:
    """Return the sources whose lag exceeds `backlog_s` seconds of their processing rate."""
    found = []
    for name in topology.sources:
        m, rate = windows[-1].operators.get(name), mean_rate(windows, metric_of(name, "processing_rate"))
        if m is not None and rate is not None and m.backlog > backlog_s * rate:
            found.append(name)
    return found


def target_rates(
    topology: Topology, windows: Sequence[Snapshot], catch_up_s: float
) -> dict[str, tuple[float | None, float]]:
    """Return each operator's input rate, and the additional rate that processes the lag in time.

    Both are propagated down the graph by output ratios; without a ratio, all rates downstream are unknown.
    """
    found: dict[str, tuple[float | None, float]] = {}
    for name in topology.order:
        if not topology.upstream(name):
            found[name] = _source(windows, name, catch_up_s)
            continue
        rate: float | None = 0.0
        lag_rate = 0.0
        for parent in topology.upstream(name):
            above, ratio = found[parent], output_ratio(windows, (parent, name))
            if above[0] is None or ratio is None:
                rate = None
            elif rate is not None:
                rate, lag_rate = rate + above[0] * ratio, lag_rate + above[1] * ratio
        found[name] = rate, lag_rate
    return found


def _source(windows: Sequence[Snapshot], name: str, catch_up_s: float) -> tuple[float | None, float]:
    """Return the offered rate of a source; if it is not measured, its processing rate plus the growth of its lag."""
    known = [s for s in windows if name in s.operators]
    lag = known[-1].operators[name].backlog if known else 0.0
    rate = mean_rate(windows, lambda s: s.source_rates.get(name))
    if rate is None and len(known) > 1:
        first, last = known[0], known[-1]
        grows = (lag - first.operators[name].backlog) / max(1e-3, last.t - first.t)
        rate = max(0.0, (mean_rate(known[1:], metric_of(name, "processing_rate")) or 0.0) + grows)
    return rate, lag / catch_up_s if catch_up_s > 0 else 0.0


# Of release 1.16, and of the deprecated option before it, whose modes block a change that cannot be aligned.
ALIGNS = ("balanced", "evenly spread", "off", "evenly spread or none", "maximise utilisation or none")


def capacity(
    rate: float, lag_rate: float, utilisation: float, *, catch_up_s: float, restart_s: float = 0.0, whole: bool = True
) -> float:
    r"""Return the required rate $L/C + rR/C + r/u$ for a lag L, catch-up time C, restart time R, rate r, share u.

    The first term is `lag_rate`. It is infinite at u = 0, and rounded to a whole number, as in the operator, if
    `whole`.

    >>> capacity(700, 50, 0.7, catch_up_s=1800, restart_s=300)
    1167.0
    """
    u = min(1.0, max(0.0, utilisation))
    if u == 0:
        return math.inf
    restart = rate * restart_s / catch_up_s if catch_up_s > 0 else 0.0
    exact = lag_rate + restart + rate / u
    return float(math.floor(exact + 0.5)) if whole else exact


def aligned(new: int, now: int, groups: int, *, lowest: int, highest: int, mode: str = ALIGNS[0]) -> int:
    """Return `new` moved, on its side of `now`, to where the instances share the key groups better.

    It is increased to the next divisor of `groups`, or if "balanced" to the next number at which an instance owns fewer
    of them; if there is none, it stays. The deprecated modes "... or none" decrease it then to the fewest instances
    with the same share, or to `now`, which blocks the change.

    >>> aligned(25, 22, 35, lowest=20, highest=30), aligned(13, 4, 24, lowest=1, highest=24, mode="evenly spread")
    (25, 24)
    """
    if new == now or mode == "off":
        return new
    top = min(groups, highest)
    for p in range(new, (top if new > now else min(now, top)) + 1):
        if groups % p == 0 or (mode in ("balanced", ALIGNS[4]) and groups // p < groups // new):
            return p
    if not mode.endswith("or none"):
        return new
    p = new
    while p > 1 and groups // p <= groups // new:
        p -= 1
    if groups // p > groups // new and groups % p:
        p += 1
    p = max(p, lowest)
    return now if (p <= now if new > now else p >= now) else p


def effect(before: float, expected: float, after: float) -> float:
    """Return the achieved part of the expected increase of a scale-up.

    >>> effect(100, 200, 105)
    0.05
    """
    return (after - before) / (expected - before) if expected != before else math.inf


_NEAR = 1e-6


class PendingScaleDown(NamedTuple):
    """A delayed scale-down: its start, and (time, parallelism, outside the band) with decreasing parallelism."""

    since: float
    recommendations: tuple[tuple[float, int, bool], ...] = ()


class ScalingRecord(NamedTuple):
    """The last change of a vertex: parallelism before and after, true rate before, and the expected one after."""

    before: int
    after: int
    true_rate: float
    expected: float


class Vertex(NamedTuple):
    """One operator as evaluated over the metric window; None for unknown rates."""

    k: int
    rate: float | None
    lag_rate: float
    true_rate: float | None
    rate_min: float = 0.0  # lower end of the band of true rates
    rate_max: float = math.inf  # upper end


class FlinkAutoscalerState(NamedTuple):
    """The collected windows, delayed scale-downs, and the last change of each vertex."""

    topology: Topology
    last_deployment: Deployment | None = None
    running_since: float = -math.inf
    windows: tuple[Snapshot, ...] = ()
    waiting: Mapping[str, PendingScaleDown] = FrozenMap()
    last: Mapping[str, ScalingRecord] = FrozenMap()


def _duration(default: float, help: str, option: str, high: float = 86_400.0) -> Any:
    return knob(default, help, low=0.0, high=high, unit="s", pace="duration", source=f"job.autoscaler.{option}")


@dataclass(frozen=True)
class FlinkAutoscaler(PolicyKnobs):
    r"""Scale to the incoming rate at a target utilisation, with capacity to catch up; change nothing within a band.

    $k' = \lceil k\,c/v \rceil$ with the true rate v of all instances and the capacity $c = L/C + rR/C + r/u$, applied
    only if v lies outside the band from $L/C + r/u_{max}$ to $L/C + rR/C + r/u_{min}$ for some vertex that would
    change. Rates r are propagated down the graph by output ratios.
    """

    name: ClassVar[str] = "flink_autoscaler"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[tuple[str, ...]] = ("flink_operator", "kalavri2018ds2")
    paper_run_s: ClassVar[float] = 7200.0
    target_utilisation: float = knob(
        0.7, "utilisation to aim at", low=0.05, high=1.0, source="job.autoscaler.utilization.target"
    )
    boundary: float = knob(
        0.3,
        "half width of the band around the target",
        low=0.0,
        high=1.0,
        source="job.autoscaler.target.utilization.boundary",
    )
    scale_out_above: float | None = knob(
        None, "upper end of the band; target + boundary if none", source="job.autoscaler.utilization.max"
    )
    scale_in_below: float | None = knob(
        None, "lower end of the band; target - boundary if none", source="job.autoscaler.utilization.min"
    )
    metrics_window_s: float = _duration(900.0, "window over which metrics are averaged", "metrics.window")
    warm_up_s: float = _duration(300.0, "time after a restart whose metrics are not used", "stabilization.interval")
    catch_up_s: float = _duration(1800.0, "time to process a lag; 0: lags do not count", "catch-up.duration")
    restart_s: float = _duration(300.0, "expected time of a restart", "restart.time")
    scale_in_delay_s: float = _duration(3600.0, "delay of a scale-down", "scale-down.interval")
    max_scale_up: float = knob(
        100_000.0,
        "greatest growth at once, relative to the parallelism",
        low=0.0,
        high=1e6,
        source="scale-up.max-factor",
    )
    max_scale_down: float = knob(
        0.6, "greatest share removed at once", low=0.0, high=1.0, source="scale-down.max-factor"
    )
    min_parallelism: int = knob(1, "fewest instances of a vertex", low=1, high=4096, source="vertex.min-parallelism")
    max_parallelism: int = knob(200, "most instances of a vertex", low=1, high=4096, source="vertex.max-parallelism")
    backlog_s: float = _duration(
        300.0,
        "lag above which the band opens, so that it is processed without changes",
        "backlog-processing.lag-threshold",
    )
    observed_lag_s: float = _duration(
        30.0, "lag above which a source's observed rate is used", "observed-true-processing-rate.lag-threshold"
    )
    observed_switch: float = knob(
        0.15,
        "by how much the rate from busy time must exceed it",
        low=0.0,
        high=10.0,
        source="observed-true-processing-rate.switch-threshold",
    )
    observed_min_windows: int = knob(
        2, "windows required for that", low=1, high=100, source="observed-true-processing-rate.min-observations"
    )
    block_ineffective: bool = knob(
        False,
        "no scale-up after an ineffective one",
        choices=(True, False),
        source="scaling.effectiveness.detection.enabled",
    )
    effectiveness: float = knob(
        0.1,
        "share of the expected growth below which a scale-up is ineffective",
        low=0.0,
        high=1.0,
        source="scaling.effectiveness.threshold",
    )
    align: str = knob(
        "balanced",
        "alignment of stateful operators with their key groups",
        choices=ALIGNS,
        source="scaling.parallelism-alignment.mode; before 1.16 scaling.key-group.partitions.adjust.mode",
    )
    whole_rates: bool = knob(True, "round capacities to whole records/s", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("scale_out_above", "scale_in_below"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value >= 0):
                raise ArgumentError(f"{name}={value!r}", expected="a share, or None", fix="as in 0.9; 1 counts as most")
        low, high = self.band
        if not low <= self.target_utilisation <= high:
            raise KnobError(
                f"a band from {low:g} to {high:g} around {self.target_utilisation:g}",
                expected="min <= target <= max",
                fix="move the target or the band",
            )
        if self.min_parallelism > self.max_parallelism:
            raise KnobError(
                f"min_parallelism={self.min_parallelism}, max_parallelism={self.max_parallelism}",
                expected="min_parallelism <= max_parallelism",
                fix="swap them",
            )

    @property
    def band(self) -> tuple[float, float]:
        """The utilisations between which nothing changes."""
        low = self.target_utilisation - self.boundary if self.scale_in_below is None else float(self.scale_in_below)
        high = self.target_utilisation + self.boundary if self.scale_out_above is None else float(self.scale_out_above)
        return max(0.0, low), min(1.0, high)

    def init(self, topology: Topology, seed: int = 0) -> FlinkAutoscalerState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return FlinkAutoscalerState(topology)

    def step(self, state: FlinkAutoscalerState, snapshot: Snapshot) -> tuple[FlinkAutoscalerState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        state, now = self._collect(state, snapshot), snapshot.deployment
        begun = state.windows[0].t - state.windows[0].window_s if state.windows else snapshot.t
        if not state.windows or snapshot.t - begun < self.metrics_window_s - _NEAR:
            rule = f"collected {snapshot.t - begun:g} of {self.metrics_window_s:g} s"
            return state, Decision(now, {"rule": rule if state.windows else "stabilises"})
        behind = lagging(state.topology, state.windows, self.backlog_s)
        vertices = self._evaluate(state, behind)
        why: dict[str, Any] = {
            "target rate": {n: v.rate for n, v in vertices.items()},
            "true rate": {n: v.true_rate for n, v in vertices.items()},
            "band": {n: f"{v.rate_min:,.6g} to {v.rate_max:,.6g}" for n, v in vertices.items() if v.rate is not None},
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
        last = {
            n: ScalingRecord(now.parallelism[n], wanted[n], vertices[n].true_rate or 0.0, changes[n][2]) for n in wanted
        }
        state = state._replace(last=FrozenMap({**state.last, **last}))
        return state, Decision(now.scaled(wanted), {"rule": f"scales {', '.join(wanted)}", **why})

    def _collect(self, state: FlinkAutoscalerState, snapshot: Snapshot) -> FlinkAutoscalerState:
        """Return the state with the usable windows: after restart and warm-up, and within the metric window."""
        changed = state.last_deployment is not None and state.last_deployment != snapshot.deployment
        start = snapshot.t - snapshot.window_s
        if changed:
            state = state._replace(waiting=FrozenMap())
        if changed or snapshot.downtime_s > 0 or state.last_deployment is None:
            since = snapshot.t if snapshot.downtime_s > 0 else start
            state = state._replace(last_deployment=snapshot.deployment, running_since=since, windows=())
        if start < state.running_since + self.warm_up_s - _NEAR:
            return state
        oldest = snapshot.t - self.metrics_window_s  # a window that began before it counts whole
        kept = tuple(s for s in state.windows if s.t > oldest + _NEAR)
        return state._replace(windows=(*kept, snapshot))

    def _evaluate(self, state: FlinkAutoscalerState, behind: list[str]) -> dict[str, Vertex]:
        """Evaluate all vertices over the metric window."""
        low, high = (0.0, 1.0) if behind else self.band
        found, k = {}, state.windows[-1].deployment.parallelism
        for name, (rate, lag_rate) in target_rates(state.topology, state.windows, self.catch_up_s).items():
            vertex = Vertex(k[name], rate, lag_rate, self._true_rate(state, name))
            if rate is not None:
                limits = self._capacity(rate, lag_rate, high, 0.0), self._capacity(rate, lag_rate, low, self.restart_s)
                vertex = vertex._replace(rate_min=limits[0], rate_max=limits[1])
            found[name] = vertex
        return found

    def _true_rate(self, state: FlinkAutoscalerState, name: str) -> float | None:
        busy = true_rate(state.windows, name)
        if busy is None or state.topology.upstream(name):
            return busy
        seen = observed_rate(state.windows, name, self.observed_lag_s, self.observed_min_windows)
        return seen if seen is not None and busy > seen * (1 + self.observed_switch) else busy

    def _capacity(self, rate: float, lag_rate: float, utilisation: float, restart_s: float) -> float:
        return capacity(
            rate, lag_rate, utilisation, catch_up_s=self.catch_up_s, restart_s=restart_s, whole=self.whole_rates
        )

    def _vertex(
        self, state: FlinkAutoscalerState, name: str, vertex: Vertex, t: float, why: dict[str, Any]
    ) -> tuple[FlinkAutoscalerState, tuple[int, bool, float] | None]:
        """Return (parallelism, outside the band, expected true rate) if the vertex is to change."""
        if vertex.rate is None or vertex.true_rate is None:
            return state, None
        factor = (
            self._capacity(vertex.rate, vertex.lag_rate, self.target_utilisation, self.restart_s) / vertex.true_rate
        )
        factor = min(max(factor, 1 - self.max_scale_down), 1 + self.max_scale_up)
        new = self._parallelism(state.topology, name, vertex.k, factor)
        outside = not vertex.rate_min <= vertex.true_rate <= vertex.rate_max
        if new >= vertex.k and name in state.waiting:
            state = state._replace(waiting=FrozenMap({n: w for n, w in state.waiting.items() if n != name}))
        if new == vertex.k:
            return state, None
        if new > vertex.k:
            last = state.last.get(name)
            if last and last.before < last.after == vertex.k:
                achieved = effect(last.true_rate, last.expected, vertex.true_rate)
                if achieved < self.effectiveness:
                    blocked = ", so no more" if self.block_ineffective else ""
                    said = f"{last.before} → {last.after} achieved {achieved:.0%} of the expected increase{blocked}"
                    why.setdefault("ineffective", {})[name] = said
                    if self.block_ineffective:
                        return state, None
            return state, (new, outside, vertex.true_rate / vertex.k * new)
        if self.scale_in_delay_s > 0:
            state, due = self._put_off(state, name, t, new, outside)
            if due is None:
                since = state.waiting[name].since
                why.setdefault("scale-down waits", {})[name] = (
                    f"to {new}, until t = {since + self.scale_in_delay_s:g} s"
                )
                return state, None
            new, outside = due
        return state, (new, outside, vertex.true_rate / vertex.k * new)

    def _parallelism(self, topology: Topology, name: str, now: int, factor: float) -> int:
        lowest, highest = (
            min(now, self.min_parallelism),
            min(topology[name].max_parallelism, max(now, self.max_parallelism)),
        )
        new = min(max(lowest, math.ceil(min(factor * now, 1e9) - 1e-9)), highest)
        if not topology[name].stateful:
            return new
        groups = topology[name].max_parallelism
        return aligned(new, now, groups, lowest=lowest, highest=highest, mode=self.align)

    def _put_off(
        self, state: FlinkAutoscalerState, name: str, t: float, new: int, outside: bool
    ) -> tuple[FlinkAutoscalerState, tuple[int, bool] | None]:
        """Return the largest recommendation of the interval once it is over; None before."""
        waits = state.waiting.get(name, PendingScaleDown(t))
        wanted = (*(w for w in waits.recommendations if w[1] > new), (t, new, outside))
        begins = t - self.scale_in_delay_s
        due = None
        if begins >= waits.since - _NEAR:
            wanted = tuple(w for w in wanted if w[0] >= begins - _NEAR)
            due = wanted[0][1:]
        state = state._replace(waiting=FrozenMap({**state.waiting, name: PendingScaleDown(waits.since, wanted)}))
        return state, due
