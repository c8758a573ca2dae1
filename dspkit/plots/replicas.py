"""Replicas over their network, and the decisions that an hour brought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..placement import ElasticAnswer, ReplicaProblem, replica_metrics
from .base import PALETTE, Plot, Spec, axis, plot, si
from .placement import Point, apart, node_positions

KINDS = {"scale-out": ("triangle-up", 2), "scale-in": ("triangle-down", 5), "migrate": ("diamond", 3)}


def replicas(
    problem: ReplicaProblem, deployment: Any, plane: Mapping[str, Point] | None = None, *, title: str = "",
    height: int = 480,
) -> Plot:  # fmt: skip
    """The network with all replicas on its nodes; the number in a disc counts them. The slowest way is orange."""
    net, app = problem.problem.network, problem.problem.application
    where, found = problem.named(deployment), replica_metrics(problem, deployment)
    points = dict(plane) if plane else apart(node_positions(net), 0.32)
    slow = _slowest(problem, where)
    links: dict[tuple[str, str], float] = {}
    for (a, b), rate in zip(app.streams, app.rate_per_s.tolist(), strict=True):
        for u in where[a]:
            for v in where[b]:
                if u != v:
                    share = rate / len(where[a]) / len(where[b])
                    links[u, v] = links.get((u, v), 0.0) + share
    traces, named = list[Spec](), set[str]()
    for (u, v), rate in sorted(links.items(), key=lambda link: link[0] in slow):
        name = "on the slowest way" if (u, v) in slow else "streams"
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
            {"type": "scatter", "mode": "markers+text", "name": name, "showlegend": bool(group),
             "marker": {"size": size, "color": fill, "line": {"width": 2, "color": colour}, "symbol": "circle"},
             "x": [points[n][0] for n in group], "y": [points[n][1] for n in group],
             "text": [str(sum(hosts[n].values())) if n in hosts else "" for n in group],
             "textfont": {"color": "white", "size": 12}, "hoverinfo": "text",
             "hovertext": [f"{escape(n)}: {escape(_listed(hosts.get(n, {})))}" for n in group]}
        )  # fmt: skip
    labels = []
    for n, mine in hosts.items():
        x, y = points[n]
        others = [points[m] for m in hosts if m != n]
        near = min(((math.dist((x, y), p), p[1]) for p in others), default=(0.0, y))
        side = 1 if y > near[1] else -1  # away from the nearest host
        labels.append(
            {"x": x, "y": y, "yshift": 15 * side, "yanchor": "bottom" if side > 0 else "top", "showarrow": False,
             "align": "center", "font": {"size": 10}, "bgcolor": "rgba(255,255,255,0.6)",
             "text": "<br>".join(escape(_counted(o, k)) for o, k in mine.items())}
        )  # fmt: skip
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
    found: Sequence[ElasticAnswer], limit_s: float, *, rates: Sequence[float] = (), at: int | None = None,
    title: str = "", height: int = 480,
) -> Plot:  # fmt: skip
    """Decisions one after the other: response time under its limit, replicas, downtime with what was done.

    `rates` are drawn behind the replicas; `at` marks one decision.
    """
    minutes = list(range(len(found)))
    response = [1e3 * a.metrics.response_s for a in found]
    counts = [sum(a.replicas.values()) for a in found]
    down = [a.downtime_s for a in found]
    traces: list[Spec] = [
        {"type": "scatter", "mode": "lines", "name": "response time", "x": minutes, "y": response,
         "line": {"color": PALETTE[0]}, "yaxis": "y3"},
        {"type": "scatter", "mode": "lines", "name": "its limit", "x": [0, minutes[-1]], "y": [1e3 * limit_s] * 2,
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
    above = 0.11 * max([*down, 1e-3])  # kinds in the same minute stand over each other
    for level, (kind, (symbol, colour)) in enumerate(KINDS.items()):
        hits = [(m, [o for o, act in a.actions.items() if act == kind]) for m, a in enumerate(found)]
        hits = [(m, names) for m, names in hits if names]
        traces.append(
            {"type": "scatter", "mode": "markers", "name": kind, "x": [m for m, _ in hits],
             "y": [down[m] + level * above for m, _ in hits], "hoverinfo": "text",
             "marker": {"symbol": symbol, "size": 9, "color": PALETTE[colour]},
             "hovertext": [f"minute {m}: {kind} of {escape(', '.join(names))}" for m, names in hits]}
        )  # fmt: skip
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
        f"{changes} of {len(found)} decisions change something and stop the job for {sum(down):.2f} s in all; mean "
        f"response time {sum(response) / len(response):.1f} ms, mean replicas {sum(counts) / len(counts):.2f}."
    )
    return plot(traces, layout, said, height=height, title=title)


def _slowest(problem: ReplicaProblem, where: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """Pairs of nodes that the slowest way goes between: of each stream on it the farthest replicas."""
    app, net = problem.problem.application, problem.problem.network
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
        own = max(float(problem.times_s(i, len(mine))[net.index[n]]) for n in mine)
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
