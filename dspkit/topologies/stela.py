"""The six applications of Stela's evaluation, as elastic jobs under a load that changes; back-pressure holds.

The paper only draws them: layouts, service times and loads are ours. Four of six machines are in use at first, so that
machines can be asked for. `table_one.py` has them under the settings of the paper's Table I.
"""

from __future__ import annotations

from typing import Any

from ..core import Operator, Topology
from ..plant import Node, Plant, Service
from ..workload import Trace, Workload
from .app import App


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
    return App("diamond", topology, _plant(services), load, 0.5, "stela", workers=4)


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
    return App("star", topology, _plant(services), load, 0.5, "stela", workers=4)


def linear() -> App:
    """A chain of four as in Stela's evaluation: one source, two bolts, one sink; the second bolt is slow."""
    names = ("source", "parse", "enrich", "sink")
    seconds = {"source": 5e-5, "parse": 5e-4, "enrich": 2e-3, "sink": 4e-4}
    return _app("linear", tuple(zip(names, names[1:], strict=False)), seconds, {}, (500, 3000, 1400))


def page_load() -> App:
    """Stela's Page Load (Yahoo): a chain of five that ends in two sinks."""
    edges = (
        ("events", "parse"), ("parse", "filter"), ("filter", "join"), ("join", "aggregate"),
        ("aggregate", "store"), ("aggregate", "rank"),
    )  # fmt: skip
    seconds = {"events": 5e-5, "parse": 4e-4, "filter": 2e-4, "join": 6e-4, "aggregate": 2e-3, "store": 5e-4}
    half = {"filter": 0.8, "aggregate": {"store": 0.6, "rank": 0.4}}
    return _app("page_load", edges, {**seconds, "rank": 8e-4}, half, (500, 3000, 1400))


def processing() -> App:
    """Stela's Processing (Yahoo): a chain of eight."""
    names = ("events", "decode", "split", "filter", "enrich", "score", "format", "sink")
    seconds = dict(zip(names, (5e-5, 3e-4, 2e-4, 2e-4, 6e-4, 1.3e-3, 3e-4, 1.7e-3), strict=True))
    return _app("processing", tuple(zip(names, names[1:], strict=False)), seconds, {}, (400, 2200, 1000))


def network_monitoring() -> App:
    """Stela's Network Monitoring (after IBM's): two branches that meet before detection and the sink."""
    edges = (
        ("packets", "parse_a"), ("packets", "parse_b"), ("parse_a", "filter_a"), ("parse_b", "filter_b"),
        ("filter_a", "join"), ("filter_b", "join"), ("join", "detect"), ("detect", "sink"),
    )  # fmt: skip
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
    """Six machines of 16 cores, noise of 1 %."""
    return Plant(services, {f"node-{i}": Node() for i in range(1, 7)}, noise=0.01)
