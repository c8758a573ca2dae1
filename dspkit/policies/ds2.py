"""DS2: from true rates to the parallelism that sustains the source rate, in three steps [kalavri2018ds2].

| paper | here |
|---|---|
| $o_i[\\lambda_p]/p_i$ | `true_rate`: records/s of one instance that never waits |
| $o_j[\\lambda_o]/o_j[\\lambda_p]$ | `selectivity` of an edge: records sent per record processed |
| $o_j[\\lambda_o]^*$ | `demand` times selectivity: the output that keeps up with the sources |
| $\\pi_i$ | the parallelism of operator i |

An engine that drains and commits at the end of each epoch loses time that true rates do not show. It is measured while
the job falls behind, and true rates are reduced by it (`commits="ignored"` is the paper's).

Readings not taken by default: one output rate for all edges of an operator (`edges="same"`, the paper's; equal to ours
if the edges carry the same records, wrong otherwise); of the authors' program, that a change counts only if some
operator grows, or shrinks by two or more (`minor_changes=False`), and a share of instances beyond those needed
(`headroom`). Not taken at all: rounding up upstream operators before the demand of downstream ones is computed
(AuTraScale's Eq. 3, which multiplies the excess).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

from ..core import Decision, Deployment, Edge, OperatorMetrics, PolicyKnobs, Snapshot, Topology, knob
from ..core import demands as propagated
from ._measurements import Attained, commits_knob


class DS2State(NamedTuple):
    """`recommendations` since the last decision, and beside them `ratios` of offered to processed source rate."""

    topology: Topology
    last_deployment: Deployment | None = None
    counted_at: float = -math.inf  # end of the last window that was used
    resting: int = 0
    recommendations: tuple[dict[str, int], ...] = ()
    ratios: tuple[float, ...] = ()
    attained: Attained = Attained()


@dataclass(frozen=True)
class DS2(PolicyKnobs):
    r"""Give each operator just enough instances for the rate that the sources demand of it.

    $\pi_i = \lceil t_i / v_i \rceil$ with the demand $t_i = \sum_p s_{p \to i} t_p$, where $t$ is the offered rate at
    a source, $s$ a selectivity and $v$ the true rate of one instance, all measured in one window. An operator with an
    unknown value, and those downstream of it, keep their instances.
    """

    name: ClassVar[str] = "ds2"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "kalavri2018ds2"
    paper_run_s: ClassVar[float] = 600.0
    activation: int = knob(1, "windows whose recommendations are combined in a decision", low=1, high=30)
    combine: str = knob("median", "statistic that combines them", choices=("median", "max"))
    warm_up_windows: int = knob(0, "windows ignored after a change", low=0, high=30)
    decision_interval_s: float = knob(
        0.0,
        "policy interval, of which the last window counts; 0 for every window",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
    )
    edges: str = knob("each", "output rate of each edge, or the same for all as in the paper", choices=("each", "same"))
    scale_sources: bool = knob(True, "scale sources as well; the paper leaves them alone", choices=(True, False))
    minor_changes: bool = knob(
        True,
        "also change if no operator grows, and none shrinks by two or more; the authors' manager does not",
        choices=(True, False),
    )
    boost_above: float = knob(
        math.inf,
        "after convergence, ratio of offered to processed source rate above which all are multiplied by it",
        low=1.0,
        high=math.inf,
        infinite=True,
        source="DS2's target rate ratio, infinite by default",
    )
    headroom: float = knob(
        0.0,
        "instances beyond those needed, as a share of them, before rounding up",
        low=0.0,
        high=10.0,
        source="DS2's scaling factor, 0 by default",
    )
    commits: str = commits_knob()

    def init(self, topology: Topology, seed: int = 0) -> DS2State:
        """Return the initial state, as described in `dspkit.Policy`."""
        return DS2State(topology)

    def step(self, state: DS2State, snapshot: Snapshot) -> tuple[DS2State, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now = snapshot.deployment
        if state.last_deployment is not None and state.last_deployment != now:
            state = DS2State(
                state.topology, counted_at=state.counted_at, resting=self.warm_up_windows, attained=state.attained
            )
        state = state._replace(last_deployment=now, attained=state.attained.after(snapshot))
        if 0 <= snapshot.t - state.counted_at < self.decision_interval_s - 1e-6:
            return state, Decision(now, {"policy interval ends at": state.counted_at + self.decision_interval_s})
        state = state._replace(counted_at=snapshot.t)
        if state.resting:
            return state._replace(resting=state.resting - 1), Decision(now, {"warm up": state.resting})
        demand = demands(state.topology, snapshot, self.edges)
        share = state.attained.share if self.commits == "measured" else 1.0
        wanted, unknown = self._recommend(state.topology, snapshot, demand, share)
        why = {
            "demand": {n: round(d, 6) for n, d in demand.items() if d is not None},
            "true rate": {n: m.true_rate for n, m in snapshot.operators.items()},
            "recommended": wanted,
        }
        if share < 1:
            why["busy at most"] = round(share, 4)
        if unknown:
            why["no data"] = unknown
        if len(unknown) == len(wanted):  # an interval without data is ignored
            return state, Decision(now, why)
        state = state._replace(
            recommendations=(*state.recommendations, wanted), ratios=(*state.ratios, _ratio(state.topology, snapshot))
        )
        if len(state.recommendations) < self.activation:
            return state, Decision(
                now, {**why, "windows of activation": f"{len(state.recommendations)} of {self.activation}"}
            )
        put = max if self.combine == "max" else median
        together: dict[str, float] = {n: put([w[n] for w in state.recommendations]) for n in wanted}
        ratio = min(state.ratios)
        if ratio > self.boost_above and all(together[n] <= now.parallelism[n] for n in together):
            together = {n: k * ratio if self._scales(state.topology, n) else k for n, k in together.items()}
            why["boost"] = ratio
        target = now.scaled(state.topology.clip(together))
        if not self.minor_changes and all(0 <= now.parallelism[n] - k < 2 for n, k in target.parallelism.items()):
            target, why["minor change"] = now, True
        return state._replace(recommendations=(), ratios=()), Decision(target, why)

    def _scales(self, topology: Topology, name: str) -> bool:
        return self.scale_sources or bool(topology.upstream(name))

    def _recommend(
        self, topology: Topology, snapshot: Snapshot, demand: dict[str, float | None], share: float
    ) -> tuple[dict[str, int], list[str]]:
        """Return the parallelism that each operator needs, and the operators without data."""
        wanted, unknown = dict(snapshot.deployment.parallelism), []
        for name in topology.order:
            metrics, t = snapshot.operators.get(name), demand[name]
            if metrics is None or t is None or (t > 0 and not metrics.true_rate and not instant(metrics)):
                unknown.append(name)
            elif self._scales(topology, name):
                needed = t / (metrics.true_rate * share) if t and metrics.true_rate else 0.0
                wanted |= topology.clip({name: needed * (1 + self.headroom)})
        return wanted, unknown


def instant(metrics: OperatorMetrics) -> bool:
    """Return whether the busy time was below the resolution of the clock; then one instance is enough."""
    return metrics.processing_rate > 0 and metrics.utilisation == 0 and not metrics.true_rate


def demands(topology: Topology, snapshot: Snapshot, edges: str = "each") -> dict[str, float | None]:
    """Return the records/s that each operator must process to sustain the offered source rates; None if unknown.

    The arithmetic of `Snapshot.demand`, with selectivities of this window only. With `edges="same"` all edges of an
    operator are assumed to carry the same rate, as in DS2's $o_j[\\lambda_o]/o_j[\\lambda_p]$.
    """
    senders = {name: topology.upstream(name) for name in topology.order}
    return propagated(senders, snapshot.source_rates, lambda edge: _selectivity(topology, snapshot, edge, edges))


def _selectivity(topology: Topology, snapshot: Snapshot, edge: Edge, edges: str) -> float | None:
    if edges == "each":
        return snapshot.selectivity(edge)
    start = snapshot.operators.get(edge[0])
    if start is None or start.processing_rate == 0:
        return None
    return start.output_rate / start.processing_rate / len(topology.downstream(edge[0]))


def _ratio(topology: Topology, snapshot: Snapshot) -> float:
    """Return the greatest ratio of offered to processed rate of a source; 1, which has no effect, if unknown."""
    ratios = []
    for source in topology.sources:
        metrics, rate = snapshot.operators.get(source), snapshot.source_rates.get(source)
        if metrics is None or rate is None:
            return 1.0
        ratios.append(rate / metrics.processing_rate if metrics.processing_rate > 0 else 1.0)
    return max(ratios, default=1.0)
