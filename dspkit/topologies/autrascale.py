"""The applications of AuTraScale's evaluation."""

from __future__ import annotations

from ..core import Operator, Topology
from ..plant import Node, Plant, Service
from ..workload import Stair, Trace
from .app import App


def word_count() -> App:
    """AuTraScale's word count: source → flat map → count → sink.

    Rates of one instance as in the method card (example A3), so that 350 k records/s need 3, 4, 12, 10 instances of
    ideal scaling; contention of 0.5 % and noise of 1 % are ours.
    """
    rates = {"source": 120e3, "flat_map": 100e3, "count": 30e3, "sink": 36e3}
    services = {name: Service(1 / rate, contention=0.005, queue_records=3e3) for name, rate in rates.items()}
    topology = Topology(
        (Operator("source"), Operator("flat_map"), Operator("count", stateful=True), Operator("sink")),
        (("source", "flat_map"), ("flat_map", "count"), ("count", "sink")),
    )
    load = Trace((0, 300, 700), (80e3, 250e3, 110e3))
    return App("word_count", topology, Plant(services, noise=0.01), load, 0.180, "autrascale")


def case_study() -> App:
    """AuTraScale's case study: its word count with the same parallelism everywhere, under a rising staircase.

    The scalability law of `count` is fitted to the paper's 150, 250 and about 275 k records/s for 1, 2 and 3 instances
    (ours: 288), and the buffers to its 100 ms for 5; the other operators have room to spare.
    """
    services = {
        "source": Service(1 / 400e3, queue_records=2600),
        "flat_map": Service(1 / 360e3, queue_records=2600),
        "count": Service(1 / 150e3, contention=0.04, coherency=0.08, queue_records=2600),
        "sink": Service(1 / 450e3, queue_records=2600),
    }
    hosts = {f"host-{i}": Node(cores=20) for i in (1, 2, 3)}
    return App("case_study", Topology.chain(*services), Plant(services, hosts), Stair(), 0.180, "autrascale")
