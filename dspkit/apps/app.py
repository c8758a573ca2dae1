"""The type of an application: a graph with costs, functions and a load, which runs on the simulator, live, or both.

`App.parity` replays a live run on the simulator (`replay`): the same load and deployments, window by window.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from .. import simulator as simulation  # loads its engines on first use: workers of Spark do not need them
from ..core import (
    ArgumentError,
    BackendError,
    Deployment,
    FrozenMap,
    History,
    MetricError,
    Step,
    Topology,
    TopologyError,
    knobs_of,
)
from ..core.lazy import load as load_library
from ..core.validation import number
from ..simulator import Plant
from ..workload import Sum, Trace, Workload
from .live import SLOTS, Live, bounded
from .synthetic import synthetic

if TYPE_CHECKING:
    import pandas as pd

    from ..simulator import Simulator
    from ..spark import SparkJob


def replay(topology: Topology, plant: Plant, history: History) -> History:
    """Return a simulated run under the load and the parallelism of a recorded one.

    Examples
    --------
    >>> from dspkit import apps, policies, run
    >>> app = apps.word_count()
    >>> measured = run(policies.get("ds2")(), app.simulator(), steps=50)
    >>> again = replay(app.topology, app.plant, measured)
    >>> again[-1].snapshot.deployment == measured[-1].snapshot.deployment
    True
    """
    if not history:
        raise MetricError("an empty history", expected="a recorded run", fix="pass what run() returns")
    seen = [step.snapshot for step in history]
    window_s = median(s.window_s for s in seen)
    starts = [max(0.0, s.t - s.window_s) for s in seen]
    load = {name: Trace(starts, [s.source_rates.get(name, 0.0) for s in seen]) for name in topology.sources}
    simulator = simulation.Simulator(topology, plant, load, deployment=_alone(seen[0].deployment), window_s=window_s)
    played, place = History(topology), 0
    for i in range(round(seen[-1].t / window_s)):
        while place + 1 < len(seen) and seen[place].t <= i * window_s + 1e-6:
            place += 1
        wanted = _alone(seen[place].deployment)
        if wanted != simulator.deployment:
            simulator.deploy(wanted)
        played.append(Step(i, simulator.observe(), None))
    return played


def _alone(deployment: Deployment) -> Deployment:
    """Return the parallelism only: the nodes of the recorded run are not those of the plant."""
    return Deployment(deployment.parallelism)


RESULTS = (  # columns of simulate_many
    "throughput", "source_rate", "lost", "lag", "worst_lag", "latency_s", "worst_latency_s", "event_latency_s",
    "busiest", "utilisation", "cores", "downtime_s", "instances", "cost_per_hour",
)  # fmt: skip


log = logging.getLogger("dspkit")
_NOTHING: Any = None  # the simulated side of an application without one


@dataclass(frozen=True)
class App:
    """An application: one graph, with a simulated side, a live side, or both.

    The simulated side is a plant and a load; the live side contains the functions of the operators. An application of a
    paper without functions gets synthetic ones, so that it runs live all the same.

    Parameters
    ----------
    name : str
        Its name.
    topology : Topology
        Its graph.
    plant : Plant, optional
        The simulated cluster with its costs; without one it is not `simulated`.
    workload : Workload or mapping, optional
        The default load on the simulator; by source if there are several.
    target_latency_s : float
        The latency to aim at.
    reference : str
        The key of the paper that it is from; empty without one.
    workers : int, optional
        Nodes in use at the start, if the plant has more.
    start : mapping or int
        Instances at the start.
    placement : mapping
        Nodes of the instances that the scheduler does not place.
    live : Live, optional
        The functions of its operators, and their input.

    Examples
    --------
    >>> from dspkit import apps
    >>> app = apps.word_count()
    >>> app.simulated, app.live is not None
    (True, True)
    >>> app.simulator(window_s=10).observe().source_rate
    80000.0
    """

    name: str
    topology: Topology
    plant: Plant = _NOTHING
    workload: Workload | Mapping[str, Workload] = _NOTHING
    target_latency_s: float = 0.5
    reference: str = ""
    workers: int | None = None
    start: Mapping[str, int] | int = 1
    placement: Mapping[tuple[str, int], str] = field(default_factory=FrozenMap)
    live: Live | None = None

    def __post_init__(self) -> None:
        if (self.plant is None or self.workload is None) and self.live is None:
            raise BackendError(
                f"application {self.name!r} with neither a plant and a load nor a live side",
                expected="at least one of the two",
                fix="pass plant= and workload= for the simulator, or live=Live(...) for Spark",
            )

    @property
    def simulated(self) -> bool:
        """True if it has a plant, so that it can be simulated."""
        return self.plant is not None

    @property
    def load(self) -> Workload:
        """The load of all sources together: the simulated one, or the live one if there is no other."""
        load = self.live.load() if self.workload is None and self.live else self.workload
        return load if isinstance(load, Workload) else Sum(tuple(load.values()))

    def under(self, workload: Workload | Mapping[str, Workload] | None = None, plant: Plant | None = None) -> App:
        """Return the app under another load, or on another plant.

        Parameters
        ----------
        workload : Workload or mapping, optional
            The load, by source if there are several; the app's own if left out.
        plant : Plant, optional
            The simulated cluster; the app's own if left out.

        Examples
        --------
        >>> from dspkit import apps, workload
        >>> apps.star().under(workload.Constant(100)).load.rate(0)
        100.0
        """
        changed: dict[str, Any] = {"workload": workload, "plant": plant}
        return replace(self, **{name: value for name, value in changed.items() if value is not None})

    def simulator(
        self,
        workload: Workload | Mapping[str, Workload] | None = None,
        *,
        scale: float = 1.0,
        parallelism: Mapping[str, int] | int | None = None,
        deployment: Deployment | None = None,
        **options: Any,
    ) -> Simulator:
        """Return the app on a simulated cluster, under its own load or another, multiplied by `scale`.

        Parameters
        ----------
        workload : Workload or mapping, optional
            The load in records/s; the app's own if left out.
        scale : float
            Factor of the load.
        parallelism : int or mapping, optional
            Instances at the start; those of the app if left out.
        deployment : Deployment, optional
            The whole deployment at the start, in the place of `parallelism`.
        **options
            Options of Simulator.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.star().simulator(scale=0.5, parallelism=2).deployment.parallelism["bolt"]
        2
        """
        self.must_be_simulated()
        load = _scaled(self.workload if workload is None else workload, scale)
        if deployment is not None and parallelism is not None:
            raise ArgumentError("parallelism and deployment", expected="one of them", fix="leave parallelism out")
        start = self.deployment(parallelism) if deployment is None else deployment
        return simulation.Simulator(self.topology, self.plant, load, deployment=start, **options)

    def must_be_simulated(self) -> App:
        """Return the app, or raise an error with a remedy if it has no simulated side.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.star().must_be_simulated().name
        'star'
        """
        if not self.simulated:
            raise BackendError(
                f"application {self.name!r} without simulated costs",
                expected="an app with a plant",
                fix="record a run of app.spark(), and use app.fitted(history)",
            )
        return self

    def deployment(self, parallelism: Mapping[str, int] | int | None = None) -> Deployment:
        """Return the deployment at the start.

        Parameters
        ----------
        parallelism : int or mapping, optional
            Instances of each operator; those of the app if left out.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.star().deployment(3).instances
        18
        """
        k = self.start if parallelism is None else parallelism
        counts = k if isinstance(k, Mapping) else self.topology.uniform(k)
        places = {(o, i): node for (o, i), node in self.placement.items() if i < counts.get(o, 0)}
        return Deployment(counts, self.workers, places)

    def synthetic(self, scale: float | None = None) -> App:
        """Return the app with synthetic operators as its live side, derived from its simulated costs.

        Parameters
        ----------
        scale : float, optional
            Live records/s per simulated one; service times are divided by it, so that the app needs as many instances.
            If left out, it is chosen for two cores, and stated in `live.note`.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.star().synthetic(scale=0.1).live.micros["bolt"]
        10000.0
        """
        self.must_be_simulated()
        return replace(self, live=synthetic(self.name, self.topology, self.plant, self.workload, scale))

    def as_live(self) -> App:
        """Return the app as it runs on Spark: its graph with bounds for one machine, its live load and target.

        It has no simulated costs, as those of the plant are of another cluster; `fitted` estimates them.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.word_count().as_live().load.rate(60)
        2400.0
        """
        live = self.live or cast(Live, self.synthetic().live)
        topology = bounded(self.topology, live.operators())
        load = self.workload if self.plant is None and self.workload is not None else live.load()
        return App(self.name, topology, _NOTHING, load, live.target_latency_s, self.reference, live=live)

    def source(
        self, load: Workload | Mapping[str, Workload], factor: Callable[[], float] | None = None, **settings: Any
    ) -> Any:
        """Return the live input under `load`: a log that fills, the same each time; by source if there are several.

        Parameters
        ----------
        load : Workload or mapping
            The load in records/s; one load for several sources is shared equally.
        factor : callable, optional
            Returns the factor of the load at that moment: then it is a TurnedSource.
        **settings
            Settings of TraceSource.

        Examples
        --------
        >>> from dspkit import apps, workload
        >>> apps.word_count().source(workload.Constant(50)).offered(10)
        500.0
        """
        from ..spark import TraceSource, TurnedSource

        live, names = cast(Live, self.as_live().live), self.topology.sources
        if isinstance(load, Workload):
            load = dict.fromkeys(names, load if len(names) == 1 else load * (1 / len(names)))
        made: dict[str, Any] = {
            name: TraceSource(each, live.maker(name), live.schema, **settings) for name, each in load.items()
        }
        if factor is not None:
            made = {name: TurnedSource(trace, factor) for name, trace in made.items()}
        return made[names[0]] if len(names) == 1 and set(made) == set(names) else made

    def rows(self, load: Workload | Mapping[str, Workload], ids: Any) -> list[dict[str, Any]]:
        """Return the records with these numbers under `load`.

        Parameters
        ----------
        load : Workload or mapping
            The load in records/s, which determines when a record is created.
        ids : array or mapping
            Their numbers; by source if there are several.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import apps, workload
        >>> apps.word_count().rows(workload.Constant(10), np.array([0]))
        [{'line': 'it was the best of times it was the worst'}]
        """
        live, sources = cast(Live, self.as_live().live), self.source(load)
        logs = sources if isinstance(sources, Mapping) else {self.topology.sources[0]: sources}
        numbers = ids if isinstance(ids, Mapping) else dict.fromkeys(logs, ids)
        made = [live.maker(name)(numbers[name], log.event_s(numbers[name])) for name, log in logs.items()]
        return [row for batch in made for row in batch.to_pylist()]

    def spark(
        self,
        load: Workload | Mapping[str, Workload] | None = None,
        *,
        workers: int | None = None,
        scale: float | Callable[[], float] = 1.0,
        parallelism: Mapping[str, int] | int | None = None,
        micros: Mapping[str, float] | float | None = None,
        cpu: Mapping[str, float] | float | None = None,
        **settings: Any,
    ) -> SparkJob:
        """Start the app as a live job on local Spark, and return it; close it, or use it in a `with` statement.

        An app without functions of its own runs with synthetic operators, as `synthetic()` derives them.

        Parameters
        ----------
        load : Workload or mapping, optional
            The load in records/s; the app's live load if left out.
        workers : int, optional
            Number of workers of a standalone cluster, which the job can then change; without it Spark runs in local
            mode.
        scale : float or callable
            Factor of the load; a function is asked for it while the job runs.
        parallelism : int or mapping, optional
            Instances at the start; one of each operator if left out.
        micros, cpu : float or mapping, optional
            Service times in microseconds, and the share of them that is work on a core; see `Live.timed`.
        **settings
            Settings of SparkJob.

        Examples
        --------
        >>> from dspkit import apps, run
        >>> from dspkit.policies.ds2 import DS2
        >>> with apps.word_count().spark() as job:  # doctest: +SKIP
        ...     history = run(DS2(), job, steps=24)
        """
        load_library("pyspark", "spark")
        from ..spark import SparkCluster, SparkJob

        app = self.as_live()
        live = cast(Live, app.live)
        if live.note:
            log.info(live.note)
        functions = live.timed(micros, cpu)
        base = app.workload if load is None else load
        source = app.source(base, scale) if callable(scale) else app.source(_scaled(base, scale))
        settings.setdefault("deployment", app.deployment(parallelism))
        if workers is None:
            return SparkJob(app.topology, functions, source, **settings)
        cluster = SparkCluster.local(workers, max(16, math.ceil(SLOTS / workers)))
        try:
            return SparkJob(app.topology, functions, source, master=cluster, owns_master=True, **settings)
        except BaseException:
            cluster.close()
            raise

    def fitted(self, history: History) -> App:
        """Return the app as it ran live, with simulated costs estimated from the run.

        Parameters
        ----------
        history : History
            A run of `spark()`; the first windows, in which workers start, are better left out.

        Examples
        --------
        >>> from dspkit import apps
        >>> history = run(DS2(), apps.word_count().spark(), steps=30)  # doctest: +SKIP
        >>> apps.word_count().fitted(history[3:]).simulator()  # doctest: +SKIP
        """
        app, topology = self.as_live(), history.topology
        if (topology.order, topology.edges) != (app.topology.order, app.topology.edges):
            raise TopologyError(
                f"a run of {', '.join(topology.order)}",
                expected=f"a run of {self.name}: {', '.join(app.topology.order)}",
                fix="pass what run() recorded of app.spark()",
            )
        return replace(app, topology=topology, plant=simulation.fit_live(history))

    def parity(self, history: History, against: History | None = None) -> tuple[History, History]:
        """Return a live run, and a simulated one on the plant fitted to `history`, under the same load and deployments.

        `plots.parity(*app.parity(history))` draws the two side by side.

        Parameters
        ----------
        history : History
            A run of `spark()`, to which the plant is fitted.
        against : History, optional
            Another run, which the fit does not use, to compare with.

        Examples
        --------
        >>> from dspkit import apps, plots
        >>> plots.parity(*apps.word_count().parity(history), names=("live", "fitted"))  # doctest: +SKIP
        """
        measured, app = history if against is None else against, self.fitted(history)
        return measured, replay(app.topology, app.plant, measured)

    def sweep(
        self,
        axes: Mapping[str, Sequence[float]],
        *,
        parallelism: Mapping[str, int] | int | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """Run one fluid simulation per combination of `axes`, without a policy, and return one row each.

        Every point is checked before the first one is simulated. `plots.heatmap` draws the frame.

        Parameters
        ----------
        axes : mapping
            Values by axis: the name of an operator (its parallelism), "scale" (the load), "workers", a number of the
            plant ("pause_s"), or one of a service ("count.seconds_per_record").
        parallelism : int or mapping, optional
            Instances of the operators that are not an axis; those of the app if left out.
        **options
            Options of simulate_many.

        Examples
        --------
        >>> from dspkit import apps
        >>> frame = apps.word_count().sweep({"count": [1, 8], "scale": [0.1, 0.5]}, duration_s=60.0)
        >>> frame[["count", "scale"]].values.tolist()
        [[1.0, 0.1], [1.0, 0.5], [8.0, 0.1], [8.0, 0.5]]
        """
        import pandas as pd

        self.must_be_simulated()
        first = self.deployment(parallelism)
        kinds = {axis: self._kind(axis) for axis in _mapping(axes)}
        listed = {axis: _values(axis, values) for axis, values in axes.items()}
        points = [dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]
        plants, loads, deployments = zip(*(self._point(point, kinds, first) for point in points), strict=True)
        rows = simulation.simulate_many(self.topology, plants, loads, deployments, **options)
        return pd.concat([pd.DataFrame(points), rows], axis=1)

    def _kind(self, axis: str) -> str:
        """Return the kind of an axis: "scale", "workers", "operator", "plant", or "service"."""
        service, _, knob = axis.rpartition(".") if isinstance(axis, str) else ("", "", "")
        plant = self.plant
        meanings = {
            "scale": axis == "scale",
            "workers": axis == "workers",
            "operator": axis in self.topology.order,
            "plant": axis in {k.name for k in knobs_of(plant)},
            "service": service in plant.services and knob in {k.name for k in knobs_of(plant.services[service])},
            "a result": axis in RESULTS,
        }
        found = [kind for kind, so in meanings.items() if so]
        if not found or found == ["a result"]:
            raise ArgumentError(
                f"axis {axis!r}",
                expected="'scale', 'workers', an operator, a number of the plant, or 'operator.number'",
                fix=f"operators are {', '.join(self.topology.order)}",
            )
        if len(found) > 1:
            raise ArgumentError(
                f"axis {axis!r} with several meanings: {' or '.join(found)}",
                expected="one meaning",
                fix="rename the operator",
            )
        return found[0]

    def _point(
        self, point: Mapping[str, Any], kinds: Mapping[str, str], deployment: Deployment
    ) -> tuple[Plant, Any, Deployment]:
        plant, load = self.plant, self.workload
        for axis, value in point.items():
            kind = kinds[axis]
            if kind == "scale":
                factor = _number(axis, value)
                load = _scaled(load, factor)
            elif kind == "workers":
                deployment = replace(deployment, workers=_whole(axis, value, len(plant.nodes)))
            elif kind == "operator":
                deployment = deployment.scaled({axis: _whole(axis, value)})
            elif kind == "plant":
                plant = replace(plant, **{axis: value})
            else:
                service, _, knob = axis.rpartition(".")
                services = {**plant.services, service: replace(plant.services[service], **{knob: value})}
                plant = replace(plant, services=services)
        return plant.check(self.topology), load, self.topology.check(deployment)


def _scaled(load: Any, scale: float) -> Any:
    """Return a load, or one per source, multiplied by `scale`."""
    if scale == 1:
        return load
    return load * scale if isinstance(load, Workload) else {source: each * scale for source, each in load.items()}


def _mapping(axes: Any) -> Mapping[str, Any]:
    if not isinstance(axes, Mapping) or not axes:
        raise ArgumentError(
            f"axes {axes!r}", expected="at least one axis, with values", fix="as in {'scale': [0.5, 1]}"
        )
    return axes


def _values(axis: str, values: Any) -> list[Any]:
    """Return the values of an axis, at least one."""
    single = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    if single or not (listed := list(values)):
        raise ArgumentError(f"axis {axis!r} = {values!r}", expected="a list of values", fix=f"as {{{axis!r}: [1, 2]}}")
    return listed


def _number(axis: str, value: Any) -> float:
    return number(value, f"axis {axis!r}", 0, fix="leave such values out of the axis")


def _whole(axis: str, value: Any, most: int | None = None) -> int:
    """Return a whole number from 1 up, such as 2 or 2.0."""
    found = _number(axis, value)
    if found < 1 or found != int(found) or (most is not None and found > most):
        upto = "up" if most is None else f"to the {most} of the plant"
        expected = f"a whole number from 1 {upto}"
        raise ArgumentError(f"axis {axis!r}={value!r}", expected=expected, fix="leave such values out of the axis")
    return int(found)
