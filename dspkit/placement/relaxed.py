"""RES-ODP: nodes that the linear relaxation uses, some good neighbours of these, exact placement there [nardelli]."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..errors import InfeasibleError
from .answer import Answer
from .arrays import whole
from .costs import Costs, equal_operators
from .greedy import Task
from .highs import relaxation
from .metrics import Ranges, Weights
from .problem import Application, Array, Problem
from .reduced import Exact


def relaxed(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    neighbours: int = 5,
    seed: int = 0,
    solver: str = "own",
    time_limit_s: float = math.inf,
) -> Answer:
    """Relax, draw a node for each operator, expand by `neighbours` of each, solve; twice as many while infeasible.

    The thesis gives no formula for drawing neighbours: here the chance grows as $1 - \\delta$.
    """
    whole(neighbours, "neighbours")
    whole(seed, "seed")
    task = Task(problem, weights, ranges)
    exact, random = Exact(weights, task.ranges, solver, time_limit_s), np.random.default_rng(seed)
    try:
        shares, _ = shared_relaxation(task.problem, task.costs)
    except InfeasibleError:
        raise task.infeasible() from None
    size, k = len(problem.network.nodes), neighbours
    drawn = {int(random.choice(np.flatnonzero(row > 1e-9))) for row in shares} | set(task.problem.pinned.values())
    while True:
        nodes = expanded(drawn, task.penalty, k, random)
        x = exact.within(task.problem, nodes)
        if x is not None:
            return task.answer(x, "RES-ODP", nodes=len(nodes), solves=exact.solves)
        if len(nodes) == size:
            raise task.infeasible()
        k = max(1, 2 * k)


def shared_relaxation(problem: Problem, costs: Costs) -> tuple[Array, float]:
    """x of the linear relaxation, and its loss, from a program in which equal operators are one.

    The mean over all exchanges of equal operators is an optimum too, and in it they all have the same shares.
    """
    app = problem.application
    first = equal_operators(problem, costs)
    heads = sorted(set(first))
    if len(heads) == len(first):
        return relaxation(problem, costs)
    at = {head: c for c, head in enumerate(heads)}
    kind = np.array([at[head] for head in first])
    size = np.bincount(kind).astype(float)
    streams: dict[tuple[int, int], list[int]] = {}
    for e, (a, b) in enumerate(app.ends.tolist()):
        streams.setdefault((int(kind[a]), int(kind[b])), []).append(e)
    names = [app.operators[head] for head in heads]
    fewer = Application(
        tuple(names),
        tuple((names[a], names[b]) for a, b in streams),
        app.demand[heads] * size,
        app.time_s[heads],
        tuple(float(app.rate_per_s[es].sum()) for es in streams.values()),
    )
    link = np.array([costs.link[costs.kind[es]].sum(axis=0) for es in streams.values()])
    link = link if len(streams) else costs.link[:0]
    node = np.where(np.isfinite(costs.node[heads]), costs.node[heads] * size[:, None], np.inf)
    merged = replace(costs, node=node, link=link, kind=np.arange(len(streams)))
    shares, bound = relaxation(
        Problem(fewer, problem.network, {o: c for o, c in problem.candidates.items() if o in names}), merged
    )
    return shares[kind], bound


def expanded(drawn: set[int], penalty: Array, k: int, random: np.random.Generator) -> set[int]:
    """These nodes, and for each k others, the likelier the less their penalty."""
    nodes, size = set(drawn), len(penalty)
    for u in sorted(drawn) if size > 1 else ():
        others = np.delete(np.arange(size), u)
        chance = np.maximum(0.0, 1 - np.where(np.isfinite(penalty[u, others]), penalty[u, others], 1.0)) + 1e-9
        nodes |= set(random.choice(others, min(k, size - 1), replace=False, p=chance / chance.sum()).tolist())
    return nodes
