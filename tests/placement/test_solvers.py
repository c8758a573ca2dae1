"""The exact solvers: equal to exhaustive search, to each other, and to what theory says; bad cases end well."""

import itertools
import math

import numpy as np
import pytest

from dspkit import placement
from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import Application, Network, Problem, Ranges, Weights, solve
from dspkit.placement.generators import (
    gaussian_network,
    layered_application,
    median_node,
    replicated_application,
    sample_candidates,
    sequential_application,
    waxman_network,
)
from dspkit.placement.objective import metric_costs
from dspkit.placement.solvers.solve import minimise
from placements import objective, small

EXACT = ("exact", "highs")


def answer(problem, costs, solver):
    try:
        return minimise(problem, costs, solver=solver)
    except InfeasibleError:
        return None


def agree(problem, costs, solvers=EXACT):
    """Whether there is a placement; all solvers find one equally good, proven, and keeping every rule."""
    referee = answer(problem, costs, "brute")
    for solver in solvers:
        found = answer(problem, costs, solver)
        assert (found is None) == (referee is None), solver
        if found is not None:
            assert found.loss == pytest.approx(referee.loss, rel=1e-7, abs=1e-9), solver
            assert found.proven, solver
            placement.check(problem, found.placement, found.metrics)
    return referee is not None


def test_solvers_equal_exhaustive_search():
    feasible, seed = 0, 0
    while feasible < 200:
        seed += 1
        try:
            costs = objective(problem := small(seed), seed)
        except InfeasibleError:  # an operator fits nowhere
            continue
        feasible += agree(problem, costs)
    assert seed > 230  # so that some were infeasible


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_solvers_equal_exhaustive_search_on_more(block):
    for seed in range(1000 + 150 * block, 1150 + 150 * block):
        try:
            problem = small(seed)
            agree(problem, objective(problem, seed))
            agree(problem, objective(problem, seed + 7))
        except InfeasibleError:
            continue


@pytest.mark.parametrize("name", ["A", "A free", "B"])
@pytest.mark.parametrize("aim", ["response_s", "log_availability", "traffic", "usage", "energy"])
def test_worked_examples(name, aim):
    problem = placement.example(name)
    assert agree(problem, metric_costs(problem, aim, -1 if aim == "log_availability" else 1))


def test_ranges_equal_those_of_all_placements():
    problem = placement.example("A free")
    for metric, low_high in (("traffic", (90, 190)), ("usage", (0.9, 3.42)), ("energy", (9e-3, 61560e-6))):
        found = placement.find_ranges(problem, metric)
        assert found.response_s == pytest.approx((0.039, 0.072))
        assert np.exp(found.log_availability) == pytest.approx((0.931095, 0.988021), abs=6e-7)
        assert found.network == pytest.approx(low_high)
    assert solve(problem, Weights(1 / 3, 1 / 3, 1 / 3)).loss == pytest.approx(1 - 0.773449, abs=6e-7)


@pytest.fixture
def blind(monkeypatch):
    """Our solver without local search: what it wrongly prunes cannot be found by luck."""
    from dspkit.placement.solvers import solve as own

    nothing = lambda problem, costs, **_: (np.zeros(len(problem.application.operators), np.int64), math.inf)  # noqa: E731
    monkeypatch.setattr(own, "first_placement", nothing)


def test_own_solver_needs_no_luck(blind):
    feasible, seed = 0, 2000
    while feasible < 100:
        seed += 1
        try:
            costs = objective(problem := small(seed), seed)
        except InfeasibleError:
            continue
        feasible += agree(problem, costs, ("exact",))


