"""Lessons on placement: the weights of one placement, and of replicas and places decided each minute."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ... import placement, plots
from ...core import Knobs, knob
from ...placement import Problem, Ranges, Solution, Weights, follow
from ...placement.datasets import QUERY_LIMITS, at_rate, taxi_query
from ...placement.metrics import share
from ...plots import Plot, si
from ...plots.placement import Point, apart
from ...plots.theme import PALETTE, Spec, axis, plot

METHODS = ("optimum", *(name for name in placement.HEURISTICS if name != "time_limited"))
NAMES = {"usage": "network usage", "traffic": "traffic between nodes", "energy": "elastic energy"}
_PATIENCE_S = 5.0  # of a person who moves a slider, for the optimum
UNITS = {"usage": "records under way", "traffic": "records/s", "energy": "records/s x s²"}
MINUTES = 61


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
        """The placement problem."""
        return _problem(self.shape, self.nodes, self.seed)

    @property
    def weights(self) -> Weights:
        """The weights of its metrics."""
        return Weights(self.response, self.availability, self.network, self.metric)

    @property
    def label(self) -> str:
        """The name of the chosen method, as the thesis has it."""
        return self.method if self.method == "optimum" else placement.heuristic(self.method).label

    @property
    def ranges(self) -> Ranges:
        """The best and the worst value of each metric; they do not depend on the weights."""
        return _ranges(self.shape, self.nodes, self.seed, self.metric)

    def answer(self, method: str = "") -> Solution:
        """Return the solution of a method.

        Parameters
        ----------
        method : str
            One of the knob's choices; empty for the chosen one.

        Examples
        --------
        >>> len(Placement(nodes=16).answer("greedy").placement)
        11
        """
        name = method or self.method
        if name == "optimum":
            return placement.solve(self.problem, self.weights, self.ranges, time_limit_s=_PATIENCE_S)
        return placement.heuristic(name)(self.problem, self.weights, self.ranges)

    def plot(self) -> Plot:
        """Draw the placement on the network, and each metric of the optimum and of the chosen method."""
        best = self.answer("optimum")
        chosen = best if self.method == "optimum" else self.answer()
        map_ = plots.placement(self.problem, chosen.placement, _plane(self.shape, self.nodes, self.seed)).spec
        layout = {
            **map_["layout"],
            "xaxis": {**map_["layout"]["xaxis"], "domain": [0, 0.62]},
            "xaxis2": axis("from best (0) to worst", domain=[0.77, 1], range=[0, 1.02], anchor="y2", tickformat=".0%"),
            "yaxis2": {"anchor": "x2", "automargin": True, "autorange": "reversed"},
            "legend": {"orientation": "h", "x": 0, "y": -0.17, "yanchor": "top"},
        }
        return plot([*map_["data"], *self._bars(chosen, best)], layout, self._said(chosen, best), height=450, title="")

    def _bars(self, chosen: Solution, best: Solution) -> list[Spec]:
        bars: list[Spec] = []
        for number, (name, answer) in enumerate({"optimum": best, self.label: chosen}.items()):
            found = answer.metrics
            values = (found.response_s, found.log_availability, found.network(self.metric))
            shares = [share(*each) for each in zip(values, self.ranges[:3], (1, -1, 1), strict=True)]
            texts = [f"{1e3 * found.response_s:.0f} ms", f"{found.availability:.1%}", si(found.network(self.metric))]
            bars.append(
                {"type": "bar", "orientation": "h", "name": name, "x": shares, "text": texts, "textposition": "auto",
                 "y": ["response time", "availability", NAMES[self.metric]], "xaxis": "x2", "yaxis": "y2",
                 "cliponaxis": False,
                 "marker": {"color": PALETTE[number], "pattern": {"shape": ("", "/")[number]}}}
            )  # fmt: skip
        return bars

    def _said(self, chosen: Solution, best: Solution) -> str:
        found, used = chosen.metrics, len(set(chosen.placement.tolist()))
        network = f"{si(found.network(self.metric))} {UNITS[self.metric]}"
        said = (
            f"{self.label[0].upper() + self.label[1:]}: {used} nodes, response time {1e3 * found.response_s:.0f} ms, "
            f"availability {found.availability:.1%}, {network}; loss {chosen.loss:.3f}"
        )
        if self.method == "optimum":
            return said + (", proven." if chosen.proven else f", within {chosen.gap:.1%} of the least.")
        lost = placement.degradation(chosen.loss, best.loss, self.weights.total)
        return f"{said}; the optimum's is {best.loss:.3f}, so {lost:.1%} of what could be achieved is lost."


@lru_cache(maxsize=16)
def _problem(shape: str, nodes: int, seed: int) -> Problem:
    return placement.scenario(shape, nodes, seed=seed, operators=11)


@lru_cache(maxsize=16)
def _plane(shape: str, nodes: int, seed: int) -> dict[str, Point]:
    """Return the coordinates of the nodes in the chart, which no weight changes."""
    return apart(plots.node_positions(_problem(shape, nodes, seed).network))


@lru_cache(maxsize=64)
def _ranges(shape: str, nodes: int, seed: int, metric: str) -> Ranges:
    return placement.find_ranges(_problem(shape, nodes, seed), metric, time_limit_s=_PATIENCE_S)


@dataclass(frozen=True)
class Elasticity(Knobs):
    """New York's taxi query on fifteen nodes for an hour, at 70 to 220 and back to 70 records/s, decided each minute.

    Each metric counts as a share of its limit: 175 ms, 30 replicas, 7.5 s [nardelli].
    """

    response: float = knob(0.3, "weight of the response time", low=0.0, high=1.0)
    cost: float = knob(0.3, "weight of the replicas", low=0.0, high=1.0)
    downtime: float = knob(0.4, "weight of the downtime of a change", low=0.0, high=1.0)
    minute: int = knob(30, "the decision that the map shows", low=0, high=MINUTES - 1)
    max_parallelism: int = knob(2, "replicas of an operator at most; one is too few for the peak", low=2, high=4)
    restricted: bool = knob(False, "each operator at most one step from where it runs", choices=(False, True))
    seed: int = knob(0, "another seed, another network", low=0, high=99)

    def hour(self) -> tuple[Solution, ...]:
        """Return the decisions, one per minute."""
        return _hour(self.response, self.cost, self.downtime, self.max_parallelism, self.restricted, self.seed)

    def plot(self) -> Plot:
        """Draw the decisions of the hour, and the placement of the chosen minute."""
        found = self.hour()
        chosen = found[self.minute]
        rates = [220.0 - 5.0 * abs(t - 30.0) for t in range(MINUTES)]
        below = plots.decisions(found, QUERY_LIMITS.response_s, rates=rates, at=self.minute).spec
        above = plots.replicas(chosen.problem, chosen.deployment).spec
        rows = {"yaxis": [0, 0.13], "yaxis2": [0.18, 0.31], "yaxis3": [0.36, 0.49]}
        layout = {
            **below["layout"],
            **{name: {**below["layout"][name], "domain": part} for name, part in rows.items()},
            "shapes": [{**below["layout"]["shapes"][0], "y1": 0.49}],
            "xaxis4": {**above["layout"]["xaxis"], "anchor": "y4"},
            "yaxis4": {**above["layout"]["yaxis"], "domain": [0.53, 1], "anchor": "x4"},
            "annotations": [{**a, "xref": "x4", "yref": "y4"} for a in above["layout"]["annotations"]],
            "legend": {"orientation": "h", "x": 0, "y": -0.1, "yanchor": "top"},
        }
        map_ = [{**trace, "xaxis": "x4", "yaxis": "y4"} for trace in above["data"]]
        said = plots.decisions(found, QUERY_LIMITS.response_s).summary
        status = "" if chosen.status == "optimal" else f" ({chosen.status})"
        now = (
            f"Minute {self.minute}: {rates[self.minute]:g} records/s, {sum(chosen.replicas.values())} replicas, "
            f"{1e3 * chosen.metrics.response_s:.0f} ms{status}. "
        )
        return plot([*below["data"], *map_], layout, now + said, height=820, title="")


@lru_cache(maxsize=32)
def _hour(
    response: float, cost: float, downtime: float, replicas: int, restricted: bool, seed: int
) -> tuple[Solution, ...]:
    if not response + cost + downtime:
        response = cost = 0.5  # nothing counts: as the first deployment
    weights = Weights(response, cost=cost, downtime=downtime)
    query = taxi_query(max_replicas=replicas, seed=seed)
    moments = (at_rate(query, 220.0 - 5.0 * abs(t - 30.0)) for t in range(MINUTES))
    return tuple(follow(moments, weights, QUERY_LIMITS, restricted=restricted, branches=20_000))
