"""Controls of knobs, drawn from the fields of a dataclass; pickers of loads and plants; errors as lines in a view."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from html import escape
from types import MappingProxyType
from typing import Any

import ipywidgets as w

from .. import workload
from ..apps import App
from ..core import Knob, knobs_of
from ..core.references import resolve
from ..policies import group
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
ROOM = {"width": "330px", "max_width": "100%"}


class _Exact:
    """Mixin of controls that a browser draws on a grid: the exact value stays until a person moves the control.

    noUiSlider rounds each value to a step, counted from the least one, and sends the result back although no hand has
    touched anything. A message that says no more than where our own value is drawn is therefore not a move.
    """

    min: float
    max: float
    step: float
    value: Any
    _from_browser = False
    _echo: tuple[float, float] | None = None  # the last value set by code, and the step that browsers had then

    def _place(self, value: float) -> float:
        """Return where the browser draws a value, on its own scale."""
        return value

    def _on_grid(self, value: float, step: float | None = None) -> bool:
        steps = (self._place(value) - self.min) / (step or self.step)
        return abs(steps - round(steps)) < 1e-6

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the browser sends, unless it is only our own value, rounded."""
        told = sync_data.get("value")
        if isinstance(told, int | float):
            places = self._place(told), self._place(self.value)
            near = max(self.step * (0.5 + 1e-6), 1e-9 * (self.max - self.min))
            (ours, step), self._echo = self._echo or (math.inf, 1.0), None
            rounded = abs(places[0] - ours) <= step * (0.5 + 1e-6) and self._on_grid(told, step)
            if rounded or abs(places[0] - places[1]) <= near:
                sync_data = {name: value for name, value in sync_data.items() if name != "value"}
            elif isinstance(told, float):
                sync_data = {**sync_data, "value": _clean(told)}
        self._from_browser = True
        try:
            super().set_state(sync_data)  # type: ignore[misc]
        finally:
            self._from_browser = False

    def _step_to(self, value: float) -> float:
        """Return a step whose grid has this value on it."""
        return float(self.step)

    def _refit(self, change: Any) -> None:
        """Draw a value that code has set where it is: the readout would show the nearest step."""
        if not self._from_browser and not self._on_grid(change["new"]):
            self._echo = self._place(change["new"]), self.step  # they round it to this one, and then hear of the new
            self.step = self._step_to(change["new"])


class IntSlider(_Exact, w.IntSlider):  # type: ignore[misc]
    """A slider of whole numbers."""


class FloatSlider(_Exact, w.FloatSlider):  # type: ignore[misc]
    """A slider of real numbers."""

    def _step_to(self, value: float) -> float:
        if step := _nice_step(self.min, self.max, value):
            return step
        way = value - self.min
        return float(way / max(1, round(way / self.step)))


class FloatLogSlider(_Exact, w.FloatLogSlider):  # type: ignore[misc]
    """A slider of real numbers on a logarithmic scale."""

    def _place(self, value: float) -> float:
        return math.log10(value) if value > 0 else -math.inf

    def _step_to(self, value: float) -> float:
        """Return a step of about a hundredth of a decade."""
        way = math.log10(value) - self.min
        return float(way / round(way / 0.01)) if way >= 0.01 else 0.01


def _clean(value: float) -> float:
    """Return a value without the noise of a browser's arithmetic, which sends 0.9999999999999999 for 1.

    >>> _clean(0.9999999999999999), _clean(279999.9999999999), _clean(1e-4)
    (1.0, 280000.0, 0.0001)
    """
    return float(f"{value:.12g}")


def _nice_step(low: float, high: float, value: float) -> float | None:
    """Return the largest round step of which both `low` and `value` are multiples.

    It is at most a fiftieth of the range, and None if less than a thousandth of it would be needed.

    >>> _nice_step(0.0, 86400.0, 900.0), _nice_step(1.0, 600.0, 15.0), _nice_step(0.0, 1.0, 1e-4)
    (100.0, 1.0, None)
    """
    ten = math.floor(math.log10((high - low) / 50))
    for step in (digit * 10.0**exponent for exponent in (ten, ten - 1, ten - 2) for digit in (5.0, 2.0, 1.0)):
        ways = low / step, value / step
        if (high - low) / 1000 <= step <= (high - low) / 50 and all(abs(way - round(way)) < 1e-9 for way in ways):
            return float(f"{step:.6g}")
    return None


LONGEST = 1000  # whole numbers that a slider has room for; for more there is a box


