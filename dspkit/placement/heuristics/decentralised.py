"""Placement with partial knowledge: springs (Pietzuch), Rizou's median, Xu's traffic, Storm's round robin.

Springs and median see the network only as Vivaldi's plane: they compute an ideal point of each operator, and place it
on the nearest node with room. None of these methods uses the weights, which only evaluate the result. The policies
`distributed_storm` and `traffic_aware` apply them over time, with measurement errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.typing import Array
from ...core.validation import whole
from ..coordinates import embed, median, springs
from ..metrics import Ranges, Weights
from ..problem import Placement, Problem
from ..solution import Solution
from .greedy import PinnedProblem, breadth_first

MOVED = 1e-6  # ms: operators are at rest if none moves farther


def spring(problem: Problem, weights: Weights, ranges: Ranges | None = None, *, seed: int = 0) -> Solution:
    """Place operators where springs as strong as their streams have the least elastic energy [pietzuch2006].

    Examples
    --------
    >>> from dspkit import placement
    >>> spring(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    return _virtual(problem, weights, ranges, seed, "spring_relaxation", _rest)


def rizou(problem: Problem, weights: Weights, ranges: Ranges | None = None, *, seed: int = 0) -> Solution:
    """Move each operator in turn to the point of least network usage, until all are at rest [rizou2010].

    Examples
    --------
    >>> from dspkit import placement
    >>> rizou(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    return _virtual(problem, weights, ranges, seed, "rizou", median)


def xu(problem: Problem, weights: Weights, ranges: Ranges | None = None) -> Solution:
    """Place operators by decreasing traffic, each where it adds the least traffic between nodes [xu2014tstorm].

    Examples
    --------
    >>> from dspkit import placement
    >>> xu(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    from ..distributed_storm import least_traffic

    task = PinnedProblem(problem, weights, ranges)
    app, net = task.problem.application, task.problem.network
    talk: dict[int, list[tuple[int, float]]] = {i: [] for i in range(len(app.operators))}
    for (a, b), rate in zip(app.ends.tolist(), app.rate_per_s.tolist(), strict=True):
        talk[a].append((b, rate))
        talk[b].append((a, rate))
    where = least_traffic(
        {i: tuple(others) for i, others in talk.items()},
        {(u, 0): float(c) for u, c in enumerate(net.capacity)},
        {i: (u, 0) for i, u in task.problem.pinned.items()},
        demand=dict(enumerate(app.demand.tolist())),
        may=lambda i, slot: bool(np.isfinite(task.costs.node[i, slot[0]])),
    )
    return task.solution(np.array([where[i][0] for i in range(len(app.operators))]), "xu")


def round_robin(problem: Problem, weights: Weights, ranges: Ranges | None = None) -> Solution:
    """Assign operators to nodes in turn, as Storm's default does; full and forbidden nodes are skipped.

    Examples
    --------
    >>> from dspkit import placement
    >>> round_robin(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    task = PinnedProblem(problem, weights, ranges)
    app, net = task.problem.application, task.problem.network
    x, at, size = _pinned(task), 0, len(net.nodes)
    left = _left(task, x)
    for i in app.order:
        if x[i] < 0:
            turns = ((at + k) % size for k in range(size))
            x[i] = next((u for u in turns if _fits(task, i, u, left)), -1)
            _placed(task, i, int(x[i]), left)
            at = (int(x[i]) + 1) % size
    return task.solution(x, "round_robin")


def _rest(points: Any, rates: Any, start: Any) -> Array:
    return springs(points, rates, start, force_limit=1e-9)


def _virtual(
    problem: Problem, weights: Weights, ranges: Ranges | None, seed: int, name: str, wish: Callable[..., Array]
) -> Solution:
    whole(seed, "seed", error=PlacementError)
    task = PinnedProblem(problem, weights, ranges)
    app, net = task.problem.application, task.problem.network
    reached = np.where(np.isfinite(net.delay_s), net.delay_s, net.delay_s[np.isfinite(net.delay_s)].max())
    plane = embed(1e3 * reached, seed=seed)
    x, near = _pinned(task), [[] for _ in app.operators]  # type: ignore[var-annotated]
    for (a, b), rate in zip(app.ends.tolist(), app.rate_per_s.tolist(), strict=True):
        near[a].append((b, rate))
        near[b].append((a, rate))
    at = np.tile(plane[x[x >= 0]].mean(axis=0), (len(x), 1))
    at[x >= 0] = plane[x[x >= 0]]
    order = [i for i in breadth_first(app) if x[i] < 0]
    for _ in range(1000):
        before = at.copy()
        for i in order:
            if near[i]:
                others, rates = zip(*near[i], strict=True)
                at[i] = wish(at[list(others)], rates, at[i])
        if np.abs(at - before).max(initial=0.0) < MOVED:
            break
    left = _left(task, x)
    for i in order:
        far = np.linalg.norm(plane - at[i], axis=1).round(9)
        x[i] = next((u for u in np.argsort(far, kind="stable").tolist() if _fits(task, i, u, left)), -1)
        _placed(task, i, int(x[i]), left)
    return task.solution(x, name)


def _pinned(task: PinnedProblem) -> Placement:
    x = np.full(len(task.problem.application.operators), -1, np.int64)
    for i, u in task.problem.pinned.items():
        x[i] = u
    return x


def _left(task: PinnedProblem, x: Placement) -> Array:
    left: Array = task.problem.network.capacity.astype(float)
    np.subtract.at(left, x[x >= 0], task.problem.application.demand[x >= 0])
    return left


def _fits(task: PinnedProblem, i: int, u: int, left: Array) -> bool:
    demand = task.problem.application.demand[i]
    return bool(np.isfinite(task.costs.node[i, u]) and left[u] >= demand - 1e-9)


def _placed(task: PinnedProblem, i: int, u: int, left: Array) -> None:
    if u < 0:
        name = task.problem.application.operators[i]
        raise InfeasibleError(f"no node left for operator {name!r}", expected="room for all", fix="add capacity")
    left[u] -= task.problem.application.demand[i]
