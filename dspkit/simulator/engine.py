"""What the two engines have in common: how they are told what runs, and what they give back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..core import Latency
from .layout import Array, Layout

SHARES = (0.5, 0.95, 0.99)  # the percentiles that a Latency holds


@dataclass
class Window:
    """Sums over one window, in records, seconds and both multiplied. i is an operator, e an edge, j a node."""

    arrived: Array  # [i] at the operator's queue, those it refused included
    done: Array  # [i]
    dropped: Array  # [i] refused or lost
    busy: Array  # [i] instance-seconds spent on records, waiting for cores and for an external server included
    blocked: Array  # [i] instance-seconds held back by what it feeds
    cpu: Array  # [i] core-seconds
    waited_s: Array  # [i] mean time of a record from its arrival at the queue to the start of its service; NaN if none
    sent: Array  # [e]
    cores: Array  # [j] core-seconds in use
    ended: float  # source records whose processing ended, each counted once
    stopped: float  # seconds in which some operator stood still
    queue: Array  # [i] records waiting or in service at the end
    latency: Latency | None  # from leaving the source's log to the sink; None if nothing came out
    event_latency: Latency | None  # the same, and the wait in the log


class Engine(Protocol):
    """Plays a job forward. The same seed and the same calls give the same windows, bit for bit."""

    def change(self, layout: Layout) -> None:
        """Another layout from now on. Records stay where they wait; those in service are finished or begun anew."""

    def pause(self, seconds: Array) -> None:
        """Operator i starts nothing for `seconds[i]` from now on; a pause that goes on is replaced if longer."""

    def hold(self, count: Array, seconds: Array) -> None:
        """`count[j, i]` of operator i's instances on node j start nothing for `seconds[i]`; the others go on.

        Where processes are told apart, it is `count[p, j, i]`, as in `Layout.inside`.
        If some stand still already, they and these wait for the longer of both times.
        """

    def lose(self, share: Array) -> None:
        """Of what waits at operator i, this share is lost, as when a node dies."""

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        """Go on for `sum(dt)` seconds; in tick m, `rates[m, i]` records/s reach source i (0 for the others).

        `noise[i]` multiplies service times.
        """

    def window(self) -> Window:
        """What was played since the last call."""

    @property
    def mass(self) -> float:
        """Source records inside whose processing has not ended; offered = ended + dropped + this."""
