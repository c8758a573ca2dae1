"""Plots: pure functions from a History, or parts of one, to plotly data and a summary in one sentence."""

from .advice import loads, recommended
from .comparison import contest, oracle_instances, pareto
from .graph import etp, positions, topology
from .parity import parity, scaling
from .placement import decisions, moves, node_positions, placement, replicas
from .playback import outlook, sentences
from .profiling import forecast, profile
from .run import elastic, managed, nodes, tell, throughputs, timeline, workload
from .search import posterior, scores
from .sweep import heatmap, tradeoff
from .theme import MOST_POINTS, PLOTLY_MIME, Plot, si

__all__ = [
    "MOST_POINTS",
    "PLOTLY_MIME",
    "Plot",
    "contest",
    "decisions",
    "elastic",
    "etp",
    "forecast",
    "heatmap",
    "loads",
    "managed",
    "moves",
    "node_positions",
    "nodes",
    "oracle_instances",
    "outlook",
    "pareto",
    "parity",
    "placement",
    "positions",
    "posterior",
    "profile",
    "recommended",
    "replicas",
    "scaling",
    "scores",
    "sentences",
    "si",
    "tell",
    "throughputs",
    "timeline",
    "topology",
    "tradeoff",
    "workload",
]
