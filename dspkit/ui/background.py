"""One thing at a time in the background of a notebook, which stays free meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs `work(stop)` in a thread; `stop` is an Event that the work looks at. Starting again stops what ran.

    Only one Background of a kernel runs at a time, so that a cell that is run again stops its former run.
    """

    _running: Background | None = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[threading.Event], None]) -> None:
        with Background._lock:
            if Background._running is not None:
                Background._running.stop()
            Background._running = self
            stop = self._stop = threading.Event()
            self._thread = threading.Thread(target=work, args=(stop,), daemon=True, name="dspkit-run")
            self._thread.start()

    def stop(self) -> None:
        """End the work and wait until it has ended; nothing happens if none runs or it is the work that asks."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the work to end by itself; whether it has."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.running

    def is_this_thread(self) -> bool:
        return self._thread is threading.current_thread()
