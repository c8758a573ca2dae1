"""DS2: three steps from true rates to the parallelism that sustains the source rate [kalavri2018ds2].

    | paper | here |
    |---|---|
    | $o_i[\\lambda_p]/p_i$ | `true_rate`: records/s one instance does when it never waits |
    | $o_j[\\lambda_o]/o_j[\\lambda_p]$ | `selectivity` of an edge: records sent for each record processed |
    | $o_j[\\lambda_o]^*$ | `demand` times selectivity: what must come out to keep up with the sources |
    | $\\pi_i$ | the parallelism of operator i |

Readings not taken by default: one output rate for all edges of an operator (`edges="same"`, the paper's; equal to ours
where the edges carry the same records, wrong where they do not). Not taken at all: rounding up upstream operators
before the demand of those below is computed (AuTraScale's Eq. 3, which multiplies the excess).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

from ..core import Decision, Deployment, Edge, OperatorMetrics, Snapshot, Topology
from ..knobs import Knobs, knob


class State(NamedTuple):
    """`wanted`: recommendations since the last decision; `ratios`: offered over taken source rate, beside them."""

    topology: Topology
    seen: Deployment | None = None
    counted_at: float = -math.inf  # end of the last window that counted
    resting: int = 0
    wanted: tuple[dict[str, int], ...] = ()
    ratios: tuple[float, ...] = ()


@dataclass(frozen=True)
class DS2(Knobs):
    r"""Each operator gets just enough instances for the rate that the sources ask of it.

    $\pi_i = \lceil t_i / v_i \rceil$ with the demand $t_i = \sum_p s_{p \to i} t_p$, where $t$ is the offered rate at a
    source, $s$ a selectivity and $v$ the true rate of one instance, all measured in one window. A window in which one
    is unknown leaves that operator and those below it as they are.
    """

    name: ClassVar[str] = "ds2"
    reference: ClassVar[str] = "kalavri2018ds2"
    activation: int = knob(1, "windows whose recommendations are put together for a decision", low=1, high=30)
    combine: str = knob("median", "how they are put together", choices=("median", "max"))
    warm_up: int = knob(0, "windows ignored after a change", low=0, high=30)
    interval_s: float = knob(
        0.0,
        "policy interval: of the windows within it the last counts; 0 is every window",
        low=0.0,
        high=3600.0,
        unit="s",
    )
    edges: str = knob("each", "output rate of each edge, or the same for all as in the paper", choices=("each", "same"))
    scale_sources: bool = knob(True, "scale sources as well; the paper leaves them alone", choices=(True, False))
    boost_above: float = knob(
        math.inf,
        "if it has converged and offered over taken source rate stays above this, multiply all by that ratio",
        low=1.0,
        high=math.inf,
        infinite=True,
        source="DS2's target rate ratio, infinite by default",
    )

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now = snapshot.deployment
        if state.seen is not None and state.seen != now:
            state = State(state.topology, counted_at=state.counted_at, resting=self.warm_up)
        state = state._replace(seen=now)
        if 0 <= snapshot.t - state.counted_at < self.interval_s - 1e-6:
            return state, Decision(now, {"policy interval ends at": state.counted_at + self.interval_s})
        state = state._replace(counted_at=snapshot.t)
        if state.resting:
            return state._replace(resting=state.resting - 1), Decision(now, {"warm up": state.resting})
        demand = demands(state.topology, snapshot, self.edges)
        wanted, unknown = self._recommend(state.topology, snapshot, demand)
        why = {
            "demand": {n: round(d, 6) for n, d in demand.items() if d is not None},
            "true rate": {n: m.true_rate for n, m in snapshot.operators.items()},
            "recommended": wanted,
        }
        if unknown:
            why["no data"] = unknown
        if len(unknown) == len(wanted):  # an interval without data counts for nothing
            return state, Decision(now, why)
        state = state._replace(wanted=(*state.wanted, wanted), ratios=(*state.ratios, _ratio(state.topology, snapshot)))
        if len(state.wanted) < self.activation:
            return state, Decision(now, {**why, "windows of activation": f"{len(state.wanted)} of {self.activation}"})
        put = max if self.combine == "max" else median
        together: dict[str, float] = {n: put([w[n] for w in state.wanted]) for n in wanted}
        ratio = min(state.ratios)
        if ratio > self.boost_above and all(together[n] <= now.parallelism[n] for n in together):
            together = {n: k * ratio if self._scales(state.topology, n) else k for n, k in together.items()}
            why["boost"] = ratio
        target = now.scaled(state.topology.clip(together))
        return state._replace(wanted=(), ratios=()), Decision(target, why)

    def _scales(self, topology: Topology, name: str) -> bool:
        return self.scale_sources or bool(topology.upstream(name))

    def _recommend(
        self, topology: Topology, snapshot: Snapshot, demand: dict[str, float | None]
    ) -> tuple[dict[str, int], list[str]]:
        """The parallelism each operator needs, and the operators of which that is not known."""
        wanted, unknown = dict(snapshot.deployment.parallelism), []
        for name in topology.order:
            metrics, t = snapshot.operators.get(name), demand[name]
            if metrics is None or t is None or (t > 0 and not metrics.true_rate and not instant(metrics)):
                unknown.append(name)
            elif self._scales(topology, name):
                wanted |= topology.clip({name: t / metrics.true_rate if t and metrics.true_rate else 0.0})
        return wanted, unknown


def instant(metrics: OperatorMetrics) -> bool:
    """Whether it did its records in no time that its clock could tell: one instance is enough then."""
    return metrics.processing_rate > 0 and metrics.utilisation == 0 and not metrics.true_rate


def demands(topology: Topology, snapshot: Snapshot, edges: str = "each") -> dict[str, float | None]:
    """Records/s each operator must process so that the offered source rates are sustained; None where unknown.

    One pass in topological order, unrounded: $t_i = \\sum_p s_{p \\to i} t_p$. With `edges="same"` all edges of an
    operator are taken to carry the same, as DS2's $o_j[\\lambda_o]/o_j[\\lambda_p]$ has it.
    """
    demand: dict[str, float | None] = {}
    for name in topology.order:
        if not topology.upstream(name):
            demand[name] = snapshot.source_rates.get(name)
            continue
        total: float | None = 0.0
        for parent in topology.upstream(name):
            t, s = demand[parent], _selectivity(topology, snapshot, (parent, name), edges)
            if t == 0:
                continue  # nothing comes from there, whatever the selectivity was
            total = None if total is None or t is None or s is None else total + s * t
        demand[name] = total
    return demand


def _selectivity(topology: Topology, snapshot: Snapshot, edge: Edge, edges: str) -> float | None:
    if edges == "each":
        return snapshot.selectivity(edge)
    start = snapshot.operators.get(edge[0])
    if start is None or start.processing_rate == 0:
        return None
    return start.output_rate / start.processing_rate / len(topology.downstream(edge[0]))


def _ratio(topology: Topology, snapshot: Snapshot) -> float:
    """Offered over taken source rate; 1, which boosts nothing, where that cannot be told."""
    offered = taken = 0.0
    for source in topology.sources:
        metrics, rate = snapshot.operators.get(source), snapshot.source_rates.get(source)
        if metrics is None or rate is None:
            return 1.0
        offered, taken = offered + rate, taken + metrics.processing_rate
    return offered / taken if taken > 0 else 1.0
