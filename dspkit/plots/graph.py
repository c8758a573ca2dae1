"""The graph of operators: with rates and busy shares, or with each operator's ETP and the paths to its sinks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Any

from ..core import Edge, Snapshot, Topology
from ..etp import Why, as_graph, congested, explain, inputs, rates
from ..etp import etp as shares_of
from .theme import PALETTE, Plot, Spec, plot, si

ROOM = 92  # letters of labels side by side across a chart of usual width
LONGEST = 30  # letters of a line of a label; the tooltip has the whole name
MOST_LINKS = 300  # of graphs whose edges are untangled: the time grows with the square
CONGESTED = 1.2  # Stela's congestion rate: input rate over processing rate


def topology(
    topology: Topology,
    snapshot: Snapshot | None = None,
    *,
    congestion_rate: float = CONGESTED,
    title: str = "",
    row_px: int = 110,
) -> Plot:
    """Plot the graph of operators, sources left; with a snapshot, edges have rates, and operators are filled by load.

    A congested operator, whose input rate is more than `congestion_rate` times its processing rate, is an octagon with
    a cross.

    Parameters
    ----------
    topology : Topology
        The job.
    snapshot : Snapshot, optional
        Metrics of a window.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.
    title : str, optional
        Title of the figure.
    row_px : int
        Height per row of operators, in pixels.

    Examples
    --------
    >>> from dspkit import Topology
    >>> topology(Topology.chain("read", "count")).summary
    '2 operators, from read to count.'
    """
    place, bends = positions(topology)
    stuck = set() if snapshot is None else set(congested(topology, snapshot, congestion_rate))
    notes = []
    traces: list[Spec] = []
    for u, v in topology.edges:
        way = [place[u], *bends[u, v], place[v]]
        if len(way) > 2:  # past the operators between
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
            "symbol": symbol,
            "size": 28 if symbol == "diamond" else 38,
            "color": [_busy(snapshot, n) or 0.0 for n in group],
            "cmin": 0,
            "cmax": 1,
            "colorscale": [[0, "#FFFFFF"], [1, "#D55E00"]],
            "line": {"width": 2, "color": "#444"},
            "showscale": snapshot is not None and kind == "source",
            "colorbar": {"title": {"text": "busy"}, "tickformat": ".0%", "thickness": 12},
        }
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
    if stuck:  # never shown by colour alone
        jams = [n for n in topology.order if n in stuck]
        cross = {"symbol": "x-thin", "size": 16, "line": {"width": 3, "color": PALETTE[6]}}
        traces.append(
            {
                "type": "scatter",
                "x": [place[n][0] for n in jams],
                "y": [place[n][1] for n in jams],
                "mode": "markers",
                "marker": cross,
                "hoverinfo": "skip",
                "name": "congested",
                "showlegend": False,
            }
        )
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
    """Return the position of each operator, and the bends of each edge.

    The column of an operator is the length of its longest path from a source. An edge that spans several columns has a
    position in each of them, so that it passes beside the operators there. Columns are centred, and ordered so that few
    edges cross.

    Parameters
    ----------
    topology : Topology
        The job.

    Examples
    --------
    >>> from dspkit import Topology
    >>> positions(Topology.chain("read", "count"))[0]
    {'read': (0.0, 0.0), 'count': (1.0, 0.0)}
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
    _untangle(columns, topology, depth)
    at = {}
    for d, column in enumerate(columns):
        for row, what in enumerate(column):
            at[what] = (float(d), (len(column) - 1) / 2 - row)
    bends = {(u, v): [at[(u, v), d] for d in range(depth[u] + 1, depth[v])] for u, v in topology.edges}
    return {name: at[name] for name in topology.order}, bends


_Place = str | tuple[Edge, int]  # an operator, or an edge in a column that it passes


def _untangle(columns: list[list[_Place]], topology: Topology, depth: Mapping[str, int]) -> None:
    """Order each column by the mean place of its neighbours to the left and to the right in turn (Sugiyama et al.)."""
    links: list[tuple[_Place, _Place]] = []  # between neighbouring columns
    for u, v in topology.edges:
        way: list[_Place] = [u, *(((u, v), d) for d in range(depth[u] + 1, depth[v])), v]
        links += pairwise(way)
    if len(links) > MOST_LINKS:
        return
    beside: dict[bool, dict[_Place, list[_Place]]] = {True: {}, False: {}}
    for a, b in links:
        beside[True].setdefault(b, []).append(a)
        beside[False].setdefault(a, []).append(b)
    best, fewest = [list(column) for column in columns], _crossings(columns, links)
    for sweep in range(8):
        if not fewest:
            break
        forward = sweep % 2 == 0
        for column in columns if forward else reversed(columns):
            row = {what: (i + 0.5) / len(each) for each in columns for i, what in enumerate(each)}
            near = beside[forward]
            mean = {w: sum(row[n] for n in near[w]) / len(near[w]) if w in near else row[w] for w in column}
            column.sort(key=mean.__getitem__)
        if (now := _crossings(columns, links)) < fewest:
            best, fewest = [list(column) for column in columns], now
    columns[:] = best


