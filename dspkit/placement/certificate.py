"""The certificate: a check of a placement and its metrics, in plain Python, independent of solvers."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from ..core import PlacementError
from .metrics import Metrics, needs_problem
from .problem import Problem

TOLERANCE = 1e-9


def violations(problem: Problem, placement: Any) -> tuple[str, ...]:
    """Return every rule that the placement breaks, each in one phrase; empty if it is feasible.

    Parameters
    ----------
    problem
        The problem that it places.
    placement
        {operator: node} or indices of nodes; with replication {operator: node or nodes}, or counts.

    Examples
    --------
    >>> from dspkit import placement
    >>> placement.violations(placement.example("A"), {"s": "0", "m": "0", "t": "0"})
    ("node '0' has capacity 2, asked for 3", "'t' on '0', allowed on '2'")
    """
    needs_problem(problem)
    if problem.replication is not None:
        return _replica_violations(problem, placement)
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
    """Return the metrics of a placement, computed path by path; raise an error if it breaks a rule.

    Parameters
    ----------
    problem
        The problem that it places.
    placement
        {operator: node} or indices of nodes; with replication {operator: node or nodes}, or counts.
    claimed
        Metrics that must agree with those found here.

    Examples
    --------
    >>> from dspkit import placement
    >>> problem = placement.example("A")
    >>> found = placement.solve(problem, "response_s")
    >>> round(placement.check(problem, found.placement, found.metrics).response_s, 6)
    0.048
    """
    if broken := violations(problem, placement):
        raise PlacementError("; ".join(broken), expected="a placement that keeps all rules", fix="place again")
    found = _replica_check(problem, placement) if problem.replication is not None else _check(problem, placement)
    for name, ours, theirs in zip(found._fields, found, claimed or found, strict=True):
        if not math.isclose(ours, theirs, rel_tol=1e-7, abs_tol=1e-10):
            raise PlacementError(f"{name} = {theirs!r}", expected=f"{ours!r}", fix="do not trust this solver")
    return found


def _check(problem: Problem, placement: Any) -> Metrics:
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
    return Metrics(
        max(onward(i) for i in reversed(app.order)),
        math.fsum(log_a),
        math.fsum(rate for rate, _ in crossing),
        math.fsum(rate * d for rate, d in crossing),
        math.fsum(rate * d * d for rate, d in crossing),
    )


def _replica_violations(problem: Problem, deployment: Any) -> tuple[str, ...]:
    where = problem.nodes_of(deployment)
    app, net = problem.application, problem.network
    broken = []
    for node, capacity in zip(net.nodes, net.capacity, strict=True):
        asked = math.fsum(float(app.demand[app.index[o]]) * nodes.count(node) for o, nodes in where.items())
        if asked > capacity * (1 + TOLERANCE) + TOLERANCE:
            broken.append(f"node {node!r} has capacity {capacity:g}, asked for {asked:g}")
    for operator, nodes in where.items():
        most = int(problem.replica_model.max_replicas[app.index[operator]])
        if len(nodes) > most:
            broken.append(f"{operator!r} has {len(nodes)} replicas, allowed {most}")
        allowed = problem.candidates.get(operator, net.nodes)
        odd = [n for n in dict.fromkeys(nodes) if n not in allowed]
        broken += [f"{operator!r} on {n!r}, allowed on {', '.join(map(repr, allowed))}" for n in odd]
        if math.isinf(max(_seconds(problem, operator, n, len(nodes)) for n in nodes)):
            broken.append(f"{operator!r} cannot keep up with {len(nodes)} replicas")
    carried: dict[tuple[str, str], float] = {}
    for s, (a, b) in enumerate(app.streams):
        for (u, v), rate in _sent(problem, s, where[a], where[b]).items():
            carried[u, v] = carried.get((u, v), 0.0) + rate
    for (a, b), rate in carried.items():
        link = net.index[a], net.index[b]
        if math.isinf(net.delay_s[link]):
            broken.append(f"no link from {a!r} to {b!r}")
        elif a != b and rate > (width := float(net.bandwidth_per_s[link])) * (1 + TOLERANCE) + TOLERANCE:
            broken.append(f"link from {a!r} to {b!r} carries {width:g} records/s, asked for {rate:g}")
    return tuple(broken)


def _replica_check(problem: Problem, deployment: Any) -> Metrics:
    where = problem.nodes_of(deployment)
    app, net = problem.application, problem.network
    slowest: dict[int, float] = {}

    def onward(i: int) -> float:  # the slowest way from operator i to a sink
        if i not in slowest:
            mine = where[app.operators[i]]
            ways = []
            for j in app.downstream[i]:
                pairs = product(mine, where[app.operators[j]])
                ways.append(max(float(net.delay_s[net.index[u], net.index[v]]) for u, v in pairs) + onward(j))
            own = max(_seconds(problem, app.operators[i], u, len(mine)) for u in mine)
            slowest[i] = own + max(ways, default=0.0)
        return slowest[i]

    cost = [
        len(nodes) * float(problem.replica_model.price[app.index[o]]) * float(app.demand[app.index[o]])
        for o, nodes in where.items()
    ]
    log_a = [math.log(net.availability[net.index[n]]) for n in {n for nodes in where.values() for n in nodes}]
    network: list[tuple[float, float]] = []
    links = set()
    for s, (a, b) in enumerate(app.streams):
        for (u, v), rate in _sent(problem, s, where[a], where[b]).items():
            links.add((net.index[u], net.index[v]))
            if u != v:
                cost.append(rate * float(problem.replica_model.link_price[net.index[u], net.index[v]]))
                bytes_per_s = rate * float(problem.replica_model.bytes_per_record[s])
                network.append((bytes_per_s, float(net.delay_s[net.index[u], net.index[v]])))
    log_a += [math.log(net.link_availability[link]) for link in links]
    return Metrics(
        max(onward(i) for i in reversed(app.order)),
        math.fsum(log_a),
        math.fsum(sent for sent, _ in network),
        math.fsum(sent * d for sent, d in network),
        math.fsum(sent * d * d for sent, d in network),
        math.fsum(cost),
    )


def _seconds(problem: Problem, operator: str, node: str, replicas: int) -> float:
    """Return R_i(lambda_i / n) / S_u; infinite if the replica cannot keep up."""
    app, net = problem.application, problem.network
    i, speed = app.index[operator], float(net.speed[net.index[node]])
    rate, mu = float(problem.load_per_s[i]) / replicas, float(problem.replica_model.service_rate_per_s[i])
    if operator in problem.replica_model.latency_s:
        return problem.replica_model.given_latency_s(operator, rate) / speed
    if math.isinf(mu):
        return float(app.time_s[i]) / speed
    spare = (mu * speed if problem.replica_model.scale_service_rate else mu) - rate
    factor = float(problem.replica_model.latency_factor[i]) / (1 if problem.replica_model.scale_service_rate else speed)
    return factor / spare if spare > 0 else math.inf


def _sent(
    problem: Problem, stream: int, senders: tuple[str, ...], receivers: tuple[str, ...]
) -> dict[tuple[str, str], float]:
    """Return the records/s of a stream between each ordered pair of nodes, a node with itself included."""
    each = float(problem.application.rate_per_s[stream]) / len(senders) / len(receivers)
    found: dict[tuple[str, str], float] = {}
    for pair in product(senders, receivers):
        again = problem.replica_model.traffic == "multiplicity"
        found[pair] = found.get(pair, 0.0) + each if again else each
    return found
