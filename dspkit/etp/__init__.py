"""Effective throughput percentage (Stela): pure functions of mappings, data frames and snapshots [stela].

>>> from dspkit import etp
>>> etp.etp([("read", "count"), ("read", "log")], {"read": (9, 9), "count": (50, 20), "log": (5, 5)})
{'read': 0.2, 'count': 0.8, 'log': 0.2}
"""

from ..core.recovery import convergence_s, downtime_s
from .graph import Graph, as_graph
from .rates import Rates, congested, held_back, inputs, mean, project, rates, unblocked
from .rivals import ORDERS, link_load, migrate, place_without, rebalance, structural_score
from .scaling import Places, Removal, Slot, counting, scale_in, scale_out, slots
from .share import Why, etp, explain, machine_etp, rank

__all__ = [
    "ORDERS",
    "Graph",
    "Places",
    "Rates",
    "Removal",
    "Slot",
    "Why",
    "as_graph",
    "congested",
    "convergence_s",
    "counting",
    "downtime_s",
    "etp",
    "explain",
    "held_back",
    "inputs",
    "link_load",
    "machine_etp",
    "mean",
    "migrate",
    "place_without",
    "project",
    "rank",
    "rates",
    "rebalance",
    "scale_in",
    "scale_out",
    "slots",
    "structural_score",
    "unblocked",
]
