"""ODRP: the integer program equals exhaustive search; metrics equal the certificate; one replica each is ODP."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import placements
import replicas
from dspkit import placement
from dspkit.errors import InfeasibleError, PlacementError
from dspkit.placement import Application, Network, Problem, ReplicaProblem, ReplicaRanges, ReplicaWeights, replicate
from dspkit.placement.highs import optimum
from dspkit.placement.linear import Rows
from dspkit.placement.replica_metrics import AIMS, single_objective
from dspkit.placement.replica_options import options
from dspkit.placement.replica_program import replica_program
from dspkit.placement.replicate import feasible
from replicas import answer, small

RANGES = ReplicaRanges((0.05, 0.5), (-0.5, 0.0), (3.0, 12.0), (0.0, 5000.0))


def aim_of(seed):
    """One metric, or a mix."""
    random = np.random.default_rng(seed)
    if seed % 4 == 0:
        return AIMS[seed // 4 % len(AIMS)]
    return ReplicaWeights(*random.dirichlet(np.ones(4)), metric=placement.NETWORK_METRICS[seed % 3])


def agree(seed, **settings):
    problem, aim = small(seed), aim_of(seed)
    referee = answer(replicate, problem, aim, RANGES, solver="brute")
    found = answer(replicate, problem, aim, RANGES, **settings)
    assert (found is None) == (referee is None), seed
    if found is not None:
        assert found.loss == pytest.approx(referee.loss, rel=1e-6, abs=1e-6), seed
        assert found.bound <= referee.loss + 1e-6, seed
        assert found.proven, seed
        placement.replica_check(problem, found.deployment, found.metrics)
    return found is not None


def test_program_equals_exhaustive_search():
    seen, seed = 0, 0
    while seen < 40:
        seen += agree(seed, thesis=seed % 5 == 0)
        seed += 1
    assert seed > 45  # so that some were infeasible


@pytest.mark.slow
@pytest.mark.parametrize("thesis", [False, True])
def test_program_equals_exhaustive_search_on_more(thesis):
    seen, seed = 0, 5000
    while seen < 100:
        seen += agree(seed, thesis=thesis)
        seed += 1


def test_program_with_potentials_instead_of_paths():
    for seed in range(12):
        if (by_paths := answer(replicate, small(seed), "response_s")) is not None:
            program = replica_program(options(small(seed)), single_objective("response_s"), paths=False)
            z, _, _ = optimum(program, time_limit_s=math.inf, gap=0.0)
            found = placement.replica_metrics(small(seed), program.deployment(z))
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
            placement.replica_check(problem, counts, placement.replica_metrics(problem, counts))
            checked += 1
    assert checked > 100


def test_the_certificate_finds_a_wrong_number():
    problem, where = placement.replica_example(), {"1": "a", "2": "b", "3": "c"}
    wrong = placement.replica_metrics(problem, where)._replace(cost=3.41)
    with pytest.raises(PlacementError, match="do not trust"):
        placement.replica_check(problem, where, wrong)


def test_one_replica_each_is_chapter_four_but_for_availability():
    for seed in range(25):
        base = placements.small(seed)
        problem = ReplicaProblem(base)
        random = np.random.default_rng(seed)
        where = base.named(random.integers(0, len(base.network.nodes), len(base.application.operators)))
        ours, theirs = placement.replica_metrics(problem, where), placement.metrics(base, where)
        for name in ("response_s", "traffic", "usage", "energy"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
        assert ours.log_availability >= theirs.log_availability - 1e-12
        for aim in ("response_s", "usage"):
            referee = answer(placement.solve, base, aim, solver="brute")
            found = answer(replicate, problem, aim)
            assert (found is None) == (referee is None), seed
            assert found is None or found.loss == pytest.approx(referee.loss, rel=1e-6, abs=1e-7), seed


def test_replication_saves_no_traffic_where_none_is_lost():
    """Traffic is multilinear in the shares of nodes, so one replica each is as good; the printed sums lose some."""
    lower = 0
    for seed in range(10):
        base = small(seed).problem
        net = base.network
        wide = Problem(base.application, Network(net.nodes, net.delay_s, net.capacity), base.candidates)
        for aim in placement.NETWORK_METRICS:
            once, often = (answer(replicate, ReplicaProblem(wide, k), aim) for k in (1, 2))
            if once is not None:
                assert often.loss == pytest.approx(once.loss, rel=1e-6, abs=1e-6)
                printed = replicate(ReplicaProblem(wide, 2, traffic="support"), aim)
                lower += printed.loss < once.loss * (1 - 1e-6)
    assert lower


def test_ranges_hold_the_four_optima():
    problem = placement.replica_example()
    found, referee = (placement.replica_ranges(problem, solver=s) for s in ("highs", "brute"))
    for ours, theirs, best in zip(found, referee, (0, 1, 0, 0), strict=True):
        assert ours[best] == pytest.approx(theirs[best])
        assert ours[0] <= ours[1]
    assert found.response_s[0] == pytest.approx(3.215 / 18)


def test_latency_of_any_kind():
    problem = placement.replica_example(latency_s={"2": lambda rate: 0.001 * rate**2})
    found = placement.replica_check(problem, {"1": "a", "2": ("b", "b"), "3": "c"})
    assert found.response_s == pytest.approx(0.025 + 0.010 + 0.025 + 0.020 + 0.0125)
    faster = placement.replica_example(scale_service_rate=True)
    found = placement.replica_check(faster, {"1": "a", "2": "b", "3": "c"})
    assert found.response_s == pytest.approx(0.025 + 0.010 + 0.250 + 0.020 + 1 / 90)
    assert math.isinf(placement.replica_metrics(placement.replica_example(service_rate_per_s=10), [[1, 0, 0]] * 3)[0])


def test_sources():
    app = Application(("s", "t", "u"), (("s", "t"), ("s", "u")), 1, 0, (30, 20))
    base = Problem(app, Network(("n",), 0.0, 5))
    assert ReplicaProblem(base).load_per_s.tolist() == [30, 30, 20]
    assert ReplicaProblem(base, source_rate_per_s={"s": 45}).load_per_s.tolist() == [45, 30, 20]
    alone = ReplicaProblem(Problem(Application(("x",)), base.network), service_rate_per_s=4, source_rate_per_s={"x": 2})
    assert replicate(alone).loss == pytest.approx(0.5)  # a path of one operator


def test_what_cannot_run_is_named():
    with pytest.raises(InfeasibleError, match="keep up for operator '2' with 10 records/s"):
        replicate(placement.replica_example(service_rate_per_s=(50, 4, 50)))
    small_nodes = Problem(Application(("1", "2")), Network(("a", "c"), 0.01, (0.5, 0.9)))
    with pytest.raises(InfeasibleError, match="room for operator '1'"):
        replicate(ReplicaProblem(small_nodes))


@pytest.mark.parametrize(
    "change",
    [
        {"most": 0}, {"most": 1.5}, {"most": math.nan}, {"most": (1, 2)}, {"service_rate_per_s": -1},
        {"service_rate_per_s": "fast"}, {"price": math.inf}, {"link_price": -1}, {"bytes_per_record": math.nan},
        {"traffic": "none"}, {"source_rate_per_s": {"2": 1}}, {"source_rate_per_s": {"9": 1}},
        {"source_rate_per_s": {"1": -1}}, {"latency_factor": math.nan}, {"problem": None},
        {"latency_s": {"9": float}},
    ],
)  # fmt: skip
def test_bad_problems(change):
    with pytest.raises(PlacementError):
        replace(placement.replica_example(), **change)


@pytest.mark.parametrize("latency", [lambda rate: -1, lambda rate: math.nan, lambda rate: 1 / 0, lambda rate: "x"])
def test_bad_latency(latency):
    with pytest.raises(PlacementError, match="latency_s of '2'"):
        replicate(placement.replica_example(latency_s={"2": latency}))


@pytest.mark.parametrize(
    "deployment",
    [
        {}, None, 3, {"1": "a", "2": (), "3": "c"}, {"1": "a", "2": "x", "3": "c"}, {"1": "a", "2": "b"},
        [[1, 0, 0]] * 2, [[1, 0, 0], [0, 0, 0], [0, 0, 1]], [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]],
        [[1, 0, 0], [-1, 2, 0], [0, 0, 1]], [[1, 0, 0], [math.nan, 1, 0], [0, 0, 1]],
        {"1": "a", "2": 5, "3": "c"}, {"1": "a", "2": [["b"]], "3": "c"},
    ],
)  # fmt: skip
def test_bad_deployments(deployment):
    with pytest.raises(PlacementError):
        placement.replica_metrics(placement.replica_example(), deployment)


@pytest.mark.parametrize(
    "settings",
    [{"solver": "none"}, {"time_limit_s": -1}, {"gap": math.nan}, {"weights": "speed"}, {"problem": 3}],
)
def test_bad_calls(settings):
    with pytest.raises(PlacementError):
        replicate(**{"problem": placement.replica_example(), **settings})


def test_too_many_pairs_for_a_program():
    with pytest.raises(PlacementError, match="pairs of multisets"):
        replicate(replicas.taxi(16, 4))


def test_too_many_deployments_for_exhaustive_search():
    with pytest.raises(PlacementError, match="another solver"):
        replicate(replicas.taxi(8, 2), solver="brute")
