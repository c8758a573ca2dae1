"""Several applications on the nodes of one simulated cluster.

A `Cluster` is a Backend of all its applications as one graph, for a policy that decides for all of them. Each of its
`tenants` is a Backend of one application, for a policy that knows of no other. They are played together, a window at a
time: what one uses of a node's cores the others do not have.

A change stops the applications whose instances it moves, each as its own plant says; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..applications import merge, named, prefixed
from ..core import Deployment, Snapshot
from ..errors import BackendError, DeploymentError, KnobError
from ..plant import Node, NodeDown, Plant, Scheduler, Service, round_robin
from .engine import Engine
from .job import Job
from .layout import Graph, Layout
from .shared_fluid import SharedFluid
from .shared_job import SharedJob
from .simulator import Simulator, by_source
from .snapshots import snapshot

if TYPE_CHECKING:
    from ..topologies import App

_ALIKE = ("law", "noise", "network", "links")  # what all applications of a cluster have in common


class Cluster(Simulator):
    """Run several applications on the same nodes.

    >>> from dspkit import topologies
    >>> cluster = Cluster({"words": topologies.word_count(), "star": topologies.star()})
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
        """`nodes` are those of the first application's plant if none are given."""
        topology = merge({name: _topology(app) for name, app in apps.items()} if isinstance(apps, Mapping) else apps)
        self.apps = dict(apps)
        first = next(iter(self.apps.values()))
        shared = first.plant.nodes if nodes is None else nodes
        self.plants = {a: replace(app.plant, nodes=shared, faults=()) for a, app in self.apps.items()}
        plant = _together({a: app.plant for a, app in self.apps.items()}, shared)
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

    def _made(self, start: Deployment, scheduler: Scheduler, make: Callable[[Graph, Layout], Engine]) -> Job:
        at = {name: i for i, name in enumerate(self.topology.order)}
        topologies = {a: app.topology for a, app in self.apps.items()}
        self._parts = {a: np.array([at[named(a, n)] for n in own.order]) for a, own in topologies.items()}

        def shared(graph: Graph, layout: Layout) -> Engine:
            return SharedFluid(graph, layout, list(self._parts.values()))

        return SharedJob(self.topology, self.plant, start, scheduler, shared, self.plants, topologies)

    def observe(self) -> Snapshot:
        """Play one window of all applications, and report them as one."""
        whole = super().observe()
        engine, layout = self._job.engine, self._job.layout
        assert isinstance(engine, SharedFluid)
        silent = {n for n in self.topology.order if n not in whole.operators}
        for (a, members), window in zip(self._parts.items(), engine.parts, strict=True):
            own = layout._replace(instances=layout.instances[members], here=layout.here[:, members])
            seen = snapshot(
                window, self.apps[a].topology, self.plants[a], own, self._job.each[a],
                t=whole.t, window_s=self.window_s, dead_s=float(self._dead[members].max()),
            )  # fmt: skip
            if silent:
                heard = {n: m for n, m in seen.operators.items() if named(a, n) not in silent}
                seen = replace(seen, operators=heard)
            self.seen[a].append(seen)
        return whole

    def deploy_one(self, application: str, deployment: Deployment) -> None:
        """Change one application and leave the others as they are; `workers` are the first nodes, those it may use."""
        self._must_be_open()
        self.apps[application].topology.check(deployment)
        if deployment.settings:
            raise DeploymentError(f"settings {dict(deployment.settings)}", expected="none here", fix="leave them out")
        if deployment != self._job.each[application]:
            self._job.deploy_one(application, deployment, self._window * self.window_s)

    def running(self, application: str) -> Deployment:
        """What one application runs as."""
        return self._job.each[application]

    def __repr__(self) -> str:
        loads = "; ".join(f"{a} under {app.workload}" for a, app in self.apps.items())
        return (
            f"Cluster({', '.join(self.topology.order)}; {loads}; window_s={self.window_s:g}, "
            f"noise={self.plant.noise:g}, seed={self.seed})"
        )


class Tenant:
    """One application of a cluster as a Backend. Its next window is played when the first of all asks for it."""

    knobs = Simulator.knobs

    def __init__(self, cluster: Cluster, name: str):
        self.cluster, self.name, self.topology = cluster, name, cluster.apps[name].topology
        self._read, self._open = 0, True

    @property
    def deployment(self) -> Deployment:
        """What runs."""
        return self.cluster.running(self.name)

    def observe(self) -> Snapshot:
        """The application's next window."""
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
        """No more of this application from here; the cluster and the others go on."""
        self._open = False

    def __enter__(self) -> Tenant:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Tenant({self.name!r} of {self.cluster!r})"

    def _must_be_open(self) -> None:
        if not self._open:
            raise BackendError("a call after close()", expected="an open application", fix="take it from a new cluster")


def _topology(app: Any) -> Any:
    """An application's; what is none `merge` refuses in words."""
    return getattr(app, "topology", app)


def _together(plants: Mapping[str, Plant], nodes: Mapping[str, Node]) -> Plant:
    """One plant with the services of all; what they cannot differ in is that of each."""
    first = next(iter(plants.values()))
    services: dict[str, Service] = {}
    faults = []
    for a, plant in plants.items():
        for name in _ALIKE:
            if getattr(plant, name) != getattr(first, name):
                raise KnobError(
                    f"{name} {getattr(plant, name)!r} of {a!r}"[:120], expected=f"{getattr(first, name)!r}"[:120],
                    fix="applications of one cluster have the same",
                )  # fmt: skip
        if plant.law != "pipeline":
            raise KnobError(f"law {plant.law!r} of {a!r}", expected="'pipeline'", fix="give micro-batches their own")
        if plant.pause_kind == "restart":
            raise KnobError(f"pause_kind 'restart' of {a!r}", expected="one that loses nothing", fix="as 'rebalance'")
        if plant.processes:
            raise KnobError(f"processes={plant.processes} of {a!r}", expected="0: a fluid", fix="leave them out")
        for name, service in plant.services.items():
            if service.overflow == "drop":
                raise KnobError(f"{a!r}, whose {name!r} drops records", expected="queues that block", fix="change it")
            toward = service.selectivity
            if isinstance(toward, Mapping):
                service = replace(service, selectivity=prefixed(a, toward))
            services[named(a, name)] = service
        for fault in plant.faults:
            if isinstance(fault, NodeDown) and fault.loses:
                raise KnobError(f"{fault!r} of {a!r}", expected="loses=False", fix="let what waits be replayed")
            operator = getattr(fault, "operator", None)
            fault = fault if operator is None else replace(fault, operator=named(a, operator))  # type: ignore[call-arg]
            if fault not in faults:
                faults.append(fault)
    return replace(first, services=services, nodes=nodes, faults=tuple(faults))
