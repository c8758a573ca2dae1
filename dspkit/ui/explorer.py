"""The Explorer: pick an application, a load and a policy, run it, turn the knobs while it runs, export what happened.

Work runs in a thread (run.py) and hands pictures to the browser by setting traits; callbacks only note what is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import plots, policies, report, topologies
from ..core import Backend, Policy
from ..errors import DspkitError
from ..frozen import FrozenMap
from ..history import History
from ..policies.on_demand import Request, ScaleOut
from .controls import Panel, read
from .run import Run
from .settings import Settings, dials
from .view import View


class Explorer:
    """Controls and a live chart of any policy on a simulated application. Display it, or drive it from code:

    `explorer.start(); explorer.wait(); explorer.history`
    """

    def __init__(self, app: str = "word_count", policy: str | Policy = "ds2", *, windows: int = 90, speed: int = 8):
        """`speed` is in windows a second; 0 is as fast as it goes. A run that goes in this kernel is told to stop."""
        Run.stop_latest()  # as when the cell is run again: its former view, and its Stop button, are gone
        chosen = policies.get(policy)() if isinstance(policy, str) else policy
        if app not in self._apps():
            known = ", ".join(self._apps())
            raise DspkitError(f"application {app!r}", expected=f"one of {known}", fix="check the name")
        self._makers: dict[str, Callable[[], Policy]] = {**policies.available(), chosen.name: lambda: chosen}
        self._first = self.settings = self._settings(app, chosen, windows)
        self._lock = threading.RLock()  # the run's thread and callbacks both draw
        self._errors: dict[str, str] = {}
        self._live: Run | None = None
        self.report_path: Path | None = None
        press = {"Start": self.start, "Stop": self.stop, "Reset": self.reset, "Export report": self.export}
        guarded = {text: self._guard(text, method) for text, method in press.items()}
        self._first_speed = speed
        self.view = View(sorted(self._apps()), sorted(self._makers), speed, guarded)
        self._use_app(app)
        self._use_policy(chosen)
        for name in ("scale", "target", "settle"):
            getattr(self.view, name).observe(self._guard("settings", self._set), "value")
        self.view.app.observe(self._guard("application", self._pick_app), "value")
        self.view.policy.observe(self._guard("policy", self._pick_policy), "value")

    # What runs, and on what; LiveExplorer has others

    @staticmethod
    def _apps() -> Mapping[str, Callable[[], Any]]:
        return topologies.available()

    def _settings(self, app: str, policy: Policy, windows: int) -> Settings:
        return Settings(app, policy, windows=windows)

    def _begin(self, run: Run) -> Backend:
        s = run.settings
        load = dials(self._now, lambda: run.settings.scale)
        simulator: Backend = self._now.simulator(load, parallelism=s.parallelism, seed=s.seed, window_s=s.window_s)
        return simulator

    # What a person or a test does

    def start(self) -> None:
        """Begin a run with the present settings, from the start; a run that is going ends first."""
        self._forget_errors()
        self.view.tell("Starting…")
        self._live = Run(self.settings, self._begin, self._show, lambda: self.view.speed.value)
        self._live.start()
        self._enable()

    def stop(self) -> None:
        """Ask the run to end; what it recorded stays. Returns at once: `wait` waits."""
        with self._lock:
            if self._live is not None and not self._live.over:
                self._live.stop()
                self.view.tell("Stopping…")

    def reset(self) -> None:
        """End the run, forget what it recorded, and put all controls back to what they were at first."""
        self._use_app(self._first.app)
        self._use_policy(self._first.policy)
        self.view.settle.value, self.view.speed.value = self._first.settle, self._first_speed

    def export(self) -> Path:
        """Write what was recorded as one HTML file, show where it is, and return its path."""
        history = self.history[:] if self.history else None
        if not history:
            raise DspkitError("no run to export", expected="a run of at least one window", fix="press Start first")
        self.report_path = report.from_history(history, target_latency_s=self.settings.target_latency_s)
        self.view.link_to(self.report_path)
        return self.report_path

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; whether it is."""
        return self._live is None or self._live.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self._live is not None and self._live.running

    @property
    def history(self) -> History | None:
        """What the last run recorded so far."""
        return self._live.history if self._live is not None else None

    @property
    def error(self) -> str:
        """The lines that tell of errors, or nothing."""
        return str(self.view.error.value)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.view.box)  # type: ignore[no-untyped-call]

    # Controls

    def _set(self, change: Any) -> None:
        names = {"scale": "scale", "target": "target_latency_s", "settle": "settle"}
        values = {field: read(getattr(self.view, name)) for name, field in names.items()}
        only_target = change["owner"] is self.view.target
        self._apply(replace(self.settings, **values))
        if only_target and self.history and not self.running:
            with self._lock:
                self.view.draw_run(self.history, self.settings)

    def _apply(self, settings: Settings) -> None:
        self.settings = settings
        if self._live is not None:
            self._live.turn(settings)
        self.view.draw_settings(self._now, settings)

    def _pick_app(self, change: Any) -> None:
        name = change["new"]
        if name != self.settings.app:
            self._use_app(name)

    def _pick_policy(self, change: Any) -> None:
        name = change["new"]
        if name != self.settings.policy.name:
            self._use_policy(self._makers[name]())

    def _use_app(self, name: str) -> None:
        """Show another application; a run of the one before is told to stop, and shows nothing any more."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
            self._live = None
            self._forget_errors()
            self._now = self._apps()[name]()
            start, target = self._now.topology.uniform(), self._now.target_latency_s
            self.settings = replace(
                self.settings, app=name, parallelism=FrozenMap(start), target_latency_s=target, scale=1.0
            )
            self._sliders = self.view.sliders(self._now, start)
            for operator, widget in self._sliders.items():
                widget.observe(self._guard("parallelism", partial(self._move, operator)), "value")
            self.view.app.value, self.view.target.value, self.view.scale.value = name, target, 1.0
            self.view.clear(self._now)
            self.view.draw_settings(self._now, self.settings)
            self.view.tell("Press Start.")
            self._enable()

    def _use_policy(self, policy: Policy) -> None:
        panel = Panel(policy, self._turn, lambda error: self._fail("knobs", error), self._time, self._allow)
        former, self.view.knobs.children = getattr(self, "_panel", None), (panel.view,)
        self._panel = panel
        if former is not None:
            former.close()
        self._turn(policy)
        self.view.policy.value = policy.name

    def _turn(self, policy: Policy) -> None:
        self._fail("knobs", None)
        self._apply(replace(self.settings, policy=policy))

    def _allow(self, request: Request) -> None:
        """An error for machines that the application does not have: nothing is asked then, and the run goes on."""
        have = self._machines()
        if have is None or not isinstance(request, ScaleOut):
            return
        now = (self.history[-1].deployment.workers if self.running and self.history else self._now.workers) or have
        waiting = [r for r in getattr(self.settings.policy, "requests", ()) if r.at_s >= self._time()]
        now += sum(r.machines if isinstance(r, ScaleOut) else -r.machines for r in waiting)
        if now + request.machines > have:
            others = {name: make() for name, make in self._apps().items() if name != self.settings.app}
            spare = [name for name, app in others.items() if app.workers and app.workers < len(app.plant.nodes)]
            raise DspkitError(
                f"{request.machines} more for {self.settings.app}, which has {have} machines and uses {now}",
                expected=f"at most {max(0, have - now)} more",
                fix=f"let others leave first, or choose one of {', '.join(spare)}, which start with machines to spare",
            )

    def _machines(self) -> int | None:
        """How many machines there are in all, those in use included; None if it is not known."""
        return len(self._now.plant.nodes)

    def _time(self) -> float:
        """Where the run is, in its own seconds; before it begins, the start."""
        return self.history[-1].snapshot.t if self.running and self.history else 0.0

    def _move(self, operator: str, change: Any) -> None:
        parallelism = change["new"]
        if self._live is not None and self._live.is_this_thread():
            return  # the run itself moved the slider, to show what a policy decided
        self._apply(replace(self.settings, parallelism=FrozenMap({**self.settings.parallelism, operator: parallelism})))
        if self._live is not None:
            self._live.move(operator, parallelism)

    def _enable(self) -> None:
        with self._lock:
            self.view.buttons["Stop"].disabled = self._live is None or self._live.over

    def _guard(self, what: str, act: Callable[..., Any]) -> Callable[..., None]:
        """For the browser: an error becomes a line in the view, instead of a trace in a log that nobody reads.

        The line stays until the same thing succeeds. Callers from code get the error itself.
        """

        def guarded(*change: Any) -> None:
            try:
                act(*(() if what in self.view.buttons else change))
            except Exception as error:
                self._fail(what, error)
            else:
                self._fail(what, None)

        return guarded

    def _fail(self, what: str, error: Exception | None) -> None:
        if error is not None:
            self._errors[what] = f"{type(error).__name__}: {error}"
        else:
            self._errors.pop(what, None)
        self.view.fail(list(self._errors.values()))

    def _forget_errors(self) -> None:
        self._errors.clear()
        self.view.fail(())

    # The run, in its own thread

    def _show(self, run: Run) -> None:
        """Draw where the run is; a run that another has replaced shows nothing any more."""
        with self._lock:
            if run is not self._live:
                return
            if run.over:
                self.view.tell("Failed." if run.error else "Stopped." if run.stopping else "Finished.")
                self.view.buttons["Stop"].disabled = True
            elif not run.stopping and run.history:
                last = run.history[-1].snapshot
                rates = f"{plots.si(last.throughput)} of {plots.si(last.source_rate)} records/s"
                self.view.tell(f"Running: t = {last.t:g} s, {rates}.")
            if run.error is not None:
                self._fail("run", run.error)
            try:
                if run.history:
                    self._follow(run, run.history)
                    self.view.draw_run(run.history, self.settings)
            except Exception as error:  # a picture that cannot be drawn does not end the run
                self._fail("picture", error)

    def _follow(self, run: Run, history: History) -> None:
        """Sliders show what runs, and when it is over what the next run begins with."""
        shown = self.settings.parallelism if run.over else {**history[-1].deployment.parallelism, **run.moved}
        for operator, k in shown.items():
            self._sliders[operator].value = k
