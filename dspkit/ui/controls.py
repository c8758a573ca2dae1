"""Widgets for knobs, drawn from the fields of a dataclass, and errors of callbacks as lines in a view."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from html import escape
from types import MappingProxyType
from typing import Any

import ipywidgets as w

from ..core import Knob, knobs_of
from ..policies.on_demand import ScaleIn, ScaleOut

CLOSE_AFTER_S = 30.0  # in which the slowest browser has drawn what was asked of it
_closing: deque[tuple[float, Any]] = deque()  # views to remove, and when
_Shown = list[tuple[Any, Any]]  # views with their boxes
_cells: dict[str, tuple[str, _Shown, _Shown]] = {}  # by cell: its last run, and what that one and the one before showed
_lock = threading.Lock()
_COLOUR = "var(--jp-error-color1, #B00020)"


class Errors:
    """One line per action that failed, which stays until the same action succeeds. `widget` shows them.

    Tests of notebooks find the lines by their class, `dspkit-error`.
    """

    def __init__(self) -> None:
        self.widget = w.HTML()
        self._said: dict[str, str] = {}

    def __str__(self) -> str:
        return str(self.widget.value)

    def note(self, what: str, error: Exception | None) -> None:
        """Record that an action failed with this error, or succeeded."""
        if error is not None:
            self._said[what] = f"{type(error).__name__}: {error}"
        else:
            self._said.pop(what, None)
        self._show()

    def forget(self) -> None:
        self._said.clear()
        self._show()

    def guard(self, what: str, act: Callable[..., Any]) -> Callable[..., None]:
        """Return a callback for the browser that notes the errors of `act`; calls from code raise them."""

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


WIDE = {"description_width": "132px"}
ROOM = {"width": "330px"}


def slider(low: float, high: float, value: float, name: str, help: str, **more: Any) -> Any:
    """Return a slider of whole numbers if both ends are whole, else of reals; logarithmic if the ends are far apart."""
    options = dict(description=name, tooltip=help, style=WIDE, layout=ROOM, **more)
    if isinstance(low, int) and isinstance(high, int):
        return w.IntSlider(min=low, max=high, value=value, **options)
    if low > 0 and high / low > 1000:
        ends = {"min": math.log10(low), "max": math.log10(high)}
        way = math.log10(value) - ends["min"]
        step = way / round(way / 0.01) if way >= 0.01 else 0.01  # the value is on a step: browsers go to the next one
        return w.FloatLogSlider(value=value, step=step, readout_format=".3g", **ends, **options)
    step = 10 ** math.floor(math.log10((high - low) / 50))
    return w.FloatSlider(min=low, max=high, value=value, step=step, readout_format=".3g", **options)


def read_control(widget: Any) -> Any:
    """Return the value of a control, rounded: browsers send 0.9999999999999999 for a slider at 1."""
    return round(widget.value, 10) if isinstance(widget.value, float) else widget.value


Ranges = Mapping[str, tuple[float, float]]  # ends of sliders by a knob's name, or by its unit where it has no ends


def control(knob: Knob, ranges: Ranges = MappingProxyType({})) -> Any | None:
    """Return the widget for one knob, or None if neither it nor `ranges` has an end for the slider."""
    help = " ".join(filter(None, (knob.help, f"({knob.unit})" if knob.unit else "", knob.source)))
    name = knob.name.replace("_", " ")
    options: dict[str, Any] = dict(description=name, tooltip=help, style=WIDE, layout=ROOM)
    if set(knob.choices) == {True, False}:
        return w.Checkbox(value=knob.value, indent=True, **options)
    if knob.choices:
        return w.Dropdown(options=list(knob.choices), value=knob.value, **options)
    low, high = knob.low, knob.high
    if knob.name in ranges:
        low, high = ranges[knob.name]
    elif (low is None or high is None or not math.isfinite(high - low)) and knob.unit in ranges:
        least = 0.0 if knob.low is None or knob.low <= 0 else ranges[knob.unit][0]
        low, high = least, ranges[knob.unit][1]
    if low is None or high is None or not math.isfinite(high - low):
        return None
    whole = isinstance(low, int) and isinstance(high, int)
    value = min(max(knob.value, low), high)
    return slider(low, high, int(value) if whole else value, name, help)


class Panel:
    """Widgets for all knobs of `thing`, a frozen dataclass.

    `changed(new)` is called with the new dataclass, or `failed(error)` if its values are inconsistent.
    `names` are the knobs that are shown, all if it is left out; `ranges` are ends for those that have none. A policy
    that can be asked for machines gets buttons for that; `now()` is the time at which they ask.
    """

    def __init__(
        self,
        thing: Any,
        changed: Callable[[Any], None],
        failed: Callable[[Exception], None],
        now: Callable[[], float] = lambda: 0.0,
        ranges: Ranges = MappingProxyType({}),
        names: Collection[str] | None = None,
        note: bool = True,
        allow: Callable[[Any], None] = lambda request: None,
    ):
        """`allow(request)` raises if the machines that are asked for are not available."""
        self.thing, self._changed, self._failed, self._now, self._allow = thing, changed, failed, now, allow
        self._controls = {
            k.name: c
            for k in knobs_of(thing)
            if (names is None or k.name in names) and (c := control(k, ranges)) is not None
        }
        for widget in self._controls.values():
            widget.observe(self._turn, "value")
        said = (type(thing).__doc__ or "").strip().partition("\n")[0]
        words = [w.HTML(f'<div style="line-height:1.3">{escape(said)}</div>', layout=ROOM)] if note else []
        self.view = w.VBox([*words, *(self._buttons() if hasattr(thing, "ask") else ()), *self])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._controls.values())

    def __getitem__(self, name: str) -> Any:
        return self._controls[name]

    def close(self) -> None:
        close(self.view)

    def ask(self, request: Any) -> None:
        """Ask the policy for machines, as the buttons do."""
        try:
            self._allow(request)
            self.thing = self.thing.ask(request)
        except Exception as error:
            self._failed(error)
        else:
            self._changed(self.thing)

    def _buttons(self) -> list[Any]:
        machines = w.BoundedIntText(1, min=1, max=1000, description="machines", style=WIDE, layout=ROOM)
        buttons = []
        for text, icon, kind, said in (
            ("Scale out", "plus", ScaleOut, "so many machines join in the next window"),
            ("Scale in", "minus", ScaleIn, "so many machines leave in the next window"),
        ):
            button = w.Button(description=text, icon=icon, tooltip=said, layout={"width": "auto"})
            button.on_click(lambda _, kind=kind: self.ask(kind(machines.value, self._now())))
            buttons.append(button)
        self.asking = (machines, *buttons)
        return [machines, w.HBox(buttons)]

    def _turn(self, _: Any) -> None:
        try:
            self.thing = replace(self.thing, **{name: read_control(c) for name, c in self._controls.items()})
        except Exception as error:  # a policy's own checks may raise anything
            self._failed(error)
        else:
            self._changed(self.thing)


def replace_former(view: Any, box: Any) -> None:
    """Close the views that former runs of this cell displayed, as their output is no longer in the notebook.

    Those of the run before this one stay until the next, as this run may display them again; those that another cell
    displays, or a variable names, stay as well. IPython's `Out` forgets those that are closed. Nothing is closed where
    the front end does not say which cell it runs; JupyterLab does.
    """
    from IPython import get_ipython

    shell = get_ipython()
    request: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell, run = (request.get(part, {}).get(name) for part, name in (("metadata", "cellId"), ("header", "msg_id")))
    if not cell:
        return
    former_run, former, before = _cells.get(cell, ("", [], []))
    if former_run == run:
        former.append((view, box))
        return
    _cells[cell] = run, [(view, box)], former
    names = getattr(shell, "user_ns", {})
    kept = {id(each) for _, *shown in _cells.values() for each, _ in (*shown[0], *shown[1])}
    kept |= {id(value) for name, value in names.items() if not name.startswith("_")}
    for each, its_box in before:
        if id(each) not in kept:
            close(its_box)
            for held in (names, names.get("_oh", {}), getattr(shell, "user_ns_hidden", {})):
                for name in [name for name, value in held.items() if value is each]:
                    del held[name]


def close(view: Any) -> None:
    """Remove a view and all in it from the kernel's list of widgets, which would keep them forever.

    Its controls stop being heard at once. It is removed a while later: a browser applies the changes of a container one
    after the other, and may still have to draw the view that another one has replaced ("widget model not found").
    """
    _unheard(view)
    with _lock:
        _closing.append((time.monotonic() + CLOSE_AFTER_S, view))
    remove_closed()


def remove_closed(now: float | None = None) -> None:
    """Remove the views that were closed long enough before `now`; each later `close` does so, too."""
    now = time.monotonic() if now is None else now
    due = []
    with _lock:
        while _closing and _closing[0][0] <= now:
            due.append(_closing.popleft()[1])
    for view in due:
        _remove(view)


def _unheard(view: Any) -> None:
    for child in getattr(view, "children", ()):
        _unheard(child)
    for part in (view, getattr(view, "layout", None), getattr(view, "style", None)):
        if isinstance(part, w.Widget):
            part.unobserve_all()


def _remove(view: Any) -> None:
    for child in getattr(view, "children", ()):
        _remove(child)
    for part in (view, getattr(view, "layout", None), getattr(view, "style", None)):
        if isinstance(part, w.Widget):
            part.close()