def test_a_first_placement_that_is_nearly_the_best_is_not_taken_for_it(monkeypatch):
    """Our solver begins with the second best of all placements, within 5 % of the best: it must still find that."""
    from dspkit.placement import violations
    from dspkit.placement.solvers import solve as own
    from dspkit.placement.solvers.solve import brute_force

    tried, seed, begin = {True: 0, False: 0}, 6000, []
    monkeypatch.setattr(own, "first_placement", lambda problem, costs, **_: (begin[0], begin[1]))
    while min(tried.values()) < 15:
        seed += 1
        try:
            costs = objective(problem := small(seed), seed)
            best = brute_force(problem, costs).loss
        except InfeasibleError:
            continue
        choices = [np.flatnonzero(row).tolist() for row in np.isfinite(costs.node)]
        others = ((costs.of(problem, x), x) for x in itertools.product(*choices) if not violations(problem, x))
        loss, x = min(((w, x) for w, x in others if w > best + 1e-6 * abs(best)), default=(math.inf, ()))
        if loss < math.inf and loss - best < 0.05 * abs(loss):
            begin[:] = np.array(x), loss - costs.constant
            assert own.solve_exact(problem, costs).loss == pytest.approx(best, rel=1e-7, abs=1e-9)
            tried[placement.objective.chain_of(problem) is not None] += 1


@pytest.mark.parametrize(("nodes", "operators", "seed"), [(16, 11, 10), (64, 11, 2), (16, 18, 2), (36, 18, 9)])
def test_a_bound_close_to_the_optimum_does_not_end_the_search_too_early(nodes, operators, seed, monkeypatch):
    """Here the bound from places of one's own is within 3 % of the optimum, and so is what the search begins with."""
    from dspkit.placement import violations
    from dspkit.placement.solvers import solve as own

    problem = placement.scenario("replicated", nodes, seed=seed, operators=operators)
    costs, random = metric_costs(problem, "response_s"), np.random.default_rng(0)
    best = solve(problem, "response_s")
    near = []
    while not near:
        x = np.array(best.placement)
        x[random.integers(len(x), size=3)] = random.integers(nodes, size=3)
        if not violations(problem, x) and 1e-6 < costs.of(problem, x) / best.loss - 1 < 0.04:
            near.append(x)
    monkeypatch.setattr(own, "first_placement", lambda *_, **__: (near[0], costs.of(problem, near[0])))
    assert own.solve_exact(problem, costs).loss == pytest.approx(best.loss, rel=1e-7)


def test_the_slowest_path_of_two_that_differ_only_in_how_wide_a_link_they_need():
    """`b` sends too much for the link to the far node, so the slowest placement has `a` there: 50 ms, not 10."""
    app = Application(tuple("sab"), (("s", "a"), ("s", "b")), 1, 0.0, (100, 200))
    delay = [[0, 0.01, 0.05], [0.01, 0, 0.05], [0.05, 0.05, 0]]
    narrow = [[math.inf, 500, 150], [500, math.inf, 500], [150, 500, math.inf]]
    network = Network(("u", "v", "w"), delay, (1, 2, 1), bandwidth_per_s=narrow)
    assert placement.find_ranges(Problem(app, network, {"s": "u"})).response_s == pytest.approx((0.01, 0.05))


def test_a_chain_that_comes_back_to_a_node(blind):
    """Seven operators, a hub and three leaves with two places each: only with the hub used twice are all hops short."""
    delay = np.full((4, 4), 0.1)
    delay[0, :] = delay[:, 0] = 0.001
    problem = Problem(sequential_application(7), Network(("hub", "a", "b", "c"), delay, 2))
    for solver in ("exact", "brute"):
        assert solve(problem, "usage", solver=solver).loss == pytest.approx(4 * 100 * 0.001)


@pytest.mark.parametrize("solver", placement.SOLVERS)
@pytest.mark.parametrize(("width", "used"), [(200, {"v"}), (150, {"v", "w"})])
def test_streams_share_the_bandwidth_of_a_link(solver, width, used):
    app = Application(("s", "a", "b"), (("s", "a"), ("s", "b")), 1, 0, 100)
    delay = [[0, 0.01, 0.05], [0.01, 0, 0.05], [0.05, 0.05, 0]]
    network = Network(
        ("u", "v", "w"), delay, (1, 2, 2), bandwidth_per_s=[[0, width, 500], [width, 0, 500], [500, 500, 0]]
    )
    found = solve(Problem(app, network, {"s": "u"}), "usage", solver=solver)
    assert {found.named["a"], found.named["b"]} == used


