"""Pictures of a run: pure functions from a History (or its parts) to a plotly figure and one sentence that says it.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; lines differ in dash or marker as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from .core import Snapshot, Topology
from .errors import DspkitError
from .history import History

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from .workload import Workload

Spec = dict[str, Any]
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MOST_POINTS = 600  # of a line: more than a screen can show only make the notebook heavy
PLOTLY_MIME = "application/vnd.plotly.v1+json"


@dataclass(frozen=True)
class Plot:
    """A picture as plotly's plain data, and the sentence that says what it shows; notebooks show both.

    Live views send `spec` many times a second; making a plotly Figure of it, which checks every field, takes a
    hundred times longer and waits until somebody asks for `figure`.
    """

    spec: Mapping[str, Any]
    summary: str

    @cached_property
    def figure(self) -> go.Figure:
        import plotly.graph_objects as go

        return go.Figure(self.spec)

    @property
    def bundle(self) -> dict[str, Any]:
        """The figure as one notebook output."""
        config = {"displaylogo": False, "responsive": True}
        return {PLOTLY_MIME: {**self.spec, "config": config}, "text/plain": self.summary}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.bundle, raw=True)  # type: ignore[no-untyped-call]
        said = {"text/html": f"<p><em>{escape(self.summary)}</em></p>", "text/plain": self.summary}
        display(said, raw=True, metadata={"dspkit": "summary"})  # type: ignore[no-untyped-call]


def timeline(
    history: History, *, target_latency_s: float | None = None, until_s: float | None = None, title: str = ""
) -> Plot:
    """A run from top to bottom: load and throughput, latency, parallelism, backlog; each decision is a diamond.

    `until_s` is where the time axis ends, for a run that is still going.
    """
    if not len(history):
        raise DspkitError("an empty history", expected="at least one step", fix="run a policy first")
    app, operators = _thin(history.application), history.operators
    traces = [
        _line(1, app.t, app.source_rate, "input rate", 0, dash="dash", shape="vh"),
        _line(1, app.t, app.throughput, "throughput", 1),
        _line(2, app.t, app.latency_mean, "mean latency", 2),
        _line(2, app.t, app.latency_p99, "99th percentile", 3, dash="dot"),
    ]
    if target_latency_s is not None:
        traces.append(_line(2, app.t, 0 * app.t + target_latency_s, "latency target", 6, dash="dash"))
    for i, name in enumerate(history.topology.order):
        mine, shown, dash = _thin(operators[operators.operator == name]), escape(name), DASHES[i % len(DASHES)]
        traces.append(_line(3, mine.t, mine.parallelism, shown, i, dash=dash, shape="vh", legendgroup=shown))
        traces.append(_line(4, mine.t, mine.backlog, shown, i, dash=dash, legendgroup=shown, showlegend=False))
    marks, lines = _decisions(history)
    layout: dict[str, Any] = {"shapes": lines}
    titles = ("records/s", "latency, s", "instances", "records waiting")
    for row, (name, domain) in enumerate(zip(titles, _rows(0.27, 0.24, 0.26, 0.23), strict=True), 1):
        layout[f"yaxis{row}"] = _axis(name, domain=domain, anchor=f"x{row}", rangemode="tozero")
        layout[f"xaxis{row}"] = _axis("", matches="x4", anchor=f"y{row}", showticklabels=row == 4)
    start = history[0].snapshot.t - history[0].snapshot.window_s
    ends = {"range": [start, until_s if until_s is not None else history[-1].snapshot.t]}
    layout["xaxis4"] = _axis("seconds since the start", anchor="y4", **ends)
    return _plot([*traces, *marks], layout, tell(history, target_latency_s), height=640, title=title)


def topology(topology: Topology, snapshot: Snapshot | None = None, *, title: str = "", row_px: int = 90) -> Plot:
    """The graph of operators, sources left; with a snapshot: rates on edges, instances and busy share in the nodes."""
    place = positions(topology)
    notes = []
    for u, v in topology.edges:
        notes.append(_arrow(place[u], place[v]))
        if snapshot is not None and (u, v) in snapshot.edge_rates:
            x, y = ((a + b) / 2 for a, b in zip(place[u], place[v], strict=True))
            text = f"{si(snapshot.edge_rates[u, v])}/s"
            notes.append({"x": x, "y": y, "text": text, "showarrow": False, "bgcolor": "white", "font": {"size": 11}})
    traces = []
    for kind, symbol in {"source": "square", "operator": "circle", "sink": "diamond"}.items():
        group = [n for n in topology.order if _kind(topology, n) == kind]
        marker = {
            "symbol": symbol, "size": 28 if symbol == "diamond" else 38,
            "color": [_busy(snapshot, n) or 0.0 for n in group], "cmin": 0, "cmax": 1,
            "colorscale": [[0, "#FFFFFF"], [1, "#D55E00"]], "line": {"width": 2, "color": "#444"},
            "showscale": snapshot is not None and kind == "source",
            "colorbar": {"title": {"text": "busy"}, "tickformat": ".0%", "thickness": 12},
        }  # fmt: skip
        labels = [_label(snapshot, n) for n in group]
        traces.append(
            {"type": "scatter", "x": [place[n][0] for n in group], "y": [place[n][1] for n in group], "name": kind,
             "mode": "markers+text", "marker": marker, "text": labels, "textposition": "bottom center",
             "hoverinfo": "text", "showlegend": snapshot is None and bool(group)}
        )  # fmt: skip
    depth, width = max(x for x, _ in place.values()), max(abs(y) for _, y in place.values())
    hidden = {"visible": False}
    layout = {
        "xaxis": {**hidden, "range": [-0.5, depth + 0.5]},
        "yaxis": {**hidden, "range": [-width - 0.9, width + 0.6]},
        "annotations": notes,
    }
    said = f"{len(place)} operators, from {' and '.join(topology.sources)} to {' and '.join(topology.sinks)}"
    if snapshot is not None and snapshot.operators:
        name, metrics = max(snapshot.operators.items(), key=lambda item: item[1].utilisation)
        said += f"; the busiest at t = {snapshot.t:g} s is {name} at {metrics.utilisation:.0%}"
    return _plot(traces, layout, f"{said}.", height=round(row_px * (2 * width + 2)), title=title)


def workload(load: Workload, duration_s: float, *, title: str = "", height: int = 220) -> Plot:
    """The offered load over time."""
    import numpy as np

    t = np.linspace(0, duration_s, MOST_POINTS)
    rates = load.rates(t)
    line = {"color": PALETTE[0], "shape": "hv"}
    trace = {"type": "scatter", "x": _list(t), "y": _list(rates), "name": "input rate", "line": line, "fill": "tozeroy"}
    layout = {"xaxis": _axis("seconds since the start"), "yaxis": _axis("records/s", rangemode="tozero")}
    said = f"Between {si(rates.min())} and {si(rates.max())} records/s, {si(rates.mean())} on average."
    return _plot([trace], layout, said, height=height, title=title)


def tell(history: History, target_latency_s: float | None = None) -> str:
    """A run in one sentence."""
    app = history.application
    seconds = app.t.iloc[-1] - app.t.iloc[0] + app.window_s.iloc[0]
    said = f"In {seconds:,.0f} s the job did {si(app.throughput.mean())} of {si(app.source_rate.mean())} records/s"
    if app.latency_mean.notna().any():
        said += f" at a mean latency of {app.latency_mean.mean():.3g} s"
        if target_latency_s is not None:
            late = (app.latency_mean > target_latency_s).sum() / len(app)
            said += f" (above its target of {target_latency_s:g} s in {late:.0%} of the windows)"
    said += f"; {int(app.rescaled.sum())} rescalings led from {app.instances.iloc[0]} to {app.instances.iloc[-1]}"
    return said + f" instances; {si(app.lag.iloc[-1])} records wait at the end."


def si(value: float) -> str:
    """A number with at most three digits and a letter.

    >>> [si(x) for x in (0, 0.1234, 999, 350e3, 7.0e6)]
    ['0', '0.123', '999', '350 k', '7 M']
    """
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= limit * 0.9995:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def positions(topology: Topology) -> dict[str, tuple[float, float]]:
    """Where to draw each operator: as far right as its longest way from a source, columns centred."""
    depth: dict[str, int] = {}
    for name in topology.order:
        depth[name] = max((depth[p] + 1 for p in topology.upstream(name)), default=0)
    columns = [[n for n in topology.order if depth[n] == d] for d in range(max(depth.values()) + 1)]
    return {
        n: (float(d), (len(column) - 1) / 2 - row) for d, column in enumerate(columns) for row, n in enumerate(column)
    }


def _decisions(history: History) -> tuple[list[Spec], list[Spec]]:
    """A diamond with the reason for each change, and a line through all rows."""
    decisions = history.decisions
    acted = decisions[decisions.rescaled]
    lines = [
        {"type": "line", "x0": t, "x1": t, "xref": "x4", "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
         "line": {"width": 1, "dash": "dot", "color": "#999999"}}
        for t in acted.t.tolist()
    ]  # fmt: skip
    if not len(acted):
        return [], lines
    text = [f"{escape(str(d.changes))}<br>{escape(str(d.why)).replace('; ', '<br>')}" for d in acted.itertuples()]
    marks = {
        "type": "scatter", "x": _list(acted.t), "y": [0.0] * len(acted), "xaxis": "x3", "yaxis": "y3",
        "name": "decision", "mode": "markers", "cliponaxis": False,
        "marker": {"symbol": "diamond", "size": 9, "color": "#000000"},
        "text": text, "hovertemplate": "t = %{x:g} s<br>%{text}<extra>decision</extra>",
    }  # fmt: skip
    return [marks], lines


def _line(
    row: int, x: pd.Series, y: pd.Series, name: str, colour: int,
    *, dash: str = "solid", shape: str = "linear", **more: Any,
) -> Spec:  # fmt: skip
    line = {"color": PALETTE[colour % len(PALETTE)], "dash": dash, "shape": shape, "width": 2}
    axes = {"xaxis": f"x{row}", "yaxis": f"y{row}"}
    points = {"x": _list(x), "y": _list(y)}
    return {"type": "scatter", "mode": "lines", "name": name, "line": line, **points, **axes, **more}


def _list(values: Any) -> list[float | None]:
    """Plain numbers; what is not a number becomes a gap, since JSON has no word for it."""
    return [None if v != v else v for v in values.tolist()]


def _rows(*heights: float, gap: float = 0.035) -> list[list[float]]:
    """Where each row of a figure lies, from the top down, with a gap between rows."""
    room, top, domains = 1 - gap * (len(heights) - 1), 1.0, []
    for height in heights:
        domains.append([max(0.0, top - height * room), top])
        top -= height * room + gap
    return domains


def _axis(title: str, **more: Any) -> Spec:
    return {"title": {"text": title}, "gridcolor": "#E5E5E5", "zerolinecolor": "#BBBBBB", "automargin": True, **more}


def _thin(frame: pd.DataFrame) -> pd.DataFrame:
    """Every n-th row and the last, so that no line has more than MOST_POINTS."""
    every = -(-len(frame) // MOST_POINTS)
    return frame if every <= 1 else frame.iloc[[*range(0, len(frame) - 1, every), len(frame) - 1]]


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> Spec:
    return {
        "x": end[0], "y": end[1], "ax": start[0], "ay": start[1], "xref": "x", "yref": "y", "axref": "x", "ayref": "y",
        "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1.2, "arrowwidth": 1.5, "arrowcolor": "#777",
        "standoff": 22, "startstandoff": 22,
    }  # fmt: skip


def _kind(topology: Topology, name: str) -> str:
    return "source" if not topology.upstream(name) else "operator" if topology.downstream(name) else "sink"


def _busy(snapshot: Snapshot | None, name: str) -> float | None:
    metrics = snapshot.operators.get(name) if snapshot else None
    return metrics.utilisation if metrics else None


def _label(snapshot: Snapshot | None, name: str) -> str:
    metrics = snapshot.operators.get(name) if snapshot else None
    if metrics is None:
        return escape(name)
    return f"{escape(name)} × {metrics.parallelism}<br>{metrics.utilisation:.0%} busy"


def _plot(traces: list[Spec], layout: Spec, summary: str, *, height: int, title: str) -> Plot:
    layout = {
        **layout,
        "height": height + (30 if title else 0),
        "margin": {"l": 70, "r": 20, "t": 40 if title else 12, "b": 45},
        "paper_bgcolor": "white",  # legible on dark pages too
        "plot_bgcolor": "white",
        "font": {"color": "#222222"},
        "hovermode": "closest",
        "meta": {"summary": summary},  # travels with the figure into notebooks and reports
        "uirevision": "keep",  # a redraw does not undo the reader's zoom
    }
    if title:
        layout["title"] = {"text": escape(title), "font": {"size": 15}}
    return Plot({"data": traces, "layout": layout}, summary)
