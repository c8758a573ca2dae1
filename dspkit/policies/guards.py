"""Guards that wrap any policy (bounds, a cooldown, a budget of changes), and `Predictive`, which makes it proactive.

A guard permits the inner policy's decision as far as its rule allows. The inner policy is called in every window, so
that it continues to learn; like every policy it must read the present deployment from the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    FrozenMap,
    KnobError,
    Policy,
    PolicyKnobs,
    Snapshot,
    Topology,
    knob,
)
from ..core.policy import needs_of
from ..forecasting import Predictor
from ..forecasting.proactive import SourceForecast, as_if


@dataclass(frozen=True)
class _Wrapper(PolicyKnobs):
    """Base class of policies that wrap another one."""

    paper_run_s: ClassVar[float] = 1200.0
    policy: Policy

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.policy, type) or not isinstance(self.policy, Policy):
            raise ArgumentError(
                f"policy {self.policy!r}", expected="an instance of a policy", fix="as in Cooldown(DS2())"
            )

    @property
    def name(self) -> str:
        """The guard's name, with that of the inner policy."""
        return f"{type(self).__name__.lower()}({self.policy.name})"

    @property
    def needs(self) -> frozenset[str]:
        """The needs of the inner policy."""
        return needs_of(self.policy)

    @property
    def reference(self) -> Any:
        """The references of the inner policy."""
        return getattr(self.policy, "reference", ())


@dataclass(frozen=True)
class Bounded(_Wrapper):
    """Keep the parallelism of every operator between `min_parallelism` and `max_parallelism`.

    The topology's own bounds still hold.

    Parameters
    ----------
    policy : Policy
        The inner policy.
    min_parallelism, max_parallelism : int
        The bounds.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> run(Bounded(DS2(), max_parallelism=2), apps.word_count(), steps=2)[-1].snapshot.deployment.instances
    6
    """

    min_parallelism: int = knob(1, "least parallelism of an operator", low=1, high=4096)
    max_parallelism: int = knob(64, "greatest parallelism of an operator", low=1, high=4096)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_parallelism > self.max_parallelism:
            raise KnobError(
                f"min_parallelism={self.min_parallelism}, max_parallelism={self.max_parallelism}",
                expected="min_parallelism <= max_parallelism",
                fix="swap them",
            )

    def init(self, topology: Topology, seed: int = 0) -> Any:
        """Return the initial state, as described in `dspkit.Policy`."""
        return topology, self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        topology, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        wanted: Mapping[str, int] = decision.deployment.parallelism
        bounded = topology.clip({n: min(max(k, self.min_parallelism), self.max_parallelism) for n, k in wanted.items()})
        if bounded != wanted:
            cut = {n: wanted[n] for n in wanted if wanted[n] != bounded[n]}
            decision = Decision(decision.deployment.scaled(bounded), {**decision.why, "wanted beyond bounds": cut})
        return (topology, inner), decision


class _ChangeHistory(NamedTuple):
    """The changes that a guard knows of, its own and others': their times, and the one being made."""

    running: Deployment | None = None
    times: tuple[float, ...] = ()
    own_change: tuple[Deployment, float] | None = None  # the guard's last change and its time, as it may appear late

    def look(self, snapshot: Snapshot) -> _ChangeHistory:
        times, now = self.times, snapshot.deployment
        if self.running is not None and now != self.running:
            mine = self.own_change is not None and self.own_change[0] == now
            # A change from outside that appears now was made when this window began.
            times = (*times, self.own_change[1] if mine and self.own_change else snapshot.t - snapshot.window_s)
        return _ChangeHistory(now, times, self.own_change)

    def ask(self, decision: Decision, snapshot: Snapshot) -> _ChangeHistory:
        if decision.deployment == snapshot.deployment:
            return self
        return self._replace(own_change=(decision.deployment, snapshot.t))


@dataclass(frozen=True)
class _Timed(_Wrapper):
    """A guard whose rule depends on the times of changes."""

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        """Return the times that still matter at `t`, and the reason to withhold a change; "" if there is none."""
        raise NotImplementedError(f"{type(self).__name__} must define _rule(times, t)")

    def init(self, topology: Topology, seed: int = 0) -> Any:
        """Return the initial state, as described in `dspkit.Policy`."""
        return _ChangeHistory(), self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        seen, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        seen = seen.look(snapshot)
        times, rule = self._rule(seen.times, snapshot.t)
        if rule and decision.deployment != snapshot.deployment:
            decision = Decision(snapshot.deployment, {**decision.why, "withheld": rule})
        return (seen._replace(times=times).ask(decision, snapshot), inner), decision


