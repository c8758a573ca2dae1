"""Where operators run: problems, what a placement is worth, and the best one, proven [nardelli].

>>> from dspkit import placement
>>> problem = placement.example("A")
>>> found = placement.metrics(problem, {"s": "0", "m": "1", "t": "2"})
>>> round(found.response_s, 6), found.traffic, round(found.usage, 6)
(0.048, 190.0, 1.9)
"""

from .check import check, violations
from .convert import (
    application_frames,
    application_graph,
    application_of_frames,
    application_of_graph,
    network_frames,
    network_graph,
    network_of_frames,
    network_of_graph,
    placement_frame,
)
from .examples import example
from .generators import (
    SHAPES,
    diamond,
    gaussian,
    layers,
    median_node,
    replicated,
    sampled,
    scenario,
    sequential,
    waxman,
)
from .metrics import NETWORK_METRICS, Metrics, Ranges, Weights, loss, metrics, utility
from .problem import Application, Network, Placement, Problem

__all__ = [
    "NETWORK_METRICS", "SHAPES", "Application", "Metrics", "Network", "Placement", "Problem", "Ranges", "Weights",
    "application_frames", "application_graph", "application_of_frames", "application_of_graph", "check", "diamond",
    "example", "gaussian", "layers", "loss", "median_node", "metrics", "network_frames", "network_graph",
    "network_of_frames", "network_of_graph", "placement_frame", "replicated", "sampled", "scenario", "sequential",
    "utility", "violations", "waxman",
]  # fmt: skip
