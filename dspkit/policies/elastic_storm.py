r"""Elastic Storm: executors by thresholds on their CPU use, a rest after each change, few tasks that move [nardelli].

    | thesis | here |
    |---|---|
    | $U_e$ | share of a core that an executor uses: `cpu` over instances, as all are measured together |
    | ScaleOutThr, ScaleInThr, S | `out`, `low`, `gap` |
    | $\lvert T(op)\rvert$, $minExec(op)$ | `max_parallelism`, `min_parallelism` of the operator |
    | $EM_{cld}$, $T_{nbs}$ | `rest`, in invocations; one invocation a window |

Readings not taken, kept as knobs: odd counts halved upwards (`halve`), the prototype's two extra rules (`prototype`),
busy time instead of CPU time (`signal`). Windows in which the job stood still are no invocations: a rebalance is under
way. The thesis' scheduler also moves executors where T-Storm's rule finds less traffic: `reschedule`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, OperatorMetrics, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..migration import crossing, executor_traffic, least_traffic, relocate
from ._managers import known
from .on_demand import placed

BETTER = 0.15  # by which a reassignment must lower traffic between nodes, as in Distributed Storm
JOB = "job"


class Rota(NamedTuple):
    """Whose turn it is among several topologies: invocations that each still rests, and who was scaled last."""

    resting: Mapping[str, int] = FrozenMap()
    last: str = ""


class State(NamedTuple):
    topology: Topology
    rota: Rota = Rota()
    asked: tuple[Deployment, Deployment] | None = None  # what ran and what was decided, if that changed something


def turn(rota: Rota, wanted: Mapping[str, Mapping[str, int]], rest: int) -> tuple[Rota, str | None]:
    """One invocation over topologies: at most one is scaled, the next in turn after the last; all others' rests tick.

    `wanted` are the decisions of each, in a fixed order; those of a topology that rests are not looked at.

    >>> rota, first = turn(Rota(), {"a": {"x": 2}, "b": {"y": 2}}, rest=2)
    >>> rota, second = turn(rota, {"a": {"x": 4}, "b": {"y": 2}}, rest=2)
    >>> first, second, dict(rota.resting)
    ('a', 'b', {'a': 1, 'b': 2})
    """
    names = list(wanted)
    start = names.index(rota.last) + 1 if rota.last in names else 0
    resting, chosen = dict(rota.resting), None
    for name in names[start:] + names[:start]:
        if resting.get(name, 0) > 0:
            resting[name] -= 1
        elif wanted[name] and chosen is None:
            chosen, resting[name] = name, rest
    return Rota(FrozenMap({n: k for n, k in resting.items() if k}), chosen or rota.last), chosen


@dataclass(frozen=True)
class ElasticStorm(Knobs):
    r"""One more executor for each that uses its core more than `out`; half of them where all use less than `low`.

    $k = |\{e : U_e > out\}|$ gives $\min(|E| + k, |T|)$; if none is above and all $U_e < low$, half of them stay, and
    $minExec$ at least.
    """

    name: ClassVar[str] = "elastic_storm"
    reference: ClassVar[str] = "nardelli"
    out: float = knob(
        0.7, "share of a core above which an executor is overloaded", low=0.05, high=1.0, source="thesis", line="busy"
    )
    low: float = knob(
        0.2, "share below which all must be for a scale-in", low=0.0, high=0.5, source="thesis", line="busy"
    )
    gap: float = knob(0.1, "stability gap: out > 2 low + gap", low=0.0, high=1.0, source="ours; the thesis gives none")
    rest: int = knob(12, "invocations (windows) of rest after a change", low=0, high=1000, source="thesis")
    halve: str = knob("floor", "how odd counts are halved", choices=("floor", "ceil"), source="the prototype")
    signal: str = knob(
        "auto", "what counts: CPU, busy time, or CPU where it is measured", choices=("auto", "cpu", "busy")
    )
    prototype: bool = knob(
        False, "no scale-out by less than half, and to the limit if little is left", choices=(False, True)
    )
    places: str = knob(
        "auto", "whether to say which executor runs where; auto: if machines have names", choices=("auto", "yes", "no")
    )
    slots: int = knob(0, "executors that a node takes at most; 0: an even share, rounded up", low=0, high=4096)
    reschedule: bool = knob(False, "move executors too where T-Storm's rule finds less traffic", choices=(False, True))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.out > 2 * self.low + self.gap + 1e-12:
            raise KnobError(
                f"out={self.out}, low={self.low}, gap={self.gap}", expected="out > 2 low + gap", fix="move them apart"
            )
        if self.halve == "floor" and not self.out > 3 * self.low:
            raise KnobError(
                f"out={self.out}, low={self.low}",
                expected="out > 3 low: 3 executors may become 1",
                fix="or halve='ceil'",
            )

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now = snapshot.deployment
        if snapshot.downtime_s > 0:
            return state, Decision(now, {"rule": "a rebalance is under way"})
        if state.asked is not None and now == state.asked[0]:  # somebody kept it back: there is nothing to rest from
            state = state._replace(rota=Rota())
        use = {n: self.use(snapshot.operators.get(n)) for n in state.topology.order}
        why: dict[str, Any] = {"use of a core": {n: None if u is None else round(u[0], 6) for n, u in use.items()}}
        wanted = self.decide(state.topology, use)
        rota, chosen = turn(state.rota, {JOB: wanted}, self.rest)
        if not chosen:
            rests = state.rota.resting.get(JOB, 0)
            why["rule"] = f"rests, {rests} windows to go" if rests else "nobody is above or all below"
            target = now
            if self.reschedule and not rests:
                target, more = self._reassign(state.topology, snapshot)
                why |= more
            return State(state.topology, rota), Decision(target, why)
        target, told = self.place(state.topology, snapshot, wanted)
        return State(state.topology, rota, (now, target)), Decision(target, {**why, "executors": wanted, **told})

    def use(self, metrics: OperatorMetrics | None) -> list[float] | None:
        """$U_e$ of each executor: an even part of what all use together; None where it was not measured."""
        if metrics is None or (self.signal == "cpu" and metrics.cpu is None):
            return None
        busy = metrics.utilisation
        if self.signal != "busy" and metrics.cpu is not None:
            busy = metrics.cpu / metrics.parallelism
        return [busy] * metrics.parallelism

    def decide(self, topology: Topology, use: Mapping[str, Sequence[float] | None]) -> dict[str, int]:
        """New counts of executors; none where a sample of any operator is missing."""
        if any(not use.get(o.name) for o in topology.operators):
            return {}
        new = {}
        for o in topology.operators:
            busy = use[o.name] or ()
            n, k = len(busy), sum(u > self.out for u in busy)
            if k:
                more = min(n + k, o.max_parallelism)
                if self.prototype:
                    most = o.max_parallelism
                    more = most if most - more <= 0.1 * most else more
                    more = n if more - n < 0.5 * n and more < most else more
                if more > n:
                    new[o.name] = more
            elif all(u < self.low for u in busy):
                half = math.floor(n / 2) if self.halve == "floor" else math.ceil(n / 2)
                if (fewer := max(o.min_parallelism, half, 1)) < n:
                    new[o.name] = fewer
        return new

    def place(
        self, topology: Topology, snapshot: Snapshot, wanted: Mapping[str, int]
    ) -> tuple[Deployment, dict[str, Any]]:
        """These counts, on nodes from which few tasks have to move; and how many do."""
        now, machines = snapshot.deployment, known(snapshot)
        if not self._tells(snapshot):
            return replace(now.scaled(wanted), placement={}), {}
        before = placed(topology, now, machines)
        counts = {**now.parallelism, **wanted}
        stay = {place: node for place, node in before.items() if place[0] not in wanted}
        most = self.slots or math.ceil(sum(counts.values()) / len(machines))
        filled, moved, tasks = Counter(stay.values()), 0, 0
        limits = {o.name: o.max_parallelism for o in topology.operators}
        for name, k in wanted.items():
            limit = limits[name]
            homes = [before[name, i] for i in range(now.parallelism[name])]
            room = {m: most - filled[m] for m in machines}
            if sum(max(0, r) for r in room.values()) < k:  # too few slots: nobody is refused
                room = dict.fromkeys(machines, k)
            found = relocate(limit, homes, k, room=room, busy=filled)
            stay |= {(name, i): node for i, node in enumerate(found.nodes)}
            filled.update(found.nodes)
            moved, tasks = moved + found.moved, tasks + limit
        why = {"tasks that change node": f"{moved} of {tasks}", "moved share": moved / tasks}
        return replace(now, parallelism=counts, placement=stay), why

    def _tells(self, snapshot: Snapshot) -> bool:
        named = bool(snapshot.nodes or snapshot.deployment.placement)
        return bool(known(snapshot)) and (self.places == "yes" or (self.places == "auto" and named))

    def _reassign(self, topology: Topology, snapshot: Snapshot) -> tuple[Deployment, dict[str, Any]]:
        """T-Storm's places, if they lower the traffic between nodes by enough."""
        now, machines = snapshot.deployment, known(snapshot)
        if not self._tells(snapshot) or not snapshot.edge_rates:
            return now, {}
        flow = executor_traffic(topology, now.parallelism, snapshot.edge_rates)
        before = placed(topology, now, machines)
        slots = self.slots if self.slots * len(machines) >= now.instances else None
        after = least_traffic(topology, now.parallelism, snapshot.edge_rates, machines, slots)
        old, new = crossing(flow, before), crossing(flow, after)
        if new >= (1 - BETTER) * old:
            return now, {}
        limits = {o.name: o.max_parallelism for o in topology.operators}
        away = sum(limits[n] / now.parallelism[n] for (n, i), node in after.items() if before[n, i] != node)
        why = {"between nodes": f"{old:.4g} to {new:.4g} records/s", "moved share": away / sum(limits.values())}
        return replace(now, placement=after), {"rule": "less traffic between nodes", **why}
