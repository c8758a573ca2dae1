"""The Explorer: pick an application, a load, a plant and a policy, run it, turn the knobs while it runs, export."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import ipywidgets as w

from .. import plots, topologies
from ..core import Backend, Policy
from ..errors import DspkitError
from ..frozen import FrozenMap
from ..history import History
from ..policies.on_demand import Request, ScaleOut
from .controls import ROOM, WIDE, close, read, slider
from .live import Live
from .run import Run
from .settings import Settings, dials
from .shapes import Loads, Plants
from .view import RunView, heading, show_plot


class View(RunView):
    """The widgets of a run with what it runs on: application, load, plant, parallelism."""

    def __init__(self, apps: Sequence[str], names: Sequence[str], speed: int, *rest: Any, shapes: Sequence[Any] = ()):
        """`shapes` are further controls, below the load and the application."""
        self.app = w.Dropdown(
            options=apps, description="application", tooltip="the job that runs", style=WIDE, layout=ROOM
        )
        self.scale = slider(0.0, 3.0, 1.0, "load, times", "height of the load, as a multiple of what it is")
        self.operators, self.load, self.hint = w.VBox(), w.Output(), w.HTML()
        self._shapes = list(shapes)
        super().__init__(names, speed, *rest)

    def controls(self) -> list[Any]:
        return [
            self.app, *self._shapes, self.scale, self.load, self.policy, self.knobs, heading("Parallelism"), self.hint,
            self.operators, heading("Thresholds"), self.target, heading("Run"), self.settle, self.speed,
        ]  # fmt: skip

    def sliders(self, app: Any, parallelism: Mapping[str, int]) -> dict[str, Any]:
        """New parallelism sliders, one an operator, in the place of the former."""
        made = {
            o.name: slider(o.min_parallelism, o.max_parallelism, parallelism[o.name], o.name, f"instances of {o.name}")
            for o in app.topology.operators
        }
        former, self.operators.children = self.operators.children, tuple(made.values())
        for widget in former:
            close(widget)
        return made

    def show_load(self, app: Any, settings: Any) -> None:
        """The load to come."""
        duration = settings.windows * settings.window_s
        show_plot(self.load, plots.workload(app.load * settings.scale, duration, height=150), bar=False)
        deciding = settings.policy.name
        said = f"{deciding} decides: a move holds until its next decision" if deciding != "static" else ""
        self.hint.value = f"<small>{said}</small>"


class Explorer(Live):
    """Controls and a live chart of any policy on a simulated application. Display it, or drive it from code:

    `explorer.start(); explorer.wait(); explorer.history`
    """

    view: View

    def __init__(
        self, app: str = "word_count", policy: str | Policy = "ds2", *, windows: int = 90, speed: int = 8,
    ):  # fmt: skip
        """`speed` is in windows a second; 0 is as fast as it goes. A run that goes in this kernel is told to stop.

        `use(settings)` takes settings, or the text that printed them: from a report, say.
        """
        if app not in self._apps():
            known = ", ".join(self._apps())
            raise DspkitError(f"application {app!r}", expected=f"one of {known}", fix="check the name")
        chosen = self._prepare(policy)
        made = self._apps()[app]()
        start, target = FrozenMap(made.topology.uniform()), made.target_latency_s
        settings = self._settings(
            app=app, policy=chosen, windows=windows, parallelism=start, target_latency_s=target
        )  # fmt: skip
        view = View(sorted(self._apps()), sorted(self._makers), speed, self._press, self._errors, shapes=self._shapes())
        self._ready(view, settings, speed)
        view.scale.observe(self._errors.guard("settings", self._set), "value")
        view.app.observe(self._errors.guard("application", self._pick_app), "value")

    # What runs, and on what; LiveExplorer has others

    @staticmethod
    def _apps() -> Mapping[str, Callable[[], Any]]:
        return topologies.available()

    def _settings(self, **given: Any) -> Any:
        return Settings(**given)

    def _shapes(self) -> list[Any]:
        """Pickers of load and plant."""

        def failed(error: Exception) -> None:
            self._errors.note("load or plant", error)

        self.loads, self.plants = Loads(self._other_load, failed), Plants(self._other_plant, failed)
        for picker in (self.loads, self.plants):
            picker.pick.observe(self._errors.guard("load or plant", picker.picked), "value")
        return [self.loads.view, self.plants.view]

    def _application(self, settings: Any) -> Any:
        return settings.application()

    def _begin(self, run: Run) -> Backend:
        s: Any = run.settings
        load = dials(s.application(), lambda: float(getattr(run.settings, "scale", 1.0)))
        simulator: Backend = s.application().simulator(
            load, parallelism=s.parallelism, seed=s.seed, window_s=s.window_s
        )  # fmt: skip
        return simulator

    # Controls

    def _changed(self) -> dict[str, Any]:
        return {**super()._changed(), "scale": read(self.view.scale)}

    def _apply(self, settings: Any) -> None:
        super()._apply(settings)
        self.view.show_load(self._now, settings)

    def _pick_app(self, change: Any) -> None:
        name = change["new"]
        if name != self.settings.app:
            made = self._apps()[name]()
            start, target = FrozenMap(made.topology.uniform()), made.target_latency_s
            self._forget()
            self._take(replace(
                self._settings(app=name, policy=self.settings.policy), parallelism=start, target_latency_s=target,
                windows=self.settings.windows, window_s=self.settings.window_s, settle=self.settings.settle,
                seed=self.settings.seed,
            ))  # fmt: skip

    def _take(self, settings: Any) -> None:
        with self._lock:
            if settings.app not in self._apps():
                known = ", ".join(self._apps())
                raise DspkitError(f"application {settings.app!r}", expected=f"one of {known}", fix="check the name")
            topology = self._apps()[settings.app]().topology
            start = topology.clip({**topology.uniform(), **settings.parallelism})
            super()._take(replace(settings, parallelism=FrozenMap(start)))

    def _put(self, settings: Any) -> None:
        self._now = self._application(settings)
        self._take_shapes(settings, self._apps()[settings.app]())
        self._sliders = self.view.sliders(self._now, settings.parallelism)
        for operator, widget in self._sliders.items():
            widget.observe(self._errors.guard("parallelism", partial(self._move, operator)), "value")
        super()._put(settings)
        self.view.scale.max = max(3.0, settings.scale)
        self.view.app.value, self.view.scale.value = settings.app, settings.scale
        self.view.clear(self._now.topology)

    def _take_shapes(self, settings: Any, app: Any) -> None:
        self.loads.take(app, settings.workload, settings.windows * settings.window_s)
        self.plants.take(app, settings.plant, settings.changes)

    def _other_load(self, workload: Any) -> None:
        self._errors.note("load or plant", None)
        self._reshape(replace(self.settings, workload=workload))

    def _other_plant(self, plant: str, changes: Mapping[str, Any]) -> None:
        self._errors.note("load or plant", None)
        self._reshape(replace(self.settings, plant=plant, changes=FrozenMap(changes)))

    def _reshape(self, settings: Any) -> None:
        """Another load or plant is for the next run: one that goes was made with its own."""
        self._now = self._application(settings)
        self._apply(settings)

    def _allow(self, request: Request) -> None:
        """An error for machines that the application does not have: nothing is asked then, and the run goes on."""
        if not isinstance(request, ScaleOut):
            return
        have = len(self._now.plant.nodes)
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

    def _move(self, operator: str, change: Any) -> None:
        parallelism = change["new"]
        if self._live is not None and self._live.is_this_thread():
            return  # the run itself moved the slider, to show what a policy decided
        self._apply(replace(self.settings, parallelism=FrozenMap({**self.settings.parallelism, operator: parallelism})))
        if self._live is not None:
            self._live.move(operator, parallelism)

    def _follow(self, run: Run, history: History) -> None:
        """Sliders show what runs, and when it is over what the next run begins with."""
        shown = self.settings.parallelism if run.over else {**history[-1].deployment.parallelism, **run.moved}
        for operator, k in shown.items():
            self._sliders[operator].value = k
