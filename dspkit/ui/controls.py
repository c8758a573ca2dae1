"""Controls of knobs, drawn from the fields of a dataclass; pickers of loads and plants; errors as lines in a view."""

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

from .. import workload
from ..apps import App
from ..core import Knob, knobs_of
from ..policies.on_demand import ScaleIn, ScaleOut
from ..simulator import VARIANTS, variant
from ..workload import Workload

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


OWN_LOAD = "its own"
SHAPES: Mapping[str, type[Workload]] = MappingProxyType(
    {
        "constant": workload.Constant,
        "one step": workload.Jump,
        "stair": workload.Stair,
        "wave": workload.Sine,
        "square": workload.Square,
        "bursts": workload.Bursts,
        "two levels, random": workload.PoissonModulated,
    }
)
_CHANGEABLE = ("pause_s", "noise", "pause_kind", "execution", "trigger_s", "batch_overhead_s")


class Loads:
    """A picker of the load's shape, and sliders for it; `changed(workload or None)` is called with each new one."""

    def __init__(self, changed: Callable[[Workload | None], None], failed: Callable[[Exception], None]):
        self._changed, self._failed = changed, failed
        self._panel: Panel | None = None
        self._mean, self._ranges = 1.0, {"s": (1.0, 900.0)}
        self.pick = w.Dropdown(
            options=[OWN_LOAD, *SHAPES],
            description="load",
            tooltip="the shape of the input rate over time, from the next Start on",
            style=WIDE,
            layout=ROOM,
        )
        self._knobs = w.VBox()
        self.view = w.VBox([self.pick, self._knobs])

    def take(self, app: App, shape: Workload | None, duration_s: float) -> None:
        """Show this load; the application's own load and the duration give the ends of the sliders."""
        import numpy as np

        rates = app.load.rates(np.linspace(0, duration_s, 200))
        self._mean = mean(app.load, duration_s)
        top = _round(3 * float(rates.max()) or 1.0)
        self._ranges = {"records/s": (0.0, top), "s": (1.0, float(duration_s)), "seed": (0, 99), "steps": (0, 10)}
        kind = next((name for name, each in SHAPES.items() if type(shape) is each), OWN_LOAD)
        self._show(None if kind == OWN_LOAD else shape)
        self.pick.value = kind

    def picked(self, change: Any) -> None:
        """Take another shape, as high on average as the application's own load."""
        kind = SHAPES.get(change["new"])
        if kind is (None if self._panel is None else type(self._panel.thing)):
            return  # the view itself moved the picker
        shape = None if kind is None else as_high(kind(), self._mean, self._ranges["s"][1])
        self._show(shape)
        self._changed(shape)

    def __getitem__(self, name: str) -> Any:
        """The control of one knob of the picked shape."""
        assert self._panel is not None, "the application's own load has no knobs here"
        return self._panel[name]

    def _show(self, shape: Workload | None) -> None:
        former = self._panel
        made = Panel(shape, self._changed, self._failed, ranges=self._ranges) if shape is not None else None
        self._panel, self._knobs.children = made, (made.view,) if made is not None else ()
        if former is not None:
            former.close()


class Plants:
    """A picker of the plant, and folded sliders for it; `changed(name, changes)` is called with each new one."""

    def __init__(self, changed: Callable[[str, dict[str, Any]], None], failed: Callable[[Exception], None]):
        self._changed, self._failed = changed, failed
        self._panel: Panel | None = None
        self.pick = w.Dropdown(
            options=list(VARIANTS),
            description="plant",
            tooltip="the simulated machines, from the next Start on",
            style=WIDE,
            layout=ROOM,
        )
        self._fold = w.Accordion(layout=ROOM)
        self.view = w.VBox([self.pick, self._fold])

    def take(self, app: App, name: str, changes: Mapping[str, Any]) -> None:
        """Show this plant of an application."""
        self._app, self._name, self._base = app, name, variant(app.plant, name)
        former = self._panel
        ranges: Ranges = {"pause_s": (0.0, 120.0), "trigger_s": (0.1, 10.0), "batch_overhead_s": (0.0, 2.0)}
        self._panel = Panel(
            replace(self._base, **changes), self._turned, self._failed, names=_CHANGEABLE, note=False, ranges=ranges
        )
        self._fold.children = (self._panel.view,)
        self._fold.titles = ("Knobs of the plant",)
        self.pick.value = name
        if former is not None:
            former.close()

    def picked(self, change: Any) -> None:
        """Take another plant; changes of the former one are not carried over."""
        if change["new"] != self._name:
            self.take(self._app, change["new"], {})
            self._changed(change["new"], {})

    def __getitem__(self, name: str) -> Any:
        """The control of one of the plant's knobs."""
        assert self._panel is not None
        return self._panel[name]

    def _turned(self, plant: Any) -> None:
        base = {k.name: k.value for k in knobs_of(self._base)}
        changes = {k.name: k.value for k in knobs_of(plant) if k.name in _CHANGEABLE and k.value != base[k.name]}
        self._changed(self._name, changes)


def as_high(shape: Any, height: float, duration_s: float) -> Any:
    """Return the shape with times that fit into the duration, and as high on average as `height` records/s."""
    longest = max((k.value for k in knobs_of(shape) if k.unit == "s"), default=0.0)
    shorter = _times(shape, "s", min(1.0, duration_s / 2 / longest) if longest else 1.0)
    return _times(shorter, "records/s", height / mean(shorter, duration_s))


def _times(shape: Any, unit: str, factor: float) -> Any:
    return replace(shape, **{k.name: _round(k.value * factor) for k in knobs_of(shape) if k.unit == unit})


def carried(shape: Workload, of: tuple[App, float], to: tuple[App, float]) -> Workload:
    """Return a load that is as high for another application, or the other side of one, as it is for the first.

    Both are an application and the duration of its run in seconds: the height is a multiple of its own load.
    """
    share = mean(shape, of[1]) / mean(of[0].load, of[1])
    height = share * mean(to[0].load, to[1])
    if type(shape) in SHAPES.values():
        made: Workload = as_high(shape, height, to[1])
        return made
    return shape * (height / mean(shape, to[1]))


def mean(load: Workload, duration_s: float) -> float:
    """Return the mean rate of a load, or 1 for a load of nothing."""
    import numpy as np

    return float(load.rates(np.linspace(0, duration_s, 200)).mean()) or 1.0


def _round(value: float) -> float:
    """Round to two digits, which is enough for the first value of a slider.

    >>> _round(123456.7), _round(0.0456), _round(0.0)
    (120000.0, 0.046, 0.0)
    """
    return round(value, 1 - math.floor(math.log10(abs(value)))) if value else 0.0
