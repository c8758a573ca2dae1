"""The heuristics card's worked examples H1 to H8, digit by digit."""

import math
from itertools import product

import numpy as np
import pytest

from dspkit import placement
from dspkit.core import InfeasibleError
from dspkit.placement import Application, Network, Problem, Ranges, Weights
from dspkit.placement.generators import waxman_network
from dspkit.placement.heuristics.decomposition import build, centre, merge_tree, pruned, relaxed
from dspkit.placement.heuristics.greedy import greedy, ordered_nodes, penalties, symmetric
from dspkit.placement.heuristics.local_search import local_search, tabu_search

W = {"r": Weights(1, 0, 0), "a": Weights(0, 1, 0), "z": Weights(0, 0, 1), "all": Weights(1 / 3, 1 / 3, 1 / 3)}
D = {(0, 1): 10, (0, 2): 20, (0, 3): 30, (1, 2): 12, (1, 3): 25, (2, 3): 8}


def square(ms, n=4):
    return [[ms.get((min(u, v), max(u, v)), 0) / 1000 for v in range(n)] for u in range(n)]


NET = Network(("0", "1", "2", "3"), square(D), (2, 1, 2, 2), 1, (0.999, 0.97, 0.98, 0.99))
CHAIN = Application(("s", "a", "b", "t"), (("s", "a"), ("a", "b"), ("b", "t")), 1, 0.003, 100)
H2 = Problem(CHAIN, NET, {"s": "0", "t": "0"})
POINTS = ((7, 4), (4, 7), (6, 2), (1, 6))
H4 = Problem(
    Application(tuple("sabct"), tuple(zip("sabc", "abct", strict=True)), 1, 0.003, (30, 20, 80, 50)),
    Network(
        ("0", "1", "2", "3"),
        [[(abs(a - c) + abs(b - d)) / 1000 for c, d in POINTS] for a, b in POINTS],
        (2, 1, 2, 2),
    ),
    {"s": "0", "t": "0"},
)


def feasible(problem):
    nodes = range(len(problem.network.nodes))
    found = product(nodes, repeat=len(problem.application.operators))
    return [x for x in found if not placement.violations(problem, x)]


def brute_ranges(problem, metric="usage"):
    all_of = [placement.check(problem, x) for x in feasible(problem)]
    columns = zip(*((m.response_s, m.log_availability, m.network(metric)) for m in all_of), strict=True)
    return Ranges(*((min(c), max(c)) for c in columns))


def middle(answer):
    """Nodes of the operators that are not pinned."""
    placement.check(answer.problem, answer.placement, answer.metrics)
    return tuple(int(u) for u in answer.placement[1:-1])


def degradation(answer, ranges, weights):
    least = min(placement.loss(placement.metrics(answer.problem, x), weights, ranges) for x in feasible(answer.problem))
    return (answer.loss - least) / (1 - least)


H1 = {
    "r": ({(0, 1): 1 / 3, (0, 2): 2 / 3, (0, 3): 1, (1, 2): 0.4, (1, 3): 5 / 6, (2, 3): 4 / 15}, (0, 0, 0, 0)),
    "a": (
        {(0, 1): 0.613337, (0, 2): 0.406809, (0, 3): 0.202377, (1, 2): 1, (1, 3): 0.795568, (2, 3): 0.589040},
        (0, 0.593191, 0.386663, 0.182231),
    ),
    "all": (
        {(0, 1): 0.426668, (0, 2): 0.580047, (0, 3): 0.734126, (1, 2): 0.6, (1, 3): 0.820745, (2, 3): 0.374124},
        (0, 0.197730, 0.128888, 0.060744),
    ),
}
H1["z"] = H1["r"]


@pytest.mark.parametrize(("kind", "order"), [("r", "0123"), ("z", "0123"), ("all", "0123"), ("a", "0321")])
def test_h1_penalties(kind, order):
    links, loops = H1[kind]
    found = penalties(NET, W[kind])
    for (u, v), value in links.items():
        assert found[u, v] == found[v, u] == pytest.approx(value, abs=6e-7)
    assert found.diagonal() == pytest.approx(loops, abs=6e-7)
    assert ordered_nodes(H2, found).tolist() == [int(u) for u in order]
    assert ordered_nodes(H2, None).tolist() == [0, 1, 2, 3]


