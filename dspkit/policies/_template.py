"""Copy this file to policies/<your policy>.py and change it: notebooks, sliders and tests find it by themselves.

It is a whole policy: one more instance where an operator is too busy, one fewer where it idles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core import Decision, Snapshot, Topology
from ..errors import KnobError
from ..knobs import Knobs, knob


@dataclass(frozen=True)
class Template(Knobs):
    """The first line tells the algorithm in a sentence; notebooks show it.

    Each knob becomes a slider: its default, one sentence of help, and its range.
    """

    name: ClassVar[str] = "template"  # how people pick it; lower case
    # reference: ClassVar[str] = "key"  # of the paper, in references.bib
    high: float = knob(0.8, "above this busy share an operator gets one more instance", low=0.1, high=1.0, line="busy")
    low: float = knob(0.3, "below this busy share it gives one back", low=0.0, high=0.9, line="busy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low >= self.high:
            raise KnobError(f"low={self.low}, high={self.high}", expected="low < high", fix="move them apart")

    def init(self, topology: Topology, seed: int = 0) -> Topology:
        """The first state: whatever `step` must remember. Here only the topology; use a NamedTuple for more."""
        return topology

    def step(self, state: Topology, snapshot: Snapshot) -> tuple[Topology, Decision]:
        """The next state and what shall run. Pure: no clock, no global, no randomness that is not in the state."""
        parallelism = dict(snapshot.deployment.parallelism)
        for name, metrics in snapshot.operators.items():
            parallelism[name] += (metrics.utilisation > self.high) - (metrics.utilisation < self.low)
        target = snapshot.deployment.scaled(state.clip(parallelism))  # whole numbers within the operators' bounds
        return state, Decision(target, {"busy": {n: m.utilisation for n, m in snapshot.operators.items()}})
