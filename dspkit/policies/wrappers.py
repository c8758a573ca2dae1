"""Guards around any policy: bounds, a rest after each change, a budget of changes.

Each takes what the inner policy wants and lets through what its rule allows. The inner policy is asked in every
window, so it goes on learning; it must read what really runs from the snapshot, as every policy does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core import Decision, Policy, Snapshot, Topology
from ..errors import KnobError
from ..knobs import Knobs, knob


@dataclass(frozen=True)
class _Wrapper(Knobs):
    policy: Policy

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()}({self.policy.name})"

    @property
    def reference(self) -> Any:
        return getattr(self.policy, "reference", ())


def _held(decision: Decision, snapshot: Snapshot, rule: str) -> Decision:
    return Decision(snapshot.deployment, {**decision.why, "held back": rule})


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


@dataclass(frozen=True)
class Cooldown(_Wrapper):
    """No change within `rest_s` seconds of the last one, whoever made it."""

    rest_s: float = knob(60.0, "rest after a change", low=0.0, high=86_400.0, unit="s")

    def init(self, topology: Topology, seed: int = 0) -> Any:
        return None, None, self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        seen, changed_at, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        start = snapshot.t - snapshot.window_s  # a change seen now was made when this window began
        if seen is not None and snapshot.deployment != seen:
            changed_at = start
        wants = decision.deployment != snapshot.deployment
        if wants and changed_at is not None and snapshot.t - changed_at < self.rest_s:
            decision = _held(decision, snapshot, f"rests until t = {changed_at + self.rest_s:g} s")
        return (snapshot.deployment, changed_at, inner), decision


@dataclass(frozen=True)
class RescaleBudget(_Wrapper):
    """At most `changes` changes in any `period_s` seconds."""

    changes: int = knob(3, "changes allowed in a period", low=0, high=10_000)
    period_s: float = knob(600.0, "length of the period", low=1.0, high=86_400.0, unit="s")

    def init(self, topology: Topology, seed: int = 0) -> Any:
        return (), self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        spent, inner = state
        inner, decision = self.policy.step(inner, snapshot)
        spent = tuple(t for t in spent if snapshot.t - t < self.period_s)
        if decision.deployment != snapshot.deployment:
            if len(spent) >= self.changes:
                rule = f"{self.changes} changes in {self.period_s:g} s are spent"
                decision = _held(decision, snapshot, rule)
            else:
                spent = (*spent, snapshot.t)
        return (spent, inner), decision
