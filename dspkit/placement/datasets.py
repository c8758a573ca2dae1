"""Problems from the thesis: small examples, and New York's taxi query (chapter 8) [nardelli].

| here | thesis |
|---|---|
| `example`, `replica_example` | small problems with known answers, for tests and first steps |
| `backbone` | in place of "a portion of ANSNET": logical links by shortest paths, 32 ms on average, Res_u = 2 |
| `taxi_query` | rates and state of Table 8.2; k_i; data source and globalRank pinned in its runs, free in its counts |
| `SETTINGS`, `QUERY_LIMITS` | the four objectives of Table 8.3; R_max, C_max, T_D,max |

Pins and selectivities are not printed. partialRank gets 21.4 records per source record (inferred from the times at
which it was doubled); the metronome sends 0.003. Links are free: the printed costs are whole replicas. Source and sink
are far apart, as about 85 ms of the printed 120.8 ms must be the network's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import PlacementError
from ..core.lazy import load
from ..core.validation import number, whole
from .generators import median_node
from .metrics import Limits, Weights
from .problem import Application, Network, Problem
from .replication.downtime import Downtime
from .replication.problem import Replication


def example(name: str = "A") -> Problem:
    """Return a small problem.

    Parameters
    ----------
    name
        "A" (a chain of three on three nodes), "A free" (the same, nothing pinned), "B" (a diamond) or "replicas" (a
        chain whose middle operator runs once or twice).

    Examples
    --------
    >>> example("B").application.paths()
    ((0, 1, 3), (0, 2, 3))
    """
    if name in ("A", "A free"):
        delays = [[0, 0.010, 0.018], [0.010, 0, 0.010], [0.018, 0.010, 0]]
        network = Network(("0", "1", "2"), delays, (2, 1, 2), (1, 2, 1.25), (0.99, 0.95, 0.999))
        app = Application(("s", "m", "t"), (("s", "m"), ("m", "t")), 1, (0.010, 0.020, 0.010), (100, 90))
        return Problem(app, network, {"s": "0", "t": "2"} if name == "A" else {})
    if name == "B":
        d = {(0, 1): 10, (0, 2): 20, (0, 3): 30, (1, 2): 12, (1, 3): 25, (2, 3): 8}
        delays = [[d.get((min(u, v), max(u, v)), 0) / 1000 for v in range(4)] for u in range(4)]
        network = Network(("0", "1", "2", "3"), delays, (2, 1, 1, 2), (1, 1, 2, 1), (0.999, 0.97, 0.98, 0.99))
        streams = (("s", "a"), ("s", "b"), ("a", "t"), ("b", "t"))
        app = Application(("s", "a", "b", "t"), streams, 1, (0.003, 0.006, 0.004, 0.003), 100)
        return Problem(app, network, {"s": "0", "t": "0"})
    if name == "replicas":
        return replica_example()
    raise PlacementError(f"example {name!r}", expected="'A', 'A free', 'B' or 'replicas'", fix="choose one")


def replica_example(**changes: Any) -> Problem:
    """Return a chain of three operators on three nodes, whose middle operator runs once or twice, anywhere.

    `changes` are parameters of its `Replication`.

    >>> replica_example().load_per_s
    array([10., 10., 10.])
    """
    delays = [[0, 0.010, 0.030], [0.010, 0, 0.020], [0.030, 0.020, 0]]
    network = Network(("a", "b", "c"), delays, 2, (1, 1, 2), (0.99, 0.98, 1))
    app = Application(("1", "2", "3"), (("1", "2"), ("2", "3")), 1, 0, 10)
    settings = {
        "max_replicas": (1, 2, 1),
        "service_rate_per_s": (50, 14, 50),
        "link_price": 0.02,
        "bytes_per_record": 1500,
    }
    return Problem(app, network, {"1": "a", "3": "c"}, Replication(**{**settings, **changes}))


QUERY_LIMITS = Limits(response_s=0.175, cost=30.0, downtime_s=7.5)
SETTINGS = {
    "baseline": Weights(0.5, cost=0.5),
    "balanced": Weights(0.3, cost=0.3, downtime=0.4),
    "response time": Weights(0.6, downtime=0.4),
    "cost": Weights(0.0, cost=0.6, downtime=0.4),
}
PINNED = ("apart", "together", "free")
ONCE = ("data_source", "metronome", "global_rank")  # never replicated
RATES = {  # records/s of one replica, bytes of state, records per source record
    "data_source": (284.0, 82.0, 1.0),
    "parser": (233.0, 0.0, 1.0),
    "filter_by_coordinates": (253.0, 0.0, 1.0),
    "compute_route_id": (253.0, 0.0, 1.0),
    "metronome": (300.0, 328.0, 1.0),
    "count_by_window": (335.0, 1376.0, 1.0),
    "partial_rank": (2371.0, 1536.0, 21.4),
    "global_rank": (3000.0, 480.0, 0.05 * 21.4),
}
STREAMS = {  # records per source record
    ("data_source", "parser"): 1.0,
    ("parser", "filter_by_coordinates"): 1.0,
    ("filter_by_coordinates", "compute_route_id"): 1.0,
    ("filter_by_coordinates", "metronome"): 1.0,
    ("compute_route_id", "count_by_window"): 1.0,
    ("metronome", "count_by_window"): 0.003,
    ("count_by_window", "partial_rank"): 21.4,
    ("partial_rank", "global_rank"): 0.05 * 21.4,
}


def backbone(nodes: int = 15, *, seed: int = 0, mean_s: float = 0.032, capacity: float = 2.0, ways: int = 2) -> Network:
    """Return a network of random points in a plane, each linked to its nearest ones; logical links are shortest paths.

    >>> float(round(backbone(15).delay_s[~np.eye(15, dtype=bool)].mean(), 6))
    0.032
    """
    shortest_path = load("scipy.sparse.csgraph", "standard").shortest_path

    number(mean_s, "mean_s", 0, above=True, error=PlacementError)
    random = np.random.default_rng(
        (whole(nodes, "nodes", 2, error=PlacementError), whole(seed, "seed", error=PlacementError))
    )
    points = random.uniform(0, 1, (nodes, 2)) * (1.6, 1.0)
    far = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    linked = np.zeros((nodes, nodes), bool)
    for u in range(1, nodes):  # linked to the nearest earlier points, so that the network is connected
        linked[u, np.argsort(far[u, :u])[: whole(ways, "ways", 1, error=PlacementError)]] = True
    delay = shortest_path(np.where(linked | linked.T, far, 0.0), method="D", directed=False)
    delay = np.minimum(delay, delay.T)
    delay *= mean_s / delay[~np.eye(nodes, dtype=bool)].mean()
    return Network(tuple(f"n{u}" for u in range(nodes)), delay, capacity)


def taxi_query(
    nodes: int = 15,
    max_replicas: int = 2,
    *,
    source_rate_per_s: float = 70.0,
    seed: int = 0,
    pinned: str | tuple[str, str] = "apart",
    network: Network | None = None,
    **downtime: Any,
) -> Problem:
    """Return the query on a backbone.

    Source and sink are pinned to the two farthest nodes ("apart"), to one node ("together"), to two named nodes, or not
    at all ("free").

    >>> query = taxi_query(source_rate_per_s=100)
    >>> [round(float(r), 2) for r in query.load_per_s]
    [100.0, 100.0, 100.0, 100.0, 100.0, 100.3, 2140.0, 107.0]
    """
    network = backbone(nodes, seed=seed) if network is None else network
    names = tuple(RATES)
    app = Application(names, tuple(STREAMS), 1, 0.0, [source_rate_per_s * q for q in STREAMS.values()])
    pins = dict(zip(("data_source", "global_rank"), _ends(network, pinned), strict=False))
    replication = Replication(
        [1 if n in ONCE else max_replicas for n in names],
        [mu for mu, _, _ in RATES.values()],
        source_rate_per_s={"data_source": source_rate_per_s},
    )
    change = Downtime(**{"state_bytes": [state for _, state, _ in RATES.values()], **downtime})
    return Problem(app, network, pins, replication, change)


def _ends(network: Network, pinned: Any) -> tuple[str, ...]:
    """Return the nodes of source and sink; empty if they are free."""
    if isinstance(pinned, tuple) and len(pinned) == 2 and all(node in network.index for node in pinned):
        return pinned
    if pinned not in PINNED:
        raise PlacementError(f"pinned={pinned!r}", expected=f"one of {PINNED}, or two nodes", fix="choose one")
    if pinned == "apart":
        u, v = np.unravel_index(int(network.delay_s.argmax()), network.delay_s.shape)
        return network.nodes[u], network.nodes[v]
    return () if pinned == "free" else (median_node(network),) * 2


def at_rate(query: Problem, source_rate_per_s: float) -> Problem:
    """Return the same query at another rate of its source."""
    from .replication.control import with_rates

    rates = [source_rate_per_s * q for q in STREAMS.values()]
    return with_rates(query, rates, {"data_source": source_rate_per_s})
