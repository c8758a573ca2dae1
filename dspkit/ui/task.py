"""Work in the background of a notebook, piece by piece, with a picture now and then: no widget here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from .run import REDRAW_S


class Task:
    """`pieces()`, which a subclass gives, does one piece of the work after the other, yielding in between.

    `show(task)` is called from its thread: now and then, and at the end. Only one task of a kind goes at a time in a
    kernel: starting one tells the one before to stop.
    """

    _latest: ClassVar[Any] = None

    def __init__(self, show: Callable[[Any], None]):
        self.error: Exception | None = None
        self.over = False
        self._show = show
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"dspkit-{type(self).__name__.lower()}")

    def pieces(self) -> Iterator[None]:
        raise NotImplementedError(f"{type(self).__name__} must give pieces()")

    def start(self) -> None:
        kind = type(self)
        former, kind._latest = kind._latest, self
        if former is not None:
            former.stop()
        self._thread.start()

    @classmethod
    def stop_latest(cls) -> None:
        """Tell the task of this kind to stop, if one goes."""
        if cls._latest is not None:
            cls._latest.stop()

    def stop(self) -> None:
        """Ask it to end after the piece it is at; returns at once."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it to be over; whether it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        shown = 0.0
        try:
            for _ in self.pieces():
                if time.monotonic() - shown > REDRAW_S:
                    self._show(self)
                    shown = time.monotonic()
                if self._stop.is_set():
                    break
        except Exception as error:
            self.error = error
        self.over = True
        self._show(self)
