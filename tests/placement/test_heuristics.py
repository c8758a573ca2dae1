"""What every heuristic keeps to: answers pass the certificate and do not beat the optimum, or an error says why."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import placement
from dspkit.core import InfeasibleError, NotFoundError, PlacementError
from dspkit.placement import HEURISTICS, Application, Network, Problem, Ranges, Weights
from dspkit.placement.coordinates import embed, springs
from dspkit.placement.generators import layered_application, sequential_application, waxman_network
from dspkit.placement.heuristics.decentralised import rizou, spring, xu
from dspkit.placement.heuristics.decomposition import (
    clusters,
    hierarchical,
    merge_tree,
    pruned,
    relaxed,
    shared_relaxation,
)
from dspkit.placement.heuristics.greedy import PinnedProblem, greedy, penalties
from dspkit.placement.heuristics.local_search import Search, local_search, tabu_search
from dspkit.placement.objective import weighted_costs
from dspkit.placement.solvers.integer_program import relaxation

UNIT = Ranges((0.0, 1.0), (-1.0, 0.0), (0.0, 100.0))
ALL = Weights(1 / 3, 1 / 3, 1 / 3)
each = pytest.mark.parametrize("name", HEURISTICS)


def random_problem(seed, *, nodes=4, operators=4, pinned=True, missing=0.0):
    random = np.random.default_rng(seed)
    delays = random.uniform(0.001, 0.03, (nodes, nodes))
    delays[random.random((nodes, nodes)) < missing] = np.inf
    network = Network(
        tuple(f"n{u}" for u in range(nodes)), delays, random.integers(1, 4, nodes), random.uniform(0.5, 2, nodes),
        random.uniform(0.9, 1, nodes), random.uniform(0.99, 1, (nodes, nodes)),
    )  # fmt: skip
    names = tuple(f"o{i}" for i in range(operators))
    streams = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if random.random() < 0.5]
    app = Application(names, tuple(streams), random.integers(1, 3, operators), random.uniform(0, 0.01, operators),
                      random.uniform(1, 100, len(streams)))  # fmt: skip
    return Problem(app, network, {"o0": "n0"} if pinned else {})


def feasible(problem):
    found = product(range(len(problem.network.nodes)), repeat=len(problem.application.operators))
    return [x for x in found if not placement.violations(problem, x)]


@each
@given(seed=st.integers(0, 10**6), pinned=st.booleans(), metric=st.sampled_from(placement.NETWORK_METRICS))
@settings(max_examples=12, deadline=None)
def test_every_answer_passes_the_certificate_and_none_beats_the_optimum(name, seed, pinned, metric):
    problem, weights = random_problem(seed, pinned=pinned), Weights(0.5, 0.2, 0.3, metric)
    ways = feasible(problem)
    try:
        answer = HEURISTICS[name](problem, weights, UNIT)
    except InfeasibleError:
        if name in ("pruned", "relaxed", "hierarchical", "time_limited") and pinned:
            assert not ways  # these find a placement if there is one
        return
    found = placement.check(problem, answer.placement, answer.metrics)
    assert answer.loss == pytest.approx(placement.loss(found, weights, UNIT))
    assert answer.loss >= min(placement.loss(placement.metrics(problem, x), weights, UNIT) for x in ways) - 1e-9


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_tabu_is_no_worse_than_local_and_that_than_greedy(seed):
    problem = random_problem(seed, nodes=7, operators=6)
    try:
        losses = [HEURISTICS[name](problem, ALL, UNIT).loss for name in ("tabu_search", "local_search", "greedy")]
    except InfeasibleError:
        return
    assert losses == sorted(losses) or np.ptp(losses) < 1e-12


@given(seed=st.integers(0, 10**6), missing=st.sampled_from((0.0, 0.3)))
@settings(max_examples=25, deadline=None)
def test_the_best_neighbour_is_the_best_of_all_neighbours(seed, missing):
    """Neighbourhoods spelled out, every neighbour evaluated in full."""
    problem = random_problem(seed, nodes=5, operators=5, missing=missing)
    ways = feasible(problem)
    if not ways:
        return
    task = PinnedProblem(problem, ALL, UNIT)
    search, x = Search(task), np.array(ways[seed % len(ways)])
    hosts = set(x.tolist())
    free = [i for i in range(5) if i not in problem.pinned]
    moves = [[], [], []]
    for a, b in problem.application.ends.tolist():
        for i, j in ((a, b), (b, a)):
            if i in free and x[i] != x[j]:
                moves[0].append(np.where(np.arange(5) == i, x[j], x))
    group = np.isin(np.arange(5), free)
    for u, v in product(sorted(hosts), set(range(5)) - hosts):
        if ((x == u) & group).any():
            moves[1].append(np.where((x == u) & group, v, x))
    moves[2] = [np.where(np.arange(5) == i, v, x) for i in free for v in range(5) if v != x[i]]
    none = np.empty((0, 5), np.int64)
    for strategy, ways_on in enumerate(moves):
        fit = [y for y in ways_on if not placement.violations(problem, y)]
        losses = [placement.loss(placement.metrics(problem, y), ALL, UNIT) for y in fit]
        step = search._best(x, strategy, np.inf, none)
        assert (step is None) == (not fit)
        if step:
            assert step[2] + task.costs.constant == pytest.approx(min(losses))
            assert any((step[1] == y).all() for y in fit)
            second = search._best(x, strategy, np.inf, np.array([step[1]]))  # now that one is tabu
            assert second is None or not (second[1] == step[1]).all()


@pytest.mark.parametrize("seed", range(6))
def test_exact_on_all_nodes_is_the_optimum(seed):
    problem = random_problem(seed, nodes=4, operators=4)
    if not feasible(problem):
        return
    best = placement.solve(problem, ALL, UNIT, solver="brute").loss
    assert relaxed(problem, ALL, UNIT, neighbours=3).loss == pytest.approx(best)
    pair = Problem(problem.application, Network(("n0", "n1"), 0.01, (20, 20)), {"o0": "n0"})
    best = placement.solve(pair, ALL, UNIT, solver="brute").loss
    assert hierarchical(pair, ALL, UNIT).loss == pytest.approx(best)
    assert pruned(pair, ALL, UNIT).loss == pytest.approx(best)  # the first set is all


@pytest.mark.parametrize("weights", [Weights(1, 0, 0), Weights(0.2, 0.3, 0.5)])
def test_the_relaxation_with_equal_operators_as_one_is_the_relaxation(weights):
    random = np.random.default_rng(4)
    delays = random.uniform(0.001, 0.03, (6, 6))
    net = Network(tuple("abcdef"), delays, (2, 1, 2, 3, 1, 2), random.uniform(0.5, 2, 6), random.uniform(0.9, 1, 6))
    problem = Problem(layered_application(1, 4, 2, 1), net, {"0": "a", "7": "a"})
    costs = weighted_costs(problem, weights, UNIT)
    x, bound = shared_relaxation(problem, costs)
    assert bound == pytest.approx(relaxation(problem, costs)[1])
    assert x.sum(axis=1) == pytest.approx(np.ones(8))
    assert (x * problem.application.demand[:, None]).sum(axis=0).max() <= 3 + 1e-6
    assert bound <= placement.solve(problem, weights, UNIT).loss + 1e-9


@pytest.mark.parametrize("name", ["greedy", "local_search", "tabu_search", "hierarchical", "pruned"])
def test_a_clock_of_another_unit_changes_no_placement(name):
    problem = placement.scenario("sequential", 36, seed=2, operators=8)
    app, net, k = problem.application, problem.network, 7.0
    slow = Problem(
        Application(app.operators, app.streams, app.demand, app.time_s * k, app.rate_per_s),
        Network(net.nodes, net.delay_s * k, net.capacity, net.speed, net.availability),
        problem.candidates,
    )
    ranges = Ranges((0.02, 0.5), (-0.3, 0), (0.5, 20))
    scaled = Ranges(*(tuple(v * f for v in r) for r, f in zip(ranges, (k, 1, k, 1), strict=True)))
    one, other = HEURISTICS[name](problem, ALL, ranges), HEURISTICS[name](slow, ALL, scaled)
    assert one.loss == pytest.approx(other.loss)
    assert one.placement.tolist() == other.placement.tolist()


def test_hierarchical_looks_only_inside_what_the_level_above_used():
    problem = placement.scenario("diamond", 36, seed=1)
    found = hierarchical(problem, Weights(1, 0, 0), Ranges((0.05, 0.3), (-1, 0), (0, 1)))
    assert found.details["levels"] == (2, 4, 8, 16, 36)
    assert found.details["searched"][0] == 2
    assert found.details["searched"][-1] < 36
    assert len(set(found.placement.tolist())) <= found.details["searched"][-1]


def test_penalties_lie_between_0_and_1_and_response_and_usage_agree_for_equal_speeds():
    for seed in range(5):
        delta = penalties(random_problem(seed).network, ALL)
        assert 0 <= delta.min() <= delta.max() <= 1 + 1e-12
    net = waxman_network(36, seed=1)
    assert penalties(net, Weights(1, 0, 0)) == pytest.approx(penalties(net, Weights(0, 0, 1)))


@given(seed=st.integers(0, 10**6), n=st.integers(2, 14), k=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_clusters_and_merges_part_all_nodes(seed, n, k):
    points = np.random.default_rng(seed).uniform(0, 1, (n, 2))
    far = np.linalg.norm(points[:, None] - points[None], axis=2)
    groups = clusters(far, k)
    assert sorted(u for g in groups for u in g) == list(range(n))
    assert len(groups) == min(n, k)
    tree = merge_tree(far)
    assert frozenset(range(n)) in tree
    assert len(tree) == 2 * n - 1


APP = Application(("s", "m", "t"), (("s", "m"), ("m", "t")), 1, 0.003, 100)


@each
def test_too_little_capacity_is_a_typed_error(name):
    small = Problem(APP, Network(("a", "b"), 0.01, (1, 1)), {"s": "a"})
    with pytest.raises(InfeasibleError):
        HEURISTICS[name](small, ALL, UNIT)
    full = Problem(APP, Network(("a", "b"), 0.01, (1, 5)), {"s": "a", "t": "a"})  # pinned to a node without room
    with pytest.raises(InfeasibleError):
        HEURISTICS[name](full, ALL, UNIT)


@each
def test_a_node_that_cannot_be_reached(name):
    apart = np.array([[0, np.inf, 0.01], [np.inf, 0, np.inf], [0.01, np.inf, 0]])
    net = Network(("a", "b", "c"), apart, (1, 5, 5))
    problem = Problem(APP, net, {"s": "a"})
    try:
        found = HEURISTICS[name](problem, ALL, UNIT)
        assert "b" not in found.named.values()
        placement.check(problem, found.placement)
    except InfeasibleError:
        assert name in ("round_robin", "xu", "spring_relaxation", "rizou")  # they do not look for links
    with pytest.raises(InfeasibleError):
        HEURISTICS[name](Problem(APP, net, {"s": "a", "t": "b"}), ALL, UNIT)


@each
def test_one_node_one_operator_and_a_node_of_no_capacity(name):
    alone = Problem(Application(("o",), time_s=0.002), Network(("n",), 0.0))
    assert HEURISTICS[name](alone, ALL, UNIT).named == {"o": "n"}
    one = Problem(APP, Network(("n",), 0.0, 3))
    assert set(HEURISTICS[name](one, ALL, UNIT).named.values()) == {"n"}
    empty = Problem(APP, Network(("a", "b", "c"), 0.01, (2, 0, 2)), {"s": "a"})
    assert "b" not in HEURISTICS[name](empty, ALL, UNIT).named.values()


def test_the_median_stays_with_the_stronger_stream_where_springs_settle_between():
    """On a line of 10 ms, 300 records/s pull to one end and 200 to the other: median 0 ms, spring 4 ms."""
    line = np.array([0.0, 0.004, 0.01])
    net = Network(("begin", "between", "end"), abs(line[:, None] - line[None, :]), (2, 1, 1))
    app = Application(tuple("sxt"), (("s", "x"), ("x", "t")), 1, 0.0, (300, 200))
    problem = Problem(app, net, {"s": "begin", "t": "end"})
    assert rizou(problem, ALL, UNIT).named["x"] == "begin"
    assert spring(problem, ALL, UNIT).named["x"] == "between"


@pytest.mark.parametrize("name", ["greedy", "local_search", "tabu_search", "pruned", "relaxed"])
def test_bandwidth_is_kept(name):
    narrow = np.array([[np.inf, 150, 1e3], [1e3, np.inf, 1e3], [1e3, 1e3, np.inf]])
    app = Application(tuple("stuv"), (("s", "t"), ("s", "u"), ("t", "v"), ("u", "v")), 1, 0.0, 100)
    net = Network(
        ("a", "b", "c"), [[0, 0.001, 0.05], [0.001, 0, 0.05], [0.05, 0.05, 0]], (1, 3, 3), bandwidth_per_s=narrow
    )
    problem = Problem(app, net, {"s": "a"})
    found = HEURISTICS[name](problem, Weights(0, 0, 1), UNIT)
    placement.check(problem, found.placement, found.metrics)


def test_settings_that_make_no_sense():
    problem = placement.example("B")
    for wrong in (
        lambda: tabu_search(problem, ALL, UNIT, tabu=0), lambda: tabu_search(problem, ALL, UNIT, patience=True),
        lambda: hierarchical(problem, ALL, UNIT, groups=1), lambda: relaxed(problem, ALL, UNIT, neighbours=-1),
        lambda: local_search(problem, ALL, UNIT, start=(0, 0)), lambda: springs([[0, 0]], [-1], [0, 0]),
        lambda: springs([[0, 0]], [1, 2], [0, 0]), lambda: embed(np.zeros((2, 3))),
        lambda: local_search(problem, ALL, UNIT, time_limit_s=np.nan), lambda: greedy(problem, None, UNIT),
        lambda: tabu_search(problem, ALL, UNIT, time_limit_s=-1), lambda: relaxed(problem, ALL, UNIT, seed=-1),
        lambda: spring(problem, ALL, UNIT, seed=0.5), lambda: xu(problem, ALL, 3), lambda: pruned(None, ALL, UNIT),
    ):  # fmt: skip
        with pytest.raises((PlacementError, placement.problem.PlacementError, ValueError)) as caught:
            wrong()
        assert "expected" in str(caught.value)
    with pytest.raises(NotFoundError, match="did you mean 'tabu_search'"):
        placement.heuristic("tabu serch")


def test_more_patience_never_hurts_and_a_time_limit_stops():
    problem = placement.scenario("sequential", 36, seed=1)
    once, often = (tabu_search(problem, Weights(1, 0, 0), UNIT, patience=p) for p in (1, 30))
    assert often.loss <= once.loss
    assert often.details["rounds"] > once.details["rounds"]
    assert tabu_search(problem, Weights(1, 0, 0), UNIT, patience=10**6, time_limit_s=0.3).seconds < 5


def test_degradation_with_weights_of_any_sum():
    """Twice the weights are twice the losses, and the same share is lost."""
    once, twice = Weights(0.25, 0.25, 0.5), Weights(0.5, 0.5, 1)
    problem = placement.scenario("sequential", 16, operators=11)
    ranges, lost = placement.find_ranges(problem), []
    for weights in (once, twice):
        best, found = (f(problem, weights, ranges) for f in (placement.solve, HEURISTICS["greedy_without_penalty"]))
        lost.append(placement.degradation(found.loss, best.loss, weights.total))
    assert lost[0] > 0.01
    assert lost[1] == pytest.approx(lost[0])


@pytest.mark.parametrize("name", ["hierarchical", "pruned", "relaxed"])
def test_who_pins_the_ends_in_vain_does_not_say_that_there_is_no_placement(name):
    """The least penalty has the middle of a line, but a chain that fills all three nodes cannot begin there."""
    delays = np.array([[0, 0.01, np.inf], [0.01, 0, 0.01], [np.inf, 0.01, 0]])
    line = Problem(sequential_application(3), Network(("a", "b", "c"), np.where(np.isinf(delays), 9, delays), 1))
    placement.check(line, HEURISTICS[name](line, ALL, UNIT).placement)  # far is not apart
    narrow = np.where(np.isinf(delays), 0, np.inf)
    apart = Problem(line.application, Network(("a", "b", "c"), line.network.delay_s, 1, bandwidth_per_s=narrow))
    assert placement.solve(apart, "response_s").named["1"] == "b"
    with pytest.raises(InfeasibleError, match="pinned by the heuristic"):
        HEURISTICS[name](apart, ALL, UNIT)
