"""A sweep in the background of a notebook: no widget here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import sensitivity
from ..topologies import App
from .task import Task

if TYPE_CHECKING:
    import pandas as pd


class Sweeping(Task):
    """Runs of all combinations of `axes`."""

    def __init__(
        self,
        app: App,
        policy: Any,
        axes: Mapping[str, Sequence[Any]],
        show: Callable[[Any], None],
        *,
        duration_s: float = 600.0,
    ):
        super().__init__(show)
        self.app, self.policy, self.axes = app, policy, dict(axes)
        self._points = sensitivity.points(policy, self.axes)
        self._rows: list[dict[str, Any]] = []
        self._duration_s = duration_s

    @property
    def done(self) -> tuple[int, int]:
        """Runs that were made, of how many."""
        return len(self._rows), len(self._points)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each combination; what was not run yet has no numbers."""
        rows = list(self._rows)
        return sensitivity.frame([*rows, *self._points[len(rows) :]], self.axes)

    def pieces(self) -> Iterator[None]:
        for point in self._points:
            if self.stopping:
                return
            self._rows.append(sensitivity.measure(self.app, self.policy, point, duration_s=self._duration_s))
            yield
