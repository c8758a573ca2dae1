r"""Numaflow's autoscaler: the time to clear what waits, and the free room of buffers once half full [numaflow].

| Numaflow | here |
|---|---|
| pending messages, processing rate | backlog, processing rate: means over `look_back_s` |
| `targetProcessingSeconds` | `target_processing_s` |
| `bufferMaxLength`, `bufferUsageLimit` | `buffer_records`, `usage_limit` |
| `targetBufferAvailability` | `target_free` |
| `replicasPerScaleUp`, `replicasPerScaleDown` | `step_up`, `step_down` |
| `scaleUpCooldownSeconds`, `scaleDownCooldownSeconds` | `cooldown_s` |

With p instances, a vertex wants $\mathrm{round}(p\,pending/(20\,rate))$. If it is no source, and less of its buffer
than `target_free` is free, it wants $\mathrm{round}(target\;free/(free/p))$, as if each instance freed an equal part of
the usable buffer, and `step_up` more if that is full. It never wants more instances than records wait. Before it grows,
it looks downstream: if a direct successor is full, it gives one instance back, and if one further on is full, it stays.
Buffers are those of Numaflow's configuration. Queues here may have less room, so that
an operator that is busy all the time while it holds its senders up counts as full, too (`full_if_held`). Not included:
no instance at all, partitioned buffers, schedules, rate limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ..etp import held_back
from ._measurements import fullest

_SAME = 1e-9  # tolerance of rounding errors
_BUSY = 0.9  # busy share from which on an operator can hold its senders up


class NumaflowState(NamedTuple):
    """The windows of the look-back, and the time of the last change of each vertex."""

    topology: Topology
    last_deployment: Deployment | None = None
    windows: tuple[Snapshot, ...] = ()
    changed_s: Mapping[str, float] = FrozenMap()


def _round(x: float) -> int:
    return math.floor(x + 0.5)  # as Go's math.Round, away from zero


def of_time(pending: float, rate: float, ready: int, target_processing_s: float = 20.0) -> int:
    """Return the replicas that clear what waits in time; one if nothing waits, or nothing is processed.

    >>> of_time(10_000, 250, 2), of_time(0, 250, 2), of_time(100, 0, 2)
    (4, 1, 1)
    """
    if rate <= 0 or pending <= 0:
        return 1
    return _limited(_round(pending / rate / target_processing_s * ready), pending)


def of_buffer(
    pending: float, ready: int, length: float, limit: float, target_free: float = 0.5, step_up: int = 2
) -> int:
    """Return the replicas that keep a share of a buffer free; `limit` of its `length` records can be used.

    >>> of_buffer(18_000, 3, 30_000, 24_000), of_buffer(24_000, 3, 30_000, 24_000)
    (8, 5)
    """
    if pending >= limit:
        return ready + step_up
    return _limited(_round(target_free * length / ((limit - pending) / ready)), pending)


def _limited(found: int, pending: float) -> int:
    return max(1, min(max(1, found), int(pending)))


@dataclass(frozen=True)
class Numaflow(PolicyKnobs):
    """Scale operators by the time to clear what waits, or to half-empty buffers if it is much, in small steps."""

    name: ClassVar[str] = "numaflow"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "numaflow"
    paper_run_s: ClassVar[float] = 600.0
    target_processing_s: float = knob(
        20.0,
        "time in which what waits is to be processed",
        low=1.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="targetProcessingSeconds, 20",
    )
    target_free: float = knob(
        0.5, "share of a buffer to keep free", low=0.01, high=0.99, source="targetBufferAvailability, 50 %"
    )
    buffer_records: float = knob(
        30_000.0,
        "records that fit into the buffer of an operator",
        low=1.0,
        high=1e9,
        unit="records",
        source="bufferMaxLength, 30,000",
    )
    usage_limit: float = knob(
        0.8, "share of a buffer that is used", low=0.05, high=1.0, source="bufferUsageLimit, 80 %"
    )
    full: float = knob(
        0.9, "share of a usable buffer from which on it holds its senders up", low=0.1, high=1.0, source="90 %"
    )
    step_up: int = knob(2, "most instances added at once", low=1, high=1000, source="replicasPerScaleUp, 2")
    step_down: int = knob(2, "most instances removed at once", low=1, high=1000, source="replicasPerScaleDown, 2")
    cooldown_s: float = knob(
        90.0,
        "time between two changes of an operator",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="cooldownSeconds, 90",
    )
    look_back_s: float = knob(
        120.0,
        "time over which pending records and rates are averaged",
        low=1.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="lookbackSeconds, 120",
    )
    full_if_held: bool = knob(
        True, "an operator that is busy and holds its senders up has a full buffer", choices=(True, False)
    )
    max_parallelism: int = knob(50, "most instances of an operator", low=1, high=4096, source="max, 50")

    def init(self, topology: Topology, seed: int = 0) -> NumaflowState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return NumaflowState(topology)

    def step(self, state: NumaflowState, snapshot: Snapshot) -> tuple[NumaflowState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t
        changed = dict(state.changed_s)
        if state.last_deployment is not None:
            before = state.last_deployment.parallelism
            changed |= {n: t - snapshot.window_s for n, k in now.parallelism.items() if before.get(n) != k}
        windows = (*(w for w in state.windows if w.t > t - self.look_back_s + _SAME), snapshot)
        state = NumaflowState(state.topology, now, windows, FrozenMap(changed))
        pending = {n: self._mean(windows, n, "backlog") for n in state.topology.order}
        if self.full_if_held and held_back(snapshot):
            for name, m in snapshot.operators.items():
                if state.topology.upstream(name) and (fullest(m, "busy") or 0.0) >= _BUSY:
                    pending[name] = max(pending[name] or 0.0, self.buffer_records)
        wanted, desired = {}, {}
        for name in state.topology.order:
            waiting, rate, k = pending[name], self._mean(windows, name, "processing_rate"), now.parallelism[name]
            if waiting is None or rate is None:
                continue
            desired[name] = self._desired(state.topology, name, waiting, rate, k)
            if t - changed.get(name, -math.inf) >= self.cooldown_s - _SAME:
                wanted[name] = self._next(state.topology, name, desired[name], k, pending)
        why: dict[str, Any] = {"pending": pending, "desired": desired}
        return state, Decision(now.scaled(state.topology.clip(wanted)), why)

    @staticmethod
    def _mean(windows: tuple[Snapshot, ...], name: str, field: str) -> float | None:
        known = [(getattr(m, field), s.window_s) for s in windows if (m := s.operators.get(name)) is not None]
        return math.fsum(x * w for x, w in known) / math.fsum(w for _, w in known) if known else None

    def _desired(self, topology: Topology, name: str, pending: float, rate: float, k: int) -> int:
        length, limit = self.buffer_records, self.usage_limit * self.buffer_records
        if rate <= 0 or not topology.upstream(name) or pending <= (1 - self.target_free) * length:
            found = of_time(pending, rate, k, self.target_processing_s)
        else:
            found = of_buffer(pending, k, length, limit, self.target_free, self.step_up)
        return min(found, self.max_parallelism)

    def _next(self, topology: Topology, name: str, desired: int, k: int, pending: Mapping[str, float | None]) -> int:
        """Return the instances after this step: at most so many more or fewer, and none more below back-pressure."""
        if desired <= k:
            return max(desired, k - self.step_down)
        direct = topology.downstream(name)
        if any(self._full(pending[n]) for n in direct):
            return max(1, k - 1)
        further, seen = list(direct), set(direct)
        while further:
            for child in topology.downstream(further.pop()):
                if self._full(pending[child]):
                    return k
                if child not in seen:
                    seen.add(child)
                    further.append(child)
        return min(desired, k + self.step_up)

    def _full(self, pending: float | None) -> bool:
        return pending is not None and pending >= self.full * self.usage_limit * self.buffer_records
