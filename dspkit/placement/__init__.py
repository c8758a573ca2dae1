"""Where operators run: problems, what a placement is worth, and the best one, proven [nardelli].

>>> from dspkit import placement
>>> problem = placement.example("A")
>>> found = placement.metrics(problem, {"s": "0", "m": "1", "t": "2"})
>>> round(found.response_s, 6), found.traffic, round(found.usage, 6)
(0.048, 190.0, 1.9)
"""

from .answer import Answer, Progress
from .check import check, violations
from .control import follow, schedule, with_rates
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
from .costs import Costs, single, weighted
from .downtime import Downtime, Running
from .elastic import ElasticAnswer, ElasticWeights, adapt
from .examples import example, replica_example
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
from .heuristics import HEURISTICS, degradation, heuristic
from .metrics import NETWORK_METRICS, Metrics, Ranges, Weights, loss, metrics, utility
from .problem import Application, Network, Placement, Problem
from .replica_check import replica_check, replica_violations
from .replica_metrics import ReplicaMetrics, ReplicaRanges, ReplicaWeights, replica_metrics, replica_utility
from .replica_problem import ReplicaProblem, Replicas
from .replica_program import Limits
from .replicate import ReplicaAnswer, replica_ranges, replicate
from .solve import SOLVERS, exact_ranges, minimise, solve

__all__ = [
    "HEURISTICS",
    "NETWORK_METRICS",
    "SHAPES",
    "SOLVERS",
    "Answer",
    "Application",
    "Costs",
    "Downtime",
    "ElasticAnswer",
    "ElasticWeights",
    "Limits",
    "Metrics",
    "Network",
    "Placement",
    "Problem",
    "Progress",
    "Ranges",
    "ReplicaAnswer",
    "ReplicaMetrics",
    "ReplicaProblem",
    "ReplicaRanges",
    "ReplicaWeights",
    "Replicas",
    "Running",
    "Weights",
    "adapt",
    "application_frames",
    "application_graph",
    "application_of_frames",
    "application_of_graph",
    "check",
    "degradation",
    "diamond",
    "exact_ranges",
    "example",
    "follow",
    "gaussian",
    "heuristic",
    "layers",
    "loss",
    "median_node",
    "metrics",
    "minimise",
    "network_frames",
    "network_graph",
    "network_of_frames",
    "network_of_graph",
    "placement_frame",
    "replica_check",
    "replica_example",
    "replica_metrics",
    "replica_ranges",
    "replica_utility",
    "replica_violations",
    "replicate",
    "replicated",
    "sampled",
    "scenario",
    "schedule",
    "sequential",
    "single",
    "solve",
    "utility",
    "violations",
    "waxman",
    "weighted",
    "with_rates",
]  # fmt: skip
