"""Events lost, as the self-adaptive graph's paper counts them, and all that a count at the end can miss [fission].

The paper compares what was processed with what its ideal static scenario processed: $1 - d/d_{ideal}$. Ours knows where
the rest went as well: refused by a full queue, or still waiting when the run ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from .core import Step
from .errors import MetricError


@dataclass(frozen=True)
class EventsLost:
    """Events of one run. What branches drop and what waits inside is counted where it was, not in source events."""

    offered: float
    processed: float
    dropped: float
    waiting: float
    replica_seconds: float

    @property
    def share(self) -> float:
        """Part of what was offered that was not processed by the end."""
        return share_lost(self.processed, self.offered)


def share_lost(processed: float, ideal: float) -> float:
    """$1 - d/d_{ideal}$: the share of what an ideal run processed that this one did not; negative if it did more.

    >>> round(100 * share_lost(329_574, 382_713), 3)
    13.885
    """
    if not (0 <= processed < inf and 0 <= ideal < inf):
        raise MetricError(f"{processed} of {ideal} events", expected="counts from 0 up", fix="mend what counts them")
    return 1 - processed / ideal if ideal > 0 else 0.0


def events_lost(steps: Iterable[Step]) -> EventsLost:
    """Count a run: the steps of `mape`, or a History."""
    offered = processed = dropped = waiting = replica_seconds = 0.0
    last = None
    for step in steps:
        last = step.snapshot
        offered += last.source_rate * last.window_s
        processed += last.throughput * last.window_s
        dropped += last.dropped * last.window_s
        replica_seconds += last.deployment.instances * last.window_s
    if last is None:
        raise MetricError("a run without steps", expected="at least one", fix="run a policy first")
    waiting = sum(m.backlog for m in last.operators.values())
    return EventsLost(offered, processed, dropped, waiting, replica_seconds)
