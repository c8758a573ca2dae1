"""Replicas and places decided each minute, as the weights of response time, cost and downtime change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ... import plots
from ...core import Knobs, knob
from ...placement import Solution, Weights, follow
from ...placement.datasets import QUERY_LIMITS, at_rate, taxi_query
from ...plots import Plot
from ...plots.theme import plot

MINUTES = 61


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
