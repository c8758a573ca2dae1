"""Placement: the nodes of operators and their replicas, by exact solvers and by heuristics [nardelli].

>>> from dspkit import placement
>>> problem = placement.example("A")
>>> found = placement.solve(problem, "response_s")
>>> found.named, found.status
({'s': '0', 'm': '1', 't': '2'}, 'optimal')
"""

from .certificate import check, violations
from .convert import application_of_frames, application_of_graph, network_of_frames, network_of_graph, placement_frame
from .datasets import example
from .generators import SHAPES, scenario
from .heuristics import HEURISTICS, Heuristic, degradation, heuristic
from .metrics import NETWORK_METRICS, Limits, Metrics, Ranges, Weights, loss, metrics, utility
from .problem import Application, Network, Placement, Problem
from .replication.control import follow, schedule, with_rates
from .replication.downtime import Downtime
from .replication.problem import Replication
from .solution import SOLVERS, STATUSES, Progress, Solution
from .solvers.solve import find_ranges, solve

__all__ = [
    "HEURISTICS",
    "NETWORK_METRICS",
    "SHAPES",
    "SOLVERS",
    "STATUSES",
    "Application",
    "Downtime",
    "Heuristic",
    "Limits",
    "Metrics",
    "Network",
    "Placement",
    "Problem",
    "Progress",
    "Ranges",
    "Replication",
    "Solution",
    "Weights",
    "application_of_frames",
    "application_of_graph",
    "check",
    "degradation",
    "example",
    "find_ranges",
    "follow",
    "heuristic",
    "loss",
    "metrics",
    "network_of_frames",
    "network_of_graph",
    "placement_frame",
    "scenario",
    "schedule",
    "solve",
    "utility",
    "violations",
    "with_rates",
]
