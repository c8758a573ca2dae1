"""The sensitivity page: events lost and replica-seconds as functions of a policy's knobs, and a sweep over two of them.

A moved slider is one run, made at once. A sweep is dozens of runs in the background, which fill its map one by one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from .. import apps, plots
from ..apps import App
from ..comparison import sensitivity
from ..comparison.scores import events_lost
from ..core import ArgumentError, History, Knob, Policy, call, knobs_of
from ..experiment import policy_of
from ..policies.fission import Fission
from .controls import ROOM, WIDE, Errors, control, read_control
from .run import BackgroundTask
from .settings import imports
from .view import show_beside, show_plot

if TYPE_CHECKING:
    import pandas as pd


class Sweeping(BackgroundTask):
    """The runs of all combinations of `axes`, in the background."""

    def __init__(
        self,
        app: App,
        policy: Any,
        axes: Mapping[str, Sequence[Any]],
        show: Callable[[Any], None],
        *,
        duration_s: float = 600.0,
    ):
        super().__init__(show)
        self.app, self.policy, self.axes = app, policy, dict(axes)
        self._points = sensitivity.points(policy, self.axes)
        self._rows: list[dict[str, Any]] = []
        self._duration_s = duration_s

    @property
    def done(self) -> tuple[int, int]:
        """Number of runs made, and of all runs."""
        return len(self._rows), len(self._points)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per combination; those that have not run yet have no numbers."""
        rows = list(self._rows)
        return sensitivity.frame([*rows, *self._points[len(rows) :]], self.axes)

    def pieces(self) -> Iterator[None]:
        for point in self._points:
            if self.stopping:
                return
            self._rows.append(sensitivity.measure(self.app, self.policy, point, duration_s=self._duration_s))
            yield


KNOBS = (
    "replicas",
    "mid_replicas",
    "scale_out_above",
    "scale_in_below",
    "mid_term_interval_s",
    "mid_term",
)  # R, R', the thresholds, t_m
LABELS = {  # where a knob's name alone says too little: the paper's letters
    "replicas": "R, replicas",
    "mid_replicas": "R', mid replicas",
    "scale_out_above": "upper threshold",
    "scale_in_below": "lower threshold",
    "mid_term_interval_s": "t_m, mid term, s",
}
NICE = {"mid_term_interval_s": (20, 50, 100, 150, 200, 300), "scale_out_above": (0.6, 0.7, 0.8, 0.9, 1.0, 1.2)}
VALUES = 6  # of a knob in a sweep


class Sensitivity:
    """A view of a policy's knobs as sliders, the run that they give, and a sweep over two of them.

    Display it, or drive it from code.

    Parameters
    ----------
    app : str
        Name of the application.
    policy : str, type or Policy, optional
        A policy, its class, or its name; left out, `Fission()`.
    names : sequence of str
        The knobs that have a slider.
    axes : tuple of str
        The two knobs of the first sweep.
    duration_s : float
        Simulated seconds of each run.

    Examples
    --------
    >>> from dspkit import ui
    >>> page = ui.Sensitivity("tweet_words", duration_s=5.0)
    >>> page.sliders["replicas"].value = 2
    >>> page.policy.replicas, page.error
    (2, '')
    """

    def __init__(
        self,
        app: str = "news_entities",
        policy: str | type | Policy | None = None,
        *,
        names: Sequence[str] = KNOBS,
        axes: tuple[str, str] = ("mid_replicas", "mid_term_interval_s"),
        duration_s: float = 600.0,
    ):
        self.policy: Any = Fission() if policy is None else policy_of(policy)
        apps.get(app)  # refuses an unknown name
        known_knobs = {k.name: k for k in knobs_of(self.policy)}
        if unknown := (set(names) | set(axes)) - set(known_knobs):
            raise ArgumentError(
                f"knobs {sorted(unknown)}", expected=f"some of {sorted(known_knobs)}", fix="use these names"
            )
        self._duration_s, self._knobs = duration_s, {name: known_knobs[name] for name in names}
        self.history: History | None = None
        self._sweeping: Sweeping | None = None
        self._lock = threading.RLock()
        self._picture: plots.Plot | None = None
        self.app = w.Dropdown(
            options=sorted(apps.available()),
            value=app,
            description="application",
            tooltip="the job that runs",
            style=WIDE,
            layout=ROOM,
        )
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
                widget.continuous_update = False  # one run per move would lag behind the hand
            widget.observe(self._errors.guard("run", lambda _: self.turn()), "value")
        self.app.observe(self._errors.guard("run", lambda _: self._other_app()), "value")
        self.button.on_click(self._errors.guard("run", lambda _: self._pressed()))
        self.turn()
        self.sweep()

    def turn(self) -> History:
        """Run the policy with the values of the sliders, show the run, and return it."""
        policy = replace(self.policy, **{name: read_control(widget) for name, widget in self.sliders.items()})
        app = apps.available()[self.app.value]()
        history = sensitivity.play_policy(app, policy, duration_s=self._duration_s)
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
            f"from dspkit import apps, plots\nfrom dspkit.comparison import sensitivity\n{imports(policy)}\n"
            f"app = apps.{app_name}()\n"
            f"history = sensitivity.play_policy(app, {call(policy)}{seconds})\nplots.elastic(history)\n\n"
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
        """Start to run all combinations of the two chosen knobs, with the other knobs as the sliders have them."""
        if self.x.value == self.y.value:
            raise ArgumentError(f"{self.x.value} twice", expected="two knobs", fix="choose another one")
        app = apps.available()[self.app.value]()
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
        """The sweep so far, one row per combination; None before the first."""
        return None if self._sweeping is None else self._sweeping.frame

    def _pressed(self) -> None:
        if self._sweeping is not None and not self._sweeping.over:
            self._sweeping.stop()
        else:
            self.sweep()

    def _swept_so_far(self, sweeping: Sweeping) -> None:
        """Show the sweep so far; this runs in its thread and sets traits only."""
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
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _ipython_display_(self) -> None:
        if os.environ.get("DSPKIT_HEADLESS") and self._sweeping is not None:
            self._sweeping.wait()
        show_beside(self, self._picture, self.view)

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
        picture = self._picture = plots.tradeoff(self._sweeping.frame, x, y, current=here, labels=LABELS)
        show_plot(self._map, picture, bar=False)
        said = escape(f"{picture.summary} {self._chart_words}")
        self._words.value = f"<div style='line-height:1.4'><em>{said}</em></div>"

    def _former(self, x: str, y: str) -> dict[str, Any]:
        """Return the swept knobs as they were then: a change of these does not make the map stale."""
        return {axis: getattr(self._swept_with[1], axis) for axis in (x, y)}


def _values(knob: Knob, now: Any) -> tuple[Any, ...]:
    """Return some values over a knob's range, the present one among them; none for a knob without ends."""
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
