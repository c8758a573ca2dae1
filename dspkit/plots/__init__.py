"""Pictures of a run: pure functions from a History (or its parts) to plotly data and one sentence that says it."""

from .base import MOST_POINTS, PLOTLY_MIME, Plot, si
from .effective import etp
from .elastic import elastic
from .forecast import forecast
from .graph import positions, topology
from .heatmap import heatmap
from .managed import managed
from .migration import migration
from .nodes import nodes
from .parity import parity
from .profiles import profile
from .posterior import posterior, scores
from .placement import node_positions, placement
from .runs import throughputs
from .timeline import tell, timeline, workload
from .tradeoff import tradeoff

__all__ = [
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "elastic", "etp", "forecast", "heatmap", "managed", "migration", "parity",
    "positions", "si", "tell", "throughputs", "timeline", "topology", "tradeoff", "workload",
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "elastic", "etp", "forecast", "heatmap", "nodes", "parity", "positions",
    "profile", "si", "tell", "throughputs", "timeline", "topology", "tradeoff", "workload",
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "elastic", "etp", "forecast", "heatmap", "parity", "positions", "posterior",
    "scores", "si", "tell", "throughputs", "timeline", "topology", "tradeoff", "workload",
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "elastic", "etp", "forecast", "heatmap", "node_positions", "parity",
    "placement", "positions", "si", "tell", "throughputs", "timeline", "topology", "tradeoff", "workload",
]  # fmt: skip
