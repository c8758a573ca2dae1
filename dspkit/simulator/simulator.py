"""A simulated cluster as a Backend: one window at a time, seeded, with pauses at rescales and faults.

Sources read a durable log: what they cannot take waits there, and counts as lag, not as processing latency.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from ..core import Deployment, Snapshot, Topology
from ..errors import BackendError, DeploymentError, KnobError, WorkloadError
from ..plant import Places, Plant, Scheduler, round_robin
from ..workload import Workload
from .batches import Batches
from .engine import Engine
from .fluid import Fluid
from .job import Job
from .layout import Array, Graph, Layout
from .snapshots import snapshot

if TYPE_CHECKING:
    import pandas as pd

ENGINES = ("fluid", "tuples")


class Simulator:
    """Run `topology` on `plant` under `workload`; each `observe()` moves `window_s` seconds on.

    >>> from dspkit import Plant, Topology, workload
    >>> from dspkit.plant import Service
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
        """`workload` is shared equally by the sources, or given for each by name.

        The "fluid" engine takes any load; "tuples" follows each record, whose arrivals are "poisson" or "even".
        `scheduler` places what the deployment does not. `keep_ticks` keeps what `ticks` shows.
        """
        if not all_numbers(window_s, tick_s) or not (0 < tick_s <= window_s < math.inf):
            raise KnobError(
                f"window_s={window_s}, tick_s={tick_s}", expected="0 < tick_s <= window_s", fix="use longer windows"
            )
        for name, value, choices in (("engine", engine, ENGINES), ("arrivals", arrivals, ("poisson", "even"))):
            if value not in choices:
                raise KnobError(f"{name}={value!r}", expected=f"one of {', '.join(choices)}", fix="see Simulator")
        if keep_ticks and engine == "tuples":
            raise KnobError("keep_ticks with tuples", expected="the fluid engine", fix="or shorter windows of tuples")
        if not isinstance(plant, Plant) or not callable(scheduler):
            came = f"plant={plant!r}" if callable(scheduler) else f"scheduler={scheduler!r}"
            raise KnobError(
                came[:100], expected="a Plant, and a function that places instances", fix="see dspkit.plant"
            )
        self.topology, self.plant = topology, plant.check(topology)
        self.workload, self.window_s, self.seed, self.kind = workload, float(window_s), seed, engine
        self.loads = by_source(topology, workload)
        self._edges = np.linspace(0.0, self.window_s, max(1, round(window_s / tick_s)) + 1)
        self._random, records = random_streams(seed)

        def make(graph: Graph, layout: Layout) -> Engine:
            return make_engine(engine, self.plant, graph, layout, records, arrivals)

        start = Deployment(topology.uniform()) if deployment is None else topology.check(deployment)
        if start.settings:
            raise DeploymentError(f"settings {dict(start.settings)}", expected="none here", fix="leave them out")
        self._job = self._made(start, scheduler, make)
        self._window, self._open, self._keep = 0, True, keep_ticks
        self._ticks: list[Array] = []

    def _made(self, start: Deployment, scheduler: Scheduler, make: Callable[[Graph, Layout], Engine]) -> Job:
        return Job(self.topology, self.plant, start, scheduler, make)

    @property
    def deployment(self) -> Deployment:
        """What runs."""
        return self._job.deployment

    @property
    def placement(self) -> Places:
        """The node of each instance, whoever placed it."""
        return dict(self._job.where)

    def observe(self) -> Snapshot:
        """Play one window and report it."""
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
            self._dead += (b - a) * ~now.here[now.cores > 0].any(axis=0)
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
        """Change parallelism, workers or placement; the plant says what that stops. Nothing is lost."""
        self._must_be_open()
        self.topology.check(deployment)
        if deployment.settings != self.deployment.settings:
            raise DeploymentError(
                "another settings",
                expected=f"a change of {', '.join(sorted(self.knobs))}",
                fix="leave them as they are",
            )
        if deployment != self.deployment:
            self._job.deploy(deployment, self._window * self.window_s)

    @property
    def ticks(self) -> pd.DataFrame:
        """The run in ticks, as cumulative curves in source records: t, offered, ended, lost, and the lag at t.

        Processed in order, the record that came when `offered` was x left the log when `offered - lost - lag` was: see
        `queueing.virtual_delay` (where a source refuses records, take `offered - lost` for what came).
        """
        import pandas as pd

        if not self._keep:
            raise BackendError("ticks of a run that kept none", expected="keep_ticks=True", fix="pass it to Simulator")
        t, came, ended, lag, lost = np.concatenate(self._ticks).T if self._ticks else np.empty((5, 0))
        return pd.DataFrame(
            {"t": t, "offered": came.cumsum(), "ended": ended.cumsum(), "lost": lost.cumsum(), "lag": lag}
        )

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Simulator({', '.join(self.topology.order)}; {self.workload}, window_s={self.window_s:g}, "
            f"pause_s={self.plant.pause_s:g}, noise={self.plant.noise:g}, seed={self.seed}, engine={self.kind})"
        )

    def _must_be_open(self) -> None:
        if not self._open:
            raise BackendError("a call after close()", expected="an open simulator", fix="make a new one")


