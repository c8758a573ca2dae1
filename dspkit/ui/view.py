"""The widgets of a view of a run: buttons, progress, charts, decisions in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w

from .. import plots
from ..core import History, Step, changes, thresholds, why_text
from .controls import ROOM, WIDE, Errors, replace_former, slider

# Plots are a fraction of a pixel wider than their box, which would give each a scroll bar.
_STYLE = "<style>.dspkit .jp-OutputArea-output { overflow: hidden }</style>"
_NARROWEST = "430px"  # of the charts: below that they go under the controls
_BUTTONS = {
    "Start": ("play", "start a run"),
    "Pause": ("pause", "pause the run, or resume it; a real job keeps running meanwhile, without decisions"),
    "Stop": ("stop", "end the run; what it recorded stays"),
    "Reset": ("refresh", "forget the run, and put all controls back to their first values"),
    "Export report": ("download", "write the run as one HTML file"),
}


class RunView:
    """The widgets of a run; `press` has the action of each button by its text."""

    def __init__(self, names: Sequence[str], speed: int, press: dict[str, Callable[..., Any]], errors: Errors):
        self.buttons = {
            text: w.Button(description=text, icon=icon, tooltip=said, layout={"width": "auto"})
            for text, (icon, said) in _BUTTONS.items()
        }
        for text, button in self.buttons.items():
            button.on_click(errors.guard(text, lambda _, act=press[text]: act()))
        self.policy = w.Dropdown(
            options=names,
            description="policy",
            tooltip="the policy that decides how many instances run",
            style=WIDE,
            layout=ROOM,
        )
        self.target = slider(0.01, 2.0, 0.18, "latency target, s", "the line that latency should stay below")
        self.settle = slider(0, 10, 0, "settle, windows", "windows after a change that the policy does not see")
        self.windows = slider(10, 600, 90, "length, windows", "length of a run; an active one can be made longer")
        self.speed = slider(0, 30, speed, "speed, windows/s", "how fast simulated time runs; 0 is as fast as possible")
        self.progress = w.IntProgress(min=0, description="windows", tooltip="windows done", layout={"width": "330px"})
        self.knobs = w.VBox()
        self.chart, self.graph, self.link = (w.Output() for _ in range(3))
        self.status, self.left, self.code, self.said = (w.HTML() for _ in range(4))
        self.why = w.HTML(layout={"height": "190px", "overflow": "auto"})
        self.settings = settings_box()
        left = w.VBox(self.controls(), layout={"flex": "0 0 350px", "overflow": "hidden"})
        right = w.VBox(
            [self.chart, self.said, self.why, self.graph, self.code, self.settings],
            layout={"flex": f"1 1 {_NARROWEST}", "min_width": _NARROWEST, "overflow": "hidden"},
        )
        bar = w.HBox([*self.buttons.values(), self.progress, self.left], layout={"flex_flow": "row wrap"})
        columns = w.HBox([left, right], layout={"flex_flow": "row wrap"})
        self.box = w.VBox([w.HTML(_STYLE), bar, self.status, errors.widget, self.link, columns])
        self.box.add_class("dspkit")

    def controls(self) -> list[Any]:
        """Return the controls on the left, from the top down."""
        return [
            self.policy,
            self.knobs,
            heading("Thresholds"),
            self.target,
            heading("Run"),
            self.windows,
            self.settle,
            self.speed,
        ]

    def show_settings(self, settings: Any) -> None:
        """Show the next run as code, and its settings."""
        self.code.value = f"<b>The next run as code</b><pre>{escape(settings.code())}</pre>"
        self.settings.value = repr(settings)

    def draw_run(self, history: History, settings: Any) -> None:
        """Draw the run so far."""
        last = history[-1].snapshot
        first = history[0].snapshot  # not at 0 on a backend that has run before
        end, target = first.t - first.window_s + settings.windows * last.window_s, settings.target_latency_s
        lines = thresholds(settings.policy)
        chart = plots.timeline(history, target_latency_s=target, thresholds=lines, until_s=end)
        graph = plots.topology(history.topology, last)
        show_plot(self.chart, chart)
        show_plot(self.graph, graph, bar=False)
        self.said.value = f"<div style='line-height:1.4'><em>{escape(chart.summary)} {escape(graph.summary)}</em></div>"
        self.progress.max, self.progress.value = settings.windows, len(history)
        acted = [s for s in history if s.rescaled and s.decision is not None][-5:]
        rows = "".join(f"<li>t = {s.snapshot.t:g} s: {_decided(s)}</li>" for s in reversed(acted))
        self.why.layout.display = ""
        self.why.value = (
            f"<div style='line-height:1.4'><b>Now</b>, t = {last.t:g} s: {_decided(history[-1])}<br>"
            f"<b>Last decisions</b><ul>{rows or '<li>none yet</li>'}</ul></div>"
        )

    def tell_progress(self, done: int, windows: int, left_s: float | None) -> None:
        """Show the progress of a run, and the time that is left."""
        left = f", {_seconds(left_s)} left" if left_s is not None and done < windows else ""
        self.left.value = f"<span style='padding-left:.5em'>{done} of {windows}{left}</span>" if done else ""

    def clear(self, topology: Any) -> None:
        """Show no run: only the graph, where it is known."""
        self.chart.outputs, self.link.outputs = (), ()
        self.said.value, self.why.value, self.left.value, self.progress.value = "", "", "", 0
        self.why.layout.display = "none"
        if topology is not None:
            show_plot(self.graph, plots.topology(topology), bar=False)

    def tell(self, status: str) -> None:
        self.status.value = f"<div style='line-height:1.4' role='status'>{escape(status)}</div>"

    def show_buttons(self, *, going: bool, paused: bool) -> None:
        """Enable Stop and Pause while a run is active."""
        self.buttons["Stop"].disabled = self.buttons["Pause"].disabled = not going
        self.buttons["Pause"].description = "Resume" if paused else "Pause"
        self.buttons["Pause"].icon = "play" if paused else "pause"

    def link_to(self, path: Path) -> None:
        """Show a link that JupyterLab resolves from the notebook's folder, and the path for other front ends."""
        href = escape(os.path.relpath(path).replace(os.sep, "/"), quote=True)
        shown = escape(str(path))
        text = f'<p>Report written: <a href="{href}" target="_blank">{escape(path.name)}</a> <code>{shown}</code></p>'
        output = {"text/html": text, "text/plain": f"Report written: {path}"}
        self.link.outputs = ({"output_type": "display_data", "data": output, "metadata": {}},)


