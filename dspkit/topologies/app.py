"""An application: what runs, on what, under which load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import Deployment, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import knobs
from ..plant import Plant
from ..simulator import Simulator, simulate_many
from ..workload import Sum, Workload

if TYPE_CHECKING:
    import pandas as pd

RESULTS = (  # columns of simulate_many
    "throughput", "source_rate", "lost", "lag", "worst_lag", "latency_s", "worst_latency_s", "event_latency_s",
    "busiest", "utilisation", "cores", "downtime_s", "instances", "cost_per_hour",
)  # fmt: skip


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

    def under(self, workload: Workload | Mapping[str, Workload] | None = None, plant: Plant | None = None) -> App:
        """The app under another load, on another plant; what is left out stays."""
        changed: dict[str, Any] = {"workload": workload, "plant": plant}
        return replace(self, **{name: value for name, value in changed.items() if value is not None})

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
        start = self.deployment(parallelism)
        return Simulator(self.topology, self.plant, load, deployment=start, **options)

    def deployment(self, parallelism: Mapping[str, int] | int | None = None) -> Deployment:
        """What runs at first: as the app says, the same everywhere, or as the mapping says."""
        k = self.start if parallelism is None else parallelism
        counts = k if isinstance(k, Mapping) else self.topology.uniform(k)
        places = {(o, i): node for (o, i), node in self.placement.items() if i < counts.get(o, 0)}
        return Deployment(counts, self.workers, places)

    def sweep(
        self,
        axes: Mapping[str, Sequence[float]],
        *,
        parallelism: Mapping[str, int] | int | None = None,
        **options: Any,
    ) -> pd.DataFrame:
        """One fluid simulation for each combination of `axes`, without a policy; options go to simulate_many.

        An axis is the name of an operator (its parallelism), "scale" (the load), "workers", a number of the plant
        ("pause_s"), or one of a service ("count.seconds_per_record"). Every point is checked before the first is
        played. `plots.heatmap` draws the frame.
        """
        import pandas as pd

        first = self.deployment(parallelism)
        kinds = {axis: self._kind(axis) for axis in _mapping(axes)}
        listed = {axis: _values(axis, values) for axis, values in axes.items()}
        points = [dict(zip(listed, values, strict=True)) for values in itertools.product(*listed.values())]
        plants, loads, deployments = zip(*(self._point(point, kinds, first) for point in points), strict=True)
        rows = simulate_many(self.topology, plants, loads, deployments, **options)
        return pd.concat([pd.DataFrame(points), rows], axis=1)

    def _kind(self, axis: str) -> str:
        """What an axis turns: "scale", "workers", "operator", "plant", or "service"."""
        service, _, knob = axis.rpartition(".") if isinstance(axis, str) else ("", "", "")
        plant = self.plant
        meanings = {
            "scale": axis == "scale",
            "workers": axis == "workers",
            "operator": axis in self.topology.order,
            "plant": axis in {k.name for k in knobs(plant)},
            "service": service in plant.services and knob in {k.name for k in knobs(plant.services[service])},
            "a result": axis in RESULTS,
        }
        found = [kind for kind, so in meanings.items() if so]
        if not found or found == ["a result"]:
            raise KnobError(
                f"axis {axis!r}",
                expected="'scale', 'workers', an operator, a number of the plant, or 'operator.number'",
                fix=f"operators are {', '.join(self.topology.order)}",
            )
        if len(found) > 1:
            raise KnobError(
                f"axis {axis!r}, which may be {' or '.join(found)}", expected="one meaning", fix="rename the operator"
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
                load = load * factor if isinstance(load, Workload) else {n: w * factor for n, w in load.items()}
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


def _mapping(axes: Any) -> Mapping[str, Any]:
    if not isinstance(axes, Mapping) or not axes:
        raise KnobError(f"axes {axes!r}", expected="at least one axis with its values", fix="as in {'scale': [0.5, 1]}")
    return axes


def _values(axis: str, values: Any) -> list[Any]:
    """The values of an axis, at least one."""
    single = isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable)
    if single or not (listed := list(values)):
        raise KnobError(f"axis {axis!r} = {values!r}", expected="a list of values", fix=f"as in {{{axis!r}: [1, 2]}}")
    return listed


def _number(axis: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise KnobError(f"{axis!r} = {value!r}", expected="a finite number >= 0", fix="correct the axis")
    return float(value)


def _whole(axis: str, value: Any, most: int | None = None) -> int:
    """1, 2, 3, ...; 2.0 is one too."""
    number = _number(axis, value)
    if number < 1 or number != int(number) or (most is not None and number > most):
        upto = "up" if most is None else f"to the {most} of the plant"
        raise KnobError(f"{axis!r} = {value!r}", expected=f"a whole number from 1 {upto}", fix="correct the axis")
    return int(number)
