"""A sweep in the background of a notebook: no widget here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import sensitivity
from ..topologies import App
from .run import REDRAW_S

if TYPE_CHECKING:
    import pandas as pd


class Sweeping:
    """Runs of all combinations of `axes`. `show(sweeping)` is called from its thread: now and then, and at the end.

    Only one goes at a time in a kernel: starting one tells the one before to stop.
    """

    _latest: Sweeping | None = None

    def __init__(
        self,
        app: App,
        policy: Any,
        axes: Mapping[str, Sequence[Any]],
        show: Callable[[Sweeping], None],
        *,
        duration_s: float = 600.0,
    ):
        self.app, self.policy, self.axes = app, policy, dict(axes)
        self.error: Exception | None = None
        self.over = False
        self._points = sensitivity.points(policy, self.axes)
        self._rows: list[dict[str, Any]] = []
        self._show, self._duration_s = show, duration_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="dspkit-sweep")

    def start(self) -> None:
        former, Sweeping._latest = Sweeping._latest, self
        if former is not None:
            former.stop()
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end after the run it is in; returns at once."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for it to be over; whether it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def done(self) -> tuple[int, int]:
        """Runs that were made, of how many."""
        return len(self._rows), len(self._points)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each combination; what was not run yet has no numbers."""
        rows = list(self._rows)
        return sensitivity.frame([*rows, *self._points[len(rows) :]], self.axes)

    def _work(self) -> None:
        shown = 0.0
        try:
            for point in self._points:
                if self._stop.is_set():
                    break
                self._rows.append(sensitivity.measure(self.app, self.policy, point, duration_s=self._duration_s))
                if time.monotonic() - shown > REDRAW_S:
                    self._show(self)
                    shown = time.monotonic()
        except Exception as error:
            self.error = error
        self.over = True
        self._show(self)
