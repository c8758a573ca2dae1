"""The graph with each operator's ETP: who is congested, and which sinks a chosen operator feeds unhindered."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Any

from ..core import Topology
from ..etp import Why, congested, explain, graph, inputs, rates
from ..etp import etp as shares_of
from .base import PALETTE, Plot, Spec, plot
from .graph import positions

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
    """The graph with the ETP of each operator; congested ones are orange octagons with a cross, the others blue discs.

    For a chosen `operator` its effective sinks have a double ring and the ways there are thick; ways that a congested
    operator blocks are dotted. `topology` and `measured` are whatever `dspkit.etp` takes.
    """
    g, known = graph(topology), rates(measured)
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
                {"type": "scatter", "x": list(x), "y": list(y), "mode": "lines", "line": line, "hoverinfo": "skip",
                 "showlegend": False}
            )  # fmt: skip
            arrows.append(_arrow(way[-2], way[-1], colour, width))
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
        if name == "congested":  # never by colour alone
            made |= {"mode": "markers+text", "text": ["✕"] * len(group), "textfont": {"color": "white", "size": 18}}
        made["hovertext"] = [_hover(o, known.processing.get(o), came.get(o, 0.0), shares[o]) for o in group]
        traces.append({**made, "hoverinfo": "text"})
    labels = [
        {"x": place[names[o]][0], "y": place[names[o]][1], "yshift": -48, "showarrow": False, "font": {"size": 12},
         "text": f"{escape(names[o])}<br><b>{shares[o]:.0%}</b>", "bgcolor": "rgba(255,255,255,0.8)"}
        for o in g.order
    ]  # fmt: skip
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
    """What the edges below the chosen operator are: part of a way to an effective sink, or of one that is blocked."""
    if why is None:
        return {}
    lost = {edge: "lost" for _, way, _ in why.blocked for edge in pairwise(way)}
    return lost | {edge: "way" for way in why.ways for edge in pairwise(way)}


def _points(points: list[tuple[float, float]], name: str, marker: Spec) -> Spec:
    x, y = ([p[i] for p in points] for i in (0, 1))
    return {"type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "marker": marker, "hoverinfo": "skip",
            "showlegend": bool(points)}  # fmt: skip


def _arrow(start: tuple[float, float], end: tuple[float, float], colour: str, width: float) -> Spec:
    """Only the head: the line is a trace, since an annotation has no dots."""
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
    """One sentence: who is congested and matters most, and what the chosen operator reaches."""
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
