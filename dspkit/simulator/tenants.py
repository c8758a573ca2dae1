"""Several applications on the nodes of one simulated cluster.

A `Cluster` is a Backend of all its applications as one graph, for a policy that decides for all of them. Each of its
`tenants` is a Backend of one application, for a policy that knows no other. They are simulated together, one window at
a time: cores that one application uses are not available to the others (`SharedFluid`).

Each application is placed and paused by itself (`SharedJob`): a change stops the applications whose instances it moves,
each as its own plant defines; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import (
    ArgumentError,
    BackendBase,
    Deployment,
    DeploymentError,
    Latency,
    Snapshot,
    Topology,
    its_own,
    merge,
    named,
    prefixed,
)
from ..core.typing import Array
from .fluid.engine import Fluid, as_latency
from .fluid.latency import TRACE, latencies
from .job import Engine, Job, WindowSums
from .layout import IndexedGraph, Layout, places
from .simulator import Simulator, by_source, snapshot
from .system import Node, NodeDown, Places, Plant, Scheduler, Service, pauses, round_robin

if TYPE_CHECKING:
    from ..apps import App


class SharedFluid(Fluid):
    """A fluid engine whose graph consists of parts that share only the cores of the nodes."""

    def __init__(self, graph: IndexedGraph, layout: Layout, parts: Sequence[Array]):
        """Build the engine; `parts` are the indices of the operators of each application."""
        super().__init__(graph, layout)
        fed = np.isin(np.arange(len(layout.instances)), graph.end)
        self._parts = [(members, members[~fed[members]]) for members in parts]
        self._before = [0.0] * len(self._parts)
        self._paused_s = [0.0] * len(self._parts)  # seconds in which some operator was paused as a whole
        self.parts: list[WindowSums] = []  # of the last window, one per application

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        pause, seconds = self.state.pause, float(dt.sum())  # pauses begin between two calls only
        self._paused_s = [
            s + min(seconds, float(pause[i].max())) for s, (i, _) in zip(self._paused_s, self._parts, strict=True)
        ]
        super().play(rates, dt, noise)

    def window(self) -> WindowSums:
        paused_s, self._paused_s = self._paused_s, [0.0] * len(self._parts)
        own = [self._part(p, members, sources) for p, (members, sources) in enumerate(self._parts)]
        whole = super().window()
        self.parts = [
            WindowSums(
                whole.arrived[i], whole.done[i], whole.dropped[i], whole.busy[i], whole.blocked[i], whole.cpu[i],
                whole.waited_s[i], whole.sent[np.isin(self.graph.start, i)], whole.cores, ended,
                stopped, whole.queue[i], whole.waiting[i], *latency,
            )
            for (i, _), (ended, latency), stopped in zip(self._parts, own, paused_s, strict=True)
        ]  # fmt: skip
        return whole

    def _part(self, p: int, members: Array, sources: Array) -> tuple[float, tuple[Latency | None, Latency | None]]:
        """Return the source records of one application that ended, and their latencies.

        No record goes from one application to another, so those that arrived and are not inside any more have ended.
        """
        sums, inside = self._sums, float(self.state.mass[members].sum())
        came = float(sums.arrived[sources].sum())
        ended = max(0.0, self._before[p] + came - inside)
        self._before[p] = inside
        if ended <= TRACE:
            return ended, (None, None)
        arrived = np.zeros(len(sums.arrived))
        arrived[sources] = sums.arrived[sources] if came > 0 else 1.0  # records of other applications have no weight
        waited, out = np.empty(len(arrived)), np.empty(6)
        latencies(self.graph, self.cluster, self.theory, sums._replace(arrived=arrived), self._played, waited, out)
        return ended, (as_latency(*out[:3].tolist()), as_latency(*out[3:].tolist()))


class SharedJob(Job):
    """A job of several applications, each with a deployment of its own.

    A scheduler assigns the instances of all applications as one list, as Storm's does. Its result is used for
    applications that have changed or lost a node; the others keep their placement.
    """

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        deployment: Deployment,
        scheduler: Scheduler,
        make: Callable[[IndexedGraph, Layout], Engine],
        plants: Mapping[str, Plant],
        topologies: Mapping[str, Topology],
    ):
        self.plants, self.topologies = plants, topologies
        self.each = {a: its_own(a, deployment, own) for a, own in topologies.items()}
        self.where: Places = {}
        super().__init__(topology, plant, deployment, scheduler, make)

    def deploy(self, deployment: Deployment, t: float) -> None:
        """Change all at once; each application keeps its own number of nodes if the common one is unchanged."""
        each = {a: its_own(a, deployment, own) for a, own in self.topologies.items()}
        if deployment.workers == self.deployment.workers:
            each = {a: replace(d, workers=self.each[a].workers) for a, d in each.items()}
        self._run(each, t)

    def deploy_one(self, application: str, deployment: Deployment, t: float) -> None:
        """Change one application."""
        self._run({**self.each, application: deployment}, t)

    def _run(self, each: Mapping[str, Deployment], t: float) -> None:
        changed = [a for a, d in each.items() if d != self.each[a]]
        where = self._scheduled(each, changed, self._down(t))
        self._catch_up(t)
        self.each, self.deployment = dict(each), _merged_deployment(each)
        self._move(where, t)

    def _places(self, t: float) -> Places:
        down = self._down(t)
        hit = {name.partition("/")[0] for (name, _), node in self.where.items() if node in down}
        return self._scheduled(self.each, hit if self.where else self.each, down)

    def _scheduled(self, each: Mapping[str, Deployment], changed: Iterable[str], down: list[str]) -> Places:
        """Return the placement: `changed` applications as the scheduler assigns all instances, the others unchanged."""
        whole, scheduled = _merged_deployment(each), dict[int | None, Places]()
        where = {i: node for i, node in self.where.items() if i[0].partition("/")[0] not in changed}
        for a in changed:
            n = each[a].workers
            if n not in scheduled:
                scheduled[n] = places(self.topology, self.plant, replace(whole, workers=n), self.scheduler, down)
            where |= {i: node for i, node in scheduled[n].items() if i[0].partition("/")[0] == a}
        return where

    def _pauses(self, before: Places, after: Places, dead: Collection[str]) -> dict[str, float]:
        stopped = dict.fromkeys(self.topology.order, 0.0)
        for a, plant in self.plants.items():
            old, new = (_of(a, where) for where in (before, after))
            if old != new:
                stopped |= prefixed(a, pauses(plant, old, new, dead))
        return stopped


def _of(application: str, where: Places) -> Places:
    """Return the placement of one application's instances, under its operators' own names."""
    return {
        (name.partition("/")[2], i): node for (name, i), node in where.items() if name.partition("/")[0] == application
    }


def _merged_deployment(each: Mapping[str, Deployment]) -> Deployment:
    """Return the deployments of all as one; each application uses some of the first of its `workers`."""
    counts = [d.workers for d in each.values()]
    known = [n for n in counts if n is not None]
    placement = {(named(a, n), i): node for a, d in each.items() for (n, i), node in d.placement.items()}
    parallelism = {name: k for a, d in each.items() for name, k in prefixed(a, d.parallelism).items()}
    return Deployment(parallelism, max(known) if len(known) == len(counts) else None, placement)


_SHARED_FIELDS = ("execution", "noise", "network", "links")  # the same for all applications of a cluster


class Cluster(Simulator):
    """Run several applications on the same nodes.

    Parameters
    ----------
    apps
        The applications by name; all of them can be simulated, and are pipelined.
    nodes
        The nodes by name; those of the first application's plant if left out.
    deployment
        The deployment of all at the start, with operators named "application/operator".
    window_s
        Length of the windows, in seconds.
    tick_s
        Length of the steps within a window, in seconds.
    seed
        Seed of the noise.
    scheduler
        Function that places the instances of all applications.

    Examples
    --------
    >>> from dspkit import apps
    >>> cluster = Cluster({"words": apps.word_count(), "star": apps.star()})
    >>> cluster.deployment.parallelism["words/count"], list(cluster.tenants)
    (1, ['words', 'star'])
    """

    _job: SharedJob

    def __init__(
        self,
        apps: Mapping[str, App],
        *,
        nodes: Mapping[str, Node] | None = None,
        deployment: Deployment | None = None,
        window_s: float = 10.0,
        tick_s: float = 0.5,
        seed: int = 0,
        scheduler: Scheduler = round_robin,
    ):

        topology = merge({name: _topology(app) for name, app in apps.items()} if isinstance(apps, Mapping) else apps)
        self.apps = dict(apps)
        first = next(iter(self.apps.values()))
        shared = first.plant.nodes if nodes is None else nodes
        self.plants = {a: replace(app.plant, nodes=shared, faults=()) for a, app in self.apps.items()}
        plant = _merged_plant({a: app.plant for a, app in self.apps.items()}, shared)
        loads = {
            named(a, source): load
            for a, app in self.apps.items()
            for source, load in by_source(app.topology, app.workload).items()
        }
        begin = deployment or Deployment(topology.uniform(), first.workers)
        self.seen: dict[str, list[Snapshot]] = {a: [] for a in self.apps}  # each application's windows so far
        super().__init__(
            topology, plant, loads, deployment=begin, window_s=window_s, tick_s=tick_s, seed=seed, scheduler=scheduler
        )
        self.tenants = {a: Tenant(self, a) for a in self.apps}

    def _make_job(self, start: Deployment, scheduler: Scheduler, make: Callable[[IndexedGraph, Layout], Engine]) -> Job:
        at = {name: i for i, name in enumerate(self.topology.order)}
        topologies = {a: app.topology for a, app in self.apps.items()}
        self._parts = {a: np.array([at[named(a, n)] for n in own.order]) for a, own in topologies.items()}

        def shared(graph: IndexedGraph, layout: Layout) -> Engine:
            return SharedFluid(graph, layout, list(self._parts.values()))

        return SharedJob(self.topology, self.plant, start, scheduler, shared, self.plants, topologies)

    def observe(self) -> Snapshot:
        whole = super().observe()
        engine, layout = self._job.engine, self._job.layout
        assert isinstance(engine, SharedFluid)
        silent = {n for n in self.topology.order if n not in whole.operators}
        for (a, members), window in zip(self._parts.items(), engine.parts, strict=True):
            own = layout._replace(instances=layout.instances[members], node_instances=layout.node_instances[:, members])
            seen = snapshot(
                window,
                self.apps[a].topology,
                self.plants[a],
                own,
                self._job.each[a],
                t=whole.t,
                window_s=self.window_s,
                dead_s=float(self._dead[members].max()),
            )
            if silent:
                heard = {n: m for n, m in seen.operators.items() if named(a, n) not in silent}
                seen = replace(seen, operators=heard)
            self.seen[a].append(seen)
        return whole

    def deploy_one(self, application: str, deployment: Deployment) -> None:
        """Change one application; the others remain unchanged.

        Parameters
        ----------
        application
            Its name.
        deployment
            Its deployment from now on; `workers` is the number of nodes, the first ones, that it may use.

        Examples
        --------
        >>> from dspkit import apps
        >>> cluster = Cluster({"words": apps.word_count(), "star": apps.star()})
        >>> cluster.deploy_one("words", cluster.running("words").scaled({"count": 2}))
        >>> cluster.deployment.parallelism["words/count"]
        2
        """
        self._must_be_open()
        self.apps[application].topology.check(deployment)
        if deployment.settings:
            raise DeploymentError(f"settings {dict(deployment.settings)}", expected="no settings", fix="leave them out")
        if deployment != self._job.each[application]:
            self._job.deploy_one(application, deployment, self._window * self.window_s)

    def running(self, application: str) -> Deployment:
        """Return the deployment of one application.

        Parameters
        ----------
        application
            Its name.

        Examples
        --------
        >>> from dspkit import apps
        >>> Cluster({"words": apps.word_count()}).running("words").instances
        4
        """
        return self._job.each[application]

    def __repr__(self) -> str:
        loads = "; ".join(f"{a} under {app.workload}" for a, app in self.apps.items())
        return (
            f"Cluster({', '.join(self.topology.order)}; {loads}; window_s={self.window_s:g}, "
            f"noise={self.plant.noise:g}, seed={self.seed})"
        )


class Tenant(BackendBase):
    """One application of a cluster as a Backend. The first tenant that asks for a window has it simulated for all.

    Parameters
    ----------
    cluster
        The cluster.
    name
        The name of the application.

    Examples
    --------
    >>> from dspkit import apps
    >>> tenant = Cluster({"words": apps.word_count(), "star": apps.star()}).tenants["words"]
    >>> sorted(tenant.observe().operators)
    ['count', 'flat_map', 'sink', 'source']
    """

    knobs = Simulator.knobs

    def __init__(self, cluster: Cluster, name: str):
        self.cluster, self.name, self.topology = cluster, name, cluster.apps[name].topology
        self._read = 0

    @property
    def deployment(self) -> Deployment:
        """The deployment of the application."""
        return self.cluster.running(self.name)

    def observe(self) -> Snapshot:
        """Return the application's next window."""
        self._must_be_open()
        seen = self.cluster.seen[self.name]
        if self._read == len(seen):
            self.cluster.observe()
        self._read += 1
        return seen[self._read - 1]

    def deploy(self, deployment: Deployment) -> None:
        """Change this application alone."""
        self._must_be_open()
        self.cluster.deploy_one(self.name, deployment)

    def close(self) -> None:
        """Reject all further calls for this application; the cluster and the others continue."""
        super().close()

    def __repr__(self) -> str:
        return f"Tenant({self.name!r} of {self.cluster!r})"


