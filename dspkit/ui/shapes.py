"""Loads and plants to pick from, with sliders that suit the application."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import ipywidgets as w

from .. import workload
from ..knobs import knobs
from ..plant.variants import VARIANTS, variant
from ..topologies import App
from ..workload import Workload
from .controls import ROOM, WIDE, Panel, Ranges

OWN_LOAD = "its own"
SHAPES: Mapping[str, type[Workload]] = MappingProxyType({
    "constant": workload.Constant, "one step": workload.Jump, "stair": workload.Stair, "wave": workload.Sine,
    "square": workload.Square, "bursts": workload.Bursts, "two levels, random": workload.PoissonModulated,
})  # fmt: skip
_CHANGEABLE = ("pause_s", "noise", "pause_kind", "law", "trigger_s", "batch_overhead_s")


class Loads:
    """A picker of the load's shape and sliders for it; `changed(workload or None)` is called with what they say."""

    def __init__(self, changed: Callable[[Workload | None], None], failed: Callable[[Exception], None]):
        self._changed, self._failed = changed, failed
        self._panel: Panel | None = None
        self._mean, self._ranges = 1.0, {"s": (1.0, 900.0)}
        self.pick = w.Dropdown(
            options=[OWN_LOAD, *SHAPES], description="load",
            tooltip="the shape of the input rate over time, from the next Start on",
            style=WIDE, layout=ROOM,
        )  # fmt: skip
        self._knobs = w.VBox()
        self.view = w.VBox([self.pick, self._knobs])

    def take(self, app: App, shape: Workload | None, duration_s: float) -> None:
        """Show this load, on an application whose own one says how high and how long things are."""
        import numpy as np

        rates = app.load.rates(np.linspace(0, duration_s, 200))
        self._mean = float(rates.mean()) or 1.0
        top = _round(3 * float(rates.max()) or 1.0)
        self._ranges = {"records/s": (0.0, top), "s": (1.0, float(duration_s)), "seed": (0, 99), "steps": (0, 10)}
        kind = next((name for name, each in SHAPES.items() if type(shape) is each), OWN_LOAD)
        self._show(None if kind == OWN_LOAD else shape)
        self.pick.value = kind

    def picked(self, change: Any) -> None:
        """Another shape, as high as the application's own load on average."""
        kind = SHAPES.get(change["new"])
        if kind is (None if self._panel is None else type(self._panel.thing)):
            return  # it is we who moved the picker
        shape = None if kind is None else _as_high(kind(), self._mean, self._ranges["s"][1])
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
    """A picker of the plant and, folded, sliders for it; `changed(name, changes)` is called with what they say."""

    def __init__(self, changed: Callable[[str, dict[str, Any]], None], failed: Callable[[Exception], None]):
        self._changed, self._failed = changed, failed
        self._panel: Panel | None = None
        self.pick = w.Dropdown(
            options=list(VARIANTS), description="plant",
            tooltip="the simulated machines, from the next Start on", style=WIDE, layout=ROOM,
        )  # fmt: skip
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
        """Another plant; what was changed on the former one is not carried over."""
        if change["new"] != self._name:
            self.take(self._app, change["new"], {})
            self._changed(change["new"], {})

    def __getitem__(self, name: str) -> Any:
        """The control of one of the plant's knobs."""
        assert self._panel is not None
        return self._panel[name]

    def _turned(self, plant: Any) -> None:
        base = {k.name: k.value for k in knobs(self._base)}
        changes = {k.name: k.value for k in knobs(plant) if k.name in _CHANGEABLE and k.value != base[k.name]}
        self._changed(self._name, changes)


def _as_high(shape: Any, mean: float, duration_s: float) -> Any:
    """The shape with its defaults made as high, on average, and as long as the application's own load."""
    import numpy as np

    own = float(shape.rates(np.linspace(0, duration_s, 200)).mean()) or 1.0
    longest = max((k.value for k in knobs(shape) if k.unit == "s"), default=0.0)
    times = {"records/s": mean / own, "s": min(1.0, duration_s / 2 / longest) if longest else 1.0}
    return replace(shape, **{k.name: _round(k.value * times[k.unit]) for k in knobs(shape) if k.unit in times})


def _round(value: float) -> float:
    """Two digits, which is enough for a slider to begin with.

    >>> _round(123456.7), _round(0.0456), _round(0.0)
    (120000.0, 0.046, 0.0)
    """
    return round(value, 1 - math.floor(math.log10(abs(value)))) if value else 0.0
