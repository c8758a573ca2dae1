"""The graph of operators."""

from __future__ import annotations

import re
from html import escape

from ..core import Edge, Snapshot, Topology
from ..etp import congested
from .base import PALETTE, Plot, Spec, plot, si

ROOM = 92  # letters of a label side by side across a chart of usual width
LONGEST = 30  # letters of a line at an operator; the whole name comes up under the pointer
CONGESTED = 1.2  # times as much as it processes comes in: Stela's congestion rate


def topology(
    topology: Topology,
    snapshot: Snapshot | None = None,
    *,
    congestion_rate: float = CONGESTED,
    title: str = "",
    row_px: int = 110,
) -> Plot:
    """The graph of operators, sources left; with a snapshot: rates on edges, busy share as the nodes' fill.

    An operator to which more than `congestion_rate` times what it processes comes is an octagon with a cross.
    """
    place, bends = positions(topology)
    stuck = set() if snapshot is None else set(congested(topology, snapshot, congestion_rate))
    notes = []
    traces: list[Spec] = []
    for u, v in topology.edges:
        way = [place[u], *bends[u, v], place[v]]
        if len(way) > 2:  # round the operators between
            x, y = (list(axis) for axis in zip(*way[:-1], strict=True))
            line = {"color": "#777", "width": 1.5}
            traces.append({"type": "scatter", "x": x, "y": y, "mode": "lines", "line": line, "hoverinfo": "skip"})
            traces[-1]["showlegend"] = False
        notes.append(_arrow(way[-2], way[-1], from_operator=len(way) == 2))
        if snapshot is not None and (u, v) in snapshot.edge_rates:
            x, y = ((a + b) / 2 for a, b in zip(*way[:2], strict=True))
            text = f"{si(snapshot.edge_rates[u, v])}/s"
            notes.append({"x": x, "y": y, "text": text, "showarrow": False, "bgcolor": "white", "font": {"size": 11}})
    labels, sides = _labels(topology, snapshot, place)
    for kind, symbol in {"source": "square", "operator": "circle", "sink": "diamond"}.items():
        group = [n for n in topology.order if _kind(topology, n) == kind]
        marker: Spec = {
            "symbol": symbol, "size": 28 if symbol == "diamond" else 38,
            "color": [_busy(snapshot, n) or 0.0 for n in group], "cmin": 0, "cmax": 1,
            "colorscale": [[0, "#FFFFFF"], [1, "#D55E00"]], "line": {"width": 2, "color": "#444"},
            "showscale": snapshot is not None and kind == "source",
            "colorbar": {"title": {"text": "busy"}, "tickformat": ".0%", "thickness": 12},
        }  # fmt: skip
        if any(group_stuck := [n in stuck for n in group]):
            marker["symbol"] = ["octagon" if jam else symbol for jam in group_stuck]
            marker["size"] = [40 if jam else marker["size"] for jam in group_stuck]
            marker["line"] = {"width": [4 if jam else 2 for jam in group_stuck], "color": "#444"}
        hover = [_label(snapshot, n, 0) + (", congested" if n in stuck else "") for n in group]
        traces.append(
            {"type": "scatter", "x": [place[n][0] for n in group], "y": [place[n][1] for n in group], "name": kind,
             "mode": "markers+text", "marker": marker, "text": labels[kind], "textposition": sides[kind],
             "hovertext": hover, "hoverinfo": "text", "showlegend": snapshot is None and bool(group),
             "cliponaxis": False}
        )  # fmt: skip
    if stuck:  # never by colour alone
        jams = [n for n in topology.order if n in stuck]
        cross = {"symbol": "x-thin", "size": 16, "line": {"width": 3, "color": PALETTE[6]}}
        traces.append(
            {"type": "scatter", "x": [place[n][0] for n in jams], "y": [place[n][1] for n in jams], "mode": "markers",
             "marker": cross, "hoverinfo": "skip", "name": "congested", "showlegend": False}
        )  # fmt: skip
    drawn = [*place.values(), *(point for points in bends.values() for point in points)]
    depth, width = max(x for x, _ in drawn), max(abs(y) for _, y in drawn)
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
        if stuck:
            said += f"; congested: {', '.join(n for n in topology.order if n in stuck)}"
    return plot(traces, layout, f"{said}.", height=round(row_px * (2 * width + 2)), title=title)


