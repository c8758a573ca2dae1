"""ODRP: the integer program equals exhaustive search; metrics equal the certificate; one replica each is ODP."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import placements
import replicas
from dspkit import placement
from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import Application, Network, Problem, Ranges, Replication, Weights, solve
from dspkit.placement.datasets import replica_example
from dspkit.placement.metrics import REPLICA_AIMS as AIMS
from dspkit.placement.metrics import single_objective
from dspkit.placement.replication.options import options
from dspkit.placement.replication.program import replica_program
from dspkit.placement.replication.solve import feasible
from dspkit.placement.solvers.integer_program import Rows, optimum
from replicas import answer, small

RANGES = Ranges((0.05, 0.5), (-0.5, 0.0), (0.0, 5000.0), (3.0, 12.0))


def aim_of(seed):
    """One metric, or a mix."""
    random = np.random.default_rng(seed)
    if seed % 4 == 0:
        return AIMS[seed // 4 % len(AIMS)]
    response, availability, cost, network = random.dirichlet(np.ones(4))
    return Weights(response, availability, network, placement.NETWORK_METRICS[seed % 3], cost=cost)


def agree(seed, **settings):
    problem, aim = small(seed), aim_of(seed)
    referee = answer(solve, problem, aim, RANGES, solver="brute")
    found = answer(solve, problem, aim, RANGES, **settings)
    assert (found is None) == (referee is None), seed
    if found is not None:
        assert found.loss == pytest.approx(referee.loss, rel=1e-6, abs=1e-6), seed
        assert found.bound <= referee.loss + 1e-6, seed
        assert found.proven, seed
        placement.check(problem, found.deployment, found.metrics)
    return found is not None


def test_program_equals_exhaustive_search():
    seen, seed = 0, 0
    while seen < 40:
        seen += agree(seed, solver="highs", thesis=seed % 5 == 0)
        seed += 1
    assert seed > 45  # so that some were infeasible


@pytest.mark.slow
@pytest.mark.parametrize("thesis", [False, True])
def test_program_equals_exhaustive_search_on_more(thesis):
    seen, seed = 0, 5000
    while seen < 100:
        seen += agree(seed, solver="highs", thesis=thesis)
        seed += 1


def test_program_with_potentials_instead_of_paths():
    for seed in range(12):
        if (by_paths := answer(solve, small(seed), "response_s", solver="highs")) is not None:
            program = replica_program(options(small(seed)), single_objective("response_s"), paths=False)
            z, _, _ = optimum(program, time_limit_s=math.inf, gap=0.0)
            found = placement.metrics(small(seed), program.deployment(z))
            assert found.response_s == pytest.approx(by_paths.loss, rel=1e-6)


def test_the_solver_does_not_cut_off_the_optimum():
    """HiGHS 1.14.0's presolve answers 2 here: min 2x + y with 2x + y >= 1, x binary."""
    rows = Rows()
    rows.add([(0, [0], 2.0), (0, [1], 1.0)], 1, 1.0, math.inf)
    program = rows.program([np.array([2.0, 1.0])], [np.array([1.0, math.inf])], 1, 0.0)
    z, bound, _ = optimum(program, time_limit_s=math.inf, gap=0.0)
    assert program.cost @ z == pytest.approx(1.0)
    assert bound == pytest.approx(1.0)


def test_metrics_equal_the_certificate():
    checked = 0
    for seed in range(60):
        problem = small(seed)
        found = answer(options, problem)
        for counts in itertools.islice(feasible(found), 0, 100, 6) if found else ():
            placement.check(problem, counts, placement.metrics(problem, counts))
            checked += 1
    assert checked > 100


def test_the_certificate_finds_a_wrong_number():
    problem, where = replica_example(), {"1": "a", "2": "b", "3": "c"}
    wrong = placement.metrics(problem, where)._replace(cost=3.41)
    with pytest.raises(PlacementError, match="do not trust"):
        placement.check(problem, where, wrong)


