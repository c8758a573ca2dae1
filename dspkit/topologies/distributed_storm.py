"""Applications of Distributed Storm's evaluation on its eight nodes [nardelli, 3.5]; rates as printed, the rest ours.

Not printed, and chosen here: every operator sends one record for each, the base service takes 1.4 ms, sources and sinks
sit on two nodes. Storm's default deals the executors over `processes` slots on different nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core import Operator, Topology
from ..placement.storm import Cluster, round_robin, thesis_cluster
from ..plant import Service
from ..workload import Constant
from .app import App

ENDS = ("node-1", "node-5")  # where sources and sinks are


def tag_and_count(replicas: int = 1, service_s: float = 1.4e-3, cluster: Cluster | None = None) -> App:
    """Source, five operators in a row, consumer; 10 tuples/s. Heavy: `service_s=0.014`; replicated: `replicas=2`."""
    names = ("source", *(f"operator_{i}" for i in range(1, 6)), "consumer")
    topology = Topology.chain(*names)
    return _app("tag_and_count", topology, dict.fromkeys(names[1:-1], replicas), 10.0, 7, service_s, cluster)


def storm_word_count(cluster: Cluster | None = None) -> App:
    """Word Count: a chain of four with 2, 3, 3 and 3 executors, one tuple/s, in two worker processes."""
    topology = Topology.chain("source", "split", "count", "consumer")
    k = {"source": 2, "split": 3, "count": 3, "consumer": 3}
    return _app("storm_word_count", topology, k, 1.0, 2, 1.4e-3, cluster)


def log_processing(cluster: Cluster | None = None) -> App:
    """Log Processing: a filter feeds an index, and two statistics in a row; both meet in the consumer; 10 events/s."""
    names = ("source", "filter", "index", "first_statistic", "second_statistic", "consumer")
    edges = (
        ("source", "filter"), ("filter", "index"), ("filter", "first_statistic"),
        ("first_statistic", "second_statistic"), ("index", "consumer"), ("second_statistic", "consumer"),
    )  # fmt: skip
    topology = Topology(tuple(map(Operator, names)), edges)
    return _app("log_processing", topology, dict.fromkeys(names[1:-1], 2), 10.0, 6, 1.4e-3, cluster)


def _app(
    name: str, topology: Topology, k: Mapping[str, int], rate: float, processes: int, service_s: float,
    cluster: Cluster | None,
) -> App:  # fmt: skip
    """On the cluster, placed as Storm's default does it, but for the ends."""
    cluster = cluster or thesis_cluster()
    start = {**topology.uniform(), **k}
    slots = round_robin(topology, start, cluster.slots, processes)
    places = {executor: cluster.names[node] for executor, (node, _) in slots.items()}
    if processes > 2:
        pinned = ends(topology)
        places |= {e: pinned[e[0]] for e in places if pinned.get(e[0]) in cluster.names}
    services = {n: Service(service_s if n in k else 1e-4, distribution="exponential") for n in topology.order}
    plant = cluster.plant(services)
    return App(name, topology, plant, Constant(rate), 0.15, "nardelli", start=start, placement=places)


def ends(topology: Topology, nodes: tuple[str, str] = ENDS) -> dict[str, str]:
    """Sources on the one node, sinks on the other: what the schedulers take as `pinned`."""
    return {**dict.fromkeys(topology.sources, nodes[0]), **dict.fromkeys(topology.sinks, nodes[1])}
