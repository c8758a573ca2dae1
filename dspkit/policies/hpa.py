r"""Kubernetes' Horizontal Pod Autoscaler, one per operator, on the CPU use of its instances [k8s2024hpa].

| Kubernetes | here |
|---|---|
| desiredReplicas = ceil(currentReplicas x currentMetric / desiredMetric) | `desired` |
| averageUtilization, tolerance | `target_utilisation`, `tolerance` |
| `stabilizationWindowSeconds` of scaleUp, scaleDown | `scale_out_stabilisation_s`, `scale_in_stabilisation_s` |
| policies of scaleUp: Pods, Percent; periodSeconds | `up_pods`, `up_percent`; `up_period_s` |
| sync period, initial readiness delay | `decision_interval_s`, `ready_s` |

Constants are the published defaults; `target_utilisation` has none (Kubernetes' examples take 50 to 80 %). A pod is an
instance that requests one core. Snapshots have one CPU use for all instances of an operator: that of instances which
just started is taken as zero. An operator without metrics keeps its instances, as in Kubernetes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, FrozenMap, KnobError, OperatorMetrics, PolicyKnobs, Snapshot, Topology, knob
from ._measurements import mean_use, signal_knob

_SAME = 1e-9  # tolerance of rounding errors


class Past(NamedTuple):
    """The memory of the scaler of one operator."""

    running: int
    recommendations: tuple[tuple[float, int], ...] = ()  # (time, instances)
    changes: tuple[tuple[float, int], ...] = ()  # (time, difference of instances)


class HPAState(NamedTuple):
    """The last tick, and the memory of each operator's scaler."""

    topology: Topology
    tick: int = -1
    operators: Mapping[str, Past] = FrozenMap[str, Past]()


def desired(
    running: int,
    used: float,
    target: float,
    tolerance: float = 0.1,
    *,
    missing: int = 0,
    unready: int = 0,
) -> int:
    """Return the number of replicas for the total CPU use, in cores, of those that are metered and ready.

    Replicas without metrics count as using the target in a scale-in, and as idle in a scale-out. Those not ready count
    as idle in a scale-out, and not at all otherwise. Neither may reverse the direction.

    >>> desired(4, 3.2, 0.5), desired(4, 2.1, 0.5), desired(4, 0.9, 0.5)
    (7, 4, 2)
    """
    ready = running - missing - unready
    if ready <= 0:
        return running
    ratio = used / (ready * target)
    out = ratio > 1
    if not missing and not (unready and out):
        return running if abs(ratio - 1) <= tolerance + _SAME else math.ceil(ratio * ready - _SAME)
    filled = used + (0 if out else missing * target)
    count = ready + missing + (unready if out else 0)
    again = filled / (count * target)
    if abs(again - 1) <= tolerance + _SAME or (again > 1) != out:
        return running
    wanted = math.ceil(again * count - _SAME)
    return running if (wanted < running) == out else wanted


