"""No elasticity: what runs stays, or a fixed parallelism is set once. The baseline of every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..core import Decision, Deployment, Snapshot, Topology
from ..frozen import FrozenMap
from ..knobs import Knobs


@dataclass(frozen=True)
class Static(Knobs):
    """Keep what runs, so that a person may steer.

    Operators named in `parallelism` are brought to that and held there.
    """

    name: ClassVar[str] = "static"
    parallelism: Mapping[str, int] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parallelism", Deployment(self.parallelism).parallelism)  # checked

    def init(self, topology: Topology, seed: int = 0) -> None:
        """No state; unknown names and parallelism out of bounds are refused here, before anything runs."""
        smallest = {o.name: o.min_parallelism for o in topology.operators}
        topology.check(Deployment(smallest | dict(self.parallelism)))

    def step(self, state: None, snapshot: Snapshot) -> tuple[None, Decision]:
        target = snapshot.deployment.scaled(self.parallelism)
        rule = "holds its parallelism" if self.parallelism else "keeps what runs"
        return None, Decision(target, {"rule": rule})
