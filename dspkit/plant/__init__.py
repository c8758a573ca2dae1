"""What a simulated cluster is: services, nodes, links, pauses and faults, each a frozen dataclass of knobs."""

from .cluster import Link, Node, Places, Scheduler, packed, round_robin
from .faults import Fault, NodeDown, NodeSlow, Silence, Skew, outages
from .fit import Estimate, Fit, fit
from .live import FULL, fit_live, keeps_up, predict
from .pauses import coming, moved_share, pauses
from .plant import Plant
from .processes import Seats, seats
from .service import Service
from .variants import VARIANTS, variant

__all__ = [
    "FULL", "VARIANTS", "Estimate", "Fault", "Fit", "Link", "Node", "NodeDown", "NodeSlow", "Places", "Plant",
    "Scheduler", "Seats", "Service", "Silence", "Skew", "coming", "fit", "fit_live", "keeps_up", "moved_share",
    "outages", "packed", "pauses", "predict", "round_robin", "seats", "variant",
]  # fmt: skip