def _topology(app: Any) -> Any:
    """Return the topology of an application that can be simulated; `merge` rejects anything else with a clear error."""
    return app.must_be_simulated().topology if hasattr(app, "must_be_simulated") else app


def _merged_plant(plants: Mapping[str, Plant], nodes: Mapping[str, Node]) -> Plant:
    """Return one plant with the services of all; the fields that it has only once must be equal."""
    first = next(iter(plants.values()))
    services: dict[str, Service] = {}
    faults = []
    for a, plant in plants.items():
        _check_can_share(a, plant, first)
        for name, service in plant.services.items():
            if service.overflow == "drop":
                raise ArgumentError(
                    f"overflow='drop' of {name!r} in {a!r}", expected="overflow='block'", fix="change it"
                )
            toward = service.selectivity
            if isinstance(toward, Mapping):
                service = replace(service, selectivity=prefixed(a, toward))
            services[named(a, name)] = service
        for fault in plant.faults:
            if isinstance(fault, NodeDown) and fault.loses:
                raise ArgumentError(f"{fault!r} of {a!r}", expected="loses=False", fix="leave loses out")
            operator = getattr(fault, "operator", None)
            fault = fault if operator is None else replace(fault, operator=named(a, operator))  # type: ignore[call-arg]
            if fault not in faults:
                faults.append(fault)
    return replace(first, services=services, nodes=nodes, faults=tuple(faults))


def _check_can_share(app: str, plant: Plant, first: Plant) -> None:
    """Refuse a plant that cannot share a cluster with the first one."""
    for name in _SHARED_FIELDS:
        if getattr(plant, name) != getattr(first, name):
            raise ArgumentError(
                f"{name} {getattr(plant, name)!r} of {app!r}"[:120],
                expected=f"{getattr(first, name)!r}"[:120],
                fix="use the same value for all applications of the cluster",
            )
    if plant.execution != "pipelined":
        raise ArgumentError(
            f"execution {plant.execution!r} of {app!r}",
            expected="'pipelined'",
            fix="simulate a micro-batch job by itself",
        )
    if plant.pause_kind == "restart":
        raise ArgumentError(
            f"pause_kind 'restart' of {app!r}", expected="a kind that loses no records", fix="use 'rebalance'"
        )
    if plant.processes:
        raise ArgumentError(f"processes={plant.processes} of {app!r}", expected="processes=0", fix="leave it out")
