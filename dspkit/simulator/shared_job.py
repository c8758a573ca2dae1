"""Who runs where when several applications share the nodes: each is placed, and stopped, by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ..applications import its_own, named, prefixed
from ..core import Deployment, Topology
from ..plant import Places, Plant, Scheduler, pauses
from .engine import Engine
from .job import Job
from .layout import Graph, Layout, places


class SharedJob(Job):
    """A job of several applications, each with a deployment of its own.

    A scheduler deals the instances of all as one list, as Storm's does; of what it says, those applications take note
    that have changed or lost a node. The others stay where they are.
    """

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        deployment: Deployment,
        scheduler: Scheduler,
        make: Callable[[Graph, Layout], Engine],
        plants: Mapping[str, Plant],
        topologies: Mapping[str, Topology],
    ):
        self.plants, self.topologies = plants, topologies
        self.each = {a: its_own(a, deployment, own) for a, own in topologies.items()}
        self.where: Places = {}
        super().__init__(topology, plant, deployment, scheduler, make)

    def deploy(self, deployment: Deployment, t: float) -> None:
        """Change all at once; each keeps the number of nodes it had by itself if the common one stays."""
        each = {a: its_own(a, deployment, own) for a, own in self.topologies.items()}
        if deployment.workers == self.deployment.workers:
            each = {a: replace(d, workers=self.each[a].workers) for a, d in each.items()}
        self._run(each, t)

    def deploy_one(self, application: str, deployment: Deployment, t: float) -> None:
        """Change one application."""
        self._run({**self.each, application: deployment}, t)

    def _run(self, each: Mapping[str, Deployment], t: float) -> None:
        changed = [a for a, d in each.items() if d != self.each[a]]
        where = self._dealt(each, changed, self._down(t))
        self._catch_up(t)
        self.each, self.deployment = dict(each), _together(each)
        self._move(where, t)

    def _places(self, t: float) -> Places:
        down = self._down(t)
        hit = {name.partition("/")[0] for (name, _), node in self.where.items() if node in down}
        return self._dealt(self.each, hit if self.where else self.each, down)

    def _dealt(self, each: Mapping[str, Deployment], changed: Iterable[str], down: list[str]) -> Places:
        """Places of the instances of `changed` applications as the scheduler deals all; of the others as they are."""
        whole, dealt = _together(each), dict[int | None, Places]()
        where = {i: node for i, node in self.where.items() if i[0].partition("/")[0] not in changed}
        for a in changed:
            n = each[a].workers
            if n not in dealt:
                dealt[n] = places(self.topology, self.plant, replace(whole, workers=n), self.scheduler, down)
            where |= {i: node for i, node in dealt[n].items() if i[0].partition("/")[0] == a}
        return where

    def _stops(self, before: Places, after: Places, dead: Collection[str]) -> dict[str, float]:
        stopped = dict.fromkeys(self.topology.order, 0.0)
        for a, plant in self.plants.items():
            old, new = (_of(a, where) for where in (before, after))
            if old != new:
                stopped |= prefixed(a, pauses(plant, old, new, dead))
        return stopped


def _of(application: str, where: Places) -> Places:
    """The places of one application's instances, under its operators' own names."""
    return {
        (name.partition("/")[2], i): node for (name, i), node in where.items() if name.partition("/")[0] == application
    }


def _together(each: Mapping[str, Deployment]) -> Deployment:
    """Deployments of all as one; of its `workers` each has some of the first."""
    counts = [d.workers for d in each.values()]
    known = [n for n in counts if n is not None]
    placement = {(named(a, n), i): node for a, d in each.items() for (n, i), node in d.placement.items()}
    parallelism = {name: k for a, d in each.items() for name, k in prefixed(a, d.parallelism).items()}
    return Deployment(parallelism, max(known) if len(known) == len(counts) else None, placement)
