"""Applications of the thesis on Storm: those of Distributed Storm on its eight nodes, and Elastic Storm's [nardelli].

Rates are as printed (3.5), the rest is ours. Not printed, and chosen here for Distributed Storm: every operator sends
one record per record unless stated otherwise; the base service takes 1.4 ms; sources and sinks run on two nodes.
Storm's default assigns the executors in turn to worker processes, one on each of `nodes`. That these are three is not
printed either, but follows from the printed results of that default: one node runs three of the seven executors of
tag-and-count (0.85^3 = 61.41 %), another two, and twelve executors have a lower latency than seven.

Log processing also has a live side: lines of a web server's log are filtered; one branch indexes pages, one keeps
statistics. Its graph is that of QoS-aware Storm's second application: a filter, one indexing operator beside two of
statistics in sequence, and a consumer in which both branches end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core import FrozenMap, Operator, PlacementError, Topology, assign_in_turn, instances_of
from ..core.typing import Array
from ..simulator import Node, Plant, Service
from ..workload import Constant, Trace
from .app import App
from .live import KEPT, Answers, Live, draw, forget

if TYPE_CHECKING:
    from ..placement.distributed_storm import StormCluster
    from ..spark import Function


SLOT_S = 10
_STATUS = (200,) * 80 + (304,) * 9 + (404,) * 8 + (500,) * 3  # out of a hundred lines
_LINE = re.compile(r'(\S+) - - \[(\d+\.\d+)\] "GET (/\S*) HTTP/1\.1" (\d{3}) (\d+)')
FIELDS = "page string, client string, at_s float64, status int64, size int64"


def lines(ids: Array, event_s: Array) -> Any:
    """Make lines in the common log format; one in fifty is truncated."""
    import pyarrow as pa

    client, page, odd = draw(ids, 1, 500).tolist(), draw(ids, 2, 200).tolist(), draw(ids, 3, 50).tolist()
    status, size = draw(ids, 4, len(_STATUS)).tolist(), draw(ids, 5, 50_000).tolist()
    text = [
        f'10.0.{c // 250}.{c % 250} - - [{t:.3f}] "GET /page-{p} HTTP/1.1" {_STATUS[s]} {n}'[: None if o else 30]
        for c, t, p, s, n, o in zip(client, event_s.tolist(), page, status, size, odd, strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["line"])


def whole(batches: Iterator[Any]) -> Iterator[Any]:
    """Parse all complete lines into fields."""
    import pyarrow as pa

    for batch in batches:
        found = [m.groups() for line in batch.column("line").to_pylist() if (m := _LINE.fullmatch(line))]
        if found:
            client, at, page, status, size = zip(*found, strict=True)
            columns = [page, client, list(map(float, at)), list(map(int, status)), list(map(int, size))]
            names = ["page", "client", "at_s", "status", "size"]
            yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=names)


def index(batches: Iterator[Any], known: dict[str, dict[str, int]]) -> Iterator[Any]:
    """Count hits and bytes per page."""
    for batch in batches:
        for page, size in zip(batch.column("page").to_pylist(), batch.column("size").to_pylist(), strict=True):
            entry = known.setdefault(page, {"hits": 0, "bytes": 0})
            entry["hits"] += 1
            entry["bytes"] += size
        yield batch.select(["page"]).rename_columns(["item"])


def classify(batches: Iterator[Any]) -> Iterator[Any]:
    """Compute the time slot of a line, and the class of its status: 2 to 5."""
    import pyarrow as pa

    for batch in batches:
        slot = (batch.column("at_s").to_numpy() // SLOT_S).astype("int64")
        yield pa.RecordBatch.from_arrays(
            [pa.array(slot * 10 + batch.column("status").to_numpy() // 100)], names=["slot"]
        )


def statistics(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Count lines per class and time slot."""
    import pyarrow as pa

    forget(known, lambda slot: slot // 10, KEPT)
    for batch in batches:
        slots = batch.column("slot").to_pylist()
        for slot, n in Counter(slots).items():
            known[slot] = known.get(slot, 0) + n
        yield pa.RecordBatch.from_arrays([pa.array([f"class {slot % 10}" for slot in slots])], names=["item"])


def consume(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Count the records from each branch, by item."""
    for batch in batches:
        for item, n in Counter(batch.column("item").to_pylist()).items():
            known[item] = known.get(item, 0) + n
    yield from ()


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state of index, statistics and consumer."""
    pages: dict[str, dict[str, int]] = {}
    slots: Counter[int] = Counter()
    items: Counter[str] = Counter()
    for row in rows:
        words = row["line"].split()
        if len(row["line"]) <= 30:
            continue
        page, status, at = words[5], int(words[7]), float(words[3][1:-1])
        before = pages.get(page, {"hits": 0, "bytes": 0})
        pages[page] = {"hits": before["hits"] + 1, "bytes": before["bytes"] + int(words[8])}
        slots[int(at // SLOT_S) * 10 + status // 100] += 1
        items.update([page, f"class {status // 100}"])
    return {"index": dict(pages), "second_statistic": dict(slots), "consumer": dict(items)}


def functions() -> dict[str, Function]:
    """Return the functions of Log Processing."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    entry = pa.struct({"hits": pa.int64(), "bytes": pa.int64()})
    return {
        "filter": arrow(whole, FIELDS),
        "index": keyed(index, "item string", key="page", state=entry),
        "first_statistic": arrow(classify, "slot int64"),
        "second_statistic": keyed(statistics, "item string", key="slot", state="int64"),
        "consumer": keyed(consume, key="item", state="int64"),
    }


LOGS = Live(
    functions,
    lines,
    "line string",
    oracle,
    {"filter": 300.0, "index": 1000.0, "first_statistic": 600.0, "second_statistic": 100.0},
    (500, 2500),
    "lines",
)


NODES = ("node-1", "node-5", "node-2")  # nodes of the worker processes
ENDS = NODES[:2]  # nodes of sources and sinks for schedulers that support pinning


def tag_and_count(
    replicas: int = 1, service_s: float = 1.4e-3, cluster: StormCluster | None = None, nodes: Sequence[str] = NODES
) -> App:
    """Return a chain of source, five operators and consumer, with 10 tuples/s.

    The heavy variant of the evaluation has `service_s=0.014`, the replicated one `replicas=2`.

    Parameters
    ----------
    replicas
        Executors of each of the five operators.
    service_s
        Service time of an operator, in seconds.
    cluster
        The nodes and links; those of the thesis if left out.
    nodes
        Nodes with a worker process, to which executors are assigned in turn.

    Examples
    --------
    >>> tag_and_count(replicas=2).deployment().instances
    12
    """
    names = ("source", *(f"operator_{i}" for i in range(1, 6)), "consumer")
    topology = Topology.chain(*names)
    return _app("tag_and_count", topology, dict.fromkeys(names[1:-1], replicas), 10.0, nodes, service_s, cluster)


def storm_word_count(
    cluster: StormCluster | None = None, nodes: Sequence[str] = ("node-1", "node-2"), words: float = 1.0
) -> App:
    """Return Word Count: a chain of four with 2, 3, 3 and 3 executors, one tuple/s, in two worker processes.

    Parameters
    ----------
    cluster
        The nodes and links; those of the thesis if left out.
    nodes
        Nodes with a worker process, to which executors are assigned in turn.
    words
        Words per sentence, which are not printed.

    Examples
    --------
    >>> storm_word_count(words=5).plant.services["split"].toward("count")
    5.0
    """
    topology = Topology.chain("source", "split", "count", "consumer")
    k = {"source": 2, "split": 3, "count": 3, "consumer": 3}
    return _app("storm_word_count", topology, k, 1.0, nodes, 1.4e-3, cluster, {"split": words})


def log_processing(cluster: StormCluster | None = None, nodes: Sequence[str] = NODES) -> App:
    """Return Log Processing: a filter feeds an index, and two statistics in a row; both end in the consumer.

    The load is 10 events/s.

    Parameters
    ----------
    cluster
        The nodes and links; those of the thesis if left out.
    nodes
        Nodes with a worker process, to which executors are assigned in turn.

    Examples
    --------
    >>> log_processing().topology.downstream("filter")
    ('index', 'first_statistic')
    """
    names = ("source", "filter", "index", "first_statistic", "second_statistic", "consumer")
    edges = (
        ("source", "filter"),
        ("filter", "index"),
        ("filter", "first_statistic"),
        ("first_statistic", "second_statistic"),
        ("index", "consumer"),
        ("second_statistic", "consumer"),
    )
    topology = Topology(tuple(map(Operator, names)), edges)
    return _app("log_processing", topology, dict.fromkeys(names[1:-1], 2), 10.0, nodes, 1.4e-3, cluster, live=LOGS)


def _app(
    name: str,
    topology: Topology,
    k: Mapping[str, int],
    rate: float,
    nodes: Sequence[str],
    service_s: float,
    cluster: StormCluster | None,
    sends: Mapping[str, float] = FrozenMap(),
    live: Live | None = None,
) -> App:
    """Return an application on the cluster, placed as by Storm's default scheduler, which does not support pinning."""
    from ..placement.distributed_storm import thesis_cluster  # loads compiled searches, which only this needs

    cluster = cluster or thesis_cluster()
    start = {**topology.uniform(), **k}
    if not nodes or (strangers := sorted(set(nodes) - set(cluster.names))):
        raise PlacementError(
            f"nodes {tuple(nodes)}{f', of which {strangers} do not exist' if nodes else ''}",
            expected=f"one or more of {', '.join(cluster.names)}",
            fix="pass nodes of this cluster as nodes=(...)",
        )
    places = assign_in_turn(instances_of(topology, start), nodes)
    costs = {n: service_s if n in k else 1e-4 for n in topology.order}
    services = {n: Service(costs[n], sends.get(n, 1.0), distribution="exponential") for n in topology.order}
    plant = cluster.plant(services)
    return App(name, topology, plant, Constant(rate), 0.15, "nardelli", start=start, placement=places, live=live)


def ends(topology: Topology, nodes: Sequence[str] = ENDS) -> dict[str, str]:
    """Return the node of each source and sink, which the schedulers accept as `pinned`."""
    return {**dict.fromkeys(topology.sources, nodes[0]), **dict.fromkeys(topology.sinks, nodes[1])}


def detector(*, executors: int = 20, pause_s: float = 10.0) -> App:
    """Return Frequent Pattern Detection over tweets, which Elastic Storm scales: Input, Generator, Detector, Reporter.

    Tasks and phases of the load are those of the thesis. It prints 5 Detectors, and a sequence that begins with 20: 5
    are those of the static run. An executor of the Detector takes 12.5 ms per tweet (any value from 10 to 15.5 gives
    the printed sequence), one of the Generator 0.5 ms; queues of 85 tweets make the static run's latency at the peak
    the printed 1500 ms.

    Parameters
    ----------
    executors
        Executors of the Detector at the start.
    pause_s
        Downtime of a rescale, in seconds.

    Examples
    --------
    >>> detector(executors=5).start["detector"]
    5
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
