"""Our own search for replicas: equal to exhaustive search and to HiGHS, bounds that hold, and sizes of Table 8.4."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dspkit import placement
from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import Downtime, Limits, Weights, solve
from dspkit.placement.datasets import QUERY_LIMITS, SETTINGS, at_rate, replica_example, taxi_query
from dspkit.placement.metrics import single_objective
from dspkit.placement.replication.branch_and_bound import branch_replicas
from dspkit.placement.replication.completion_bound import Branching
from dspkit.placement.replication.options import options
from dspkit.placement.replication.solve import feasible
from placement.test_elastic import BALANCED, EXAMPLE, LIMITS, RUNS, agree, drawn
from replicas import answer, small
from reproduction.edrp import study as edrp
from reproduction.odrp import study as odrp

AIMS = ("response_s", "log_availability", "cost", "traffic", "usage", "energy")


def refereed(count, seed):
    """As many cases with an optimum, in all neighbourhoods, and what came of all that were drawn."""
    seen = []
    while sum(s.startswith("optimal") for s in seen) < count:
        seen.append(agree(seed, solver="exact", restricted=(False, False, True, "printed")[seed % 4]))
        seed += 1
    return set(seen)


def test_it_equals_exhaustive_search_downtime_included():
    assert {"optimal", "optimal moved", "infeasible"} <= refereed(100, 0)


@pytest.mark.slow
def test_it_equals_exhaustive_search_on_more():
    assert {"optimal", "optimal moved", "infeasible", "relaxed moved"} <= refereed(400, 20_000)


def _replicates(seeds):
    compared = 0
    for seed in seeds:
        problem, aim = small(seed), AIMS[seed % len(AIMS)]
        best, ours = (answer(solve, problem, aim, solver=s) for s in ("brute", "exact"))
        assert (best is None) == (ours is None), seed
        if ours is not None:
            placement.check(problem, ours.deployment, ours.metrics)
            assert ours.loss == pytest.approx(best.loss, rel=1e-7, abs=1e-9), (seed, aim)
            assert ours.proven
            compared += 1
    return compared


def test_no_bound_of_an_option_is_above_the_best_deployment_with_it():
    """By enumeration; a bound that is too high need not change the optimum of a small problem."""
    compared = 0
    for seed in range(60):
        problem = small(seed, most=400)
        aim = ("traffic", "usage", "log_availability")[seed % 3]
        objective = single_objective(aim)._replace(log_availability=-0.5, response=seed % 2)
        try:
            made = Branching(options(problem), objective, Limits(), None)
        except InfeasibleError:
            continue
        made.bound_options()
        least = {}
        for deployment in feasible(made.options):
            loss = objective.of(placement.metrics(problem, deployment))
            for k, i in enumerate(made.order):
                at = (k, *deployment[i].tolist())
                least[at] = min(loss, least.get(at, math.inf))
        for k, (a, b) in enumerate(pairwise(made.first)):
            for row, bound in zip(made.rows[a:b].tolist(), made.bound[a:b], strict=True):
                assert bound <= least.get((k, *row), math.inf) + 1e-9, (seed, k, row)
                compared += (k, *row) in least
    assert compared > 400


def test_odrp_equals_exhaustive_search():
    assert _replicates(range(60)) >= 36


@pytest.mark.slow
def test_odrp_equals_exhaustive_search_on_more():
    assert _replicates(range(1000, 1180)) >= 100


@pytest.mark.slow
def test_odrp_with_all_weights_equals_exhaustive_search_and_highs():
    weights = Weights(0.25, 0.25, 0.25, "traffic", cost=0.25)
    for seed in range(60):
        problem = small(seed)
        if (ranges := answer(placement.find_ranges, problem, "traffic", solver="brute")) is not None:
            best, ours, theirs = (solve(problem, weights, ranges, solver=s) for s in ("brute", "exact", "highs"))
            assert ours.loss == pytest.approx(best.loss, rel=1e-7, abs=1e-9), seed
            assert theirs.loss == pytest.approx(best.loss, rel=1e-6, abs=1e-6), seed


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_equals_highs_on_the_taxi_query(setting):
    query = taxi_query(5, 2, pinned="free")
    running = solve(query, SETTINGS["baseline"], limits=QUERY_LIMITS).deployment
    limits = QUERY_LIMITS._replace(response_s=0.3)
    moved = at_rate(query, 150.0)
    ours, theirs = (
        solve(moved, SETTINGS[setting], limits=limits, running=running, solver=s) for s in ("exact", "highs")
    )
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
    assert ours.proven


@pytest.mark.parametrize("branches", [1, 5, 30, 200])
def test_a_search_that_is_stopped_says_how_far_it_may_be_off(branches):
    for seed in range(40):
        if (made := drawn(seed)) is None:
            continue
        problem, running, weights, limits = made
        best = answer(solve, problem, weights, limits=limits, running=running, solver="brute")
        try:
            found = solve(problem, weights, limits=limits, running=running, branches=branches)
        except (PlacementError, InfeasibleError):
            continue
        if best is not None and found.status == best.status:
            assert found.bound <= best.loss + 1e-9
            assert found.loss >= best.loss - 1e-9


def test_no_time_at_all():
    found = solve(EXAMPLE, BALANCED, limits=LIMITS, running=RUNS, time_limit_s=0)
    assert found.bound <= 0.398125 + 1e-9  # the optimum, by hand
    with pytest.raises(PlacementError, match="in time"):
        solve(EXAMPLE, BALANCED, limits=LIMITS, time_limit_s=0)


def test_a_gap_that_is_allowed_is_kept():
    query = at_rate(taxi_query(8, 2), 150.0)
    best = solve(query, SETTINGS["baseline"], limits=QUERY_LIMITS)
    near = solve(query, SETTINGS["baseline"], limits=QUERY_LIMITS, gap=0.05)
    assert near.loss <= best.loss * 1.05 + 1e-9
    assert near.bound <= best.loss + 1e-9


def test_ties_stay_or_go_as_they_like():
    """Two nodes that nothing tells apart: whoever runs on the second stays there, or may leave it for nothing."""
    network = placement.Network(("a", "b"), 0.0, 5)
    app = placement.Application(("1", "2"), (("1", "2"),), 1, 0.01, 10)
    moves = placement.Problem(app, network, downtime=Downtime())
    running, weights, limits = {"1": "b", "2": "b"}, Weights(0.5, cost=0.5), Limits(1, 10, 10)
    assert set(solve(moves, weights, limits=limits, running=running).actions.values()) == {"none"}
    free = solve(moves, weights, limits=limits, running=running, ties="any")
    assert free.loss == pytest.approx(solve(moves, weights, limits=limits, running=running, solver="brute").loss)
    for wrong in ({"ties": "leave"}, {"branches": -1}, {"branches": float("nan")}, {"branches": "many"}):
        with pytest.raises(PlacementError):
            solve(moves, weights, limits=limits, running=running, **wrong)


def test_demands_that_are_no_whole_numbers():
    """Room in rounded units may only loosen bounds: the same optimum as exhaustive search."""
    for seed in range(25):
        problem = small(seed, most=500)
        app = replace(problem.application, demand=np.random.default_rng(seed).uniform(0.3, 1.7, 4)[: len(
            problem.application.operators)])  # fmt: skip
        uneven = replace(problem, application=app)
        best, ours = (answer(solve, uneven, "response_s", solver=s) for s in ("brute", "exact"))
        assert (best is None) == (ours is None)
        if best is not None:
            assert ours.loss == pytest.approx(best.loss, rel=1e-9)


def test_nothing_can_run():
    problem = replica_example(service_rate_per_s=(50, 9, 50))
    with pytest.raises(InfeasibleError):
        branch_replicas(options(problem), single_objective("cost"), Limits(response_s=1e-3))


@pytest.mark.parametrize(("nodes", "most"), [(8, 2), (12, 3), (8, 4)])
def test_sizes_of_table_8_4_are_proven(nodes, most):
    found = edrp.decide(nodes, most)
    assert found.proven
    placement.check(found.problem, found.deployment)


@pytest.mark.parametrize("traffic", odrp.TRAFFIC)
def test_every_objective_is_proven_at_the_size_of_table_6_2(traffic):
    """Ten operators with up to two replicas on ANSNET's fifteen nodes; the best availability needs the fewest nodes."""
    for ends in odrp.sampled_ends(1):
        problem = odrp.numeric(ends, traffic=traffic)
        for aim, weights in odrp.AIMS.items():
            found = solve(problem, weights, odrp.PRINTED_RANGES, branches=20_000)
            assert found.proven, aim
            placement.check(problem, found.deployment, found.metrics)
            if aim == "A":  # demands of 12 and nodes of 5: the ends' nodes, and the surest of the others
                up = dict(zip(problem.network.nodes, problem.network.availability, strict=True))
                third = max(a for node, a in up.items() if node not in ends)
                assert found.metrics.availability == pytest.approx(up[ends[0]] * up[ends[1]] * third)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "most"), edrp.SIZES)
def test_all_sizes_of_table_8_4_are_proven(nodes, most):
    found = edrp.decide(nodes, most, seed=1, time_limit_s=600)
    assert found.gap < 0.01
    placement.check(found.problem, found.deployment)
