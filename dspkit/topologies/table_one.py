"""Stela's evaluation under the settings of its Table I: instances, limits, machines before and after.

| setting | in the paper | here |
|---|---|---|
| tasks per component | 4 to 15 | the operator's `max_parallelism` |
| executors per component | 2 to 15 | instances at first |
| type 1 machine | 1 core of 3 GHz | a node of one core |
| type 2 machine | 4 cores of 2.4 GHz | a node of four cores at 0.8 of that speed |
| queues | Storm's, without an end | `queue_records=inf`: nobody is held back |

Service times are ours: the paper says only that some bolts are congested, and that Stela's evaluation tells these from
those short of CPU. Each operator is given how busy its instances would be if all of the load reached it (above 1 it is
congested), and how much of a core a busy instance takes. What moves, starts or ends stops its operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core import Operator, Topology
from ..errors import NotFoundError
from ..plant import Node, Plant, Service
from ..workload import Constant
from . import stela
from .app import App

LOAD_PER_S = 1000.0
TYPE_1, TYPE_2 = Node(cores=1), Node(cores=4, speed=0.8)


@dataclass(frozen=True)
class Trial:
    """One row of Table I. `services`: (how busy at full load, cores that a busy instance takes) of each operator."""

    name: str
    tasks: int
    executors: int
    processes: int  # workers in Storm's sense
    before: int
    after: int
    node: Node
    services: Mapping[str, tuple[float, float]]
    selectivity: Mapping[str, Any]  # where it is not 1
    apart: bool = False  # at first each machine has instances of one operator only

    def app(self, *, noise: float = 0.02, pause_s: float = 20.0, pause_kind: str = "instances") -> App:
        """The application as it runs before it is scaled; the plant has all machines."""
        shape = getattr(stela, self.name)().topology
        topology = Topology(tuple(Operator(n, self.tasks) for n in shape.order), shape.edges)
        nodes = {f"node-{i}": self.node for i in range(1, max(self.before, self.after) + 1)}
        plant = Plant(self._services(topology), nodes, pause_s=pause_s, pause_kind=pause_kind, noise=noise)
        places = self._apart(topology) if self.apart else {}
        load = Constant(LOAD_PER_S)
        return App(self.name, topology, plant, load, 1.0, "stela", self.before, self.executors, places)

    def _services(self, topology: Topology) -> dict[str, Service]:
        flow = {name: LOAD_PER_S / len(topology.sources) for name in topology.sources}
        made = {}
        for name in topology.order:
            busy, cores = self.services[name]
            selectivity = self.selectivity.get(name, 1.0)
            made[name] = Service(
                busy * self.executors / flow[name], selectivity=selectivity, queue_records=math.inf, io_share=1 - cores
            )
            for child in topology.downstream(name):
                flow[child] = flow.get(child, 0.0) + flow[name] * made[name].toward(child)
        return made

    def _apart(self, topology: Topology) -> dict[tuple[str, int], str]:
        """One operator a machine; the machines that are left over take half of the busiest operators."""
        homes = {name: [f"node-{i}"] for i, name in enumerate(topology.order, 1)}
        busiest = sorted(topology.order, key=lambda n: -self.services[n][0] * self.services[n][1])
        for i in range(len(homes) + 1, self.before + 1):
            homes[busiest[i - len(homes) - 1]].append(f"node-{i}")
        return {(n, i): homes[n][i % len(homes[n])] for n in topology.order for i in range(self.executors)}


_CHAIN = (0.8, 0.4)  # an operator that takes CPU and keeps up
_LIGHT = (0.4, 0.2)

TABLE_ONE = (
    Trial(
        "star", 4, 2, 12, 4, 5, TYPE_1,
        {"left": (0.6, 0.3), "right": (0.6, 0.3), "bolt": (2.2, 0.3), "store": (1.3, 0.3), "alert": (1.6, 0.3),
         "report": (0.9, 0.3)},
        {"bolt": 1 / 3},
    ),
    Trial(
        "linear", 12, 6, 24, 6, 7, TYPE_1,
        {"source": (0.5, 0.2), "parse": _LIGHT, "enrich": (2.0, 0.37), "sink": _LIGHT},
        {},
    ),
    Trial(
        "diamond", 8, 4, 24, 6, 7, TYPE_1,
        {"source": (0.6, 0.3), **{f"bolt_{i}": _LIGHT for i in (1, 2, 3, 4)}, "sink": (2.3, 0.25)},
        {"source": 0.25},
    ),
    Trial(
        "page_load", 8, 4, 28, 7, 8, TYPE_1,
        {"events": _CHAIN, "parse": _LIGHT, "filter": _CHAIN, "join": _LIGHT, "aggregate": (2.2, 0.31),
         "store": _LIGHT, "rank": (0.8, 0.6)},
        {"aggregate": {"store": 0.6, "rank": 0.4}},
    ),
    Trial(
        "processing", 8, 4, 32, 8, 9, TYPE_1,
        {"events": _CHAIN, "decode": _LIGHT, "split": _CHAIN, "filter": _LIGHT, "enrich": _CHAIN, "score": _CHAIN,
         "format": _LIGHT, "sink": (2.3, 0.31)},
        {},
    ),
    Trial(
        "network_monitoring", 8, 4, 32, 8, 9, TYPE_2,
        {"packets": _CHAIN, "parse_a": _LIGHT, "parse_b": _LIGHT, "filter_a": _LIGHT, "filter_b": (2.0, 0.4),
         "join": _LIGHT, "detect": (1.65, 0.4), "sink": _LIGHT},
        {"packets": 0.5},
    ),
)  # fmt: skip

SCALE_IN = Trial(
    "page_load", 15, 15, 32, 8, 4, TYPE_1,
    {"events": (2.3, 0.04), "parse": (0.8, 0.18), "filter": (5.0, 0.15), "join": (1.55, 0.01),
     "aggregate": (3.3, 0.015), "store": (0.55, 0.015), "rank": (0.6, 0.01)},
    {"aggregate": 0.5},
    apart=True,
)  # fmt: skip


def trial(name: str) -> Trial:
    """The row of Table I for this topology's scale-out; "page_load_in" is the scale-in."""
    rows = {t.name: t for t in TABLE_ONE} | {"page_load_in": SCALE_IN}
    if name not in rows:
        raise NotFoundError(f"trial {name!r}", expected=f"one of {', '.join(rows)}", fix="check the name")
    return rows[name]
