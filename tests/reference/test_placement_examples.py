"""The worked examples of the placement cards: every printed metric, utility, infeasibility and count."""

import math
from itertools import product

import numpy as np
import pytest

from dspkit import placement
from dspkit.core import PlacementError
from dspkit.placement import Application, Network, Problem, Ranges, Weights
from dspkit.placement.generators import diamond_application, replicated_application, sequential_application

A, FREE, B = (placement.example(name) for name in ("A", "A free", "B"))


def feasible(problem):
    nodes = range(len(problem.network.nodes))
    found = product(nodes, repeat=len(problem.application.operators))
    return [x for x in found if not placement.violations(problem, x)]


def ranges(problem, metric):
    """The least and greatest of all feasible placements."""
    all_of = [placement.check(problem, x) for x in feasible(problem)]
    columns = zip(*((m.response_s, m.log_availability, m.network(metric)) for m in all_of), strict=True)
    return Ranges(*((min(c), max(c)) for c in columns))


TABLE_A = {  # m on: R ms, A, log A, T, N (ms), EE (ms^2)
    0: (56, 0.979120, -0.021101, 90, 1620, 29160),
    1: (48, 0.939559, -0.062344, 190, 1900, 19000),
    2: (52, 0.988021, -0.012051, 100, 1800, 32400),
}


@pytest.mark.parametrize("m", TABLE_A)
@pytest.mark.parametrize("of", [placement.metrics, placement.check])
def test_table_of_instance_a(m, of):
    found = of(A, (0, m, 2))
    ours = (found.response_s * 1e3, found.availability, found.log_availability)
    ours += (found.traffic, found.usage * 1e3, found.energy * 1e6)
    assert ours == pytest.approx(TABLE_A[m], abs=6e-7)


@pytest.mark.parametrize(
    ("weights", "metric", "printed"),
    [
        ((1, 0, 0), "usage", (0, 1, 0.5)),
        ((0, 1, 0), "usage", (0.820057, 0, 1)),
        ((0, 0, 1), "traffic", (1, 0, 0.9)),
        ((0, 0, 1), "usage", (1, 0, 0.357143)),
        ((0, 0, 1), "energy", (0.241791, 1, 0)),
        ((1 / 3,) * 3, "traffic", (0.606686, 0.333333, 0.8)),
        ((1 / 3,) * 3, "usage", (0.606686, 0.333333, 0.619048)),
        ((1 / 3,) * 3, "energy", (0.353949, 0.666667, 0.5)),
    ],
)
def test_utilities_of_instance_a(weights, metric, printed):
    w, r = Weights(*weights, metric), ranges(A, metric)
    for m in range(3):
        found = placement.metrics(A, (0, m, 2))
        assert placement.utility(found, w, r) == pytest.approx(printed[m], abs=6e-7)
        assert placement.loss(found, w, r) == pytest.approx(1 - printed[m], abs=6e-7)


def test_instance_a_with_bandwidth_and_less_capacity():
    tight = np.full((3, 3), math.inf)
    tight[0, 2] = 95
    net = A.network
    narrow = Problem(
        A.application, Network(net.nodes, net.delay_s, net.capacity, net.speed, bandwidth_per_s=tight), A.candidates
    )
    assert feasible(narrow) == [(0, 0, 2), (0, 1, 2)]
    small = Problem(A.application, Network(net.nodes, net.delay_s, (1, 1, 2), net.speed), A.candidates)
    assert feasible(small) == [(0, 1, 2), (0, 2, 2)]
    with pytest.raises(PlacementError, match="carries 95 records/s, asked for 100"):
        placement.check(narrow, (0, 2, 2))


