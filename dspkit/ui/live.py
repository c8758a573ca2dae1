"""A run on any backend in the background, with buttons to start, pause and stop it, and the policy's knobs.

The run has a thread of its own (run.py), which shows charts by setting traits; callbacks only note what is wanted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .. import plots, policies, report
from ..core import ArgumentError, Backend, History, Policy, thresholds
from ..experiment import policy_of
from .controls import Errors, Panel, read_control, replace_former
from .run import Run
from .settings import LiveSettings
from .view import RunView

MOST_RUNS = 8  # runs that a view keeps to compare with
MOST_UNDONE = 100  # changes that can be taken back
_SAME_S = 1.0  # changes of one control within this time are one


def _differing(before: Any, after: Any) -> Iterator[str]:
    """Yield the names of settings that differ; of a mapping, each key that does."""
    for name in (f.name for f in fields(before)):
        a, b = getattr(before, name), getattr(after, name)
        if a != b and isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from (f"{name} {key}" for key in sorted({*a, *b}) if a.get(key) != b.get(key))
        elif a != b:
            yield name


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
        view = RunView(sorted(self._makers), speed, self._press, self._errors, self._act)
        self._ready(view, settings, speed)

    def _prepare(self, policy: str | type | Policy) -> Policy:
        """Make what the view needs, and return the policy."""
        chosen = policy_of(policy)
        Run.stop_latest()  # as when the cell is run again: its former view, and its Stop button, are gone
        self._makers: dict[str, Callable[[], Policy]] = {**policies.available(), chosen.name: lambda: chosen}
        self._lock = threading.RLock()  # the run's thread and callbacks both draw
        self._errors = Errors()
        self._live: Run | None = None
        self._runs: dict[str, tuple[Run, str]] = {}  # by number, the active one last: with what to call them
        self._started = 0
        self._taking = self._undoing = False
        self._past: list[tuple[Any, str, float]] = []  # settings before each change, what it changed, and when
        self.report_path: Path | None = None
        self._press = {
            "Start": self.start,
            "Pause": self.pause,
            "Step": self.step,
            "Stop": self.stop,
            "Undo": self.undo,
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
        self._launch(self._new_run())

    def _new_run(self) -> Run:
        return Run(self.settings, self._begin, self._show, self._pace, self._publish)

    def _launch(self, run: Run, label: str = "") -> None:
        """Start a run, show it, and keep it with those before."""
        self._errors.forget()
        self.view.tell("Starting…")
        self.view.cockpit.summary = ""
        with self._lock:
            self._started += 1
            number = str(self._started)
            self._live = run
            self._runs[number] = run, f"{number}: {label or self._label(run.settings)}"
            while len(self._runs) > MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            self.view.cockpit.keep({name: each for name, (each, _) in self._runs.items()})
            self._show_head(state="starting", going=True, paused=False, left_s=None)
        run.start()
        self._enable()

    def _label(self, settings: Any) -> str:
        """A few words for a run with these settings."""
        return str(settings.policy.name)

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

    def step(self) -> None:
        """Run one window and pause; without an active run, begin one.

        Examples
        --------
        >>> from dspkit import apps, ui
        >>> live = ui.Live(lambda: apps.star().simulator(), "static")
        >>> live.step()
        >>> live.stop()
        """
        if (run := self._live) is not None and not run.over:
            run.step()
            return
        run = self._new_run()
        run.step()
        self._launch(run)

    def undo(self) -> None:
        """Take back the last change of a control; without one, do nothing.

        Examples
        --------
        >>> from dspkit import apps, ui
        >>> live = ui.Live(lambda: apps.star().simulator(), "static")
        >>> live.view.settle.value = 3
        >>> live.undo()
        >>> live.settings.settle, live.view.settle.value
        (0, 0)
        """
        if not self._past:
            return
        settings, *_ = self._past.pop()
        self._undoing = True
        try:
            self._restore(settings)
        finally:
            self._undoing = False
        self._enable()

    def _restore(self, settings: Any) -> None:
        """Move the controls back to these settings; an active run follows."""
        if settings.policy != self.settings.policy:
            self._use_policy(settings.policy)
        for setting, name in self._controls().items():
            getattr(self.view, name).value = getattr(settings, setting)
        self._apply(replace(settings))

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
        if not self._undoing:
            self._past.clear()
        self._show_head()
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

    def _controls(self) -> dict[str, str]:
        """The controls of settings beside policy and parallelism."""
        return {"target_latency_s": "target", "settle": "settle", "windows": "windows"}

    def _changed(self) -> dict[str, Any]:
        return {setting: read_control(getattr(self.view, name)) for setting, name in self._controls().items()}

    def _set(self, change: Any) -> None:
        if self._taking:
            return
        self._apply(replace(self.settings, **self._changed()))

    def _apply(self, settings: Any) -> None:
        if not (self._taking or self._undoing) and settings != self.settings:
            self._remember(self.settings, settings)
        self.settings = settings
        if self._live is not None:
            self._live.turn(settings)
        self.view.show_settings(settings)
        self._show_head()

    def _remember(self, before: Any, after: Any) -> None:
        """Note the settings before a change, once for all moves of one control."""
        what = ",".join(_differing(before, after))
        now = time.monotonic()
        if self._past and self._past[-1][1] == what and now - self._past[-1][2] < _SAME_S:
            self._past[-1] = (self._past[-1][0], what, now)
        else:
            self._past = [*self._past[-MOST_UNDONE + 1 :], (before, what, now)]
        self.view.buttons["Undo"].disabled = False

    def _show_head(self, **more: Any) -> None:
        """Show the run, and what is known of it, in the cockpit."""
        s, run = self.settings, self._live
        number = next((name for name, (each, _) in self._runs.items() if each is run), "") if run is not None else ""
        self.view.show_head(
            run=number,
            runs=[{"id": name, "label": label} for name, (_, label) in self._runs.items()],
            windows=s.windows,
            target=s.target_latency_s,
            lines={name: list(line) for name, line in thresholds(s.policy).items()},
            outlook=self._outlook(),
            **{**self._abilities(), **more},
        )

    def _outlook(self) -> str:
        return plots.outlook(self.settings.policy)

    def _abilities(self) -> dict[str, Any]:
        """Return the requests of the cockpit that this backend can carry out."""
        return {"moves": False, "branches": False, "start": {}, "slow": ""}

    def _act(self, what: str, **arguments: Any) -> None:
        """Do what a person asks for in the cockpit; its errors are lines in the view."""
        if what == "press" and arguments["button"] in {*self.view.buttons, "Resume"}:
            self.view.buttons["Pause" if arguments["button"] == "Resume" else arguments["button"]].click()

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

    def _allow(self, request: Any) -> None:
        """Raise if the machines that a person asks for are not available; here the backend itself raises."""

    def _time(self) -> float:
        """The time of the run in its own seconds; 0 before it starts."""
        return self.history[-1].snapshot.t if self.running and self.history else 0.0

    def _enable(self) -> None:
        with self._lock:
            run = self._live
            going = run is not None and not run.over
            paused = going and run is not None and run.paused
            self.view.show_buttons(going=going, paused=paused)
            self.view.buttons["Undo"].disabled = not self._past
            self.view.show_head(going=going, paused=paused)

    def _forget(self) -> None:
        """Stop the active run, and show nothing of it any more."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
            self._live = None
            self._runs.clear()
            self.view.cockpit.keep({})
            self._errors.forget()

    # The run, in its own thread

    def _publish(self) -> None:
        """Send browsers what they do not have; what cannot be sent does not end the run."""
        try:
            self.view.cockpit.publish()
        except Exception as error:
            self._errors.note("picture", error)

    def _show(self, run: Run) -> None:
        """Show the state of the run; a run that another one has replaced shows nothing any more."""
        with self._lock:
            if run is not self._live:
                return
            state, said = "running", ""
            if run.over:
                state = "failed" if run.error else "stopped" if run.stopping else "finished"
                said = f"{state.capitalize()}."
            elif run.repeating:
                state, said = "starting", "Starting…"
            elif run.stage and not run.history and not run.stopping:
                state, said = "starting", f"Starting: {run.stage}."
            elif not run.stopping and run.history:
                last = run.history[-1].snapshot
                rates = f"{plots.si(last.throughput)} of {plots.si(last.source_rate)} records/s"
                said = f"{'Paused' if run.paused else 'Running'}: t = {last.t:g} s, {rates}."
            if run.error is not None:
                self._errors.note("run", run.error)
            try:
                if run.history is not None and not self.view.cockpit.scene:
                    self.view.cockpit.show(run.history.topology)  # known from here on
                if run.history:
                    self._follow(run, run.history)
                    still = run.over or run.paused
                    told = plots.tell(run.history, self.settings.target_latency_s) if still else ""
                    self.view.cockpit.summary = told
                self.view.show_head(state=state, left_s=run.left_s)
            except Exception as error:  # a picture that cannot be drawn does not end the run
                self._errors.note("picture", error)
            self._publish()
            if said:  # last, so that who waits for the word finds all else in place
                self.view.tell(said)
            self._enable()

    def _follow(self, run: Run, history: History) -> None:
        """For views with sliders of what runs."""
