"""The graph of operators."""

from __future__ import annotations

from html import escape

from ..core import Edge, Snapshot, Topology
from .base import Plot, Spec, plot, si


def topology(topology: Topology, snapshot: Snapshot | None = None, *, title: str = "", row_px: int = 110) -> Plot:
    """The graph of operators, sources left; with a snapshot: rates on edges, instances and busy share in the nodes."""
    place, bends = positions(topology)
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


def _label(snapshot: Snapshot | None, name: str) -> str:
    metrics = snapshot.operators.get(name) if snapshot else None
    if metrics is None:
        return escape(name)
    return f"{escape(name)} × {metrics.parallelism}<br>{metrics.utilisation:.0%} busy"
