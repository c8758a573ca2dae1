"""The certificate: is this a placement at all, and are its numbers right? Nothing here is shared with any solver."""

from __future__ import annotations

import math
from typing import Any

from ..errors import PlacementError
from .metrics import Metrics, needs_problem
from .problem import Problem

TOLERANCE = 1e-9


def violations(problem: Problem, placement: Any) -> tuple[str, ...]:
    """Every rule that the placement breaks, each in one phrase; none if it may run.

    >>> from dspkit import placement
    >>> placement.violations(placement.example("A"), {"s": "0", "m": "0", "t": "0"})
    ("node '0' has capacity 2, asked for 3", "'t' on '0', allowed on '2'")
    """
    needs_problem(problem)
    x = [int(u) for u in problem.place(placement)]
    app, net = problem.application, problem.network
    broken = []
    for u, name in enumerate(net.nodes):
        asked = math.fsum(float(app.demand[i]) for i in range(len(x)) if x[i] == u)
        if asked > net.capacity[u] * (1 + TOLERANCE) + TOLERANCE:
            broken.append(f"node {name!r} has capacity {net.capacity[u]:g}, asked for {asked:g}")
    for i, operator in enumerate(app.operators):
        allowed = problem.candidates.get(operator)
        if allowed and net.nodes[x[i]] not in allowed:
            broken.append(f"{operator!r} on {net.nodes[x[i]]!r}, allowed on {', '.join(map(repr, allowed))}")
    carried: dict[tuple[int, int], float] = {}
    for (a, b), rate in zip(app.streams, app.rate_per_s, strict=True):
        link = x[app.index[a]], x[app.index[b]]
        carried[link] = carried.get(link, 0.0) + float(rate)
    for (u, v), rate in carried.items():
        ends = f"{net.nodes[u]!r} to {net.nodes[v]!r}"
        if math.isinf(net.delay_s[u, v]):
            broken.append(f"no link from {ends}")
        elif rate > net.bandwidth_per_s[u, v] * (1 + TOLERANCE) + TOLERANCE:
            broken.append(f"link from {ends} carries {net.bandwidth_per_s[u, v]:g} records/s, asked for {rate:g}")
    return tuple(broken)


def check(problem: Problem, placement: Any, claimed: Metrics | None = None) -> Metrics:
    """The metrics of a placement that keeps every rule, found path by path; an error says which rule it breaks.

    With `claimed` metrics, those must agree too.
    """
    if broken := violations(problem, placement):
        raise PlacementError("; ".join(broken), expected="a placement that keeps all rules", fix="place again")
    x = [int(u) for u in problem.place(placement)]
    app, net = problem.application, problem.network
    slowest: dict[int, float] = {}

    def onward(i: int) -> float:  # the slowest way from operator i to a sink
        if i not in slowest:
            ways = [float(net.delay_s[x[i], x[j]]) + onward(j) for j in app.downstream[i]]
            slowest[i] = float(app.time_s[i]) / float(net.speed[x[i]]) + max(ways, default=0.0)
        return slowest[i]

    log_a = [math.log(net.availability[u]) for u in x]
    crossing = []
    for (a, b), rate in zip(app.streams, app.rate_per_s, strict=True):
        u, v = x[app.index[a]], x[app.index[b]]
        log_a.append(math.log(net.link_availability[u, v]))
        if u != v:
            crossing.append((float(rate), float(net.delay_s[u, v])))
    found = Metrics(
        max(onward(i) for i in reversed(app.order)),
        math.fsum(log_a),
        math.fsum(rate for rate, _ in crossing),
        math.fsum(rate * d for rate, d in crossing),
        math.fsum(rate * d * d for rate, d in crossing),
    )
    for name, ours, theirs in zip(found._fields, found, claimed or found, strict=True):
        if not math.isclose(ours, theirs, rel_tol=1e-7, abs_tol=1e-10):
            raise PlacementError(f"{name} = {theirs!r}", expected=f"{ours!r}", fix="do not trust this solver")
    return found
