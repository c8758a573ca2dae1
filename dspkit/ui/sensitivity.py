"""The sensitivity page: turn a policy's knobs and see at once what is lost and what it costs; sweep any two of them.

A moved slider is one run, made at once. A sweep is dozens: it goes in the background and fills its map as it goes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from math import isfinite
from typing import Any

import ipywidgets as w

from .. import plots, sensitivity, topologies
from ..core import Policy
from ..errors import DspkitError
from ..events_lost import events_lost
from ..history import History
from ..knobs import Knob, call, knobs
from ..policies.fission import Fission
from .controls import ROOM, WIDE, control, read
from .errors import Errors
from .settings import imports
from .sweeping import Sweeping
from .view import show_beside, show_plot

KNOBS = ("replicas", "mid_replicas", "upper", "lower", "mid_s", "mid_term")  # R, R', the thresholds, t_m
LABELS = {  # where a knob's name alone says too little: the paper's letters
    "replicas": "R, replicas", "mid_replicas": "R', mid replicas", "upper": "upper threshold",
    "lower": "lower threshold", "mid_s": "t_m, mid term, s",
}  # fmt: skip
NICE = {"mid_s": (20, 50, 100, 150, 200, 300), "upper": (0.6, 0.7, 0.8, 0.9, 1.0, 1.2)}
VALUES = 6  # of a knob in a sweep


class Sensitivity:
    """Sliders of a policy's knobs, the run that they give, and a sweep over two of them. Display it, or drive it:

    `page.sliders["mid_s"].value = 50; page.sweep().wait(); page.frame`
    """

    def __init__(
        self,
        app: str = "news_entities",
        policy: Policy | None = None,
        *,
        names: Sequence[str] = KNOBS,
        axes: tuple[str, str] = ("mid_replicas", "mid_s"),
        duration_s: float = 600.0,
    ):
        """`names` are the knobs that get a slider; `axes`, two of them, are swept first."""
        self.policy: Any = Fission() if policy is None else policy
        if app not in topologies.available():
            known = ", ".join(topologies.available())
            raise DspkitError(f"application {app!r}", expected=f"one of {known}", fix="check the name")
        known_knobs = {k.name: k for k in knobs(self.policy)}
        if unknown := (set(names) | set(axes)) - set(known_knobs):
            raise DspkitError(f"knobs {sorted(unknown)}", expected=f"some of {sorted(known_knobs)}", fix="check them")
        self._duration_s, self._knobs = duration_s, {name: known_knobs[name] for name in names}
        self.history: History | None = None
        self._sweeping: Sweeping | None = None
        self._lock = threading.RLock()
        self._picture: plots.Plot | None = None
        self.app = w.Dropdown(options=sorted(topologies.available()), value=app, description="application",
                              tooltip="the job that runs", style=WIDE, layout=ROOM)  # fmt: skip
        made = {name: control(knob) for name, knob in self._knobs.items()}
        self.sliders: dict[str, Any] = {name: widget for name, widget in made.items() if widget is not None}
        for name, widget in self.sliders.items():
            widget.description = LABELS.get(name, widget.description)
        swept = [(LABELS.get(name, name.replace("_", " ")), name) for name in names if _values(self._knobs[name], None)]
        self.x, self.y = (
            w.Dropdown(options=swept, value=axis, description=text, tooltip=help, style=WIDE, layout=ROOM)
            for axis, text, help in zip(
                axes, ("sweep, across", "sweep, upward"), ("the columns of the map", "the rows of the map"), strict=True
            )
        )
        self.button = w.Button(
            description="Sweep", icon="th", tooltip="run all combinations of the two knobs, or stop doing so"
        )
        self.progress = w.IntProgress(
            description="runs", tooltip="runs done", layout={"width": "auto", "visibility": "hidden"}
        )
        self._chart, self._map = w.Output(), w.Output()
        self._errors = Errors()
        self._said, self._code, self._words, self._stale = (w.HTML() for _ in range(4))
        left = w.VBox(
            [
                self.app,
                *self.sliders.values(),
                self._said,
                w.HTML("<hr>"),
                self.x,
                self.y,
                self.button,
                self.progress,
                self._stale,
            ],
            layout={"flex": "0 0 350px", "overflow": "hidden"},
        )
        right = w.VBox(
            [self._map, self._chart, self._words, self._code],
            layout={"flex": "1 1 600px", "min_width": "600px", "overflow": "hidden"},
        )
        self.view = w.VBox([self._errors.widget, w.HBox([left, right], layout={"flex_flow": "row wrap"})])
        self.view.add_class("dspkit")
        for widget in self.sliders.values():
            if hasattr(widget, "continuous_update"):
                widget.continuous_update = False  # a run a move would lag behind the hand
            widget.observe(self._errors.guard("run", lambda _: self.turn()), "value")
        self.app.observe(self._errors.guard("run", lambda _: self._other_app()), "value")
        self.button.on_click(self._errors.guard("run", lambda _: self._pressed()))
        self.turn()
        self.sweep()

    def turn(self) -> History:
        """Run with what the sliders say, and show it."""
        policy = replace(self.policy, **{name: read(widget) for name, widget in self.sliders.items()})
        app = topologies.available()[self.app.value]()
        history = sensitivity.play(app, policy, duration_s=self._duration_s)
        self.policy, self.history = policy, history
        lost = events_lost(history)
        rescalings = sum(step.rescaled for step in history)
        self._said.value = (
            f"<p style='line-height:1.4'><b>{100 * lost.share:.2f} %</b> of {plots.si(lost.offered)} events lost: "
            f"{plots.si(lost.dropped)} refused by full queues, {plots.si(lost.waiting)} waiting at the end. "
            f"<b>{plots.si(lost.replica_seconds)}</b> replica-seconds, {rescalings} rescalings.</p>"
        )
        chart = plots.elastic(history)
        show_plot(self._chart, chart, bar=False)
        app_name, seconds = self.app.value, f", duration_s={self._duration_s:g}" if self._duration_s != 600 else ""
        lines = (
            f"from dspkit import plots, sensitivity, topologies\n{imports(policy)}\n"
            f"app = topologies.{app_name}()\n"
            f"history = sensitivity.play(app, {call(policy)}{seconds})\nplots.elastic(history)\n\n"
            f"axes = {self._axes()!r}\n"
            f"frame = sensitivity.sweep(app, {call(policy)}, axes{seconds})\n"
            f"plots.tradeoff(frame, {self.x.value!r}, {self.y.value!r})"
        )
        self._chart_words = chart.summary
        self._code.value = f"<b>The same as code</b><pre>{escape(lines)}</pre>"
        with self._lock:
            self._picture = self._picture or chart
            self._draw_map()
        return history

    def sweep(self) -> Sweeping:
        """Begin to run all combinations of the two chosen knobs, the others as the sliders say."""
        if self.x.value == self.y.value:
            raise DspkitError(f"{self.x.value} twice", expected="two knobs", fix="choose another one")
        app = topologies.available()[self.app.value]()
        with self._lock:
            self._swept, self._swept_with = (self.x.value, self.y.value), (self.app.value, self.policy)
            sweeping = Sweeping(app, self.policy, self._axes(), self._swept_so_far, duration_s=self._duration_s)
            self._sweeping = sweeping
        self.button.description, self.button.icon = "Stop", "stop"
        self.progress.value, self.progress.max = sweeping.done
        self.progress.layout.visibility = "visible"
        sweeping.start()
        return sweeping

    @property
    def frame(self) -> Any:
        """The sweep so far, a row for each combination; None before the first."""
        return None if self._sweeping is None else self._sweeping.frame

    def _pressed(self) -> None:
        if self._sweeping is not None and not self._sweeping.over:
            self._sweeping.stop()
        else:
            self.sweep()

    def _swept_so_far(self, sweeping: Sweeping) -> None:
        """In the sweep's own thread: traits only."""
        with self._lock:
            if sweeping is not self._sweeping:
                return  # another one has begun
            self.progress.value = sweeping.done[0]
            if sweeping.over:
                self.button.description, self.button.icon = "Sweep", "th"
                self.progress.layout.visibility = "hidden"
            if sweeping.error is not None:
                self._errors.note("run", sweeping.error)
            elif sweeping.done[0]:
                try:
                    self._draw_map()
                except Exception as error:  # a map that cannot be drawn does not end the sweep
                    self._errors.note("picture", error)
                else:
                    self._errors.note("picture", None)

    @property
    def error(self) -> str:
        return str(self._errors)

    def _ipython_display_(self) -> None:
        if os.environ.get("DSPKIT_HEADLESS") and self._sweeping is not None:
            self._sweeping.wait()
        show_beside(self._picture, self.view)

    def _other_app(self) -> None:
        with self._lock:
            if self._sweeping is not None:
                self._sweeping.stop()
            self._sweeping = None
        self.turn()
        self.sweep()

    def _axes(self) -> dict[str, tuple[Any, ...]]:
        return {axis: _values(self._knobs[axis], getattr(self.policy, axis)) for axis in (self.x.value, self.y.value)}

    def _draw_map(self) -> None:
        if self._sweeping is None or self.history is None or not self._sweeping.done[0]:
            return
        counted = events_lost(self.history)
        here = {"lost": counted.share, "replica_seconds": counted.replica_seconds}
        x, y = self._swept
        others = {axis: getattr(self.policy, axis) for axis in (x, y)}
        fresh = self._swept_with == (self.app.value, replace(self.policy, **self._former(x, y)))
        if fresh:  # else the cell is of a run with other knobs
            here |= others
        note = "" if fresh else "The map is of the knobs before: press <b>Sweep</b> for one of these."
        self._stale.value = f"<p style='line-height:1.4'>{note}</p>"
        picture = self._picture = plots.tradeoff(self._sweeping.frame, x, y, here=here, labels=LABELS)
        show_plot(self._map, picture, bar=False)
        said = escape(f"{picture.summary} {self._chart_words}")
        self._words.value = f"<div style='line-height:1.4'><em>{said}</em></div>"

    def _former(self, x: str, y: str) -> dict[str, Any]:
        """The swept knobs as they were then: that they differ now does not make the map old."""
        return {axis: getattr(self._swept_with[1], axis) for axis in (x, y)}


def _values(knob: Knob, now: Any) -> tuple[Any, ...]:
    """A handful of values over a knob's range, the present one among them; none for a knob without ends."""
    if knob.choices:
        return knob.choices
    if knob.low is None or knob.high is None or not isfinite(knob.high - knob.low):
        return ()
    if knob.name in NICE:
        values = set(NICE[knob.name])
    elif isinstance(knob.low, int) and isinstance(knob.high, int):
        top = min(knob.high, 10)
        values = {knob.low + round(i * (top - knob.low) / (VALUES - 1)) for i in range(VALUES)}
    else:
        values = {round(knob.low + i * (knob.high - knob.low) / (VALUES - 1), 3) for i in range(VALUES)}
    return tuple(sorted(values | ({now} if now is not None else set())))
