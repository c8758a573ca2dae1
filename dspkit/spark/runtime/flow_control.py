"""Flow control: bounds the records in flight, so that sources take what the slowest operator can process.

Sockets and buffers between operators hold some ten thousand records. Before an operator of 1 ms per record that is ten
seconds of work, which would delay every record and every rescale. So the job sends its sources, five times per second,
the number of records that they may take until the next message; the rest waits in the log:

    | symbol | meaning |
    |---|---|
    | $c$ | capacity of the slowest operator, in source records/s: $\\min_v k_v \\mu_v / s_v$ |
    | $s_v$ | records that arrive at operator $v$ per source record |
    | $T$ | the longest time that any operator needs for its backlog |

They may take $c (h + T^* - T)$, with the time $h$ between two messages and the target $T^*$. A job that keeps up takes
less by itself; a micro-batch is bounded by its own limit. A frame holds no more records than keep the slowest instance
busy for a moment: it is processed as a whole, and its progress cannot be seen before its end.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from ..dataflow.frames import WORK_S
from ..metering import EVERY_S, Totals
from ..threads import ServiceThread

TARGET_S = 0.5
HEADROOM = 1.1  # rates are measured: a reading that is a little low must not limit the job
_MEMORY = 10  # readings over which rates are averaged
_LEAST = 64  # records: enough for a measurement
_FIRST = 2000  # records, as in Job.java
_UNLIMITED = 1 << 60
_FASTEST = 1 << 30  # records in a frame: sources have a limit of their own


def allowance(before: Totals, after: Totals, k: Sequence[int], inputs: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Return the records that the sources may take until the next message, and in one frame.

    `inputs` are the senders of each operator.
    """
    whole = after.operators
    taken = sum(whole.get(i, Counter())["done"] for i in range(len(k)) if not inputs[i])
    capacity, slowest, longest = float("inf"), float("inf"), 0.0
    for i, senders in inputs.items():
        did = _difference(before.operators.get(i), whole.get(i, Counter()))
        d = did if did["done"] > 0 and did["busy"] > 0 else whole.get(i, Counter())
        came = sum(whole.get(u, Counter())[f"edge {i}"] for u in senders)
        if d["done"] <= 0 or d["busy"] <= 0 or came <= 0:
            continue  # a source, or not measured yet
        able = k[i] * d["done"] / d["busy"]
        capacity = min(capacity, able * taken / came)
        slowest = min(slowest, able / k[i] * taken / came)
        sent = sum(after.epoch.get(u, Counter())[f"edge {i}"] for u in senders)
        longest = max(longest, (sent - after.epoch.get(i, Counter())["done"]) / able)
    if capacity == float("inf"):  # no operator has been measured yet: wait for the first records
        own = {i: after.epoch.get(i, Counter()) for i in range(len(k)) if not inputs[i]}
        sent = any(own[u][f"edge {i}"] for i, senders in inputs.items() for u in senders if u in own)
        dropped = any(counts["done"] for counts in own.values())
        return (0 if sent else _UNLIMITED if dropped else _FIRST), _LEAST
    least = _LEAST if longest < 2 * TARGET_S else 0
    credit = max(least, int(HEADROOM * capacity * (EVERY_S + TARGET_S - longest)))
    return credit, max(1, min(_FASTEST, int(slowest * WORK_S)))


def _difference(before: Counter[str] | None, after: Counter[str]) -> Counter[str]:
    difference = Counter(after)
    difference.subtract(before or {})
    return difference


class FlowController:
    """A thread that sends the allowance to the sources while the job runs."""

    def __init__(
        self,
        totals: Callable[[], Totals],
        k: Callable[[], Sequence[int]],
        inputs: Mapping[int, Sequence[int]],
        allow: Callable[[int, int], None],
    ):
        self._totals, self._k, self._inputs, self._allow = totals, k, inputs, allow
        self._frame = _LEAST
        self.thread = ServiceThread("dspkit-flow", "controls what the sources take", self._run)
        self.thread.start()

    def close(self) -> None:
        self.thread.close(5)
        self._allow(0, self._frame)  # what is in flight ends with the epoch; the rest stays in the logs

    def _run(self) -> None:
        seen: deque[Totals] = deque(maxlen=_MEMORY)
        while not self.thread.ended.wait(
            EVERY_S - (time.time() - EVERY_S / 4) % EVERY_S
        ):  # a little after the readings
            seen.append(self._totals())
            credit, self._frame = allowance(seen[0], seen[-1], self._k(), self._inputs)
            with contextlib.suppress(Exception):  # the supervisor reports a Spark that does not answer
                self._allow(credit, self._frame)
