"""No elasticity: the deployment is kept, or a fixed parallelism is set once. The baseline of every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..core import Decision, Deployment, FrozenMap, PolicyKnobs, Snapshot, Topology


@dataclass(frozen=True)
class Static(PolicyKnobs):
    """Keep the deployment, so that it can be controlled manually.

    Parameters
    ----------
    parallelism : mapping
        Fixed number of instances by operator; other operators keep theirs.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(Static({"count": 2}), apps.word_count(), steps=2)[-1].snapshot.deployment.parallelism["count"]
    2
    """

    name: ClassVar[str] = "static"
    needs: ClassVar[frozenset[str]] = frozenset()
    parallelism: Mapping[str, int] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parallelism", Deployment(self.parallelism).parallelism)  # checked
        if self.parallelism:
            object.__setattr__(self, "needs", frozenset({"parallelism"}))

    def init(self, topology: Topology, seed: int = 0) -> None:
        """Return no state; unknown names and a parallelism out of bounds are rejected before the run."""
        smallest = {o.name: o.min_parallelism for o in topology.operators}
        topology.check(Deployment(smallest | dict(self.parallelism)))

    def step(self, state: None, snapshot: Snapshot) -> tuple[None, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        target = snapshot.deployment.scaled(self.parallelism)
        rule = "holds its parallelism" if self.parallelism else "keeps what runs"
        return None, Decision(target, {"rule": rule})