def layered(*sizes, nodes=12, seed=0, alike=True):
    random = np.random.default_rng(seed)
    app = layered_application(*sizes)
    if not alike:
        rates = random.integers(5, 15, len(app.streams)) * 10.0
        app = Application(app.operators, app.streams, 1, random.uniform(0.001, 0.006, len(app.operators)), rates)
    network = waxman_network(nodes, seed=seed)
    home = median_node(network)
    return Problem(app, network, {app.operators[0]: home, app.operators[-1]: home})


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("sizes", [(1,) * 8, (1, 6, 1), (1, 4, 2, 1), (1, 2, 2, 1, 1)])
@pytest.mark.parametrize("aim", ["response_s", "log_availability", "usage", "energy"])
def test_own_solver_equals_the_integer_program_where_search_cannot_reach(sizes, aim, alike):
    problem = layered(*sizes, alike=alike)
    ours, theirs = solve(problem, aim), solve(problem, aim, solver="highs")
    assert ours.proven
    assert theirs.proven
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-6)


def test_paths_and_potentials_are_the_same_program():
    from dspkit.placement.solvers.integer_program import highs

    problem = layered(1, 3, 2, 1, nodes=9)
    costs = metric_costs(problem, "response_s")
    found = [highs(problem, costs, paths=paths).loss for paths in (True, False)]
    assert found[0] == pytest.approx(found[1], rel=1e-7)


def test_counts_of_the_program():
    from dspkit.placement.solvers.integer_program import program

    app = replicated_application(2)
    problem = Problem(app, gaussian_network(5))
    made = program(problem, metric_costs(problem, "response_s"), paths=True)
    operators, streams, nodes = len(app.operators), len(app.streams), 5
    assert made.binaries == operators * nodes
    assert len(made.cost) == operators * nodes + streams * nodes**2 + 1
    assert len(made.low) == nodes + operators + 2 * streams * nodes + app.path_count


@pytest.mark.parametrize("shape", placement.SHAPES)
def test_availability_of_the_published_setting_is_the_best_nodes_filled(shape):
    """All alike, links perfect, the pinned node full: the best nodes are filled one after the other (card, H8)."""
    problem = placement.scenario(shape, 36, seed=3)
    log_a = np.log(problem.network.availability)
    home = problem.network.index[problem.candidates["0"][0]]
    best = np.sort(np.repeat(np.delete(log_a, home), 2))[::-1][:18].sum() + 2 * log_a[home]
    assert solve(problem, "log_availability").loss == pytest.approx(-best)


def test_a_chain_of_equal_operators_is_a_shortest_tour_over_full_nodes():
    """Two operators a node, delays a metric: Held and Karp's dynamic program over sets of nodes, by itself."""
    network = waxman_network(9, seed=5)
    problem = Problem(sequential_application(10, time_s=0.0), network, {"0": "4", "9": "4"})
    delay, others = network.delay_s, [u for u in range(9) if u != 4]
    ways = {(frozenset([u]), u): delay[4, u] for u in others}
    for _ in range(3):  # eight operators fill four nodes
        longer = {}
        for (seen, u), cost in ways.items():
            for v in others:
                if v not in seen:
                    key = (seen | {v}, v)
                    longer[key] = min(longer.get(key, math.inf), cost + delay[u, v])
        ways = longer
    assert solve(problem, "response_s").loss == pytest.approx(min(c + delay[u, 4] for (_, u), c in ways.items()))


