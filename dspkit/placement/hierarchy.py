"""Hierarchical ODP: place on clusters of nodes, then within the chosen ones, level by level [nardelli, Algorithm 1].

Repaired: as printed, the loop that builds the levels writes one too many, and the one that searches them runs one too
far. Clusters are k-medoids on the penalty (the thesis says k-means, but a penalty has no means).
"""

from __future__ import annotations

import math

import numpy as np

from .answer import Answer
from .arrays import whole
from .greedy import Task
from .metrics import Ranges, Weights
from .penalty import penalties, symmetric
from .problem import Array, Network, Problem
from .reduced import Exact


def hierarchical(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    groups: int = 2,
    solver: str = "own",
    time_limit_s: float = math.inf,
) -> Answer:
    """Solve exactly on ever finer clusters, keeping only what the level above has used.

    What capacity in one cluster cannot be used because it is spread over its nodes: then all elements of the level are
    put back.
    """
    whole(groups, "groups", 2)
    task = Task(problem, weights, ranges)
    exact = Exact(weights, task.ranges, solver, time_limit_s)
    problem = task.problem
    levels = build(problem.network, weights, groups)
    kept = set(range(len(levels[0][0].nodes)))
    put_back, searched = 0, []
    for depth, (network, members) in enumerate(levels):
        here = Problem(problem.application, network, _lifted(problem, levels, depth))
        everything = set(range(len(network.nodes)))
        searched.append(len(kept))
        x = exact.within(here, kept)
        if x is None and kept != everything:
            put_back += 1
            x = exact.within(here, everything)
        last = depth == len(levels) - 1
        if x is None and last:
            raise task.infeasible()
        used = everything if x is None else set(x.tolist())
        kept = {v for u in used for v in members[u]}
    assert x is not None
    sizes = tuple(len(network.nodes) for network, _ in levels)
    return task.answer(
        x, "hierarchical ODP", levels=sizes, solves=exact.solves, put_back=put_back, searched=tuple(searched)
    )


Level = tuple[Network, list[list[int]]]  # and the elements of the next finer level in each of its nodes


def build(network: Network, weights: Weights, groups: int = 2) -> list[Level]:
    """The levels, coarsest first; the last is the network itself.

    >>> from dspkit.placement import waxman
    >>> [len(level.nodes) for level, _ in build(waxman(49), Weights(1, 0, 0))]
    [2, 4, 8, 16, 32, 49]
    """
    depth = math.floor(math.log(len(network.nodes), groups) + 0.5) - 1
    levels: list[Level] = [(network, [[u] for u in range(len(network.nodes))])]
    for level in range(depth, 0, -1):
        finer = levels[0][0]
        members = clusters(symmetric(penalties(finer, weights)), groups**level)
        levels.insert(0, (centre(finer, members), members))
    return levels


def clusters(penalty: Array, k: int, most: int = 100) -> list[list[int]]:
    """k-medoids: the first medoid has the least row sum, the next are the farthest ones; ties to the lower id."""
    n = len(penalty)
    if k >= n:
        return [[u] for u in range(n)]
    far = np.where(np.isfinite(penalty), penalty, 1e6).round(12)
    medoids = [int(far.sum(axis=1).argmin())]
    while len(medoids) < k:
        away = far[:, medoids].min(axis=1)
        away[medoids] = -1.0
        medoids.append(int(away.argmax()))
    for _ in range(most):
        medoids.sort()
        mine = far[:, medoids].argmin(axis=1)
        mine[medoids] = np.arange(k)
        found = []
        for c in range(k):
            inside = np.flatnonzero(mine == c)
            found.append(int(inside[far[np.ix_(inside, inside)].sum(axis=1).argmin()]))
        if sorted(found) == medoids:
            break
        medoids = found
    return [np.flatnonzero(mine == c).tolist() for c in range(k)]


def centre(network: Network, members: list[list[int]]) -> Network:
    """A virtual data centre for each cluster: mean availability and speed, summed capacity, mean links.

    Within one all is perfect, as within a node.
    """
    size = np.array([[1.0 / len(m) if u in m else 0.0 for u in range(len(network.nodes))] for m in members])
    names = tuple(
        f"VDC {c}: {', '.join(network.nodes[u] for u in m[:3])}{'…' * (len(m) > 3)}" for c, m in enumerate(members)
    )

    def mean(matrix: Array) -> Array:
        made: Array = size @ np.where(np.isfinite(matrix), matrix, 0.0) @ size.T
        broken = (size > 0).astype(float) @ (~np.isfinite(matrix)) @ (size > 0).T
        return np.where(broken > 0, np.inf, made)

    return Network(
        names, mean(network.delay_s), (size > 0) @ network.capacity, size @ network.speed,
        np.minimum(1.0, size @ network.availability),
        np.minimum(1.0, mean(network.link_availability)), math.inf,
    )  # fmt: skip


def _lifted(problem: Problem, levels: list[Level], depth: int) -> dict[str, tuple[str, ...]]:
    """Candidates on this level: whatever holds a candidate node."""
    network = levels[depth][0]
    inside = [{u} for u in range(len(network.nodes))]
    for _, members in levels[depth:-1]:
        inside = [{v for u in some for v in members[u]} for some in inside]
    at = problem.network.index
    return {
        operator: tuple(name for name, some in zip(network.nodes, inside, strict=True) if some & {at[n] for n in may})
        for operator, may in problem.candidates.items()
    }
