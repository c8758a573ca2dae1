"""Storm's default when machines join or leave: everybody is dealt out anew; which machines leave is drawn by lot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment
from ..etp import rebalance, without
from ..knobs import knob
from .on_demand import OnDemand, Situation


@dataclass(frozen=True)
class Rebalance(OnDemand):
    """On request, forget all places and deal all instances over all machines in turn, as Storm does by default.

    No instance is made. Machines that leave are drawn at random, all alike, from the run's seed.
    """

    name: ClassVar[str] = "rebalance"
    deal: str = knob(
        "all",
        "when machines leave: who is dealt anew, all or only those whose machine goes",
        choices=("all", "moved"),
    )
    draw: int = knob(0, "which random draw of machines that leave", low=0, high=2**31 - 1)

    def out(self, now: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        places = rebalance(now.topology, now.deployment.parallelism, [*now.machines, *new])
        moved = sum(places[i] != m for i, m in now.placement.items())
        return replace(now.deployment, placement=places), {"rule": "deal all in turn", "instances moved": moved}

    def into(self, now: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        import numpy as np

        seed = now.seed if isinstance(now.seed, list) else [now.seed]
        drawn = np.random.default_rng([*seed, self.draw]).choice(len(now.machines), count, replace=False)
        leaving = [now.machines[i] for i in sorted(drawn.tolist())]
        places = without(now.topology, now.placement, leaving, now.machines, deal=self.deal)
        moved = sum(places[i] != m for i, m in now.placement.items())
        return replace(now.deployment, placement=places), {"leave, by lot": leaving, "instances moved": moved}
