"""Loads and plants to pick from, with sliders that suit the application."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import ipywidgets as w

from .. import workload
from ..apps import App
from ..core import knobs_of
from ..simulator import VARIANTS, variant
from ..workload import Workload
from .controls import ROOM, WIDE, Panel, Ranges

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
