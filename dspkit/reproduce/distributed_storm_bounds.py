"""What chapter 3's printed numbers can and cannot come from: arithmetic on placements, no simulation.

* Word count: two worker processes on the same two nodes under both schedulers, so what the adaptive one saves is what
  its first placement saves, pools of neighbours against executors dealt in turn.
* Log processing: the printed changes of traffic and of latency together bound how much of an event's latency can be the
  network's, for any three nodes and any placement that has the printed traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core import Edge, Topology
from ..placement.storm import Executor, Rules, View, bootstrap, executors, plan, streams, thesis_cluster, traffic
from ..placement.vivaldi import embed
from ..topologies.distributed_storm import log_processing, storm_word_count

if TYPE_CHECKING:
    import pandas as pd

WORDS = (1.0, 1.5, 2.0, 6.4)  # a sentence; 6.4 is the mean of Storm's own example, whose five have 5 to 8


def word_count_table(words: Sequence[float] = WORDS) -> pd.DataFrame:
    """Traffic of both first placements by words a sentence, for any order in which the default deals the operators."""
    import pandas as pd

    app = storm_word_count()
    topology, k = app.topology, app.start
    assert isinstance(k, Mapping)
    both = ("one", "other")
    pools = bootstrap(topology, k, (2, 2), np.zeros((2, 4)), processes=2, pinned={"source": 0, "consumer": 1})
    pooled = {e: both[node] for e, (node, _) in pools.items()}
    rows = []
    for count in words:
        rates = {edge: count if n else 1.0 for n, edge in enumerate(topology.edges)}
        least = traffic(topology, k, rates, pooled)
        dealt = [traffic(topology, k, rates, _dealt(topology, k, order, both)) for order in _orders(topology)]
        changes = [least / d - 1 for d in dealt]
        rows.append({"words": count, "pools_per_s": least, "printed_order": changes[0], "least": max(changes),
                     "most": min(changes)})  # fmt: skip
    return pd.DataFrame(rows)


def word_count_pairs(words: Sequence[float] = WORDS[:3], seeds: Sequence[int] = range(5)) -> pd.DataFrame:
    """On how many pairs of nodes nobody wishes to leave the first placement: every executor asked once.

    Delays without noise, in the coordinates that nodes learn from them (`seeds`: in which order they ping), no load.
    """
    import pandas as pd

    app, cluster = storm_word_count(), thesis_cluster()
    topology, k = app.topology, app.start
    assert isinstance(k, Mapping)
    pairs, ends = list(itertools.permutations(range(8), 2)), frozenset(("source", "consumer"))
    rows = []
    for count, skip_local in itertools.product(words, (False, True)):
        talk = streams(topology, k, {edge: count if n else 1.0 for n, edge in enumerate(topology.edges)})
        stays = []
        for seed in seeds:
            points = np.column_stack([embed(cluster.mean_delays(), seed=seed), np.ones(8), np.zeros(8)])
            for a, b in pairs:
                pinned = {"source": a, "consumer": b}
                where = bootstrap(topology, k, cluster.slots, points, processes=2, pinned=pinned)
                views = [View(here, points, where, talk, ends, frozenset(), cluster.slots) for here in (a, b)]
                stays.append(not any(plan(view, Rules(skip_local=skip_local)) for view in views))
        rows.append({"words": count, "skip_local": skip_local, "stay": float(np.mean(stays))})
    return pd.DataFrame(rows)


def _orders(topology: Topology) -> list[tuple[str, ...]]:
    """The topology's own order first."""
    return list(itertools.permutations(topology.order))


def _dealt(topology: Topology, k: Mapping[str, int], order: Sequence[str], nodes: Sequence[str]) -> dict[Executor, str]:
    by_name = {name: [e for e in executors(topology, k) if e[0] == name] for name in order}
    return {e: nodes[i % len(nodes)] for i, e in enumerate(e for name in order for e in by_name[name])}


def log_processing_bound(
    traffic_change: float = -0.63, latency_change: float = -0.18, processes: int = 3
) -> pd.DataFrame:
    """For any nodes of the default: the least cut of latency that goes with a cut of traffic, and what is missing.

    A placement with so little traffic has the most latency if the streams that still cross are those that weigh most in
    a result's latency, from the slowest node there is; the source stays where it is. `outside_ms` is what each event
    would have to spend elsewhere, under both schedulers, for the printed cut of latency.
    """
    import pandas as pd

    app, delay = log_processing(), {n: w.delay_ms for n, w in thesis_cluster().workers.items()}
    topology, k = app.topology, app.start
    assert isinstance(k, Mapping)
    weight = {edge: 1.0 if edge[0] in topology.sources else 0.5 for edge in topology.edges}  # each branch, half of all
    between = streams(topology, k, dict.fromkeys(topology.edges, 1.0))
    rows = []
    for nodes in itertools.permutations(delay, processes):
        where = _dealt(topology, k, topology.order, nodes)
        crossing, late = 0.0, 0.0
        for e, others in between.items():
            for other, share in others:
                if (edge := (e[0], other[0])) in weight and where[e] != where[other]:
                    crossing += share
                    late += share * weight[edge] * delay[where[e]]
        most = _most_latency(weight, topology, delay[nodes[0]], max(delay.values()), (1 + traffic_change) * crossing)
        rows.append({"nodes": ", ".join(nodes), "default_ms": late, "least_cut": most / late - 1,
                     "outside_ms": max(0.0, (most - (1 + latency_change) * late) / latency_change)})  # fmt: skip
    frame = pd.DataFrame(rows)
    return frame.sort_values("least_cut", ascending=False, ignore_index=True)


def _most_latency(
    weight: Mapping[Edge, float], topology: Topology, from_source: float, slowest: float, crossing: float
) -> float:
    """The costliest streams first, until as much crosses as may."""
    costs = sorted(
        (w * (from_source if edge[0] in topology.sources else slowest) for edge, w in weight.items()), reverse=True
    )
    late = 0.0
    for cost in costs:
        part = min(1.0, crossing)
        late, crossing = late + part * cost, crossing - part
    return late
