"""A template of policies: copy this file to policies/<your policy>.py and change it; no registration is needed.

It is a complete policy, which adds an instance to an operator that is too busy, and removes one from an idle operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core import Decision, PolicyKnobs, Snapshot, Topology, knob


@dataclass(frozen=True)
class Template(PolicyKnobs):
    """The first sentence describes the algorithm; notebooks show it.

    Each knob becomes a slider: its default, one sentence of help, and its range.
    """

    name: ClassVar[str] = "template"  # the name that users choose it by; lower case
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})  # fields that a backend must be able to change
    # reference: ClassVar[str] = "key"  # the paper's key in references.bib
    scale_out_above: float = knob(
        0.8, "above this busy share an operator gets one more instance", low=0.1, high=1.0, line="busy"
    )
    scale_in_below: float = knob(0.3, "below this busy share it gives one back", low=0.0, high=0.9, line="busy")

    def init(self, topology: Topology, seed: int = 0) -> Topology:
        """Return the initial state: all that `step` must remember, here the topology; use a NamedTuple for more."""
        return topology

    def step(self, state: Topology, snapshot: Snapshot) -> tuple[Topology, Decision]:
        """Return the next state and the decision. Pure: no clock, no global state, no randomness outside the state."""
        parallelism = dict(snapshot.deployment.parallelism)
        for name, metrics in snapshot.operators.items():
            parallelism[name] += (metrics.utilisation > self.scale_out_above) - (
                metrics.utilisation < self.scale_in_below
            )
        target = snapshot.deployment.scaled(state.clip(parallelism))  # whole numbers within the operators' bounds
        return state, Decision(target, {"busy": {n: m.utilisation for n, m in snapshot.operators.items()}})
