"""Stela: slots of new machines go to the congested operators through which most throughput would flow [stela].

    | paper | here |
    |---|---|
    | `CongestionRate` | `congestion_rate` |
    | $N_{instances}$, ETP, ETPSum | see `dspkit.etp` |
    | tasks of an operator | its `max_parallelism` |

Readings not taken, kept as knobs: sinks counted once for each path (`tree_sum`, the printed Algorithm 1), projections
that stop at what comes in (`cap`), ranking by ETP over instances (`per_instance`, the authors' prototype).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment
from ..etp import congested, etp, scale_in, scale_out, slots
from ..knobs import knob
from .on_demand import OnDemand, ScaleIn, ScaleOut, Situation

__all__ = ["ScaleIn", "ScaleOut", "Stela"]


@dataclass(frozen=True)
class Stela(OnDemand):
    r"""On request, give new machines to the congested operators of highest ETP, or take the machines of least ETP away.

    $ETP_o = \sum_{s \in Eff(o)} proc(s) / \sum_{s \in Sinks} proc(s)$, projected anew after each slot. What runs is
    not moved when machines join.
    """

    name: ClassVar[str] = "stela"
    congestion_rate: float = knob(
        1.2, "input over processing rate above which an operator is congested", low=1.0, high=5.0, source="the paper"
    )
    tree_sum: bool = knob(False, "count a sink once for each path, as Algorithm 1 is printed", choices=(False, True))
    cap: bool = knob(False, "projected rates stop at what comes in", choices=(False, True))
    per_instance: bool = knob(False, "rank by ETP over instances, as the prototype does", choices=(False, True))

    def out(self, now: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        """Algorithm 2."""
        k = now.deployment.parallelism
        count = slots(now.deployment.instances, len(now.machines), len(new))
        limits = {o.name: o.max_parallelism for o in now.topology.operators}
        chosen = scale_out(
            now.topology, now.rates, k, new, count, limits=limits, congestion_rate=self.congestion_rate,
            tree_sum=self.tree_sum, cap=self.cap, per_instance=self.per_instance,
        )  # fmt: skip
        grown, places = dict(k), dict(now.placement)
        for slot in chosen:
            places[slot.operator, grown[slot.operator]] = slot.machine
            grown[slot.operator] += 1
        why = {**self._why(now), "slots": f"{len(chosen)} of {count}"}
        why["slots go to"] = dict(Counter(slot.operator for slot in chosen))
        why["one by one"] = [
            f"{s.operator} ({s.candidates[s.operator]:.0%})" if s.candidates else f"{s.operator} (a source)"
            for s in chosen
        ]
        if len(chosen) < count:
            why["left empty"] = "every operator that would help is at its limit, or nothing comes out"
        elif not count:
            why["left empty"] = "there are fewer instances than machines, so that a new machine's share is none"
        return replace(now.deployment, parallelism=grown, placement=places), why

    def into(self, now: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        """Algorithm 3."""
        shares = etp(now.topology, now.rates, self.congestion_rate, tree_sum=self.tree_sum)
        removed = scale_in(now.topology, now.placement, shares, count, machines=now.machines)
        places = dict(now.placement)
        for removal in removed:
            places |= removal.moves
        why = {
            **self._why(now),
            "leave": [r.machine for r in removed],
            "ETP sums": removed[0].sums,
            "instances moved": sum(places[i] != m for i, m in now.placement.items()),
        }
        return replace(now.deployment, placement=places), why

    def _why(self, now: Situation) -> dict[str, Any]:
        shares = etp(now.topology, now.rates, self.congestion_rate, tree_sum=self.tree_sum)
        return {
            "congested": list(congested(now.topology, now.rates, self.congestion_rate)) or "nobody",
            "ETP": {o: round(x, 6) for o, x in shares.items()},
        }