def offered(loads: Mapping[str, Workload], topology: Topology, times: Array) -> Array:
    """Records/s that each operator is offered from outside at these times."""
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


def all_numbers(*values: object) -> bool:
    """Whether these are real numbers that can be compared."""
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def by_source(topology: Topology, workload: Workload | Mapping[str, Workload]) -> dict[str, Workload]:
    """The load of each source: the same for all, or as given."""
    if isinstance(workload, Workload):
        share = workload if len(topology.sources) == 1 else workload * (1 / len(topology.sources))
        return dict.fromkeys(topology.sources, share)
    if not isinstance(workload, Mapping) or not all(isinstance(load, Workload) for load in workload.values()):
        raise WorkloadError(
            f"workload {workload!r}", expected="a Workload, or one for each source by name", fix="as in Constant(500)"
        )
    if set(workload) != set(topology.sources):
        raise WorkloadError(
            f"loads for {sorted(workload)}", expected=f"one for each of {sorted(topology.sources)}", fix="name sources"
        )
    return dict(workload)


def noises(random: np.random.Generator, variation: float, shape: int | tuple[int, ...]) -> Array:
    """What multiplies service times, window by window: lognormal with this coefficient of variation, mean 1."""
    spread = math.sqrt(math.log1p(variation**2))
    return np.exp(spread * random.standard_normal(shape) - spread**2 / 2)


def random_streams(seed: int) -> list[np.random.Generator]:
    """Independent streams: one for the noise of windows, one for records."""
    try:
        whole = operator.index(seed)
        return [np.random.default_rng(whole), np.random.default_rng([whole, 1])]
    except (TypeError, ValueError) as error:
        raise KnobError(f"seed={seed!r}", expected="a whole number from 0 up", fix="as in seed=0") from error


def make_engine(
    kind: str, plant: Plant, graph: Graph, layout: Layout, random: np.random.Generator, arrivals: str
) -> Engine:
    batches = (plant.trigger_s, plant.batch_overhead_s, plant.batch_records)
    if kind == "tuples" and plant.law == "sequential":
        from .tuples_batch import BatchTuples

        return BatchTuples(graph, layout, random, *batches[:2], arrivals, plant.batch_records)
    if kind == "tuples":
        from .tuples import Tuples

        return Tuples(graph, layout, random, arrivals)
    if plant.processes:
        raise KnobError(
            f"processes={plant.processes} in the fluid", expected="engine='tuples'", fix="pass it to Simulator"
        )
    return Batches(graph, layout, *batches) if plant.law == "sequential" else Fluid(graph, layout)
