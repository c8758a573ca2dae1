"""Keeps a query running: starts it, starts it again from its checkpoint when it died, and says so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import BackendError
from .errors import FunctionError, readable

log = logging.getLogger("dspkit")
_LOOK_S = 0.1
_LOST_COUNTS = 0.2  # a machine that was lost says little about the job; only one that is lost again and again


class Engine(Protocol):
    """One run of a query."""

    def start(self, k: Sequence[int], zero_micros: int) -> None: ...
    def begin(self, zero_micros: int) -> None: ...
    def ready(self, wait_s: float) -> bool: ...
    def want(self, k: Sequence[int]) -> None: ...
    def rescale(self, k: Sequence[int], wait_s: float) -> bool: ...
    def allow(self, records: int, in_one_frame: int) -> None: ...
    def filled(self, operator: int, counts: Sequence[int]) -> None: ...
    def alive(self) -> bool: ...
    def error(self) -> Exception | None: ...
    def finish(self, k: Sequence[int], wait_s: float) -> None: ...
    def stop(self) -> None: ...


class Supervisor:
    """A query that lives on; `records` tells how many are done, so that one that gets nowhere is given up.

    `blame` gives the operator whose function raised since it was asked last, and its traceback.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        records: Callable[[], int],
        k: Sequence[int],
        zero_micros: int,
        restarts: int,
        blame: Callable[[], tuple[str, str] | None],
    ):
        self._blame = blame
        self._last: BackendError | None = None
        self._make, self._records, self._k, self._restarts = make, records, list(k), restarts
        self._zero_micros = zero_micros
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._tries = 0.0
        self._mark = records()
        self.restarted = 0
        self.failed: Exception | None = None
        self._engine = make()
        self._engine.start(self._k, zero_micros)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="dspkit-supervisor")

    def ready(self, wait_s: float) -> bool:
        """Whether the first epoch was planned; the query is watched from now on."""
        there = self._engine.ready(wait_s)
        if not there and not self._engine.alive():
            self.failed = readable(self._engine.error(), self._blame())
        self._thread.start()
        return there

    def begin(self, zero_micros: int) -> None:
        with self._lock:
            self._zero_micros = zero_micros
            self._engine.begin(zero_micros)

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        with self._lock:
            self._k = list(k)
            self._engine.want(k)

    def rescale(self, k: Sequence[int], wait_s: float) -> bool:
        """End the epoch and run `k` from the next one on, or the next start; whether that epoch was seen to begin."""
        end = time.monotonic() + wait_s
        with self._lock:
            self._k, engine = list(k), self._engine
        if engine.rescale(k, wait_s):
            return True
        while self.failed is None and time.monotonic() < end:  # it died: its next run begins with these numbers
            with self._lock:
                if self._engine is not engine:
                    return self._engine.ready(max(0.0, end - time.monotonic()))
            if engine.alive():
                return False
            time.sleep(_LOOK_S)
        return False

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until this is said again, and so many in one frame."""
        self._engine.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """How many records each partition of a source's log has by now."""
        self._engine.filled(operator, counts)

    def close(self, wait_s: float) -> None:
        """Commit what was done, and stop."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(60)
        with self._lock:
            if self.failed is None:
                self._engine.finish(self._k, wait_s)
            else:
                self._engine.stop()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                try:
                    if self.failed is None and not self._engine.alive():
                        self._again()
                except Exception as error:  # whatever it is, observe() must tell
                    self.failed = readable(error)

    def _again(self) -> None:
        error = readable(self._engine.error(), self._blame())
        if "streaming shuffle" in str(error) and self._tries and self._last is not None:
            error = self._last  # a neighbour that fell with the one that failed: what was said before tells more
        self._last = error
        done = self._records()
        self._tries = 0 if done > self._mark else self._tries + (_LOST_COUNTS if _lost(error) else 1)
        # A function that failed before anything was done will fail again; one that worked may have met a bad moment.
        if self._tries > self._restarts or (isinstance(error, FunctionError) and done == 0):
            self.failed = error
            return
        self._mark = done
        self.restarted += 1
        log.warning("the query died and starts again after %s records: %s", done, str(error).splitlines()[0][:300])
        self._engine.stop()
        self._engine = self._make()
        self._engine.start(self._k, self._zero_micros)


def _lost(error: Exception) -> bool:
    """Whether it died with an executor, or of one that was believed to be there a moment longer than it was."""
    return any(word in str(error) for word in ("ExecutorLostFailure", "INSUFFICIENT_SLOT", "FetchFailed"))
