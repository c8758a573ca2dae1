"""Chapter 8's experiment: New York's taxi query with the rates of Table 8.2 on a part of a backbone [nardelli].

| here | thesis |
|---|---|
| `ansnet`, `backbone` | "a portion of ANSNET": logical links by shortest ways, 32 ms on average, Res_u = 2 |
| `taxi_query` | rates and state of Table 8.2; k_i; data source and globalRank pinned in its runs, free in its counts |
| `SETTINGS`, `QUERY_LIMITS` | the four objectives of Table 8.3; R_max, C_max, T_D,max |

Delays, pins and selectivities are not printed. Delays are those of `ansnet.ansnet`, or drawn by `backbone`. For each
source record partialRank gets 21.4
(inferred from the times at which it was doubled); the metronome sends 0.003. Links are free: the printed costs are
whole replicas. Source and sink are far apart, as about 85 ms of the printed 120.8 ms must be the network's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import PlacementError
from .arrays import number, whole
from .downtime import Downtime
from .elastic import ElasticWeights
from .generators import median_node
from .problem import Application, Network, Problem
from .replica_problem import ReplicaProblem
from .replica_program import Limits

QUERY_LIMITS = Limits(response_s=0.175, cost=30.0, downtime_s=7.5)
SETTINGS = {
    "baseline": ElasticWeights(0.5, 0.5, 0.0),
    "balanced": ElasticWeights(0.3, 0.3, 0.4),
    "response time": ElasticWeights(0.6, 0.0, 0.4),
    "cost": ElasticWeights(0.0, 0.6, 0.4),
}
PINNED = ("apart", "together", "free")
ONCE = ("data_source", "metronome", "global_rank")  # never replicated
RATES = {  # records/s of one replica, bytes of state, records for each of the source
    "data_source": (284.0, 82.0, 1.0), "parser": (233.0, 0.0, 1.0), "filter_by_coordinates": (253.0, 0.0, 1.0),
    "compute_route_id": (253.0, 0.0, 1.0), "metronome": (300.0, 328.0, 1.0), "count_by_window": (335.0, 1376.0, 1.0),
    "partial_rank": (2371.0, 1536.0, 21.4), "global_rank": (3000.0, 480.0, 0.05 * 21.4),
}  # fmt: skip
STREAMS = {  # records for each of the source
    ("data_source", "parser"): 1.0, ("parser", "filter_by_coordinates"): 1.0,
    ("filter_by_coordinates", "compute_route_id"): 1.0, ("filter_by_coordinates", "metronome"): 1.0,
    ("compute_route_id", "count_by_window"): 1.0, ("metronome", "count_by_window"): 0.003,
    ("count_by_window", "partial_rank"): 21.4, ("partial_rank", "global_rank"): 0.05 * 21.4,
}  # fmt: skip


def backbone(nodes: int = 15, *, seed: int = 0, mean_s: float = 0.032, capacity: float = 2.0, ways: int = 2) -> Network:
    """Nodes strewn over a plane, each linked to its nearest; logical links go the shortest way.

    >>> float(round(backbone(15).delay_s[~np.eye(15, dtype=bool)].mean(), 6))
    0.032
    """
    from scipy.sparse.csgraph import shortest_path

    number(mean_s, "mean_s", open_low=True)
    random = np.random.default_rng((whole(nodes, "nodes", 2), whole(seed, "seed")))
    points = random.uniform(0, 1, (nodes, 2)) * (1.6, 1.0)
    far = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    linked = np.zeros((nodes, nodes), bool)
    for u in range(1, nodes):  # each joins those nearest of the ones before it: all are connected
        linked[u, np.argsort(far[u, :u])[: whole(ways, "ways", 1)]] = True
    delay = shortest_path(np.where(linked | linked.T, far, 0.0), method="D", directed=False)
    delay = np.minimum(delay, delay.T)
    delay *= mean_s / delay[~np.eye(nodes, dtype=bool)].mean()
    return Network(tuple(f"n{u}" for u in range(nodes)), delay, capacity)


def taxi_query(
    nodes: int = 15, most: int = 2, *, source_rate_per_s: float = 70.0, seed: int = 0,
    pinned: str | tuple[str, str] = "apart", network: Network | None = None, **downtime: Any,
) -> Downtime:  # fmt: skip
    """The query on a backbone: source and sink on two named nodes, the farthest "apart", "together" on one, or "free".

    >>> query = taxi_query(source_rate_per_s=100)
    >>> [round(float(r), 2) for r in query.problem.load_per_s]
    [100.0, 100.0, 100.0, 100.0, 100.0, 100.3, 2140.0, 107.0]
    """
    network = backbone(nodes, seed=seed) if network is None else network
    names = tuple(RATES)
    app = Application(names, tuple(STREAMS), 1, 0.0, [source_rate_per_s * q for q in STREAMS.values()])
    pins = dict(zip(("data_source", "global_rank"), _ends(network, pinned), strict=False))
    problem = ReplicaProblem(
        Problem(app, network, pins),
        [1 if n in ONCE else most for n in names],
        [mu for mu, _, _ in RATES.values()],
        source_rate_per_s={"data_source": source_rate_per_s},
    )
    return Downtime(problem, **{"state_bytes": [state for _, state, _ in RATES.values()], **downtime})


def _ends(network: Network, pinned: Any) -> tuple[str, ...]:
    """The nodes of source and sink; none if they are free."""
    if isinstance(pinned, tuple) and len(pinned) == 2 and all(node in network.index for node in pinned):
        return pinned
    if pinned not in PINNED:
        raise PlacementError(f"pinned={pinned!r}", expected=f"one of {PINNED}, or two nodes", fix="correct the name")
    if pinned == "apart":
        u, v = np.unravel_index(int(network.delay_s.argmax()), network.delay_s.shape)
        return network.nodes[u], network.nodes[v]
    return () if pinned == "free" else (median_node(network),) * 2


def at_rate(query: Downtime, source_rate_per_s: float) -> Downtime:
    """The same query at another rate of its source."""
    from .control import with_rates

    rates = [source_rate_per_s * q for q in STREAMS.values()]
    return replace(query, problem=with_rates(query.problem, rates, {"data_source": source_rate_per_s}))
