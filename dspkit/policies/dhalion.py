r"""Dhalion: symptoms, diagnoses, resolutions; what did not help is not tried again [floratou2017dhalion].

    | Dhalion in Heron | here |
    |---|---|
    | back-pressure time of a component, share of the interval | `pressure` |
    | noise filter of 20 ms a second | `least_pressure` |
    | ceil(n (1 + bp / (1 - bp))), the second term at most 4 | `scale_up` |
    | policy interval 1 min, wait after an action 3 min | `interval_s`, `wait_s` |
    | wait queues of instances twice as long as others, rates apart | `uneven`, `slow` |

Heron's back-pressure is put down to the component that starts it: one whose feeders are held back. Of these the last
one down the stream counts, since it holds back those above. For a source, which nobody feeds, and where nothing is held
back (endless queues), the share of what came that was not processed stands for it; with that share 1 + bp / (1 - bp) is
just what is asked over what is done. Heron's diagnosers of skew and of slow instances compare instances; a snapshot has
one number for each operator, so here *skew* is back-pressure at an operator whose instances are not all busy, and
*slow* is a true rate far below the best one seen. As in Heron's public code both are told and have no resolver.

Scaling down and the blacklist are in the paper, not in Heron's public code: no back-pressure anywhere and next to
nothing waiting means over-provisioned. The size of such a step is the user's (`down`), and so is the share of
actions without effect from which on a diagnosis of an operator is blacklisted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, Snapshot, Topology
from ..frozen import FrozenMap
from ..knobs import Knobs, knob

UP, DOWN = "under-provisioned", "over-provisioned"
_TRACE = 1e-9


class Action(NamedTuple):
    """A change whose effect is still to be judged."""

    diagnosis: str
    operator: str
    before: Deployment
    pressure: float
    rate: float  # records/s that the operator did
    at_s: float


class State(NamedTuple):
    topology: Topology
    windows: tuple[Snapshot, ...] = ()  # of the interval that goes on
    looked_at: float = 0.0
    action: Action | None = None
    tried: Mapping[tuple[str, str], tuple[int, int]] = FrozenMap()  # diagnosis and operator: tries, those without help
    best: Mapping[str, float] = FrozenMap()  # greatest true rate seen of each operator


def scale_up(running: int, pressure: float, most: float = 4.0) -> int:
    """$\\lceil n\\,(1 + bp/(1-bp)) \\rceil$ instances; no growth by more than `most` times what runs.

    >>> scale_up(4, 0.5), scale_up(3, 0.25), scale_up(2, 1.0)
    (8, 4, 10)
    """
    pressure = min(pressure, 0.999)
    return math.ceil(running * (1 + min(most, pressure / (1 - pressure))) - 1e-9)


@dataclass(frozen=True)
class Dhalion(Knobs):
    r"""One operator at a time: the one that starts back-pressure grows by $1 + bp/(1-bp)$, an idle one shrinks.

    bp is the share of the time for which it holds back what feeds it. A diagnosis whose resolution did not help, in
    more than `blacklist` of its tries, is not acted on again for that operator.
    """

    name: ClassVar[str] = "dhalion"
    reference: ClassVar[str] = "floratou2017dhalion"
    interval_s: float = knob(60.0, "time between looks", low=1.0, high=3600.0, unit="s", source="Heron: 1 min")
    wait_s: float = knob(180.0, "time after an action", low=0.0, high=3600.0, unit="s", source="Heron: 3 min")
    least_pressure: float = knob(
        0.02, "back-pressure that is no noise, share of the time", low=0.0, high=1.0, source="Heron: 20 ms a second"
    )
    most: float = knob(4.0, "growth at most, times what runs", low=0.1, high=100.0, source="Heron: 4")
    down: float = knob(0.2, "part of an over-provisioned operator's instances that goes", low=0.01, high=0.9)
    idle_s: float = knob(0.1, "work waiting, seconds of an instance's, that is next to none", low=0.0, high=60.0)
    spare: float = knob(0.9, "busy share that instances must stay below after a scale-down", low=0.1, high=1.0)
    uneven: float = knob(0.8, "skew: back-pressure where instances are busy for less", low=0.0, high=1.0)
    slow: float = knob(0.5, "slow: a true rate below this part of the best seen", low=0.0, high=1.0)
    blacklist: float = knob(0.5, "share of tries without help above which one stops trying", low=0.0, high=1.0)
    tries: int = knob(2, "tries before anything is blacklisted", low=1, high=100)
    scale_sources: bool = knob(True, "scale sources as well", choices=(True, False))

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now, t = snapshot.deployment, snapshot.t
        if state.windows and state.windows[-1].deployment != now:
            state = state._replace(windows=(), looked_at=t - snapshot.window_s)
        state = state._replace(windows=(*state.windows, snapshot), best=self._best(state.best, snapshot))
        due = state.looked_at + (self.wait_s if state.action and state.action.before != now else self.interval_s)
        if t < due - 1e-6:
            return state, Decision(now, {"rule": f"looks again at t = {due:g} s"})
        since = t - self.interval_s + 1e-6
        calm = tuple(s for s in state.windows if s.t > since and not s.downtime_s)
        state = state._replace(windows=(snapshot,), looked_at=t)
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
            return state, Decision(now, {**why, "resolver": "there is none"})
        k = now.parallelism[name]
        wanted = scale_up(k, pressed[name], self.most) if diagnosis == UP else math.floor(k * (1 - self.down) + 1e-9)
        target = now.scaled(state.topology.clip({name: wanted}))
        if target != now:
            state = state._replace(action=Action(diagnosis, name, now, pressed[name], _rate(calm, name), t))
        return state, Decision(target, why)

    def pressures(self, topology: Topology, calm: tuple[Snapshot, ...]) -> dict[str, float]:
        """Share of the time for which each operator holds back what feeds it; 0 below the noise."""
        found = {}
        for name in topology.order:
            shares = [p for s in calm if (p := self._pressure(topology, s, name)) is not None]
            share = fmean(shares) if shares else 0.0
            found[name] = share if share > self.least_pressure else 0.0
        return found

    def _pressure(self, topology: Topology, s: Snapshot, name: str) -> float | None:
        m, parents = s.operators.get(name), topology.upstream(name)
        if m is None or (not parents and not self.scale_sources):
            return None
        held = [p.blocked for u in parents if (p := s.operators.get(u)) is not None and p.blocked is not None]
        mine = m.blocked or 0.0
        behind = 1 - m.processing_rate / m.input_rate if m.input_rate > m.processing_rate > 0 else 0.0
        waits = m.backlog > self.idle_s * (m.true_rate or math.inf) * m.parallelism
        left = behind if waits else 0.0
        if parents and held and max(held) > left:
            left = max(held)
        return max(0.0, left - mine) if mine < 1 else 0.0  # what others hold back is theirs

    def _diagnose(
        self, state: State, calm: tuple[Snapshot, ...], pressed: Mapping[str, float]
    ) -> tuple[str, str] | None:
        """The diagnosis to act on and its operator."""
        for name in reversed(state.topology.order):
            if not pressed[name]:
                continue
            metrics = [m for s in calm if (m := s.operators.get(name)) is not None]
            busy = fmean(m.utilisation for m in metrics)
            rates = [m.true_rate for m in metrics if m.true_rate]
            if rates and fmean(rates) < self.slow * state.best.get(name, 0.0):
                return "slow instances", name
            if busy < self.uneven:
                return "skew", name
            if not self._blacklisted(state, UP, name):
                return UP, name
        if any(pressed.values()):
            return None
        idle = [n for n in state.topology.order if self._idle(state, calm, n)]
        return (DOWN, max(idle, key=lambda n: calm[-1].deployment.parallelism[n])) if idle else None

    def _idle(self, state: State, calm: tuple[Snapshot, ...], name: str) -> bool:
        """Next to nothing waits, and fewer instances would have room for what comes."""
        k = calm[-1].deployment.parallelism[name]
        fewer = max(state.topology[name].min_parallelism, math.floor(k * (1 - self.down) + 1e-9))
        metrics = [s.operators.get(name) for s in calm]
        source = not state.topology.upstream(name)
        if fewer >= k or None in metrics or (source and not self.scale_sources) or self._blacklisted(state, DOWN, name):
            return False
        seen = [m for m in metrics if m is not None]
        waits = any(m.backlog > self.idle_s * (m.true_rate or 0.0) * k + 1 for m in seen)
        return not waits and max(m.utilisation for m in seen) * k / fewer < self.spare

    def _judge(
        self, state: State, calm: tuple[Snapshot, ...], pressed: Mapping[str, float], now: Deployment
    ) -> tuple[State, dict[str, Any]]:
        """Whether the last action helped: less back-pressure or more done; after a scale-down, none."""
        if (a := state.action) is None or a.before == now:
            return state._replace(action=None), {}
        gone = pressed[a.operator] < a.pressure - _TRACE or _rate(calm, a.operator) > 1.05 * a.rate
        helped = gone if a.diagnosis == UP else not pressed[a.operator]
        key = (a.diagnosis, a.operator)
        tries, failed = state.tried.get(key, (0, 0))
        counted = FrozenMap({**state.tried, key: (tries + 1, failed + (not helped))})
        return state._replace(action=None, tried=counted), {"last action": "helped" if helped else "did not help"}

    def _blacklisted(self, state: State, diagnosis: str, name: str) -> bool:
        tries, failed = state.tried.get((diagnosis, name), (0, 0))
        return tries >= self.tries and failed > self.blacklist * tries

    def _best(self, best: Mapping[str, float], snapshot: Snapshot) -> Mapping[str, float]:
        rates = {n: m.true_rate for n, m in snapshot.operators.items() if m.true_rate}
        return FrozenMap({**best, **{n: max(r, best.get(n, 0.0)) for n, r in rates.items()}})


def _rate(calm: tuple[Snapshot, ...], name: str) -> float:
    done = [m.processing_rate for s in calm if (m := s.operators.get(name)) is not None]
    return fmean(done) if done else 0.0
