r"""Dhalion: symptoms, diagnoses and resolutions; a resolution without effect is not repeated [floratou2017dhalion].

| Dhalion in Heron | here |
|---|---|
| back-pressure time of a component, share of the interval | `pressure` |
| noise filter of 20 ms per second | `min_back_pressure` |
| ceil(n (1 + bp / (1 - bp))), the second term at most 4 | `scale_up` |
| policy interval 1 min, wait after an action 3 min | `decision_interval_s`, `cooldown_s` |
| wait queues of instances twice as long as others, rates apart | `uneven`, `slow` |

Heron attributes back-pressure to the component that starts it: one whose upstream operators are blocked. The last such
operator downstream counts, as it blocks those above. A source has no upstream operators, and with unbounded queues no
operator is blocked; then the share of the input that was not processed takes the place of bp, so that 1 + bp / (1 - bp)
is the input over the processing rate. A flow control may stop a source without a blocked operator: if the log of a
source grows although it is not busy, the busiest operator downstream has started the back-pressure. Senders also wait
without any overload, more so on a busy machine: an operator that is idle, and at which nothing waits, does not count if
another one is busy, nor up to `base_back_pressure`. Where an engine ends epochs, at which sources stop, the interval is
extended to whole epochs.

Heron's diagnosers of skew and of slow instances compare instances. If a snapshot has none, *skew* is back-pressure at
an operator whose instances are not all busy, and *slow* is a true rate far below the best one measured. As in Heron's
public code, both have no resolver; `why` states it, and an operator that can be scaled comes first.

Scaling down and the blacklist are in the paper, not in Heron's public code: without back-pressure and with an almost
empty queue an operator is over-provisioned. The size of such a step is configurable (`scale_in_share`), and so is the
share of actions without effect above which a diagnosis of an operator is blacklisted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, FrozenMap, OperatorMetrics, PolicyKnobs, Snapshot, Topology, knob
from ._measurements import whole_epochs

UP, DOWN, SKEW, SLOW = "under-provisioned", "over-provisioned", "skew", "slow instances"
_UNRESOLVED = {
    SKEW: "instances differ in their load, and more of them do not divide a frequent key",
    SLOW: "instances differ in speed, or became slower, which is a matter of their machines",
}
_TRACE = 1e-9
_LONGEST_EPOCHS_S = 120.0  # for which windows are kept, to know whole epochs


class PendingAction(NamedTuple):
    """A change whose effect is still to be judged."""

    diagnosis: str
    operator: str
    before: Deployment
    pressure: float
    rate: float  # processing rate of the operator, records/s
    at_s: float


class DhalionState(NamedTuple):
    """The last windows of the deployment, the last action, and the record of earlier ones."""

    topology: Topology
    windows: tuple[Snapshot, ...] = ()
    looked_at: float = 0.0
    action: PendingAction | None = None
    tried: Mapping[tuple[str, str], tuple[int, int]] = FrozenMap()  # by diagnosis and operator: tries, failures
    best: Mapping[str, float] = FrozenMap()  # greatest measured true rate of each operator


def scale_up(running: int, pressure: float, most: float = 4.0) -> int:
    """Return $\\lceil n\\,(1 + bp/(1-bp)) \\rceil$ instances, where the second term is at most `most`.

    >>> scale_up(4, 0.5), scale_up(3, 0.25), scale_up(2, 1.0)
    (8, 4, 10)
    """
    pressure = min(pressure, 0.999)
    return math.ceil(running * (1 + min(most, pressure / (1 - pressure))) - 1e-9)


@dataclass(frozen=True)
class Dhalion(PolicyKnobs):
    r"""Scale one operator at a time: the one that starts back-pressure grows by $1 + bp/(1-bp)$, an idle one shrinks.

    bp is the share of the time in which the operator blocks its upstream operators. A diagnosis whose resolution
    failed in more than `blacklist` of its tries is not acted on again for that operator.
    """

    name: ClassVar[str] = "dhalion"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "floratou2017dhalion"
    paper_run_s: ClassVar[float] = 1200.0
    decision_interval_s: float = knob(
        60.0,
        "time between decisions",
        low=1.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="policy interval, Heron: 1 min",
    )
    cooldown_s: float = knob(
        180.0,
        "time after an action in which none is taken",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="Heron: 3 min",
    )
    min_back_pressure: float = knob(
        0.02, "back-pressure above the noise, share of the time", low=0.0, high=1.0, source="Heron: 20 ms per second"
    )
    base_back_pressure: float = knob(
        0.05, "back-pressure that an engine shows without overload, share of the time", low=0.0, high=1.0
    )
    max_growth: float = knob(
        4.0, "greatest growth, relative to the present instances", low=0.1, high=100.0, source="Heron: 4"
    )
    scale_in_share: float = knob(0.2, "share of an over-provisioned operator's instances to remove", low=0.01, high=0.9)
    idle_s: float = knob(0.1, "waiting work that counts as none, seconds of an instance", low=0.0, high=60.0)
    spare: float = knob(0.9, "busy share that instances must stay below after a scale-down", low=0.1, high=1.0)
    uneven: float = knob(0.8, "skew: back-pressure at a busy share below this", low=0.0, high=1.0)
    slow: float = knob(0.5, "slow: a true rate below this part of the best one", low=0.0, high=1.0)
    blacklist: float = knob(0.5, "share of failed tries above which a diagnosis is blacklisted", low=0.0, high=1.0)
    tries: int = knob(2, "tries before anything is blacklisted", low=1, high=100)
    scale_sources: bool = knob(True, "scale sources as well", choices=(True, False))

    def init(self, topology: Topology, seed: int = 0) -> DhalionState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return DhalionState(topology)

    def step(self, state: DhalionState, snapshot: Snapshot) -> tuple[DhalionState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t
        if state.windows and state.windows[-1].deployment != now:
            state = state._replace(windows=(), looked_at=t - snapshot.window_s)
        state = state._replace(windows=(*state.windows, snapshot), best=self._best(state.best, snapshot))
        due = state.looked_at + (
            self.cooldown_s if state.action and state.action.before != now else self.decision_interval_s
        )
        if t < due - 1e-6:
            return state, Decision(now, {"rule": f"looks again at t = {due:g} s"})
        calm = tuple(s for s in whole_epochs(state.windows, self.decision_interval_s) if not s.downtime_s)
        since = t - max(self.decision_interval_s, _LONGEST_EPOCHS_S)
        state = state._replace(windows=tuple(s for s in state.windows if s.t > since), looked_at=t)
        if not calm:
            return state, Decision(now, {"rule": "nothing measured"})
        pressed = self.pressures(state.topology, calm)
        state, helped = self._judge(state, calm, pressed, now)
        why: dict[str, Any] = {"back-pressure": {n: round(p, 4) for n, p in pressed.items() if p}, **helped}
        found = self._diagnose(state, calm, pressed)
        if found is None:
            return state, Decision(now, {**why, "diagnosis": "healthy"})
        diagnosis, name = found
        why["diagnosis"] = f"{diagnosis}: {name}"
        if diagnosis not in (UP, DOWN):
            return state, Decision(now, {**why, "resolver": f"none: {_UNRESOLVED[diagnosis]}"})
        k = now.parallelism[name]
        wanted = (
            scale_up(k, pressed[name], self.max_growth)
            if diagnosis == UP
            else math.floor(k * (1 - self.scale_in_share) + 1e-9)
        )
        target = now.scaled(state.topology.clip({name: wanted}))
        if target != now:
            state = state._replace(action=PendingAction(diagnosis, name, now, pressed[name], _rate(calm, name), t))
        return state, Decision(target, why)

    def pressures(self, topology: Topology, calm: tuple[Snapshot, ...]) -> dict[str, float]:
        """Return the share of the time in which each operator blocks its upstream operators; 0 below the noise.

        Parameters
        ----------
        topology : Topology
            The operators.
        calm : tuple of Snapshot
            Windows without downtime.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.star().simulator()
        >>> sorted(Dhalion().pressures(job.topology, (job.observe(),))) == sorted(job.topology.order)
        True
        """
        found = {}
        for name in topology.order:
            shares = [p for s in calm if (p := self._pressure(topology, s, name)) is not None]
            share = fmean(shares) if shares else 0.0
            found[name] = share if share > self.min_back_pressure else 0.0
        loaded = {name: self._loaded(calm, name) for name, share in found.items() if share}
        idle_up_to = 1.0 if any(loaded.values()) else self.base_back_pressure
        found |= {name: 0.0 for name, full in loaded.items() if not full and found[name] <= idle_up_to}
        for source in topology.sources:
            if held := self._held(topology, calm, source):
                starter, share = held
                found[source], found[starter] = 0.0, max(found[starter], share)
            elif found[source] and not self._busy(calm, source):
                found[source] = 0.0  # the engine paces it
        return found

    def _loaded(self, calm: tuple[Snapshot, ...], name: str) -> bool:
        """Return whether an operator is busy, or records wait at it as a rule."""
        metrics = [m for s in calm if (m := s.operators.get(name)) is not None]
        return bool(metrics) and (self._busy(calm, name) or 2 * sum(map(self._waits, metrics)) > len(metrics))

    def _busy(self, calm: tuple[Snapshot, ...], name: str) -> bool:
        """Return whether the busiest instance of an operator has hardly any time left."""
        shares = [_busiest(m) for s in calm if (m := s.operators.get(name)) is not None]
        return bool(shares) and fmean(shares) >= self.uneven

    def _waits(self, m: OperatorMetrics) -> bool:
        return m.backlog > self.idle_s * (m.true_rate or math.inf) * m.parallelism

    def _held(self, topology: Topology, calm: tuple[Snapshot, ...], source: str) -> tuple[str, float] | None:
        """Return the operator that stops an idle source whose log grows, and the share of the input not taken."""
        metrics = [m for s in calm if (m := s.operators.get(source)) is not None]
        if not metrics:
            return None
        offered, taken = fmean(m.input_rate for m in metrics), fmean(m.processing_rate for m in metrics)
        share = 1 - taken / offered if offered > 0 else 0.0
        share -= fmean(m.blocked or 0.0 for m in metrics)  # which is attributed where it comes from
        waits = metrics[-1].backlog > self.idle_s * offered
        if share <= self.min_back_pressure or not waits or fmean(map(_busiest, metrics)) >= self.uneven:
            return None
        below, busy = [source], dict[str, float]()
        for name in below:
            below += [n for n in topology.downstream(name) if n not in below]
            seen = [m for s in calm if (m := s.operators.get(name)) is not None]
            if name != source and seen:
                busy[name] = fmean(map(_busiest, seen))
        return (max(busy, key=lambda n: busy[n]), share) if busy else None

    def _pressure(self, topology: Topology, s: Snapshot, name: str) -> float | None:
        m, parents = s.operators.get(name), topology.upstream(name)
        if m is None or (not parents and not self.scale_sources):
            return None
        held = [p.blocked for u in parents if (p := s.operators.get(u)) is not None and p.blocked is not None]
        mine = m.blocked or 0.0
        behind = 1 - m.processing_rate / m.input_rate if m.input_rate > m.processing_rate > 0 else 0.0
        left = behind if self._waits(m) else 0.0
        if parents and held and max(held) > left:
            left = max(held)
        return max(0.0, left - mine) if mine < 1 else 0.0  # back-pressure from downstream is attributed there

    def _diagnose(
        self, state: DhalionState, calm: tuple[Snapshot, ...], pressed: Mapping[str, float]
    ) -> tuple[str, str] | None:
        """Return the diagnosis and its operator; one that can be acted on comes before the others."""
        reported: tuple[str, str] | None = None
        for name in reversed(state.topology.order):
            if not pressed[name]:
                continue
            if (other := self._other(state, calm, name)) is not None:
                reported = reported or (other, name)
            elif not self._blacklisted(state, UP, name):
                return UP, name
        if any(pressed.values()):
            return reported
        idle = [n for n in state.topology.order if self._idle(state, calm, n)]
        return (DOWN, max(idle, key=lambda n: calm[-1].deployment.parallelism[n])) if idle else None

    def _other(self, state: DhalionState, calm: tuple[Snapshot, ...], name: str) -> str | None:
        """Return the diagnosis if back-pressure is not due to too few instances."""
        metrics = [m for s in calm if (m := s.operators.get(name)) is not None]
        rates = [m.true_rate for m in metrics if m.true_rate]
        single = metrics[-1].instances or ()
        speeds = [i.processing_rate / i.utilisation for i in single if i.utilisation and i.processing_rate]
        best = max(speeds) if speeds else state.best.get(name, 0.0)
        if rates and (min(speeds) if speeds else fmean(rates)) < self.slow * best:
            return SLOW
        alone = metrics[-1].parallelism == 1
        level = bool(single) and fmean(map(_busiest, metrics)) < self.uneven  # no instance is full
        return SKEW if not alone and not level and fmean(m.utilisation for m in metrics) < self.uneven else None

    def _idle(self, state: DhalionState, calm: tuple[Snapshot, ...], name: str) -> bool:
        """Return whether almost nothing waits, and fewer instances would suffice for the input."""
        k = calm[-1].deployment.parallelism[name]
        fewer = max(state.topology[name].min_parallelism, math.floor(k * (1 - self.scale_in_share) + 1e-9))
        metrics = [s.operators.get(name) for s in calm]
        source = not state.topology.upstream(name)
        if fewer >= k or None in metrics or (source and not self.scale_sources) or self._blacklisted(state, DOWN, name):
            return False
        seen = [m for m in metrics if m is not None]
        waits = any(m.backlog > self.idle_s * (m.true_rate or 0.0) * k + 1 for m in seen)
        return not waits and max(m.utilisation for m in seen) * k / fewer < self.spare

    def _judge(
        self, state: DhalionState, calm: tuple[Snapshot, ...], pressed: Mapping[str, float], now: Deployment
    ) -> tuple[DhalionState, dict[str, Any]]:
        """Record whether the last action helped: less back-pressure or more output; after a scale-down, none."""
        if (a := state.action) is None or a.before == now:
            return state._replace(action=None), {}
        gone = pressed[a.operator] < a.pressure - _TRACE or _rate(calm, a.operator) > 1.05 * a.rate
        helped = gone if a.diagnosis == UP else not pressed[a.operator]
        key = (a.diagnosis, a.operator)
        tries, failed = state.tried.get(key, (0, 0))
        counted = FrozenMap({**state.tried, key: (tries + 1, failed + (not helped))})
        return state._replace(action=None, tried=counted), {"last action": "helped" if helped else "did not help"}

    def _blacklisted(self, state: DhalionState, diagnosis: str, name: str) -> bool:
        tries, failed = state.tried.get((diagnosis, name), (0, 0))
        return tries >= self.tries and failed > self.blacklist * tries

    def _best(self, best: Mapping[str, float], snapshot: Snapshot) -> Mapping[str, float]:
        rates = {n: m.true_rate for n, m in snapshot.operators.items() if m.true_rate}
        return FrozenMap({**best, **{n: max(r, best.get(n, 0.0)) for n, r in rates.items()}})


def _busiest(m: OperatorMetrics) -> float:
    """Return the busy share of the busiest instance, or of all if single ones are not known."""
    return max((i.utilisation for i in m.instances or ()), default=m.utilisation)


def _rate(calm: tuple[Snapshot, ...], name: str) -> float:
    done = [m.processing_rate for s in calm if (m := s.operators.get(name)) is not None]
    return fmean(done) if done else 0.0
