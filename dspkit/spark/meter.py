"""The meter of one task: what it did with its time, and how old the records were that it finished.

Time is in one of three states: waiting for input, busy, or blocked by what takes its output. Readings are sums since
the task began, sent by UDP to the driver five times a second, so that one that gets lost is made up for by the next.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import threading
import time
from collections import Counter
from typing import Any

WAIT, BUSY, BLOCKED = range(3)
EVERY_S = 0.2  # at whole multiples of it on the clock, so that all tasks are read at the same moment
STEP = math.log(1.04)  # of the latency histogram: a percentile is at most 2 % off
SHORTEST_S = 1e-4


def bucket(seconds: float) -> int:
    return max(0, round(math.log(max(seconds, SHORTEST_S) / SHORTEST_S) / STEP))


def middle(index: int) -> float:
    return SHORTEST_S * math.exp(index * STEP)


class Meter:
    """Turn it to what the task does next; count what it did."""

    def __init__(self, address: tuple[str, int], about: dict[str, Any]):
        self._address, self._about = address, about
        self._spent = [0.0, 0.0, 0.0]
        self._doing, self._since = WAIT, time.perf_counter()
        self._cpu, self._said = time.process_time(), ""
        self.arrived = self.done = self.results = 0
        self.edges: dict[int, Any] = {}  # frames.Edge by receiver: they count what they send
        self.read_to: dict[int, int] = {}  # of a source: how far each partition of its log was taken
        self._ages = [Counter[int](), Counter[int]()]
        self._age_sums = [0.0, 0.0]
        self._began = time.time()
        self._ended = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._thread.start()

    def turn(self, doing: int) -> None:
        now = time.perf_counter()
        self._spent[self._doing] += now - self._since
        self._doing, self._since = doing, now

    def elsewhere(self, seconds: float, cpu: float) -> None:
        """Java worked for this task while Python waited for it: so long, and so much of a core."""
        self._cpu -= cpu
        moved = min(seconds, self._spent[WAIT])
        self._spent[WAIT] -= moved
        self._spent[BUSY] += moved

    def finish(self, read: Any, event: Any) -> None:
        """Records with these stamps (microseconds) have come to their end."""
        import numpy as np

        now = time.time()
        for ages, (i, stamps) in zip(self._ages, enumerate((read, event)), strict=True):
            seconds = np.maximum(now - stamps * 1e-6, SHORTEST_S)
            self._age_sums[i] += float(seconds.sum())
            found, counts = np.unique(np.rint(np.log(seconds / SHORTEST_S) / STEP).astype(int), return_counts=True)
            for index, count in zip(found.tolist(), counts.tolist(), strict=True):
                ages[index] += count

    def fail(self, operator: str, error: str) -> None:
        """Tell what the user's function raised: Spark may name a neighbour that fell with it."""
        self._say({"failed": [operator, error[-30_000:]]})

    def close(self) -> None:
        self.turn(WAIT)
        self._ended.set()
        self._thread.join()
        self._send(final=True)
        self._socket.close()

    def _tell(self) -> None:
        while not self._ended.wait(EVERY_S - time.time() % EVERY_S):
            self._send(final=False)

    def _send(self, *, final: bool) -> None:
        spent, now = list(self._spent), time.perf_counter()
        spent[self._doing] += now - self._since  # an open stretch counts up to now
        counts = {
            "arrived": self.arrived,
            "done": self.done,
            "results": self.results,
            "wait": spent[WAIT],
            "busy": spent[BUSY],
            "blocked": spent[BLOCKED],
            "cpu": time.process_time() - self._cpu,
            **{f"edge {end}": edge.sent for end, edge in self.edges.items()},
            **{f"{name} sum": total for name, total in zip(("latency", "event"), self._age_sums, strict=True)},
        }
        for name, ages in zip(("latency", "event"), self._ages, strict=True):
            counts |= {f"{name} {index}": count for index, count in ages.copy().items()}
        times = {"began": self._began, "now": time.time()}
        self._say(times | {"read_to": self.read_to, "final": final, "counts": counts})

    def _say(self, told: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the driver is gone, and Spark ends this task
            self._socket.sendto(json.dumps(self._about | told).encode(), self._address)
