"""Supervision of a query: starts it, and restarts it from its checkpoint when it has died."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...core import DspkitError
from ..errors import FunctionError, readable
from ..threads import ServiceThread
from .session import log_advice, mark_log

log = logging.getLogger("dspkit")
_LOOK_S = 0.1
_STALL_LOOK_S = 1.0
STALL_S = 30.0  # without a record done although some wait, before a warning
_LOST_COUNTS = 0.2  # weight of a lost machine, which says little about the job unless it is repeated


class QueryEngine(Protocol):
    """The interface of one run of a query."""

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        """Start the query; if the logs have not begun (0) they wait for `begin`."""

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""

    def ready(self, timeout_s: float) -> bool:
        """Return whether the first epoch is planned."""

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""

    def rescale(self, k: Sequence[int], timeout_s: float) -> bool:
        """End the epoch and run the next with `k`; return whether it began within `timeout_s`."""

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""

    def alive(self) -> bool:
        """Return whether the query runs."""

    def error(self) -> Exception | None:
        """Return the reason why the query died."""

    def finish(self, k: Sequence[int], timeout_s: float) -> None:
        """Commit what was done, then stop."""

    def stop(self) -> None:
        """Stop the query at once."""


@dataclass(frozen=True)
class Progress:
    """Sums since the job began, from which a stall can be detected: records done, and seconds of tasks by operator."""

    done: float
    waiting: float  # records that have been offered and are not done
    committed: int  # newest committed epoch
    tasks: Mapping[str, int]  # running now, by operator
    spent: Mapping[str, tuple[float, float, float]]  # seconds of waiting for input, of work, and blocked, by operator


class StallWatch:
    """A watch over a query that runs but makes no progress although records wait; it speaks once per stall."""

    def __init__(self, progress: Callable[[], Progress], clock: Callable[[], float] = time.monotonic):
        self._progress, self._clock = progress, clock
        self._since, self._first = clock(), progress()
        self._spoken = False

    def look(self) -> str | None:
        """Return what is known of a stall that has just become one, or None."""
        now, seen = self._clock(), self._progress()
        moved = seen.done != self._first.done or seen.committed != self._first.committed
        if moved or seen.waiting < 1:
            self._since, self._first, self._spoken = now, seen, False
        if self._spoken or now - self._since < STALL_S:
            return None
        self._spoken = True
        return (
            f"no record was done for {now - self._since:.0f} s although {seen.waiting:,.0f} wait; newest committed "
            f"epoch {seen.committed}; {'; '.join(self._account(name, seen) for name in seen.tasks) or 'no task runs'}"
        )

    def _account(self, name: str, seen: Progress) -> str:
        """Return the way in which the tasks of one operator have spent their time since the stall began."""
        before = self._first.spent.get(name, (0.0, 0.0, 0.0))
        spent = [max(0.0, b - a) for a, b in zip(before, seen.spent.get(name, before), strict=True)]
        kinds = ("wait for input", "work", "blocked by the next operator")
        said = kinds[spent.index(max(spent))] if sum(spent) else "no reading since"
        return f"{name}: {seen.tasks[name]} tasks, {said}"


class Supervisor:
    """A query that is restarted. `records` returns the records done, to give up a query that makes no progress.

    `blame` returns the operator whose function raised since the last call, and its traceback; `advice` where Spark's
    own log is; `progress` lets it warn of a query that makes no progress.
    """

    def __init__(
        self,
        make: Callable[[], QueryEngine],
        records: Callable[[], int],
        k: Sequence[int],
        zero_micros: int,
        restarts: int,
        blame: Callable[[], tuple[str, str] | None],
        advice: Callable[[str], str] = log_advice,
        progress: Callable[[], Progress] | None = None,
    ):
        self._stall = StallWatch(progress) if progress is not None else None
        self._blame, self._advice = blame, advice
        self._last: DspkitError | None = None
        self._make, self._records, self._k, self._restarts = make, records, list(k), restarts
        self._zero_micros = zero_micros
        self._lock = threading.RLock()
        self._tries = self._next_stall_look = 0.0
        self._mark = records()
        self.restarted = 0
        self.failed: Exception | None = None
        self._engine = make()
        mark_log()
        self._engine.start(self._k, zero_micros)
        self.thread = ServiceThread("dspkit-supervisor", "restarts a query that has died", self._watch)

    def ready(self, timeout_s: float) -> bool:
        """Return whether the first epoch was planned; the query is supervised from now on."""
        there = self._engine.ready(timeout_s)
        if not there and not self._engine.alive():
            self.failed = readable(self._engine.error(), self._blame(), self._advice)
        self.thread.start()
        return there

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""
        with self._lock:
            self._zero_micros = zero_micros
            self._engine.begin(zero_micros)

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        with self._lock:
            self._k = list(k)
            self._engine.want(k)

    def rescale(self, k: Sequence[int], timeout_s: float) -> bool:
        """End the epoch and run `k` from the next epoch or start on; return whether that began in time."""
        end = time.monotonic() + timeout_s
        with self._lock:
            self._k, engine = list(k), self._engine
        if engine.rescale(k, timeout_s):
            return True
        while self.failed is None and time.monotonic() < end:  # the query died: its next run begins with `k`
            with self._lock:
                if self._engine is not engine:
                    return self._engine.ready(max(0.0, end - time.monotonic()))
            if engine.alive():
                return False
            time.sleep(_LOOK_S)
        return False

    def cut(self) -> None:
        """End the present epoch, without waiting for the next one."""
        with self._lock:
            self._engine.rescale(self._k, 0)

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""
        self._engine.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""
        self._engine.filled(operator, counts)

    def close(self, timeout_s: float) -> None:
        """Commit what was done, and stop."""
        self.thread.close(60)
        with self._lock:
            if self.failed is None:
                self._engine.finish(self._k, timeout_s)
            else:
                self._engine.stop()

    def _watch(self) -> None:
        while not self.thread.ended.wait(_LOOK_S):
            self._warn_of_a_stall()
            with self._lock:
                try:
                    if self.failed is None and not self._engine.alive():
                        self._again()
                except Exception as error:  # observe() must report it, whatever it is
                    self.failed = readable(error, advice=self._advice)

    def _warn_of_a_stall(self) -> None:
        if self._stall is None or self.failed is not None or time.monotonic() < self._next_stall_look:
            return
        self._next_stall_look = time.monotonic() + _STALL_LOOK_S
        try:
            if said := self._stall.look():
                log.warning("%s; %s", said, self._advice(""))
        except Exception as error:  # what cannot be measured is no reason to end a job
            log.debug("no progress could be measured: %s", error)

    def _again(self) -> None:
        error = readable(self._engine.error(), self._blame(), self._advice)
        if "streaming shuffle" in str(error) and self._tries and self._last is not None:
            error = self._last  # an operator that failed with another one: the earlier message explains more
        self._last = error
        done = self._records()
        self._tries = 0 if done > self._mark else self._tries + (_LOST_COUNTS if _lost(error) else 1)
        # A function that failed before any progress will fail again; for one that worked the cause may be temporary.
        if self._tries > self._restarts or (isinstance(error, FunctionError) and done == 0):
            self.failed = error
            return
        self._mark = done
        self.restarted += 1
        log.warning("the query died and starts again after %s records: %s", done, str(error).splitlines()[0][:300])
        self._engine.stop()
        self._engine = self._make()
        mark_log()
        self._engine.start(self._k, self._zero_micros)


def _lost(error: Exception) -> bool:
    """Return whether the query died with an executor, or of one that was assumed alive for a moment too long."""
    return any(word in str(error) for word in ("ExecutorLostFailure", "INSUFFICIENT_SLOT", "FetchFailed"))