def _crossings(columns: list[list[_Place]], links: list[tuple[_Place, _Place]]) -> int:
    """Return how many pairs of links between neighbouring columns cross."""
    place = {what: (d, i) for d, column in enumerate(columns) for i, what in enumerate(column)}
    drawn = sorted((place[a][0], place[a][1], place[b][1]) for a, b in links)
    return sum(p[0] == q[0] and p[1] < q[1] and p[2] > q[2] for i, p in enumerate(drawn) for q in drawn[i + 1 :])


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
    """Return the labels of operators and their sides, by kind.

    Names that are too wide for their column are broken; if no break helps, every other column has its labels above.
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
    """Return the lines of a name, at most `room` letters each, broken after "_", "-", "/" or a space; 0: no breaks.

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
    shown = "<br>".join(escape(line, quote=False) for line in lines)  # plotly does not resolve &quot;
    if metrics is None:
        return shown
    return f"{shown} × {metrics.parallelism}<br>{metrics.utilisation:.0%} busy"


_LINE = {"free": ("#777777", 1.5), "way": (PALETTE[0], 4.0), "lost": (PALETTE[1], 3.0)}


def etp(
    topology: Any,
    measured: Any,
    congestion_rate: float = 1.2,
    *,
    operator: Any = None,
    title: str = "",
    row_px: int = 128,
) -> Plot:
    """Plot the graph with the ETP of each operator; congested ones are orange octagons with a cross, others blue discs.

    For a chosen `operator` its effective sinks have a double ring, and the paths to them are thick; paths that a
    congested operator blocks are dotted.

    Parameters
    ----------
    topology : Topology or graph
        The job, as for `dspkit.etp`.
    measured : Snapshot or mapping
        Rates, as for `dspkit.etp`.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.
    operator : optional
        The operator whose paths are shown.
    title : str, optional
        Title of the figure.
    row_px : int
        Height per row of operators, in pixels.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.static import Static
    >>> app = apps.word_count()
    >>> snapshot = run(Static(), app.simulator(), steps=3)[-1].snapshot
    >>> etp(app.topology, snapshot).summary
    '... of 4 operators ... congested...'
    """
    g, known = as_graph(topology), rates(measured)
    names = {o: str(o) for o in g.order}
    place, bends = positions(_drawn(g.order, g.children, names))
    stuck, shares, came = set(congested(g, known, congestion_rate)), shares_of(g, known, congestion_rate), inputs(known)
    why = None if operator is None else explain(g, known, operator, congestion_rate)
    kinds = _kinds(why)
    traces, arrows = [], []
    for o in g.order:
        for c in g.children[o]:
            kind = kinds.get((o, c), "free")
            colour, width = _LINE[kind]
            way = [place[names[o]], *bends[names[o], names[c]], place[names[c]]]
            x, y = zip(*way, strict=True)
            line = {"color": colour, "width": width, "dash": "dot" if kind == "lost" else "solid"}
            traces.append(
                {
                    "type": "scatter",
                    "x": list(x),
                    "y": list(y),
                    "mode": "lines",
                    "line": line,
                    "hoverinfo": "skip",
                    "showlegend": False,
                }
            )
            arrows.append(_etp_arrow(way[-2], way[-1], colour, width))
    rings = {} if why is None else {"effective sink": why.sinks, "chosen": (operator,)}
    for name, ring in rings.items():
        symbol, size = ("circle-open", 50) if name == "effective sink" else ("square-open", 54)
        marker = {"symbol": symbol, "size": size, "color": PALETTE[2 if name != "chosen" else 6], "line": {"width": 4}}
        traces.append(_points([place[names[o]] for o in ring], name, marker))
    for name, group, symbol, colour in (
        ("congested", [o for o in g.order if o in stuck], "octagon", PALETTE[1]),
        ("keeps up", [o for o in g.order if o not in stuck and o in known.processing], "circle", PALETTE[5]),
        ("not measured", [o for o in g.order if o not in known.processing], "circle-open-dot", "#777777"),
    ):
        size, width = (36, 3) if name == "congested" else (34, 2)
        marker = {"symbol": symbol, "size": size, "color": colour, "line": {"width": width, "color": colour}}
        if not group:
            continue
        made = _points([place[names[o]] for o in group], name, marker)
        if name == "congested":  # never shown by colour alone
            made |= {"mode": "markers+text", "text": ["✕"] * len(group), "textfont": {"color": "white", "size": 18}}
        made["hovertext"] = [_hover(o, known.processing.get(o), came.get(o, 0.0), shares[o]) for o in group]
        traces.append({**made, "hoverinfo": "text"})
    labels = [
        {
            "x": place[names[o]][0],
            "y": place[names[o]][1],
            "yshift": -48,
            "showarrow": False,
            "font": {"size": 12},
            "text": f"{escape(names[o])}<br><b>{shares[o]:.0%}</b>",
            "bgcolor": "rgba(255,255,255,0.8)",
        }
        for o in g.order
    ]
    drawn = [*place.values(), *(point for points in bends.values() for point in points)]
    depth, height = max(x for x, _ in drawn), max(abs(y) for _, y in drawn)
    hidden = {"visible": False}
    layout = {
        "xaxis": {**hidden, "range": [-0.5, depth + 0.5]},
        "yaxis": {**hidden, "range": [-height - 0.75, height + 0.45]},
        "annotations": [*arrows, *labels],
        "legend": {"orientation": "h", "y": 0, "yanchor": "top", "x": 0, "itemsizing": "constant"},
        "dragmode": False,
    }
    said = _said(g.order, stuck, shares, why)
    return plot(traces, layout, said, height=round(row_px * (2 * height + 1.3)) + 40, title=title)


