"""Our own exact solver: local search for a first placement, then label setting for chains, else branch and bound."""

from __future__ import annotations

import math
import time

import numpy as np

from ..errors import InfeasibleError, PlacementError
from .answer import Answer, Clock, Progress, Watch
from .branch import branch
from .chain import chain as by_labels
from .chain import slots_of
from .costs import Costs, chain_of, folded
from .kernels_climb import climb, construct
from .problem import Array, Problem


def own(
    problem: Problem,
    costs: Costs,
    *,
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    progress: Watch | None = None,
    seed: int = 1,
) -> Answer:
    """The placement of least loss, proven; or the best one and a bound when the time is over."""
    started = time.perf_counter()
    deadline = started + time_limit_s
    chain = chain_of(problem)
    shape = folded(problem, costs) if chain else costs
    x, loss = first_placement(problem, shape, seed=seed, trials=1, kicks=3)
    if progress is not None and math.isfinite(loss):
        progress(Progress(time.perf_counter() - started, loss + costs.constant, -math.inf, x.copy()))

    def longer() -> tuple[Array, float]:  # asked for where the first placement does not suffice for a quick proof
        return first_placement(problem, shape, seed=seed + 1)

    clock = Clock(started, deadline, gap, costs.constant, progress)
    details: dict[str, object] = {}
    shared = problem.network.bandwidth_per_s < problem.application.rate_per_s.sum()
    if chain and slots_of(problem) and not shared.any():
        x, loss, bound, details["labels"] = by_labels(problem, shape, chain, x, loss, clock, longer)
    else:
        x, loss, bound, details["branches"] = branch(problem, shape, x, loss, clock, longer)
    if not math.isfinite(loss):
        if time.perf_counter() > deadline:
            raise PlacementError("no placement in time", expected="one within the limit", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible placement", expected="room for all operators", fix="add capacity or links"
        )
    bound -= gap * abs(loss) if bound >= loss else 0.0  # what is less than the gap better was not looked for
    seconds = time.perf_counter() - started
    return Answer(problem, x, costs.of(problem, x), bound + costs.constant, seconds, "own", details)


def first_placement(
    problem: Problem, costs: Costs, *, seed: int = 1, trials: int = 4, kicks: int = 40
) -> tuple[Array, float]:
    """A good placement by local search and its loss without the constant; inf if none was found."""
    app, net = problem.application, problem.network
    operators = len(app.operators)
    random = np.array([seed * 0x9E3779B97F4A7C15 % 2**64 or 1], np.uint64)
    into, edge_in = [0], []
    for i in range(operators):
        edge_in += np.flatnonzero(app.ends[:, 1] == i).tolist()
        into.append(len(edge_in))
    order = np.array(app.order, np.int64)
    graph = (costs.node, costs.link, costs.kind, app.ends, costs.response, problem.times_s, net.delay_s)
    more = (order, np.array(into, np.int64), np.array(edge_in, np.int64), app.rate_per_s, net.bandwidth_per_s)
    tight = bool((net.bandwidth_per_s < app.rate_per_s.sum()).any())
    pinned_first = sorted(order.tolist(), key=lambda i: np.isfinite(costs.node[i]).sum() > 1)
    by_size = sorted(pinned_first, key=lambda i: -app.demand[i] if np.isfinite(costs.node[i]).sum() > 1 else -np.inf)
    best, least = np.zeros(operators, np.int64), np.inf
    for trial in range(trials + 8):
        x, free = np.zeros(operators, np.int64), net.capacity.copy()
        sequence = np.array(by_size if trial % 2 else pinned_first, np.int64)
        if not construct(x, free, sequence, 0.1 * trial, random, *graph, app.demand):
            continue
        kept, ready = x.copy(), np.zeros(operators)
        found = climb(x, kept, free, ready, random, kicks, 150_000, *graph, *more, tight, app.demand)
        if found < least:
            best, least = kept.copy(), found
        if trial >= trials - 1 and math.isfinite(least):
            break
    return best, float(least)
