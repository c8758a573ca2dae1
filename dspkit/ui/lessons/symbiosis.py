"""Operators and nodes as two decisions: ELYSIUM's configuration for a load, and its utilisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...apps import rolling_top_words
from ...core import Knobs, Topology, knob
from ...plots import Plot
from ...plots.theme import PALETTE, axis, plot
from ...profiling import Config, Estimator, Line, Profile, compute_config
from ...profiling.profiles import FittedCurve, Ratio

CORES, NODES = 4, 4


@dataclass(frozen=True)
class Symbiosis(Knobs):
    """ELYSIUM's T1 on four nodes of four cores: p by operator, then nodes, by Algorithm 1.

    Raise the load and see which of the two gives way first; raise the engine's share, and nodes fill without any
    operator needing more.
    """

    load: int = knob(200, "records/s that the source takes in", low=0, high=600)
    scale_out_above: float = knob(0.65, "above it an instance is in stress", low=0.3, high=1.0)
    node_scale_out_above: float = knob(0.80, "above it a node is in stress", low=0.3, high=1.0)
    engine_share: float = knob(0.44, "cores the engine takes for each core of work", low=0.0, high=2.0)
    max_parallelism: int = knob(4, "most instances of an operator", low=1, high=12)

    def config(self) -> Config:
        """Return the configuration that Algorithm 1 computes."""
        estimator = _estimator(self.engine_share, self.max_parallelism)
        return compute_config(
            estimator,
            self.load,
            nodes=NODES,
            scale_out_above=self.scale_out_above,
            node_scale_out_above=self.node_scale_out_above,
        )

    def plot(self) -> Plot:
        """Draw the utilisation of each operator and of each node."""
        config = self.config()
        names = list(config.parallelism)
        stuck = [o in config.operator_saturated for o in names]
        nodes = dict.fromkeys((f"node-{i}" for i in range(1, NODES + 1)), 0.0) | dict(config.nodes)
        hot = [u > self.node_scale_out_above + 1e-9 for u in nodes.values()]
        texts = [f"{u:.0%}" if u else "" for u in nodes.values()]
        traces: list[dict[str, Any]] = [
            _bars(names, list(config.cpu.values()), stuck, [f"p = {p}" for p in config.parallelism.values()], ""),
            _limit(names, self.scale_out_above, "scale_out_above", ""),
            _bars(list(nodes), list(nodes.values()), hot, texts, "2"),
            _limit(list(nodes), self.node_scale_out_above, "node_scale_out_above", "2"),
        ]
        top = max(1.0, *config.cpu.values(), *config.nodes.values()) * 1.15
        share = {"tickformat": ".0%", "range": [0, top]}
        layout = {  # one below the other, names to the left: they stay readable on a telephone
            "xaxis": axis("an instance's share of its core", anchor="y", **share),
            "xaxis2": axis("a node's share of its cores", anchor="y2", **share),
            "yaxis": axis("", domain=[0.5, 1], autorange="reversed"),
            "yaxis2": axis("", domain=[0, 0.3], autorange="reversed", anchor="x2"),
            "showlegend": False,
            "bargap": 0.3,
        }
        return plot(traces, layout, self._said(config), height=470, title="")

    def _said(self, config: Config) -> str:
        total = sum(config.parallelism.values())
        ends = [f"{', '.join(config.operator_saturated)} at the limit and still in stress"] * bool(
            config.operator_saturated
        )
        ends += ["more nodes needed than there are"] if config.node_saturated else []
        more = f"; {', and '.join(ends)}" if ends else ""
        noun = "node" if config.workers == 1 else "nodes"
        return f"{self.load} records/s take {total} instances on {config.workers} {noun}{more}."


@lru_cache(maxsize=64)
def _estimator(share: float, most: int) -> Estimator:
    """T1 as its plant has it."""
    app = rolling_top_words()
    topology = Topology(tuple(replace(o, max_parallelism=most) for o in app.topology.operators), app.topology.edges)
    services = app.plant.services
    ratios = {(u, v): Ratio(services[u].toward(v)) for u, v in topology.edges}
    curves = {n: FittedCurve(Line(0.0, s.seconds_per_record)) for n, s in services.items()}
    node = next(iter(app.plant.nodes.values()))
    return Estimator(
        topology, Profile(ratios, curves, FittedCurve(Line(node.overhead_cores / CORES, (1 + share) / CORES))), CORES
    )


def _bars(names: list[str], values: list[float], red: list[bool], texts: list[str], at: str) -> dict[str, Any]:
    """In stress: another colour, and hatched."""
    marker = {
        "color": [PALETTE[1] if r else PALETTE[5] for r in red],
        "pattern": {"shape": ["/" if r else "" for r in red]},
    }
    return {"type": "bar", "orientation": "h", "y": names, "x": values, "text": texts, "textposition": "auto",
            "cliponaxis": False, "insidetextanchor": "start", "textangle": 0, "marker": marker, "xaxis": f"x{at}",
            "yaxis": f"y{at}", "hoverinfo": "x+y"}  # fmt: skip


def _limit(names: list[str], level: float, name: str, at: str) -> dict[str, Any]:
    """A dashed line; its name stands at its upper end."""
    return {"type": "scatter", "mode": "lines+markers+text", "y": names, "x": [level] * len(names), "name": name,
            "text": [name, *[""] * (len(names) - 1)], "textposition": "middle right", "cliponaxis": False,
            "marker": {"opacity": 0, "size": 10}, "line": {"color": PALETTE[6], "dash": "dash", "width": 1.5},
            "xaxis": f"x{at}", "yaxis": f"y{at}", "hoverinfo": "name+x"}  # fmt: skip
