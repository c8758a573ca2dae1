"""The certificate of a deployment with replicas, one by one in plain Python: nothing is shared with a solver."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from ..errors import PlacementError
from .check import TOLERANCE
from .replica_metrics import ReplicaMetrics
from .replica_problem import ReplicaProblem


def replica_violations(problem: ReplicaProblem, deployment: Any) -> tuple[str, ...]:
    """Every rule that the deployment breaks, each in one phrase; none if it may run."""
    where = problem.named(deployment)
    app, net = problem.problem.application, problem.problem.network
    broken = []
    for node, capacity in zip(net.nodes, net.capacity, strict=True):
        asked = math.fsum(float(app.demand[app.index[o]]) * nodes.count(node) for o, nodes in where.items())
        if asked > capacity * (1 + TOLERANCE) + TOLERANCE:
            broken.append(f"node {node!r} has capacity {capacity:g}, asked for {asked:g}")
    for operator, nodes in where.items():
        most = int(problem.most[app.index[operator]])
        if len(nodes) > most:
            broken.append(f"{operator!r} has {len(nodes)} replicas, allowed {most}")
        allowed = problem.problem.candidates.get(operator, net.nodes)
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


def replica_check(problem: ReplicaProblem, deployment: Any, claimed: ReplicaMetrics | None = None) -> ReplicaMetrics:
    """The metrics of a deployment that keeps every rule; an error says which rule it breaks.

    With `claimed` metrics, those must agree too.
    """
    if broken := replica_violations(problem, deployment):
        raise PlacementError("; ".join(broken), expected="a deployment that keeps all rules", fix="deploy again")
    where = problem.named(deployment)
    app, net = problem.problem.application, problem.problem.network
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
        len(nodes) * float(problem.price[app.index[o]]) * float(app.demand[app.index[o]]) for o, nodes in where.items()
    ]
    log_a = [math.log(net.availability[net.index[n]]) for n in {n for nodes in where.values() for n in nodes}]
    network: list[tuple[float, float]] = []
    links = set()
    for s, (a, b) in enumerate(app.streams):
        for (u, v), rate in _sent(problem, s, where[a], where[b]).items():
            links.add((net.index[u], net.index[v]))
            if u != v:
                cost.append(rate * float(problem.link_price[net.index[u], net.index[v]]))
                bytes_per_s = rate * float(problem.bytes_per_record[s])
                network.append((bytes_per_s, float(net.delay_s[net.index[u], net.index[v]])))
    log_a += [math.log(net.link_availability[link]) for link in links]
    found = ReplicaMetrics(
        max(onward(i) for i in reversed(app.order)),
        math.fsum(log_a),
        math.fsum(cost),
        math.fsum(sent for sent, _ in network),
        math.fsum(sent * d for sent, d in network),
        math.fsum(sent * d * d for sent, d in network),
    )
    for name, ours, theirs in zip(found._fields, found, claimed or found, strict=True):
        if not math.isclose(ours, theirs, rel_tol=1e-7, abs_tol=1e-10):
            raise PlacementError(f"{name} = {theirs!r}", expected=f"{ours!r}", fix="do not trust this solver")
    return found


def _seconds(problem: ReplicaProblem, operator: str, node: str, replicas: int) -> float:
    """R_i(lambda_i / n) / S_u; infinite if it cannot keep up."""
    app, net = problem.problem.application, problem.problem.network
    i, speed = app.index[operator], float(net.speed[net.index[node]])
    rate, mu = float(problem.load_per_s[i]) / replicas, float(problem.service_rate_per_s[i])
    if operator in problem.latency_s:
        return problem.own_latency_s(operator, rate) / speed
    if math.isinf(mu):
        return float(app.time_s[i]) / speed
    spare = (mu * speed if problem.scale_service_rate else mu) - rate
    factor = float(problem.latency_factor[i]) / (1 if problem.scale_service_rate else speed)
    return factor / spare if spare > 0 else math.inf


def _sent(
    problem: ReplicaProblem, stream: int, senders: tuple[str, ...], receivers: tuple[str, ...]
) -> dict[tuple[str, str], float]:
    """Records/s of a stream on each ordered pair of nodes, a node with itself included."""
    each = float(problem.problem.application.rate_per_s[stream]) / len(senders) / len(receivers)
    found: dict[tuple[str, str], float] = {}
    for pair in product(senders, receivers):
        again = problem.traffic == "multiplicity"
        found[pair] = found.get(pair, 0.0) + each if again else each
    return found
