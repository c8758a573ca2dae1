"""ODP as an integer linear program, (4.10) to (4.17) of the thesis, and its solution by HiGHS [nardelli].

| here | thesis |
|---|---|
| columns: x, then y, then t, then r | x_(i,u); y_(i,j),(u,v), continuous: binary x forces it; r |
| rows "and" | (4.13), (4.14): x_(i,u) = sum_v y, x_(j,v) = sum_u y |
| rows "path", or "potential" | (4.10) for each path, or t_j >= t_i + D_(i,j) + R_j for each stream: equal, but few |
| rows "capacity", "once", "bandwidth" | (4.11), (4.12), (4.17) |

The program is a set of sparse arrays for any solver; `replication/program.py` uses `Rows` and `optimum`, too. HiGHS
returns the proven optimum, or the best placement within a time limit, and its gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import BackendError, InfeasibleError, PlacementError
from ...core.typing import Array
from ..objective import Costs
from ..problem import Placement, Problem
from ..solution import Progress, Solution, Watch


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


def highs(
    problem: Problem,
    costs: Costs,
    *,
    time_limit_s: float = float("inf"),
    gap: float = 0.0,
    progress: Watch | None = None,
    paths: bool | None = None,
) -> Solution:
    """Return HiGHS's solution, computed on one thread; `progress` is called with each better placement."""
    started = time.perf_counter()
    model = program(problem, costs, paths=paths)
    left = time_limit_s - (time.perf_counter() - started)
    better: Callable[[Any], None] | None = None
    if progress is not None:
        watch = progress

        def improved(event: Any) -> None:
            z = np.asarray(event.data_out.mip_solution)
            bound = float(event.data_out.mip_dual_bound) + model.constant
            where = model.placement(z) if len(z) else None
            seconds = time.perf_counter() - started
            watch(Progress(seconds, float(event.data_out.objective_function_value) + model.constant, bound, where))

        better = improved
    z, bound, details = optimum(model, time_limit_s=left, gap=gap, better=better)
    where = model.placement(z)
    seconds = time.perf_counter() - started
    return Solution(problem, where, costs.of(problem, where), bound, seconds, "highs", details)


def optimum(
    model: LinearProgram, *, time_limit_s: float, gap: float, better: Callable[[Any], None] | None = None
) -> tuple[Array, float, dict[str, Any]]:
    """Return the best z of an integer program, a lower bound, and HiGHS's statistics."""
    solver = _loaded(model, relaxed=False)
    solver.setOptionValue("time_limit", max(0.01, time_limit_s))
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("mip_abs_gap", 1e-9)
    if better is not None:
        solver.cbMipImprovingSolution += better
    solver.run()
    status, searched = solver.modelStatusToString(solver.getModelStatus()), solver.getRunTime()
    info = solver.getInfo()
    if status == "Infeasible":
        raise InfeasibleError(
            "a problem without any feasible placement", expected="room for all operators", fix="add capacity or links"
        )
    if not np.isfinite(info.objective_function_value) or info.primal_solution_status != 2:
        raise PlacementError(
            f"no placement from HiGHS ({status.lower()})", expected="one within the time limit", fix="give it longer"
        )
    details = {"status": status, "columns": len(model.cost), "rows": len(model.low), "branches": info.mip_node_count}
    details["solver_seconds"] = searched  # without building the program
    return np.asarray(solver.getSolution().col_value), float(info.mip_dual_bound) + model.constant, details


def relaxation(problem: Problem, costs: Costs) -> tuple[Array, float]:
    """Return x of the linear relaxation (one row per operator, one column per node), and its loss, for RES-ODP."""
    model = program(problem, costs)
    solver = _loaded(model, relaxed=True)
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    if status == "Infeasible":
        raise InfeasibleError("a problem without room", expected="room for all operators", fix="add capacity or links")
    if status != "Optimal":
        raise PlacementError(f"a relaxation that is {status.lower()}", expected="an optimum", fix="check the numbers")
    x = np.zeros(costs.node.shape)
    x[model.operator, model.node] = np.asarray(solver.getSolution().col_value)[: model.binaries]
    return x, float(solver.getInfo().objective_function_value) + model.constant


def _loaded(model: LinearProgram, *, relaxed: bool) -> Any:
    try:
        import highspy  # type: ignore[import-untyped]
    except ImportError as error:
        raise BackendError(
            "no highspy", expected="it installed", fix="pip install 'dspkit[placement]', or use solver='exact'"
        ) from error
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(model.cost), len(model.low)
    lp.col_cost_, lp.row_lower_, lp.row_upper_ = model.cost, model.low, model.high
    lp.col_lower_, lp.col_upper_ = np.zeros(len(model.cost)), model.upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = model.matrix.indptr, model.matrix.indices
    lp.a_matrix_.value_ = model.matrix.data
    if not relaxed:
        whole = [highspy.HighsVarType.kInteger] * model.binaries
        lp.integrality_ = whole + [highspy.HighsVarType.kContinuous] * (len(model.cost) - model.binaries)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    return solver
