"""The automatic scaling of Amazon Managed Service for Apache Flink: the whole job by its greatest CPU use.

If the greatest CPU use is at 75 % or more for 15 minutes, the parallelism doubles; if it is below 10 % for six hours,
it is halved, but never below the one that the job began with [aws_managed_flink]. A container is a node, or the fullest
instance, whichever uses more (`signal`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..core import Decision, Deployment, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ._measurements import fullest, signal_knob

_SAME = 1e-6  # tolerance of times


class ManagedFlinkState(NamedTuple):
    """The deployment that the job began with, and since when its CPU is high, or low."""

    topology: Topology
    first: Mapping[str, int] = FrozenMap()
    last_deployment: Deployment | None = None
    high_since_s: float = math.inf
    low_since_s: float = math.inf


@dataclass(frozen=True)
class ManagedFlink(PolicyKnobs):
    """Double the parallelism of all operators after 15 minutes at 75 % CPU; halve it after six hours below 10 %."""

    name: ClassVar[str] = "managed_flink"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "aws_managed_flink"
    paper_run_s: ClassVar[float] = 86_400.0
    scale_out_above: float = knob(0.75, "CPU use from which on the job is too small", low=0.05, high=1.0, source="75 %")
    scale_in_below: float = knob(0.1, "CPU use below which it is too large", low=0.0, high=0.95, source="10 %")
    scale_out_after_s: float = knob(
        900.0, "time at high use until it grows", low=0.0, high=86_400.0, unit="s", pace="duration", source="15 minutes"
    )
    scale_in_after_s: float = knob(
        21_600.0,
        "time at low use until it shrinks",
        low=0.0,
        high=864_000.0,
        unit="s",
        pace="duration",
        source="6 hours",
    )
    signal: str = signal_knob()

    def init(self, topology: Topology, seed: int = 0) -> ManagedFlinkState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return ManagedFlinkState(topology)

    def step(self, state: ManagedFlinkState, snapshot: Snapshot) -> tuple[ManagedFlinkState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, began = snapshot.deployment, snapshot.t - snapshot.window_s
        if state.last_deployment is None:
            state = state._replace(first=FrozenMap(now.parallelism))
        if now != state.last_deployment:
            state = state._replace(last_deployment=now, high_since_s=math.inf, low_since_s=math.inf)
        use = self._use(snapshot)
        if use is None:
            return state, Decision(now, {"no data": True})
        high = min(state.high_since_s, began) if use >= self.scale_out_above else math.inf
        low = min(state.low_since_s, began) if use < self.scale_in_below else math.inf
        state = state._replace(high_since_s=high, low_since_s=low)
        target = now
        if snapshot.t - high >= self.scale_out_after_s - _SAME:
            target = now.scaled(state.topology.clip({n: 2 * k for n, k in now.parallelism.items()}))
        elif snapshot.t - low >= self.scale_in_after_s - _SAME:
            halves = {n: max(state.first.get(n, 1), k // 2) for n, k in now.parallelism.items()}
            target = now.scaled(state.topology.clip({n: min(k, now.parallelism[n]) for n, k in halves.items()}))
        return state, Decision(target, {"greatest CPU use": use})

    def _use(self, snapshot: Snapshot) -> float | None:
        if snapshot.nodes and self.signal == "cpu":
            return max(snapshot.nodes.values())
        nodes = snapshot.nodes.values() if self.signal == "auto" else ()
        found = [*nodes] + [x for m in snapshot.operators.values() if (x := fullest(m, self.signal)) is not None]
        return max(found, default=None)