@dataclass(frozen=True)
class HorizontalScaler(PolicyKnobs):
    """The behaviour that all metrics of the autoscaler share: looks, stabilisation, growth per period."""

    metric: ClassVar[str] = "metric"
    decision_interval_s: float = knob(
        15.0, "time between decisions", low=1.0, high=600.0, unit="s", pace="duration", source="sync period, 15 s"
    )
    scale_in_stabilisation_s: float = knob(
        300.0,
        "time whose greatest recommendation limits a scale-in",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="stabilizationWindowSeconds, 300 s",
    )
    scale_out_stabilisation_s: float = knob(
        0.0,
        "time whose least recommendation limits a scale-out",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="stabilizationWindowSeconds, 0 s",
    )
    up_pods: int = knob(4, "instances that may be added per period", low=0, high=1000, source="4")
    up_percent: float = knob(100.0, "or share of the instances at its start, %", low=0.0, high=1000.0, source="100 %")
    up_period_s: float = knob(
        15.0,
        "the period of `up_pods` and `up_percent`",
        low=1.0,
        high=1800.0,
        unit="s",
        pace="duration",
        source="periodSeconds, 15 s",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.up_pods and not self.up_percent:
            raise KnobError(
                "up_pods=0, up_percent=0", expected="one above 0", fix="set one, as otherwise it never scales out"
            )

    def init(self, topology: Topology, seed: int = 0) -> HPAState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return HPAState(topology)

    def step(self, state: HPAState, snapshot: Snapshot) -> tuple[HPAState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t
        past = {n: self._seen(state.operators.get(n), k, snapshot) for n, k in now.parallelism.items()}
        tick = math.floor(t / self.decision_interval_s + _SAME)
        if tick == state.tick:
            return state._replace(operators=FrozenMap(past)), Decision(now, {"rule": "waits for its next look"})
        wanted, use, wished = {}, {}, {}
        for name in state.topology.order:
            metrics, k = snapshot.operators.get(name), now.parallelism[name]
            found = None if metrics is None else self._recommend(state.topology, name, k, metrics, past[name], t)
            if found is None:
                continue
            use[name], wish = found
            past[name] = self._with(past[name], wish, t)
            wished[name] = wish
            wanted[name] = self._limited(past[name], k, wish, t)
        target = now.scaled(state.topology.clip(wanted))
        why: dict[str, Any] = {self.metric: use, "recommended": wished}
        if silent := [n for n in state.topology.order if n not in use]:
            why["no data"] = silent
        return HPAState(state.topology, tick, FrozenMap(past)), Decision(target, why)

    @property
    def _memory_s(self) -> float:
        """Time for which changes are remembered besides the period of growth."""
        return 0.0

    def _recommend(
        self, topology: Topology, name: str, k: int, metrics: OperatorMetrics, past: Past, t: float
    ) -> tuple[float, int] | None:
        """Return the metric of one operator, and the number of instances for it; None if it was not measured."""
        raise NotImplementedError

    def _seen(self, past: Past | None, k: int, snapshot: Snapshot) -> Past:
        if past is None:
            return Past(k)
        t, longest = snapshot.t, max(self.up_period_s, self._memory_s)
        began = t - snapshot.window_s  # a change that appears now was made then
        known = past.changes if k == past.running else (*past.changes, (began, k - past.running))
        return Past(k, past.recommendations, tuple(c for c in known if t - c[0] < longest))

    def _with(self, past: Past, wish: int, t: float) -> Past:
        longest = max(self.scale_in_stabilisation_s, self.scale_out_stabilisation_s)
        return past._replace(
            recommendations=(*(w for w in past.recommendations if t - w[0] < longest - _SAME), (t, wish))
        )

    def _limited(self, past: Past, k: int, wish: int, t: float) -> int:
        """Return the recommendation after stabilisation, and within the growth of a period."""

        def since(seconds: float) -> list[int]:
            return [n for at, n in past.recommendations if t - at < seconds - _SAME] + [wish]

        low, high = min(since(self.scale_out_stabilisation_s)), max(since(self.scale_in_stabilisation_s))
        stable = min(max(k, low), high)  # no removal below higher, no addition above lower recommendations
        start = k - sum(by for at, by in past.changes if by > 0 and t - at < self.up_period_s - _SAME)
        most = max(start + self.up_pods, math.ceil(start * (1 + self.up_percent / 100) - _SAME))
        return min(stable, max(k, most))


@dataclass(frozen=True)
class HPA(HorizontalScaler):
    r"""Scale each operator by itself to $p' = \lceil p \cdot cpu / target \rceil$, slower down than up.

    A ratio within `tolerance` of 1 changes nothing. The greatest recommendation of the last `scale_in_stabilisation_s`
    limits a scale-in; a scale-out is limited by the greater of `up_pods` and `up_percent` in `up_period_s`.
    """

    name: ClassVar[str] = "hpa"
    main_knobs: ClassVar[tuple[str, ...]] = ("target_utilisation", "decision_interval_s", "scale_in_stabilisation_s")
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "k8s2024hpa"
    metric: ClassVar[str] = "use of a core"
    paper_run_s: ClassVar[float] = 600.0
    target_utilisation: float = knob(
        0.7,
        "CPU of an instance to aim at, share of a core",
        low=0.05,
        high=1.0,
        source="averageUtilization, without a default",
    )
    tolerance: float = knob(0.1, "ratio to 1 within which nothing changes", low=0.0, high=1.0, source="0.1")
    ready_s: float = knob(
        30.0, "time until a new instance is ready", low=0.0, high=600.0, unit="s", pace="duration", source="30 s"
    )
    signal: str = signal_knob()

    @property
    def _memory_s(self) -> float:
        return self.ready_s

    def _recommend(
        self, topology: Topology, name: str, k: int, metrics: OperatorMetrics, past: Past, t: float
    ) -> tuple[float, int] | None:
        share = mean_use(metrics, self.signal)
        if share is None:
            return None
        return round(share, 4), self._desired(k, share * metrics.parallelism, metrics, past, t)

    def _desired(self, k: int, cores: float, metrics: OperatorMetrics, past: Past, t: float) -> int:
        missing = max(0, k - metrics.parallelism)
        fresh = sum(by for at, by in past.changes if by > 0 and t - at < self.ready_s - _SAME)
        unready = min(fresh, max(0, metrics.parallelism - 1))
        return desired(k, cores, self.target_utilisation, self.tolerance, missing=missing, unready=unready)
