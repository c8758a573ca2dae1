"""Streaming applications of the papers, ready to run: structure, plant and a load, one function each.

>>> from dspkit import run, topologies
>>> from dspkit.policies.ds2 import DS2
>>> history = run(DS2(), topologies.word_count().simulator(), steps=4)
>>> history[-1].snapshot.deployment.parallelism
{'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .core import Deployment, Operator, Topology
from .errors import KnobError
from .knobs import knobs
from .plant import Node, Plant, Service
from .simulator import Simulator, simulate_many
from .workload import Stair, Sum, Trace, Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class App:
    """A topology with the plant that simulates it, a load that is worth watching, and a latency to aim at."""

    name: str
    topology: Topology
    plant: Plant
    workload: Workload | Mapping[str, Workload]
    target_latency_s: float
    reference: str

    @property
    def load(self) -> Workload:
        """The load of all sources together."""
        return self.workload if isinstance(self.workload, Workload) else Sum(tuple(self.workload.values()))

    def simulator(
        self,
        workload: Workload | Mapping[str, Workload] | None = None,
        *,
        scale: float = 1.0,
        parallelism: Mapping[str, int] | int = 1,
        **options: Any,
    ) -> Simulator:
        """The app on a simulated cluster, under its own load or another, `scale` times as high.

        It starts with the same parallelism everywhere, or as the mapping says; options go to Simulator.
        """
        load = self.workload if workload is None else workload
        if isinstance(load, Workload):
            load = load if scale == 1 else load * scale
        else:
            load = load if scale == 1 else {source: w * scale for source, w in load.items()}
        start = parallelism if isinstance(parallelism, Mapping) else self.topology.uniform(parallelism)
        return Simulator(self.topology, self.plant, load, deployment=Deployment(start), **options)

    def sweep(
        self,
        axes: Mapping[str, Sequence[float]],
        *,
        parallelism: Mapping[str, int] | int = 1,
        **options: Any,
    ) -> pd.DataFrame:
        """One fluid simulation for each combination of `axes`, without a policy; options go to simulate_many.

        An axis is the name of an operator (its parallelism), "scale" (the load), "workers", a number of the plant
        ("pause_s"), or one of a service ("count.seconds_per_record"). `plots.heatmap` draws the frame.
        """
        import pandas as pd

        start = parallelism if isinstance(parallelism, Mapping) else self.topology.uniform(parallelism)
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        plants, loads, deployments = zip(*(self._point(point, start) for point in points), strict=True)
        rows = simulate_many(self.topology, plants, loads, deployments, **options)
        return pd.concat([pd.DataFrame(points), rows], axis=1)

    def _point(self, point: Mapping[str, Any], start: Mapping[str, int]) -> tuple[Plant, Any, Deployment]:
        plant, load, deployment = self.plant, self.workload, Deployment(start)
        for axis, value in point.items():
            service, _, knob = axis.partition(".")
            if axis == "scale":
                load = load * value if isinstance(load, Workload) else {n: w * value for n, w in load.items()}
            elif axis == "workers":
                deployment = replace(deployment, workers=int(value))
            elif axis in start:
                deployment = deployment.scaled({axis: int(value)})
            elif axis in {k.name for k in knobs(plant)}:
                plant = replace(plant, **{axis: value})
            elif service in plant.services and knob in {k.name for k in knobs(plant.services[service])}:
                services = {**plant.services, service: replace(plant.services[service], **{knob: value})}
                plant = replace(plant, services=services)
            else:
                raise KnobError(
                    f"axis {axis!r}",
                    expected="'scale', 'workers', an operator, a number of the plant, or 'operator.number'",
                    fix=f"operators are {', '.join(self.topology.order)}",
                )
        return plant, load, deployment


def available() -> dict[str, Callable[[], App]]:
    """Every application of this module by its name."""
    module = sys.modules[__name__]
    return {
        name: function
        for name, function in sorted(vars(module).items())
        if inspect.isfunction(function) and function.__annotations__.get("return") == "App"
    }


def word_count() -> App:
    """AuTraScale's word count: source → flat map → count → sink.

    Rates of one instance as in the method card (example A3), so that 350 k records/s need 3, 4, 12, 10 instances of
    ideal scaling; contention of 0.5 % and noise of 1 % are ours.
    """
    rates = {"source": 120e3, "flat_map": 100e3, "count": 30e3, "sink": 36e3}
    services = {name: Service(1 / rate, contention=0.005, queue_records=3e3) for name, rate in rates.items()}
    topology = Topology(
        (Operator("source"), Operator("flat_map"), Operator("count", stateful=True), Operator("sink")),
        (("source", "flat_map"), ("flat_map", "count"), ("count", "sink")),
    )
    load = Trace((0, 300, 700), (80e3, 250e3, 110e3))
    return App("word_count", topology, Plant(services, noise=0.01), load, 0.180, "autrascale")


def case_study() -> App:
    """AuTraScale's case study: its word count with the same parallelism everywhere, under a rising staircase.

    The scalability law of `count` is fitted to the paper's 150, 250 and about 275 k records/s for 1, 2 and 3 instances
    (ours: 288), and the buffers to its 100 ms for 5; the other operators have room to spare.
    """
    services = {
        "source": Service(1 / 400e3, queue_records=2600),
        "flat_map": Service(1 / 360e3, queue_records=2600),
        "count": Service(1 / 150e3, contention=0.04, coherency=0.08, queue_records=2600),
        "sink": Service(1 / 450e3, queue_records=2600),
    }
    hosts = {f"host-{i}": Node(cores=20) for i in (1, 2, 3)}
    return App("case_study", Topology.chain(*services), Plant(services, hosts), Stair(), 0.180, "autrascale")


def diamond() -> App:
    """A diamond as in Stela's evaluation: a source feeds four bolts side by side, which feed one sink.

    The layout is ours (the paper only draws it); each bolt gets a quarter of the records, and the third is slow.
    """
    bolts = [f"bolt_{i}" for i in range(1, 5)]
    seconds = {"sink": 1e-4, **dict.fromkeys(bolts, 1e-3), "bolt_3": 4e-3}
    services = {n: Service(s, contention=0.005, queue_records=100) for n, s in seconds.items()}
    services["source"] = Service(5e-5, selectivity=0.25)
    edges = [("source", bolt) for bolt in bolts] + [(bolt, "sink") for bolt in bolts]
    topology = Topology(tuple(map(Operator, ["source", *bolts, "sink"])), tuple(edges))
    load = Trace((0, 300, 700), (1.7e3, 7e3, 3.2e3))
    return App("diamond", topology, Plant(services, noise=0.01), load, 0.5, "stela")


def star() -> App:
    """A star as in Stela's evaluation: two sources meet in one bolt that feeds three sinks.

    The layout is ours (the paper only draws it); each sink gets a third of what the bolt makes.
    """
    sinks = {"store": 1e-3, "alert": 2e-3, "report": 1e-3}
    services = {"left": Service(1e-4), "right": Service(1e-4)}
    services["bolt"] = Service(1e-3, selectivity=1 / 3, queue_records=100)
    services |= {name: Service(seconds, contention=0.005, queue_records=100) for name, seconds in sinks.items()}
    edges = [("left", "bolt"), ("right", "bolt")] + [("bolt", name) for name in sinks]
    topology = Topology(tuple(map(Operator, services)), tuple(edges))
    load = {"left": Trace((0, 300), (400, 2600)), "right": Trace((0, 500), (400, 1700))}
    return App("star", topology, Plant(services, noise=0.01), load, 0.5, "stela")
