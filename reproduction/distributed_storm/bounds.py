"""Possible explanations of chapter 3's printed numbers: arithmetic on placements, without simulation.

* Word count: both schedulers use two worker processes on the same two nodes, so that the adaptive one only saves by its
  initial placement, pools of neighbours instead of executors assigned in turn.
* Log processing: the printed changes of traffic and latency together bound the share of the network in an event's
  latency, for any three nodes and any placement with the printed traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dspkit.apps import log_processing, storm_word_count
from dspkit.core import Edge, Topology, instances_of
from dspkit.placement.coordinates import embed
from dspkit.placement.distributed_storm import (
    Executor,
    MigrationRules,
    NodeView,
    bootstrap,
    plan,
    streams,
    thesis_cluster,
    traffic,
)

if TYPE_CHECKING:
    import pandas as pd


WORDS = (1.0, 1.5, 2.0, 6.4)  # per sentence; 6.4 is the mean of Storm's own example, whose five have 5 to 8


def word_count_table(words: Sequence[float] = WORDS) -> pd.DataFrame:
    """Return the traffic of both initial placements by words per sentence, for any order of the default scheduler."""
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
    """Return the share of pairs of nodes on which no executor leaves the initial placement.

    Delays have no noise, nodes no load; coordinates are estimated from pings, whose order depends on `seeds`.
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
                views = [NodeView(here, points, where, talk, ends, frozenset(), cluster.slots) for here in (a, b)]
                stays.append(not any(plan(view, MigrationRules(skip_local=skip_local)) for view in views))
        rows.append({"words": count, "skip_local": skip_local, "stay": float(np.mean(stays))})
    return pd.DataFrame(rows)


def _orders(topology: Topology) -> list[tuple[str, ...]]:
    """Return all orders of the operators, the topology's own first."""
    return list(itertools.permutations(topology.order))


def _dealt(topology: Topology, k: Mapping[str, int], order: Sequence[str], nodes: Sequence[str]) -> dict[Executor, str]:
    by_name = {name: [e for e in instances_of(topology, k) if e[0] == name] for name in order}
    return {e: nodes[i % len(nodes)] for i, e in enumerate(e for name in order for e in by_name[name])}


def log_processing_bound(
    traffic_change: float = -0.63, latency_change: float = -0.18, processes: int = 3
) -> pd.DataFrame:
    """Return for all nodes of the default the least cut of latency for a cut of traffic, and the missing latency.

    A placement with this traffic has the greatest latency if the streams that still cross nodes are those with the most
    weight in a result's latency, sent from the slowest node; the source is not moved. `outside_ms` is the latency that
    each event would have to spend outside the network, under both schedulers, for the printed cut of latency.
    """
    import pandas as pd

    app, delay = log_processing(), {n: w.delay_ms for n, w in thesis_cluster().workers.items()}
    topology, k = app.topology, app.start
    assert isinstance(k, Mapping)
    weight = {
        edge: 1.0 if edge[0] in topology.sources else 0.5 for edge in topology.edges
    }  # each branch has half of all records
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
    """Return the latency if the costliest streams cross nodes first, up to the given traffic."""
    costs = sorted(
        (w * (from_source if edge[0] in topology.sources else slowest) for edge, w in weight.items()), reverse=True
    )
    late = 0.0
    for cost in costs:
        part = min(1.0, crossing)
        late, crossing = late + part * cost, crossing - part
    return late
