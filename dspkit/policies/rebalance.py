"""Storm's default when machines are added or removed: all instances are assigned again, and removals are random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment, knob
from ..etp import place_without, rebalance
from .on_demand import OnDemand, Situation


@dataclass(frozen=True)
class Rebalance(OnDemand):
    """On request, assign all instances to all machines in turn, as Storm does by default.

    No instance is added. Machines to remove are drawn at random, with equal probability, from the run's seed.

    Parameters
    ----------
    requests : tuple of ScaleOut or ScaleIn
        The requests for machines.
    trigger : Policy, optional
        A policy whose decisions become requests.
    machines : tuple of str
        All machines, in the order in which they are added.

    Examples
    --------
    >>> Rebalance(deal="moved").name
    'rebalance'
    """

    name: ClassVar[str] = "rebalance"
    needs: ClassVar[frozenset[str]] = frozenset({"workers"})
    deal: str = knob(
        "all",
        "on scale-in, whether all instances are assigned again, or only those of removed machines",
        choices=("all", "moved"),
    )
    draw: int = knob(0, "number of the random draw of machines to remove", low=0, high=2**31 - 1)

    def scale_out(self, situation: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        places = rebalance(situation.topology, situation.deployment.parallelism, [*situation.machines, *new])
        moved = sum(places[i] != m for i, m in situation.placement.items())
        return replace(situation.deployment, placement=places), {"rule": "deal all in turn", "instances moved": moved}

    def scale_in(self, situation: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        import numpy as np

        seed = situation.seed if isinstance(situation.seed, list) else [situation.seed]
        drawn = np.random.default_rng([*seed, self.draw]).choice(len(situation.machines), count, replace=False)
        leaving = [situation.machines[i] for i in sorted(drawn.tolist())]
        places = place_without(situation.topology, situation.placement, leaving, situation.machines, deal=self.deal)
        moved = sum(places[i] != m for i, m in situation.placement.items())
        return replace(situation.deployment, placement=places), {"leave, at random": leaving, "instances moved": moved}
