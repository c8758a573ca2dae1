"""Two to four policies side by side, on the same application, under the same load, with the same seed.

Whenever a control changes, all of them run again in the background; runs that are out of date are dropped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from .. import apps, plots, report
from ..comparison.scores import side_by_side
from ..core import ArgumentError, FrozenMap, History, Policy, call
from ..experiment import Experiment, policy_of
from ..policies import available
from ..simulator.system.plant import OWN
from .controls import ROOM, WIDE, Errors, Loads, Panel, Plants, read_control, slider
from .run import BackgroundTask
from .settings import OnApplication, application_code, imports, loop_arguments
from .view import heading, settings_box, show_beside, show_plot

if TYPE_CHECKING:
    import pandas as pd


LETTERS = "ABCD"


@dataclass(frozen=True, repr=False)
class CompareSettings(OnApplication):
    """The settings of a `Compare`; `code()` is the same comparison without widgets.

    Parameters
    ----------
    app : str
        Name of the application.
    policies : tuple of Policy
        Two to four policies.
    scale : float
        How many times the load.
    workload : Workload, optional
        Another load than the application's own.
    plant : str
        One of `simulator.VARIANTS`.
    changes : mapping
        Fields of that plant that are changed.
    windows : int
        Length of each run in windows.
    window_s : float
        Length of a window in seconds.
    settle : int
        Windows after each change that are observed and not decided on.
    seed : int
        Seed of the policies and of the simulator.
    target_latency_s : float
        The latency to aim at, a line in the chart.

    Examples
    --------
    >>> from dspkit.policies import DS2, Static
    >>> CompareSettings("star", (DS2(), Static()), scale=2.0)
    CompareSettings(app='star', scale=2.0, policies=(DS2(), Static()))
    """

    policies: tuple[Policy, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policies, tuple) or not all(isinstance(p, Policy) for p in self.policies):
            raise ArgumentError(
                f"policies {self.policies!r}",
                expected="a tuple of policies, as (DS2(), Static())",
                fix="copy what the view shows as settings",
            )
        if not 2 <= len(self.policies) <= len(LETTERS):
            raise ArgumentError(f"{len(self.policies)} policies", expected="two to four", fix="drop or add some")

    def named(self) -> dict[str, Policy]:
        """Return the policies by a letter and their name: two of one kind may differ in their knobs."""
        return {f"{letter}: {p.name}": p for letter, p in zip(LETTERS, self.policies, strict=False)}

    def code(self) -> str:
        """Return the same comparison as code to copy."""
        names, made = application_code(self)
        scale = f"scale={self.scale:g}, " if self.scale != 1 else ""
        lines = "".join(f"    {name!r}: {call(policy)},\n" for name, policy in self.named().items())
        needed = "".join(dict.fromkeys(line for p in self.policies for line in imports(p).splitlines(True)))
        return (
            f"from dspkit import {', '.join(sorted({'plots', 'run', *names}))}\n{needed}\n{made}"
            f"policies = {{\n{lines}}}\n"
            f"runs = {{name: run(policy, app.simulator({scale}window_s={self.window_s:g}, seed={self.seed}), "
            f"{loop_arguments(self)}) for name, policy in policies.items()}}\n"
            f"plots.managed(runs, target_latency_s={self.target_latency_s:g})"
        )


class Comparing(BackgroundTask):
    """The runs of all policies, window by window, so that their charts grow together."""

    def __init__(self, settings: CompareSettings, show: Callable[[Any], None]):
        super().__init__(show)
        self.settings = settings
        self.runs: dict[str, History] = {}

    def pieces(self) -> Iterator[None]:
        s = self.settings
        app, loops, options = s.application(), [], {"scale": s.scale}
        same: dict[str, Any] = {"steps": s.windows, "window_s": s.window_s, "settle": s.settle, "seed": s.seed}
        for name, policy in s.named().items():
            self.runs[name], loop = Experiment(app, policy, **same, options=options).begin()
            loops.append(loop)
        for _ in zip(*loops, strict=True):
            yield


NOBODY = "nobody"


class Compare:
    """A view of two to four policies side by side, on one simulated application under one load.

    Display it, or drive it from code.

    Parameters
    ----------
    app : str
        Name of the application.
    policies : tuple of str, type or Policy
        Two to four policies, their classes, or their names.
    windows : int
        Length of each run in windows.
    seed : int
        Seed of the policies and of the simulator.

    Examples
    --------
    >>> from dspkit import ui
    >>> page = ui.Compare("star", ("ds2", "static"), windows=3)
    >>> page.wait(60)
    True
    >>> list(page.scores.index)
    ['A: ds2', 'B: static']
    """

    def __init__(
        self,
        app: str = "word_count",
        policies: Sequence[str | type | Policy] = ("ds2", "static"),
        *,
        windows: int = 90,
        seed: int = 0,
    ):
        target = apps.get(app)().target_latency_s
        chosen = tuple(policy_of(policy) for policy in policies)
        self._makers: dict[str, Callable[[], Policy]] = {
            **available(),
            **{p.name: partial(_itself, p) for p in chosen},
        }
        self._lock, self._errors = threading.RLock(), Errors()
        self._task: Comparing | None = None
        self._panels: list[Panel | None] = [None] * len(LETTERS)
        self.report_path: Path | None = None
        self.settings = CompareSettings(app, chosen, windows=windows, seed=seed, target_latency_s=target)
        self._build()
        self.use(self.settings)

    def use(self, settings: CompareSettings | str) -> None:
        """Take other settings, and run.

        Parameters
        ----------
        settings : str or CompareSettings
            The settings, or the text that printed them.

        Examples
        --------
        >>> from dspkit import ui
        >>> page = ui.Compare("star", windows=2)
        >>> page.use("CompareSettings('star', (DS2(), HPA()), windows=2)")
        >>> page.wait(60), list(page.runs)
        (True, ['A: ds2', 'B: hpa'])
        """
        own = [type(p) for p in self.settings.policies]
        settings = CompareSettings.load(settings, own) if isinstance(settings, str) else settings
        settings.application()  # refuses invalid settings before any control moves
        made = apps.available()[settings.app]()
        self.settings = settings
        self.loads.take(made, settings.workload, settings.windows * settings.window_s)
        self.plants.take(made, settings.plant, settings.changes)
        self.target.min = min(self.target.min, settings.target_latency_s)
        numbers = {self.scale: settings.scale, self.seed: settings.seed, self.target: settings.target_latency_s}
        for widget, value in numbers.items():
            widget.max = max(widget.max, value)  # else the control would show another number than the settings
            widget.value = value
        self.app.value = settings.app
        for i in range(len(LETTERS)):
            self._show_policy(i, settings.policies[i] if i < len(settings.policies) else None)
        self._go(settings)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all policies have run, and return whether they have.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds to wait at most.

        Examples
        --------
        >>> from dspkit import ui
        >>> ui.Compare("star", windows=2).wait(60)
        True
        """
        return self._task is None or self._task.wait(timeout_s)

    def stop(self) -> None:
        """End the runs; what they recorded so far stays."""
        if self._task is not None:
            self._task.stop()

    @property
    def runs(self) -> dict[str, History]:
        """The history of each policy, by letter and name."""
        return {} if self._task is None else dict(self._task.runs)

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per policy: share of the load processed, latency, instances, changes, downtime."""
        return side_by_side(self.runs, self.settings.target_latency_s)

    def export(self) -> Path:
        """Write what is shown as one HTML file, and return its path."""
        runs = {name: history for name, history in self.runs.items() if len(history)}
        if not runs:
            raise ArgumentError("no run to export", expected="a window at least", fix="wait for one")
        s = self.settings
        sections = [
            report.Section("Side by side", figure=plots.managed(runs, target_latency_s=s.target_latency_s)),
            report.Section("In numbers", "Means over all windows.", table=self.scores.reset_index().round(2)),
            report.Section("What ran", figure=plots.topology(next(iter(runs.values())).topology)),
            report.Section("The same as code", code=s.code()),
            report.Section("The settings of the view", html=f"<pre>{escape(repr(s))}</pre>"),
        ]
        title = f"{', '.join(p.name for p in s.policies)} on {s.app}"
        about = {"application": s.app, "seed": s.seed, "windows": f"{s.windows} of {s.window_s:g} s"}
        cited = [p for p in s.policies if getattr(p, "reference", ())]
        self.report_path = report.write(sections, title=title, about=about, references=["dspkit", *cited])
        self._link.value = f"<p>Report written: <code>{escape(str(self.report_path))}</code></p>"
        return self.report_path

    # Controls

    def _build(self) -> None:
        def picker(options: list[str], text: str, help: str) -> Any:
            return w.Dropdown(options=options, description=text, tooltip=help, style=WIDE, layout=ROOM)

        guard = self._errors.guard
        self.app = picker(sorted(apps.available()), "application", "the job that all policies control")
        self.loads = Loads(lambda load: self._set(workload=load), lambda e: self._errors.note("load", e))
        self.plants = Plants(
            lambda plant, changes: self._set(plant=plant, changes=FrozenMap(changes)),
            lambda e: self._errors.note("plant", e),
        )
        self.scale = slider(0.0, 3.0, 1.0, "load, times", "height of the load, as a multiple of what it is")
        self.seed = slider(0, 99, 0, "seed", "another seed, other noise")
        self.target = slider(0.01, 2.0, 0.18, "latency target, s", "the line that latency should stay below")
        for widget in (self.scale, self.seed, self.target):
            widget.continuous_update = False  # as many runs as policies: when the hand rests
        names = sorted(self._makers)
        self.picks = [
            picker(names if i < 2 else [NOBODY, *names], f"policy {LETTERS[i]}", "the policy of this run")
            for i in range(len(LETTERS))
        ]
        self._folds = [w.Accordion(layout=ROOM) for _ in LETTERS]
        self.export_button = w.Button(
            description="Export report", icon="download", tooltip="write this comparison as one HTML file"
        )
        self._progress = w.IntProgress(description="windows", tooltip="windows done", layout={"width": "330px"})
        self._chart, self._table = w.Output(), w.Output()  # JupyterLab lays tables out in outputs only
        self._said, self._code, self._link = (w.HTML() for _ in range(3))
        self.pasted = settings_box()
        left = w.VBox(
            [
                self.app,
                self.loads.view,
                self.scale,
                self.plants.view,
                self.seed,
                self.target,
                heading("Policies"),
                *(part for pair in zip(self.picks, self._folds, strict=True) for part in pair),
                self._progress,
                self.export_button,
                self._link,
            ],
            layout={"flex": "0 0 350px", "overflow": "hidden"},
        )
        right = w.VBox(
            [self._chart, self._said, self._table, self._code, self.pasted],
            layout={"flex": "1 1 430px", "min_width": "430px", "overflow": "hidden"},
        )
        columns = w.HBox([left, right], layout={"flex_flow": "row wrap"})
        self.view = w.VBox([self._errors.widget, columns])
        self.view.add_class("dspkit")
        self.app.observe(guard("application", self._pick_app), "value")
        for each in (self.loads, self.plants):
            each.pick.observe(guard("load or plant", each.picked), "value")
        numbers = {"scale": self.scale, "seed": self.seed, "target_latency_s": self.target}
        for name, widget in numbers.items():
            change = guard(name, lambda _, name=name, widget=widget: self._set(**{name: read_control(widget)}))
            widget.observe(change, "value")
        for i, pick in enumerate(self.picks):
            pick.observe(guard("policy", lambda change, i=i: self._pick_policy(i, change["new"])), "value")
        self.pasted.observe(guard("pasted settings", self._paste), "value")
        self.export_button.on_click(guard("export", lambda _: self.export()))

    def _set(self, **changed: Any) -> None:
        settings = replace(self.settings, **changed)
        if settings != self.settings:  # else the view itself moved the control
            self._go(settings)

    def _paste(self, change: Any) -> None:
        if change["new"].strip() != repr(self.settings):
            self.use(change["new"])

    def _pick_app(self, change: Any) -> None:
        if change["new"] != self.settings.app:
            target = apps.available()[change["new"]]().target_latency_s
            self.use(
                replace(
                    self.settings,
                    app=change["new"],
                    workload=None,
                    plant=OWN,
                    changes=FrozenMap(),
                    scale=1.0,
                    target_latency_s=target,
                )
            )

    def _pick_policy(self, i: int, name: str) -> None:
        panel = self._panels[i]
        now = NOBODY if panel is None else panel.thing.name
        if name != now:
            self._show_policy(i, None if name == NOBODY else self._makers[name]())
            self._policies_changed()

    def _show_policy(self, i: int, policy: Policy | None) -> None:
        former = self._panels[i]
        made = None
        if policy is not None:
            self._makers.setdefault(policy.name, lambda: policy)
            made = Panel(policy, lambda _: self._policies_changed(), lambda e: self._errors.note("knobs", e))
            for control in made:
                if hasattr(control, "continuous_update"):
                    control.continuous_update = False
        self._panels[i] = made
        self._folds[i].children = () if made is None else (made.view,)
        self._folds[i].titles = () if made is None else (f"Knobs of {LETTERS[i]}",)
        self._folds[i].layout.display = "none" if made is None else ""
        self.picks[i].value = NOBODY if policy is None else policy.name
        if former is not None:
            former.close()

    def _policies_changed(self) -> None:
        self._errors.note("knobs", None)
        self._set(policies=tuple(panel.thing for panel in self._panels if panel is not None))

    # The runs, in their own thread

    def _go(self, settings: CompareSettings) -> None:
        self.settings = settings
        self._code.value = f"<b>The same as code</b><pre>{escape(settings.code())}</pre>"
        self.pasted.value, self._table.outputs = repr(settings), ()  # the numbers were of other runs
        with self._lock:
            self._task = Comparing(settings, self._show)
            self._task.start()

    def _show(self, task: Comparing) -> None:
        with self._lock:
            if task is not self._task:
                return  # out of date
            self._errors.note("run", task.error)
            done = min((len(h) for h in task.runs.values()), default=0)
            self._progress.max, self._progress.value = task.settings.windows, done
            if not done:
                return
            try:
                picture = self.picture = plots.managed(task.runs, target_latency_s=task.settings.target_latency_s)
                show_plot(self._chart, picture)
                self._said.value = f"<div style='line-height:1.4'><em>{escape(picture.summary)}</em></div>"
                if task.over:
                    table = self.scores.round(2).rename_axis(None)
                    data = {"text/html": table.to_html(border=0, float_format="{:,g}".format), "text/plain": str(table)}
                    self._table.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
            except Exception as error:  # a picture that cannot be drawn does not end the runs
                self._errors.note("picture", error)
            else:
                self._errors.note("picture", None)

    def _ipython_display_(self) -> None:
        if os.environ.get("DSPKIT_HEADLESS"):
            self.wait()
        show_beside(self, getattr(self, "picture", None), self.view)


def _itself(policy: Policy) -> Policy:
    return policy
