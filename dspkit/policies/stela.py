"""Stela: slots of new machines go to the congested operators through which most throughput would flow [stela].

| paper | here |
|---|---|
| `CongestionRate` | `congestion_rate` |
| $N_{instances}$, ETP, ETPSum | see `dspkit.etp` |
| tasks of an operator | its `max_parallelism` |

Readings not taken by default: sinks counted once per path (`tree_sum`, the printed Algorithm 1), projections bounded by
the input (`cap`), ranking by ETP per instance (`per_instance`, the authors' prototype).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..core import Deployment, knob
from ..etp import congested, etp, scale_in, scale_out, slots
from .on_demand import OnDemand, ScaleIn, ScaleOut, Situation

__all__ = ["ScaleIn", "ScaleOut", "Stela"]


@dataclass(frozen=True)
class Stela(OnDemand):
    r"""On request, give new machines to the congested operators of highest ETP, or remove the machines of least ETP.

    $ETP_o = \sum_{s \in Eff(o)} proc(s) / \sum_{s \in Sinks} proc(s)$, projected again after each slot. Existing
    instances do not move when machines are added.

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
    >>> from dspkit import apps, run
    >>> from dspkit.policies import ScaleOut
    >>> run(Stela((ScaleOut(1),)), apps.star(), steps=2)[0].decision.why["machines"]
    '+1'
    """

    name: ClassVar[str] = "stela"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism", "workers"})
    congestion_rate: float = knob(
        1.2, "input over processing rate above which an operator is congested", low=1.0, high=5.0, source="the paper"
    )
    tree_sum: bool = knob(False, "count a sink once per path, as in the printed Algorithm 1", choices=(False, True))
    cap: bool = knob(False, "bound projected rates by the input", choices=(False, True))
    per_instance: bool = knob(False, "rank by ETP per instance, as the prototype does", choices=(False, True))

    def scale_out(self, situation: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        # Algorithm 2
        k = situation.deployment.parallelism
        count = slots(situation.deployment.instances, len(situation.machines), len(new))
        limits = {o.name: o.max_parallelism for o in situation.topology.operators}
        chosen = scale_out(
            situation.topology,
            situation.rates,
            k,
            new,
            count,
            limits=limits,
            congestion_rate=self.congestion_rate,
            tree_sum=self.tree_sum,
            cap=self.cap,
            per_instance=self.per_instance,
        )
        grown, places = dict(k), dict(situation.placement)
        for slot in chosen:
            places[slot.operator, grown[slot.operator]] = slot.machine
            grown[slot.operator] += 1
        why = {**self._why(situation), "slots": f"{len(chosen)} of {count}"}
        why["slots go to"] = dict(Counter(slot.operator for slot in chosen))
        why["one by one"] = [
            f"{s.operator} ({s.candidates[s.operator]:.0%})" if s.candidates else f"{s.operator} (a source)"
            for s in chosen
        ]
        if len(chosen) < count:
            why["left empty"] = "every operator that would help is at its limit, or there is no output"
        elif not count:
            why["left empty"] = "there are fewer instances than machines, so that a new machine has no slots"
        return replace(situation.deployment, parallelism=grown, placement=places), why

    def scale_in(self, situation: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        # Algorithm 3
        shares = etp(situation.topology, situation.rates, self.congestion_rate, tree_sum=self.tree_sum)
        removed = scale_in(situation.topology, situation.placement, shares, count, machines=situation.machines)
        places = dict(situation.placement)
        for removal in removed:
            places |= removal.moves
        why = {
            **self._why(situation),
            "leave": [r.machine for r in removed],
            "ETP sums": removed[0].sums,
            "instances moved": sum(places[i] != m for i, m in situation.placement.items()),
        }
        return replace(situation.deployment, placement=places), why

    def _why(self, now: Situation) -> dict[str, Any]:
        shares = etp(now.topology, now.rates, self.congestion_rate, tree_sum=self.tree_sum)
        return {
            "congested": list(congested(now.topology, now.rates, self.congestion_rate)) or "none",
            "ETP": {o: round(x, 6) for o, x in shares.items()},
        }
