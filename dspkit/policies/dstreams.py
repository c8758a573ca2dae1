"""Dynamic allocation of Spark's DStreams: executors by the ratio of processing time to batch interval [spark_dstreams].

| Spark | here |
|---|---|
| an executor | one instance of every operator: a batch's stages run one after the other on all executors |
| processing time of a batch | mean latency inside a micro-batch job, which is the length of a batch |
| batch duration | `batch_interval_s` |
| `scalingInterval`, `scalingUpRatio`, `scalingDownRatio` | `decision_interval_s`, `scale_out_above`, `scale_in_below` |

Every minute the mean processing time of the batches is compared with the interval: at a ratio r of 0.9 or more
round(r) executors are added, at least one; at 0.3 or less one is removed. In a pipelined job, which has no batches, the
ratio is the time that the slowest operator takes for what arrives in an interval, over the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..core import Decision, PolicyKnobs, Snapshot, Topology, knob

_SAME = 1e-6  # tolerance of times


class DStreamsState(NamedTuple):
    """The end of the last interval, and sum and weight of the ratios since."""

    topology: Topology
    looked_s: float | None = None
    total: float = 0.0
    weight: float = 0.0


def change(ratio: float, above: float = 0.9, below: float = 0.3) -> int:
    """Return the executors to add, or -1 to remove one.

    >>> [change(r) for r in (0.2, 0.5, 0.9, 1.4, 2.6)]
    [-1, 0, 1, 1, 3]
    """
    if ratio >= above:
        return max(1, math.floor(ratio + 0.5))
    return -1 if ratio <= below else 0


@dataclass(frozen=True)
class DStreams(PolicyKnobs):
    """Add executors while batches take 90 % of their interval or more; remove one while they take 30 % or less."""

    name: ClassVar[str] = "dstreams"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "spark_dstreams"
    paper_run_s: ClassVar[float] = 600.0
    batch_interval_s: float = knob(
        10.0,
        "interval of micro-batches: the trigger of the job",
        low=1e-3,
        high=3600.0,
        unit="s",
        source="batchDuration, without a default",
    )
    scale_out_above: float = knob(0.9, "ratio from which on executors are added", low=0.05, high=10.0, source="0.9")
    scale_in_below: float = knob(0.3, "ratio up to which one is removed", low=0.0, high=5.0, source="0.3")
    decision_interval_s: float = knob(
        60.0, "time between decisions", low=1.0, high=3600.0, unit="s", pace="duration", source="scalingInterval, 60 s"
    )

    def init(self, topology: Topology, seed: int = 0) -> DStreamsState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return DStreamsState(topology)

    def step(self, state: DStreamsState, snapshot: Snapshot) -> tuple[DStreamsState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, ratio = snapshot.deployment, self._ratio(snapshot)
        looked = snapshot.t - snapshot.window_s if state.looked_s is None else state.looked_s
        if ratio is not None:
            state = state._replace(
                total=state.total + ratio * snapshot.window_s, weight=state.weight + snapshot.window_s
            )
        if snapshot.t - looked < self.decision_interval_s - _SAME:
            return state._replace(looked_s=looked), Decision(now, {"ratio": ratio})
        mean = state.total / state.weight if state.weight else None
        state = DStreamsState(state.topology, snapshot.t)
        if mean is None:  # no batch ended
            return state, Decision(now, {"ratio": None})
        by = change(mean, self.scale_out_above, self.scale_in_below)
        target = now.scaled(state.topology.clip({n: k + by for n, k in now.parallelism.items()}))
        return state, Decision(target, {"ratio": mean, "executors": by})

    def _ratio(self, snapshot: Snapshot) -> float | None:
        if snapshot.execution == "micro-batch":
            return None if snapshot.latency is None else snapshot.latency.mean / self.batch_interval_s
        found = [
            demand / (m.true_rate * m.parallelism)
            for n, demand in snapshot.demand.items()
            if demand is not None and (m := snapshot.operators.get(n)) and m.true_rate
        ]
        return max(found, default=None)