def test_one_replica_each_is_chapter_four_but_for_availability():
    for seed in range(25):
        base = placements.small(seed)
        problem = replace(base, replication=Replication())
        random = np.random.default_rng(seed)
        where = base.named(random.integers(0, len(base.network.nodes), len(base.application.operators)))
        ours, theirs = placement.metrics(problem, where), placement.metrics(base, where)
        for name in ("response_s", "traffic", "usage", "energy"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
        assert ours.log_availability >= theirs.log_availability - 1e-12
        for aim in ("response_s", "usage"):
            referee = answer(placement.solve, base, aim, solver="brute")
            found = answer(solve, problem, aim)
            assert (found is None) == (referee is None), seed
            assert found is None or found.loss == pytest.approx(referee.loss, rel=1e-6, abs=1e-7), seed


def test_replication_saves_no_traffic_where_none_is_lost():
    """Traffic is multilinear in the shares of nodes, so one replica each is as good; the printed sums lose some."""
    lower = 0
    for seed in range(10):
        base = replace(small(seed), replication=None)
        net = base.network
        wide = Problem(base.application, Network(net.nodes, net.delay_s, net.capacity), base.candidates)
        for aim in placement.NETWORK_METRICS:
            once, often = (answer(solve, replace(wide, replication=Replication(k)), aim) for k in (1, 2))
            if once is not None:
                assert often.loss == pytest.approx(once.loss, rel=1e-6, abs=1e-6)
                printed = solve(replace(wide, replication=Replication(2, traffic="support")), aim)
                lower += printed.loss < once.loss * (1 - 1e-6)
    assert lower


def test_ranges_hold_the_four_optima():
    problem = replica_example()
    found, referee = (placement.find_ranges(problem, solver=s) for s in ("highs", "brute"))
    for ours, theirs, best in zip(found, referee, (0, 1, 0, 0), strict=True):
        assert ours[best] == pytest.approx(theirs[best])
        assert ours[0] <= ours[1]
    assert found.response_s[0] == pytest.approx(3.215 / 18)


def test_latency_of_any_kind():
    problem = replica_example(latency_s={"2": lambda rate: 0.001 * rate**2})
    found = placement.check(problem, {"1": "a", "2": ("b", "b"), "3": "c"})
    assert found.response_s == pytest.approx(0.025 + 0.010 + 0.025 + 0.020 + 0.0125)
    faster = replica_example(scale_service_rate=True)
    found = placement.check(faster, {"1": "a", "2": "b", "3": "c"})
    assert found.response_s == pytest.approx(0.025 + 0.010 + 0.250 + 0.020 + 1 / 90)
    assert math.isinf(placement.metrics(replica_example(service_rate_per_s=10), [[1, 0, 0]] * 3)[0])


def test_sources():
    app = Application(("s", "t", "u"), (("s", "t"), ("s", "u")), 1, 0, (30, 20))
    base = Problem(app, Network(("n",), 0.0, 5))
    assert replace(base, replication=Replication()).load_per_s.tolist() == [30, 30, 20]
    assert replace(base, replication=Replication(source_rate_per_s={"s": 45})).load_per_s.tolist() == [45, 30, 20]
    alone = Problem(
        Application(("x",)), base.network, replication=Replication(service_rate_per_s=4, source_rate_per_s={"x": 2})
    )
    assert solve(alone).loss == pytest.approx(0.5)  # a path of one operator


def test_what_cannot_run_is_named():
    with pytest.raises(InfeasibleError, match="keep up for operator '2' with 10 records/s"):
        solve(replica_example(service_rate_per_s=(50, 4, 50)))
    small_nodes = Problem(Application(("1", "2")), Network(("a", "c"), 0.01, (0.5, 0.9)))
    with pytest.raises(InfeasibleError, match="room for operator '1'"):
        solve(replace(small_nodes, replication=Replication()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"max_replicas": 0}, "max_replicas of '1' = 0.0; expected >= 1"),
        ({"max_replicas": 1.5}, "max_replicas with a fraction"),
        ({"max_replicas": math.nan}, "max_replicas of '1' = nan"),
        ({"max_replicas": (1, 2)}, "max_replicas of shape (2,); expected 3 numbers"),
        ({"service_rate_per_s": -1}, "service_rate_per_s of '1' = -1.0; expected > 0"),
        ({"service_rate_per_s": "fast"}, "service_rate_per_s = 'fast'; expected numbers"),
        ({"price": math.inf}, "price of '1' = inf; expected >= 0 and finite"),
        ({"link_price": -1}, "link_price of '0 to 1' = -1.0; expected >= 0"),
        ({"bytes_per_record": math.nan}, "bytes_per_record of ('1', '2') = nan"),
        ({"traffic": "none"}, "traffic 'none'; expected one of"),
        ({"source_rate_per_s": {"2": 1}}, "source_rate_per_s of '2'; expected a source"),
        ({"source_rate_per_s": {"9": 1}}, "source_rate_per_s of '9'; expected an operator"),
        ({"source_rate_per_s": {"1": -1}}, "source_rate_per_s of '1' = -1.0; expected >= 0"),
        ({"latency_factor": math.nan}, "latency_factor of '1' = nan"),
        ({"latency_s": {"9": float}}, "latency_s of '9'; expected an operator"),
    ],
)
def test_a_value_of_replication_outside_its_range_is_named(change, told):
    with pytest.raises(PlacementError, match=re.escape(told)):
        replica_example(**change)


