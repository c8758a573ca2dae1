"""Pictures of a run: pure functions from a History (or its parts) to plotly data and one sentence that says it."""

from .base import MOST_POINTS, PLOTLY_MIME, Plot, si
from .effective import etp
from .elastic import elastic
from .forecast import forecast
from .graph import positions, topology
from .heatmap import heatmap
from .parity import parity
from .runs import throughputs
from .scaling import scaling
from .timeline import tell, timeline, workload
from .tradeoff import tradeoff

__all__ = [
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "elastic", "etp", "forecast", "heatmap", "parity", "positions",
    "scaling", "si", "tell", "throughputs", "timeline", "topology", "tradeoff", "workload",
]  # fmt: skip
