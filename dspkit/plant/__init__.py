"""What a simulated cluster is: services, nodes, links, pauses and faults, each a frozen dataclass of knobs."""

from .cluster import Link, Node, Places, Scheduler, packed, round_robin
from .faults import Fault, NodeDown, NodeSlow, Silence, Skew, outages
from .fit import Estimate, Fit, fit
from .pauses import coming, moved_share, pauses
from .plant import Plant
from .service import Service

__all__ = [
    "Estimate", "Fault", "Fit", "Link", "Node", "NodeDown", "NodeSlow", "Places", "Plant", "Scheduler", "Service",
    "Silence", "Skew", "coming", "fit", "moved_share", "outages", "packed", "pauses", "round_robin",
]  # fmt: skip
