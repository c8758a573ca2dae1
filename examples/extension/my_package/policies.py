"""A policy that adds one instance to every operator that is too busy."""

from __future__ import annotations

from dataclasses import dataclass

from dspkit import Decision, Snapshot, Topology
from dspkit.core import Knobs, knob


@dataclass(frozen=True)
class OneMore(Knobs):
    """Add one instance to every operator that is too busy."""

    name = "one_more"
    scale_out_above: float = knob(0.8, "busy share above which an operator grows", low=0.1, high=1.0)

    def init(self, topology: Topology, seed: int = 0) -> Topology:
        """Return the state before the first step: the graph."""
        return topology

    def step(self, topology: Topology, snapshot: Snapshot) -> tuple[Topology, Decision]:
        """Return the next state and the decision. An operator without metrics is not in `snapshot.operators`."""
        busy = {name for name, m in snapshot.operators.items() if m.utilisation > self.scale_out_above}
        wanted = {name: k + (name in busy) for name, k in snapshot.deployment.parallelism.items()}
        return topology, Decision(snapshot.deployment.scaled(topology.clip(wanted)), {"busy": sorted(busy)})
