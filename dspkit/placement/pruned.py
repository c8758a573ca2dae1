"""ODP-PS: exact placement on a small set of nodes around the pinned ones, on a larger one if that fails [nardelli]."""

from __future__ import annotations

import math

from .answer import Answer
from .greedy import Task
from .metrics import Ranges, Weights
from .penalty import symmetric
from .problem import Array, Problem
from .reduced import Exact


def pruned(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    solver: str = "own",
    time_limit_s: float = math.inf,
) -> Answer:
    """Solve on the smallest set of a merge tree that strictly contains the pinned nodes; the first feasible wins."""
    task = Task(problem, weights, ranges)
    exact = Exact(weights, task.ranges, solver, time_limit_s)
    everything = frozenset(range(len(problem.network.nodes)))
    tree = merge_tree(symmetric(task.penalty))
    inside = frozenset(task.problem.pinned.values())
    while True:
        inside = min((s for s in tree if s > inside), key=lambda s: (len(s), min(s)), default=everything)
        x = exact.within(task.problem, inside)
        if x is not None:
            return task.answer(x, "ODP-PS", nodes=len(inside), solves=exact.solves)
        if inside == everything:
            raise task.infeasible()


def merge_tree(penalty: Array) -> list[frozenset[int]]:
    """All sets of a tree over nodes: in each level sets merge in pairs, those of least summed penalty first.

    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer([0, 1, 5, 5.5], [0, 1, 5, 5.5]))
    >>> [sorted(s) for s in merge_tree(line)[4:]]
    [[2, 3], [0, 1], [0, 1, 2, 3]]
    """
    level = [frozenset((u,)) for u in range(len(penalty))]
    tree = list(level)
    inner = [0.0] * len(level)  # sum of penalties inside each set of the level
    between = penalty  # and between two of them
    while len(level) > 1:
        n = len(level)
        pairs = [(inner[a] + inner[b] + between[a, b], a, b) for a in range(n) for b in range(a + 1, n)]
        pairs.sort(key=lambda p: (round(float(p[0]), 12), *sorted((min(level[p[1]]), min(level[p[2]])))))
        used: set[int] = set()
        groups: list[tuple[int, ...]] = []
        for _, a, b in pairs:
            if a not in used and b not in used:
                used |= {a, b}
                groups.append((a, b))
        groups += [(a,) for a in range(n) if a not in used]
        tree += [level[g[0]] | level[g[1]] for g in groups if len(g) == 2]
        inner = [inner[g[0]] + (inner[g[1]] + float(between[g[0], g[1]]) if len(g) == 2 else 0.0) for g in groups]
        rows = [between[list(g)].sum(axis=0) for g in groups]
        joined = [[float(row[list(h)].sum()) for h in groups] for row in rows]
        level = [frozenset().union(*(level[a] for a in g)) for g in groups]
        between = _matrix(joined)
    return tree


def _matrix(rows: list[list[float]]) -> Array:
    import numpy as np

    return np.array(rows)
