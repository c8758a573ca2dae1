"""Distributed Storm: monitoring, gossip, and schedulers that place executors without global knowledge [nardelli].

The policies `distributed_storm` and `traffic_aware` run these parts on any backend; `apps.tag_and_count` and its
siblings are the thesis's applications on its cluster.
"""

from .cluster import (
    Died,
    Event,
    Executor,
    StormCluster,
    Stressed,
    Unreliable,
    Worker,
    needs_operators,
    pins,
    thesis_cluster,
)
from .monitor import Watch, known_points, monitored, start
from .schedulers import MigrationRules, Move, NodeView, Slot, bootstrap, plan, round_robin, slots_in_turn
from .streams import cluster_of, deployed, executors_problem, least_traffic, problem_of, streams, traffic

__all__ = [
    "Died",
    "Event",
    "Executor",
    "MigrationRules",
    "Move",
    "NodeView",
    "Slot",
    "StormCluster",
    "Stressed",
    "Unreliable",
    "Watch",
    "Worker",
    "bootstrap",
    "cluster_of",
    "deployed",
    "executors_problem",
    "known_points",
    "least_traffic",
    "monitored",
    "needs_operators",
    "pins",
    "plan",
    "problem_of",
    "round_robin",
    "slots_in_turn",
    "start",
    "streams",
    "thesis_cluster",
    "traffic",
]
