"""The interface between a simulated job and the engine that runs it: layouts and loads in, sums over a window out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..core import Latency
from ..core.typing import Array
from .layout import Layout

SHARES = (0.5, 0.95, 0.99)  # the percentiles of a Latency


@dataclass
class WindowSums:
    """Sums over one window, in records, seconds and both multiplied. i is an operator, e an edge, j a node."""

    arrived: Array  # [i] at the operator's queue, refused records included
    done: Array  # [i] processed
    dropped: Array  # [i] refused or lost
    busy: Array  # [i] instance-seconds spent on records, waiting for cores and for an external server included
    blocked: Array  # [i] instance-seconds of back-pressure from downstream
    cpu: Array  # [i] core-seconds
    waited_s: Array  # [i] mean time of a record from its arrival at the queue to the start of its service; NaN if none
    sent: Array  # [e]
    cores: Array  # [j] core-seconds in use
    ended: float  # source records that were processed to their end, each counted once
    stopped: float  # seconds in which some operator was paused
    queue: Array  # [i] records waiting or in service at the end
    latency: Latency | None  # from leaving the source's log to the sink; None if no record reached a sink
    event_latency: Latency | None  # the same, and the wait in the log


class Engine(Protocol):
    """Simulation of one job. The same seed and the same calls give the same windows, bit for bit."""

    def change(self, layout: Layout) -> None:
        """Use another layout from now on. Records stay where they wait; those in service are finished or restarted."""

    def pause(self, seconds: Array) -> None:
        """Pause operator i for `seconds[i]` from now on; a longer pause replaces one that has not ended."""

    def hold(self, count: Array, seconds: Array) -> None:
        """Pause `count[j, i]` of operator i's instances on node j for `seconds[i]`; the others continue.

        With worker processes the index is `count[p, j, i]`, as in `Layout.inside`. Instances that are paused already,
        and these, wait for the longer of both times.
        """

    def lose(self, share: Array) -> None:
        """Lose this share of what waits at operator i, as when a node dies."""

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        """Simulate `sum(dt)` seconds; in tick m, `rates[m, i]` records/s reach source i (0 for the others).

        `noise[i]` multiplies service times.
        """

    def window(self) -> WindowSums:
        """Return the sums since the last call."""

    @property
    def mass(self) -> float:
        """Source records inside whose processing has not ended; offered = ended + dropped + mass."""
