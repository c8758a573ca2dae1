"""What tasks stand on: a clock, channels that keep their order, nodes' data stores, and a store to coordinate by."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ..knobs import Knobs, knob

Name = tuple[str, int]  # (operator, index of the task)


@dataclass(frozen=True)
class Costs(Knobs):
    """How long things take during a migration."""

    delay_s: float = knob(1e-3, "from node to node", low=0.0, high=60.0, unit="s")
    service_s: float = knob(1e-3, "a task's work on one record", low=0.0, high=60.0, unit="s")
    watch_s: float = knob(5e-3, "until everybody knows what the coordination store says", low=0.0, high=60.0, unit="s")
    poll_s: float = knob(
        0.0, "time between looks at it, 0 to be told; the prototype looks each second", low=0.0, high=60.0, unit="s"
    )
    start_s: float = knob(0.5, "to start a task on its new node", low=0.0, high=600.0, unit="s")
    bytes_per_s: float = knob(
        12.5e6, "speed at which state travels and is kept", low=1.0, high=math.inf, unit="B/s", infinite=True
    )
    record_bytes: float = knob(100.0, "size of a record in a buffer", low=0.0, high=1e9, unit="B")
    eos_wait_s: float = knob(120.0, "patience for a missing end of stream", low=0.0, high=3600.0, unit="s")
    barrier_wait_s: float = knob(180.0, "patience at barrier 1", low=0.0, high=3600.0, unit="s")
    drain_wait_s: float = knob(
        0.0, "a restored task waits this long before it goes on; the prototype up to 10 s", low=0.0, high=60.0, unit="s"
    )
    repeats: float = knob(0.0, "share of records that the network delivers twice", low=0.0, high=1.0)
    jitter: float = knob(0.0, "how much longer a delay may take, at random, as a multiple of it", low=0.0, high=100.0)


@dataclass
class Kept:
    """What a node's data store holds of a task that moves."""

    state: Any
    inbox: list[Any]
    outboxes: dict[str, list[Any]]
    sent: dict[Name, int]
    seen: dict[Name, tuple[int, int]]
    size: float


@dataclass
class Store:
    """Keys that everybody can read: who is saved (barrier 1), restored (barrier 2), and where a task's state is."""

    saved: dict[int, set[Name]] = field(default_factory=dict)
    restored: dict[int, set[Name]] = field(default_factory=dict)
    where: dict[Name, str] = field(default_factory=dict)


class Network:
    """Events in the order of their time, and messages that arrive in the order in which they were sent."""

    def __init__(self, costs: Costs, seed: int = 0):
        self.now, self.costs, self.random = 0.0, costs, random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._last: dict[Hashable, float] = {}  # arrival of the last message of each channel

    def at(self, t: float, what: Callable[..., None], *details: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(t, self.now), self._count, what, details))

    def told(self, what: Callable[..., None], *details: Any) -> None:
        """Let somebody know of a change in the coordination store: at once, or when it looks."""
        t = self.now + self._longer(self.costs.watch_s)
        if self.costs.poll_s:
            t = math.ceil(t / self.costs.poll_s) * self.costs.poll_s
        self.at(t, what, *details)

    def send(self, channel: Hashable, same_node: bool, deliver: Callable[..., None], *message: Any) -> None:
        """What is sent on one channel arrives in order; now and then, if so asked, twice."""
        t = self.now + (0.0 if same_node else self._longer(self.costs.delay_s))
        self._last[channel] = t = max(t, self._last.get(channel, 0.0))
        self.at(t, deliver, *message)
        if self.random.random() < self.costs.repeats:  # some time later
            self.at(t + self._longer(max(self.costs.delay_s, self.costs.service_s)), deliver, *message)

    def play(self, until: float) -> None:
        """Let everything happen that happens before `until`."""
        while self._events and self._events[0][0] <= until:
            t, _, what, details = heapq.heappop(self._events)
            self.now = t
            what(*details)
        self.now = max(self.now, min(until, math.inf)) if math.isfinite(until) else self.now

    def _longer(self, seconds: float) -> float:
        return seconds * (1 + self.costs.jitter * self.random.random()) if self.costs.jitter else seconds
