"""A job on its simulated nodes: who runs where, what rescales and faults change, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..core import Deployment, Topology
from ..plant import NodeDown, Places, Plant, Scheduler, Silence, coming, pauses, seats
from .engine import Engine
from .layout import Array, Graph, Layout, graph, layout, places


class Job:
    """Tells an engine what holds from when on. `make` gets the graph and the first layout, and gives the engine."""

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        deployment: Deployment,
        scheduler: Scheduler,
        make: Callable[[Graph, Layout], Engine],
    ):
        self.topology, self.plant, self.deployment, self.scheduler = topology, plant, deployment, scheduler
        self.order, self.nodes = topology.order, list(plant.nodes)
        self._fed = [bool(topology.upstream(name)) for name in topology.order]
        edges = {t for f in plant.faults if not isinstance(f, Silence) for t in (f.at_s, f.until_s) if t < math.inf}
        self._changes = sorted(edges)  # each is taken off as it is done
        self.where = self._places(0.0)
        self.seats = seats(plant, self.where, {})
        self.layout = self._layout(0.0)
        self.engine = make(graph(topology), self.layout)

    def deploy(self, deployment: Deployment, t: float) -> None:
        """Run this from `t` on. What cannot be placed is refused before anything changes."""
        where = places(self.topology, self.plant, deployment, self.scheduler, self._down(t))
        self._catch_up(t)
        self.deployment = deployment
        self._move(where, t)

    def stretches(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """Times from `start` to `end` in which nothing changes; what changes between them is done on the way."""
        self._catch_up(start)
        while self._changes and self._changes[0] < end:
            t = self._changes[0]
            yield start, t
            self._catch_up(t)
            start = t
        yield start, end

    def _catch_up(self, t: float) -> None:
        while self._changes and self._changes[0] <= t:
            self._strike(self._changes.pop(0))

    def _strike(self, t: float) -> None:
        """Faults begin and end at `t`. A node that dies may take records along; instances on it begin elsewhere."""
        dying = [f for f in self.plant.faults if isinstance(f, NodeDown) and f.at_s == t]
        lost = {f.node for f in dying if f.loses}
        if lost:
            here = self.layout.here[[self.nodes.index(name) for name in lost]].sum(axis=0)
            self._lose(here / self.layout.instances)
        if dying:
            self._move(self._places(t), t, {f.node for f in dying})
        else:
            self.layout = self._layout(t)
            self.engine.change(self.layout)

    def _move(self, where: Places, t: float, dead: Collection[str] = ()) -> None:
        before, self.where = self.where, where
        sat, self.seats = self.seats, seats(self.plant, where, self.seats)
        if before != where and self.plant.pause_kind == "restart":
            self._lose(np.ones(len(self.order)))
        self.layout = self._layout(t)
        self.engine.change(self.layout)
        if before != where:
            stopped = self._stops(before, where, dead)
            seconds = np.array([stopped[name] for name in self.order])
            if self.plant.pause_kind == "instances":
                self._hold(coming(sat, self.seats) if self.seats else coming(before, where), seconds)
            else:
                self.engine.pause(seconds)

    def _lose(self, share: Array) -> None:
        """This share of what waits at each operator is gone; a log outlives nodes and workers."""
        logs = [not up and not drops for up, drops in zip(self._fed, self.layout.drops, strict=True)]
        self.engine.lose(np.where(logs, 0.0, share))

    def _hold(self, fresh: Mapping[str, Mapping[Any, int]], seconds: Array) -> None:
        """Instances that came to these nodes, or seats, start later; an operator without others stands still."""
        a = self.layout
        count = np.zeros_like(a.inside if self.seats else a.here)
        for name, counted in fresh.items():
            for place, n in counted.items():
                node, *process = place if self.seats else (place,)
                count[*process, self.nodes.index(node), self.order.index(name)] = n
        here = count.sum(axis=0) if self.seats else count
        up = a.cores > 0
        whole = here.any(axis=0) & (here[up].sum(axis=0) >= a.here[up].sum(axis=0))
        self.engine.pause(np.where(whole, seconds, 0.0))
        self.engine.hold(np.where(whole, 0, count), seconds)

    def _stops(self, before: Places, after: Places, dead: Collection[str]) -> dict[str, float]:
        """Seconds that each operator stands still."""
        return pauses(self.plant, before, after, dead)

    def _down(self, t: float) -> list[str]:
        return [f.node for f in self.plant.faults if isinstance(f, NodeDown) and f.active(t)]

    def _places(self, t: float) -> Places:
        return places(self.topology, self.plant, self.deployment, self.scheduler, self._down(t))

    def _layout(self, t: float) -> Layout:
        return layout(self.topology, self.plant, self.where, self.deployment.parallelism, t, self.seats)
