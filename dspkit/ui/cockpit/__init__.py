"""The live picture of a run as one widget: the graph of operators, tiles, charts, decisions, and the run's buttons.

The browser draws (cockpit.js) and pulls: it asks for the windows that it does not have, and asks again once they are
drawn. The kernel answers each question once, when there is something new. So a browser that is slow, hidden or gone is
sent nothing that it cannot draw, one that is opened later is sent the whole run, and several do not disturb each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from ...core import History, Topology
from ...plots import playback

MOST_ROWS = 200  # windows of one message: the next are sent when these are drawn
MOST_CLIENTS = 16  # browsers that are remembered; the oldest is forgotten
_HERE = Path(__file__).parent


class ShownRun(Protocol):
    """A run that a cockpit can show: what it has recorded so far, and None before its first window."""

    history: History | None


class Button:
    """A button of the cockpit, which code can press as a person does.

    Parameters
    ----------
    text : str
        Its text and name.
    act : callable
        The action.
    changed : callable
        Called after a change of `description` or `disabled`.

    Examples
    --------
    >>> pressed = []
    >>> Button("Start", lambda: pressed.append(1), lambda: None).click()
    >>> pressed
    [1]
    """

    def __init__(self, text: str, act: Callable[[], Any], changed: Callable[[], None]):
        self._text, self._disabled, self._act, self._changed = text, False, act, changed

    def click(self) -> None:
        """Press it; one that is disabled does nothing.

        Examples
        --------
        >>> Button("Stop", print, lambda: None).click()
        <BLANKLINE>
        """
        if not self._disabled:
            self._act()

    @property
    def description(self) -> str:
        """The text that it shows."""
        return self._text

    @description.setter
    def description(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self._changed()

    @property
    def disabled(self) -> bool:
        """True if it cannot be pressed."""
        return self._disabled

    @disabled.setter
    def disabled(self, disabled: bool) -> None:
        if disabled != self._disabled:
            self._disabled = disabled
            self._changed()


class Cockpit(anywidget.AnyWidget):
    """The widget; a view puts a scene and runs into it, and gets what a person does from it.

    Parameters
    ----------
    act : callable
        Called with the name and the arguments of what a person does: `act("move", operator="count", parallelism=3)`.

    Examples
    --------
    >>> from dspkit import apps
    >>> cockpit = Cockpit(lambda what, **more: print(what, more))
    >>> cockpit.show(apps.star().topology)
    >>> cockpit.hear({"type": "move", "operator": "bolt", "parallelism": 3})
    move {'operator': 'bolt', 'parallelism': 3}
    """

    _esm = _HERE / "cockpit.js"
    _css = _HERE / "cockpit.css"
    scene = traitlets.Dict().tag(sync=True)
    head = traitlets.Dict().tag(sync=True)  # what is known of the run that is shown
    status = traitlets.Unicode("").tag(sync=True)
    summary = traitlets.Unicode("").tag(sync=True)
    buttons = traitlets.Dict().tag(sync=True)

    def __init__(self, act: Callable[..., Any]):
        self._act, self._guard = act, threading.Lock()
        self._asked: dict[tuple[str, str], dict[str, int]] = {}  # by browser and run: the windows and notes it has
        self._shown: dict[str, ShownRun] = {}
        super().__init__()
        self.on_msg(lambda _, content, __: self.hear(content))

    def show(self, topology: Topology | None) -> None:
        """Show a graph, and no run.

        Parameters
        ----------
        topology : Topology, optional
            The operators; None where they are not known yet.

        Examples
        --------
        >>> from dspkit import apps
        >>> cockpit = Cockpit(print)
        >>> cockpit.show(apps.star().topology)
        >>> len(cockpit.scene["nodes"])
        6
        """
        self.scene = {} if topology is None else playback.scene(topology)

    def keep(self, runs: Mapping[str, ShownRun]) -> None:
        """Serve these runs by their names, and no others.

        Parameters
        ----------
        runs : mapping
            The runs.

        Examples
        --------
        >>> Cockpit(print).keep({})
        """
        with self._guard:
            self._shown = dict(runs)
            self._asked = {key: have for key, have in self._asked.items() if key[1] in self._shown}

    def publish(self) -> None:
        """Send each waiting browser the windows that it does not have; cheap if there are none.

        Examples
        --------
        >>> Cockpit(print).publish()
        """
        with self._guard:
            for key, have in list(self._asked.items()):
                if (news := self._news(key[1], have)) is not None:
                    del self._asked[key]
                    self.send({"type": "rows", "client": key[0], "run": key[1], **news})

    def _news(self, run: str, have: Mapping[str, int]) -> dict[str, Any] | None:
        """Return what a run has recorded since, or None."""
        history = self._shown[run].history if run in self._shown else None
        if history is None:
            return None
        start, noted = min(have["rows"], len(history)), min(have["notes"], len(history.notes))
        stop = min(len(history), start + MOST_ROWS)
        if stop == start and noted == len(history.notes):
            return None
        return {
            "from": start,
            "rows": playback.rows(history, start, stop),
            "noted": noted,
            "notes": playback.notes(history, noted),
        }

    def hear(self, content: Any) -> None:
        """Take a message of a browser; what is not understood is ignored.

        Parameters
        ----------
        content : mapping
            The message.

        Examples
        --------
        >>> Cockpit(print).hear({"type": "nonsense"})
        """
        match content:
            case {"type": "ready", "client": str(client), "run": str(run), "rows": int(rows), "notes": int(notes)}:
                with self._guard:
                    if run in self._shown:
                        self._asked.pop((client, run), None)
                        self._asked[client, run] = {"rows": max(0, rows), "notes": max(0, notes)}
                        while len(self._asked) > MOST_CLIENTS:
                            del self._asked[next(iter(self._asked))]
                self.publish()
            case {"type": "press", "button": str(button)}:
                self._act("press", button=button)
            case {"type": "move", "operator": str(operator), "parallelism": int(parallelism)}:
                self._act("move", operator=operator, parallelism=parallelism)
            case {"type": "branch", "run": str(run), "windows": int(windows)}:
                self._act("branch", run=run, windows=windows)
