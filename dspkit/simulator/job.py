"""A job on its simulated nodes, and the engine that runs it: layouts and loads in, sums over a window out.

A `Job` keeps the placement of the instances, and passes their changes by rescales and faults to its engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..core import Deployment, Latency, Topology
from ..core.typing import Array
from .layout import IndexedGraph, Layout, index_topology, layout, places
from .system import MetricsOutage, NodeDown, Places, Plant, Scheduler, arrivals_by_node, assign_processes, pauses

SHARES = (0.5, 0.95, 0.99)  # the percentiles of a Latency


@dataclass
class WindowSums:
    """Sums over one window, in records, seconds and both multiplied. i is an operator, e an edge, j a node."""

    arrived: Array  # [i] at the operator's queue, refused records included
    done: Array  # [i] processed
    dropped: Array  # [i] refused or lost
    busy: Array  # [i] instance-seconds spent on records, waiting for cores and for an external server included
    blocked: Array  # [i] instance-seconds of back-pressure from downstream
    cpu: Array  # [i] core-seconds
    waited_s: Array  # [i] mean time of a record from its arrival at the queue to the start of its service; NaN if none
    sent: Array  # [e]
    cores: Array  # [j] core-seconds in use
    ended: float  # source records that were processed to their end, each counted once
    stopped: float  # seconds in which some operator was paused
    queue: Array  # [i] records at the operator at the end: waiting, in service, and in transit to it
    waiting: Array  # [i] those of them that wait: the backlog
    latency: Latency | None  # from leaving the source's log to the sink; None if no record reached a sink
    event_latency: Latency | None  # the same, and the wait in the log


class Engine(Protocol):
    """Simulation of one job. The same seed and the same calls give the same windows, bit for bit."""

    def change(self, layout: Layout) -> None:
        """Use another layout from now on. Records stay where they wait; those in service are finished or restarted."""

    def pause(self, seconds: Array) -> None:
        """Pause operator i for `seconds[i]` from now on; a longer pause replaces one that has not ended."""

    def hold(self, count: Array, seconds: Array) -> None:
        """Pause `count[j, i]` of operator i's instances on node j for `seconds[i]`; the others continue.

        With worker processes the index is `count[p, j, i]`, as in `Layout.inside`. Instances that are paused already,
        and these, wait for the longer of both times.
        """

    def lose(self, share: Array) -> None:
        """Lose this share of what waits at operator i, as when a node dies."""

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        """Simulate `sum(dt)` seconds; in tick m, `rates[m, i]` records/s reach source i (0 for the others).

        `noise[i]` multiplies service times.
        """

    def window(self) -> WindowSums:
        """Return the sums since the last call."""

    @property
    def mass(self) -> float:
        """Source records inside whose processing has not ended; offered = ended + dropped + mass."""


class Job:
    """State of a simulated job, which passes each change to its engine.

    `make` builds the engine from the graph and the first layout.
    """

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        deployment: Deployment,
        scheduler: Scheduler,
        make: Callable[[IndexedGraph, Layout], Engine],
    ):
        self.topology, self.plant, self.deployment, self.scheduler = topology, plant, deployment, scheduler
        self.order, self.nodes = topology.order, list(plant.nodes)
        self._fed = [bool(topology.upstream(name)) for name in topology.order]
        edges = {
            t for f in plant.faults if not isinstance(f, MetricsOutage) for t in (f.at_s, f.until_s) if t < math.inf
        }
        self._changes = sorted(edges)  # times of faults that have not been applied yet
        self.where = self._places(0.0)
        self.processes = assign_processes(plant, self.where, {})
        self.layout = self._layout(0.0)
        self.engine = make(index_topology(topology), self.layout)

    def deploy(self, deployment: Deployment, t: float) -> None:
        """Run this deployment from `t` on. A placement that is not possible is rejected before anything changes."""
        where = places(self.topology, self.plant, deployment, self.scheduler, self._down(t))
        self._catch_up(t)
        self.deployment = deployment
        self._move(where, t)

    def stretches(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """Yield the intervals from `start` to `end` in which nothing changes, and apply the changes between them."""
        self._catch_up(start)
        while self._changes and self._changes[0] < end:
            t = self._changes[0]
            yield start, t
            self._catch_up(t)
            start = t
        yield start, end

    def _catch_up(self, t: float) -> None:
        while self._changes and self._changes[0] <= t:
            self._apply_faults(self._changes.pop(0))

    def _apply_faults(self, t: float) -> None:
        """Apply the faults that begin or end at `t`. A dying node may lose records; its instances start elsewhere."""
        dying = [f for f in self.plant.faults if isinstance(f, NodeDown) and f.at_s == t]
        lost = {f.node for f in dying if f.loses}
        if lost:
            here = self.layout.node_instances[[self.nodes.index(name) for name in lost]].sum(axis=0)
            self._lose(here / self.layout.instances)
        if dying:
            self._move(self._places(t), t, {f.node for f in dying})
        else:
            self.layout = self._layout(t)
            self.engine.change(self.layout)

    def _move(self, where: Places, t: float, dead: Collection[str] = ()) -> None:
        before, self.where = self.where, where
        assigned, self.processes = self.processes, assign_processes(self.plant, where, self.processes)
        if before != where and self.plant.pause_kind == "restart":
            self._lose(np.ones(len(self.order)))
        self.layout = self._layout(t)
        self.engine.change(self.layout)
        if before != where:
            stopped = self._pauses(before, where, dead)
            seconds = np.array([stopped[name] for name in self.order])
            if self.plant.pause_kind == "instances":
                self._hold(
                    arrivals_by_node(assigned, self.processes) if self.processes else arrivals_by_node(before, where),
                    seconds,
                )
            else:
                self.engine.pause(seconds)

    def _lose(self, share: Array) -> None:
        """Lose this share of what waits at each operator, other than in logs, which outlive nodes and workers."""
        logs = [not up and not drops for up, drops in zip(self._fed, self.layout.drops, strict=True)]
        self.engine.lose(np.where(logs, 0.0, share))

    def _hold(self, fresh: Mapping[str, Mapping[Any, int]], seconds: Array) -> None:
        """Pause the instances that are new on these nodes, or processes.

        An operator without other instances is paused as a whole.
        """
        a = self.layout
        count = np.zeros_like(a.inside if self.processes else a.node_instances)
        for name, counted in fresh.items():
            for place, n in counted.items():
                node, *process = place if self.processes else (place,)
                count[*process, self.nodes.index(node), self.order.index(name)] = n
        here = count.sum(axis=0) if self.processes else count
        up = a.cores > 0
        whole = here.any(axis=0) & (here[up].sum(axis=0) >= a.node_instances[up].sum(axis=0))
        self.engine.pause(np.where(whole, seconds, 0.0))
        self.engine.hold(np.where(whole, 0, count), seconds)

    def _pauses(self, before: Places, after: Places, dead: Collection[str]) -> dict[str, float]:
        """Return the seconds for which each operator is paused."""
        return pauses(self.plant, before, after, dead)

    def _down(self, t: float) -> list[str]:
        return [f.node for f in self.plant.faults if isinstance(f, NodeDown) and f.active(t)]

    def _places(self, t: float) -> Places:
        return places(self.topology, self.plant, self.deployment, self.scheduler, self._down(t))

    def _layout(self, t: float) -> Layout:
        return layout(self.topology, self.plant, self.where, self.deployment.parallelism, t, self.processes)
