"""Work in the background of a notebook, piece by piece, with a picture now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator

from .background import REDRAW_S, Background


class Task(Background):
    """`pieces()`, which a subclass gives, does one piece of the work after the other, yielding in between."""

    def pieces(self) -> Iterator[None]:
        raise NotImplementedError(f"{type(self).__name__} must give pieces()")

    def work(self) -> None:
        shown = 0.0
        for _ in self.pieces():
            if time.monotonic() - shown > REDRAW_S:
                self._show(self)
                shown = time.monotonic()
            if self.stopping:
                break
