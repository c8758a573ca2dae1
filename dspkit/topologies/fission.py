"""The three applications of the self-adaptive graph with fission, on S4: what finds a full queue is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core import Operator, Topology
from ..errors import WorkloadError
from ..plant import Node, Plant, Service
from ..workload import Trace, Workload
from .app import App

LONGEST = 10_080  # minutes: a week of seconds


def tweet_words(minutes: int = 10) -> App:
    """Fission's first application: stop words → language → count → store, under tweets after an earthquake.

    S4 drops what finds a full queue. What one replica does (`count` is the bottleneck, as SS1 tells), room for events
    and the curve are ours: rises at 300 and 500 s to about 800 events/s, and a mean of 312, as the paper has them.
    """
    rates = {"stop_words": 400, "language": 395, "count": 106.5, "store": 500}
    return _s4("tweet_words", Topology.chain(*rates), rates, 80, _tweets(minutes))


def tweet_branches(minutes: int = 10) -> App:
    """Fission's second application: tweets branch by language; what a quick test leaves open, a slower one decides.

    A quick test takes half of them for Spanish, the dictionary a fifth of the others. Load as in the first
    application; shares and the rates of one replica are ours, such that one replica each does what SS1 did.
    """
    rates = {"stop_words": 400, "language": 500, "dictionary": 84, "count": 106.5, "store": 500}
    edges = [("stop_words", "language"), ("language", "count"), ("language", "dictionary")]
    edges += [("dictionary", "count"), ("dictionary", "store"), ("count", "store")]
    branches = {"language": {"count": 0.5, "dictionary": 0.5}, "dictionary": {"count": 0.2, "store": 0.8}}
    topology = Topology(tuple(map(Operator, rates)), tuple(edges))
    return _s4("tweet_branches", topology, rates, 80, _tweets(minutes), branches)


def news_entities(minutes: int = 10) -> App:
    """Fission's third application: spam → sentiment → entities → store, under phrases of the news in heavy peaks.

    A peak of 3000 events/s at about 300 s and a mean of 638, as the paper has them; `entities` is the bottleneck, as
    SS1 tells. The curve between and the other rates are ours; SS2 has 30 replicas, as printed.
    """
    rates = {"spam": 1000, "sentiment": 1000, "entities": 141, "store": 1500}
    times = (0, 168, 206, 299, 307, 337, 395, 454, 600)
    heights = (150, 125, 290, 1790, 3000, 3000, 550, 150, 150)
    return _s4("news_entities", Topology.chain(*rates), rates, 350, _lines(times, heights, minutes))


def _tweets(minutes: int) -> Workload:
    times = (0, 293, 344, 415, 464, 519, 600)
    heights = (188, 94, 379, 310, 298, 800, 800)
    return _lines(times, heights, minutes)


def _lines(times_s: Sequence[float], heights: Sequence[float], minutes: int) -> Workload:
    """Lines between these points of a run of ten minutes, stretched to `minutes`, a rate for each second."""
    import numpy as np

    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= LONGEST:
        raise WorkloadError(f"minutes={minutes!r}", expected=f"1 to {LONGEST}", fix="the paper's are 10 and 60")
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
