"""A job on its simulated nodes: the placement of its instances, and its changes by rescales and faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..core import Deployment, Topology
from ..core.typing import Array
from .engine import Engine
from .layout import IndexedGraph, Layout, index_topology, layout, places
from .system import MetricsOutage, NodeDown, Places, Plant, Scheduler, arrivals_by_node, assign_processes, pauses


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
