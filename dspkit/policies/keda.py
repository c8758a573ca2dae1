r"""KEDA's Kafka scaler: each operator by itself on the records that wait for it [keda].

| KEDA | here |
|---|---|
| lag of the consumer group, over all partitions | backlog of the operator |
| `lagThreshold` | `lag_threshold` |
| partitions of the topic | `partitions`; without it the operator's most instances |
| `activationLagThreshold` | `activation_lag` |
| `allowIdleConsumers` | `idle_consumers` |

KEDA hands the lag to Kubernetes' autoscaler as an external metric with an average value: the wish is
$\lceil lag/lagThreshold\rceil$, at most one instance per partition, and it is limited as in `hpa`. Topics decouple the
stages that KEDA scales; here queues do, so a queue that is bounded below the threshold hides an overload from it.
Not included: scaling to no instance at all, partitions without lag, or whose lag stays, and divisors of their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..core import OperatorMetrics, Topology, knob
from .hpa import HorizontalScaler, Past

_SAME = 1e-9  # tolerance of rounding errors


def replicas(lag: float, lag_threshold: float, partitions: int) -> int:
    """Return the replicas for a lag: one per `lag_threshold` records, from one to one per partition.

    >>> replicas(95, 10, 12), replicas(1000, 10, 12), replicas(0, 10, 12)
    (10, 12, 1)
    """
    return min(max(1, math.ceil(lag / lag_threshold - _SAME)), partitions)


@dataclass(frozen=True)
class KEDA(HorizontalScaler):
    r"""Scale each operator to one instance per `lag_threshold` waiting records, at most one per partition.

    The average lag of an instance within `tolerance` of the threshold changes nothing.
    """

    name: ClassVar[str] = "keda"
    main_knobs: ClassVar[tuple[str, ...]] = ("lag_threshold", "decision_interval_s", "scale_in_stabilisation_s")
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[tuple[str, ...]] = ("keda", "k8s2024hpa")
    metric: ClassVar[str] = "lag"
    paper_run_s: ClassVar[float] = 600.0
    lag_threshold: float = knob(
        10.0, "waiting records per instance", low=1.0, high=1e9, unit="records", source="lagThreshold, 10"
    )
    activation_lag: float = knob(
        0.0,
        "lag up to which one instance is enough",
        low=0.0,
        high=1e9,
        unit="records",
        source="activationLagThreshold",
    )
    partitions: int = knob(0, "partitions of each topic; 0: the operator's most instances", low=0, high=100_000)
    idle_consumers: bool = knob(
        False, "more instances than partitions", choices=(True, False), source="allowIdleConsumers, false"
    )
    tolerance: float = knob(0.1, "ratio to 1 within which nothing changes", low=0.0, high=1.0, source="0.1")

    def _recommend(
        self, topology: Topology, name: str, k: int, metrics: OperatorMetrics, past: Past, t: float
    ) -> tuple[float, int] | None:
        lag, most = metrics.backlog, topology[name].max_parallelism
        partitions = most if self.idle_consumers or not self.partitions else min(self.partitions, most)
        if lag <= self.activation_lag:
            return lag, 1
        # KEDA reports no more lag than the threshold times the partitions.
        cut = min(lag, self.lag_threshold * partitions)
        if abs(cut / (self.lag_threshold * k) - 1) <= self.tolerance + _SAME:
            return lag, k
        return lag, replicas(lag, self.lag_threshold, partitions)
