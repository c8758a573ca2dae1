"""The application of AuTraScale's evaluation."""

from __future__ import annotations

from ..core import Operator, Topology
from ..plant import Plant, Service
from ..workload import Trace
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
