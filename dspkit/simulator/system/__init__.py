"""The simulated cluster: services, nodes, links, pauses and faults, each a frozen dataclass of knobs."""

from __future__ import annotations

from .faults import Fault, MetricsOutage, NodeDown, NodeSlow, Skew, outages
from .nodes import Link, Node, Places, Scheduler, packed, round_robin
from .plant import (
    VARIANTS,
    Plant,
    ProcessAssignment,
    Service,
    arrivals_by_node,
    assign_processes,
    moved_share,
    pauses,
    variant,
)

__all__ = [
    "VARIANTS",
    "Fault",
    "Link",
    "MetricsOutage",
    "Node",
    "NodeDown",
    "NodeSlow",
    "Places",
    "Plant",
    "ProcessAssignment",
    "Scheduler",
    "Service",
    "Skew",
    "arrivals_by_node",
    "assign_processes",
    "moved_share",
    "outages",
    "packed",
    "pauses",
    "round_robin",
    "variant",
]