@pytest.mark.parametrize("solver", placement.SOLVERS)
class TestOddProblems:
    def test_one_operator_goes_to_the_fastest_node(self, solver):
        problem = Problem(Application(("a",), (), 1, 1.0), Network(("u", "v"), 0.01, 1, (1, 4)))
        assert solve(problem, "response_s", solver=solver).named == {"a": "v"}
        assert solve(problem, "response_s", solver=solver).loss == 0.25

    def test_one_node(self, solver):
        problem = Problem(sequential_application(3), Network(("u",), 0.0, 3))
        found = solve(problem, "usage", solver=solver)
        assert (found.loss, found.metrics.traffic) == (0, 0)

    def test_too_little_capacity(self, solver):
        with pytest.raises(InfeasibleError):
            solve(Problem(sequential_application(3), Network(("u", "v"), 0.01, 1)), "usage", solver=solver)

    def test_a_node_without_capacity_is_not_used(self, solver):
        problem = Problem(sequential_application(2), Network(("u", "v"), 0.01, (0, 2)))
        assert set(solve(problem, "response_s", solver=solver).named.values()) == {"v"}

    def test_a_pin_that_does_not_fit(self, solver):
        problem = Problem(sequential_application(2), Network(("u", "v"), 0.01, (0, 2)), {"0": "u"})
        with pytest.raises(InfeasibleError, match="'0'"):
            solve(problem, "response_s", solver=solver)

    def test_two_pins_for_one_place(self, solver):
        problem = Problem(sequential_application(2), Network(("u", "v"), 0.01, (1, 2)), {"0": "u", "1": "u"})
        with pytest.raises(InfeasibleError):
            solve(problem, "response_s", solver=solver)

    def test_a_network_in_two_parts(self, solver):
        delay = np.full((4, 4), math.inf)
        delay[:2, :2] = delay[2:, 2:] = 0.01
        app = sequential_application(4)
        apart = Problem(app, Network(tuple("abcd"), delay, (1, 1, 2, 2)))
        assert set(solve(apart, "usage", solver=solver).named.values()) == {"c", "d"}
        with pytest.raises(InfeasibleError):
            solve(Problem(app, apart.network, {"0": "a"}), "usage", solver=solver)

    def test_partition(self, solver):
        app = Application(tuple("abcdef"), (), (3, 1, 1, 2, 2, 1))
        assert solve(Problem(app, Network(("u", "v"), 0.0, 5)), "usage", solver=solver).loss == 0
        odd = Application(tuple("abc"), (), (3, 3, 2))
        with pytest.raises(InfeasibleError):
            solve(Problem(odd, Network(("u", "v"), 0.0, 4)), "usage", solver=solver)

    def test_a_flat_metric_is_at_its_best(self, solver):
        problem = placement.example("B")
        flat = Ranges((0, 1), (-1, 0), (400, 400))
        assert solve(problem, Weights(0, 0, 1, "traffic"), flat, solver=solver).loss == 0


def test_a_time_limit_gives_a_placement_and_an_honest_gap():
    problem = placement.scenario("sequential", 36, seed=0)
    best = solve(problem, "response_s").loss
    seen = []
    quick = solve(problem, "response_s", time_limit_s=0.0, progress=seen.append)
    placement.check(problem, quick.placement)
    assert quick.bound <= best * (1 + 1e-9) <= quick.loss * (1 + 2e-9)
    assert quick.gap == pytest.approx((quick.loss - quick.bound) / quick.loss)
    assert seen
    assert all(a.loss >= b.loss for a, b in itertools.pairwise(seen))
    assert all(p.bound <= best * (1 + 1e-9) for p in seen)


def test_highs_tells_what_it_finds_on_its_way():
    problem = placement.scenario("replicated", 16, seed=0, operators=11)
    seen = []
    found = solve(problem, "usage", solver="highs", gap=0.3, progress=seen.append)
    best = solve(problem, "usage").loss
    assert found.bound <= best <= found.loss * (1 + 1e-9)
    assert found.gap <= 0.3
    assert seen[-1].loss == pytest.approx(found.loss)
    for event in seen:
        assert metric_costs(problem, "usage").of(problem, event.placement) == pytest.approx(event.loss)


