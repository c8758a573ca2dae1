"""Plots of placements: operators or replicas on their network, moves over time, and decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from ..core import History, MetricError
from ..placement import Network, Problem, Solution, metrics
from ..placement.distributed_storm import traffic
from .theme import PALETTE, Plot, Spec, axis, plot, si

Point = tuple[float, float]


def node_positions(network: Network) -> dict[str, Point]:
    """Return points of a plane whose distances approximate the delays (classical scaling).

    Pairs without a link are twice as far apart as the farthest pair with one.

    Parameters
    ----------
    network : Network
        The network.

    Examples
    --------
    >>> from dspkit import placement
    >>> sorted(node_positions(placement.example("A").network))
    ['0', '1', '2']
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
        points[:, k] = along * (1.0 if along[np.abs(along).argmax()] >= 0 else -1.0)  # the same signs on every machine
    return {name: (float(x), float(y)) for name, (x, y) in zip(network.nodes, points, strict=True)}


def placement(
    problem: Problem, where: Any, plane: Mapping[str, Point] | None = None, *, title: str = "", height: int = 480
) -> Plot:
    """Plot the network with the operators on its nodes; distances and line widths show delays.

    The slowest path, which determines the response time, is orange and dashed. Idle nodes are small and hollow.

    Parameters
    ----------
    problem : Problem
        The problem that is placed.
    where : mapping or sequence
        {operator: node}, or indices of nodes.
    plane : mapping, optional
        Point of each node, by default `node_positions`, with near nodes moved apart.
    title : str, optional
        Title of the figure.
    height : int
        Height in pixels.

    Examples
    --------
    >>> from dspkit import placement as placements
    >>> placement(placements.example("A"), (0, 1, 2)).summary
    '3 operators on 3 of 3 nodes: response time 48 ms (slowest path s → m → t), ...'
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
            "size": size,
            "color": "white" if group is idle else colour,
            "line": {"width": 2, "color": colour},
            "symbol": "circle",
        }
        made: Spec = {
            "type": "scatter",
            "mode": "markers+text",
            "name": name,
            "marker": marker,
            "showlegend": bool(group),
            "x": [points[net.nodes[u]][0] for u in group],
            "y": [points[net.nodes[u]][1] for u in group],
            "text": [str(len(hosts[u])) if u in hosts else "" for u in group],
            "textfont": {"color": "white", "size": 12},
            "hovertext": [_hover(problem, u, hosts.get(u, [])) for u in group],
            "hoverinfo": "text",
        }
        traces.append(made)
    labels = [
        {
            "x": points[net.nodes[u]][0],
            "y": points[net.nodes[u]][1],
            "yshift": -24,
            "showarrow": False,
            "text": f"<b>{escape(net.nodes[u])}</b>: {_few(names)}",
            "font": {"size": 11},
            "bgcolor": "rgba(255,255,255,0.75)",
        }
        for u, names in hosts.items()
    ]
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


def apart(points: Mapping[str, Point], min_distance: float = 0.2) -> dict[str, Point]:
    """Return the points moved apart until discs and labels have room, in a plot twice as wide as high."""
    at = np.array([*points.values()])
    at = (at - at.min(axis=0)) / np.where(np.ptp(at, axis=0) > 0, np.ptp(at, axis=0), 1.0) * (2.0, 1.0)
    min_distance = min(min_distance, 0.75 * math.sqrt(2 / len(at)))
    turn = np.arange(len(at)) * 2.4  # identical points are moved in different directions
    at += 1e-6 * np.column_stack((np.cos(turn), np.sin(turn)))
    for _ in range(200):
        away = at[:, None, :] - at[None, :, :]
        distance = np.hypot(away[..., 0], away[..., 1])
        np.fill_diagonal(distance, np.inf)
        short = np.maximum(0.0, min_distance - distance)
        if not short.any():
            break
        at += (away * (0.5 * short / distance)[..., None]).sum(axis=1)
    return {name: (float(x), float(y)) for name, (x, y) in zip(points, at, strict=True)}


def _slowest(problem: Problem, x: Any) -> list[int]:
    """Return the operators of the slowest path."""
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
    """Return one line per pair of nodes with streams, as wide as its delay; the slowest path is on top."""
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
        name = "on the slowest path" if link in slow else "streams (width: delay)"
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


Spot = tuple[float, float]
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon", "star")


def moves(history: History, plane: Mapping[str, Spot] | None = None, *, title: str = "") -> Plot:
    """Plot the node of every instance after each change of the placement, as an animation with a slider.

    Beside the map are the traffic between nodes and the latency, window by window, with the time of the map.

    Parameters
    ----------
    history : History
        A run with placements.
    plane : mapping, optional
        Point of each node, such as network coordinates; overlapping ones are moved apart. By default a circle.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.distributed_storm import DistributedStorm
    >>> from dspkit.placement.distributed_storm import thesis_cluster
    >>> history = run(DistributedStorm(cluster=thesis_cluster()), apps.tag_and_count(), steps=10)
    >>> moves(history).summary
    '... moves of an instance from ... s: traffic between nodes from ...'
    """
    steps = [s for s in history if s.snapshot.deployment.placement]
    if not steps:
        raise MetricError(
            "a history without placements", expected="deployments with a placement", fix="place instances"
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


def _circle(names: list[str]) -> dict[str, Spot]:
    turn = 2 * math.pi / max(1, len(names))
    return {n: (math.sin(i * turn), math.cos(i * turn)) for i, n in enumerate(names)}


def _frame(history: History, step: Any, points: Mapping[str, Spot], radius: float) -> Spec:
    """The moving traces at a step: streams, the instances of each operator, and two marks in time."""
    places, topology = _places(step), history.topology
    on: dict[str, list[tuple[str, int]]] = {}
    for name in topology.order:
        for instance in sorted(i for i in places if i[0] == name):
            on.setdefault(places[instance], []).append(instance)
    at: dict[tuple[str, int], Spot] = {}
    for node, instances in on.items():
        x, y = points[node]
        turn = 2 * math.pi / len(instances)
        far = 0.0 if len(instances) == 1 else radius * max(1.0, len(instances) / 7)
        for i, instance in enumerate(instances):
            at[instance] = (x + far * math.sin(i * turn), y + far * math.cos(i * turn))
    streams: Spec = {
        "type": "scatter",
        "mode": "lines",
        "x": [],
        "y": [],
        "hoverinfo": "skip",
        "showlegend": False,
        "line": {"color": "rgba(90,90,90,0.45)", "width": 1.5},
    }
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


def _nodes(points: Mapping[str, Spot]) -> Spec:
    x, y = zip(*points.values(), strict=True)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": list(x),
        "y": list(y),
        "text": [escape(n) for n in points],
        "textposition": "bottom center",
        "hoverinfo": "skip",
        "showlegend": False,
        "textfont": {"size": 11, "color": "#444444"},
        "marker": {"size": 54, "color": "#F2F2F2", "line": {"color": "#999999", "width": 1}},
    }


def _line(x: Any, y: Any, name: str, colour: str, x_axis: str, y_axis: str) -> Spec:
    return {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "name": name, "showlegend": False,
            "line": {"color": colour, "width": 1.5}, "xaxis": x_axis, "yaxis": y_axis}  # fmt: skip


def _mark(t: float, top: float, x_axis: str, y_axis: str) -> Spec:
    return {"type": "scatter", "mode": "lines", "x": [t, t], "y": [0, top], "hoverinfo": "skip", "showlegend": False,
            "line": {"color": "#000000", "width": 2, "dash": "dot"}, "xaxis": x_axis, "yaxis": y_axis}  # fmt: skip


def _layout(points: Mapping[str, Spot], radius: float, shown: list[Any]) -> Spec:
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


KINDS = {"scale-out": ("triangle-up", 2), "scale-in": ("triangle-down", 5), "migrate": ("diamond", 3)}


def replicas(
    problem: Problem,
    deployment: Any,
    plane: Mapping[str, Point] | None = None,
    *,
    title: str = "",
    height: int = 480,
) -> Plot:
    """Plot the network with the number of replicas on each node; the slowest path is orange.

    Parameters
    ----------
    problem : Problem
        The problem with replication.
    deployment : mapping or array
        {operator: node or nodes}, or counts.
    plane : mapping, optional
        Point of each node, by default `node_positions`, with near nodes moved apart.
    title : str, optional
        Title of the figure.
    height : int
        Height in pixels.

    Examples
    --------
    >>> from dspkit import placement as placements
    >>> replicas(placements.example("replicas"), {"1": "a", "2": ("b", "b"), "3": "c"}).summary
    '4 replicas of 3 operators on 3 of 3 nodes: response time 178.6 ms, cost 4.4.'
    """
    net, app = problem.network, problem.application
    where, found = problem.nodes_of(deployment), metrics(problem, deployment)
    points = dict(plane) if plane else apart(node_positions(net), 0.32)
    slow = _slowest_replicas(problem, where)
    links: dict[tuple[str, str], float] = {}
    for (a, b), rate in zip(app.streams, app.rate_per_s.tolist(), strict=True):
        for u in where[a]:
            for v in where[b]:
                if u != v:
                    share = rate / len(where[a]) / len(where[b])
                    links[u, v] = links.get((u, v), 0.0) + share
    traces, named = list[Spec](), set[str]()
    for (u, v), rate in sorted(links.items(), key=lambda link: link[0] in slow):
        name = "on the slowest path" if (u, v) in slow else "streams"
        (x0, y0), (x1, y1) = points[u], points[v]
        seconds = float(net.delay_s[net.index[u], net.index[v]])
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [x0, (x0 + x1) / 2, x1], "y": [y0, (y0 + y1) / 2, y1],
             "line": {"color": PALETTE[1] if (u, v) in slow else "#8FA3B0", "width": 4 if (u, v) in slow else 2,
                      "dash": "dash" if (u, v) in slow else "solid"},
             "name": name, "legendgroup": name, "showlegend": name not in named, "hoverinfo": "text",
             "hovertext": f"{escape(u)} to {escape(v)}: {si(1e3 * seconds)} ms, {si(rate)} records/s",
             "opacity": 1.0 if (u, v) in slow else 0.6}
        )  # fmt: skip
        named.add(name)
    hosts: dict[str, dict[str, int]] = {}
    for operator, nodes in where.items():
        for node in nodes:
            mine = hosts.setdefault(node, {})
            mine[operator] = mine.get(operator, 0) + 1
    idle = [n for n in net.nodes if n not in hosts]
    for name, group, size in (("idle node", idle, 9), ("node in use", [*hosts], 24)):
        colour = PALETTE[0] if group is not idle else "#AAAAAA"
        fill = "white" if group is idle else colour
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": name,
                "showlegend": bool(group),
                "marker": {"size": size, "color": fill, "line": {"width": 2, "color": colour}, "symbol": "circle"},
                "x": [points[n][0] for n in group],
                "y": [points[n][1] for n in group],
                "text": [str(sum(hosts[n].values())) if n in hosts else "" for n in group],
                "textfont": {"color": "white", "size": 12},
                "hoverinfo": "text",
                "hovertext": [f"{escape(n)}: {escape(_listed(hosts.get(n, {})))}" for n in group],
            }
        )
    labels = []
    for n, mine in hosts.items():
        x, y = points[n]
        others = [points[m] for m in hosts if m != n]
        near = min(((math.dist((x, y), p), p[1]) for p in others), default=(0.0, y))
        side = 1 if y > near[1] else -1  # away from the nearest host
        labels.append(
            {
                "x": x,
                "y": y,
                "yshift": 15 * side,
                "yanchor": "bottom" if side > 0 else "top",
                "showarrow": False,
                "align": "center",
                "font": {"size": 10},
                "bgcolor": "rgba(255,255,255,0.6)",
                "text": "<br>".join(escape(_counted(o, k)) for o, k in mine.items()),
            }
        )
    xs, ys = ([p[k] for p in points.values()] for k in (0, 1))
    layout = {
        "xaxis": {"visible": False, "range": [min(xs) - 0.25, max(xs) + 0.25]},
        "yaxis": {"visible": False, "range": [min(ys) - 0.25, max(ys) + 0.25]},
        "annotations": labels,
        "legend": {"orientation": "h", "y": -0.02, "yanchor": "top", "x": 0},
    }
    total = sum(map(len, where.values()))
    said = (
        f"{total} replicas of {len(where)} operators on {len(hosts)} of {len(net.nodes)} nodes: response time "
        f"{1e3 * found.response_s:.1f} ms, cost {found.cost:.4g}."
    )
    return plot(traces, layout, said, height=height, title=title)


def decisions(
    found: Sequence[Solution],
    target_latency_s: float,
    *,
    rates: Sequence[float] = (),
    at: int | None = None,
    title: str = "",
    height: int = 480,
) -> Plot:
    """Plot a sequence of decisions: response time and its limit, replicas, downtime and actions.

    Parameters
    ----------
    found : sequence of Solution
        Solutions one after the other, as of `placement.follow`.
    target_latency_s : float
        The limit of the response time, in seconds.
    rates : sequence of float
        Source rates, drawn behind the replicas.
    at : int, optional
        Index of a decision to mark.
    title : str, optional
        Title of the figure.
    height : int
        Height in pixels.

    Examples
    --------
    >>> from dspkit import placement as placements
    >>> from dspkit.placement.datasets import QUERY_LIMITS, SETTINGS, at_rate, taxi_query
    >>> hour = [at_rate(taxi_query(), rate) for rate in (70, 220)]
    >>> decisions([*placements.follow(hour, SETTINGS["balanced"], QUERY_LIMITS)], 0.175).summary
    '1 of 2 decisions change the deployment and pause the job for ... s in all; ... mean replicas 10.00.'
    """
    minutes = list(range(len(found)))
    response = [1e3 * a.metrics.response_s for a in found]
    counts = [sum(a.replicas.values()) for a in found]
    down = [a.downtime_s for a in found]
    traces: list[Spec] = [
        {"type": "scatter", "mode": "lines", "name": "response time", "x": minutes, "y": response,
         "line": {"color": PALETTE[0]}, "yaxis": "y3"},
        {"type": "scatter", "mode": "lines", "name": "its limit", "x": [0, minutes[-1]],
         "y": [1e3 * target_latency_s] * 2,
         "line": {"color": PALETTE[1], "dash": "dash"}, "yaxis": "y3"},
        {"type": "scatter", "mode": "lines", "name": "replicas", "x": minutes, "y": counts,
         "line": {"color": PALETTE[2], "shape": "hv"}, "yaxis": "y2"},
        {"type": "bar", "name": "downtime", "x": minutes, "y": down, "marker": {"color": "#666666"}, "width": 0.5},
    ]  # fmt: skip
    if rates:
        most = max(counts)
        traces.insert(
            2,
            {"type": "scatter", "mode": "lines", "name": "source rate", "x": minutes, "fill": "tozeroy",
             "y": [r / max(rates) * most for r in rates], "line": {"color": "#CCCCCC"}, "yaxis": "y2",
             "fillcolor": "rgba(200,200,200,0.25)", "hoverinfo": "text", "hovertext": [f"{r:g}/s" for r in rates]},
        )  # fmt: skip
    above = 0.11 * max([*down, 1e-3])  # kinds in the same minute are stacked
    for level, (kind, (symbol, colour)) in enumerate(KINDS.items()):
        hits = [(m, [o for o, act in a.actions.items() if act == kind]) for m, a in enumerate(found)]
        hits = [(m, names) for m, names in hits if names]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": kind,
                "x": [m for m, _ in hits],
                "y": [down[m] + level * above for m, _ in hits],
                "hoverinfo": "text",
                "marker": {"symbol": symbol, "size": 9, "color": PALETTE[colour]},
                "hovertext": [f"minute {m}: {kind} of {escape(', '.join(names))}" for m, names in hits],
            }
        )
    layout: Spec = {
        "xaxis": axis("minute", anchor="y"),
        "yaxis": axis("downtime, s", domain=[0, 0.26], rangemode="tozero"),
        "yaxis2": axis("replicas", domain=[0.35, 0.61], rangemode="tozero"),
        "yaxis3": axis("response, ms", domain=[0.7, 1], rangemode="tozero"),
        "legend": {"orientation": "h", "y": 1.04, "yanchor": "bottom", "x": 0},
    }
    if at is not None:
        line = {"color": "#444444", "width": 1, "dash": "dot"}
        layout["shapes"] = [
            {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}
        ]
    changes = sum(s > 0 for s in down)
    said = (
        f"{changes} of {len(found)} decisions change the deployment and pause the job for {sum(down):.2f} s in all; "
        f"mean response time {sum(response) / len(response):.1f} ms, mean replicas {sum(counts) / len(counts):.2f}."
    )
    return plot(traces, layout, said, height=height, title=title)


def _slowest_replicas(problem: Problem, where: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Return the pairs of nodes on the slowest path: the farthest replicas of each of its streams."""
    app, net = problem.application, problem.network
    ready: dict[int, float] = {}
    before: dict[int, tuple[int, tuple[str, str]]] = {}
    for i in app.order:
        mine = where[app.operators[i]]
        waits = []
        for a in app.upstream[i]:
            far, pair = max(
                (float(net.delay_s[net.index[u], net.index[v]]), (u, v)) for u in where[app.operators[a]] for v in mine
            )
            waits.append((ready[a] + far, a, pair))
        own = max(float(problem.replica_times_s(i, len(mine))[net.index[n]]) for n in mine)
        latest, a, pair = max(waits, default=(0.0, -1, ("", "")))
        ready[i], before[i] = latest + own, (a, pair)
    at, found = max(app.sinks, key=lambda i: ready[i]), set()
    while before[at][0] >= 0:
        found.add(before[at][1])
        at = before[at][0]
    return {(u, v) for u, v in found if u != v}


def _counted(operator: str, count: int) -> str:
    return operator if count == 1 else f"{operator} x{count}"


def _listed(mine: Mapping[str, int]) -> str:
    return ", ".join(_counted(o, k) for o, k in mine.items()) or "idle"
