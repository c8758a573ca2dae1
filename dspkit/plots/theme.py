"""The common parts of all plots: plotly data with a summary, colours, axes, short numbers.

Colours are Okabe and Ito's, which colour-blind readers can distinguish; lines differ in dash or marker as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go


Spec = dict[str, Any]
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MOST_LINES = 150  # most vertical lines of a figure, one per decision: more would only grey it
MOST_POINTS = 600  # most points of a line: a screen cannot show more, and notebooks would grow
PLOTLY_MIME = "application/vnd.plotly.v1+json"


@dataclass(frozen=True)
class Plot:
    """A plot as plain plotly data, and its summary in one sentence; notebooks show both.

    Live views send `spec` several times per second. The plotly Figure, which validates every field, is made only when
    `figure` is read.

    Parameters
    ----------
    spec : mapping
        Plotly's `data` and `layout`, and `frames` of an animation.
    summary : str
        The sentence that describes what the plot shows.

    Examples
    --------
    >>> line = Plot({"data": [{"type": "scatter", "y": [1, 2]}], "layout": {}}, "It rises.")
    >>> line.summary, type(line.figure).__name__
    ('It rises.', 'Figure')
    """

    spec: Mapping[str, Any]
    summary: str

    @cached_property
    def figure(self) -> go.Figure:
        """The plotly Figure."""
        import plotly.graph_objects as go

        return go.Figure(self.spec)

    @property
    def bundle(self) -> dict[str, Any]:
        """The figure as one notebook output."""
        # No "responsive": JupyterLab's renderer follows the width, and plotly's own way forgets the height.
        config = {"displaylogo": False, "showSendToCloud": False}
        return {PLOTLY_MIME: {**self.spec, "config": config}, "text/plain": self.summary}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.bundle, raw=True)  # type: ignore[no-untyped-call]
        said = {"text/html": f"<p><em>{escape(self.summary)}</em></p>", "text/plain": self.summary}
        display(said, raw=True, metadata={"dspkit": "summary"})  # type: ignore[no-untyped-call]


def plot(traces: list[Spec], layout: Spec, summary: str, *, height: int, title: str) -> Plot:
    """Return a plot in the common style."""
    layout = {
        **layout,
        "height": height + (30 if title else 0),
        "margin": {"l": 70, "r": 20, "t": 50 if title else 28, "b": 50},
        "paper_bgcolor": "white",  # legible on dark pages, too
        "plot_bgcolor": "white",
        "font": {"color": "#222222"},
        "hovermode": "closest",
        "meta": {"summary": summary},  # travels with the figure into notebooks and reports
    }
    if title:
        layout["title"] = {"text": escape(title), "font": {"size": 15}}
    return Plot({"data": traces, "layout": layout}, summary)


def axis(title: str, **more: Any) -> Spec:
    """Return an axis in the common style."""
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": "#E5E5E5",
        "zerolinecolor": "#BBBBBB",
        "automargin": True,
        **more,
    }


def with_gaps(values: Iterable[float | None]) -> list[float | None]:
    """Return the values with None for NaN, which JSON cannot represent: a gap in the line."""
    return [None if v != v else v for v in values]


def si(value: float) -> str:
    """Return a number with at most three digits and an SI prefix.

    Parameters
    ----------
    value : float
        The number.

    Examples
    --------
    >>> [si(x) for x in (0, 0.1234, 999, 350e3, 7.0e6)]
    ['0', '0.123', '999', '350 k', '7 M']
    """
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"