def _decided(step: Step) -> str:
    """Return a window's decision in words, as HTML."""
    if step.decision is None:
        return "a change settles; nothing is decided."
    changed = changes(step.snapshot.deployment, step.decision.deployment)
    why = why_text(step.decision.why)
    return f"<b>{escape(changed or 'stays as it is')}</b>" + (f" because {escape(why)}" if why else "")


def _seconds(seconds: float) -> str:
    """
    >>> _seconds(3.2), _seconds(200)
    ('4 s', '4 min')
    """
    return f"{int(seconds) + 1} s" if seconds < 120 else f"{int(seconds / 60) + 1} min"


def settings_box() -> Any:
    """Return the box from which settings are copied, and into which others are pasted."""
    return w.Textarea(
        description="settings",
        tooltip="copy them to keep a picture; paste others here to make theirs again",
        continuous_update=False,
        rows=3,
        style=WIDE,
        layout={"width": "auto"},
    )


def heading(text: str) -> Any:
    return w.HTML(f"<b>{text}</b>")


def show_plot(output: Any, plot: plots.Plot, *, bar: bool = True) -> None:
    """Put a chart into an output; without plotly's bar of buttons where there is nothing to zoom into."""
    data = plot.bundle
    if not bar:
        figure = data[plots.PLOTLY_MIME]
        data = {**data, plots.PLOTLY_MIME: {**figure, "config": {**figure["config"], "displayModeBar": False}}}
    output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)


def show_beside(view: Any, plot: plots.Plot | None, box: Any) -> None:
    """Display a view with a chart, which reports and notebooks opened without a kernel show instead of the widgets."""
    from IPython.display import display

    replace_former(view, box)
    picture = {} if plot is None else plot.bundle
    display({**picture, **box._repr_mimebundle_()}, raw=True)  # type: ignore[no-untyped-call]
