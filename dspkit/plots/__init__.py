"""Pictures of a run: pure functions from a History (or its parts) to plotly data and one sentence that says it."""

from .advice import loads, recommended
from .base import MOST_POINTS, PLOTLY_MIME, Plot, si
from .contest import contest, oracle, pareto
from .effective import etp
from .elastic import elastic
from .forecast import forecast
from .graph import positions, topology
from .heatmap import heatmap
from .managed import managed
from .migration import migration
from .moves import moves
from .nodes import nodes
from .parity import parity
from .placement import node_positions, placement
from .posterior import posterior, scores
from .printed import printed
from .profiles import profile
from .replicas import decisions, replicas
from .runs import throughputs
from .scaling import scaling
from .timeline import tell, timeline, workload
from .tradeoff import tradeoff

__all__ = [
    "MOST_POINTS", "PLOTLY_MIME", "Plot", "contest", "decisions", "elastic", "etp", "forecast", "heatmap", "loads",
    "managed", "migration", "moves", "node_positions", "nodes", "oracle", "pareto", "parity", "placement", "positions",
    "posterior", "printed", "profile", "recommended", "replicas", "scaling", "scores", "si", "tell", "throughputs",
    "timeline", "topology", "tradeoff", "workload",
]  # fmt: skip