@pytest.mark.parametrize("limit_s", [0.0, 0.5])
def test_highs_stops_in_time_with_an_honest_gap_or_says_that_it_has_nothing(limit_s):
    problem = placement.scenario("replicated", 16, seed=0, operators=11)
    best, found, said = solve(problem, "usage").loss, None, ""
    try:
        found = solve(problem, "usage", solver="highs", time_limit_s=limit_s)
    except PlacementError as error:
        said = str(error)
    if found is None:
        assert "no placement from HiGHS (time limit reached)" in said
    else:
        placement.check(problem, found.placement, found.metrics)
        assert found.bound <= best * (1 + 1e-9) <= found.loss * (1 + 2e-9)
        assert found.proven == (found.gap <= 1e-6)


def test_a_wanted_gap_ends_sooner_and_is_told():
    problem = placement.scenario("replicated", 36, seed=1)
    exact, rough = (solve(problem, "usage", gap=gap) for gap in (0.0, 0.3))
    assert rough.details["branches"] < exact.details["branches"]
    assert rough.bound <= exact.loss <= rough.loss
    assert rough.gap <= 0.3 + 1e-9


def test_scaling_the_rates_leaves_the_optimum():
    problem = layered(1, 4, 2, 1)
    app = problem.application
    more = Problem(
        Application(app.operators, app.streams, 1, app.time_s, 7 * app.rate_per_s), problem.network, problem.candidates
    )
    for aim in ("traffic", "usage", "energy"):
        assert solve(more, aim).loss == pytest.approx(7 * solve(problem, aim).loss)


def test_more_candidates_are_never_worse():
    problem = placement.scenario("replicated", 25, seed=2, operators=11)
    shares = (0.4, 0.7, 1.0)
    for aim in ("response_s", "usage"):
        few = sample_candidates(problem, shares[0], seed=1)
        losses = [solve(few, aim).loss]
        for share in shares[1:]:
            more = sample_candidates(problem, share, seed=2)
            joined = {o: tuple(dict.fromkeys((*few.candidates[o], *more.candidates[o]))) for o in more.candidates}
            few = Problem(problem.application, problem.network, joined)
            losses.append(solve(few, aim).loss)
        assert losses == sorted(losses, reverse=True)


def test_the_relaxation_bounds_the_optimum():
    from dspkit.placement.solvers.integer_program import relaxation

    free = placement.example("A free")
    for aim, bound in (("usage", 0.0), ("response_s", 0.028)):  # the card's figures
        x, loss = relaxation(free, metric_costs(free, aim))
        assert loss == pytest.approx(bound, abs=1e-9)
        assert x.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"solver": "cplex"}, "exact, highs, brute"),
        ({"time_limit_s": -1}, "number from 0"),
        ({"gap": math.nan}, "number from 0"),
        ({"weights": "speed"}, "response_s"),
    ],
)
def test_wrong_arguments(arguments, said):
    with pytest.raises(PlacementError, match=said):
        solve(placement.example("A"), **{"weights": "usage", **arguments})


def test_a_range_that_is_a_point_but_for_rounding_is_a_point():
    """Five equal operators on five nodes take the same time in any order, but for the last bits of the sum."""
    app = Application(tuple("abcde"), tuple(itertools.pairwise("acdbe")), 1, 0.01, 10)
    for fast in (1.7, 2.9, 3.3, 5.3, 7.1):
        problem = Problem(app, Network(tuple("uvwxy"), 0.0, 1, (1, 1, fast, 1, 1)))
        ranges = placement.find_ranges(problem)
        assert ranges.response_s[0] == ranges.response_s[1] == pytest.approx(0.04 + 0.01 / fast)
        assert solve(problem, Weights(1, 0, 0), ranges).loss == 0