def _drawn(order: tuple[Any, ...], children: Mapping[Any, tuple[Any, ...]], names: Mapping[Any, str]) -> Topology:
    edges = tuple((names[o], names[c]) for o in order for c in children[o])
    return Topology(tuple(names[o] for o in order), edges)  # type: ignore[misc]


def _kinds(why: Why | None) -> dict[tuple[Any, Any], str]:
    """Return the kind of the edges below the chosen operator: on a path to an effective sink, or on a blocked one."""
    if why is None:
        return {}
    lost = {edge: "lost" for _, way, _ in why.blocked for edge in pairwise(way)}
    return lost | {edge: "way" for way in why.ways for edge in pairwise(way)}


def _points(points: list[tuple[float, float]], name: str, marker: Spec) -> Spec:
    x, y = ([p[i] for p in points] for i in (0, 1))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": x,
        "y": y,
        "marker": marker,
        "hoverinfo": "skip",
        "showlegend": bool(points),
    }


def _etp_arrow(start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> Spec:
    """Return the head of an arrow; its line is a trace, as annotations cannot be dotted."""
    middle = tuple(a + 0.5 * (b - a) for a, b in zip(start, end, strict=True))
    tail = tuple(a + 0.44 * (b - a) for a, b in zip(start, end, strict=True))
    return {
        "x": middle[0], "y": middle[1], "ax": tail[0], "ay": tail[1], "xref": "x", "yref": "y", "axref": "x",
        "ayref": "y", "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1.2, "arrowwidth": width / 4 + 1,
        "arrowcolor": colour,
    }  # fmt: skip


def _hover(name: Any, done: float | None, came: float, share: float) -> str:
    rate = "not measured" if done is None else f"processes {done:,.4g} of {came:,.4g} records/s"
    return f"{escape(str(name))}: {rate}, ETP {share:.1%}"


def _said(order: tuple[Any, ...], stuck: set[Any], shares: Mapping[Any, float], why: Why | None) -> str:
    """Return the summary: the congested operators by ETP, and the sinks that the chosen operator reaches."""
    named = sorted((o for o in order if o in stuck), key=lambda o: -shares[o])
    said = f"{len(named)} of {len(order)} operators {'is' if len(named) == 1 else 'are'} congested"
    if named:
        shown = ", ".join(f"{o} ({shares[o]:.0%})" for o in named[:6]) + (", …" if len(named) > 6 else "")
        said += f", by ETP: {shown}"
    if why is not None:
        reach = f"reaches {', '.join(map(str, why.sinks))} unhindered" if why.sinks else "reaches no sink unhindered"
        blockers = list(dict.fromkeys(str(by) for _, _, by in why.blocked))
        said += f"; {why.operator} {reach}" + (f", blocked by {', '.join(blockers)}" if blockers else "")
    return f"{said}."
