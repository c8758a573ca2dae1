"""Joint scaling: a new node comes with every scale-out of an operator; what ELYSIUM is compared with [elysium].

Each assessment, from what was measured: an operator whose instances use more than `core_max` of a core gets one more,
one below `core_min` gives one back. If any grew, one node comes, however many grew; only if none changed, nodes come or
go by themselves: one more if some node uses more than `cpu_max`, one fewer if every node uses less than `cpu_min`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

from ..core import Decision, Snapshot, Topology
from ..errors import KnobError
from ..knobs import Knobs, knob
from ..profile.samples import cores
from ._minute import Minute


class State(NamedTuple):
    topology: Topology
    minute: Minute = Minute()


@dataclass(frozen=True)
class Joint(Knobs):
    """One instance more or fewer by its use of a core; a node comes with each growth, and goes when all nodes idle."""

    name: ClassVar[str] = "joint"
    reference: ClassVar[str] = "elysium"
    core_min: float = knob(0.25, "below it an instance idles", low=0.0, high=0.9, source="ELYSIUM's", line="busy")
    core_max: float = knob(
        0.65, "above it an instance is in stress", low=0.1, high=1.0, source="ELYSIUM's", line="busy"
    )
    cpu_min: float = knob(0.40, "below it a node idles", low=0.0, high=0.9, source="the authors' prototype")
    cpu_max: float = knob(0.80, "above it a node is in stress", low=0.1, high=1.0, source="ELYSIUM's")
    assess_s: float = knob(60.0, "time between assessments", low=1.0, high=3600.0, unit="s", source="ELYSIUM's")
    mean_over_s: float = knob(60.0, "what is measured is a mean over this", low=1.0, high=3600.0, unit="s")
    nodes: int = knob(4, "nodes there are, where the job tells a number of workers", low=1, high=500, source="4")

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in (("core_min", "core_max"), ("cpu_min", "cpu_max")):
            a, b = getattr(self, low), getattr(self, high)
            if a >= b:
                raise KnobError(f"{low}={a}, {high}={b}", expected=f"{low} < {high}", fix="move them apart")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        state = state._replace(minute=state.minute.see(snapshot, self.mean_over_s))
        now = snapshot.deployment
        if (decided := state.minute.due(self.assess_s)) is None:
            return state, Decision(now, {"rule": "measures"})
        wanted, used, minute = dict(now.parallelism), dict[str, float](), decided
        for name in state.topology.order:
            u = minute.mean(partial(_core_use, name))
            if u is not None:
                used[name] = round(u, 4)
                wanted[name] += (u > self.core_max) - (u < self.core_min)
        wanted = state.topology.clip(wanted)
        grew = [n for n, k in wanted.items() if k > now.parallelism[n]]
        target, why = now.scaled(wanted), {"core use": used, "node use": {}}
        shares = {n: u for n in snapshot.nodes if (u := minute.mean(partial(_node_use, n))) is not None}
        count = now.workers if now.workers is not None else len(minute.nodes)
        if now.workers is not None or count > 1:
            most = max(count, len(minute.available(self.nodes)))
            why["node use"] = {n: round(u, 4) for n, u in shares.items()}
            if grew or (target == now and shares and max(shares.values()) > self.cpu_max):
                target = replace(target, workers=min(most, count + 1))
            elif target == now and shares and max(shares.values()) < self.cpu_min:
                target = replace(target, workers=max(1, count - 1))
        return state._replace(minute=minute), Decision(target, why)


def _core_use(operator: str, s: Snapshot) -> float | None:
    """The share of its core that an instance uses."""
    m = s.operators.get(operator)
    return None if m is None else cores(m) / m.parallelism


def _node_use(node: str, s: Snapshot) -> float | None:
    return s.nodes.get(node)
