"""Keeps little under way: sources take what the slowest operator can do, and what is more waits in the log.

Sockets and buffers between operators hold some ten thousand records. Before an operator of 1 ms a record that is ten
seconds of work, through which every record and every rescale would have to wait. So the job says, five times a second,
how many records its sources may take until it speaks again:

    | symbol | meaning |
    |---|---|
    | $c$ | what the slowest operator can do, in source records a second: $\\min_v k_v \\mu_v / s_v$ |
    | $s_v$ | records that come to operator $v$ for each source record |
    | $T$ | the longest that any operator needs for what waits before it |

They may take $c (h + T^* - T)$, with the time $h$ between two words and the target $T^*$. A job that keeps up takes
less by itself; a micro-batch takes what its own bound says. A frame holds no more than what keeps the slowest instance
busy for a moment: it is done as a whole, and nobody can tell before it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from .collector import Totals
from .meter import EVERY_S

TARGET_S = 0.5
HEADROOM = 1.1  # rates are measured: never hold a job back for a reading that is a little low
_MEMORY = 10  # readings over which rates are taken
_LEAST = 64  # records: enough to measure by
_FIRST = 2000  # records, as in Job.java
_UNLIMITED = 1 << 60
_FRAME_S = 0.02  # of work for the slowest instance
_FRAME = 2048  # records at most: a frame costs Spark and Python as much as some hundred records


def allowance(before: Totals, after: Totals, k: Sequence[int], inputs: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Records that the sources may take until the next word, and in one frame; `inputs` are each operator's senders."""
    whole = after.operators
    taken = sum(whole.get(i, Counter())["done"] for i in range(len(k)) if not inputs[i])
    capacity, slowest, longest = float("inf"), float("inf"), 0.0
    for i, senders in inputs.items():
        did = _difference(before.operators.get(i), whole.get(i, Counter()))
        d = did if did["done"] > 0 and did["busy"] > 0 else whole.get(i, Counter())
        came = sum(whole.get(u, Counter())[f"edge {i}"] for u in senders)
        if d["done"] <= 0 or d["busy"] <= 0 or came <= 0:
            continue  # a source, or nothing is known yet
        able = k[i] * d["done"] / d["busy"]
        capacity = min(capacity, able * taken / came)
        slowest = min(slowest, able / k[i] * taken / came)
        sent = sum(after.epoch.get(u, Counter())[f"edge {i}"] for u in senders)
        longest = max(longest, (sent - after.epoch.get(i, Counter())["done"]) / able)
    if capacity == float("inf"):  # nobody has done anything yet: what was sent first shall tell how long it takes
        own = {i: after.epoch.get(i, Counter()) for i in range(len(k)) if not inputs[i]}
        sent = any(own[u][f"edge {i}"] for i, senders in inputs.items() for u in senders if u in own)
        dropped = any(counts["done"] for counts in own.values())
        return (0 if sent else _UNLIMITED if dropped else _FIRST), _LEAST
    least = _LEAST if longest < 2 * TARGET_S else 0
    credit = max(least, int(HEADROOM * capacity * (EVERY_S + TARGET_S - longest)))
    return credit, max(1, min(_FRAME, int(slowest * _FRAME_S)))


def _difference(before: Counter[str] | None, after: Counter[str]) -> Counter[str]:
    difference = Counter(after)
    difference.subtract(before or {})
    return difference


class Flow:
    """Speaks to the sources as long as the job runs."""

    def __init__(
        self,
        totals: Callable[[], Totals],
        k: Callable[[], Sequence[int]],
        inputs: Mapping[int, Sequence[int]],
        allow: Callable[[int, int], None],
    ):
        self._totals, self._k, self._inputs, self._allow = totals, k, inputs, allow
        self._frame = _LEAST
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="dspkit-flow")
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(5)
        self._allow(_UNLIMITED, self._frame)

    def _run(self) -> None:
        seen: deque[Totals] = deque(maxlen=_MEMORY)
        while not self._ended.wait(EVERY_S - (time.time() - EVERY_S / 4) % EVERY_S):  # a little after the readings
            seen.append(self._totals())
            with contextlib.suppress(Exception):  # a Spark that does not answer: the supervisor says so
                credit, self._frame = allowance(seen[0], seen[-1], self._k(), self._inputs)
                self._allow(credit, self._frame)