def slider(low: float, high: float, value: float, name: str, help: str, **more: Any) -> Any:
    """Return a slider of whole numbers if both ends are whole, else of reals; logarithmic if the ends are far apart.

    A value that no round step of a slider reaches, or a wide range of whole numbers, gets a box to type into.
    """
    options = dict(description=name, tooltip=help, style=WIDE, layout=ROOM, **more)
    if isinstance(low, int) and isinstance(high, int):
        if high - low > LONGEST:
            return w.BoundedIntText(min=low, max=high, value=value, **options)
        return _fitted(IntSlider(min=low, max=high, value=value, **options))
    if low > 0 and high / low > 1000:
        ends = {"min": math.log10(low), "max": math.log10(high)}
        made = FloatLogSlider(value=value, step=0.01, readout_format=_READOUT, **ends, **options)
        made.step = made._step_to(value)
        return _fitted(made)
    step = _nice_step(low, high, value)
    if step is None:
        typed = 10.0 ** math.floor(math.log10(abs(value))) if value else (high - low) / 1000
        options.pop("continuous_update", None)
        return w.BoundedFloatText(min=low, max=high, value=value, step=typed, **options)
    return _fitted(FloatSlider(min=low, max=high, value=value, step=step, readout_format=_READOUT, **options))


_READOUT = ".7"  # seven digits without trailing zeros


def _fitted(made: Any) -> Any:
    made.observe(made._refit, "value")
    return made


def read_control(widget: Any) -> Any:
    """Return the value of a control, without the noise of a browser's arithmetic."""
    return _clean(widget.value) if isinstance(widget.value, float) else widget.value


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
    low, high = min(low, knob.value), max(high, knob.value)  # `ranges` may be narrower than the knob
    return slider(int(low), int(high), knob.value, name, help) if whole else slider(low, high, knob.value, name, help)


class Panel:
    """Widgets for all knobs of `thing`, a frozen dataclass.

    `changed(new)` is called with the new dataclass, or `failed(error)` if its values are inconsistent.
    `names` are the knobs that are shown, all if it is left out; `ranges` are ends for those that have none. With `fold`
    all but the main ones are folded away. `defaults` has the values of the reset buttons, if they are not those of the
    class. A policy that can be asked for machines gets buttons for that; `now()` is the time at which they ask. Only
    what a person moved is changed: all other values stay as exact as they were given.
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
        fold: bool = True,
        defaults: Any = None,
        allow: Callable[[Any], None] = lambda request: None,
    ):
        """`allow(request)` raises if the machines that are asked for are not available."""
        self.thing, self._changed, self._failed, self._now, self._allow = thing, changed, failed, now, allow
        self._moved: dict[str, Any] = {}  # values of controls that a person moved, and that are not in `thing` yet
        self._defaults = {k.name: k.value for k in knobs_of(type(thing) if defaults is None else defaults)}
        self._knobs: dict[str, Knob] = {}
        self._controls: dict[str, Any] = {}
        self._resets: dict[str, Any] = {}
        for k in knobs_of(thing):
            if (names is None or k.name in names) and (made := control(k, ranges)) is not None:
                self._knobs[k.name], self._controls[k.name] = k, made
                made.observe(partial(self._turn, k.name), "value")
        said = (type(thing).__doc__ or "").strip().partition("\n")[0]
        about = f"<br><small>{escape(origin(thing))}</small>" if hasattr(thing, "step") else ""
        words = [w.HTML(f'<div style="line-height:1.3">{plain(said)}{about}</div>', layout=ROOM)] if note else []
        first = main_knobs(thing, self._controls) if fold else tuple(self._controls)
        self._rest = [name for name in self._controls if name not in first]
        self.fold: Any = None
        if self._rest:
            self.fold = w.Accordion(children=(w.VBox(),), titles=(f"{len(self._rest)} more knobs",), layout=ROOM)
            self.fold.observe(self._unfold, "selected_index")
        self.view = w.VBox(
            [
                *words,
                *(self._buttons() if hasattr(thing, "ask") else ()),
                *map(self._row, first),
                *([self.fold] if self.fold else []),
            ]
        )

    def _unfold(self, change: Any) -> None:
        """Fill the fold when it is opened first: most people never open it."""
        if change["new"] is not None and not self.fold.children[0].children:
            self.fold.children[0].children = tuple(map(self._row, self._rest))

    def _row(self, name: str) -> Any:
        """Return a knob's control with a line about it, and a button that takes its default back."""
        knob, default = self._knobs[name], self._defaults[name]
        origin = f", {knob.source}" if knob.source else ""
        said = f"{knob.help}{f' ({knob.unit})' if knob.unit else ''}. Default {_shown(default)}{origin}."
        said = said[:1].upper() + said[1:]
        words = w.HTML(
            f'<small style="line-height:1.25;display:block;opacity:.75">{plain(said)}</small>',
            layout={"flex": "1 1 auto", "margin": "0 2px 4px 8px"},
        )
        button = w.Button(
            icon="undo",
            tooltip=f"{name.replace('_', ' ')}: back to {_shown(default)}",
            layout={"width": "32px", "height": "24px", "flex": "0 0 32px", "padding": "0"},
        )
        button.on_click(lambda _: self.reset(name))
        self._resets[name] = button
        self._show_reset(name)
        line = w.HBox([words, button], layout={"width": "330px", "max_width": "100%"})
        return w.VBox([self._controls[name], line], layout=ROOM)

    def _show_reset(self, name: str) -> None:
        if name in self._resets:
            value = self._moved.get(name, getattr(self.thing, name))
            self._resets[name].layout.visibility = "hidden" if value == self._defaults[name] else "visible"

    def reset(self, name: str) -> None:
        """Put a knob back to its default, as its button does."""
        self._controls[name].value = self._defaults[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._controls.values())

    def __getitem__(self, name: str) -> Any:
        return self._controls[name]

    def close(self) -> None:
        """Close the view, and the controls that were never unfolded."""
        if self.fold and not self.fold.children[0].children:
            self.fold.children[0].children = tuple(self._controls[name] for name in self._rest)
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

    def _turn(self, name: str, _: Any) -> None:
        """Change the knob whose control was moved, with those that were moved before and did not fit until now."""
        self._moved[name] = read_control(self._controls[name])
        try:
            self.thing = replace(self.thing, **self._moved)
        except Exception as error:  # a policy's own checks may raise anything
            self._failed(error)
        else:
            self._moved.clear()
            self._changed(self.thing)
        self._show_reset(name)


