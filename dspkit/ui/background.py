"""A thread of a notebook with a Stop: one of a kind goes at a time in a kernel. No widget here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

REDRAW_S = 0.25  # a browser that must draw more often falls behind


class Background:
    """A subclass gives `work()`, which looks at `stopping` between two pieces of its work.

    `show(self)` is called from the thread: now and then by `work`, and once when all is over. Starting one of a kind
    tells the one before to stop, and waits for it in the new one's thread.
    """

    _latest: ClassVar[Any] = None
    _starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, show: Callable[[Any], None]):
        self.error: Exception | None = None
        self.over = False
        self._show = show
        self._stop = threading.Event()
        self._former: Background | None = None
        self._thread = threading.Thread(target=self._all, daemon=True, name=f"dspkit-{type(self).__name__.lower()}")

    def work(self) -> None:
        raise NotImplementedError(f"{type(self).__name__} must give work()")

    def start(self) -> None:
        kind = type(self)
        with self._starting:
            self._former, kind._latest = kind._latest, self
            if self._former is not None:
                self._former.stop()
            self._thread.start()

    @classmethod
    def stop_latest(cls) -> None:
        """Tell the one of this kind to stop, if one goes."""
        if cls._latest is not None:
            cls._latest.stop()

    def stop(self) -> None:
        """Ask it to end after the piece it is at; returns at once."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it to be over; whether it is."""
        self._thread.join(timeout_s)
        return not self.running

    def is_this_thread(self) -> bool:
        return self._thread is threading.current_thread()

    def _all(self) -> None:
        if self._former is not None:
            self._former.wait()
            self._former = None
        try:
            if not self.stopping:
                self.work()
        except Exception as error:
            self.error = error
        self.over = True
        self._show(self)