@pytest.mark.parametrize("latency", [lambda rate: -1, lambda rate: math.nan, lambda rate: 1 / 0, lambda rate: "x"])
def test_bad_latency(latency):
    with pytest.raises(PlacementError, match="latency_s of '2'"):
        solve(replica_example(latency_s={"2": latency}))


@pytest.mark.parametrize(
    ("deployment", "told"),
    [
        ({}, "'1' unknown or missing; expected nodes for each operator"),
        ({"1": "a", "2": "b"}, "'3' unknown or missing; expected nodes for each operator"),
        ({"1": "a", "2": (), "3": "c"}, "no node for '2'"),
        ({"1": "a", "2": "x", "3": "c"}, "'2' on 'x'; expected a node of the network"),
        ({"1": "a", "2": 5, "3": "c"}, "'2' on 5; expected a node of the network"),
        ({"1": "a", "2": [["b"]], "3": "c"}, "'2' on ['b']; expected a node of the network"),
        *(
            (counts, "expected 3 rows of 3 counts, at least one replica each")
            for counts in (
                None, 3, [[1, 0, 0]] * 2, *([[1, 0, 0], row, [0, 0, 1]] for row in
                ([0, 0, 0], [0.5, 0.5, 0], [-1, 2, 0], [math.nan, 1, 0])),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_deployment_of_the_problem_is_refused_with_what_is_wrong(deployment, told):
    with pytest.raises(PlacementError, match=re.escape(told)):
        placement.metrics(replica_example(), deployment)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"solver": "none"}, "solver 'none'; expected one of"),
        ({"time_limit_s": -1}, "time_limit_s=-1; expected a number from 0 up"),
        ({"gap": math.nan}, "gap=nan"),
        ({"weights": "speed"}, "metric 'speed'; expected one of"),
        ({"problem": 3}, "problem 3; expected a Problem"),
        ({"weights": None}, "weights None; expected Weights"),
        ({"weights": Weights(downtime=0.5)}, "weight of downtime 0.5 without its limit"),
        ({"progress": print}, "progress with replication"),
        ({"limits": 3}, "limits 3; expected Limits"),
        ({"running": {"1": "a"}}, "a problem without downtime"),
        ({"ranges": 3, "weights": Weights()}, "ranges 3; expected Ranges"),
    ],
)
def test_an_argument_of_solve_outside_its_range_is_named(settings, told):
    with pytest.raises(PlacementError, match=re.escape(told)):
        solve(**{"problem": replica_example(), **settings})


def test_too_many_pairs_for_a_program():
    with pytest.raises(PlacementError, match="pairs of multisets"):
        solve(replicas.taxi(16, 4), solver="highs")


def test_too_many_deployments_for_exhaustive_search():
    with pytest.raises(PlacementError, match="another solver"):
        solve(replicas.taxi(8, 2), solver="brute")