def test_h2_table():
    table = {
        (1, 2): (54, 0.948700, 4200), (1, 3): (77, 0.958380, 6500), (2, 2): (52, 0.958480, 4000),
        (2, 3): (70, 0.968261, 5800), (3, 3): (72, 0.978141, 6000),
    }  # fmt: skip
    assert {x[1:-1] for x in feasible(H2)} == set(table) | {(2, 1), (3, 1), (3, 2)}
    for x in feasible(H2):
        m = placement.check(H2, x)
        row = table[tuple(sorted(x[1:-1]))]
        assert (m.response_s * 1e3, m.availability, m.usage * 1e3) == pytest.approx(row, abs=6e-7)


def test_h2_greedy_local_tabu():
    ranges = brute_ranges(H2)
    assert [r * 1e3 for r in ranges.response_s] == pytest.approx([52, 77])
    first = greedy(H2, W["r"], ranges)
    assert (middle(first), first.loss, degradation(first, ranges, W["r"])) == ((1, 2), *(pytest.approx(0.08),) * 2)
    local = local_search(H2, W["r"], ranges)
    assert (middle(local), local.loss) == ((2, 2), pytest.approx(0))
    assert [words for words, _ in local.details["steps"]] == ["co-locate a to 2"]
    assert middle(tabu_search(H2, W["r"], ranges)) == (2, 2)
    assert middle(greedy(H2, W["a"], ranges)) == (3, 3)
    assert degradation(greedy(H2, W["a"], ranges), ranges, W["a"]) == pytest.approx(0)
    assert greedy(H2, W["z"], ranges).loss == pytest.approx(0.08)
    assert middle(local_search(H2, W["z"], ranges)) == (2, 2)
    assert greedy(H2, W["all"], ranges).loss == pytest.approx(0.386667, abs=6e-7)
    local = local_search(H2, W["all"], ranges)
    assert (middle(local), local.loss) == ((2, 2), pytest.approx(0.221465, abs=6e-7))


def test_h4_three_levels_of_quality():
    all_of = feasible(H4)
    usage = [placement.check(H4, x).usage * 1e3 for x in all_of]
    assert (len(all_of), min(usage), max(usage)) == (18, pytest.approx(470), pytest.approx(1540))
    ranges, delta = brute_ranges(H4), penalties(H4.network, W["z"])
    assert delta[0, [0, 2, 1, 3]] == pytest.approx([0, 1 / 3, 2 / 3, 8 / 9])
    assert ordered_nodes(H4, delta).tolist() == [0, 2, 1, 3]
    first, local, tabu = (f(H4, W["z"], ranges) for f in (greedy, local_search, tabu_search))
    assert (middle(first), first.metrics.usage * 1e3) == ((2, 2, 1), pytest.approx(950))
    assert degradation(first, ranges, W["z"]) == pytest.approx(0.448598, abs=6e-7)
    assert (middle(local), local.metrics.usage * 1e3) == ((3, 3, 1), pytest.approx(860))
    assert degradation(local, ranges, W["z"]) == pytest.approx(0.364486, abs=6e-7)
    assert (middle(tabu), tabu.metrics.usage * 1e3) == ((1, 2, 2), pytest.approx(470))
    assert tabu.details["rounds"] == 2
    low, high = ranges.network
    course = [
        (words.split(" to ")[0].removeprefix("kick: ").split()[0], round(1e3 * (low + f * (high - low))))
        for words, f in tabu.details["steps"]
    ]
    assert course[:5] == [("swap", 860), ("move", 890), ("co-locate", 670), ("swap", 660), ("swap", 470)]
    assert course[-1][1] == 570


