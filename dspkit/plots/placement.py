"""An application over its network: where operators run, what goes over which link, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from ..placement import Network, Problem, metrics
from .base import PALETTE, Plot, Spec, plot, si

Point = tuple[float, float]


def node_positions(network: Network) -> dict[str, Point]:
    """Points whose distances are the delays as nearly as a plane allows (classical scaling).

    Pairs without a link count as twice as far as the farthest that have one.
    """
    delay = (network.delay_s + network.delay_s.T) / 2
    reached = np.isfinite(delay)
    far = delay[reached].max(initial=0.0) or 1.0
    square = np.where(reached, delay, 2 * far) ** 2
    centre = np.eye(len(square)) - 1 / len(square)
    values, vectors = np.linalg.eigh(-centre @ square @ centre / 2)
    points = np.zeros((len(square), 2))
    for k in range(min(2, len(square))):
        along = vectors[:, -1 - k] * math.sqrt(max(0.0, values[-1 - k]))
        points[:, k] = along * (1.0 if along[np.abs(along).argmax()] >= 0 else -1.0)  # the same picture everywhere
    return {name: (float(x), float(y)) for name, (x, y) in zip(network.nodes, points, strict=True)}


def placement(
    problem: Problem, where: Any, plane: Mapping[str, Point] | None = None, *, title: str = "", height: int = 480
) -> Plot:
    """The network with the operators on its nodes: far apart is long delay, a thick line a stream with much of it.

    The slowest path, which is the response time, is orange and dashed. Nodes that run nothing are small and hollow.
    `plane` has a point for each node; without, distances follow the delays (`node_positions`), and near nodes are drawn
    apart.
    """
    x, net, app = problem.place(where), problem.network, problem.application
    points = dict(plane) if plane else apart(node_positions(net))
    place = [points[net.nodes[u]] for u in x]
    slowest = _slowest(problem, x)
    traces = _streams(problem, x, place, slowest)
    hosts: dict[int, list[str]] = {}
    for operator, u in zip(app.operators, x.tolist(), strict=True):
        hosts.setdefault(u, []).append(operator)
    idle = [u for u in range(len(net.nodes)) if u not in hosts]
    for name, group, size, colour in (("idle node", idle, 9, "#AAAAAA"), ("node in use", [*hosts], 24, PALETTE[0])):
        marker = {
            "size": size, "color": "white" if group is idle else colour, "line": {"width": 2, "color": colour},
            "symbol": "circle",
        }  # fmt: skip
        made: Spec = {
            "type": "scatter", "mode": "markers+text", "name": name, "marker": marker, "showlegend": bool(group),
            "x": [points[net.nodes[u]][0] for u in group], "y": [points[net.nodes[u]][1] for u in group],
            "text": [str(len(hosts[u])) if u in hosts else "" for u in group],
            "textfont": {"color": "white", "size": 12},
            "hovertext": [_hover(problem, u, hosts.get(u, [])) for u in group], "hoverinfo": "text",
        }  # fmt: skip
        traces.append(made)
    labels = [
        {"x": points[net.nodes[u]][0], "y": points[net.nodes[u]][1], "yshift": -24, "showarrow": False,
         "text": f"<b>{escape(net.nodes[u])}</b>: {_few(names)}", "font": {"size": 11},
         "bgcolor": "rgba(255,255,255,0.75)"}
        for u, names in hosts.items()
    ]  # fmt: skip
    hidden = {"visible": False}
    layout = {
        "xaxis": {**hidden, **_span([p[0] for p in points.values()])},
        "yaxis": {**hidden, **_span([p[1] for p in points.values()])},
        "annotations": labels,
        "legend": {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0},
    }
    found = metrics(problem, x)
    way = " → ".join(app.operators[i] for i in slowest[:8]) + (" → …" if len(slowest) > 8 else "")
    said = (
        f"{len(x)} operators on {len(hosts)} of {len(net.nodes)} nodes: response time {si(1e3 * found.response_s)} ms "
        f"(slowest path {way}), availability {found.availability:.2%}, {si(found.traffic)} records/s between nodes."
    )
    return plot(traces, layout, said, height=height, title=title)


def apart(points: Mapping[str, Point], least: float = 0.2) -> dict[str, Point]:
    """The points pushed away from each other until discs and labels have room, in a picture twice as wide as high."""
    at = np.array([*points.values()])
    at = (at - at.min(axis=0)) / np.where(np.ptp(at, axis=0) > 0, np.ptp(at, axis=0), 1.0) * (2.0, 1.0)
    least = min(least, 0.75 * math.sqrt(2 / len(at)))
    turn = np.arange(len(at)) * 2.4  # points on the same spot leave it in different directions
    at += 1e-6 * np.column_stack((np.cos(turn), np.sin(turn)))
    for _ in range(200):
        away = at[:, None, :] - at[None, :, :]
        distance = np.hypot(away[..., 0], away[..., 1])
        np.fill_diagonal(distance, np.inf)
        short = np.maximum(0.0, least - distance)
        if not short.any():
            break
        at += (away * (0.5 * short / distance)[..., None]).sum(axis=1)
    return {name: (float(x), float(y)) for name, (x, y) in zip(points, at, strict=True)}


def _slowest(problem: Problem, x: Any) -> list[int]:
    """The operators of the path that makes the response time."""
    app, delay = problem.application, problem.network.delay_s
    ready: dict[int, float] = {}
    before: dict[int, int] = {}
    for i in app.order:
        waits = [(ready[a] + float(delay[x[a], x[i]]), a) for a in app.upstream[i]]
        latest, a = max(waits, default=(0.0, -1))
        ready[i], before[i] = latest + float(problem.times_s[i, x[i]]), a
    way = [max(app.sinks, key=lambda i: ready[i])]
    while before[way[-1]] >= 0:
        way.append(before[way[-1]])
    return way[::-1]


def _streams(problem: Problem, x: Any, place: list[Point], slowest: list[int]) -> list[Spec]:
    """A line for each pair of nodes that streams go between, as wide as its delay; the slowest path over them."""
    app, net = problem.application, problem.network
    steps = set(zip(slowest, slowest[1:], strict=False))
    rates: dict[tuple[int, int], float] = {}
    slow: set[tuple[int, int]] = set()
    ends: dict[tuple[int, int], tuple[Point, Point]] = {}
    for (a, b), rate in zip(app.ends.tolist(), app.rate_per_s.tolist(), strict=True):
        link = int(x[a]), int(x[b])
        if link[0] != link[1]:
            rates[link] = rates.get(link, 0.0) + rate
            ends[link] = place[a], place[b]
            if (a, b) in steps:
                slow.add(link)
    longest = max((d for link in rates if math.isfinite(d := float(net.delay_s[link]))), default=0.0) or 1.0
    traces: list[Spec] = []
    named: set[str] = set()
    for link in sorted(rates, key=lambda link: link in slow):
        d = float(net.delay_s[link])
        name = "on the slowest path" if link in slow else "streams; wide is slow"
        line: Spec = {"color": PALETTE[1] if link in slow else "#8FA3B0", "dash": "dash" if link in slow else "solid"}
        line["width"] = 1.0 + 7.0 * min(1.0, d / longest)
        (x0, y0), (x1, y1) = ends[link]
        said = f"{escape(net.nodes[link[0]])} to {escape(net.nodes[link[1]])}: {si(1e3 * d)} ms, {si(rates[link])}/s"
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [x0, (x0 + x1) / 2, x1], "y": [y0, (y0 + y1) / 2, y1],
             "line": line, "name": name, "legendgroup": name, "showlegend": name not in named, "hoverinfo": "text",
             "hovertext": said, "opacity": 1.0 if link in slow else 0.55}
        )  # fmt: skip
        named.add(name)
    return traces


def _hover(problem: Problem, u: int, operators: list[str]) -> str:
    net = problem.network
    used = math.fsum(float(problem.application.demand[problem.application.index[o]]) for o in operators)
    return (
        f"{escape(net.nodes[u])}: {used:g} of {net.capacity[u]:g} used, speed {net.speed[u]:g}, "
        f"availability {net.availability[u]:.4%}" + (f"<br>{_few(operators, 30)}" if operators else "")
    )


def _few(names: list[str], most: int = 4) -> str:
    return escape(", ".join(names[:most])) + (f", … ({len(names)})" if len(names) > most else "")


def _span(values: list[float]) -> Spec:
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 1.0
    return {"range": [low - margin, high + margin]}
