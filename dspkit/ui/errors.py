"""Errors of callbacks as readable lines in a view, instead of traces in a log that nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as w

_COLOUR = "var(--jp-error-color1, #B00020)"


class Errors:
    """A line for each thing that went wrong; it stays until the same thing succeeds. `widget` shows them.

    A notebook's test finds the lines by their class, `dspkit-error`.
    """

    def __init__(self) -> None:
        self.widget = w.HTML()
        self._said: dict[str, str] = {}

    def __str__(self) -> str:
        return str(self.widget.value)

    def note(self, what: str, error: Exception | None) -> None:
        """`what` went wrong, or has gone well."""
        if error is not None:
            self._said[what] = f"{type(error).__name__}: {error}"
        else:
            self._said.pop(what, None)
        self._show()

    def forget(self) -> None:
        self._said.clear()
        self._show()

    def guard(self, what: str, act: Callable[..., Any]) -> Callable[..., None]:
        """`act` for the browser, which notes its errors. Callers from code get the error itself."""

        def guarded(*args: Any) -> None:
            try:
                act(*args)
            except Exception as error:
                self.note(what, error)
            else:
                self.note(what, None)

        return guarded

    def _show(self) -> None:
        text = "".join(
            f'<p class="dspkit-error" role="alert" style="color:{_COLOUR};line-height:1.4">⚠ {escape(line)}</p>'
            for line in self._said.values()
        )
        if text != self.widget.value:
            self.widget.value = text
