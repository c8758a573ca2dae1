"""An application: what runs, on what, under which load."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..core import Deployment, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import knobs
from ..plant import Plant
from ..simulator import Simulator, simulate_many
from ..workload import Sum, Workload

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
    workers: int | None = None  # nodes in use at first, where the plant has more
    start: Mapping[str, int] | int = 1  # instances at first
    placement: Mapping[tuple[str, int], str] = field(default_factory=FrozenMap)  # what the scheduler does not place

    @property
    def load(self) -> Workload:
        """The load of all sources together."""
        return self.workload if isinstance(self.workload, Workload) else Sum(tuple(self.workload.values()))

    def simulator(
        self,
        workload: Workload | Mapping[str, Workload] | None = None,
        *,
        scale: float = 1.0,
        parallelism: Mapping[str, int] | int | None = None,
        **options: Any,
    ) -> Simulator:
        """The app on a simulated cluster, under its own load or another, `scale` times as high.

        It starts as the app says, with the same parallelism everywhere, or as the mapping says; options go to
        Simulator.
        """
        load = self.workload if workload is None else workload
        if isinstance(load, Workload):
            load = load if scale == 1 else load * scale
        else:
            load = load if scale == 1 else {source: w * scale for source, w in load.items()}
        start = self._deployment(parallelism)
        return Simulator(self.topology, self.plant, load, deployment=start, **options)

    def _deployment(self, parallelism: Mapping[str, int] | int | None) -> Deployment:
        k = self.start if parallelism is None else parallelism
        return Deployment(k if isinstance(k, Mapping) else self.topology.uniform(k), self.workers, self.placement)

    def sweep(
        self,
        axes: Mapping[str, Sequence[float]],
        *,
        parallelism: Mapping[str, int] | int | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """One fluid simulation for each combination of `axes`, without a policy; options go to simulate_many.

        An axis is the name of an operator (its parallelism), "scale" (the load), "workers", a number of the plant
        ("pause_s"), or one of a service ("count.seconds_per_record"). `plots.heatmap` draws the frame.
        """
        import pandas as pd

        first = self._deployment(parallelism)
        points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
        plants, loads, deployments = zip(*(self._point(point, first) for point in points), strict=True)
        rows = simulate_many(self.topology, plants, loads, deployments, **options)
        return pd.concat([pd.DataFrame(points), rows], axis=1)

    def _point(self, point: Mapping[str, Any], deployment: Deployment) -> tuple[Plant, Any, Deployment]:
        plant, load, start = self.plant, self.workload, deployment.parallelism
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