def test_h3_pruned():
    penalty = symmetric(penalties(NET, W["r"]))
    assert [sorted(s) for s in merge_tree(penalty)[4:]] == [[2, 3], [0, 1], [0, 1, 2, 3]]
    found = pruned(H2, W["r"], brute_ranges(H2))
    assert (middle(found), found.details["nodes"], found.details["solves"]) == ((2, 2), 4, 1)


def test_h5_virtual_data_centre():
    pair = Network(("x", "y"), 0.001, (2, 3), (1, 2), (0.99, 0.97))
    one = centre(pair, [[0, 1]])
    assert (one.availability[0], one.speed[0], one.capacity[0]) == pytest.approx((0.98, 1.5, 5))
    two = centre(NET, [[0, 1], [2, 3]])
    assert two.delay_s * 1e3 == pytest.approx(np.array([[0, 21.75], [21.75, 0]]))


@pytest.mark.parametrize("sizes", [(2, 4, 8, 16, 36), (2, 4, 8, 16, 32, 64), (2, 4, 8, 16, 32, 64, 100)])
def test_sizes_of_levels(sizes):
    levels = build(waxman_network(sizes[-1], seed=1), W["all"])
    assert tuple(len(network.nodes) for network, _ in levels) == sizes
    for (_, members), (finer, _) in zip(levels, levels[1:], strict=False):
        assert sorted(u for m in members for u in m) == list(range(len(finer.nodes)))


@pytest.mark.parametrize(("found", "best", "printed"), [(0.36, 0.2, 0.2), (1, 0.2, 1), (1, 1, 0), (0.2, 0.2, 0)])
def test_h6_metric(found, best, printed):
    assert placement.degradation(found, best) == pytest.approx(printed)


def test_h7_relaxed_corner(monkeypatch):
    """The relaxation halves an operator of demand 2: if the node it draws has room for 1, more are drawn.

    (Our program knows that such a node is no candidate, so the halves are put there by hand.)
    """
    network = Network(("0", "1", "2"), 0.01, (2, 1, 2), 1, (0.99, 0.999, 0.98))
    app = Application(("s", "m", "t"), (("s", "m"), ("m", "t")), (1, 2, 1), 0.003, 100)
    corner = Problem(app, network, {"s": "0", "t": "0"})
    assert middle(relaxed(corner, W["a"], Ranges((0, 1), (-1, 0), (0, 1)), neighbours=0)) == (2,)
    halves = np.array([[1, 0, 0], [0, 0.5, 0.5], [1, 0, 0]])
    monkeypatch.setattr("dspkit.placement.heuristics.decomposition.relaxation", lambda *_: (halves, 0.0))
    drawn = [relaxed(corner, W["a"], Ranges((0, 1), (-1, 0), (0, 1)), neighbours=0, seed=seed) for seed in range(12)]
    assert {middle(found) for found in drawn} == {(2,)}
    assert {found.details["nodes"] for found in drawn} == {2, 3}


@pytest.mark.parametrize("nodes", [36, 49])
@pytest.mark.parametrize("shape", ["diamond", "sequential", "replicated"])
def test_h8_greedy_is_optimal_for_availability_where_the_pinned_node_is_full(shape, nodes):
    problem = placement.scenario(shape, nodes, seed=3)
    a = np.sort(np.log(problem.network.availability))[::-1]
    home = next(iter(set(problem.pinned.values())))
    others = np.sort(np.delete(np.log(problem.network.availability), home))[::-1]
    best = 2 * math.log(problem.network.availability[home]) + 2 * others[:9].sum()
    found = greedy(problem, W["a"], Ranges((0, 1), (20 * a[-1], 20 * a[0]), (0, 1)))
    assert found.metrics.log_availability == pytest.approx(best, rel=1e-12)


def test_greedy_says_where_it_ends():
    tight = Network(NET.nodes, NET.delay_s, (2, 1, 0, 0))
    with pytest.raises(InfeasibleError, match="'b' in greedy order"):
        greedy(Problem(CHAIN, tight, H2.candidates), W["r"], Ranges((0, 1), (0, 1), (0, 1)))
