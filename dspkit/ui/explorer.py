"""The Explorer: choose an application, a policy and what it runs on, turn the knobs while it runs, export a report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from html import escape
from typing import Any

import ipywidgets as w

from .. import apps, plots
from ..apps import App
from ..core import ArgumentError, Backend, BackendError, FrozenMap, History, Policy, Topology
from ..core.policy import needs_of
from ..experiment import SIDES, application_of, changed_parts, label_of
from ..policies.on_demand import Request, ScaleOut
from ..workload import Bursts, Jump, Sine, Workload
from .controls import ROOM, WIDE, Loads, Plants, carried, close, height, rounded, slider
from .live import Live
from .run import Run
from .settings import GIVEN, Settings, dials
from .view import RunView, heading

_LABELS = {"simulated": "simulated", "spark": "live Spark", GIVEN: "as given"}
_TOOLTIPS = {
    "simulated": "a simulated cluster, faster than real time",
    "spark": "a real job on Spark on this machine, in real time",
    GIVEN: "the backend that this view was made with",
}
_NOTES = {
    "simulated": "",
    "spark": "Start brings up Spark, which takes about ten seconds; Stop ends it.",
    GIVEN: "The backend that was given; it stays open when the run is over.",
}
FEW_OPERATORS = 12  # whose sliders are shown without a fold: the graph has the same in its nodes
_LENGTHS: Mapping[str, Mapping[str, Any]] = {
    "simulated": {"windows": 90, "window_s": 10.0, "settle": 0},
    "spark": {"windows": 60, "window_s": 2.0, "settle": 1},  # a rescale is over in less than a window
    GIVEN: {"windows": 90, "window_s": 10.0, "settle": 0},
}


@dataclass(frozen=True)
class Duel:
    """Two policies under one load, one run after the other: what a button of a view starts.

    `load(top, duration_s)` makes the load from the greatest rate of the application's own.
    """

    label: str
    policies: tuple[str, str]
    load: Callable[[float, float], Workload]


DUELS = (
    Duel("load step × 3: DS2 against HPA", ("hpa", "ds2"), lambda top, s: Jump(rounded(top / 3), top, rounded(s / 3))),
    Duel(
        "waves: DS2 against nobody",
        ("static", "ds2"),
        lambda top, s: Sine(rounded(0.6 * top), rounded(0.4 * top), rounded(s / 3)),
    ),
    Duel(
        "bursts: Dhalion against HPA",
        ("dhalion", "hpa"),
        lambda top, s: Bursts(rounded(top / 3), top, rounded(s / 3), rounded(s / 15)),
    ),
)


class View(RunView):
    """The widgets of a run and of what it runs on: application, backend, load, plant, parallelism."""

    def __init__(self, names: Sequence[str], speed: int, *rest: Any, load: Any, plant: Any):
        """`load` and `plant` are further controls, below the application."""
        self.app = w.Dropdown(description="application", tooltip="the job that runs", style=WIDE, layout=ROOM)
        self.switch = w.ToggleButtons(
            description="runs on",
            tooltip="the simulator, or a real job",
            style={**WIDE, "button_width": "92px"},
            layout={"width": "345px"},  # room for two buttons
        )
        self.switch.add_class("widget-inline-hbox")  # else its description stands above the buttons
        self.note = w.HTML(layout=ROOM)
        self.scale = slider(
            0.0, 3.0, 1.0, "load, times", "height of the load, as a multiple of what it is, also during a run"
        )
        self.workers = slider(
            0, 6, 0, "workers", "workers of a standalone cluster, which an active job can change; 0: a job without them"
        )
        self.operators, self.chart_of_load, self.hint = w.VBox(), w.HTML(), w.HTML()
        self._unfolded: tuple[Any, ...] = ()  # sliders of operators that a fold shows
        self._load, self._plant = load, plant
        said = "set this load, then run one policy after the other, and lay the second run over the first"
        self.duels = [w.Button(description=duel.label, tooltip=said, layout={"width": "auto"}) for duel in DUELS]
        self._duels = w.VBox([heading("Two runs at a click"), *self.duels], layout=ROOM)
        super().__init__(names, speed, *rest)

    def controls(self) -> list[Any]:
        return [
            self._duels, self.app, self.switch, self.note, self._load, self._plant, self.scale, self.chart_of_load,
            self.policy, self.knobs, heading("Parallelism"), self.hint, self.operators, self.workers,
            heading("Thresholds"), self.target, heading("Run"), self.windows, self.settle, self.speed,
        ]  # fmt: skip

    def show_backend(self, backend: str, offered: Sequence[str], note: str) -> None:
        """Show which backends there are, which one is chosen, and the controls that apply to it."""
        options = tuple((_LABELS[name], name) for name in offered)
        if self.switch.options != options:
            self.switch.options, self.switch.tooltips = options, [_TOOLTIPS[name] for name in offered]
        self.switch.value = backend
        self.note.value = f'<div style="line-height:1.3"><small>{note}</small></div>'
        shown = {
            self.switch: len(offered) > 1,
            self.note: bool(note),
            self._duels: backend != GIVEN,
            self._load: backend != GIVEN,
            self.scale: backend != GIVEN,
            self.chart_of_load: backend != GIVEN,
            self._plant: backend == "simulated",
            self.workers: backend == "spark",
            self.speed: backend != "spark",  # whose time is real
        }
        for widget, visible in shown.items():
            widget.layout.display = None if visible else "none"

    def sliders(self, app: Any, parallelism: Mapping[str, int]) -> dict[str, Any]:
        """Replace the parallelism sliders by new ones, one per operator, and return them."""
        made = {
            o.name: slider(o.min_parallelism, o.max_parallelism, parallelism[o.name], o.name, f"instances of {o.name}")
            for o in app.topology.operators
        }
        former, sliders = (*self.operators.children, *self._unfolded), tuple(made.values())
        shown, self._unfolded = sliders, ()
        if len(sliders) > FEW_OPERATORS:  # a browser that redraws each of them does little else
            fold = w.Accordion(children=(w.VBox(),), titles=(f"{len(sliders)} operators",), layout=ROOM)

            def unfold(change: Any) -> None:
                fold.children[0].children = () if change["new"] is None else sliders

            fold.observe(unfold, "selected_index")
            shown, self._unfolded = (fold,), sliders
        self.operators.children = shown
        for widget in former:
            close(widget)
        return made

    def show_load(self, app: Any, settings: Any) -> None:
        """Draw the load of the next run."""
        if settings.backend != GIVEN:
            duration = settings.windows * settings.window_s
            self.chart_of_load.value = _picture(app.load * settings.scale, duration)
        deciding = settings.policy.name
        said = f"{deciding} decides: a move holds until its next decision" if deciding != "static" else ""
        self.hint.value = f"<small>{escape(said)}</small>"


class Explorer(Live):
    """A view of any policy on any application, simulated or live on Spark, with a switch between the two.

    Display it, or drive it from code. A run that is still active in this kernel is stopped when a view is made.

    Parameters
    ----------
    app : str, callable, App or Backend
        An application, its name, or a function that makes it; or a backend that is ready, which stays open.
    policy : str, type or Policy
        A policy, its class, or its name; the sliders begin with its values.
    backend : str or Backend, optional
        "simulated", "spark", or a backend that is ready and runs this application. Left out, simulated if the
        application can be.
    windows : int, optional
        Length of a run in windows; left out, 90 simulated ones or 60 live ones.
    speed : int
        Simulated windows per second; 0 is as fast as possible.
    **settings
        Other fields of `Settings`, e.g. `scale=2`, and more arguments of the backend, e.g. `mode="microbatch"`.

    Examples
    --------
    >>> from dspkit import apps, ui
    >>> explorer = ui.Explorer("star", "ds2", windows=3, speed=0)
    >>> explorer.start()
    >>> explorer.wait(60), len(explorer.history)
    (True, 3)
    >>> live = ui.Explorer(apps.word_count, "static", backend="spark")
    >>> print(live.settings.code())
    from dspkit import apps, plots, run
    from dspkit.policies.static import Static
    <BLANKLINE>
    app = apps.word_count()
    with app.spark(window_s=2) as job:
        history = run(Static(), job, steps=60, settle=1)
    plots.timeline(history, target_latency_s=0.5)
    """

    view: View

    def __init__(
        self,
        app: str | Callable[[], App] | App | Backend = "word_count",
        policy: str | type | Policy = "ds2",
        *,
        backend: str | Backend | None = None,
        windows: int | None = None,
        speed: int = 8,
        **settings: Any,
    ):
        self._own: dict[str, Any] = {}  # applications that are not found by their name
        self._given: tuple[str, Backend] | None = None  # the backend given, and the application that it runs
        self._options: dict[str, Mapping[str, Any]] = {}
        self._rival = self._overlay = ""  # the policy that runs next, and the run that lies under the present one
        name, parts, chosen = self._resolve(app, backend)
        known = {f.name for f in fields(Settings)} - {"app", "policy", "backend", "options"}
        given = parts | {key: value for key, value in settings.items() if key in known}
        if windows is not None:
            given["windows"] = windows
        options = {key: value for key, value in settings.items() if key not in known}
        policy = self._prepare(policy)
        first = Settings(
            app=name,
            policy=policy,
            backend=chosen,
            options=FrozenMap(options),
            **{**self._beginning(name, chosen), **given},
        )
        view = View(
            sorted(self._makers),
            speed,
            self._press,
            self._errors,
            self._act,
            load=self._pick_load(),
            plant=self._pick_plant(),
        )
        view.app.options = sorted(self._apps())
        self._ready(view, first, speed)
        view.scale.observe(self._errors.guard("settings", self._set), "value")
        view.workers.observe(self._errors.guard("workers", self._pick_workers), "value")
        view.app.observe(self._errors.guard("application", self._pick_app), "value")
        view.switch.observe(self._errors.guard("backend", self._switch), "value")
        for button, duel in zip(view.duels, DUELS, strict=True):
            button.on_click(self._errors.guard("two runs", lambda _, duel=duel: self.duel(duel)))

    # What runs, and on what

    def _resolve(self, app: Any, backend: Any) -> tuple[str, dict[str, Any], str]:
        """Return the application's name, the settings that it comes with, and the backend's name."""
        if _is_backend(app):
            if backend is not None:
                raise ArgumentError(
                    f"a {type(app).__name__} and backend={backend!r:.80}",
                    expected="one backend",
                    fix="pass the application first, as in ui.Explorer(app, policy, backend=job)",
                )
            made: Any = _Unnamed(type(app).__name__, app.topology)
            backend = app
        else:
            made = _application(app)
        offered = _sides(made)
        if _is_backend(backend):
            _must_run(backend, made)
            chosen = GIVEN
        elif backend is None:
            chosen = offered[0]
        elif isinstance(backend, str) and backend in offered:
            chosen = backend
        else:
            missing = f" of {made.name!r}, which has no such side" if backend in SIDES else ""
            raise BackendError(
                f"backend {label_of(backend)}{missing}",
                expected=f"{' or '.join(map(repr, offered))}, or a backend that is ready",
                fix='as in backend="spark" or backend=app.simulator()',
            )
        name, parts = self._name(made, chosen)
        if chosen == GIVEN:
            self._given = name, backend
        return name, parts, chosen

    def _name(self, app: Any, backend: str) -> tuple[str, dict[str, Any]]:
        """Return the name under which this view finds an application, and what it changes of the one of that name.

        A changed load is a setting on the simulator; all other changes make it an application of its own.
        """
        parts = changed_parts(app)
        is_setting = backend == "simulated" and all(isinstance(part, Workload) for part in (parts or {}).values())
        if parts is not None and (is_setting or not parts):
            return app.name, parts
        name = f"{app.name}: your own" if app.name in apps.available() else app.name
        self._own[name] = app
        return name, {}

    def _apps(self) -> dict[str, Callable[[], App]]:
        return {**apps.available(), **{name: partial(_same, app) for name, app in self._own.items()}}

    def _app(self, name: str) -> App:
        app: App = self._own[name] if name in self._own else application_of(name)
        return app

    def _backends(self, name: str) -> tuple[str, ...]:
        """Return the names of the backends that an application has in this view."""
        given = self._given is not None and self._given[0] == name
        return (*_sides(self._app(name)), *([GIVEN] if given else []))

    def _beginning(self, name: str, backend: str) -> dict[str, Any]:
        """Return the settings of a run before any change by hand."""
        app = self._app(name)
        if backend == "spark":
            app = app.as_live()
        start: Mapping[str, int] = app.topology.uniform()
        if backend == GIVEN and self._given is not None:
            start = self._given[1].deployment.parallelism
        return {**_LENGTHS[backend], "target_latency_s": app.target_latency_s, "parallelism": FrozenMap(start)}

    def _application(self, settings: Any) -> App:
        app: App = settings.application(self._app(settings.app))
        if settings.backend == GIVEN and self._given is not None:
            return replace(app, topology=self._given[1].topology)
        return app

    def _begin(self, run: Run) -> AbstractContextManager[Backend]:
        s: Any = run.settings
        if s.backend == GIVEN and self._given is not None:
            backend = self._given[1]
            first = backend.deployment.scaled(s.parallelism)
            if first != backend.deployment:
                backend.deploy(first)
            return nullcontext(backend)
        app = self._application(s)

        def scale() -> float:
            return float(getattr(run.settings, "scale", 1.0))

        if s.backend == "spark":
            live: Backend = s.experiment(app, scale=scale, on_progress=run.report).open()
            return live
        opened: Backend = s.experiment(app, dials(app, scale)).open()
        return opened

    def _pace(self) -> float:
        return 0.0 if self.settings.backend == "spark" else super()._pace()

    def _own_classes(self) -> list[type]:
        workload = self._first.workload
        return [*super()._own_classes(), *([] if workload is None else [type(workload)])]

    # Controls

    def _pick_load(self) -> Any:
        self.loads = Loads(self._other_load, self._failed)
        self.loads.pick.observe(self._errors.guard("load or plant", self.loads.picked), "value")
        return self.loads.view

    def _pick_plant(self) -> Any:
        self.plants = Plants(self._other_plant, self._failed)
        self.plants.pick.observe(self._errors.guard("load or plant", self.plants.picked), "value")
        return self.plants.view

    def _failed(self, error: Exception) -> None:
        self._errors.note("load or plant", error)

    def _controls(self) -> dict[str, str]:
        return {**super()._controls(), "scale": "scale"}

    def _restore(self, settings: Any) -> None:
        s = self.settings
        if (settings.app, settings.backend) != (s.app, s.backend):
            self.use(settings)
            return
        for operator, k in settings.parallelism.items():
            if k != s.parallelism.get(operator):
                self._set_parallelism(operator, k)
        super()._restore(settings)
        if (settings.workload, settings.plant, settings.changes) != (s.workload, s.plant, s.changes):
            self._now = self._application(settings)
            self._put_choices(settings)
        count = int(settings.options.get("workers") or 0)
        self._show_workers(count)
        if self._live is not None and count and count != s.options.get("workers"):
            self._live.move_workers(count)
        self.view.show_load(self._now, settings)

    def _apply(self, settings: Any) -> None:
        super()._apply(settings)
        self.view.show_load(self._now, settings)

    def _pick_app(self, change: Any) -> None:
        name, s = change["new"], self.settings
        if name != s.app:
            backend = s.backend if s.backend in self._backends(name) else self._backends(name)[0]
            kept = self._kept(s, name, backend, _LENGTHS[backend])
            self._options[s.backend] = s.options
            self._forget()
            self._take(
                Settings(
                    app=name,
                    policy=s.policy,
                    backend=backend,
                    options=self._options.get(backend, FrozenMap()),
                    seed=s.seed,
                    **{**self._beginning(name, backend), **kept},
                )
            )

    def _switch(self, change: Any) -> None:
        """Take another backend of the application; what was not changed becomes that backend's own."""
        backend, s = change["new"], self.settings
        if self._taking or backend == s.backend:
            return
        kept = self._kept(s, s.app, backend, (*_LENGTHS[backend], "target_latency_s"))
        there = replace(s, backend=backend, workload=None, options=self._options.get(backend, FrozenMap()), **kept)
        if s.workload is not None and GIVEN not in (backend, s.backend):
            here = self._application(replace(s, workload=None)), s.windows * s.window_s
            other = self._application(there), there.windows * there.window_s
            there = replace(there, workload=carried(s.workload, here, other))
        self._options[s.backend] = s.options
        self._forget()
        self._take(there)

    def _kept(self, settings: Any, app: str, backend: str, names: Iterable[str]) -> dict[str, Any]:
        """Return settings for another application or backend: those that were changed stay, others become its own."""
        first, then = self._beginning(settings.app, settings.backend), self._beginning(app, backend)
        now = {name: getattr(settings, name) for name in names}
        return {name: then[name] if value == first[name] else value for name, value in now.items()}

    def _take(self, settings: Any) -> None:
        with self._lock:
            offered = self._backends(settings.app)
            if settings.backend not in offered:
                raise BackendError(
                    f"backend {settings.backend!r} of {settings.app!r}, which has no such side here",
                    expected=f"one of {', '.join(map(repr, offered))}",
                    fix="choose one",
                )
            topology = self._application(settings).topology
            start = topology.clip({**topology.uniform(), **settings.parallelism})
            super()._take(replace(settings, parallelism=FrozenMap(start)))

    def _put(self, settings: Any) -> None:
        self._now = self._application(settings)
        self._put_choices(settings)
        self._sliders = self.view.sliders(self._now, settings.parallelism)
        for operator, widget in self._sliders.items():
            widget.observe(self._errors.guard("parallelism", partial(self._move, operator)), "value")
        super()._put(settings)
        self.view.scale.max = max(3.0, settings.scale)
        self._show_workers(int(settings.options.get("workers") or 0))
        self.view.app.value, self.view.scale.value = settings.app, settings.scale
        self.view.clear(self._now.topology)

    def _put_choices(self, settings: Any) -> None:
        """Show the backend, and pickers of the load and the plant that suit it."""
        note, live = _NOTES[settings.backend], self._now.live
        if settings.backend == "spark" and live is not None and live.note:
            note = f"{note} {escape(live.note)}."
        self.view.show_backend(settings.backend, self._backends(settings.app), note)
        if settings.backend == GIVEN:
            return
        own = self._app(settings.app)
        duration_s = settings.windows * settings.window_s
        self.loads.take(own if settings.backend == "simulated" else own.as_live(), settings.workload, duration_s)
        if settings.backend == "simulated":
            self.plants.take(own, settings.plant, settings.changes)

    def _other_load(self, workload: Any) -> None:
        self._errors.note("load or plant", None)
        self._reshape(replace(self.settings, workload=workload))

    def _other_plant(self, plant: str, changes: Mapping[str, Any]) -> None:
        self._errors.note("load or plant", None)
        self._reshape(replace(self.settings, plant=plant, changes=FrozenMap(changes)))

    def _reshape(self, settings: Any) -> None:
        """Take another load or plant for the next run; the present one keeps those that it began with."""
        self._now = self._application(settings)
        self._apply(settings)

    def _allow(self, request: Request) -> None:
        """Raise if the application does not have the machines that are asked for; the run continues without them."""
        if not isinstance(request, ScaleOut) or self.settings.backend == GIVEN:
            return
        if self.settings.backend == "spark":
            if "workers" not in self.settings.options:
                raise BackendError(
                    f"{request.machines} more machines for a job on this one",
                    expected="a job on a cluster",
                    fix="stop it, and move the slider of workers to 1 or more before the next start",
                )
            return
        have = len(self._now.plant.nodes)
        history = self.history if self.running else None
        now = (history[0].snapshot.deployment.workers if history else self._now.workers) or have
        # During a run all its requests count: one whose time has come may not have been carried out yet.
        asked = getattr(self.settings.policy, "requests", ())
        waiting = [r for r in asked if history or r.at_s >= self._time()]
        now += sum(r.machines if isinstance(r, ScaleOut) else -r.machines for r in waiting)
        if now + request.machines > have:
            others = {name: make() for name, make in self._apps().items() if name != self.settings.app}
            spare = [name for name, app in others.items() if app.workers and app.workers < len(app.plant.nodes)]
            raise ArgumentError(
                f"{request.machines} more for {self.settings.app}, which has {have} machines and uses {now}",
                expected=f"at most {max(0, have - now)} more",
                fix=f"let others leave first, or choose one of {', '.join(spare)}, which start with machines to spare",
            )

    def _use_policy(self, policy: Policy) -> None:
        """Take a policy; one that needs workers gets two where there are none."""
        super()._use_policy(policy)
        s = self.settings
        if s.backend == "spark" and "workers" not in s.options and needs_of(policy) & {"workers", "placement"}:
            self._show_workers(2)
            self._apply(replace(s, options=FrozenMap({**s.options, "workers": 2})))

    def _show_workers(self, count: int) -> None:
        """Move the slider of workers to what runs, or will."""
        self._workers_shown = count
        self.view.workers.max = max(self.view.workers.max, count)
        self.view.workers.value = count

    def _pick_workers(self, change: Any) -> None:
        """Let the next run, and if it is on a cluster the active one, have that many workers."""
        count, s = change["new"], self.settings
        if self._taking or count == self._workers_shown:
            return  # the view itself moved the slider
        self._workers_shown = count
        others = {name: value for name, value in s.options.items() if name != "workers"}
        self._apply(replace(s, options=FrozenMap({**others, "workers": count} if count else others)))
        if self._live is not None and count:
            self._live.move_workers(count)

    def _move(self, operator: str, change: Any) -> None:
        parallelism = change["new"]
        if self._live is not None and self._live.is_this_thread():
            return  # the run itself moved the slider, to show what a policy decided
        s = self.settings
        ran, new = (
            replace(s, parallelism=FrozenMap({**s.parallelism, operator: k}))
            for k in (change.get("old", parallelism), parallelism)
        )
        if ran != new and not (self._taking or self._undoing):
            self._remember(ran, new)  # a policy may have moved it since: Undo goes back to what ran
        self._apply(new)
        if self._live is not None:
            self._live.move(operator, parallelism)

    def _set_parallelism(self, operator: str, parallelism: int) -> None:
        """Move an operator's slider, as a person does; also if it shows this number already, as a policy moved it."""
        widget = self._sliders[operator]
        parallelism = min(max(parallelism, widget.min), widget.max)
        if widget.value == parallelism:
            self._move(operator, {"new": parallelism})
        widget.value = parallelism

    def branch(self, windows: int, run: str | None = None) -> None:
        """Repeat the first windows of a simulated run, and continue with what the controls say now.

        Parameters
        ----------
        windows : int
            How many windows to repeat, with all that was changed by hand before that.
        run : str, optional
            Number of the run; left out, the one that is shown.

        Examples
        --------
        >>> explorer = Explorer("star", "static", windows=10, speed=0)
        >>> explorer.start()
        >>> explorer.wait(60)
        True
        >>> explorer.view.policy.value = "ds2"
        >>> explorer.branch(4)
        >>> explorer.wait(60), explorer.history.notes
        (True, [(40.0, 'policy DS2()')])
        """
        number = self.view.cockpit.head.get("run", "") if run is None else run
        known = [name for name, (each, _) in self._runs.items() if each.history]
        if number not in known or not isinstance(windows, int) or windows < 1:
            raise ArgumentError(
                f"window {windows!r} of run {number!r}",
                expected=f"a window from 1 up of one of the runs {', '.join(known) or '(none yet)'}",
                fix="press Start first",
            )
        former = self._runs[number][0]
        settings: Any = former.settings
        if settings.backend != "simulated":
            raise BackendError(
                f"a run on {label_of(settings.backend)}",
                expected="a simulated run",
                fix="start it again: what happened live cannot be repeated",
            )
        assert former.history is not None
        windows = min(windows, len(former.history))
        at = former.history[windows - 1].snapshot.t
        made = Run(former.first, self._begin, self._show, self._pace, self._publish, repeats=(former, windows))
        kept = ("workload", "plant", "changes", "parallelism", "options", "window_s")  # what has begun as it was
        made.turn(replace(self.settings, **{name: getattr(former.first, name) for name in kept}))
        self._launch(made, f"{self._label(self.settings)}, from t = {at:g} s of {number}")

    def stop(self) -> None:
        with self._lock:
            self._rival = ""  # the second of two runs does not begin
        super().stop()

    def _launch(self, run: Run, label: str = "", overlay: str = "") -> None:
        with self._lock:
            self._rival, self._overlay = "", overlay
        super()._launch(run, label)

    def _forget(self) -> None:
        with self._lock:
            self._rival = self._overlay = ""
        super()._forget()

    def duel(self, duel: Duel) -> None:
        """Run the first policy under the load, then the second, and compare them; as the buttons do.

        Parameters
        ----------
        duel : Duel
            The load and the policies, e.g. one of DUELS.

        Examples
        --------
        >>> explorer = Explorer("star", windows=9, speed=0)
        >>> explorer.duel(DUELS[0])
        >>> explorer.wait(60), explorer.settings.policy.name
        (True, 'ds2')
        """
        s = self.settings
        if s.backend == GIVEN:
            raise BackendError(
                "two runs on a backend that was given",
                expected="an application, of which each run has a backend of its own",
                fix="pass the application, as in ui.Explorer('word_count')",
            )
        own = self._app(s.app) if s.backend == "simulated" else self._app(s.app).as_live()
        settings = replace(s, scale=1.0, workload=duel.load(*height(own.load, s.windows * s.window_s)))
        self._now = self._application(settings)
        self._put_choices(settings)
        self._apply(settings)
        self.view.scale.value = 1.0
        first, second = duel.policies
        self._use_policy(self._makers[first]())
        with self._lock:  # a short run is not over before its rival is known
            self.start()
            self._rival = second

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over, and the one that follows it; return whether they are."""
        run = None
        while run is not self._live:
            run = self._live
            if not super().wait(timeout_s):
                return False
        return True

    def _show(self, run: Run) -> None:
        super()._show(run)
        with self._lock:
            if run is not self._live or not run.over:
                return
            if self._rival and run.error is None and not run.stopping:
                (first, *_), rival = [name for name, (each, _) in self._runs.items() if each is run], self._rival
                self._use_policy(self._makers[rival]())
                self._launch(self._new_run(), overlay=first)
            elif self._overlay in self._runs and run.history and (other := self._runs[self._overlay][0]).history:
                self.view.cockpit.summary = " ".join(
                    f"{each.settings.policy.name}: {plots.tell(each.history, self.settings.target_latency_s)}"
                    for each in (other, run)
                    if each.history
                )

    def _label(self, settings: Any) -> str:
        scale = f", load × {settings.scale:g}" if settings.scale != 1 else ""
        return f"{settings.policy.name} on {settings.app}{scale}"

    def _outlook(self) -> str:
        s, knobs = self.settings, None
        if s.backend == GIVEN and self._given is not None:
            knobs = frozenset(self._given[1].knobs)
        elif s.backend == "simulated":
            knobs = frozenset({"parallelism", "workers", "placement"})
        return plots.outlook(s.policy, knobs, s.windows * s.window_s)

    def _abilities(self) -> dict[str, Any]:
        s = self.settings
        slow = {
            "simulated": "After an installation the simulator is compiled once, which takes some 15 s.",
            "spark": "Spark and its workers start, which takes 10 to 20 s.",
        }
        return {
            "moves": True,
            "branches": s.backend == "simulated",
            "overlay": self._overlay,
            "start": dict(s.parallelism),
            "slow": slow.get(s.backend, ""),
        }

    def _act(self, what: str, **arguments: Any) -> None:
        if what == "move" and arguments["operator"] in self._sliders:
            move = self._errors.guard("parallelism", self._set_parallelism)
            move(arguments["operator"], arguments["parallelism"])
        elif what == "branch":
            self._errors.guard("branch", self.branch)(arguments["windows"], arguments["run"])
        else:
            super()._act(what, **arguments)

    def _follow(self, run: Run, history: History) -> None:
        """Let the sliders show what runs, and when it is over what the next run begins with."""
        shown = self.settings.parallelism if run.over else {**history[-1].deployment.parallelism, **run.moved}
        for operator, k in shown.items():
            self._sliders[operator].value = k
        given = self.settings.options.get("workers")
        if given:
            self._show_workers(given if run.over else run.moved_workers or history[-1].deployment.workers or given)


def _picture(load: Workload, duration_s: float) -> str:
    """Return a small picture of a load as SVG, in the colours of the page."""
    import numpy as np

    rates = load.rates(np.linspace(0, duration_s, 160))
    low, high, mean = (plots.si(float(each)) for each in (rates.min(), rates.max(), rates.mean()))
    top = float(rates.max()) or 1.0
    line = " ".join(f"{2 * i},{58 - 52 * float(rate) / top:.1f}" for i, rate in enumerate(rates))
    said = (
        f"{low} to {high} records/s over {duration_s:,.0f} s, {mean} on average" if low != high else f"{mean} records/s"
    )
    return (
        f'<svg role="img" aria-label="the load: {said}" viewBox="0 0 318 60" preserveAspectRatio="none" '
        'style="width:318px;max-width:100%;height:60px;display:block;color:var(--jp-brand-color1, #0072b2)">'
        f'<polygon points="0,58 {line} 318,58" fill="currentColor" opacity="0.2"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg><small>{said}</small>'
    )


@dataclass(frozen=True)
class _Unnamed:
    """The application of a backend that was given alone: only its graph is known."""

    name: str
    topology: Topology
    target_latency_s: float = 0.18
    simulated: bool = False
    live: None = None
    workers: None = None


def _sides(app: Any) -> tuple[str, ...]:
    """Return what an application can run on; the live side of a simulated one can be synthetic."""
    live = app.simulated or app.live is not None
    return tuple(side for side, there in zip(SIDES, (app.simulated, live), strict=True) if there)


def _application(thing: Any) -> App:
    """Return the application that was given: by name, made, or as a function that makes it."""
    if callable(thing) and not isinstance(thing, type):
        try:
            inspect.signature(thing).bind()
        except TypeError as error:
            raise ArgumentError(
                f"{label_of(thing)}, which needs an argument ({error})",
                expected="a function that makes an application",
                fix="call it, and pass what it returns",
            ) from None
        thing = thing()
    made = application_of(thing, "an application, its name, a function that makes it, or a backend")
    if not isinstance(made, App):
        raise ArgumentError(label_of(made), expected="an application", fix="make one: dspkit.apps.App(...)")
    return made


def _must_run(backend: Backend, app: App) -> None:
    """Refuse a backend that runs another application."""
    theirs, ours = (tuple(o.name for o in t.operators) for t in (backend.topology, app.topology))
    if set(theirs) != set(ours):
        raise BackendError(
            f"a {type(backend).__name__} of {', '.join(theirs)}",
            expected=f"one that runs {app.name}: {', '.join(ours)}",
            fix="pass the backend alone, as in ui.Explorer(backend, policy)",
        )


def _is_backend(thing: Any) -> bool:
    return isinstance(thing, Backend) and not isinstance(thing, type)


def _same(app: App) -> App:
    return app
