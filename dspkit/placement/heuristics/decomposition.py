"""Heuristics that solve the problem exactly on fewer nodes: RES-ODP, ODP-PS and hierarchical ODP [nardelli].

* `relaxed` (RES-ODP): the nodes that the linear relaxation uses, and some good neighbours of these.
* `pruned` (ODP-PS): a small set of nodes around the pinned ones; a larger one if that fails.
* `hierarchical` (Algorithm 1): clusters of nodes, then the members of the chosen ones, level by level. Repaired: as
  printed, the loop that builds the levels writes one too many, and the one that searches them runs one too far.
  Clusters are k-medoids on the penalty (the thesis says k-means, but penalties have no mean).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.typing import Array
from ...core.validation import choice, whole
from ..metrics import Ranges, Weights
from ..objective import Costs, equal_operators, weighted_costs
from ..problem import Application, Network, Placement, Problem
from ..solution import Solution
from ..solvers.integer_program import relaxation
from ..solvers.solve import minimise
from .greedy import PinnedProblem, penalties, symmetric

LINKAGES = ("average", "single", "complete", "pairs")


@dataclass
class Exact:
    """An exact solver with its settings, and the number of its solves."""

    weights: Weights
    ranges: Ranges
    solver: str = "exact"
    time_limit_s: float = float("inf")
    solves: int = 0

    def within(self, problem: Problem, nodes: Collection[int]) -> Placement | None:
        """Return the best placement on these nodes, as indices into all nodes; None if infeasible."""
        kept = np.array(sorted(nodes), np.int64)
        try:
            answer = self.solve(on_nodes(problem, kept))
        except InfeasibleError:
            return None
        return kept[answer.placement]

    def solve(self, problem: Problem) -> Solution:
        """Return the best placement, or the best one found within the time limit."""
        if problem.application.demand.sum() > problem.network.capacity.sum() * (1 + 1e-9):
            raise InfeasibleError("less capacity than the operators need", expected="as much", fix="add nodes")
        self.solves += 1
        costs = weighted_costs(problem, self.weights, self.ranges)
        return minimise(problem, costs, solver=self.solver, time_limit_s=self.time_limit_s)


def on_nodes(problem: Problem, kept: Array) -> Problem:
    """Return the problem on some nodes only.

    Raises
    ------
    InfeasibleError
        An operator has no candidate among these nodes.
    """
    net, nodes = problem.network, [problem.network.nodes[u] for u in kept.tolist()]
    square: Any = np.ix_(kept, kept)
    fewer = Network(
        tuple(nodes),
        net.delay_s[square],
        net.capacity[kept],
        net.speed[kept],
        net.availability[kept],
        net.link_availability[square],
        net.bandwidth_per_s[square],
    )
    candidates = {}
    for operator, may in problem.candidates.items():
        left = tuple(n for n in may if n in fewer.index)
        if not left:
            raise InfeasibleError(
                f"no candidate of {operator!r} among {len(nodes)} nodes", expected="one", fix="add it"
            )
        candidates[operator] = left
    return Problem(problem.application, fewer, candidates)


def relaxed(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    neighbours: int = 5,
    seed: int = 0,
    solver: str = "exact",
    time_limit_s: float = math.inf,
) -> Solution:
    """Solve on nodes drawn from the linear relaxation, one per operator, and some neighbours of each.

    While that is infeasible, the number of neighbours is doubled. The thesis gives no formula for drawing neighbours:
    here the probability is proportional to $1 - \\delta$.

    Parameters
    ----------
    problem, weights, ranges
        As of `placement.solve`, without replication.
    neighbours
        Number of neighbours that are drawn for each node.
    seed
        Seed of the draws.
    solver, time_limit_s
        As of `placement.solve`, for each set.

    Examples
    --------
    >>> from dspkit import placement
    >>> relaxed(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    whole(neighbours, "neighbours", error=PlacementError)
    whole(seed, "seed", error=PlacementError)
    task = PinnedProblem(problem, weights, ranges)
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
            return task.solution(x, "relaxed", nodes=len(nodes), solves=exact.solves)
        if len(nodes) == size:
            raise task.infeasible()
        k = max(1, 2 * k)


def shared_relaxation(problem: Problem, costs: Costs) -> tuple[Array, float]:
    """Return x of the linear relaxation, and its loss, from a program that merges equal operators.

    The mean over all permutations of equal operators is an optimum, too, in which they have the same shares.
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
    """Return these nodes and k random others for each, with probabilities that decrease with the penalty."""
    nodes, size = set(drawn), len(penalty)
    for u in sorted(drawn) if size > 1 else ():
        others = np.delete(np.arange(size), u)
        chance = np.maximum(0.0, 1 - np.where(np.isfinite(penalty[u, others]), penalty[u, others], 1.0)) + 1e-9
        nodes |= set(random.choice(others, min(k, size - 1), replace=False, p=chance / chance.sum()).tolist())
    return nodes


def pruned(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    linkage: str = "average",
    solver: str = "exact",
    time_limit_s: float = math.inf,
) -> Solution:
    """Solve on the smallest set of a merge tree that strictly contains the pinned nodes and is feasible.

    Parameters
    ----------
    problem, weights, ranges
        As of `placement.solve`, without replication.
    linkage
        How sets of the tree merge, as of `merge_tree`.
    solver, time_limit_s
        As of `placement.solve`, for each set.

    Examples
    --------
    >>> from dspkit import placement
    >>> pruned(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    task = PinnedProblem(problem, weights, ranges)
    exact = Exact(weights, task.ranges, solver, time_limit_s)
    everything = frozenset(range(len(problem.network.nodes)))
    tree = merge_tree(symmetric(task.penalty), linkage)
    inside = frozenset(task.problem.pinned.values())
    while True:
        inside = min((s for s in tree if s > inside), key=lambda s: (len(s), min(s)), default=everything)
        x = exact.within(task.problem, inside)
        if x is not None:
            return task.solution(x, "pruned", nodes=len(inside), solves=exact.solves)
        if inside == everything:
            raise task.infeasible()


def merge_tree(penalty: Array, linkage: str = "average") -> list[frozenset[int]]:
    """Return all sets of a tree over nodes, in the order in which they merge.

    The thesis pairs nodes of least penalty, then combines pairs into sets of least penalty within. It does not say how
    the penalty of a larger set is compared: "average" merges the two sets of least mean penalty between them, "single"
    and "complete" of the least and of the greatest one (hierarchical clustering). "pairs" merges all sets of a level
    in pairs, those of the least sum of penalties within their union first.

    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer([0, 1, 5, 5.5], [0, 1, 5, 5.5]))
    >>> [sorted(s) for s in merge_tree(line)[4:]]
    [[2, 3], [0, 1], [0, 1, 2, 3]]
    """
    choice(linkage, "linkage", LINKAGES, error=PlacementError)
    level = [frozenset((u,)) for u in range(len(penalty))]
    if linkage == "pairs" or len(level) < 2:
        return _in_pairs(level, penalty)
    from scipy.cluster.hierarchy import linkage as clustered
    from scipy.spatial.distance import squareform

    known = penalty[np.isfinite(penalty)]
    far = 2.0 * len(penalty) * (1.0 + float(known.max(initial=0.0)))  # without a link: farther than any sum of links
    sets = list(level)
    for a, b, *_ in clustered(squareform(np.where(np.isfinite(penalty), penalty, far)), linkage):
        sets.append(sets[int(a)] | sets[int(b)])
    return sets


def _in_pairs(level: list[frozenset[int]], penalty: Array) -> list[frozenset[int]]:
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


def hierarchical(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    groups: int = 2,
    solver: str = "exact",
    time_limit_s: float = math.inf,
) -> Solution:
    """Solve exactly on finer and finer clusters, keeping only the members of those that the level above used.

    If a level is infeasible, because the capacity of a cluster is fragmented over its nodes, all elements of the level
    are considered.

    Parameters
    ----------
    problem, weights, ranges
        As of `placement.solve`, without replication.
    groups
        Number of clusters of the coarsest level, from 2; each level has this factor more than the one above.
    solver, time_limit_s
        As of `placement.solve`, for each level.

    Examples
    --------
    >>> from dspkit import placement
    >>> hierarchical(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    whole(groups, "groups", 2, error=PlacementError)
    task = PinnedProblem(problem, weights, ranges)
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
    return task.solution(
        x, "hierarchical", levels=sizes, solves=exact.solves, put_back=put_back, searched=tuple(searched)
    )


Level = tuple[Network, list[list[int]]]  # and the elements of the next finer level in each of its nodes


def build(network: Network, weights: Weights, groups: int = 2) -> list[Level]:
    """Return the levels, coarsest first; the last is the network itself.

    >>> from dspkit.placement.generators import waxman_network
    >>> [len(level.nodes) for level, _ in build(waxman_network(49), Weights(1, 0, 0))]
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
    """Return k clusters by k-medoids: the first medoid has the least row sum, each next one is the farthest node.

    Ties go to the lower index.
    """
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
    """Return a network with one virtual data centre per cluster: mean availability, speed and links, total capacity.

    As within a node, there are no delays or failures inside a data centre.
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
        names,
        mean(network.delay_s),
        (size > 0) @ network.capacity,
        size @ network.speed,
        np.minimum(1.0, size @ network.availability),
        np.minimum(1.0, mean(network.link_availability)),
        math.inf,
    )


def _lifted(problem: Problem, levels: list[Level], depth: int) -> dict[str, tuple[str, ...]]:
    """Return the candidates on this level: the clusters that contain a candidate node."""
    network = levels[depth][0]
    inside = [{u} for u in range(len(network.nodes))]
    for _, members in levels[depth:-1]:
        inside = [{v for u in some for v in members[u]} for some in inside]
    at = problem.network.index
    return {
        operator: tuple(name for name, some in zip(network.nodes, inside, strict=True) if some & {at[n] for n in may})
        for operator, may in problem.candidates.items()
    }
