"""Applications of Distributed Storm's evaluation on its eight nodes [nardelli, 3.5]; rates as printed, the rest ours.

Not printed, and chosen here: every operator sends one record for each, unless told otherwise; the base service takes
1.4 ms; sources and sinks sit on two nodes. Storm's default deals the executors over worker processes, one on each of
`nodes`. That they are three is not printed either, but follows from what is printed of that default: one node runs
three of the seven executors of tag-and-count (0.85^3 = 61.41 %), another two, and twelve executors have a lower latency
than seven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import Operator, Topology
from ..errors import PlacementError
from ..frozen import FrozenMap
from ..placement.storm import Cluster, executors, thesis_cluster
from ..plant import Service
from ..workload import Constant
from .app import App

NODES = ("node-1", "node-5", "node-2")  # of the worker processes
ENDS = NODES[:2]  # where schedulers that know of pins keep sources and sinks


def tag_and_count(
    replicas: int = 1, service_s: float = 1.4e-3, cluster: Cluster | None = None, nodes: Sequence[str] = NODES
) -> App:
    """Source, five operators in a row, consumer; 10 tuples/s. Heavy: `service_s=0.014`; replicated: `replicas=2`."""
    names = ("source", *(f"operator_{i}" for i in range(1, 6)), "consumer")
    topology = Topology.chain(*names)
    return _app("tag_and_count", topology, dict.fromkeys(names[1:-1], replicas), 10.0, nodes, service_s, cluster)


def storm_word_count(
    cluster: Cluster | None = None, nodes: Sequence[str] = ("node-1", "node-2"), words: float = 1.0
) -> App:
    """Word Count: a chain of four with 2, 3, 3 and 3 executors, one tuple/s, in two worker processes.

    How many `words` a sentence has is not printed.
    """
    topology = Topology.chain("source", "split", "count", "consumer")
    k = {"source": 2, "split": 3, "count": 3, "consumer": 3}
    return _app("storm_word_count", topology, k, 1.0, nodes, 1.4e-3, cluster, {"split": words})


def log_processing(cluster: Cluster | None = None, nodes: Sequence[str] = NODES) -> App:
    """Log Processing: a filter feeds an index, and two statistics in a row; both meet in the consumer; 10 events/s."""
    names = ("source", "filter", "index", "first_statistic", "second_statistic", "consumer")
    edges = (
        ("source", "filter"), ("filter", "index"), ("filter", "first_statistic"),
        ("first_statistic", "second_statistic"), ("index", "consumer"), ("second_statistic", "consumer"),
    )  # fmt: skip
    topology = Topology(tuple(map(Operator, names)), edges)
    return _app("log_processing", topology, dict.fromkeys(names[1:-1], 2), 10.0, nodes, 1.4e-3, cluster)


def _app(
    name: str, topology: Topology, k: Mapping[str, int], rate: float, nodes: Sequence[str], service_s: float,
    cluster: Cluster | None, sends: Mapping[str, float] = FrozenMap(),
) -> App:  # fmt: skip
    """On the cluster, dealt as Storm's default does it, which knows of no pins."""
    cluster = cluster or thesis_cluster()
    start = {**topology.uniform(), **k}
    if not nodes or (strangers := sorted(set(nodes) - set(cluster.names))):
        raise PlacementError(
            f"nodes {tuple(nodes)}{f', of which {strangers} are not there' if nodes else ''}",
            expected=f"one or more of {', '.join(cluster.names)}",
            fix="name nodes of this cluster by nodes=(...)",
        )
    places = {e: nodes[i % len(nodes)] for i, e in enumerate(executors(topology, start))}
    costs = {n: service_s if n in k else 1e-4 for n in topology.order}
    services = {n: Service(costs[n], sends.get(n, 1.0), distribution="exponential") for n in topology.order}
    plant = cluster.plant(services)
    return App(name, topology, plant, Constant(rate), 0.15, "nardelli", start=start, placement=places)


def ends(topology: Topology, nodes: Sequence[str] = ENDS) -> dict[str, str]:
    """Sources on the one node, sinks on the other: what the schedulers take as `pinned`."""
    return {**dict.fromkeys(topology.sources, nodes[0]), **dict.fromkeys(topology.sinks, nodes[1])}
