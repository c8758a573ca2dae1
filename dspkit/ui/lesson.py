"""A lesson with its sliders: the chart is redrawn whenever one moves."""

from __future__ import annotations

import threading
from html import escape
from typing import Any

import ipywidgets as w

from ..core import call
from .controls import Errors, Panel
from .view import show_beside, show_plot


class Lesson:
    """A view of a lesson: sliders of its knobs, its chart, and the same as code. Display it.

    Parameters
    ----------
    thing : Knobs
        Any frozen dataclass of knobs with a method `plot()`, e.g. one of `dspkit.ui.lessons`.

    Examples
    --------
    >>> from dspkit.ui import lessons
    >>> lesson = Lesson(lessons.Waiting(records=1000))
    >>> lesson["instances"].value = 4
    >>> lesson.thing.instances
    4
    """

    def __init__(self, thing: Any):
        self._errors = Errors()
        self._panel = Panel(thing, self._draw, lambda error: self._errors.note("knobs", error))
        self._chart, self._said, self._code = w.Output(), w.HTML(), w.HTML()
        self._lock = threading.Lock()
        right = w.VBox(
            [self._errors.widget, self._chart, self._said, self._code],
            layout={"flex": "1 1 430px", "overflow": "hidden"},
        )
        self.box = w.HBox([self._panel.view, right], layout={"flex_flow": "row wrap"})
        self.box.add_class("dspkit")
        self._draw(thing)

    @property
    def thing(self) -> Any:
        """The lesson with the values of its controls."""
        return self._panel.thing

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def __getitem__(self, name: str) -> Any:
        return self._panel[name]

    def _draw(self, thing: Any) -> None:
        with self._lock:
            try:
                picture = thing.plot()
            except Exception as error:  # what a lesson cannot do is for the person to read, not for a log
                self._errors.note("knobs", error)
                return
            self._errors.note("knobs", None)
            show_plot(self._chart, picture)
            self._said.value = f"<div style='line-height:1.4'><em>{escape(picture.summary)}</em></div>"
            self._code.value = f"<b>The same as code</b><pre>lessons.{escape(call(thing))}.plot()</pre>"

    def _ipython_display_(self) -> None:
        show_beside(self, self.thing.plot(), self.box)
