"""The effective throughput percentage (ETP) of each operator of a graph, and its derivation for the one picked."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w

from .. import plots
from ..etp import as_graph, explain, rank, rates
from .controls import WIDE, Errors, slider
from .view import show_beside, show_plot

_BUTTONS = 14  # operators beyond which a list is easier to read than buttons


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
