"""A simulated cluster as a Backend: one window per call, seeded, with pauses at rescales and with faults.

Sources read a durable log: records that they cannot take yet wait there, and count as lag, not as processing latency.
Each window ends with a `Snapshot`: the sums of the engine as the rates and shares that a policy sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..core import (
    ArgumentError,
    BackendBase,
    BackendError,
    Deployment,
    DeploymentError,
    OperatorMetrics,
    Snapshot,
    Topology,
    WorkloadError,
)
from ..core.typing import Array
from ..core.validation import choice, is_number, number, whole
from ..workload import Workload
from .fluid.engine import Fluid
from .fluid.latency import TRACE
from .fluid.microbatch import Batches
from .job import Engine, Job, WindowSums
from .layout import IndexedGraph, Layout
from .system import MetricsOutage, Places, Plant, Scheduler, round_robin

if TYPE_CHECKING:
    import pandas as pd


def snapshot(
    w: WindowSums,
    topology: Topology,
    plant: Plant,
    layout: Layout,
    deployment: Deployment,
    *,
    t: float,
    window_s: float,
    dead_s: float,
) -> Snapshot:
    """Return the snapshot of the `window_s` seconds that end at `t`.

    In `dead_s` of them some operator had no instance on a node that is up.
    """
    silent = {
        f.operator for f in plant.faults if isinstance(f, MetricsOutage) and f.at_s < t and f.until_s > t - window_s
    }
    columns = (w.arrived, w.done, w.dropped, w.busy, w.blocked, w.cpu, w.waited_s, w.waiting, layout.instances)
    rows = dict(zip(topology.order, zip(*(c.tolist() for c in columns), strict=True), strict=True))
    sent = dict(zip(topology.edges, (w.sent / window_s).tolist(), strict=True))
    operators = {}
    for name, (arrived, done, dropped, busy, blocked, cpu, waited, waiting, k) in rows.items():
        if children := topology.downstream(name):
            out = sum(sent[name, child] for child in children)
        else:
            out = done * plant.services[name].results / window_s
        if name not in silent:
            operators[name] = OperatorMetrics(
                input_rate=arrived / window_s,
                processing_rate=done / window_s,
                output_rate=out,
                true_rate=done / busy if busy > 0 and done > TRACE else None,
                utilisation=min(1.0, busy / (window_s * k)),
                backlog=max(0.0, waiting),
                parallelism=k,
                cpu=cpu / window_s,
                blocked=min(1.0, blocked / (window_s * k)),
                dropped=dropped / window_s,
                waited_s=waited if waited >= 0 else None,
            )
    return Snapshot(
        t=t,
        window_s=window_s,
        deployment=deployment,
        operators=operators,
        source_rates={name: rows[name][0] / window_s for name in topology.sources},
        throughput=w.ended / window_s,
        latency=w.latency,
        event_latency=w.event_latency,
        lag=sum(rows[name][7] for name in topology.sources),
        edge_rates=sent,
        nodes=node_shares(w.cores / window_s, plant, layout, deployment.workers),
        downtime_s=min(float(max(w.stopped, dead_s)), window_s),
        execution=plant.execution,
    )


def node_shares(cores: Array, plant: Plant, layout: Layout, workers: int | None) -> dict[str, float]:
    """Return the used share of the cores per node, engine overhead included, for nodes that the job may use or uses.

    A node that is down, and did not work in this window, reports nothing.
    """
    usable, shares = workers or len(cores), {}
    for j, (name, node) in enumerate(plant.nodes.items()):
        up = bool(layout.cores[j])
        if (up or cores[j] > 0) and (j < usable or layout.node_instances[j].any()):
            engine = node.overhead_cores if up else 0.0
            shares[name] = min(1.0, (float(cores[j]) * (1 + node.overhead_share) + engine) / node.cores)
    return shares


ENGINES = ("fluid", "records")


class Simulator(BackendBase):
    """Run `topology` on `plant` under `workload`; each `observe()` simulates the next `window_s` seconds.

    Parameters
    ----------
    topology
        The graph of operators.
    plant
        The simulated cluster: the cost of each operator, the nodes, and the downtime of a change.
    workload
        The load, which the sources share equally, or one load per source by name.
    deployment
        The deployment at the start; one instance per operator if left out.
    window_s
        Length of the windows, in seconds.
    tick_s
        Length of the steps within a window, in seconds, in which the load is constant.
    seed
        Seed of everything random.
    engine
        "fluid" computes rates for any load; "records" simulates each record.
    arrivals
        "poisson" or "even": the arrivals at the sources, for "records" only.
    scheduler
        Function that places the instances that the deployment does not place.
    keep_ticks
        Whether to keep the cumulative curves that `ticks` returns.

    Examples
    --------
    >>> from dspkit import Plant, Topology, workload
    >>> from dspkit.simulator import Service
    >>> plant = Plant({"read": Service(1e-4), "count": Service(1e-3)})
    >>> sim = Simulator(Topology.chain("read", "count"), plant, workload.Constant(1500))
    >>> round(sim.observe().throughput), round(sim.observe().operators["count"].true_rate)
    (1000, 1000)
    """

    knobs = frozenset({"parallelism", "workers", "placement"})

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        workload: Workload | Mapping[str, Workload],
        *,
        deployment: Deployment | None = None,
        window_s: float = 10.0,
        tick_s: float = 0.5,
        seed: int = 0,
        engine: str = "fluid",
        arrivals: str = "poisson",
        scheduler: Scheduler = round_robin,
        keep_ticks: bool = False,
    ):

        if not is_number(window_s, tick_s) or not (0 < tick_s <= window_s < math.inf):
            raise ArgumentError(
                f"window_s={window_s}, tick_s={tick_s}", expected="0 < tick_s <= window_s", fix="use longer windows"
            )
        for name, value, choices in (("engine", engine, ENGINES), ("arrivals", arrivals, ("poisson", "even"))):
            choice(value, name, choices)
        if keep_ticks and engine == "records":
            raise ArgumentError(
                'keep_ticks with engine="records"', expected='engine="fluid"', fix="or use shorter windows"
            )
        if not isinstance(plant, Plant) or not callable(scheduler):
            came = f"plant={plant!r}" if callable(scheduler) else f"scheduler={scheduler!r}"
            raise ArgumentError(
                came[:100], expected="a Plant, and a function that places instances", fix="see dspkit.simulator"
            )
        self.topology, self.plant = topology, plant.check(topology)
        self.workload, self.window_s, self.seed, self.kind = workload, float(window_s), seed, engine
        self.loads = by_source(topology, workload)
        self._edges = np.linspace(0.0, self.window_s, max(1, round(window_s / tick_s)) + 1)
        self._random, records = random_streams(seed)

        def make(graph: IndexedGraph, layout: Layout) -> Engine:
            return make_engine(engine, self.plant, graph, layout, records, arrivals)

        start = Deployment(topology.uniform()) if deployment is None else topology.check(deployment)
        if start.settings:
            raise DeploymentError(f"settings {dict(start.settings)}", expected="no settings", fix="leave them out")
        if plant.execution == "micro-batch":
            self.knobs |= {"settings"}
        self._job = self._make_job(start, scheduler, make)
        self._window, self._keep = 0, keep_ticks
        self._ticks: list[Array] = []

    def _make_job(self, start: Deployment, scheduler: Scheduler, make: Callable[[IndexedGraph, Layout], Engine]) -> Job:
        return Job(self.topology, self.plant, start, scheduler, make)

    @property
    def deployment(self) -> Deployment:
        """The deployment that runs."""
        return self._job.deployment

    @property
    def placement(self) -> Places:
        """The node of each instance, whether placed by the deployment or by the scheduler."""
        return dict(self._job.where)

    def observe(self) -> Snapshot:
        """Simulate one window and return its snapshot.

        Examples
        --------
        >>> from dspkit import apps
        >>> sim = apps.word_count().simulator(window_s=10)
        >>> sim.observe().t, sim.observe().t
        (10.0, 20.0)
        """
        self._must_be_open()
        engine, start = self._job.engine, self._window * self.window_s
        end = (self._window + 1) * self.window_s
        self._dead = np.zeros(len(self.topology.order))  # seconds in which an operator had no node that is up
        noise = noises(self._random, self.plant.noise, len(self.topology.order))
        for a, b in self._job.stretches(start, end):
            edges = start + self._edges
            edges = np.concatenate(([a], edges[(edges > a + 1e-9) & (edges < b - 1e-9)], [b]))
            rates = offered(self.loads, self.topology, (edges[1:] + edges[:-1]) / 2)
            engine.play(rates, np.diff(edges), noise)
            now = self._job.layout
            self._dead += (b - a) * ~now.node_instances[now.cores > 0].any(axis=0)
            if self._keep and isinstance(engine, (Fluid, Batches)):
                self._ticks.append(np.column_stack((edges[1:], rates.sum(axis=1) * np.diff(edges), engine.kept[-1])))
        self._window += 1
        return snapshot(
            engine.window(),
            self.topology,
            self.plant,
            self._job.layout,
            self._job.deployment,
            t=end,
            window_s=self.window_s,
            dead_s=float(self._dead.max()),
        )

    def deploy(self, deployment: Deployment) -> None:
        """Change parallelism, workers or placement, with the downtime that the plant defines.

        Records are lost only where the plant's pause kind is "restart". A job in micro-batches also takes the setting
        `trigger_s`, the shortest time from batch to batch, from the next batch on.

        Parameters
        ----------
        deployment
            The deployment to run from now on.

        Examples
        --------
        >>> from dspkit import apps
        >>> sim = apps.word_count().simulator()
        >>> sim.deploy(sim.deployment.scaled({"count": 3}))
        >>> sim.deployment.parallelism["count"]
        3
        """
        self._must_be_open()
        self.topology.check(deployment)
        if deployment.settings != self.deployment.settings:
            self._retime(deployment)
        if deployment != self.deployment:
            self._job.deploy(deployment, self._window * self.window_s)

    def _retime(self, deployment: Deployment) -> None:
        """Set the trigger of a job in micro-batches, the only setting that is known here."""
        engine, given = self._job.engine, dict(deployment.settings)
        if set(given) != {"trigger_s"} or not hasattr(engine, "retime"):
            raise DeploymentError(
                f"a change of settings to {given!r:.200}",
                expected="trigger_s, of a job in micro-batches" if hasattr(engine, "retime") else "no settings",
                fix="leave the settings unchanged",
            )
        engine.retime(number(given["trigger_s"], "trigger_s", 1e-3))

    @property
    def ticks(self) -> pd.DataFrame:
        """The run in ticks, as cumulative curves in source records: t, offered, ended, lost, and the lag at t.

        Processed in order, the record that arrived when `offered` was x left the log when `offered - lost - lag` was x
        (where a source refuses records, use `offered - lost` as the arrivals): the distance between the curves is the
        wait.
        """
        import pandas as pd

        if not self._keep:
            raise BackendError(
                "ticks of a run that did not keep them", expected="keep_ticks=True", fix="pass it to Simulator"
            )
        t, came, ended, lag, lost = np.concatenate(self._ticks).T if self._ticks else np.empty((5, 0))
        return pd.DataFrame(
            {"t": t, "offered": came.cumsum(), "ended": ended.cumsum(), "lost": lost.cumsum(), "lag": lag}
        )

    def __repr__(self) -> str:
        return (
            f"Simulator({', '.join(self.topology.order)}; {self.workload}, window_s={self.window_s:g}, "
            f"pause_s={self.plant.pause_s:g}, noise={self.plant.noise:g}, seed={self.seed}, engine={self.kind})"
        )


def offered(loads: Mapping[str, Workload], topology: Topology, times: Array) -> Array:
    """Return the records/s that each operator is offered from outside at these times."""
    rates = np.zeros((len(times), len(topology.order)))
    for i, name in enumerate(topology.order):
        if name in loads:
            rates[:, i] = loads[name].rates(times)
    if not np.all(rates >= 0) or np.isinf(rates).any():
        worst = rates[~(rates >= 0) | np.isinf(rates)][0]
        raise WorkloadError(
            f"a load of {worst:g} records/s", expected="finite rates >= 0", fix="check rates() of the load"
        )
    return rates


def by_source(topology: Topology, workload: Workload | Mapping[str, Workload]) -> dict[str, Workload]:
    """Return the load of each source: an equal share of one load, or the given loads."""
    if isinstance(workload, Workload):
        share = workload if len(topology.sources) == 1 else workload * (1 / len(topology.sources))
        return dict.fromkeys(topology.sources, share)
    if not isinstance(workload, Mapping) or not all(isinstance(load, Workload) for load in workload.values()):
        raise WorkloadError(
            f"workload {workload!r}", expected="a Workload, or one per source by name", fix="as in Constant(500)"
        )
    if set(workload) != set(topology.sources):
        raise WorkloadError(
            f"loads for {sorted(workload)}",
            expected=f"one per source: {sorted(topology.sources)}",
            fix="use the names of the sources",
        )
    return dict(workload)


def noises(random: np.random.Generator, variation: float, shape: int | tuple[int, ...]) -> Array:
    """Return the factors of service times per window: lognormal with this coefficient of variation and mean 1."""
    spread = math.sqrt(math.log1p(variation**2))
    return np.exp(spread * random.standard_normal(shape) - spread**2 / 2)


def random_streams(seed: int) -> list[np.random.Generator]:
    """Return two independent generators: one for the noise of windows, one for records."""
    seed = whole(seed, "seed")
    return [np.random.default_rng(seed), np.random.default_rng([seed, 1])]


def make_engine(
    kind: str, plant: Plant, graph: IndexedGraph, layout: Layout, random: np.random.Generator, arrivals: str
) -> Engine:
    """Return the engine for this level of detail and the plant's execution."""
    batches = (plant.trigger_s, plant.batch_overhead_s, plant.max_batch_records)
    if kind == "records" and plant.execution == "micro-batch":
        from .records.microbatch import MicrobatchRecords

        return MicrobatchRecords(graph, layout, random, *batches[:2], arrivals, plant.max_batch_records)
    if kind == "records":
        from .records.engine import RecordEngine

        return RecordEngine(graph, layout, random, arrivals)
    if plant.processes:
        raise ArgumentError(
            f"processes={plant.processes} with engine='fluid'", expected="engine='records'", fix="pass it to Simulator"
        )
    return Batches(graph, layout, *batches) if plant.execution == "micro-batch" else Fluid(graph, layout)