Point = tuple[float, float]


def positions(topology: Topology) -> tuple[dict[str, Point], dict[Edge, list[Point]]]:
    """Where to draw each operator, and where each edge bends.

    An operator stands as far right as its longest way from a source. An edge that passes over columns gets a place
    in each of them, so that it runs beside the operators there. Columns are centred.
    """
    depth: dict[str, int] = {}
    for name in topology.order:
        depth[name] = max((depth[p] + 1 for p in topology.upstream(name)), default=0)
    columns: list[list[str | tuple[Edge, int]]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in topology.order:
        columns[depth[name]].append(name)
    for u, v in topology.edges:
        for d in range(depth[u] + 1, depth[v]):
            columns[d].append(((u, v), d))
    at = {}
    for d, column in enumerate(columns):
        for row, what in enumerate(column):
            at[what] = (float(d), (len(column) - 1) / 2 - row)
    bends = {(u, v): [at[(u, v), d] for d in range(depth[u] + 1, depth[v])] for u, v in topology.edges}
    return {name: at[name] for name in topology.order}, bends


def _arrow(start: Point, end: Point, *, from_operator: bool) -> Spec:
    return {
        "x": end[0], "y": end[1], "ax": start[0], "ay": start[1], "xref": "x", "yref": "y", "axref": "x", "ayref": "y",
        "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1.2, "arrowwidth": 1.5, "arrowcolor": "#777",
        "standoff": 22, "startstandoff": 22 if from_operator else 0,
    }  # fmt: skip


def _kind(topology: Topology, name: str) -> str:
    return "source" if not topology.upstream(name) else "operator" if topology.downstream(name) else "sink"


def _busy(snapshot: Snapshot | None, name: str) -> float | None:
    metrics = snapshot.operators.get(name) if snapshot else None
    return metrics.utilisation if metrics else None


def _labels(
    topology: Topology, snapshot: Snapshot | None, place: dict[str, Point]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """What is written at each operator, and on which side, by kind.

    Names that are too wide for their column are broken; where no break helps, every other column has its text above.
    """
    columns = max(x for x, _ in place.values()) + 1
    room = max(6, int(ROOM / columns))
    crowded = any(len(line) > room for n in topology.order for line in _broken(n, room))
    labels: dict[str, list[str]] = {"source": [], "operator": [], "sink": []}
    sides: dict[str, list[str]] = {"source": [], "operator": [], "sink": []}
    for n in topology.order:
        kind = _kind(topology, n)
        labels[kind].append(_label(snapshot, n, room))
        sides[kind].append("top center" if crowded and place[n][0] % 2 else "bottom center")
    return labels, sides


def _broken(name: str, room: int) -> list[str]:
    """A name in lines of at most `room` letters, broken after "_", "-", "/" or a space, if it has any; 0: whole.

    >>> _broken("intermediate_ranking_bolt", 14)
    ['intermediate_', 'ranking_bolt']
    """
    lines = [""]
    for part in re.findall(r"[^_\-/ ]*[_\-/ ]?", name):
        if room and lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("")
        lines[-1] += part
    return lines


def _label(snapshot: Snapshot | None, name: str, room: int) -> str:
    metrics = snapshot.operators.get(name) if snapshot else None
    lines = (line if not room or len(line) <= LONGEST else f"{line[: LONGEST - 1]}…" for line in _broken(name, room))
    shown = "<br>".join(escape(line, quote=False) for line in lines)  # plotly would show &quot; as it stands
    if metrics is None:
        return shown
    return f"{shown} × {metrics.parallelism}<br>{metrics.utilisation:.0%} busy"
