"""Distributed Storm: monitoring, gossip, and schedulers that place executors without anybody who knows all [nardelli].

The policies `distributed_storm` and `traffic_aware` run these parts on any backend; `topologies.tag_and_count` and its
siblings are the thesis's applications on its cluster.
"""

from .adaptive import Move, Rules, Slot, View, plan
from .bootstrap import bootstrap, executors, round_robin, slots_in_turn
from .cluster import Cluster, Died, Event, Executor, Stressed, Unreliable, Worker, needs_operators, pins, thesis_cluster
from .monitor import Watch, known_points, monitored, start
from .streams import cluster_of, deployed, problem_of, streams, traffic
from .t_storm import least_traffic

__all__ = [
    "Cluster", "Died", "Event", "Executor", "Move", "Rules", "Slot", "Stressed", "Unreliable", "View", "Watch",
    "Worker", "bootstrap", "cluster_of", "deployed", "executors", "known_points", "least_traffic", "monitored",
    "needs_operators", "pins", "plan", "problem_of", "round_robin", "slots_in_turn", "start", "streams",
    "thesis_cluster", "traffic",
]  # fmt: skip