FEW = 5  # knobs that are shown without a fold
MAIN = 3  # knobs that are shown above it


def main_knobs(thing: Any, names: Collection[str]) -> tuple[str, ...]:
    """Return the knobs to show first: those that the class names in `main_knobs`, else its first three."""
    if len(names) <= FEW:
        return tuple(names)
    chosen = [name for name in getattr(type(thing), "main_knobs", ()) if name in names]
    return tuple(chosen or list(names)[:MAIN])


def origin(policy: Any) -> str:
    """Return what a policy decides, and the first author and the year of its work.

    >>> from dspkit.policies.ds2 import DS2
    >>> origin(DS2())
    'Scales. Kalavri and others, 2018.'
    """
    decides = f"{group(policy).capitalize()}."
    if not getattr(policy, "reference", None):
        return decides
    work = resolve(policy)[0].fields
    first, *others = work["author"].split(" and ")
    name = first.strip("{}") if first.startswith("{") else first.partition(",")[0]
    return f"{decides} {name}{' and others' if others else ''}, {work['year']}."


_WORDS = (
    (r"\lceil", "⌈"),
    (r"\rceil", "⌉"),
    (r"\cdot", "·"),
    (r"\beta", "β"),
    (r"\mu", "μ"),
    (r"\lambda", "λ"),
    (r"\rho", "ρ"),
    (r"\alpha", "α"),
    (r"\max", "max"),
    (r"\le", "≤"),
    (r"\ge", "≥"),
    ("_{max}", "<sub>max</sub>"),
)


def plain(text: str) -> str:
    r"""Return a docstring's sentence as HTML: formulas and code as a browser shows them.

    >>> plain("`a_b` grows if $R > \\beta R_{\\max}$")
    '<code>a_b</code> grows if <i>R &gt; β R<sub>max</sub></i>'
    """

    def formula(found: re.Match[str]) -> str:
        said = found[1]
        for tex, sign in _WORDS:
            said = said.replace(tex, sign)
        said = re.sub(r"_(\w)", r"<sub>\1</sub>", said)
        return f"<i>{said}</i>"

    said = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\$([^$]+)\$", formula, said)


def _shown(value: Any) -> str:
    """Return a value as a person writes it.

    >>> _shown(900.0), _shown(1e-4), _shown(True), _shown(math.inf)
    ('900', '0.0001', 'yes', 'infinite')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "infinite" if math.isinf(value) else f"{value:.12g}"
    return str(value)


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
        top = rounded(3 * float(rates.max()) or 1.0)
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
        same: Any = dict(ranges=self._ranges, defaults=shape)
        made = Panel(shape, self._changed, self._failed, **same) if shape is not None else None
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
        own: Any = dict(names=_CHANGEABLE, note=False, fold=False, ranges=ranges, defaults=self._base)
        self._panel = Panel(replace(self._base, **changes), self._turned, self._failed, **own)
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
    return replace(shape, **{k.name: rounded(k.value * factor) for k in knobs_of(shape) if k.unit == unit})


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


def height(load: Workload, duration_s: float) -> tuple[float, float]:
    """Return the greatest rate of a load, with two digits, and the duration."""
    import numpy as np

    return rounded(float(load.rates(np.linspace(0, duration_s, 200)).max()) or 1.0), duration_s


def mean(load: Workload, duration_s: float) -> float:
    """Return the mean rate of a load, or 1 for a load of nothing."""
    import numpy as np

    return float(load.rates(np.linspace(0, duration_s, 200)).mean()) or 1.0


def rounded(value: float) -> float:
    """Round to two digits, which is enough for the first value of a slider.

    >>> rounded(123456.7), rounded(0.0456), rounded(0.0)
    (120000.0, 0.046, 0.0)
    """
    return round(value, 1 - math.floor(math.log10(abs(value)))) if value else 0.0
