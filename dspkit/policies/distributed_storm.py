"""Distributed Storm: each node monitors itself, informs others, and moves its own executors [nardelli, chapter 3].

The number of executors is fixed; this policy controls their placement. Within a round, nodes act in the order of their
numbers. A moved operator carries a marker until the round ends, during which its neighbours are not moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import Decision, Deployment, FrozenMap, PolicyKnobs, Snapshot, Topology, instances_of, knob
from ..placement.distributed_storm import (
    Executor,
    MigrationRules,
    Move,
    NodeView,
    Slot,
    StormCluster,
    Watch,
    bootstrap,
    cluster_of,
    deployed,
    known_points,
    monitored,
    needs_operators,
    pins,
    plan,
    start,
    streams,
)


class DistributedStormState(NamedTuple):
    """The knowledge of the nodes and the placement; `cooling` counts the rounds that each node still skips."""

    topology: Topology
    seed: int
    cluster: StormCluster | None = None
    watch: Watch | None = None
    where: Mapping[Executor, Slot] = FrozenMap()
    cooling: tuple[int, ...] = ()
    seen_s: float = -math.inf  # end of the last round


@dataclass(frozen=True)
class DistributedStorm(MigrationRules, PolicyKnobs):
    """Move each executor toward the node nearest to its neighbours in the cost space, as if connected by springs.

    Latencies are estimated from network coordinates alone. A node that has moved an executor skips the next
    `cooldown_rounds` rounds.

    Parameters
    ----------
    cluster : StormCluster, optional
        The network of the nodes and its faults; by default the backend's nodes, with the delays of pings
        (`Snapshot.delays`), or none.
    pinned : mapping
        Node by operator; sources and sinks never move.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> policy = DistributedStorm(warm_up_rounds=1)
    >>> "bootstrap" in run(policy, apps.star(), steps=1)[-1].decision.why
    True
    """

    name: ClassVar[str] = "distributed_storm"
    needs: ClassVar[frozenset[str]] = frozenset({"placement"})
    paper_run_s: ClassVar[float] = 600.0
    reference: ClassVar[tuple[str, ...]] = ("nardelli", "dabek2004vivaldi", "pietzuch2006", "rizou2010")
    decision_interval_s: float = knob(
        30.0, "period of a node's planning", low=1.0, high=3600.0, unit="s", pace="duration", source="nardelli"
    )
    cooldown_rounds: int = knob(5, "rounds that a node skips after a move", low=0, high=100, source="nardelli")
    warm_up_rounds: int = knob(40, "rounds of pings before the job is submitted", low=0, high=1000)
    gain: float = knob(
        0.5,
        "weight of a ping in a coordinate's update (0.25: Vivaldi's own)",
        low=0.01,
        high=1.0,
        source="the prototype",
    )
    processes: int = knob(0, "worker processes; 0: one for each operator, up to eight", low=0, high=1000)
    cluster: StormCluster | None = None
    pinned: Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pinned", pins(self.pinned, self.cluster))

    def init(self, topology: Topology, seed: int = 0) -> DistributedStormState:
        """Return the initial state, as described in `dspkit.Policy`."""
        needs_operators(self.pinned, topology)
        return DistributedStormState(topology, seed)

    def step(self, state: DistributedStormState, snapshot: Snapshot) -> tuple[DistributedStormState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        if snapshot.t - state.seen_s < self.decision_interval_s - 1e-9:
            return state, Decision(snapshot.deployment, {"waits": f"a round takes {self.decision_interval_s:g} s"})
        cluster = self.cluster or state.cluster or cluster_of(snapshot)
        if cluster is None:
            return state, Decision(snapshot.deployment, {"waits": "no nodes are known"})
        if self.cluster is None and snapshot.delays:  # those that were not pinged lately keep their delay
            cluster = replace(cluster, delays={**cluster.delays, **snapshot.delays})
        names, before = cluster.names, state.watch
        if state.cluster != cluster or before is None:  # the first round, or another cluster than before
            state, before = state._replace(where=FrozenMap(), cooling=(0,) * len(names)), start(len(names))
            for number in range(self.warm_up_rounds):
                luck = self._luck(state, -number)
                before = monitored(before, cluster, cluster.availability(0), cluster.stress(0), luck, self.gain)
        busy = zip(cluster.stress(snapshot.t), names, strict=True)
        load = [min(1.0, stress + snapshot.nodes.get(name, 0.0)) for stress, name in busy]
        random = self._luck(state, before.round + 1)
        watch = monitored(before, cluster, cluster.availability(snapshot.t), load, random, self.gain)
        where, why = self._placed(state, cluster, watch, snapshot)
        moves, cooling = ([], state.cooling) if why else self._moves(state, cluster, watch, where, snapshot)
        for move in moves:
            where[move.executor] = move.end
        state = DistributedStormState(
            state.topology, state.seed, cluster, watch, FrozenMap(where), tuple(cooling), snapshot.t
        )
        why |= {"moves": [_said(move, names) for move in moves] or "none"}
        return state, Decision(deployed(snapshot.deployment, where, names), why)

    def _luck(self, state: DistributedStormState, number: int) -> np.random.Generator:
        return np.random.default_rng([state.seed, number % 2**32])

    def _placed(
        self, state: DistributedStormState, cluster: StormCluster, watch: Watch, snapshot: Snapshot
    ) -> tuple[dict[Executor, Slot], dict[str, Any]]:
        """Return the placement; new executors, and those whose worker process died, are placed by the bootstrap."""
        k, died = snapshot.deployment.parallelism, set(cluster.died(state.seen_s, snapshot.t))
        now = instances_of(state.topology, k)
        kept = {e: slot for e, slot in state.where.items() if e in set(now) and slot not in died}
        if len(kept) == len(now):
            return self._as_deployed(kept, snapshot.deployment, cluster), {}
        pinned = {o: cluster.names.index(node) for o, node in self.pinned.items() if node in cluster.names}
        where = bootstrap(
            state.topology,
            k,
            cluster.slots,
            known_points(watch, 0),
            processes=self.processes or min(8, len(k)),
            pinned=pinned,
            kept=kept,
            avoid=sorted(died),
        )
        return where, {"bootstrap": f"{len(now) - len(kept)} executors placed"}

    def _as_deployed(self, where: dict[Executor, Slot], now: Deployment, cluster: StormCluster) -> dict[Executor, Slot]:
        """Return the placement with executors that were moved from outside, in the first slot of their node."""
        for e, name in now.placement.items():
            if e in where and name in cluster.names and cluster.names[where[e][0]] != name:
                where[e] = (cluster.names.index(name), 0)
        return where

    def _moves(
        self,
        state: DistributedStormState,
        cluster: StormCluster,
        watch: Watch,
        where: dict[Executor, Slot],
        snapshot: Snapshot,
    ) -> tuple[list[Move], list[int]]:
        """Perform one round of all nodes."""
        talk = streams(state.topology, snapshot.deployment.parallelism, snapshot.edge_rates)
        ends = frozenset(state.topology.sources) | frozenset(state.topology.sinks) | frozenset(self.pinned)
        now, cooling, moves = dict(where), list(state.cooling), list[Move]()
        for here in sorted({node for node, _ in where.values()}):
            if cooling[here]:
                cooling[here] -= 1
                continue
            marked = frozenset(move.executor[0] for move in moves)
            move = plan(NodeView(here, known_points(watch, here), now, talk, ends, marked, cluster.slots), self)
            if move:
                moves.append(move)
                now[move.executor] = move.end
                cooling[here] = self.cooldown_rounds
        return moves, cooling


def _said(move: Move, names: tuple[str, ...]) -> str:
    (operator, index), gain = move.executor, "unknown before" if math.isinf(move.gain) else f"{move.gain:.2f}"
    return f"{operator}[{index}] {names[move.start[0]]} → {names[move.end[0]]} (relative distance {gain})"
