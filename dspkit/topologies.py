"""Streaming applications of the papers, ready to run: structure, plant and a load, one function each.

>>> from dspkit import run, topologies
>>> from dspkit.policies.ds2 import DS2
>>> history = run(DS2(), topologies.word_count().simulator(), steps=4)
>>> history[-1].snapshot.deployment.parallelism
{'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .core import Deployment, Operator, Topology
from .plant import Node, Plant, Service
from .simulator import Simulator
from .workload import Sum, Trace, Workload


@dataclass(frozen=True)
class App:
    """A topology with the plant that simulates it, a load that is worth watching, and a latency to aim at."""

    name: str
    topology: Topology
    plant: Plant
    workload: Workload | Mapping[str, Workload]
    target_latency_s: float
    reference: str

    @property
    def load(self) -> Workload:
        """The load of all sources together."""
        return self.workload if isinstance(self.workload, Workload) else Sum(tuple(self.workload.values()))

    def simulator(
        self,
        workload: Workload | Mapping[str, Workload] | None = None,
        *,
        scale: float = 1.0,
        parallelism: Mapping[str, int] | int = 1,
        **options: Any,
    ) -> Simulator:
        """The app on a simulated cluster, under its own load or another, `scale` times as high.

        It starts with the same parallelism everywhere, or as the mapping says; options go to Simulator.
        """
        load = self.workload if workload is None else workload
        if isinstance(load, Workload):
            load = load if scale == 1 else load * scale
        else:
            load = load if scale == 1 else {source: w * scale for source, w in load.items()}
        start = parallelism if isinstance(parallelism, Mapping) else self.topology.uniform(parallelism)
        return Simulator(self.topology, self.plant, load, deployment=Deployment(start), **options)


def available() -> dict[str, Callable[[], App]]:
    """Every application of this module by its name."""
    module = sys.modules[__name__]
    return {
        name: function
        for name, function in sorted(vars(module).items())
        if inspect.isfunction(function) and function.__annotations__.get("return") == "App" and name[0] != "_"
    }


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
    return App("diamond", topology, Plant(services, noise=0.01), load, 0.5, "stela")


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
    return App("star", topology, Plant(services, noise=0.01), load, 0.5, "stela")


def tweet_words(minutes: int = 10) -> App:
    """Fission's first application: stop words → language → count → store, under tweets after an earthquake.

    S4 drops what finds a full queue. What one replica does (`count` is the bottleneck, as SS1 tells), room for events
    and the curve are ours: rises at 300 and 500 s to about 800 events/s, and a mean of 312, as the paper has them.
    """
    rates = {"stop_words": 400, "language": 300, "count": 106.5, "store": 500}
    return _s4("tweet_words", Topology.chain(*rates), rates, 140, _tweets(minutes))


def tweet_branches(minutes: int = 10) -> App:
    """Fission's second application: tweets branch by language; what a quick test leaves open, a slower one decides.

    A quick test takes half of them for Spanish, the dictionary a fifth of the others. Load as in the first
    application; shares and the rates of one replica are ours, such that one replica each does what SS1 did.
    """
    rates = {"stop_words": 400, "language": 500, "dictionary": 75, "count": 106.5, "store": 500}
    edges = [("stop_words", "language"), ("language", "count"), ("language", "dictionary")]
    edges += [("dictionary", "count"), ("dictionary", "store"), ("count", "store")]
    branches = {"language": {"count": 0.5, "dictionary": 0.5}, "dictionary": {"count": 0.2, "store": 0.8}}
    topology = Topology(tuple(map(Operator, rates)), tuple(edges))
    return _s4("tweet_branches", topology, rates, 140, _tweets(minutes), branches)


def news_entities(minutes: int = 10) -> App:
    """Fission's third application: spam → sentiment → entities → store, under phrases of the news in heavy peaks.

    A peak of 3000 events/s at about 300 s and a mean of 638, as the paper has them; `entities` is the bottleneck, as
    SS1 tells. The curve between and the other rates are ours; SS2 has 30 replicas, as printed.
    """
    rates = {"spam": 1000, "sentiment": 1000, "entities": 141, "store": 1500}
    times = (0, 168, 296, 299, 361, 458, 476, 496, 519, 600)
    heights = (110, 240, 3000, 3000, 190, 190, 100, 100, 150, 150)
    return _s4("news_entities", Topology.chain(*rates), rates, 260, _lines(times, heights, minutes))


def _tweets(minutes: int) -> Workload:
    times = (0, 290, 342, 399, 436, 473, 530, 600)
    heights = (200, 100, 350, 350, 320, 320, 800, 800)
    return _lines(times, heights, minutes)


def _lines(times_s: Sequence[float], heights: Sequence[float], minutes: int) -> Workload:
    """Lines between these points of a run of ten minutes, stretched to `minutes`, a rate for each second."""
    import numpy as np

    t = np.arange(60.0 * minutes)
    return Trace(t.tolist(), np.interp((t + 0.5) * 10 / minutes, times_s, heights).tolist())


def _s4(
    name: str, topology: Topology, rates: Mapping[str, float], room: float, load: Workload, branches: Any = None
) -> App:
    """An application on S4: replicas are free and start at once on one large host; full queues drop events."""
    services = {
        n: Service(
            1 / rate, (branches or {}).get(n, 1.0), queue_records=room, overflow="drop", distribution="deterministic"
        )
        for n, rate in rates.items()
    }
    plant = Plant(services, {"host": Node(4096)}, pause_s=0.0, pause_kind="in-place")
    return App(name, topology, plant, load, 1.0, "fission")
