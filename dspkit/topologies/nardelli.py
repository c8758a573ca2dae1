"""Applications of the thesis beside the taxis: small ones whose placement it studies, and one that it scales.

It gives rates of sources, executors, and who is pinned; service times, sizes and selectivities of the small ones it
does not give, and they are ours: 1.4 ms (a tenth of its "heavy" version), 100 bytes, one record for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import Edge, Operator, Topology
from ..plant import Link, Node, Plant, Service
from ..workload import Constant, Trace
from .app import App

DELAYS_MS = (15, 23, 19, 25, 12, 17, 32, 27)  # mean delay of what leaves each of the eight nodes
LIGHT_S, HEAVY_S = 1.4e-3, 14e-3


def tag_and_count(*, heavy: bool = False, replicated: bool = False) -> App:
    """Source, five operators in a row, consumer; 10 tuples/s on eight nodes of one core with slow links.

    `heavy`: the five take 14 ms a tuple; `replicated`: each runs twice, which makes 20 links between executors of 6.
    """
    names = ("source", *(f"operator_{i}" for i in range(1, 6)), "consumer")
    edges = tuple(zip(names, names[1:], strict=False))
    seconds = {name: HEAVY_S if heavy and name.startswith("operator") else LIGHT_S for name in names}
    start = {name: 2 if replicated and name.startswith("operator") else 1 for name in names}
    return _placed("tag_and_count", edges, seconds, start, 10.0)


def storm_word_count() -> App:
    """The thesis' Word Count: a source of 1 tuple/s, split, count, consumer; 2, 3, 3 and 3 executors."""
    start = {"source": 2, "split": 3, "count": 3, "consumer": 3}
    edges = tuple(zip(start, list(start)[1:], strict=False))
    return _placed("storm_word_count", edges, dict.fromkeys(start, LIGHT_S), start, 1.0)


def log_processing() -> App:
    """10 log events/s through a filter into two branches, which index them and draw up statistics, and a consumer."""
    edges = (
        ("source", "filter"), ("filter", "index"), ("filter", "parse"), ("parse", "statistics"),
        ("index", "consumer"), ("statistics", "consumer"),
    )  # fmt: skip
    start = {"source": 1, "filter": 2, "index": 2, "parse": 2, "statistics": 2, "consumer": 1}
    return _placed("log_processing", edges, dict.fromkeys(start, LIGHT_S), start, 10.0)


def detector(*, executors: int = 20, pause_s: float = 10.0) -> App:
    """Frequent Pattern Detection over tweets, which Elastic Storm scales: Input, Generator, Detector, Reporter.

    Tasks and phases of load are the thesis'. It prints 5 Detectors, and a sequence that begins with 20: 5 are those of
    the static run. An executor of the Detector takes 12.5 ms a tweet (any value from 10 to 15.5 gives the printed
    sequence), one of the Generator 0.5 ms; queues of 85 tweets make the static run's latency at the peak the
    printed 1500 ms.
    """
    seconds = {"input": 1e-4, "generator": 5e-4, "detector": 12.5e-3, "reporter": 1e-4}
    tasks = {"input": 1, "generator": 2, "detector": 20, "reporter": 1}
    services = {n: Service(s, queue_records=85, state_bytes=16e6 * (n == "detector")) for n, s in seconds.items()}
    topology = Topology(
        tuple(Operator(n, k, stateful=n == "detector") for n, k in tasks.items()),
        tuple(zip(seconds, list(seconds)[1:], strict=False)),
    )
    nodes = {f"node-{i}": Node(cores=4) for i in range(1, 6)}
    load = Trace((0, 900, 1800, 2700, 3600), (120, 350, 900, 250, 120))
    plant = Plant(services, nodes, pause_s=pause_s, pause_kind="rebalance", noise=0.01)
    return App("detector", topology, plant, load, 0.9, "nardelli", start={**tasks, "detector": executors})


def _placed(
    name: str, edges: Sequence[Edge], seconds: Mapping[str, float], start: Mapping[str, int], rate: float
) -> App:
    """Its ends pinned to the first two of eight nodes, whose links take what leaves a node as long as the thesis says.

    Of the pinned ends each instance is named; the scheduler deals the others.
    """
    nodes = {f"node-{i}": Node(cores=1) for i in range(1, len(DELAYS_MS) + 1)}
    links = {(a, b): Link(delay_s=ms / 1000) for a, ms in zip(nodes, DELAYS_MS, strict=True) for b in nodes if a != b}
    topology = Topology(tuple(map(Operator, start)), tuple(edges))
    ends = {"node-1": topology.sources, "node-2": topology.sinks}
    pinned = {(op, i): node for node, operators in ends.items() for op in operators for i in range(start[op])}
    plant = Plant({n: Service(s) for n, s in seconds.items()}, nodes, links=links)
    return App(name, topology, plant, Constant(rate), 0.5, "nardelli", start=start, placement=pinned)
