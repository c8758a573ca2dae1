"""T-Storm: executors by decreasing traffic, each where it adds the least traffic between nodes [xu2014tstorm].

As in Nardelli's comparison (4.6.2), it is round robin until rates are known, then a new placement in every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ..core import Decision, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ..placement.distributed_storm import (
    Executor,
    Slot,
    StormCluster,
    cluster_of,
    deployed,
    least_traffic,
    needs_operators,
    pins,
    round_robin,
    slots_in_turn,
    streams,
)


class TrafficAwareState(NamedTuple):
    """The fixed places of sources, sinks and pinned operators."""

    topology: Topology
    fixed: Mapping[Executor, Slot] = FrozenMap()


@dataclass(frozen=True)
class TrafficAware(PolicyKnobs):
    """Place executors by decreasing traffic, each on the slot with the least added traffic between nodes.

    Parameters
    ----------
    cluster : StormCluster, optional
        Names and slots of the nodes; by default the backend's node names.
    pinned : mapping
        Node by operator; sources and sinks never move.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> "traffic between nodes" in run(TrafficAware(), apps.star(), steps=2)[-1].decision.why
    True
    """

    name: ClassVar[str] = "traffic_aware"
    needs: ClassVar[frozenset[str]] = frozenset({"placement"})
    reference: ClassVar[tuple[str, ...]] = ("xu2014tstorm", "nardelli")
    slot_executors: int = knob(4, "most executors of a slot", low=1, high=64, source="nardelli")
    processes: int = knob(0, "worker processes at first; 0: one for each operator, up to eight", low=0, high=1000)
    cluster: StormCluster | None = None
    pinned: Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pinned", pins(self.pinned, self.cluster))

    def init(self, topology: Topology, seed: int = 0) -> TrafficAwareState:
        """Return the initial state, as described in `dspkit.Policy`."""
        needs_operators(self.pinned, topology)
        return TrafficAwareState(topology)

    def step(self, state: TrafficAwareState, snapshot: Snapshot) -> tuple[TrafficAwareState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        cluster, k = self.cluster or cluster_of(snapshot), snapshot.deployment.parallelism
        if cluster is None:
            return state, Decision(snapshot.deployment, {"waits": "no nodes are known"})
        names, topology = cluster.names, state.topology
        ends = {*topology.sources, *topology.sinks, *self.pinned}
        first = round_robin(topology, k, cluster.slots, self.processes or min(8, len(k)))
        first |= {e: (names.index(self.pinned[e[0]]), 0) for e in first if self.pinned.get(e[0]) in names}
        fixed = {e: state.fixed.get(e, slot) for e, slot in first.items() if e[0] in ends}
        if max((slot[0] for slot in fixed.values()), default=0) >= len(names):  # another cluster than before
            fixed = {e: first[e] for e in fixed}
        if not any(snapshot.edge_rates.values()) and set(first) == set(snapshot.deployment.placement):
            return state, Decision(snapshot.deployment, {"rates": "none in this window: it stays"})
        if not state.fixed or not any(snapshot.edge_rates.values()):
            return TrafficAwareState(topology, FrozenMap(fixed)), Decision(
                deployed(snapshot.deployment, first, names), {"rates": "not known yet: round robin"}
            )
        talk = streams(topology, k, snapshot.edge_rates)
        if len(first) > self.slot_executors * sum(cluster.slots):
            return state, Decision(snapshot.deployment, {"stays": "more executors than the slots hold"})
        slots = dict.fromkeys(slots_in_turn(cluster.slots), float(self.slot_executors))
        where = least_traffic(talk, slots, fixed)
        crossing = sum(r for e, others in talk.items() for o, r in others if where[e][0] != where[o][0]) / 2
        return TrafficAwareState(topology, FrozenMap(fixed)), Decision(
            deployed(snapshot.deployment, where, names), {"traffic between nodes": round(crossing, 6)}
        )
