"""Guards around any policy: bounds, a rest after each change, a budget of changes; and a look ahead, `Predictive`.

Guards take what the inner policy wants and let through what their rule allows. The inner policy is asked in every
window, so it goes on learning; it must read what really runs from the snapshot, as every policy does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core import Decision, Deployment, Policy, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..predict.base import Predictor
from ..predict.proactive import Outlook, as_if


@dataclass(frozen=True)
class _Wrapper(Knobs):
    policy: Policy

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.policy, type) or not isinstance(self.policy, Policy):
            raise KnobError(f"policy {self.policy!r}", expected="a policy that is made", fix="as in Cooldown(DS2())")

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()}({self.policy.name})"

    @property
    def reference(self) -> Any:
        return getattr(self.policy, "reference", ())


@dataclass(frozen=True)
class Bounded(_Wrapper):
    """Parallelism between `low` and `high`, for every operator alike; the topology's own bounds still hold."""

    low: int = knob(1, "least parallelism of an operator", low=1, high=4096)
    high: int = knob(64, "greatest parallelism of an operator", low=1, high=4096)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise KnobError(f"low={self.low}, high={self.high}", expected="low <= high", fix="swap them")

    def init(self, topology: Topology, seed: int = 0) -> Any:
        return topology, self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        topology, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        wanted: Mapping[str, int] = decision.deployment.parallelism
        bounded = topology.clip({n: min(max(k, self.low), self.high) for n, k in wanted.items()})
        if bounded != wanted:
            cut = {n: wanted[n] for n in wanted if wanted[n] != bounded[n]}
            decision = Decision(decision.deployment.scaled(bounded), {**decision.why, "wanted beyond bounds": cut})
        return (topology, inner), decision


class _Seen(NamedTuple):
    """What a guard knows of changes, whoever made them: when they were made, and what is being made now."""

    running: Deployment | None = None
    times: tuple[float, ...] = ()
    asked: tuple[Deployment, float] | None = None  # the guard's own last change and when, however late it shows

    def look(self, snapshot: Snapshot) -> _Seen:
        times, now = self.times, snapshot.deployment
        if self.running is not None and now != self.running:
            mine = self.asked is not None and self.asked[0] == now
            # Somebody else's change that shows now was made when this window began.
            times = (*times, self.asked[1] if mine and self.asked else snapshot.t - snapshot.window_s)
        return _Seen(now, times, self.asked)

    def ask(self, decision: Decision, snapshot: Snapshot) -> _Seen:
        if decision.deployment == snapshot.deployment:
            return self
        return self._replace(asked=(decision.deployment, snapshot.t))


@dataclass(frozen=True)
class _Timed(_Wrapper):
    """A guard whose rule looks at when changes were made."""

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        """The times that still matter at `t`, and why a change must wait; "" if it need not."""
        raise NotImplementedError(f"{type(self).__name__} must give _rule(times, t)")

    def init(self, topology: Topology, seed: int = 0) -> Any:
        return _Seen(), self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        seen, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        seen = seen.look(snapshot)
        times, rule = self._rule(seen.times, snapshot.t)
        if rule and decision.deployment != snapshot.deployment:
            decision = Decision(snapshot.deployment, {**decision.why, "held back": rule})
        return (seen._replace(times=times).ask(decision, snapshot), inner), decision


@dataclass(frozen=True)
class Cooldown(_Timed):
    """No change within `rest_s` seconds of the last one, whoever made it."""

    rest_s: float = knob(60.0, "rest after a change", low=0.0, high=86_400.0, unit="s")

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        last = times[-1:]
        rests = bool(last) and t - last[0] < self.rest_s
        return last, f"rests until t = {last[0] + self.rest_s:g} s" if rests else ""


@dataclass(frozen=True)
class RescaleBudget(_Timed):
    """At most `changes` changes in any `period_s` seconds; those that others make count as well."""

    changes: int = knob(3, "changes allowed in a period", low=0, high=10_000)
    period_s: float = knob(600.0, "length of the period", low=1.0, high=86_400.0, unit="s")

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        spent = tuple(x for x in times if t - x < self.period_s)
        return spent, f"{self.changes} changes in {self.period_s:g} s are spent" if len(spent) >= self.changes else ""


class _Past(NamedTuple):
    """What a look ahead remembers: an outlook for each source, and the inner policy's own state."""

    topology: Topology
    outlooks: Mapping[str, Outlook]
    inner: Any


@dataclass(frozen=True)
class Predictive(_Wrapper):
    """Makes any policy proactive: it decides on the window as it would look at the greatest load expected soon.

    Each source's rates are kept and predicted by themselves; as ELYSIUM does, the greatest of the next `ahead` windows
    counts. Until there are `least` windows the policy sees what is.
    """

    predictor: Predictor
    ahead: int = knob(5, "windows to look ahead", low=1, high=120, source="ELYSIUM's 5 minutes")
    memory: int = knob(240, "windows kept to learn from", low=10, high=10_080)
    least: int = knob(20, "windows before the first forecast", low=2, high=10_080)
    relearn: int = knob(10, "windows from one learning to the next", low=1, high=10_080)
    factor: float = knob(1.0, "times the forecast; ELYSIUM's prototype takes 1.2", low=0.1, high=5.0)
    bound: str = knob("mean", "which end of the forecast counts", choices=("mean", "high"))
    never_below: bool = knob(True, "never less than the load now", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.predictor, type) or not isinstance(self.predictor, Predictor):
            came = f"predictor {self.predictor!r}"
            raise KnobError(came, expected="a predictor that is made", fix="as in Predictive(DS2(), AutoRegression())")

    @property
    def name(self) -> str:
        return f"predictive({self.policy.name}, {self.predictor.name})"

    @property
    def reference(self) -> Any:
        keys = (getattr(thing, "reference", ()) for thing in (self.policy, self.predictor))
        return tuple(dict.fromkeys(k for key in keys for k in ((key,) if isinstance(key, str) else key)))

    def init(self, topology: Topology, seed: int = 0) -> Any:
        outlooks = FrozenMap({source: Outlook() for source in topology.sources})
        return _Past(topology, outlooks, self.policy.init(topology, seed))

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        outlooks, expected = {}, {}
        for source in state.topology.sources:
            rate = snapshot.source_rates.get(source)
            outlook = state.outlooks[source].see(rate, snapshot, self.memory)
            outlook = outlook.learn(self.predictor, self.least, self.relearn)
            if rate is not None and len(outlook.rates) >= self.least:
                forecast = outlook.forecast(self.predictor, self.ahead)
                soon = self.factor * float((forecast.high if self.bound == "high" else forecast.mean).max())
                expected[source] = max(soon, rate) if self.never_below else soon
            outlooks[source] = outlook
        seen = as_if(state.topology, snapshot, expected)
        inner, decision = self.policy.step(state.inner, seen)
        if expected:
            told = {source: round(rate, 3) for source, rate in expected.items()}
            decision = Decision(decision.deployment, {**decision.why, "expected source rate": told})
        return _Past(state.topology, FrozenMap(outlooks), inner), decision
