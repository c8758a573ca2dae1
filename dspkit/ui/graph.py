"""Views of the graph of operators: a recorded run window by window, and the derivation of each operator's ETP.

A run's graph shows rates on edges, the busy share as fill and congestion by shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import ipywidgets as w

from .. import plots
from ..core import ArgumentError, History, Knobs, knob
from ..etp import as_graph, explain, rank, rates
from .controls import ROOM, WIDE, Errors, read_control, slider
from .settings import CodeRoundTrip
from .view import settings_box, show_beside, show_plot

_BUTTONS = 14  # operators beyond which a list is easier to read than buttons


@dataclass(frozen=True, repr=False)
class TopologySettings(CodeRoundTrip, Knobs):
    """The settings of a `TopologyView`."""

    window: int = knob(0, "which window", low=0, high=10**9)
    congestion_rate: float = knob(1.2, "input over processing rate that is too much", low=1.0, high=3.0)

    def code(self) -> str:
        """Return the same picture as a plain call."""
        return (
            f"plots.topology(history.topology, history[{self.window}].snapshot, "
            f"congestion_rate={self.congestion_rate:g})"
        )


class TopologyView:
    """A view of the graph of a run at any of its windows. Display it, or drive it from code.

    Parameters
    ----------
    history : History
        A recorded run.
    settings : TopologySettings, optional
        What to show at first; left out, the last window.

    Examples
    --------
    >>> from dspkit import run, ui
    >>> view = ui.TopologyView(run("ds2", "star", steps=4))
    >>> view.use(ui.TopologySettings(window=1))
    >>> view.window.value
    1
    """

    def __init__(self, history: History, settings: TopologySettings | None = None):
        if not len(history):
            raise ArgumentError("an empty history", expected="at least one step", fix="run a policy first")
        self._history, self._errors = history, Errors()
        last = len(history) - 1
        self.window = w.IntSlider(
            min=0,
            max=last,
            value=last,
            description="window",
            tooltip="which window of the run",
            style=WIDE,
            layout=ROOM,
        )
        self.play = w.Play(min=0, max=last, value=last, interval=400, tooltip="play the run window by window")
        w.jslink((self.play, "value"), (self.window, "value"))
        self.rate = slider(1.0, 3.0, 1.2, "congestion rate", "input over processing rate that is too much")
        self._chart, self._said, self._code, self.pasted = w.Output(), w.HTML(), w.HTML(), settings_box()
        moved = self._errors.guard("picture", lambda _: self._moved())
        for widget in (self.window, self.rate):
            widget.observe(moved, "value")
        self.pasted.observe(self._errors.guard("pasted settings", self._paste), "value")
        bar = w.HBox([self.window, self.rate, self.play], layout={"flex_flow": "row wrap"})
        self.view = w.VBox([bar, self._errors.widget, self._chart, self._said, self._code, self.pasted])
        self.view.add_class("dspkit")
        self.use(settings or TopologySettings(window=last))

    def use(self, settings: TopologySettings | str) -> None:
        """Take other settings.

        Parameters
        ----------
        settings : str or TopologySettings
            The settings, or the text that printed them.

        Examples
        --------
        >>> from dspkit import run, ui
        >>> view = ui.TopologyView(run("ds2", "star", steps=4))
        >>> view.use("TopologySettings(window=2)")
        >>> view.window.value
        2
        """
        settings = TopologySettings.load(settings) if isinstance(settings, str) else settings
        if settings.window >= len(self._history):
            raise ArgumentError(
                f"window {settings.window}", expected=f"0 to {len(self._history) - 1}", fix="choose a window of the run"
            )
        self.settings = settings
        self.window.value, self.rate.value = settings.window, settings.congestion_rate
        self._draw()

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _moved(self) -> None:
        settings = replace(self.settings, window=self.window.value, congestion_rate=read_control(self.rate))
        if settings != self.settings:
            self.settings = settings
            self._draw()

    def _paste(self, change: Any) -> None:
        if change["new"].strip() != repr(self.settings):
            self.use(change["new"])

    def _draw(self) -> None:
        s = self.settings
        self.pasted.value = repr(s)
        snapshot = self._history[s.window].snapshot
        self.picture = plots.topology(self._history.topology, snapshot, congestion_rate=s.congestion_rate)
        show_plot(self._chart, self.picture, bar=False)
        self._said.value = f"<div style='line-height:1.4'><em>{escape(self.picture.summary)}</em></div>"
        self._code.value = f"<b>The same as code</b><pre>{escape(s.code())}</pre>"

    def _ipython_display_(self) -> None:
        show_beside(self, self.picture, self.view)


class EtpPicker:
    """A view of a graph with each operator's ETP, a button per operator that explains it, and the congestion rate.

    The same as plain calls: `plots.etp(topology, rates, operator="count")` and `etp.explain(topology, rates, "count")`.

    Parameters
    ----------
    topology : Topology, mapping or DataFrame
        The graph, in any form that `dspkit.etp` takes.
    measured : Snapshot, mapping or DataFrame
        Input and processing rates, in any form that `dspkit.etp` takes.
    congestion_rate : float
        Input over processing rate above which an operator is congested.
    operator : hashable, optional
        The operator that is explained first; left out, the one with the greatest ETP.

    Examples
    --------
    >>> from dspkit import apps, run, ui
    >>> history = run("static", apps.star(), steps=2)
    >>> picker = ui.EtpPicker(history.topology, history[-1].snapshot)
    >>> picker.operator = "bolt"
    >>> picker.operator, picker.error
    ('bolt', '')
    """

    def __init__(self, topology: Any, measured: Any, congestion_rate: float = 1.2, *, operator: Any = None):
        self._graph, self._rates = as_graph(topology), rates(measured)
        ranked = rank(self._graph, self._rates, congestion_rate)
        first = ranked.operator.iloc[0] if operator is None else operator
        self._names = {str(o): o for o in self._graph.order}
        pick = w.ToggleButtons if len(self._names) <= _BUTTONS else w.Dropdown
        layout = {"width": "auto"}
        style = {"button_width": "auto"} if pick is w.ToggleButtons else {}
        self.pick = pick(
            options=list(self._names),
            value=str(first),
            description="operator",
            tooltip="the operator whose ETP is explained",
            layout=layout,
            style=style,
        )
        self.rate = slider(1.0, 3.0, congestion_rate, "congestion rate", "input over processing rate that is too much")
        self.rate.style = WIDE
        self.chart, self.why, self.code, self._errors = w.Output(), w.HTML(), w.HTML(), Errors()
        draw = self._errors.guard("picture", lambda *_: self._draw())
        for widget in (self.pick, self.rate):
            widget.observe(draw, "value")
        self.box = w.VBox([self.rate, self.pick, self._errors.widget, self.chart, self.why, self.code])
        self.box.add_class("dspkit")
        self._picture: plots.Plot | None = None
        draw()

    @property
    def operator(self) -> Any:
        """The operator that is explained; set it to explain another."""
        return self._names[self.pick.value]

    @operator.setter
    def operator(self, name: Any) -> None:
        self.pick.value = str(name)

    @property
    def error(self) -> str:
        """The errors that the view shows, as HTML; empty without any."""
        return str(self._errors)

    def _draw(self) -> None:
        limit = round(self.rate.value, 10)
        picture = plots.etp(self._graph, self._rates, limit, operator=self.operator)
        lines = explain(self._graph, self._rates, self.operator, limit).lines()
        self._picture = picture
        show_plot(self.chart, picture, bar=False)
        items = "".join(f"<li>{escape(line)}</li>" for line in lines)
        self.why.value = f"<ul style='line-height:1.4'>{items}</ul><p><em>{escape(picture.summary)}</em></p>"
        call = f"plots.etp(topology, rates, {limit:g}, operator={self.operator!r})"
        self.code.value = f"<b>The same as code</b><pre>{escape(call)}</pre>"

    def _ipython_display_(self) -> None:
        show_beside(self, self._picture, self.box)
