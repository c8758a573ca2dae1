"""A run on any backend in the background, with buttons to start, pause and stop it, and the policy's knobs.

The run has a thread of its own (run.py), which shows charts by setting traits; callbacks only note what is wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import plots, policies, report
from ..core import ArgumentError, Backend, History, Policy, thresholds
from ..experiment import policy_of
from .controls import Errors, Panel, read_control, replace_former
from .run import Run
from .settings import LiveSettings
from .view import RunView


class Live:
    """A view of any policy on any backend: buttons, the policy's knobs, and a chart that grows with the run.

    Display it, or drive it from code. A run that is still active in this kernel is stopped when a view is made.

    Parameters
    ----------
    backend : callable
        Makes the backend. It is called at each start, and what it returns is closed at the end of the run.
    policy : str, type or Policy
        A policy, its class, or its name; the sliders begin with its values.
    windows : int
        Length of a run in windows.
    speed : int
        Windows per second; 0 is as fast as possible.
    settle : int
        Windows after each change that are observed and not decided on.
    seed : int
        Seed of the policy.
    target_latency_s : float
        The latency to aim at, a line in the chart.

    Examples
    --------
    >>> from dspkit import apps, ui
    >>> live = ui.Live(lambda: apps.star().simulator(), "ds2", windows=3)
    >>> live.start()
    >>> live.wait(60), len(live.history)
    (True, 3)
    """

    settings: Any

    def __init__(
        self,
        backend: Callable[[], Backend],
        policy: str | type | Policy = "ds2",
        *,
        windows: int = 90,
        speed: int = 0,
        settle: int = 0,
        seed: int = 0,
        target_latency_s: float = 0.18,
    ):
        if not callable(backend):
            raise ArgumentError(
                f"a {type(backend).__name__}", expected="a function that makes a backend", fix="put lambda: before it"
            )
        self._make = backend
        chosen = self._prepare(policy)
        settings = LiveSettings(chosen, windows, settle, seed, target_latency_s)
        self._ready(RunView(sorted(self._makers), speed, self._press, self._errors), settings, speed)

    def _prepare(self, policy: str | type | Policy) -> Policy:
        """Make what the view needs, and return the policy."""
        chosen = policy_of(policy)
        Run.stop_latest()  # as when the cell is run again: its former view, and its Stop button, are gone
        self._makers: dict[str, Callable[[], Policy]] = {**policies.available(), chosen.name: lambda: chosen}
        self._lock = threading.RLock()  # the run's thread and callbacks both draw
        self._errors = Errors()
        self._live: Run | None = None
        self._taking = False
        self.report_path: Path | None = None
        self._press = {
            "Start": self.start,
            "Pause": self.pause,
            "Stop": self.stop,
            "Reset": self.reset,
            "Export report": self.export,
        }
        return chosen

    def _ready(self, view: Any, settings: Any, speed: int) -> None:
        """Show the first settings and listen to the controls."""
        self.view, self._first_speed = view, speed
        self._first = self.settings = settings
        self.use(settings)
        for name in ("target", "settle", "windows"):
            getattr(view, name).observe(self._errors.guard("settings", self._set), "value")
        view.policy.observe(self._errors.guard("policy", self._pick_policy), "value")
        view.settings.observe(self._errors.guard("pasted settings", self._pasted), "value")

    # What a person or a test does

    def start(self) -> None:
        """Start a run with the present settings; an active run ends first."""
        self._errors.forget()
        self.view.tell("Starting…")
        self._live = Run(self.settings, self._begin, self._show, self._pace)
        self._live.start()
        self._enable()

    def pause(self) -> None:
        """Pause the run, or resume it."""
        with self._lock:
            if (run := self._live) is None or run.over or run.stopping:
                return
            if run.paused:
                run.resume()
            else:
                run.pause()
                self.view.tell("Pausing…")
            self._enable()

    def stop(self) -> None:
        """Ask the run to end, and return at once; what it recorded stays."""
        with self._lock:
            if self._live is not None and not self._live.over:
                self._live.stop()
                self.view.tell("Stopping…")

    def reset(self) -> None:
        """End the run, forget what it recorded, and put all controls back to their first values."""
        self.use(self._first)
        self.view.speed.value = self._first_speed

    def use(self, settings: Any) -> None:
        """Take other settings; the run before them is stopped and forgotten.

        Parameters
        ----------
        settings : str, Settings or LiveSettings
            The settings, or the text that printed them, e.g. from a report.

        Examples
        --------
        >>> from dspkit import apps, ui
        >>> live = ui.Live(lambda: apps.star().simulator(), "static")
        >>> live.use("LiveSettings(DS2(activation=3), windows=10)")
        >>> live.settings.policy.activation
        3
        """
        settings = type(self._first).load(settings, self._own_classes()) if isinstance(settings, str) else settings
        self._forget()
        self._take(settings)

    def export(self) -> Path:
        """Write the recorded run as one HTML file, show a link to it, and return its path."""
        history = self.history[:] if self.history else None
        if not history:
            raise ArgumentError("no run to export", expected="a run of at least one window", fix="press Start first")
        self.report_path = report.from_history(history, target_latency_s=self.settings.target_latency_s)
        self.view.link_to(self.report_path)
        return self.report_path

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over, and return whether it is.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds to wait at most.

        Examples
        --------
        >>> from dspkit import apps, ui
        >>> live = ui.Live(lambda: apps.star().simulator(), "static", windows=2)
        >>> live.start()
        >>> live.wait(60)
        True
        """
        return self._live is None or self._live.wait(timeout_s)

    @property
    def running(self) -> bool:
        """True while a run is active."""
        return self._live is not None and self._live.running

    @property
    def history(self) -> History | None:
        """The windows that the last run recorded so far; None before the first."""
        return self._live.history if self._live is not None else None

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        replace_former(self, self.view.box)
        display(self.view.box)  # type: ignore[no-untyped-call]

    # Controls

    def _take(self, settings: Any) -> None:
        """Show these settings; changes of controls on the way are ignored."""
        self._taking = True
        try:
            self._put(settings)
        finally:
            self._taking = False
        self._use_policy(settings.policy)
        self.view.tell("Press Start.")
        self._enable()

    def _put(self, settings: Any) -> None:
        """Move the controls to these settings."""
        self.settings, target = settings, self.view.target
        self.view.clear(None)
        target.min = min(target.min, settings.target_latency_s)
        target.max = max(target.max, settings.target_latency_s)
        self.view.settle.max = max(self.view.settle.max, settings.settle)
        self.view.windows.min = min(self.view.windows.min, settings.windows)
        self.view.windows.max = max(self.view.windows.max, settings.windows)
        self.view.windows.value = settings.windows
        target.value, self.view.settle.value = settings.target_latency_s, settings.settle

    def _begin(self, run: Run) -> AbstractContextManager[Backend]:
        return self._make()

    def _pace(self) -> float:
        """Windows per second, or 0 for no limit."""
        return float(self.view.speed.value)

    def _own_classes(self) -> list[type]:
        """Classes of the user's own that pasted settings may name."""
        return [type(self._first.policy)]

    def _changed(self) -> dict[str, Any]:
        """The settings that the controls have, beside policy and parallelism."""
        controls = {"target_latency_s": "target", "settle": "settle", "windows": "windows"}
        return {setting: read_control(getattr(self.view, name)) for setting, name in controls.items()}

    def _set(self, change: Any) -> None:
        if self._taking:
            return
        self._apply(replace(self.settings, **self._changed()))
        if change["owner"] is self.view.target:
            self._redraw()

    def _redraw(self) -> None:
        """Redraw the thresholds in the chart of a run that is over."""
        if self.history and not self.running:
            with self._lock:
                self.view.draw_run(self.history, self.settings)

    def _apply(self, settings: Any) -> None:
        self.settings = settings
        if self._live is not None:
            self._live.turn(settings)
        self.view.show_settings(settings)

    def _pasted(self, change: Any) -> None:
        if change["new"].strip() != repr(self.settings):
            self.use(change["new"])

    def _pick_policy(self, change: Any) -> None:
        name = change["new"]
        if name != self.settings.policy.name:
            self._use_policy(self._makers[name]())

    def _use_policy(self, policy: Policy) -> None:
        panel = Panel(
            policy, self._turn, lambda error: self._errors.note("knobs", error), self._time, allow=self._allow
        )
        former, self.view.knobs.children = getattr(self, "_panel", None), (panel.view,)
        self._panel = panel
        if former is not None:
            former.close()
        self._makers.setdefault(policy.name, lambda: policy)
        if policy.name not in self.view.policy.options:
            self.view.policy.options = sorted(self._makers)
        self._apply(replace(self.settings, policy=policy))
        self.view.policy.value = policy.name

    def _turn(self, policy: Policy) -> None:
        self._errors.note("knobs", None)
        self._apply(replace(self.settings, policy=policy))
        if thresholds(policy):
            self._redraw()

    def _allow(self, request: Any) -> None:
        """Raise if the machines that a person asks for are not available; here the backend itself raises."""

    def _time(self) -> float:
        """The time of the run in its own seconds; 0 before it starts."""
        return self.history[-1].snapshot.t if self.running and self.history else 0.0

    def _enable(self) -> None:
        with self._lock:
            run = self._live
            going = run is not None and not run.over
            self.view.show_buttons(going=going, paused=going and run is not None and run.paused)

    def _forget(self) -> None:
        """Stop the active run, and show nothing of it any more."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
            self._live = None
            self._errors.forget()

    # The run, in its own thread

    def _show(self, run: Run) -> None:
        """Draw the run so far; a run that another one has replaced shows nothing any more."""
        with self._lock:
            if run is not self._live:
                return
            if run.over:
                self.view.tell("Failed." if run.error else "Stopped." if run.stopping else "Finished.")
                self._enable()
            elif not run.stopping and run.history:
                last = run.history[-1].snapshot
                rates = f"{plots.si(last.throughput)} of {plots.si(last.source_rate)} records/s"
                self.view.tell(f"{'Paused' if run.paused else 'Running'}: t = {last.t:g} s, {rates}.")
            if run.error is not None:
                self._errors.note("run", run.error)
            try:
                if run.history:
                    self._follow(run, run.history)
                    self.view.draw_run(run.history, self.settings)
                    self.view.tell_progress(len(run.history), self.settings.windows, run.left_s)
            except Exception as error:  # a picture that cannot be drawn does not end the run
                self._errors.note("picture", error)

    def _follow(self, run: Run, history: History) -> None:
        """For views with sliders of what runs."""
