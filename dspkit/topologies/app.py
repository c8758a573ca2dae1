"""An application: what runs, on what, under which load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core import Deployment, Topology
from ..frozen import FrozenMap
from ..plant import Plant
from ..simulator import Simulator
from ..workload import Sum, Workload


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
        k = self.start if parallelism is None else parallelism
        start = Deployment(k if isinstance(k, Mapping) else self.topology.uniform(k), self.workers, self.placement)
        return Simulator(self.topology, self.plant, load, deployment=start, **options)
