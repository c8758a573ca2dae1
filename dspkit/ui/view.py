"""What an Explorer shows: where each control and each picture stands. It decides nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w

from .. import plots
from ..history import History, changes, why_text
from .controls import ROOM, WIDE, close, slider
from .settings import Settings

# Plots are a fraction of a pixel wider than their box, which would give each a scroll bar.
_STYLE = "<style>.dspkit .jp-OutputArea-output { overflow: hidden }</style>"
_NARROWEST = "430px"  # of the charts: below that they go under the controls


class View:
    """The widgets. `press` has what the buttons do, by their text."""

    def __init__(self, apps: Sequence[str], names: Sequence[str], speed: int, press: dict[str, Callable[[Any], None]]):
        icons = {"Start": "play", "Stop": "stop", "Reset": "refresh", "Export report": "download"}
        helps = {
            "Start": "begin a run from the start",
            "Stop": "end the run and keep what it recorded",
            "Reset": "forget the run, and put all controls back to what they were at first",
            "Export report": "write the run as one HTML file",
        }
        self.buttons = {
            text: w.Button(description=text, icon=icons[text], tooltip=helps[text], layout={"width": "auto"})
            for text in press
        }
        for text, button in self.buttons.items():
            button.on_click(press[text])
        self.app = w.Dropdown(options=apps, description="application", style=WIDE, layout=ROOM)
        self.policy = w.Dropdown(options=names, description="policy", style=WIDE, layout=ROOM)
        self.scale = slider(0.0, 3.0, 1.0, "load, times", "height of the load, as a multiple of the application's own")
        self.target = slider(0.01, 2.0, 0.18, "latency target, s", "the line that latency should stay below")
        self.settle = slider(0, 10, 0, "settle, windows", "windows after a change that the policy does not see")
        self.speed = slider(0, 30, speed, "speed, windows/s", "how fast simulated time runs; 0 is as fast as it goes")
        self.progress = w.IntProgress(min=0, description="windows", layout={"width": "330px"})
        self.knobs, self.operators = w.VBox(), w.VBox()
        self.load, self.chart, self.graph, self.link = (w.Output() for _ in range(4))
        self.status, self.error, self.why, self.code, self.said, self.hint = (w.HTML() for _ in range(6))
        self.why.layout = {"height": "170px", "overflow": "auto"}
        left = w.VBox(
            [
                self.app, self.scale, self.load, self.policy, self.knobs, _heading("Parallelism"), self.hint,
                self.operators, _heading("Thresholds"), self.target, _heading("Run"), self.settle, self.speed,
            ],
            layout={"flex": "0 0 350px", "overflow": "hidden"},
        )  # fmt: skip
        right = w.VBox(
            [self.chart, self.said, self.why, self.graph, self.code],
            layout={"flex": f"1 1 {_NARROWEST}", "min_width": _NARROWEST, "overflow": "hidden"},
        )
        bar = w.HBox([*self.buttons.values(), self.progress], layout={"flex_flow": "row wrap"})
        columns = w.HBox([left, right], layout={"flex_flow": "row wrap"})
        self.box = w.VBox([w.HTML(_STYLE), bar, self.status, self.error, self.link, columns])
        self.box.add_class("dspkit")

    def sliders(self, app: Any, parallelism: dict[str, int]) -> dict[str, Any]:
        """New parallelism sliders, one an operator, in the place of the former."""
        made = {
            o.name: slider(o.min_parallelism, o.max_parallelism, parallelism[o.name], o.name, f"instances of {o.name}")
            for o in app.topology.operators
        }
        former, self.operators.children = self.operators.children, tuple(made.values())
        for widget in former:
            close(widget)
        return made

    def draw_settings(self, app: Any, settings: Settings) -> None:
        """The load to come, and the next run as code."""
        duration = settings.windows * settings.window_s
        show_plot(self.load, plots.workload(app.load * settings.scale, duration, height=150), bar=False)
        self.code.value = f"<b>The next run as code</b><pre>{escape(settings.code())}</pre>"
        deciding = settings.policy.name
        self.hint.value = f"<small>{escape(deciding)} decides: a move holds until its next decision</small>"
        if deciding == "static":
            self.hint.value = ""

    def draw_run(self, history: History, settings: Settings) -> None:
        """What happened so far."""
        last = history[-1].snapshot
        end, target = settings.windows * last.window_s, settings.target_latency_s
        chart = plots.timeline(history, target_latency_s=target, until_s=end)
        graph = plots.topology(history.topology, last)
        show_plot(self.chart, chart)
        show_plot(self.graph, graph, bar=False)
        self.said.value = f"<div style='line-height:1.4'><em>{escape(chart.summary)} {escape(graph.summary)}</em></div>"
        self.progress.max, self.progress.value = settings.windows, len(history)
        acted = [s for s in history if s.rescaled and s.decision is not None][-5:]
        rows = "".join(
            f"<li>t = {s.snapshot.t:g} s: <b>{escape(changes(s.snapshot.deployment, s.decision.deployment))}</b> "
            f"because {escape(why_text(s.decision.why))}</li>"
            for s in reversed(acted)
            if s.decision is not None
        )
        self.why.layout.display = ""
        self.why.value = f"<b>Last decisions</b><ul style='line-height:1.4'>{rows or '<li>none yet</li>'}</ul>"

    def clear(self, app: Any) -> None:
        """No run yet: the bare graph."""
        self.chart.outputs, self.link.outputs = (), ()
        self.said.value, self.why.value, self.progress.value = "", "", 0
        self.why.layout.display = "none"
        show_plot(self.graph, plots.topology(app.topology), bar=False)

    def tell(self, status: str) -> None:
        self.status.value = f"<div style='line-height:1.4' role='status'>{escape(status)}</div>"

    def fail(self, said: Sequence[str]) -> None:
        colour = "var(--jp-error-color1, #B00020)"
        lines = (
            f'<p class="dspkit-error" role="alert" style="color:{colour};line-height:1.4">⚠ {escape(line)}</p>'
            for line in said
        )
        if (text := "".join(lines)) != self.error.value:
            self.error.value = text

    def link_to(self, path: Path) -> None:
        """A link that JupyterLab resolves from the notebook's folder, and the path for all others."""
        href = escape(os.path.relpath(path).replace(os.sep, "/"), quote=True)
        shown = escape(str(path))
        text = f'<p>Report written: <a href="{href}" target="_blank">{escape(path.name)}</a> <code>{shown}</code></p>'
        output = {"text/html": text, "text/plain": f"Report written: {path}"}
        self.link.outputs = ({"output_type": "display_data", "data": output, "metadata": {}},)


def _heading(text: str) -> Any:
    return w.HTML(f"<b>{text}</b>")


def show_plot(output: Any, plot: plots.Plot, *, bar: bool = True) -> None:
    """Put a picture into an output; without plotly's bar of buttons where there is nothing to zoom into."""
    data = plot.bundle
    if not bar:
        figure = data[plots.PLOTLY_MIME]
        data = {**data, plots.PLOTLY_MIME: {**figure, "config": {**figure["config"], "displayModeBar": False}}}
    output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)


def show_beside(plot: plots.Plot | None, box: Any) -> None:
    """Display widgets, and with them a picture: a report, and a notebook opened without a kernel, show that."""
    from IPython.display import display

    picture = {} if plot is None else plot.bundle
    display({**picture, **box._repr_mimebundle_()}, raw=True)  # type: ignore[no-untyped-call]
