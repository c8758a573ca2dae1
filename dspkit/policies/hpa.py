r"""Kubernetes' Horizontal Pod Autoscaler, one for each operator, on the CPU that its instances use [k8s2024hpa].

    | Kubernetes | here |
    |---|---|
    | desiredReplicas = ceil(currentReplicas x currentMetric / desiredMetric) | `desired` |
    | averageUtilization, tolerance | `target`, `tolerance` |
    | stabilizationWindowSeconds of scaleUp, scaleDown | `up_stabilise_s`, `down_stabilise_s` |
    | policies of scaleUp: Pods, Percent; periodSeconds | `up_pods`, `up_percent`; `period_s` |
    | sync period, initial readiness delay | `sync_s`, `ready_s` |

Constants are the published defaults; `target` has none (Kubernetes' examples take 50 to 80 %). A pod is an instance
that asks for one core. Snapshots have one CPU use for all instances of an operator: what those use that just started is
taken to be nothing. An operator whose meter is silent altogether stays as it is, as Kubernetes does without metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, OperatorMetrics, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob

_SAME = 1e-9  # what divides may miss a whole number by


class Past(NamedTuple):
    """What the scaler of one operator remembers."""

    running: int
    wished: tuple[tuple[float, int], ...] = ()  # recommendations: when, how many
    came: tuple[tuple[float, int], ...] = ()  # changes of what runs: when, by how many


class State(NamedTuple):
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
    """Replicas for the CPU that those use which are metered and ready, together, in cores.

    With missing meters: their pods count as using the target where that would scale in, and as idle where it would
    scale out. Those not ready yet count as idle where it would scale out and not at all else. Neither may turn the
    direction.

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
class HPA(Knobs):
    r"""$p' = \lceil p \cdot cpu / target \rceil$ for each operator by itself; slower down than up.

    A ratio within `tolerance` of 1 changes nothing. Of the recommendations of the last `down_stabilise_s` the greatest
    holds a scale-in back; a scale-out grows by the greater of `up_pods` and `up_percent` in `period_s`.
    """

    name: ClassVar[str] = "hpa"
    reference: ClassVar[str] = "k8s2024hpa"
    target: float = knob(0.7, "CPU of an instance to aim at, share of a core", low=0.05, high=1.0)
    tolerance: float = knob(0.1, "ratio to 1 within which nothing changes", low=0.0, high=1.0, source="0.1")
    sync_s: float = knob(15.0, "time between decisions", low=1.0, high=600.0, unit="s", source="15 s")
    down_stabilise_s: float = knob(
        300.0, "the greatest wish of this time holds a scale-in back", low=0.0, high=3600.0, unit="s", source="300 s"
    )
    up_stabilise_s: float = knob(
        0.0, "the least wish of this time holds a scale-out back", low=0.0, high=3600.0, unit="s", source="0 s"
    )
    up_pods: int = knob(4, "instances that may come in a period", low=0, high=1000, source="4")
    up_percent: float = knob(100.0, "or this part of those at its start, %", low=0.0, high=1000.0, source="100 %")
    period_s: float = knob(15.0, "that period", low=1.0, high=1800.0, unit="s", source="15 s")
    ready_s: float = knob(30.0, "an instance is not ready until then", low=0.0, high=600.0, unit="s", source="30 s")
    signal: str = knob(
        "auto", "what counts: CPU, busy time, or CPU where it is measured", choices=("auto", "cpu", "busy")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.up_pods and not self.up_percent:
            raise KnobError("up_pods=0, up_percent=0", expected="one above 0", fix="else it never scales out")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now, t = snapshot.deployment, snapshot.t
        past = {n: self._seen(state.operators.get(n), k, snapshot) for n, k in now.parallelism.items()}
        tick = math.floor(t / self.sync_s + _SAME)
        if tick == state.tick:
            return state._replace(operators=FrozenMap(past)), Decision(now, {"rule": "waits for its next look"})
        wanted, use, wished = {}, {}, {}
        for name in state.topology.order:
            metrics, k = snapshot.operators.get(name), now.parallelism[name]
            cores = None if metrics is None else self._used(metrics)
            if metrics is None or cores is None:
                continue
            use[name] = round(cores / metrics.parallelism, 4)
            wish = self._desired(k, cores, metrics, past[name], t)
            past[name] = self._with(past[name], wish, t)
            wished[name] = wish
            wanted[name] = self._limited(past[name], k, wish, t)
        target = now.scaled(state.topology.clip(wanted))
        why: dict[str, Any] = {"use of a core": use, "recommended": wished}
        if silent := [n for n in state.topology.order if n not in use]:
            why["no data"] = silent
        return State(state.topology, tick, FrozenMap(past)), Decision(target, why)

    def _desired(self, k: int, cores: float, metrics: OperatorMetrics, past: Past, t: float) -> int:
        missing = max(0, k - metrics.parallelism)
        fresh = sum(by for at, by in past.came if by > 0 and t - at < self.ready_s - _SAME)
        unready = min(fresh, max(0, metrics.parallelism - 1))
        return desired(k, cores, self.target, self.tolerance, missing=missing, unready=unready)

    def _used(self, metrics: OperatorMetrics) -> float | None:
        """Cores that the metered instances use together."""
        if self.signal == "busy" or (self.signal == "auto" and metrics.cpu is None):
            return metrics.utilisation * metrics.parallelism
        return metrics.cpu

    def _seen(self, past: Past | None, k: int, snapshot: Snapshot) -> Past:
        if past is None:
            return Past(k)
        t, longest = snapshot.t, max(self.period_s, self.ready_s)
        began = t - snapshot.window_s  # what shows now was changed then
        came = past.came if k == past.running else (*past.came, (began, k - past.running))
        return Past(k, past.wished, tuple(c for c in came if t - c[0] < longest))

    def _with(self, past: Past, wish: int, t: float) -> Past:
        longest = max(self.down_stabilise_s, self.up_stabilise_s)
        return past._replace(wished=(*(w for w in past.wished if t - w[0] < longest - _SAME), (t, wish)))

    def _limited(self, past: Past, k: int, wish: int, t: float) -> int:
        """The wish, stabilised and within what may come in a period."""

        def since(seconds: float) -> list[int]:
            return [n for at, n in past.wished if t - at < seconds - _SAME] + [wish]

        low, high = min(since(self.up_stabilise_s)), max(since(self.down_stabilise_s))
        stable = min(max(k, low), high)  # nobody goes while the wish was higher, nobody comes while it was lower
        start = k - sum(by for at, by in past.came if by > 0 and t - at < self.period_s - _SAME)
        most = max(start + self.up_pods, math.ceil(start * (1 + self.up_percent / 100) - _SAME))
        return min(stable, max(k, most))