def test_instance_a_free():
    assert len(feasible(FREE)) == 18
    r = ranges(FREE, "traffic")
    assert r.response_s == pytest.approx((0.039, 0.072))
    assert np.exp(r.log_availability) == pytest.approx((0.931095, 0.988021), abs=6e-7)
    assert r.network == pytest.approx((90, 190))
    assert ranges(FREE, "usage").network == pytest.approx((0.9, 3.42))
    assert ranges(FREE, "energy").network == pytest.approx((9e-3, 61560e-6))

    def best(weights, metric="usage"):
        worth = {
            x: placement.utility(placement.metrics(FREE, x), weights, ranges(FREE, metric)) for x in feasible(FREE)
        }
        top = max(worth.values())
        return {x for x, f in worth.items() if f > top - 1e-9}, worth

    assert best(Weights())[0] == {(1, 2, 2), (2, 2, 1)}
    assert best(Weights(0, 0, 1, "traffic"), "traffic")[0] == {(0, 0, 1), (0, 0, 2), (2, 2, 0), (2, 2, 1)}
    for metric in ("usage", "energy"):
        assert best(Weights(0, 0, 1, metric), metric)[0] == {(0, 0, 1), (2, 2, 1)}
    assert best(Weights(0, 1, 0))[0] == {x for x in feasible(FREE) if sorted(x) == [0, 2, 2]}
    _, worth = best(Weights(1 / 3, 1 / 3, 1 / 3))
    ranked = sorted(worth.items(), key=lambda item: -item[1])[:3]
    assert [x for x, _ in ranked] == [(2, 2, 0), (2, 2, 1), (1, 2, 2)]
    assert [f for _, f in ranked] == pytest.approx([0.773449, 0.768334, 0.755107], abs=6e-7)
    tied, worth = best(Weights(0.5, 0.5, 0))
    assert tied == {(2, 2, 0), (0, 2, 2)}
    assert worth[2, 2, 0] == pytest.approx(0.803030, abs=6e-7)


def test_instance_b():
    printed = {
        (1, 2): (48, 0.948700, 6000, 100000), (2, 1): (49, 0.948700, 6000, 100000),
        (1, 3): (70, 0.958380, 8000, 200000), (3, 1): (72, 0.958380, 8000, 200000),
        (2, 3): (70, 0.968261, 10000, 260000), (3, 2): (72, 0.968261, 10000, 260000),
        (3, 3): (72, 0.978141, 12000, 360000),
    }  # fmt: skip
    assert [x[1:3] for x in feasible(B)] == sorted(printed)
    for (a, b), row in printed.items():
        found = placement.check(B, (0, a, b, 0))
        ours = (found.response_s * 1e3, found.availability, found.usage * 1e3, found.energy * 1e6)
        assert ours == pytest.approx(row, abs=6e-7)
        assert found.traffic == 400
    r = ranges(B, "usage")
    thirds = Weights(1 / 3, 1 / 3, 1 / 3)
    worth = {x: placement.utility(placement.metrics(B, (0, *x, 0)), thirds, r) for x in printed}
    assert worth[1, 2] == pytest.approx(0.666667, abs=6e-7)
    assert worth[2, 1] == pytest.approx(0.652778, abs=6e-7)
    flat = ranges(B, "traffic")  # all placements have the same traffic: the term is at its best
    assert placement.utility(placement.metrics(B, (0, 1, 2, 0)), Weights(0, 0, 1, "traffic"), flat) == 1


def test_availability_of_the_thesis():
    app = sequential_application(12)
    net = Network(tuple("abc"), 0.01, 8, 1, (0.99, 1, 1))
    assert placement.metrics(Problem(app, net), [0] * 8 + [1] * 4).availability == pytest.approx(0.922745, abs=6e-7)


def test_counts_of_the_thesis():
    for shape, links in ((sequential_application, 49), (diamond_application, 96)):
        assert len(shape(50).streams) * 20 * 20 == {49: 19_600, 96: 38_400}[links]
    assert len(sequential_application(20).streams) * 100**2 == 190_000
    assert len(diamond_application(20).streams) * 100**2 == 360_000
    app = replicated_application(6)
    assert (len(app.operators), len(app.streams), app.path_count) == (20, 90, 72)


@pytest.mark.parametrize(("demand", "capacity", "possible"), [((3, 1, 1, 2, 2, 1), 5, True), ((3, 3, 2), 4, False)])
def test_partition(demand, capacity, possible):
    app = Application(tuple(map(str, range(len(demand)))), (), demand)
    assert bool(feasible(Problem(app, Network(("u", "v"), 0.0, capacity)))) == possible


@pytest.mark.slow
def test_every_cell_of_the_resolution_table_is_proven():
    """Three of these CPLEX could not prove in a day, at 36 and 100 nodes."""
    from reproduction.odp.study import resolution_table

    table = resolution_table(seeds=(0,), sizes=(36,))
    assert len(table) == 12
    assert set(table.proven) == {"1/1"}
    assert table.stopped.sum() == 1
