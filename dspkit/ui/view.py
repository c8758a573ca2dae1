"""The widgets of a view of a run: the controls on the left, and the cockpit, which draws all else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w

from .. import plots
from .cockpit import Button, Cockpit
from .controls import ROOM, WIDE, Errors, replace_former, slider

# Plots are a fraction of a pixel wider than their box, which would give each a scroll bar.
_STYLE = "<style>.dspkit .jp-OutputArea-output { overflow: hidden }</style>"
_NARROWEST = "430px"  # of the cockpit: below that it goes under the controls
_BUTTONS = {
    "Start": "start a run",
    "Pause": "pause the run, or resume it; a real job keeps running meanwhile, without decisions",
    "Step": "run one window, and pause after it",
    "Stop": "end the run; what it recorded stays",
    "Undo": "take back the last change of a control",
    "Reset": "forget the run, and put all controls back to their first values",
    "Export report": "write the run as one HTML file",
}


class RunView:
    """The widgets of a run; `press` has the action of each button by its text, `act` what else a cockpit asks for."""

    def __init__(
        self,
        names: Sequence[str],
        speed: int,
        press: dict[str, Callable[..., Any]],
        errors: Errors,
        act: Callable[..., Any],
    ):
        self.cockpit, self._head = Cockpit(act), threading.RLock()
        self.buttons = {text: Button(text, errors.guard(text, press[text]), self._show_buttons) for text in _BUTTONS}
        self._show_buttons()
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
        self.knobs = w.VBox()
        self.link, self.code = w.Output(), w.HTML()
        self.settings = settings_box()
        left = w.VBox(self.controls(), layout={"flex": "0 0 350px", "overflow": "hidden"})
        right = w.VBox(
            [errors.widget, self.link, self.cockpit, self.code, self.settings],
            layout={"flex": f"1 1 {_NARROWEST}", "min_width": "min(100%, 300px)", "overflow": "hidden"},
        )
        # The cockpit comes first, which on a narrow page is above the controls; on a wide one it is on their right.
        columns = w.HBox([right, left], layout={"flex_flow": "row-reverse wrap", "justify_content": "flex-end"})
        self.box = w.VBox([w.HTML(_STYLE), columns])
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

    def show_head(self, **changes: Any) -> None:
        """Change what the cockpit knows of the run that it shows."""
        with self._head:  # callbacks and the run's thread both change it
            head = {**self.cockpit.head, **changes}
            if head != self.cockpit.head:
                self.cockpit.head = head

    def clear(self, topology: Any) -> None:
        """Show no run: only the graph, where it is known."""
        self.link.outputs = ()
        self.cockpit.summary = ""
        self.show_head(run="", going=False, paused=False, state="idle", left_s=None)
        self.cockpit.show(topology)

    def tell(self, status: str) -> None:
        self.cockpit.status = status

    @property
    def status(self) -> str:
        """The state of the run in words."""
        return str(self.cockpit.status)

    def show_buttons(self, *, going: bool, paused: bool) -> None:
        """Enable Stop and Pause while a run is active."""
        self.buttons["Stop"].disabled = self.buttons["Pause"].disabled = not going
        self.buttons["Step"].disabled = going and not paused
        self.buttons["Pause"].description = "Resume" if paused else "Pause"

    def _show_buttons(self) -> None:
        self.cockpit.buttons = {
            name: {"text": button.description, "disabled": button.disabled, "said": _BUTTONS[name]}
            for name, button in getattr(self, "buttons", {}).items()
        }

    def link_to(self, path: Path) -> None:
        """Show a link that JupyterLab resolves from the notebook's folder, and the path for other front ends."""
        href = escape(os.path.relpath(path).replace(os.sep, "/"), quote=True)
        shown = escape(str(path))
        text = f'<p>Report written: <a href="{href}" target="_blank">{escape(path.name)}</a> <code>{shown}</code></p>'
        output = {"text/html": text, "text/plain": f"Report written: {path}"}
        self.link.outputs = ({"output_type": "display_data", "data": output, "metadata": {}},)


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
