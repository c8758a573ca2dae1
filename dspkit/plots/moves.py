"""Executors that move from node to node, as an animation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from ..errors import MetricError
from ..history import History
from ..placement.storm import traffic
from .base import PALETTE, Plot, Spec, axis, plot, si
from .placement import apart

Point = tuple[float, float]
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")


def moves(history: History, plane: Mapping[str, Point] | None = None, *, title: str = "") -> Plot:
    """Where every instance runs after each change of places: press play, or move the slider.

    `plane` has a point for each node, such as network coordinates (those that would overlap are drawn apart); without,
    nodes stand in a circle. Beside the map: traffic between nodes and latency, window by window, and where in the run
    the map is.
    """
    steps = [s for s in history if s.snapshot.deployment.placement]
    if not steps:
        raise MetricError(
            "a history without places of instances", expected="deployments with a placement", fix="place instances"
        )
    shown = [s for a, s in zip([None, *steps], steps, strict=False) if a is None or _places(a) != _places(s)]
    names = sorted({n for s in steps for n in _places(s).values()} | set(plane or {}))
    points = {n: p for n, p in (apart(plane, 0.42) if plane else _circle(names)).items() if n in names}
    if missing := [n for n in names if n not in points]:
        raise MetricError(f"no point for node {missing[0]!r}", expected="one for each node", fix="add it to plane")
    radius = 0.055 * (max(max(along) - min(along) for along in zip(*points.values(), strict=True)) or 1.0)
    times = [s.snapshot.t for s in steps]
    crossing = [
        traffic(history.topology, s.snapshot.deployment.parallelism, s.snapshot.edge_rates, _places(s)) for s in steps
    ]
    latency = [1e3 * s.snapshot.latency.mean if s.snapshot.latency else None for s in steps]
    frames = [_frame(history, s, points, radius) for s in shown]
    traces: list[Spec] = [
        _nodes(points),
        *frames[0]["data"][:-2],
        _line(times, crossing, "traffic between nodes", PALETTE[0], "x2", "y2"),
        _line(times, latency, "latency", PALETTE[1], "x3", "y3"),
        *frames[0]["data"][-2:],
    ]
    moving = [1, *range(2, len(traces) - 4), len(traces) - 2, len(traces) - 1]
    for frame, mark in zip(frames, (s.snapshot.t for s in shown), strict=True):
        frame["traces"] = moving
        frame["data"][-2] = _mark(mark, max(crossing) or 1.0, "x2", "y2")
        frame["data"][-1] = _mark(mark, max((x for x in latency if x is not None), default=1.0), "x3", "y3")
    traces[-2:] = frames[0]["data"][-2:]
    layout = _layout(points, radius, shown)
    moves = sum(_moves(a, b) for a, b in zip(shown, shown[1:], strict=False))
    last = [x for x in latency[-10:] if x is not None]
    first = [x for x in latency[:3] if x is not None]
    said = (
        f"{moves} moves of an instance from {times[0]:g} to {times[-1]:g} s: traffic between nodes from "
        f"{si(crossing[0])} to {si(crossing[-1])} records/s"
    )
    said += f", latency from {si(first[0])} to {si(sorted(last)[len(last) // 2])} ms." if first and last else "."
    made = plot(traces, layout, said, height=460, title=title)
    return Plot({**made.spec, "frames": frames}, said)


def _places(step: Any) -> Mapping[tuple[str, int], str]:
    return step.snapshot.deployment.placement  # type: ignore[no-any-return]


def _moves(a: Any, b: Any) -> int:
    before = _places(a)
    return sum(before.get(instance, node) != node for instance, node in _places(b).items())


def _circle(names: list[str]) -> dict[str, Point]:
    turn = 2 * math.pi / max(1, len(names))
    return {n: (math.sin(i * turn), math.cos(i * turn)) for i, n in enumerate(names)}


def _frame(history: History, step: Any, points: Mapping[str, Point], radius: float) -> Spec:
    """The moving traces at a step: streams, the instances of each operator, and two marks in time."""
    places, topology = _places(step), history.topology
    on: dict[str, list[tuple[str, int]]] = {}
    for name in topology.order:
        for instance in sorted(i for i in places if i[0] == name):
            on.setdefault(places[instance], []).append(instance)
    at: dict[tuple[str, int], Point] = {}
    for node, instances in on.items():
        x, y = points[node]
        turn = 2 * math.pi / len(instances)
        far = 0.0 if len(instances) == 1 else radius * max(1.0, len(instances) / 7)
        for i, instance in enumerate(instances):
            at[instance] = (x + far * math.sin(i * turn), y + far * math.cos(i * turn))
    streams: Spec = {"type": "scatter", "mode": "lines", "x": [], "y": [], "hoverinfo": "skip", "showlegend": False,
                     "line": {"color": "rgba(90,90,90,0.45)", "width": 1.5}}  # fmt: skip
    for a, b in topology.edges:
        for one in (i for i in at if i[0] == a):
            for other in (i for i in at if i[0] == b):
                if places[one] != places[other]:
                    streams["x"] += [at[one][0], at[other][0], None]
                    streams["y"] += [at[one][1], at[other][1], None]
    groups: list[Spec] = []
    for number, name in enumerate(topology.order):
        mine = [i for i in at if i[0] == name]
        groups.append(
            {"type": "scatter", "mode": "markers", "x": [at[i][0] for i in mine], "y": [at[i][1] for i in mine],
             "name": escape(name), "text": [escape(f"{i[0]}[{i[1]}] on {places[i]}") for i in mine],
             "hoverinfo": "text",
             "marker": {"size": 12, "symbol": SYMBOLS[number % len(SYMBOLS)], "color": PALETTE[number % len(PALETTE)],
                        "line": {"width": 1, "color": "white"}}}
        )  # fmt: skip
    return {"name": f"{step.snapshot.t:g}", "data": [streams, *groups, {}, {}]}


def _nodes(points: Mapping[str, Point]) -> Spec:
    x, y = zip(*points.values(), strict=True)
    return {
        "type": "scatter", "mode": "markers+text", "x": list(x), "y": list(y), "text": [escape(n) for n in points],
        "textposition": "bottom center", "hoverinfo": "skip", "showlegend": False,
        "textfont": {"size": 11, "color": "#444444"},
        "marker": {"size": 54, "color": "#F2F2F2", "line": {"color": "#999999", "width": 1}},
    }  # fmt: skip


def _line(x: Any, y: Any, name: str, colour: str, x_axis: str, y_axis: str) -> Spec:
    return {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": name, "showlegend": False,
            "line": {"color": colour, "width": 1.5}, "xaxis": x_axis, "yaxis": y_axis}  # fmt: skip


def _mark(t: float, top: float, x_axis: str, y_axis: str) -> Spec:
    return {"type": "scatter", "mode": "lines", "x": [t, t], "y": [0, top], "hoverinfo": "skip", "showlegend": False,
            "line": {"color": "#000000", "width": 2, "dash": "dot"}, "xaxis": x_axis, "yaxis": y_axis}  # fmt: skip


def _layout(points: Mapping[str, Point], radius: float, shown: list[Any]) -> Spec:
    hidden = {"showgrid": False, "zeroline": False, "showticklabels": False, "automargin": True}
    x, y = zip(*points.values(), strict=True)
    room = 4 * radius
    instant = {"frame": {"duration": 0, "redraw": False}, "transition": {"duration": 0}, "mode": "immediate"}
    playing = {"frame": {"duration": 700, "redraw": False}, "transition": {"duration": 400}, "fromcurrent": True}
    names = [f"{s.snapshot.t:g}" for s in shown]
    ticks = [{"label": n, "method": "animate", "args": [[n], instant]} for n in names]
    buttons = [
        {"label": "▶ play", "method": "animate", "args": [None, playing]},
        {"label": "❚❚ pause", "method": "animate", "args": [[None], instant]},
    ]
    return {
        "xaxis": {**hidden, "domain": [0, 0.56], "range": [min(x) - room, max(x) + room]},
        "yaxis": {**hidden, "range": [min(y) - room, max(y) + room], "domain": [0.12, 1]},
        "xaxis2": axis("", domain=[0.66, 1], anchor="y2", matches="x3", showticklabels=False),
        "yaxis2": axis("between nodes<br>(records/s)", domain=[0.62, 1], anchor="x2", rangemode="tozero"),
        "xaxis3": axis("time (s)", domain=[0.66, 1], anchor="y3"),
        "yaxis3": axis("latency (ms)", domain=[0.16, 0.54], anchor="x3", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "font": {"size": 11}},
        "sliders": [{"steps": ticks, "x": 0.3, "len": 0.7, "y": 0.02, "pad": {"t": 10},
                     "currentvalue": {"prefix": "after the change at ", "suffix": " s"}}],
        "updatemenus": [{"type": "buttons", "direction": "left", "x": 0, "xanchor": "left", "y": 0.0, "yanchor": "top",
                         "buttons": buttons, "pad": {"t": 18}, "showactive": False}],
    }  # fmt: skip
