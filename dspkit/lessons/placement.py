"""Where operators should run, as the weights of response time, availability and network change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

import numpy as np

from .. import placement
from ..knobs import Knobs, knob
from ..placement import Answer, Problem, Ranges, Weights
from ..placement.metrics import share
from ..placement.vivaldi import embed
from ..plots.base import PALETTE, Plot, Spec, axis, plot, si

METHODS = ("optimum", *(name for name in placement.HEURISTICS if name != "ODP+T"))
NAMES = {"usage": "network usage", "traffic": "traffic between nodes", "energy": "elastic energy"}
UNITS = {"usage": "records under way", "traffic": "records/s", "energy": "records/s x s²"}


@dataclass(frozen=True)
class Placement(Knobs):
    """Eleven operators on a network of two layers, source and sink on one node; the optimum beside the heuristics.

    Each bar is a metric's distance from the best that it can be, as a share of its range; the weighted sum of the three
    is the loss, which the optimum makes as small as possible [nardelli].
    """

    response: float = knob(0.5, "weight of the response time", low=0.0, high=1.0)
    availability: float = knob(0.25, "weight of the availability", low=0.0, high=1.0)
    network: float = knob(0.25, "weight of the network metric", low=0.0, high=1.0)
    metric: str = knob("usage", "the network metric", choices=placement.NETWORK_METRICS)
    method: str = knob("optimum", "who places the operators", choices=METHODS)
    shape: str = knob("sequential", "the application", choices=tuple(placement.SHAPES))
    nodes: int = knob(25, "nodes of the network", choices=(16, 25, 36))
    seed: int = knob(1, "another seed, another network", low=0, high=99)

    @property
    def problem(self) -> Problem:
        return _problem(self.shape, self.nodes, self.seed)[0]

    @property
    def weights(self) -> Weights:
        return Weights(self.response, self.availability, self.network, self.metric)

    @property
    def ranges(self) -> Ranges:
        """Best and worst of each metric: they do not depend on the weights."""
        return _ranges(self.shape, self.nodes, self.seed, self.metric)

    def answer(self, method: str = "") -> Answer:
        """What this method, or the chosen one, answers."""
        name = method or self.method
        if name == "optimum":
            return placement.solve(self.problem, self.weights, self.ranges, time_limit_s=5.0)
        return placement.heuristic(name)(self.problem, self.weights, self.ranges)

    def plot(self) -> Plot:
        chosen, best = self.answer(), self.answer("optimum")
        traces = [*self._map(chosen), *self._bars(chosen, best)]
        hidden = {"showgrid": False, "zeroline": False, "showticklabels": False}
        points = _problem(self.shape, self.nodes, self.seed)[1]
        low, high = points.min(axis=0), points.max(axis=0)
        room = 0.08 * (high - low)
        layout = {
            "xaxis": {**hidden, "domain": [0, 0.55], "range": [low[0] - room[0], high[0] + room[0]]},
            "yaxis": {**hidden, "range": [low[1] - room[1], high[1] + room[1]]},
            "xaxis2": axis("from best (0) to worst", domain=[0.73, 1], range=[0, 1.02],
                           anchor="y2", tickformat=".0%"),
            "yaxis2": {"anchor": "x2", "automargin": True, "autorange": "reversed"},
            "legend": {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.2},
            "barmode": "group",
        }  # fmt: skip
        return plot(traces, layout, self._said(chosen, best), height=430, title="")

    def _map(self, answer: Answer) -> list[Spec]:
        """Nodes where their delays put them, coloured by availability; those in use with their operators."""
        problem, points = _problem(self.shape, self.nodes, self.seed)
        net, x = problem.network, answer.placement
        ends: tuple[list[Any], list[Any]] = ([], [])
        for u, v in {(int(x[a]), int(x[b])) for a, b in problem.application.ends.tolist() if x[a] != x[b]}:
            for along in (0, 1):
                ends[along].extend((float(points[u, along]), float(points[v, along]), None))
        used = [u in set(x.tolist()) for u in range(len(net.nodes))]
        told = []
        for u, name in enumerate(net.nodes):
            here = ", ".join(problem.application.operators[i] for i in np.flatnonzero(x == u))
            told.append(
                escape(f"node {name}: available {net.availability[u]:.2%}" + (f"; runs {here}" if here else ""))
            )
        return [
            {"type": "scatter", "mode": "lines", "x": ends[0], "y": ends[1], "name": "streams", "hoverinfo": "skip",
             "line": {"color": "#777777", "width": 1.5}},
            {"type": "scatter", "mode": "markers+text", "x": points[:, 0].tolist(), "y": points[:, 1].tolist(),
             "name": "nodes", "showlegend": False, "hoverinfo": "text", "hovertext": told,
             "text": [str(int((x == u).sum())) if used[u] else "" for u in range(len(used))],
             "textfont": {"size": 11, "color": "white"},
             "marker": {"size": [24 if u else 11 for u in used], "color": net.availability.tolist(),
                        "symbol": ["circle" if u else "circle-open" for u in used],
                        "colorscale": [[0, "#E69F00"], [1, "#0072B2"]], "line": {"width": 1.5, "color": "#444444"},
                        "colorbar": {"title": {"text": "available", "side": "top"}, "x": 0.56, "len": 0.5,
                                     "thickness": 10, "tickformat": ".1%"}}},
        ]  # fmt: skip

    def _bars(self, chosen: Answer, best: Answer) -> list[Spec]:
        bars: list[Spec] = []
        for number, (name, answer) in enumerate({"optimum": best, self.method: chosen}.items()):
            found = answer.metrics
            values = (found.response_s, found.log_availability, found.network(self.metric))
            shares = [share(*each) for each in zip(values, self.ranges, (1, -1, 1), strict=True)]
            texts = [f"{1e3 * found.response_s:.0f} ms", f"{found.availability:.1%}", si(found.network(self.metric))]
            bars.append(
                {"type": "bar", "orientation": "h", "name": name, "x": shares, "text": texts, "textposition": "auto",
                 "y": ["response time", "availability", NAMES[self.metric]], "xaxis": "x2", "yaxis": "y2",
                 "cliponaxis": False,
                 "marker": {"color": PALETTE[number], "pattern": {"shape": ("", "/")[number]}}}
            )  # fmt: skip
        return bars

    def _said(self, chosen: Answer, best: Answer) -> str:
        found, used = chosen.metrics, len(set(chosen.placement.tolist()))
        network = f"{si(found.network(self.metric))} {UNITS[self.metric]}"
        said = (
            f"{self.method.capitalize()}: {used} nodes, response time {1e3 * found.response_s:.0f} ms, availability "
            f"{found.availability:.1%}, {network}; loss {chosen.loss:.3f}"
        )
        if self.method == "optimum":
            return said + (", proven." if chosen.proven else f", within {chosen.gap:.1%} of the least.")
        lost = placement.degradation(chosen.loss, best.loss)
        return f"{said}; the optimum's is {best.loss:.3f}, so {lost:.1%} of what could be achieved is lost."


@lru_cache(maxsize=16)
def _problem(shape: str, nodes: int, seed: int) -> tuple[Problem, Any]:
    problem = placement.scenario(shape, nodes, seed=seed, operators=11)
    return problem, embed(1e3 * problem.network.delay_s, rounds=100)


@lru_cache(maxsize=64)
def _ranges(shape: str, nodes: int, seed: int, metric: str) -> Ranges:
    return placement.exact_ranges(_problem(shape, nodes, seed)[0], metric, time_limit_s=5.0)
