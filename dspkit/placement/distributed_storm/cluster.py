"""Storm's worker nodes as Distributed Storm sees them: delays measured by pings, slots, availability, foreign load.

In the thesis's cluster each node delays the packets that it sends by a Gaussian time of its own. The delay from u to v
therefore depends on u only: a star, which cannot be embedded exactly in a plane.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core import ArgumentError, FrozenMap, Knobs, Topology, knob
from ...core.validation import mapping
from ...simulator import Link, Node, NodeSlow, Plant, Service
from ..coordinates import embed

Executor = tuple[str, int]  # (operator, index): a thread of an operator, the unit of migration


@dataclass(frozen=True)
class Worker(Knobs):
    """A worker node.

    Examples
    --------
    >>> Worker(delay_ms=15, jitter_ms=1).slots
    2
    """

    delay_ms: float = knob(0.0, "mean delay of the packets that it sends", low=0.0, high=1e4, unit="ms")
    jitter_ms: float = knob(0.0, "standard deviation of that delay", low=0.0, high=1e4, unit="ms")
    slots: int = knob(2, "most worker processes on the node", low=1, high=64)
    availability: float = knob(
        0.99999, "share of the time it is up, which is configured, not measured", low=1e-9, high=1.0
    )


@dataclass(frozen=True)
class Event(Knobs):
    """A lasting change of a node; the base of all events.

    Parameters
    ----------
    at_s : float
        Time at which it begins, in seconds.
    node : str
        Name of the node.

    Examples
    --------
    >>> Event(at_s=60.0, node="node-1").at_s
    60.0
    """

    at_s: float = knob(0.0, "time at which it begins", low=0.0, high=math.inf, unit="s")
    node: str = ""


@dataclass(frozen=True)
class Unreliable(Event):
    """A drop of a node's availability.

    Parameters
    ----------
    at_s, node
        Time and name of the node, as of `Event`.
    availability : float
        Share of the time the node is up from then on.

    Examples
    --------
    >>> thesis_cluster(Unreliable(60, "node-1", availability=0.9)).availability(61)[0]
    0.9
    """

    availability: float = knob(0.85, "share of the time it is up from then on", low=1e-9, high=1.0)


@dataclass(frozen=True)
class Stressed(Event):
    """Another program that uses the node's CPU.

    Parameters
    ----------
    at_s, node
        Time and name of the node, as of `Event`.
    share : float
        Utilisation that the program alone causes.
    slows : float
        Share of the node's speed that is left for the job.

    Examples
    --------
    >>> thesis_cluster(Stressed(60, "node-2", share=0.8)).stress(61)[:3]
    (0.0, 0.8, 0.0)
    """

    share: float = knob(1.0, "utilisation that it alone would cause", low=0.0, high=1.0)
    slows: float = knob(0.5, "share of its speed that is left for the job", low=1e-3, high=1.0)


@dataclass(frozen=True)
class Died(Event):
    """The failure of the worker process in a slot; its executors have to be placed again.

    Parameters
    ----------
    at_s, node
        Time and name of the node, as of `Event`.
    slot : int
        Index of the slot.

    Examples
    --------
    >>> thesis_cluster(Died(60, "node-3", slot=1)).died(after=50, until=70)
    [(2, 1)]
    """

    slot: int = knob(0, "index of the slot, from 0", low=0, high=63)


@dataclass(frozen=True)
class StormCluster:
    """Worker nodes, and the events of a run.

    Parameters
    ----------
    workers : mapping
        A `Worker` by name, at least one.
    events : tuple of Event
        Events on these nodes, in any order.
    delays : mapping
        Delay in seconds by pair of nodes, as pings have measured it (`Snapshot.delays`), which replaces those of the
        workers. Clusters that differ in it alone are equal.

    Examples
    --------
    >>> StormCluster({"edge": Worker(delay_ms=20), "cloud": Worker(slots=8)}).slots
    (2, 8)
    >>> thesis_cluster().mean_delays()[0].tolist()
    [0.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0, 15.0]
    """

    workers: Mapping[str, Worker] = field(default_factory=FrozenMap)
    events: tuple[Event, ...] = ()
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", FrozenMap(self.delays))
        workers = FrozenMap(self.workers) if isinstance(self.workers, Mapping) else FrozenMap()
        if not workers or not all(isinstance(w, Worker) for w in workers.values()):
            raise ArgumentError(
                f"workers = {self.workers!r}", expected="a Worker by name, at least one", fix="name them"
            )
        for event in self.events:
            if not isinstance(event, Event) or event.node not in workers:
                raise ArgumentError(
                    f"event {event!r}",
                    expected=f"an event of one of {', '.join(workers)}",
                    fix="see placement.distributed_storm",
                )
        object.__setattr__(self, "workers", workers)
        object.__setattr__(self, "events", tuple(sorted(self.events, key=lambda e: e.at_s)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        return tuple(self.workers)

    @property
    def slots(self) -> tuple[int, ...]:
        """Number of slots of each node."""
        return tuple(w.slots for w in self.workers.values())

    def mean_delays(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the mean delay (ms) from the node of the row to that of the column; 0 within a node.

        Examples
        --------
        >>> thesis_cluster().mean_delays()[1, :3].tolist()
        [23.0, 0.0, 23.0]
        """
        sent = np.array([w.delay_ms for w in self.workers.values()])
        found = np.where(np.eye(len(sent), dtype=bool), 0.0, sent[:, None])
        for u, a in enumerate(self.names):
            for v, b in enumerate(self.names):
                found[u, v] = 1e3 * self.delays.get((a, b), self.delays.get((b, a), found[u, v] / 1e3))
        return found

    def plane(self, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Return network coordinates of the nodes, estimated from their mean delays, for plots.

        Parameters
        ----------
        seed : int
            Seed of the estimate.

        Examples
        --------
        >>> sorted(thesis_cluster().plane())[:2]
        ['node-1', 'node-2']
        """
        points = embed(self.mean_delays(), seed=seed).tolist()
        return {name: (x, y) for name, (x, y) in zip(self.names, points, strict=True)}

    def ping(self, u: int, v: int, random: np.random.Generator) -> float:
        """Return half of a measured round trip between two nodes (ms); delays are never negative.

        Parameters
        ----------
        u, v : int
            Indices of the nodes.
        random : numpy.random.Generator
            Source of the jitter.

        Examples
        --------
        >>> cluster = StormCluster({"a": Worker(delay_ms=10), "b": Worker(delay_ms=30)})
        >>> cluster.ping(0, 1, np.random.default_rng(1))
        20.0
        """
        names, workers = self.names, list(self.workers.values())
        measured = self.delays.get((names[u], names[v]), self.delays.get((names[v], names[u])))
        if measured is not None:
            return 1e3 * measured
        ways = [max(0.0, w.delay_ms + w.jitter_ms * random.standard_normal()) for w in (workers[u], workers[v])]
        return sum(ways) / 2

    def availability(self, t: float) -> tuple[float, ...]:
        """Return the availability of each node.

        Parameters
        ----------
        t : float
            Time in seconds.

        Examples
        --------
        >>> thesis_cluster().availability(0)[0]
        0.99999
        """
        now = {name: w.availability for name, w in self.workers.items()}
        now |= {e.node: e.availability for e in self.events if isinstance(e, Unreliable) and e.at_s <= t}
        return tuple(now.values())

    def stress(self, t: float) -> tuple[float, ...]:
        """Return the utilisation of each node by other programs.

        Parameters
        ----------
        t : float
            Time in seconds.

        Examples
        --------
        >>> sum(thesis_cluster().stress(0))
        0.0
        """
        now = dict.fromkeys(self.workers, 0.0)
        now |= {e.node: e.share for e in self.events if isinstance(e, Stressed) and e.at_s <= t}
        return tuple(now.values())

    def died(self, after: float, until: float) -> list[tuple[int, int]]:
        """Return (node, slot) of each worker process that died after one time and until another.

        Parameters
        ----------
        after, until : float
            Times in seconds.

        Examples
        --------
        >>> thesis_cluster().died(0, 3600)
        []
        """
        found = [e for e in self.events if isinstance(e, Died) and after < e.at_s <= until]
        return [(self.names.index(e.node), e.slot) for e in found]

    def plant(self, services: Mapping[str, Service], pause_s: float = 5.0) -> Plant:
        """Return a simulated cluster of these nodes, with one core each.

        Parameters
        ----------
        services : mapping
            A `simulator.Service` by operator.
        pause_s : float
            Seconds for which the migration of an executor pauses its operator.

        Examples
        --------
        >>> sorted(thesis_cluster().plant({}).nodes)[0]
        'node-1'
        """
        links = {(u, v): Link(w.delay_ms / 1e3) for u, w in self.workers.items() for v in self.workers if u != v}
        slow = tuple(NodeSlow(e.at_s, node=e.node, factor=e.slows) for e in self.events if isinstance(e, Stressed))
        nodes = {name: Node(1, availability=w.availability) for name, w in self.workers.items()}
        return Plant(services, nodes, pause_s, pause_kind="migration", links=links, faults=slow)


def pins(pinned: Any, cluster: Any) -> FrozenMap[str, str]:
    """Return the nodes of pinned operators as an immutable mapping.

    Parameters
    ----------
    pinned : mapping
        Name of the node by operator.
    cluster : StormCluster or None
        The cluster whose nodes may be named; None to accept any name.

    Examples
    --------
    >>> dict(pins({"sink": "node-8"}, thesis_cluster()))
    {'sink': 'node-8'}
    """
    if not (cluster is None or isinstance(cluster, StormCluster)):
        raise ArgumentError(
            f"cluster = {cluster!r}"[:100], expected="a StormCluster or None", fix="see placement.distributed_storm"
        )
    mapping(pinned, "pinned", "a node by operator")
    for operator, node in pinned.items():
        if cluster is not None and node not in cluster.names:
            expected = f"one of {', '.join(cluster.names)}"
            raise ArgumentError(f"{operator!r} pinned to {node!r}", expected=expected, fix="use the node's name")
    return FrozenMap(pinned)


def needs_operators(pinned: Mapping[str, str], topology: Topology) -> None:
    """Raise an error if an operator is pinned that the topology does not have.

    Parameters
    ----------
    pinned : mapping
        Name of the node by operator.
    topology : Topology
        The application.

    Examples
    --------
    >>> needs_operators({"b": "node-1"}, Topology.chain("a", "b"))
    """
    if strangers := [o for o in pinned if o not in topology.order]:
        expected = f"one of {', '.join(topology.order)}"
        raise ArgumentError(f"{strangers[0]!r} pinned", expected=expected, fix="use the operator's name")


def thesis_cluster(*events: Event) -> StormCluster:
    """Return the eight worker nodes of the thesis's experiments [nardelli, 3.5].

    Parameters
    ----------
    *events : Event
        Events on these nodes.

    Examples
    --------
    >>> cluster = thesis_cluster(Unreliable(600, "node-1"))
    >>> len(cluster.names), cluster.availability(700)[0]
    (8, 0.85)
    """
    means, spreads = (15, 23, 19, 25, 12, 17, 32, 27), (1, 2, 3, 1, 3, 2, 1, 2)
    workers = {f"node-{i}": Worker(m, s) for i, (m, s) in enumerate(zip(means, spreads, strict=True), 1)}
    return StormCluster(workers, events)
