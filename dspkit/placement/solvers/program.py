"""ODP as an integer linear program: (4.10) to (4.17) of the thesis, as sparse arrays for any solver [nardelli].

| here | thesis |
|---|---|
| columns: x, then y, then t, then r | x_(i,u); y_(i,j),(u,v), continuous: binary x forces it; r |
| rows "and" | (4.13), (4.14): x_(i,u) = sum_v y, x_(j,v) = sum_u y |
| rows "path", or "potential" | (4.10) for each path, or t_j >= t_i + D_(i,j) + R_j for each stream: equal, but few |
| rows "capacity", "once", "bandwidth" | (4.11), (4.12), (4.17) |

`Rows` collects the rows of any program block by block; `replication/program.py` uses it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.typing import Array
from ..objective import Costs
from ..problem import Placement, Problem


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """min cost·z with low <= matrix·z <= high, 0 <= z <= upper, and the first `binaries` columns integer."""

    cost: Array
    upper: Array
    matrix: Any  # scipy's csr
    low: Array
    high: Array
    binaries: int
    constant: float


class Rows:
    """The rows of a program's matrix, collected block by block."""

    def __init__(self) -> None:
        self.row: list[Array] = []
        self.column: list[Array] = []
        self.value: list[Array] = []
        self.low: list[Array] = []
        self.high: list[Array] = []
        self.count = 0

    def add(self, entries: list[tuple[Any, Any, Any]], count: int, low: Any, high: Any) -> None:
        """Add `count` rows; each entry has row indices from 0, columns and values."""
        for row, column, value in entries:
            r, c, v = np.broadcast_arrays(np.asarray(row, np.int64), np.asarray(column, np.int64), np.float64(value))
            self.row.append(r.ravel() + self.count)
            self.column.append(c.ravel())
            self.value.append(v.ravel())
        self.low.append(np.broadcast_to(np.asarray(low, np.float64), (count,)))
        self.high.append(np.broadcast_to(np.asarray(high, np.float64), (count,)))
        self.count += count

    def program(self, cost: list[Array], upper: list[Array], binaries: int, constant: float) -> LinearProgram:
        """Return the program of all rows, given a cost and an upper limit for each column."""
        from scipy.sparse import csr_matrix

        costs = np.concatenate(cost)
        entries = (np.concatenate(self.value), (np.concatenate(self.row), np.concatenate(self.column)))
        matrix = csr_matrix(entries, shape=(self.count, len(costs)))
        low, high = np.concatenate(self.low), np.concatenate(self.high)
        return LinearProgram(costs, np.concatenate(upper), matrix, low, high, binaries, constant)


@dataclass(frozen=True, eq=False)
class Program(LinearProgram):
    """The program of a placement problem, with the operator and the node of each x."""

    operator: Array  # of each x
    node: Array

    def placement(self, z: Array) -> Placement:
        """Return the node of the largest x of each operator."""
        share = np.full((self.operator.max() + 1, self.node.max() + 1), -1.0)
        share[self.operator, self.node] = z[: self.binaries]
        where: Placement = share.argmax(axis=1)
        return where


def program(problem: Problem, costs: Costs, *, paths: bool | None = None) -> Program:
    """Return the program; `paths` chooses (4.10) with one row per path (the default up to 1,000) or potentials."""
    app, net = problem.application, problem.network
    size = len(net.nodes)
    operator, node = np.nonzero(np.isfinite(costs.node))
    at = np.full(costs.node.shape, -1, np.int64)
    at[operator, node] = np.arange(len(operator))
    cost, rows, next_column = [costs.node[operator, node]], Rows(), len(operator)
    rows.add([(operator, at[operator, node], 1.0)], len(app.operators), 1.0, 1.0)
    rows.add([(node, at[operator, node], app.demand[operator])], size, -np.inf, net.capacity * (1 + 1e-9))
    pairs: list[tuple[Array, Array, Array]] = []
    for e, (i, j) in enumerate(app.ends.tolist()):
        link = costs.link[costs.kind[e]]
        u, v = np.nonzero((at[i] >= 0)[:, None] & (at[j] >= 0)[None, :] & np.isfinite(link))
        y = next_column + np.arange(len(u))
        next_column += len(u)
        cost.append(link[u, v])
        pairs.append((u, v, y))
        for end, nodes in ((i, u), (j, v)):
            mine = np.flatnonzero(at[end] >= 0)
            place = np.searchsorted(mine, nodes)
            rows.add([(np.arange(len(mine)), at[end, mine], 1.0), (place, y, -1.0)], len(mine), 0.0, 0.0)
    upper = [np.ones(next_column)]
    if costs.response:
        next_column = _response(problem, costs, at, pairs, rows, next_column, paths)
        extra = next_column - sum(map(len, cost))
        cost.append(np.concatenate((np.zeros(extra - 1), [costs.response])))
        upper.append(np.full(extra, np.inf))
    _bandwidth(problem, pairs, rows)
    made = rows.program(cost, upper, len(operator), costs.constant)
    return Program(**vars(made), operator=operator, node=node)


def _response(
    problem: Problem,
    costs: Costs,
    at: Array,
    pairs: list[tuple[Array, Array, Array]],
    rows: Rows,
    first: int,
    paths: bool | None,
) -> int:
    """Add the rows that keep r, the last column, above every path; return the number of columns."""
    app, delay = problem.application, problem.network.delay_s
    stream = {(i, j): e for e, (i, j) in enumerate(app.ends.tolist())}

    def works(i: int) -> tuple[Any, Any, Any]:
        u = np.flatnonzero(at[i] >= 0)
        return 0, at[i, u], -problem.times_s[i, u]

    def travels(i: int, j: int) -> tuple[Any, Any, Any]:
        u, v, y = pairs[stream[i, j]]
        return 0, y, -delay[u, v]

    if paths is None:
        paths = app.path_count <= 1_000
    if paths:
        for path in app.paths(most=app.path_count):
            steps = [travels(i, j) for i, j in zip(path, path[1:], strict=False)]
            rows.add([(0, [first], 1.0), *map(works, path), *steps], 1, 0.0, np.inf)
        return first + 1
    r = first + len(app.operators)
    for i in range(len(app.operators)):
        if not app.upstream[i]:
            rows.add([(0, [first + i], 1.0), works(i)], 1, 0.0, np.inf)
        if not app.downstream[i]:
            rows.add([(0, [r], 1.0), (0, [first + i], -1.0)], 1, 0.0, np.inf)
    for i, j in stream:
        rows.add([(0, [first + j], 1.0), (0, [first + i], -1.0), works(j), travels(i, j)], 1, 0.0, np.inf)
    return r + 1


def _bandwidth(problem: Problem, pairs: list[tuple[Array, Array, Array]], rows: Rows) -> None:
    """Add (4.17) for links that several streams together could overload."""
    app, net = problem.application, problem.network
    tight = np.argwhere(net.bandwidth_per_s < app.rate_per_s.sum())
    for u, v in tight.tolist():
        entries = []
        for (starts, ends, y), rate in zip(pairs, app.rate_per_s, strict=True):
            here = y[(starts == u) & (ends == v)]
            if len(here):
                entries.append((0, here, rate))
        if len(entries) > 1:
            rows.add(entries, 1, -np.inf, net.bandwidth_per_s[u, v] * (1 + 1e-9))
