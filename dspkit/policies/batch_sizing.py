"""Dynamic batch sizing: the interval of micro-batches by fixed-point iteration [das2014].

| symbol | paper | here |
|---|---|---|
| $x$ | batch interval | `settings["trigger_s"]`, or the length of a batch where no interval is set |
| $\\omega(x)$ | processing time of a batch of interval x | mean latency inside a micro-batch job |
| $\\rho$ | slack of the condition line $\\omega = \\rho x$ | `slack` |
| $r$ | reduction for superlinear workloads | `reduction` |

A batch holds what arrives in an interval, so its processing time grows with the interval. The shortest interval that
can be sustained is where $\\omega(x) = \\rho x$: the fixed point of $x \\leftarrow \\omega(x) / \\rho$, which needs no
model of the job. Where time grows faster than the interval, and both of the last two intervals were too short for their
batches, that iteration diverges; the interval is then reduced by the share r below the smaller one.

Resources are not changed. In a pipelined job, which has no batches, nothing is decided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from ..core import Decision, PolicyKnobs, Snapshot, Topology, knob


class BatchSizingState(NamedTuple):
    """The interval and the processing time of the last window with another interval than the present one."""

    now: tuple[float, float] | None = None
    before: tuple[float, float] | None = None


def next_interval(
    now: tuple[float, float], before: tuple[float, float] | None, slack: float, reduction: float
) -> float:
    """Return the next interval, from the last two pairs of interval and processing time.

    Parameters
    ----------
    now, before : (float, float)
        Interval and processing time of the last batches, and of those before with another interval.
    slack, reduction : float
        The letters rho and r.

    Examples
    --------
    >>> next_interval((2.0, 1.4), None, 0.7, 0.25), next_interval((2.0, 3.0), (1.0, 1.2), 0.7, 0.25)
    (2.0, 0.75)
    """
    if before is not None:
        (x1, w1), (x2, w2) = sorted((now, before))
        if w1 / x1 < w2 / x2 and w1 > slack * x1 and w2 > slack * x2:
            return (1 - reduction) * x1
    return now[1] / slack


@dataclass(frozen=True)
class BatchSizing(PolicyKnobs):
    """Set the shortest interval of micro-batches that their processing time allows, by fixed-point iteration."""

    name: ClassVar[str] = "batch_sizing"
    needs: ClassVar[frozenset[str]] = frozenset()  # it may be asked about any job, and says what it wants
    reference: ClassVar[str] = "das2014"
    slack: float = knob(
        0.7, "processing time over interval that is aimed at", low=0.1, high=0.99, source="rho; the default is ours"
    )
    reduction: float = knob(
        0.25,
        "share by which the interval is reduced where processing time grows faster than it",
        low=0.01,
        high=0.9,
        source="r; the default is ours",
    )
    shortest_s: float = knob(0.1, "shortest interval", low=1e-3, high=3600.0, unit="s")
    longest_s: float = knob(60.0, "longest interval", low=1e-3, high=86400.0, unit="s")
    tolerance: float = knob(0.05, "relative change of the interval that is not made", low=0.0, high=1.0)

    def init(self, topology: Topology, seed: int = 0) -> BatchSizingState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return BatchSizingState()

    def step(self, state: BatchSizingState, snapshot: Snapshot) -> tuple[BatchSizingState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        deployment = snapshot.deployment
        if snapshot.execution != "micro-batch":
            return state, Decision(deployment, {"rule": "a pipelined job has no batches"})
        if snapshot.latency is None or not snapshot.latency.mean > 0:
            return state, Decision(deployment, {"rule": "no batch ended"})
        took = snapshot.latency.mean
        trigger = float(deployment.settings.get("trigger_s", 0.0))
        x = trigger or took  # a batch may take longer than its interval: that is what a reduction answers
        other = state.now is not None and abs(x - state.now[0]) > self.tolerance * x
        state = BatchSizingState((x, took), state.now if other else state.before)
        wanted = next_interval((x, took), state.before, self.slack, self.reduction)
        wanted = min(max(wanted, self.shortest_s), max(self.shortest_s, self.longest_s))
        why = {"interval_s": x, "processing_s": took, "wanted_s": wanted}
        if abs(wanted - trigger) <= self.tolerance * max(wanted, trigger):
            return state, Decision(deployment, why)
        settings = {**deployment.settings, "trigger_s": round(wanted, 3)}
        return state, Decision(replace(deployment, settings=settings), why)
