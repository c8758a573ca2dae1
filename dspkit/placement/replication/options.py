"""The options of each operator, multisets of nodes, with their costs and those of pairs along a stream [nardelli].

A multiset has the nodes of an operator's replicas, as a row of counts, one per node (6.1 of the thesis). As printed,
P(X; k) contains the empty multiset, with which an operator would vanish: here there is at least one replica. `Options`
has the response time and the price of each, `Pairs` the costs of (6.4)-(6.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.typing import Array
from ...core.validation import whole
from ..problem import Problem

MOST = 2_000_000  # rows; longer lists do not fit into memory


def how_many(nodes: int, most: int) -> int:
    """Return the number of multisets of 1 to `most` out of `nodes`.

    >>> how_many(15, 2), how_many(24, 4)
    (135, 20474)
    """
    return math.comb(nodes + most, most) - 1


def multisets(nodes: int, most: int) -> Array:
    """Return all multisets as rows of counts, by number of replicas, then by node.

    >>> multisets(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    for what, value in (("nodes", nodes), ("most", most)):
        whole(value, what, 1, error=PlacementError)
    if (count := how_many(nodes, most)) > MOST:
        raise PlacementError(f"{count} multisets", expected=f"at most {MOST}", fix="name candidates, or allow fewer")
    blocks = []
    for size in range(1, most + 1):
        chosen = np.array(list(combinations_with_replacement(range(nodes), size)), np.int64)
        block = np.zeros((len(chosen), nodes), np.int64)
        np.add.at(block, (np.arange(len(chosen))[:, None], chosen), 1)
        blocks.append(block)
    return np.concatenate(blocks)


def neighbours(rows: Array, running: Array, *, printed: bool = False) -> Array:
    """Select the rows of counts one step from the running one: the same, a replica more, fewer, or moved (rEDRP).

    As printed, the last condition always holds, so that two replicas may be added or removed at once, on two nodes.

    >>> rows = multisets(3, 3)
    >>> int(neighbours(rows, np.array([1, 0, 0])).sum()), int(neighbours(rows, np.array([1, 0, 0]), printed=True).sum())
    (6, 9)
    """
    apart = rows - running
    near = (np.abs(apart) <= 1).all(axis=1) & (np.abs(apart).sum(axis=1) <= 2)
    found: Array = near if printed else near & (np.abs(apart.sum(axis=1)) <= 1)
    return found


MOST_PAIRS = 5_000_000  # a program with more columns takes gigabytes before it is solved
Keep = Callable[[int, Array], Array]  # selects the rows of counts that operator i may take


@dataclass(frozen=True, eq=False)
class Options:
    """The multisets of each operator: rows of counts, with seconds and price of each."""

    problem: Problem
    counts: tuple[Array, ...]
    times_s: tuple[Array, ...]
    price: tuple[Array, ...]

    def chosen(self, rows: list[int]) -> Array:
        """Return the deployment with one row per operator."""
        return np.stack([c[r] for c, r in zip(self.counts, rows, strict=True)])

    def only(self, keep: list[Array]) -> Options:
        """Return the options that the masks select."""
        parts = (tuple(v[k] for v, k in zip(x, keep, strict=True)) for x in (self.counts, self.times_s, self.price))
        return Options(self.problem, *parts)


class Pairs:
    """The cost of each pair of options along one stream: its slowest link, its price, T, N or EE (6.4)-(6.7)."""

    def __init__(self, options: Options, stream: int):
        problem = options.problem
        app, net = problem.application, problem.network
        self.i, self.j = app.ends[stream].tolist()
        starts, ends = options.counts[self.i], options.counts[self.j]
        self.rate = float(app.rate_per_s[stream])
        self.bytes_per_s = self.rate * float(problem.replica_model.bytes_per_record[stream])
        self.used = starts > 0, ends > 0
        support = problem.replica_model.traffic == "support"
        shares = (u if support else c for u, c in zip(self.used, (starts, ends), strict=True))
        sizes = (c.sum(axis=1, keepdims=True) for c in (starts, ends))
        self.shares = tuple(s / n for s, n in zip(shares, sizes, strict=True))
        self.network = net
        far = np.stack([np.where(self.used[0], net.delay_s[:, v], 0.0).max(axis=1) for v in range(len(net.nodes))])
        self.delay_s = np.zeros((len(starts), len(ends)))
        for v, seconds in enumerate(far):  # from the farthest replica of each start to node v
            hit = self.used[1][:, v]
            self.delay_s[:, hit] = np.maximum(self.delay_s[:, hit], seconds[:, None])
        self.price = self._sum(problem.replica_model.link_price) * self.rate

    def network_metric(self, metric: str) -> Array:
        """Return T, N or EE of each pair."""
        delay = np.where(np.isfinite(self.network.delay_s), self.network.delay_s, 0.0)
        return self._sum(delay ** {"traffic": 0, "usage": 1, "energy": 2}[metric]) * self.bytes_per_s

    def carried(self, u: int, v: int) -> Array:
        """Return the records/s that each pair sends from node u to node v."""
        return np.outer(self.shares[0][:, u], self.shares[1][:, v]) * self.rate

    def linked(self, u: int, v: int) -> Array:
        """Return whether each pair uses the link from u to v."""
        return np.outer(self.used[0][:, u], self.used[1][:, v])

    def _sum(self, matrix: Array) -> Array:
        matrix = matrix.copy()
        np.fill_diagonal(matrix, 0.0)
        found: Array = self.shares[0] @ matrix @ self.shares[1].T
        return found


def options(problem: Problem, keep: Keep | None = None) -> Options:
    """Return all multisets that fit their nodes and keep up with the load; `keep` may select some."""
    app, net = problem.application, problem.network
    counts, times, price = [], [], []
    for i, operator in enumerate(app.operators):
        nodes = np.flatnonzero(problem.allowed[i])
        made = multisets(len(nodes), int(problem.replica_model.max_replicas[i]))
        rows = np.zeros((len(made), len(net.nodes)), np.int64)
        rows[:, nodes] = made
        fits = (rows * app.demand[i] <= net.capacity * (1 + 1e-9) + 1e-9).all(axis=1)
        each = np.stack(
            [problem.replica_times_s(i, n) for n in range(1, int(problem.replica_model.max_replicas[i]) + 1)]
        )
        sizes = rows.sum(axis=1)
        slowest = np.where(rows > 0, each[sizes - 1], 0.0).max(axis=1)
        stable = np.isfinite(slowest)
        good = fits & stable
        if not good.any():
            why = "room for" if not fits.any() else "replicas enough to keep up for"
            raise InfeasibleError(
                f"no {why} operator {operator!r} with {problem.load_per_s[i]:g} records/s",
                expected="at least one multiset of nodes that can run it",
                fix="add capacity, allow more replicas, or slow the source",
            )
        if keep is not None:
            good &= keep(i, rows)
            if not good.any():
                raise InfeasibleError(
                    f"no feasible step of operator {operator!r}",
                    expected="a deployment one step away",
                    fix="solve without the restriction",
                )
        counts.append(rows[good])
        times.append(slowest[good])
        price.append(sizes[good] * problem.replica_model.price[i] * app.demand[i])
    return Options(problem, tuple(counts), tuple(times), tuple(price))


def listable(found: Options) -> None:
    """Raise an error if the pairs of options are too many for columns of a program."""
    ends = found.problem.application.ends.tolist()
    pairs = sum(len(found.counts[i]) * len(found.counts[j]) for i, j in ends)
    if pairs > MOST_PAIRS:
        raise PlacementError(
            f"{pairs} pairs of multisets",
            expected=f"at most {MOST_PAIRS}",
            fix="name candidates, allow fewer replicas, or solve with restricted=True",
        )


def deployments(found: Options) -> int:
    """Return the number of combinations of options, feasible or not."""
    return math.prod(len(c) for c in found.counts)