@dataclass(frozen=True)
class Cooldown(_Timed):
    """Make no change within `cooldown_s` seconds of the last one, including changes from outside.

    Parameters
    ----------
    policy : Policy
        The inner policy.
    cooldown_s : float
        Time after a change.

    Examples
    --------
    >>> from dspkit.policies.ds2 import DS2
    >>> Cooldown(DS2(), cooldown_s=120).name
    'cooldown(ds2)'
    """

    cooldown_s: float = knob(
        60.0, "time after a change in which none is made", low=0.0, high=86_400.0, unit="s", pace="duration"
    )

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        last = times[-1:]
        rests = bool(last) and t - last[0] < self.cooldown_s
        return last, f"rests until t = {last[0] + self.cooldown_s:g} s" if rests else ""


@dataclass(frozen=True)
class RescaleBudget(_Timed):
    """Make at most `changes` changes in any `budget_period_s` seconds, including changes from outside.

    Parameters
    ----------
    policy : Policy
        The inner policy.
    changes : int
        Number of changes.
    budget_period_s : float
        Length of the period.

    Examples
    --------
    >>> from dspkit.policies.ds2 import DS2
    >>> RescaleBudget(DS2(), changes=2).name
    'rescalebudget(ds2)'
    """

    changes: int = knob(3, "changes allowed in a period", low=0, high=10_000)
    budget_period_s: float = knob(600.0, "length of the period", low=1.0, high=86_400.0, unit="s", pace="duration")

    def _rule(self, times: tuple[float, ...], t: float) -> tuple[tuple[float, ...], str]:
        spent = tuple(x for x in times if t - x < self.budget_period_s)
        return spent, f"{self.changes} changes in {self.budget_period_s:g} s are spent" if len(
            spent
        ) >= self.changes else ""


class _Past(NamedTuple):
    """The past of each source, and the state of the inner policy."""

    topology: Topology
    outlooks: Mapping[str, SourceForecast]
    inner: Any


@dataclass(frozen=True)
class Predictive(_Wrapper):
    """Make a policy proactive: it decides on the window as it would look under the greatest load expected soon.

    The rates of each source are recorded and predicted separately; as in ELYSIUM, the greatest of the next `ahead`
    windows counts. Until there are `min_windows` windows the policy reads the measured window.

    Parameters
    ----------
    policy : Policy
        The inner policy.
    predictor : Predictor
        The predictor of the load.
    ahead, memory, min_windows, relearn, factor, bound, never_below
        Knobs, which describe themselves.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue
    >>> from dspkit.policies.ds2 import DS2
    >>> Predictive(DS2(), LastValue()).name
    'predictive(ds2, last value)'
    """

    predictor: Predictor
    ahead: int = knob(5, "windows to look ahead", low=1, high=120, source="ELYSIUM's 5 minutes")
    memory: int = knob(240, "number of last windows to learn from", low=10, high=10_080)
    min_windows: int = knob(20, "windows before the first forecast", low=2, high=10_080)
    relearn: int = knob(10, "windows from one learning to the next", low=1, high=10_080)
    factor: float = knob(1.0, "factor of the forecast; 1.2 in ELYSIUM's prototype", low=0.1, high=5.0)
    bound: str = knob("mean", "whether the mean or the upper end of the forecast counts", choices=("mean", "high"))
    never_below: bool = knob(True, "use at least the present load", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.predictor, type) or not isinstance(self.predictor, Predictor):
            got = f"predictor {self.predictor!r}"
            raise ArgumentError(
                got, expected="an instance of a predictor", fix="as in Predictive(DS2(), AutoRegression())"
            )

    @property
    def name(self) -> str:
        """The guard's name, with those of policy and predictor."""
        return f"predictive({self.policy.name}, {self.predictor.name})"

    @property
    def reference(self) -> Any:
        """The references of policy and predictor."""
        keys = (getattr(thing, "reference", ()) for thing in (self.policy, self.predictor))
        return tuple(dict.fromkeys(k for key in keys for k in ((key,) if isinstance(key, str) else key)))

    def init(self, topology: Topology, seed: int = 0) -> Any:
        """Return the initial state, as described in `dspkit.Policy`."""
        outlooks = FrozenMap({source: SourceForecast() for source in topology.sources})
        return _Past(topology, outlooks, self.policy.init(topology, seed))

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        outlooks, expected = {}, {}
        for source in state.topology.sources:
            rate = snapshot.source_rates.get(source)
            outlook = state.outlooks[source].see(rate, snapshot, self.memory)
            outlook = outlook.learn(self.predictor, self.min_windows, self.relearn)
            if rate is not None and len(outlook.rates) >= self.min_windows:
                forecast = outlook.forecast(self.predictor, self.ahead)
                soon = self.factor * float((forecast.high if self.bound == "high" else forecast.mean).max())
                expected[source] = max(soon, rate) if self.never_below else soon
            outlooks[source] = outlook
        seen = as_if(state.topology, snapshot, expected)
        inner, decision = self.policy.step(state.inner, seen)
        if expected:
            soon_by_source = {source: round(rate, 3) for source, rate in expected.items()}
            decision = Decision(decision.deployment, {**decision.why, "expected source rate": soon_by_source})
        return _Past(state.topology, FrozenMap(outlooks), inner), decision
