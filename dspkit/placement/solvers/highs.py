"""The integer program, solved by HiGHS: the proven optimum, or the best placement within a time limit, and its gap."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import BackendError, InfeasibleError, PlacementError
from ...core.typing import Array
from ..objective import Costs
from ..problem import Problem
from ..solution import Progress, Solution, Watch
from .program import LinearProgram, program


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
            "no highspy", expected="it installed", fix="pip install 'dspkit[place]', or use solver='exact'"
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
