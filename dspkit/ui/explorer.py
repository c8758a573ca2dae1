"""The Explorer: pick an application, a load and a policy, run it, turn the knobs while it runs, export what happened.

Work runs in a thread and hands pictures to the browser by setting traits; callbacks only note what is wanted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from html import escape
from typing import Any

import ipywidgets as w

from .. import plots, policies, report, topologies
from ..core import Backend, Policy
from ..errors import DspkitError
from ..frozen import FrozenMap
from ..history import History
from ..loop import describe, mape
from ..topologies import App
from .background import Background
from .controls import ROOM, WIDE, Panel, slider
from .settings import Settings, dials

REDRAW_S = 0.25  # a browser that must draw more often falls behind


def _guarded(callback: Callable[..., None]) -> Callable[..., None]:
    """An error in a callback becomes a line in the view instead of a trace in a log that nobody reads."""

    @wraps(callback)
    def guarded(self: Explorer, *args: Any, **options: Any) -> None:
        try:
            self._fail(None)
            callback(self, *args, **options)
        except Exception as error:
            self._fail(error)

    return guarded


class Explorer:
    """Controls and a live chart of any policy on a simulated application. Display it, or drive it from code:

    `explorer.start(); explorer.wait(); explorer.history`
    """

    def __init__(self, app: str = "word_count", policy: str | Policy = "ds2", *, windows: int = 90, speed: int = 8):
        """`speed` is in windows a second; 0 is as fast as it goes."""
        chosen = policies.get(policy)() if isinstance(policy, str) else policy
        known = {**policies.available(), chosen.name: type(chosen)}
        self.settings = Settings(app, chosen, windows=windows)
        self.history: History | None = None
        self._background, self._turned = Background(), threading.Event()
        self._moved: Mapping[str, int] = FrozenMap()  # sliders a person moved since the run last looked
        self._build(sorted(topologies.available()), sorted(known), speed)
        self._known = known
        self._use_app(app)
        self._use_policy(chosen)
        self._app.observe(self._pick_app, "value")
        self._policy.observe(self._pick_policy, "value")

    # What a person or a test does

    @_guarded
    def start(self, _: Any = None) -> None:
        """Begin a run with the present settings, from the start; a run that is going ends."""
        self._background.start(self._run)

    @_guarded
    def stop(self, _: Any = None) -> None:
        """End the run; what it recorded stays."""
        self._background.stop()

    @_guarded
    def reset(self, _: Any = None) -> None:
        """End the run, forget what it recorded, and put the controls back to the application's own values."""
        self._background.stop()
        self._use_app(self.settings.app)
        self._use_policy(type(self.settings.policy)())

    @_guarded
    def export(self, _: Any = None) -> None:
        """Write what was recorded as one HTML file and show where it is."""
        history = self.history[:] if self.history else None
        if not history:
            raise DspkitError("no run to export", expected="a run of at least one window", fix="press Start first")
        path = report.from_history(history, target_latency_s=self.settings.target_latency_s)
        self._status.value = f"Report written: <code>{escape(str(path))}</code>"
        self.report_path = path

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; whether it is."""
        return self._background.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self._background.running

    @property
    def error(self) -> str:
        """The line that tells of an error, or nothing."""
        return str(self._error.value)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.view)  # type: ignore[no-untyped-call]

    # Controls

    def _build(self, apps: list[str], names: list[str], speed: int) -> None:
        self._buttons = w.HBox(
            [
                _button("Start", "play", "begin a run from the start", self.start),
                _button("Stop", "stop", "end the run and keep what it recorded", self.stop),
                _button("Reset", "refresh", "forget the run, all controls back to their defaults", self.reset),
                _button("Export report", "download", "write the run as one HTML file", self.export),
            ]
        )
        self._app = w.Dropdown(options=apps, description="application", style=WIDE, layout=ROOM)
        self._policy = w.Dropdown(options=names, description="policy", style=WIDE, layout=ROOM)
        self._scale = slider(0.0, 3.0, 1.0, "load, times", "height of the load, as a multiple of the application's own")
        self._target = slider(0.01, 2.0, 0.18, "latency target, s", "the line that latency should stay below")
        self._settle = slider(0, 10, 0, "settle, windows", "windows after a change that the policy does not see")
        self._speed = slider(0, 30, speed, "speed, windows/s", "how fast simulated time runs; 0 is as fast as it goes")
        self._scale.observe(lambda change: self._set(scale=change["new"]), "value")
        self._target.observe(lambda change: self._set(target_latency_s=change["new"]), "value")
        self._settle.observe(lambda change: self._set(settle=change["new"]), "value")
        self._panel_box, self._operator_box = w.VBox(), w.VBox()
        self._load, self._chart, self._graph = w.Output(), w.Output(), w.Output()
        self._status, self._error, self._why, self._code = (w.HTML() for _ in range(4))
        self._progress = w.IntProgress(min=0, layout={"width": "330px"})
        left = w.VBox(
            [
                self._app, self._scale, self._load, self._policy, self._panel_box, _heading("Parallelism"),
                self._operator_box, _heading("Thresholds"), self._target, _heading("Run"), self._settle, self._speed,
            ],
            layout={"min_width": "350px", "max_width": "350px", "overflow": "hidden"},
        )  # fmt: skip
        right = w.VBox(
            [self._buttons, self._progress, self._status, self._error, self._chart, self._why, self._graph, self._code],
            layout={"flex": "1 1 auto", "min_width": "0", "overflow": "hidden"},
        )
        self.view = w.HBox([left, right])

    @_guarded
    def _set(self, **changed: Any) -> None:
        self.settings = replace(self.settings, **changed)
        self._turned.set()
        self._draw_settings()
        if not self.running:
            self._draw_still()

    @_guarded
    def _pick_app(self, change: Any) -> None:
        self._background.stop()
        self._use_app(change["new"])

    @_guarded
    def _pick_policy(self, change: Any) -> None:
        self._use_policy(self._known[change["new"]]())

    def _use_app(self, name: str) -> None:
        if name not in topologies.available():
            known = ", ".join(topologies.available())
            raise DspkitError(f"application {name!r}", expected=f"one of {known}", fix="check the name")
        self._now: App = topologies.available()[name]()
        self.history = None
        start = self._now.topology.uniform()
        target = self._now.target_latency_s
        self.settings = replace(self.settings, app=name, parallelism=start, target_latency_s=target, scale=1.0)
        self._app.value, self._target.value, self._scale.value = name, target, 1.0
        self._sliders = {
            o.name: slider(o.min_parallelism, o.max_parallelism, start[o.name], o.name, f"instances of {o.name}")
            for o in self._now.topology.operators
        }
        for operator, widget in self._sliders.items():
            widget.observe(lambda change, operator=operator: self._move(operator, change["new"]), "value")
        self._operator_box.children = tuple(self._sliders.values())
        self._progress.value, self._status.value, self._why.value = 0, "Press Start.", ""
        self._draw_settings()
        self._draw_still()

    def _use_policy(self, policy: Policy) -> None:
        self._policy.value = policy.name
        panel = Panel(policy, lambda changed: self._set(policy=changed), self._fail)
        self._panel_box.children = (panel.view,)
        self._set(policy=policy)

    @_guarded
    def _move(self, operator: str, parallelism: int) -> None:
        if self._background.is_this_thread():
            return  # the run itself moved the slider, to show what a policy decided
        if self.running:
            self._moved = FrozenMap({**self._moved, operator: parallelism})
            self._turned.set()
        else:
            self._set(parallelism=FrozenMap({**self.settings.parallelism, operator: parallelism}))

    # The run, in its own thread

    def _run(self, stop: threading.Event) -> None:
        try:
            self._loop(stop)
        except Exception as error:
            self._fail(error)

    def _loop(self, stop: threading.Event) -> None:
        settings, app = self.settings, self._now
        self._follow(settings.parallelism)
        load = dials(app, lambda: self.settings.scale)
        with app.simulator(load, parallelism=settings.parallelism, seed=settings.seed) as backend:
            about = {**describe(settings.policy, backend, seed=settings.seed), "code": settings.code()}
            history = self.history = History(app.topology, about=about)
            self._progress.max, drawn = settings.windows, 0.0
            steps = self._steps(settings, backend)
            while len(history) < settings.windows and not stop.is_set():
                if self._turned.is_set():
                    self._turned.clear()
                    before, settings = settings, self.settings
                    moved, self._moved = self._moved, FrozenMap()
                    backend.deploy(backend.deployment.scaled(moved))
                    if (settings.policy, settings.settle) != (before.policy, before.settle):
                        steps = self._steps(settings, backend)
                step = next(steps)
                history.append(replace(step, index=len(history)))
                if step.rescaled and step.decision is not None:
                    self._follow(step.decision.deployment.parallelism)
                if time.monotonic() - drawn >= REDRAW_S:
                    self._draw(history)
                    drawn = time.monotonic()
                if self._speed.value:
                    stop.wait(1 / self._speed.value)
        self._draw(history)
        said = plots.tell(history, self.settings.target_latency_s)
        self._status.value = f"{'Stopped' if stop.is_set() else 'Finished'}. {escape(said)}"

    def _steps(self, settings: Settings, backend: Backend) -> Any:
        return mape(settings.policy, backend, steps=None, settle=settings.settle, seed=settings.seed)

    def _follow(self, parallelism: Mapping[str, int]) -> None:
        """Sliders show what runs; the settings keep what the run began with."""
        for operator, k in parallelism.items():
            self._sliders[operator].value = k

    # Pictures

    def _draw(self, history: History) -> None:
        last = history[-1].snapshot
        end, target = self.settings.windows * last.window_s, self.settings.target_latency_s
        self._show(self._chart, plots.timeline(history, target_latency_s=target, until_s=end))
        self._show(self._graph, plots.topology(history.topology, last, row_px=75))
        self._progress.value = len(history)
        self._status.value = f"t = {last.t:g} s; {plots.si(last.throughput)} of {plots.si(last.source_rate)} records/s"
        acted = history.decisions
        rows = "".join(
            f"<li>t = {d.t:g} s: <b>{escape(str(d.changes))}</b> because {escape(str(d.why))}</li>"
            for d in acted[acted.rescaled].tail(5).itertuples()
        )
        self._why.value = f"<b>Last decisions</b><ul style='line-height:1.4'>{rows or '<li>none yet</li>'}</ul>"

    def _draw_settings(self) -> None:
        duration = self.settings.windows * 10.0
        self._show(self._load, plots.workload(self._now.load * self.settings.scale, duration, height=150))
        self._code.value = f"<b>The same run as code</b><pre>{escape(self.settings.code())}</pre>"

    def _draw_still(self) -> None:
        if self.history:
            self._draw(self.history)
        else:
            self._show(self._graph, plots.topology(self._now.topology, row_px=75))
            self._chart.outputs = ()

    @staticmethod
    def _show(output: Any, plot: plots.Plot) -> None:
        output.outputs = ({"output_type": "display_data", "data": plot.bundle, "metadata": {}},)

    def _fail(self, error: Exception | None) -> None:
        said = "" if error is None else f"{type(error).__name__}: {error}"
        line = f'<p class="dspkit-error" role="alert" style="color:#B00020">{escape(said)}</p>' if said else ""
        if self._error.value != line:
            self._error.value = line


def _button(text: str, icon: str, help: str, press: Callable[..., None]) -> Any:
    button = w.Button(description=text, icon=icon, tooltip=help, layout={"width": "auto"})
    button.on_click(press)
    return button


def _heading(text: str) -> Any:
    return w.HTML(f"<b>{text}</b>")
