r"""Elastic Storm: executors by thresholds on their CPU use, a cooldown after a change, few migrated tasks [nardelli].

| thesis | here |
|---|---|
| $U_e$ | share of a core that an executor uses, of each one if the snapshot has instances, otherwise their mean |
| ScaleOutThr, ScaleInThr, S | `scale_out_above`, `scale_in_below`, `gap` |
| $\lvert T(op)\rvert$, $minExec(op)$ | `max_parallelism`, `min_parallelism` of the operator |
| $EM_{cld}$, $T_{nbs}$ | `cooldown_windows`, in invocations; one invocation per window |

Readings not taken by default: odd numbers halved upwards (`halve`), the prototype's two additional rules (`prototype`),
CPU time alone (`signal="cpu"`, the thesis's), without the time in which an executor waits for a server. Windows with
downtime are no invocations, as a rebalance is in progress; routine commits of an engine are none.
The thesis' scheduler also moves executors if T-Storm's rule finds less traffic: `reschedule`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, FrozenMap, KnobError, OperatorMetrics, PolicyKnobs, Snapshot, Topology, knob
from ..migration import crossing, executor_traffic, least_traffic, relocate
from ._managers import known_nodes
from ._measurements import signal_knob, uses
from .on_demand import placed

BETTER = 0.15  # relative reduction of inter-node traffic that justifies a reassignment, as in Distributed Storm
JOB = "job"


class Rota(NamedTuple):
    """The turns of several topologies: invocations that each still skips, and the one scaled last."""

    resting: Mapping[str, int] = FrozenMap()
    last: str = ""


class ElasticStormState(NamedTuple):
    """The cooldown, and the last requested change."""

    topology: Topology
    rota: Rota = Rota()
    last_change: tuple[Deployment, Deployment] | None = None  # deployments before and after


def turn(rota: Rota, decisions: Mapping[str, Mapping[str, int]], rest: int) -> tuple[Rota, str | None]:
    """Perform one invocation over several topologies: at most one is scaled, in turn; other cooldowns decrease.

    `decisions` are those of each topology, in a fixed order; during its cooldown a topology is skipped.

    >>> rota, first = turn(Rota(), {"a": {"x": 2}, "b": {"y": 2}}, rest=2)
    >>> rota, second = turn(rota, {"a": {"x": 4}, "b": {"y": 2}}, rest=2)
    >>> first, second, dict(rota.resting)
    ('a', 'b', {'a': 1, 'b': 2})
    """
    names = list(decisions)
    start = names.index(rota.last) + 1 if rota.last in names else 0
    resting, chosen = dict(rota.resting), None
    for name in names[start:] + names[:start]:
        if resting.get(name, 0) > 0:
            resting[name] -= 1
        elif decisions[name] and chosen is None:
            chosen, resting[name] = name, rest
    return Rota(FrozenMap({n: k for n, k in resting.items() if k}), chosen or rota.last), chosen


@dataclass(frozen=True)
class ElasticStorm(PolicyKnobs):
    r"""Add an executor for each one that uses its core more than `scale_out_above`; halve them where all idle.

    $k = |\{e : U_e > \mathit{ScaleOutThr}\}|$ gives $\min(|E| + k, |T|)$. If none is above and all
    $U_e < \mathit{ScaleInThr}$ (`scale_in_below`), half of the executors remain, at least $minExec$.
    """

    name: ClassVar[str] = "elastic_storm"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "nardelli"
    scale_out_above: float = knob(
        0.7,
        "share of a core above which an executor is overloaded",
        low=0.05,
        high=1.0,
        source="ScaleOutThr, thesis",
        line="busy",
    )
    scale_in_below: float = knob(
        0.2,
        "share below which all executors must be for a scale-in",
        low=0.0,
        high=0.5,
        source="ScaleInThr, thesis",
        line="busy",
    )
    gap: float = knob(0.1, "stability gap: out > 2 low + gap", low=0.0, high=1.0, source="ours; the thesis gives none")
    cooldown_windows: int = knob(
        12, "windows (invocations) without a change after one", low=0, high=1000, source="T_nbs, thesis"
    )
    halve: str = knob("floor", "rounding of halved odd numbers", choices=("floor", "ceil"), source="the prototype")
    signal: str = signal_knob()
    prototype: bool = knob(
        False, "no scale-out by less than half, and up to the limit if it is near", choices=(False, True)
    )
    places: str = knob(
        "auto", "whether to decide placements; auto: if machines have names", choices=("auto", "yes", "no")
    )
    slots_per_node: int = knob(0, "most executors of a node; 0: an even share, rounded up", low=0, high=4096)
    reschedule: bool = knob(False, "move executors if T-Storm's rule finds less traffic", choices=(False, True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scale_out_above > 2 * self.scale_in_below + self.gap + 1e-12:
            raise KnobError(
                f"scale_out_above={self.scale_out_above}, scale_in_below={self.scale_in_below}, gap={self.gap}",
                expected="out > 2 low + gap",
                fix="move them apart",
            )
        if self.halve == "floor" and not self.scale_out_above > 3 * self.scale_in_below:
            raise KnobError(
                f"scale_out_above={self.scale_out_above}, scale_in_below={self.scale_in_below}",
                expected="out > 3 low: 3 executors may become 1",
                fix="or halve='ceil'",
            )

    def init(self, topology: Topology, seed: int = 0) -> ElasticStormState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return ElasticStormState(topology)

    def step(self, state: ElasticStormState, snapshot: Snapshot) -> tuple[ElasticStormState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now = snapshot.deployment
        if snapshot.downtime_s > 0:
            return state, Decision(now, {"rule": "a rebalance is in progress"})
        if state.last_change is not None and now == state.last_change[0]:  # withheld, so that no cooldown is needed
            state = state._replace(rota=Rota())
        use = {n: self.use(snapshot.operators.get(n)) for n in state.topology.order}
        why: dict[str, Any] = {"use of a core": {n: None if u is None else round(u[0], 6) for n, u in use.items()}}
        wanted = self.decide(state.topology, use)
        rota, chosen = turn(state.rota, {JOB: wanted}, self.cooldown_windows)
        if not chosen:
            rests = state.rota.resting.get(JOB, 0)
            why["rule"] = f"cooldown, {rests} windows left" if rests else "no executor is above, not all are below"
            target = now
            if self.reschedule and not rests:
                target, more = self._reassign(state.topology, snapshot)
                why |= more
            return ElasticStormState(state.topology, rota), Decision(target, why)
        target, more = self.place(state.topology, snapshot, wanted)
        return ElasticStormState(state.topology, rota, (now, target)), Decision(
            target, {**why, "executors": wanted, **more}
        )

    def use(self, metrics: OperatorMetrics | None) -> list[float] | None:
        """Return $U_e$ of each executor; None if it was not measured.

        Parameters
        ----------
        metrics : OperatorMetrics, optional
            The operator's measurements.

        Examples
        --------
        >>> ElasticStorm().use(None) is None
        True
        """
        found = uses(metrics, self.signal)
        return None if found is None else list(found)

    def decide(self, topology: Topology, use: Mapping[str, Sequence[float] | None]) -> dict[str, int]:
        """Return new numbers of executors by operator; empty if the use of any operator is missing.

        Parameters
        ----------
        topology : Topology
            The operators.
        use : mapping
            $U_e$ of each executor by operator.

        Examples
        --------
        >>> ElasticStorm().decide(Topology.chain("a", "b"), {"a": [0.9], "b": [0.5]})
        {'a': 2}
        """
        if any(not use.get(o.name) for o in topology.operators):
            return {}
        new = {}
        for o in topology.operators:
            busy = use[o.name] or ()
            n, k = len(busy), sum(u > self.scale_out_above for u in busy)
            if k:
                more = min(n + k, o.max_parallelism)
                if self.prototype:
                    most = o.max_parallelism
                    more = most if most - more <= 0.1 * most else more
                    more = n if more - n < 0.5 * n and more < most else more
                if more > n:
                    new[o.name] = more
            elif all(u < self.scale_in_below for u in busy):
                half = math.floor(n / 2) if self.halve == "floor" else math.ceil(n / 2)
                if (fewer := max(o.min_parallelism, half, 1)) < n:
                    new[o.name] = fewer
        return new

    def place(
        self, topology: Topology, snapshot: Snapshot, parallelism: Mapping[str, int]
    ) -> tuple[Deployment, dict[str, Any]]:
        """Return the deployment with these numbers of executors, on nodes such that few tasks move, and the reason.

        Parameters
        ----------
        topology : Topology
            The operators.
        snapshot : Snapshot
            The measurements.
        parallelism : mapping
            New numbers of executors.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.word_count().simulator()
        >>> ElasticStorm().place(job.topology, job.observe(), {"count": 2})[0].parallelism["count"]
        2
        """
        now, machines = snapshot.deployment, known_nodes(snapshot)
        if not self._tells(snapshot):
            return replace(now.scaled(parallelism), placement={}), {}
        before = placed(topology, now, machines)
        counts = {**now.parallelism, **parallelism}
        stay = {place: node for place, node in before.items() if place[0] not in parallelism}
        most = self.slots_per_node or math.ceil(sum(counts.values()) / len(machines))
        filled, moved, tasks = Counter(stay.values()), 0, 0
        limits = {o.name: o.max_parallelism for o in topology.operators}
        for name, k in parallelism.items():
            limit = limits[name]
            homes = [before[name, i] for i in range(now.parallelism[name])]
            room = {m: most - filled[m] for m in machines}
            if sum(max(0, r) for r in room.values()) < k:  # with too few slots, all nodes take executors
                room = dict.fromkeys(machines, k)
            found = relocate(limit, homes, k, room=room, busy=filled)
            stay |= {(name, i): node for i, node in enumerate(found.nodes)}
            filled.update(found.nodes)
            moved, tasks = moved + found.moved, tasks + limit
        why = {"tasks that change node": f"{moved} of {tasks}", "moved share": moved / tasks}
        return replace(now, parallelism=counts, placement=stay), why

    def _tells(self, snapshot: Snapshot) -> bool:
        named = bool(snapshot.nodes or snapshot.deployment.placement)
        return bool(known_nodes(snapshot)) and (self.places == "yes" or (self.places == "auto" and named))

    def _reassign(self, topology: Topology, snapshot: Snapshot) -> tuple[Deployment, dict[str, Any]]:
        """Return T-Storm's placement, if it reduces the inter-node traffic sufficiently."""
        now, machines = snapshot.deployment, known_nodes(snapshot)
        if not self._tells(snapshot) or not snapshot.edge_rates:
            return now, {}
        flow = executor_traffic(topology, now.parallelism, snapshot.edge_rates)
        before = placed(topology, now, machines)
        slots = self.slots_per_node if self.slots_per_node * len(machines) >= now.instances else None
        after = least_traffic(topology, now.parallelism, snapshot.edge_rates, machines, slots)
        old, new = crossing(flow, before), crossing(flow, after)
        if new >= (1 - BETTER) * old:
            return now, {}
        limits = {o.name: o.max_parallelism for o in topology.operators}
        away = sum(limits[n] / now.parallelism[n] for (n, i), node in after.items() if before[n, i] != node)
        why = {"between nodes": f"{old:.4g} to {new:.4g} records/s", "moved share": away / sum(limits.values())}
        return replace(now, placement=after), {"rule": "less traffic between nodes", **why}
