"""Small problems with known answers, for the tests and for trying things out [nardelli]."""

from __future__ import annotations

from typing import Any

from ..errors import PlacementError
from .problem import Application, Network, Problem
from .replica_problem import ReplicaProblem


def example(name: str = "A") -> Problem:
    """Problem "A" (a chain of three on three nodes), "A free" (the same, nothing pinned) or "B" (a diamond).

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
    raise PlacementError(f"example {name!r}", expected="'A', 'A free' or 'B'", fix="correct the name")


def replica_example(**changes: Any) -> ReplicaProblem:
    """A chain of three on three nodes; the middle operator runs once or twice, anywhere.

    >>> replica_example().load_per_s
    array([10., 10., 10.])
    """
    delays = [[0, 0.010, 0.030], [0.010, 0, 0.020], [0.030, 0.020, 0]]
    network = Network(("a", "b", "c"), delays, 2, (1, 1, 2), (0.99, 0.98, 1))
    app = Application(("1", "2", "3"), (("1", "2"), ("2", "3")), 1, 0, 10)
    settings = {"most": (1, 2, 1), "service_rate_per_s": (50, 14, 50), "link_price": 0.02, "bytes_per_record": 1500}
    return ReplicaProblem(Problem(app, network, {"1": "a", "3": "c"}), **{**settings, **changes})
