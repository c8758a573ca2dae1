"""The one door to placement: three kinds of problem, one set of weights, solvers and statuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placements
import replicas
from dspkit import placement
from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import Downtime, Limits, Metrics, Network, Problem, Ranges, Replication, Weights, solve
from dspkit.placement.datasets import QUERY_LIMITS, SETTINGS, at_rate, replica_example, taxi_query
from dspkit.placement.generators import sequential_application
from replicas import answer

RANGES = Ranges((0.01, 0.1), (-1.0, -0.01), (10.0, 500.0), (3.0, 12.0))
RUNS = {"1": "a", "2": "a", "3": "c"}
MOVES = replace(replica_example(), downtime=Downtime(state_bytes=(0, 1.25e6, 0)))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000), aim=st.sampled_from(["response_s", "traffic", "usage", "energy", "both"]))
def test_odp_is_odrp_with_one_replica(seed, aim):
    """Availability apart, which chapter 4 counts by operator and chapter 6 by node."""
    problem = placements.small(seed)
    weights, ranges = (Weights(0.5, network=0.5), RANGES) if aim == "both" else (aim, None)
    once = answer(solve, problem, weights, ranges)
    found = answer(solve, replace(problem, replication=Replication()), weights, ranges)
    assert (found is None) == (once is None)
    if once is not None:
        assert found.loss == pytest.approx(once.loss, rel=1e-6, abs=1e-9)
        assert found.status == once.status == "optimal"
        assert set(found.replicas.values()) == {1}
        # Each one's places are worth the same in the other model.
        for name in ("response_s", "traffic", "usage", "energy"):
            theirs = placement.metrics(problem, found.placement)
            assert getattr(theirs, name) == pytest.approx(getattr(found.metrics, name), rel=1e-9, abs=1e-12)
        placement.check(found.problem, once.placement)


def drawn(kind, seed):
    """A random problem of a kind, and the settings of `solve` that go with it."""
    if kind == "placement":
        return placements.small(seed), {"weights": Weights(0.4, 0.3, 0.3), "ranges": RANGES}
    problem = replicas.small(seed, most=500)
    if kind == "replicas":
        return problem, {"weights": Weights(0.25, 0.25, 0.25, "traffic", cost=0.25), "ranges": RANGES}
    problem = replace(problem, downtime=Downtime(state_bytes=1e6, model=("general", "storm")[seed % 2]))
    try:
        running = solve(problem, "cost", solver="brute").nodes
    except InfeasibleError:
        running = None
    return problem, {
        "weights": Weights(0.3, cost=0.3, downtime=0.4),
        "limits": Limits(0.5, 12.0, 10.0),
        "running": running,
        "restricted": seed % 3 == 0,
    }


@pytest.mark.parametrize("solver", ["exact", "highs"])
@pytest.mark.parametrize("kind", ["placement", "replicas", "elastic"])
def test_every_kind_equals_exhaustive_search(kind, solver):
    solved = 0
    for seed in range(25):
        problem, given = drawn(kind, seed)
        best, found = (answer(solve, problem, solver=s, **given) for s in ("brute", solver))
        assert (best is None) == (found is None), seed
        if best is not None:
            assert found.status == best.status, seed
            assert found.loss == pytest.approx(best.loss, rel=1e-6, abs=1e-6), seed
            placement.check(problem, found.where, found.metrics)
            solved += found.status == "optimal"
    assert solved >= 8


def test_the_loss_of_a_solution_is_that_of_its_metrics():
    for kind in ("placement", "replicas", "elastic"):
        for seed in range(8):
            problem, given = drawn(kind, seed)
            if (found := answer(solve, problem, **given)) is None:
                continue
            ranges = given.get("ranges") or given["limits"]
            again = placement.loss(found.metrics, given["weights"], ranges, found.downtime_s)
            assert again == pytest.approx(found.loss, rel=1e-9, abs=1e-12)


def test_statuses_of_all_solvers_and_heuristics_are_of_one_list():
    problem = placement.scenario("sequential", 16, seed=1, operators=11)
    weights, ranges = Weights(0.5, 0.25, 0.25), placement.find_ranges(problem)
    seen = {name: h(problem, weights, ranges).status for name, h in placement.HEURISTICS.items()}
    assert seen.pop("time_limited") == "optimal"
    assert set(seen.values()) == {"feasible"}
    hurried = solve(placement.scenario("replicated", 36), weights, Ranges((0, 1), (-1, 0), (0, 100)), time_limit_s=0.0)
    assert hurried.status == "user_limit"
    assert hurried.gap > 0
    weighted, limits = Weights(0.3, cost=0.3, downtime=0.4), Limits(0.4, 6, 4)
    assert solve(MOVES, weighted, limits=limits, running=RUNS).status == "optimal"
    query = at_rate(taxi_query(12, 2, pinned="free"), 220.0)
    stopped = solve(query, SETTINGS["baseline"], limits=QUERY_LIMITS._replace(response_s=1.0), branches=100)
    assert (stopped.status, stopped.proven) == ("user_limit", False)
    assert solve(MOVES, weighted, limits=limits._replace(response_s=0.1), running=RUNS).status == "infeasible"
    slow = replace(MOVES, replication=replica_example(service_rate_per_s=(50, 9, 50)).replication)
    assert solve(slow, weighted, limits=limits._replace(response_s=0.1), running=RUNS).status == "relaxed"
    assert set(placement.STATUSES) == {"optimal", "user_limit", "feasible", "infeasible", "relaxed"}


def test_a_first_deployment_keeps_limits_whatever_the_objective():
    cheapest = solve(replica_example(), "cost")
    quick = solve(replica_example(), "cost", limits=Limits(response_s=0.18))
    assert cheapest.metrics.response_s > 0.18 >= quick.metrics.response_s
    assert quick.loss > cheapest.loss
    ranges = placement.find_ranges(replica_example())
    by_ranges = solve(replica_example(), Weights(0, cost=1), ranges, limits=Limits(response_s=0.18))
    assert by_ranges.nodes == quick.nodes


def test_weights_of_ranges_and_of_downtime_together():
    ranges = placement.find_ranges(MOVES)
    given = {"ranges": ranges, "limits": Limits(downtime_s=4), "running": RUNS}
    best, found = (solve(MOVES, Weights(0.5, cost=0.3, downtime=0.2), solver=s, **given) for s in ("brute", "exact"))
    assert found.loss == pytest.approx(best.loss)
    free = solve(MOVES, Weights(0.5, cost=0.3), ranges, limits=Limits(downtime_s=4), running=RUNS)
    assert found.loss >= free.loss - 1e-12


def test_one_solution_reads_the_same_for_every_kind():
    once = solve(placement.example("A"))
    assert once.nodes == {o: (n,) for o, n in once.named.items()} == {"s": ("0",), "m": ("1",), "t": ("2",)}
    assert once.deployment.tolist() == np.eye(3, dtype=int).tolist()
    assert (once.downtime_s, set(once.actions.values()), once.metrics.cost) == (0.0, {"deploy"}, 0.0)
    twice = solve(replica_example(), "response_s")
    with pytest.raises(PlacementError, match="several replicas"):
        _ = twice.named
    cheap = solve(replica_example(), "cost")
    assert {o: (n,) for o, n in cheap.named.items()} == cheap.nodes
    assert cheap.problem.deploy(cheap.placement).tolist() == cheap.deployment.tolist()


def test_a_problem_with_downtime_is_one_with_replication():
    problem = Problem(sequential_application(2), Network(("u", "v"), 0.01, 2), downtime=Downtime())
    assert problem.replication is not None
    assert problem.downtime_s({"0": "u", "1": "u"}, (0, 0)) == 0
    assert problem.downtime_s({"0": "u", "1": "u"}, (0, 1)) > 0
    with pytest.raises(PlacementError, match="without downtime"):
        replica_example().downtime_s(RUNS, RUNS)


def test_metrics_without_replication_cost_nothing():
    found = placement.metrics(placement.example("A"), (0, 1, 2))
    assert found == Metrics(*found[:5], cost=0.0)
    assert placement.utility(found, Weights(1, cost=0.5), RANGES._replace(cost=(0.0, 0.0))) == pytest.approx(
        0.5 + placement.utility(found, Weights(1), RANGES)
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limits": Limits(1, 1, 1)}, "without replication"), ({"running": {"s": "0"}}, "without replication"),
        ({"branches": 5}, "without replication"), ({"thesis": True}, "without replication"),
        ({"restricted": True}, "without replication"), ({"weights": Weights(0, cost=1)}, "cost or downtime alone"),
        ({"problem": replica_example(), "progress": print}, "progress"),
        ({"problem": replica_example(), "running": RUNS}, "without downtime"),
        ({"problem": MOVES, "weights": Weights(0.5, downtime=0.5)}, "without its limit"),
        ({"problem": MOVES, "weights": Weights(0.5, network=0.5), "limits": Limits(1, 1, 1)}, "ranges"),
        ({"problem": MOVES, "limits": Limits(math.nan)}, "above 0"),
        ({"problem": "A"}, "a Problem"), ({"solver": "own"}, "exact, highs, brute"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(given, said):
    with pytest.raises(PlacementError, match=said):
        solve(**{"problem": placement.example("A"), **given})


@pytest.mark.parametrize("part", [{"replication": 3}, {"downtime": 0.5}])
def test_parts_of_another_type(part):
    with pytest.raises(PlacementError, match="expected a"):
        replace(placement.example("A"), **part)


def test_heuristics_refuse_replicas():
    with pytest.raises(PlacementError, match="with replication"):
        placement.heuristic("greedy")(replica_example(), Weights(), RANGES)
