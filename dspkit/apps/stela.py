"""The six applications of Stela's evaluation, twice: as elastic jobs, and under the settings of the paper's Table I.

The elastic jobs have a load that changes, and queues that exert back-pressure. The paper only draws them: layouts,
service times and loads are ours. Four of six machines are in use at the start, so that machines can be requested.

`TABLE_ONE` and `trial` have them under the settings of Table I:

| setting | in the paper | here |
|---|---|---|
| tasks per component | 4 to 15 | the operator's `max_parallelism` |
| executors per component | 2 to 15 | instances at the start |
| type 1 machine | 1 core of 3 GHz | a node of one core |
| type 2 machine | 4 cores of 2.4 GHz | a node of four cores at 0.8 of that speed |
| queues | Storm's, unbounded | `queue_records=inf`: no back-pressure |

Their service times are ours: the paper only says that some bolts are congested, and that Stela's evaluation
distinguishes these from bolts short of CPU. Each operator is given the utilisation of its instances if all of the load
reached it (above 1 it is congested), and the share of a core that a busy instance uses. Operators with instances that
move, start or end are paused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core import NotFoundError, Operator, Topology
from ..simulator import Node, Plant, Service
from ..workload import Constant, Trace, Workload
from .app import App


def diamond() -> App:
    """Return a diamond as in Stela's evaluation: a source feeds four bolts side by side, which feed one sink.

    The layout is ours (the paper only draws it); each bolt gets a quarter of the records, and the third is slow.

    Examples
    --------
    >>> diamond().topology.downstream("source")
    ('bolt_1', 'bolt_2', 'bolt_3', 'bolt_4')
    """
    bolts = [f"bolt_{i}" for i in range(1, 5)]
    seconds = {"sink": 1e-4, **dict.fromkeys(bolts, 1e-3), "bolt_3": 4e-3}
    services = {n: Service(s, contention=0.005, queue_records=100) for n, s in seconds.items()}
    services["source"] = Service(5e-5, selectivity=0.25)
    edges = [("source", bolt) for bolt in bolts] + [(bolt, "sink") for bolt in bolts]
    topology = Topology(tuple(map(Operator, ["source", *bolts, "sink"])), tuple(edges))
    load = Trace((0, 300, 700), (1.7e3, 7e3, 3.2e3))
    return App("diamond", topology, _plant(services), load, 0.5, "stela", workers=4)


def star() -> App:
    """Return a star as in Stela's evaluation: two sources meet in one bolt that feeds three sinks.

    The layout is ours (the paper only draws it); each sink gets a third of the output of the bolt.

    Examples
    --------
    >>> star().topology.sources, star().topology.sinks
    (('left', 'right'), ('store', 'alert', 'report'))
    """
    sinks = {"store": 1e-3, "alert": 2e-3, "report": 1e-3}
    services = {"left": Service(1e-4), "right": Service(1e-4)}
    services["bolt"] = Service(1e-3, selectivity=1 / 3, queue_records=100)
    services |= {name: Service(seconds, contention=0.005, queue_records=100) for name, seconds in sinks.items()}
    edges = [("left", "bolt"), ("right", "bolt")] + [("bolt", name) for name in sinks]
    topology = Topology(tuple(map(Operator, services)), tuple(edges))
    load = {"left": Trace((0, 300), (400, 2600)), "right": Trace((0, 500), (400, 1700))}
    return App("star", topology, _plant(services), load, 0.5, "stela", workers=4)


def linear() -> App:
    """Return a chain of four as in Stela's evaluation: one source, two bolts, one sink; the second bolt is slow.

    Examples
    --------
    >>> linear().topology.order
    ('source', 'parse', 'enrich', 'sink')
    """
    names = ("source", "parse", "enrich", "sink")
    seconds = {"source": 5e-5, "parse": 5e-4, "enrich": 2e-3, "sink": 4e-4}
    return _app("linear", tuple(zip(names, names[1:], strict=False)), seconds, {}, (500, 3000, 1400))


def page_load() -> App:
    """Return Stela's Page Load (Yahoo): a chain of five that ends in two sinks.

    Examples
    --------
    >>> page_load().topology.sinks
    ('store', 'rank')
    """
    edges = (
        ("events", "parse"),
        ("parse", "filter"),
        ("filter", "join"),
        ("join", "aggregate"),
        ("aggregate", "store"),
        ("aggregate", "rank"),
    )
    seconds = {"events": 5e-5, "parse": 4e-4, "filter": 2e-4, "join": 6e-4, "aggregate": 2e-3, "store": 5e-4}
    half = {"filter": 0.8, "aggregate": {"store": 0.6, "rank": 0.4}}
    return _app("page_load", edges, {**seconds, "rank": 8e-4}, half, (500, 3000, 1400))


def processing() -> App:
    """Return Stela's Processing (Yahoo): a chain of eight.

    Examples
    --------
    >>> len(processing().topology.order)
    8
    """
    names = ("events", "decode", "split", "filter", "enrich", "score", "format", "sink")
    seconds = dict(zip(names, (5e-5, 3e-4, 2e-4, 2e-4, 6e-4, 1.3e-3, 3e-4, 1.7e-3), strict=True))
    return _app("processing", tuple(zip(names, names[1:], strict=False)), seconds, {}, (400, 2200, 1000))


def network_monitoring() -> App:
    """Return Stela's Network Monitoring (after IBM's): two branches that meet before detection and the sink.

    Examples
    --------
    >>> network_monitoring().topology.upstream("join")
    ('filter_a', 'filter_b')
    """
    edges = (
        ("packets", "parse_a"),
        ("packets", "parse_b"),
        ("parse_a", "filter_a"),
        ("parse_b", "filter_b"),
        ("filter_a", "join"),
        ("filter_b", "join"),
        ("join", "detect"),
        ("detect", "sink"),
    )
    seconds = {"packets": 5e-5, "parse_a": 8e-4, "parse_b": 8e-4, "filter_a": 4e-4, "filter_b": 2e-3, "join": 5e-4}
    return _app(
        "network_monitoring", edges, {**seconds, "detect": 1e-3, "sink": 2e-4}, {"packets": 0.5}, (600, 3200, 1500)
    )


def _app(
    name: str,
    edges: tuple[tuple[str, str], ...],
    seconds: dict[str, float],
    selectivity: dict[str, Any],
    rates: tuple[float, float, float],
) -> App:
    services = {
        n: Service(s, selectivity=selectivity.get(n, 1.0), contention=0.005, queue_records=100)
        for n, s in seconds.items()
    }
    topology = Topology(tuple(map(Operator, seconds)), edges)
    load: Workload = Trace((0, 300, 700), rates)
    return App(name, topology, _plant(services), load, 0.5, "stela", workers=4)


def _plant(services: dict[str, Service]) -> Plant:
    """Return six machines of 16 cores, with a noise of 1 %."""
    return Plant(services, {f"node-{i}": Node() for i in range(1, 7)}, noise=0.01)


LOAD_PER_S = 1000.0
TYPE_1, TYPE_2 = Node(cores=1), Node(cores=4, speed=0.8)


@dataclass(frozen=True)
class Trial:
    """One row of Table I. `services`: (utilisation at full load, cores of a busy instance) of each operator."""

    name: str
    tasks: int
    executors: int
    processes: int  # workers in Storm's sense
    before: int
    after: int
    node: Node
    services: Mapping[str, tuple[float, float]]
    selectivity: Mapping[str, Any]  # where it is not 1
    apart: bool = False  # whether each machine has instances of one operator only at the start

    def app(self, *, noise: float = 0.02, pause_s: float = 20.0, pause_kind: str = "instances") -> App:
        """Return the application as it runs before it is scaled; the plant has all machines."""
        shape = _SHAPES[self.name]().topology
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
        """Place one operator per machine; remaining machines take half of the busiest operators."""
        homes = {name: [f"node-{i}"] for i, name in enumerate(topology.order, 1)}
        busiest = sorted(topology.order, key=lambda n: -self.services[n][0] * self.services[n][1])
        for i in range(len(homes) + 1, self.before + 1):
            homes[busiest[i - len(homes) - 1]].append(f"node-{i}")
        return {(n, i): homes[n][i % len(homes[n])] for n in topology.order for i in range(self.executors)}


_CHAIN = (0.8, 0.4)  # an operator that uses CPU and keeps up
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
    """Return the row of Table I for this topology's scale-out; "page_load_in" is the scale-in."""
    rows = {t.name: t for t in TABLE_ONE} | {"page_load_in": SCALE_IN}
    if name not in rows:
        raise NotFoundError(f"trial {name!r}", expected=f"one of {', '.join(rows)}", fix="choose one")
    return rows[name]


_SHAPES = {f.__name__: f for f in (diamond, linear, network_monitoring, page_load, processing, star)}
