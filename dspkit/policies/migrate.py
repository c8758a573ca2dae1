"""The strategies that Stela was compared with: existing instances move to new machines, and none is added.

Moved are those of the operators that come first in some order, or by Storm's default all that a new deal moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment, knob
from ..etp import ORDERS, migrate, place_without, rebalance, slots
from .on_demand import OnDemand, Situation


@dataclass(frozen=True)
class Migrate(OnDemand):
    """On request, move the instances of the operators that come first in some order to the new machines.

    Least link load represents the adaptive Storm scheduler that Stela was compared with. On scale-in, the machines
    with the fewest instances are removed, and only their instances move (the paper does not state this).

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
    >>> Migrate(order="centrality").name
    'migrate'
    """

    name: ClassVar[str] = "migrate"
    needs: ClassVar[frozenset[str]] = frozenset({"workers", "placement"})
    order: str = knob("least link load", "order in which operators' instances move", choices=ORDERS)

    def scale_out(self, situation: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        count = slots(situation.deployment.instances, len(situation.machines), len(new))
        places = migrate(situation.topology, situation.rates, situation.placement, new, count, self.order)
        moved = Counter(i[0] for i, m in situation.placement.items() if places[i] != m)
        return replace(situation.deployment, placement=places), {"rule": self.order, "instances moved": dict(moved)}

    def scale_in(self, situation: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        here = Counter(situation.placement.values())
        leaving = sorted(situation.machines, key=lambda m: (here[m], situation.machines.index(m)))[:count]
        places = place_without(situation.topology, situation.placement, leaving, situation.machines, deal="moved")
        moved = sum(places[i] != m for i, m in situation.placement.items())
        why = {"rule": "the emptiest machines leave", "leave": leaving, "instances moved": moved}
        return replace(situation.deployment, placement=places), why


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
