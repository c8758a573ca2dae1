"""Each operator's multisets, and what each of them, and each pair along a stream, is worth: (6.1)-(6.7) [nardelli]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InfeasibleError, PlacementError
from .multisets import multisets
from .replica_problem import ReplicaProblem

Array = np.ndarray[Any, Any]
MOST_PAIRS = 5_000_000  # a program with more columns takes gigabytes before it is solved
Keep = Callable[[int, Array], Array]  # which rows of counts operator i may take


@dataclass(frozen=True, eq=False)
class Options:
    """For each operator the multisets that it may run as: rows of counts, with seconds and price of each."""

    problem: ReplicaProblem
    counts: tuple[Array, ...]
    times_s: tuple[Array, ...]
    price: tuple[Array, ...]

    def chosen(self, rows: list[int]) -> Array:
        """The deployment of one row each."""
        return np.stack([c[r] for c, r in zip(self.counts, rows, strict=True)])

    def only(self, keep: list[Array]) -> Options:
        """Some rows of each operator, as masks."""
        parts = (tuple(v[k] for v, k in zip(x, keep, strict=True)) for x in (self.counts, self.times_s, self.price))
        return Options(self.problem, *parts)


class Pairs:
    """What each pair of options costs along one stream: its slowest link, its price, T, N or EE (6.4)-(6.7)."""

    def __init__(self, options: Options, stream: int):
        problem = options.problem
        app, net = problem.problem.application, problem.problem.network
        self.i, self.j = app.ends[stream].tolist()
        starts, ends = options.counts[self.i], options.counts[self.j]
        self.rate = float(app.rate_per_s[stream])
        self.bytes_per_s = self.rate * float(problem.bytes_per_record[stream])
        self.used = starts > 0, ends > 0
        support = problem.traffic == "support"
        shares = (u if support else c for u, c in zip(self.used, (starts, ends), strict=True))
        sizes = (c.sum(axis=1, keepdims=True) for c in (starts, ends))
        self.shares = tuple(s / n for s, n in zip(shares, sizes, strict=True))
        self.network = net
        far = np.stack([np.where(self.used[0], net.delay_s[:, v], 0.0).max(axis=1) for v in range(len(net.nodes))])
        self.delay_s = np.zeros((len(starts), len(ends)))
        for v, seconds in enumerate(far):  # from the farthest replica of each start to node v
            hit = self.used[1][:, v]
            self.delay_s[:, hit] = np.maximum(self.delay_s[:, hit], seconds[:, None])
        self.price = self._sum(problem.link_price) * self.rate

    def network_metric(self, metric: str) -> Array:
        """T, N or EE of each pair."""
        delay = np.where(np.isfinite(self.network.delay_s), self.network.delay_s, 0.0)
        return self._sum(delay ** {"traffic": 0, "usage": 1, "energy": 2}[metric]) * self.bytes_per_s

    def carried(self, u: int, v: int) -> Array:
        """Records/s that each pair sends from node u to node v."""
        return np.outer(self.shares[0][:, u], self.shares[1][:, v]) * self.rate

    def linked(self, u: int, v: int) -> Array:
        """Which pairs use the link from u to v."""
        return np.outer(self.used[0][:, u], self.used[1][:, v])

    def _sum(self, matrix: Array) -> Array:
        matrix = matrix.copy()
        np.fill_diagonal(matrix, 0.0)
        found: Array = self.shares[0] @ matrix @ self.shares[1].T
        return found


def options(problem: ReplicaProblem, keep: Keep | None = None) -> Options:
    """All multisets that fit their nodes and keep up with their load; `keep` may narrow them down."""
    app, net = problem.problem.application, problem.problem.network
    counts, times, price = [], [], []
    for i, operator in enumerate(app.operators):
        nodes = np.flatnonzero(problem.problem.allowed[i])
        made = multisets(len(nodes), int(problem.most[i]))
        rows = np.zeros((len(made), len(net.nodes)), np.int64)
        rows[:, nodes] = made
        fits = (rows * app.demand[i] <= net.capacity * (1 + 1e-9) + 1e-9).all(axis=1)
        each = np.stack([problem.times_s(i, n) for n in range(1, int(problem.most[i]) + 1)])
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
                    f"no step of operator {operator!r} to where it can run",
                    expected="a deployment one step away",
                    fix="solve without the restriction",
                )
        counts.append(rows[good])
        times.append(slowest[good])
        price.append(sizes[good] * problem.price[i] * app.demand[i])
    return Options(problem, tuple(counts), tuple(times), tuple(price))


def listable(found: Options) -> None:
    """An error where the pairs of options are too many to be columns of a program."""
    ends = found.problem.problem.application.ends.tolist()
    pairs = sum(len(found.counts[i]) * len(found.counts[j]) for i, j in ends)
    if pairs > MOST_PAIRS:
        raise PlacementError(
            f"{pairs} pairs of multisets",
            expected=f"at most {MOST_PAIRS}",
            fix="name candidates, allow fewer replicas, or adapt with restricted=True",
        )


def deployments(found: Options) -> int:
    """How many combinations of options there are, whether they fit together or not."""
    return math.prod(len(c) for c in found.counts)
