"""Storm's worker nodes as Distributed Storm sees them: delays that only pings tell, slots, availability, foreign load.

The thesis's cluster delays what a node sends by a Gaussian time of its own, so that the way from u to v takes what u's
packets take: a star, which no plane holds exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import Topology
from ...errors import KnobError
from ...frozen import FrozenMap
from ...knobs import Knobs, knob
from ...plant import Link, Node, NodeSlow, Plant, Service
from ..vivaldi import embed

Executor = tuple[str, int]  # (operator, index): one thread of an operator, the smallest thing that moves


@dataclass(frozen=True)
class Worker(Knobs):
    """A worker node."""

    delay_ms: float = knob(0.0, "mean delay of what it sends", low=0.0, high=1e4, unit="ms")
    jitter_ms: float = knob(0.0, "standard deviation of that delay", low=0.0, high=1e4, unit="ms")
    slots: int = knob(2, "worker processes that it may run", low=1, high=64)
    availability: float = knob(0.99999, "share of the time it is up, told from outside", low=1e-9, high=1.0)


@dataclass(frozen=True)
class Event(Knobs):
    """Base of what happens to a node at `at_s`, and lasts."""

    at_s: float = knob(0.0, "when it begins", low=0.0, high=math.inf, unit="s")
    node: str = ""


@dataclass(frozen=True)
class Unreliable(Event):
    """The node is up less of the time."""

    availability: float = knob(0.85, "share of the time it is up from then on", low=1e-9, high=1.0)


@dataclass(frozen=True)
class Stressed(Event):
    """Another program takes part of the node's CPU."""

    share: float = knob(1.0, "utilisation that it alone would cause", low=0.0, high=1.0)
    slows: float = knob(0.5, "part of its speed that is left for the job", low=1e-3, high=1.0)


@dataclass(frozen=True)
class Died(Event):
    """The worker process in a slot dies; its executors have to begin elsewhere."""

    slot: int = knob(0, "which slot, counted from 0", low=0, high=63)


@dataclass(frozen=True)
class Cluster:
    """Worker nodes and what happens to them.

    >>> thesis_cluster().mean_delays()[0].tolist()
    [0.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0]
    """

    workers: Mapping[str, Worker] = field(default_factory=FrozenMap)
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        workers = FrozenMap(self.workers) if isinstance(self.workers, Mapping) else FrozenMap()
        if not workers or not all(isinstance(w, Worker) for w in workers.values()):
            raise KnobError(f"workers = {self.workers!r}", expected="a Worker by name, at least one", fix="name them")
        for event in self.events:
            if not isinstance(event, Event) or event.node not in workers:
                raise KnobError(
                    f"event {event!r}", expected=f"an event of one of {', '.join(workers)}", fix="see placement.storm"
                )
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "events", tuple(sorted(self.events, key=lambda e: e.at_s)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.workers)

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(w.slots for w in self.workers.values())

    def mean_delays(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Mean delay (ms) from the node of the row to that of the column; none within a node."""
        sent = np.array([w.delay_ms for w in self.workers.values()])
        return np.where(np.eye(len(sent), dtype=bool), 0.0, sent[:, None])

    def plane(self, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Network coordinates of the nodes, from their mean delays: a map to draw."""
        points = embed(self.mean_delays(), seed=seed).tolist()
        return {name: (x, y) for name, (x, y) in zip(self.names, points, strict=True)}

    def ping(self, u: int, v: int, random: np.random.Generator) -> float:
        """Half of one round trip between two nodes (ms); a packet is never early."""
        workers = list(self.workers.values())
        ways = [max(0.0, w.delay_ms + w.jitter_ms * random.standard_normal()) for w in (workers[u], workers[v])]
        return sum(ways) / 2

    def availability(self, t: float) -> tuple[float, ...]:
        now = {name: w.availability for name, w in self.workers.items()}
        now |= {e.node: e.availability for e in self.events if isinstance(e, Unreliable) and e.at_s <= t}
        return tuple(now.values())

    def stress(self, t: float) -> tuple[float, ...]:
        """Utilisation by other programs."""
        now = dict.fromkeys(self.workers, 0.0)
        now |= {e.node: e.share for e in self.events if isinstance(e, Stressed) and e.at_s <= t}
        return tuple(now.values())

    def died(self, after: float, until: float) -> list[tuple[int, int]]:
        """(node, slot) of the worker processes that died in a stretch of time."""
        found = [e for e in self.events if isinstance(e, Died) and after < e.at_s <= until]
        return [(self.names.index(e.node), e.slot) for e in found]

    def plant(self, services: Mapping[str, Service], pause_s: float = 5.0) -> Plant:
        """A simulated cluster of these nodes, one core each. To move an executor stops its operator for `pause_s`."""
        links = {(u, v): Link(w.delay_ms / 1e3) for u, w in self.workers.items() for v in self.workers if u != v}
        slow = tuple(NodeSlow(e.at_s, node=e.node, factor=e.slows) for e in self.events if isinstance(e, Stressed))
        nodes = {name: Node(1, availability=w.availability) for name, w in self.workers.items()}
        return Plant(services, nodes, pause_s, pause_kind="migration", links=links, faults=slow)


def pins(pinned: Any, cluster: Any) -> FrozenMap[str, str]:
    """Operators' nodes as a policy keeps them; an error if the cluster, where one is given, has no such node."""
    if not (cluster is None or isinstance(cluster, Cluster)):
        raise KnobError(f"cluster = {cluster!r}"[:100], expected="a Cluster or None", fix="see placement.storm")
    if not isinstance(pinned, Mapping):
        raise KnobError(f"pinned = {pinned!r}"[:100], expected="a node by operator", fix="pass a mapping")
    for operator, node in pinned.items():
        if cluster is not None and node not in cluster.names:
            expected = f"one of {', '.join(cluster.names)}"
            raise KnobError(f"{operator!r} pinned to {node!r}", expected=expected, fix="correct the node's name")
    return FrozenMap(pinned)


def needs_operators(pinned: Mapping[str, str], topology: Topology) -> None:
    """An error if somebody is pinned that the topology does not have."""
    if strangers := [o for o in pinned if o not in topology.order]:
        expected = f"one of {', '.join(topology.order)}"
        raise KnobError(f"{strangers[0]!r} pinned", expected=expected, fix="correct the operator's name")


def thesis_cluster(*events: Event) -> Cluster:
    """The eight worker nodes of the thesis's experiments [nardelli, 3.5]."""
    means, spreads = (15, 23, 19, 25, 12, 17, 32, 27), (1, 2, 3, 1, 3, 2, 1, 2)
    workers = {f"node-{i}": Worker(m, s) for i, (m, s) in enumerate(zip(means, spreads, strict=True), 1)}
    return Cluster(workers, events)
