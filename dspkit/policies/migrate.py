"""Topology-aware strategies that Stela was compared with: instances that run move to the new machines; none is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment
from ..etp import ORDERS, migrate, slots, without
from ..knobs import knob
from .on_demand import OnDemand, Situation


@dataclass(frozen=True)
class Migrate(OnDemand):
    """On request, move the instances of the operators that come first in some order to the new machines.

    Least link load stands for the adaptive Storm scheduler that Stela was measured against. When machines leave, those
    with the fewest instances go, and only their instances move (the paper says nothing of it).
    """

    name: ClassVar[str] = "migrate"
    order: str = knob("least link load", "which operators' instances move", choices=ORDERS)

    def out(self, now: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        count = slots(now.deployment.instances, len(now.machines), len(new))
        places = migrate(now.topology, now.rates, now.placement, new, count, self.order)
        moved = Counter(i[0] for i, m in now.placement.items() if places[i] != m)
        return replace(now.deployment, placement=places), {"rule": self.order, "instances moved": dict(moved)}

    def into(self, now: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        here = Counter(now.placement.values())
        leaving = sorted(now.machines, key=lambda m: (here[m], now.machines.index(m)))[:count]
        places = without(now.topology, now.placement, leaving, now.machines, deal="moved")
        moved = sum(places[i] != m for i, m in now.placement.items())
        why = {"rule": "the emptiest machines leave", "leave": leaving, "instances moved": moved}
        return replace(now.deployment, placement=places), why
