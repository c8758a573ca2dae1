"""The worked examples of the EDRP card: downtimes, decisions, sizes of sets and programs, event times."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dspkit.placement import Application, Downtime, Limits, Network, Problem, Replication, Weights, loss, metrics, solve
from dspkit.placement.datasets import replica_example
from dspkit.placement.metrics import limited_objective
from dspkit.placement.replication.options import multisets, neighbours, options
from dspkit.placement.replication.solve import elastic_program, one_step
from replicas import taxi

NODES = "abcd"


def problem_of(state_bytes, operators=1, **settings):
    """Return one operator that matters, and idle ones that carry code only."""
    names = tuple("xyzuvwst"[:operators])
    network = Network(tuple(NODES), 0.01, 100)
    state = (state_bytes, *[0.0] * (operators - 1))
    return Problem(Application(names), network, replication=Replication(3), downtime=Downtime(state, **settings))


def one(*given, **settings):
    """Return the downtime of such a problem."""
    return problem_of(*given, **settings).downtime_model


def row(nodes):
    return np.array([nodes.count(n) for n in NODES])


def of_one(downtime, old, new, **settings):
    return downtime.operator_s(0, row(old), row(new), **settings) * 1e3


@pytest.mark.parametrize(
    ("state", "old", "new", "ms"),
    [
        (1536, "a", "b", 794.12288), (1536, "a", "ab", 794.06144), (1536, "ab", "a", 270.12288),
        (1536, "a", "aa", 750), (1536, "aa", "a", 250), (0, "a", "b", 784), (1376, "a", "b", 794.11008),
        (10e6, "a", "b", 2370), (10e6, "a", "ab", 1570), (10e6, "ab", "a", 1070),
        (1536, "ab", "acd", 794.04096), (1536, "abc", "abd", 794.04096), (1536, "ab", "ab", 0),
    ],
)  # fmt: skip
def test_general_downtime(state, old, new, ms):
    assert of_one(one(state), old, new) == pytest.approx(ms, abs=1e-9)


def test_variants_of_the_general_downtime():
    assert of_one(one(0, zero_transfer="rtt"), "a", "b") == pytest.approx(794)
    up, down = one(1536).moved_bytes(0, row("ab"), row("acd"))
    assert (up[:2], down[2:]) == (pytest.approx([256, 768]), pytest.approx([512, 512]))
    up, _ = one(1536, upload_form="printed").moved_bytes(0, row("ab"), row("acd"))
    assert up[:2] == pytest.approx([256, 1024])


def test_uploads_equal_downloads():
    rows = multisets(4, 3)
    pairs = [(u, v) for u, v in product(rows, rows) if (u != v).any()]
    assert len(pairs) == 1122

    def unequal(downtime):
        return sum(abs(np.subtract(*map(np.sum, downtime.moved_bytes(0, u, v)))) > 1e-9 for u, v in pairs)

    assert unequal(one(1.0)) == 0
    assert unequal(one(1.0, upload_form="printed")) == 224


STORM = {"model": "storm", "sync_s": 6.0}


@pytest.mark.parametrize(
    ("old", "new", "hosts", "ms"),
    [
        ("a", "b", "ab", 6520.24576), ("a", "b", "a", 6722.24576), ("a", "ab", "ab", 6520.18432),
        ("a", "aa", "a", 7000), ("aa", "bb", "ab", 7020.24576),
    ],
)  # fmt: skip
def test_storm_downtime(old, new, hosts, ms):
    downtime = one(1536, operators=8, **STORM)
    assert of_one(downtime, old, new, hosts=row(hosts) > 0) == pytest.approx(ms, abs=1e-9)


def test_storm_restart_of_what_does_not_change():
    downtime = one(1536, operators=8, **STORM)
    assert downtime.restart_s(0, row("a")) == pytest.approx(6.5)
    assert downtime.restart_s(0, row("aa")) == pytest.approx(7.0)
    problem = problem_of(1536, operators=8, **STORM)
    runs = {"x": "a", "y": ("a", "a"), **dict.fromkeys("zuvwst", "b")}
    assert problem.downtime_s(runs, {**runs, "x": "b"}) == pytest.approx(7.0)  # y spawns two, though it stays
    assert problem.downtime_s(runs, runs) == 0
    slow = one(1536, **STORM, swap_out_bytes_per_s=1536, swap_in_bytes_per_s=768)
    assert slow.restart_s(0, row("a")) == pytest.approx(6 + 1 + 2 + 0.5)


DECISION = replace(replica_example(), downtime=Downtime(state_bytes=(0, 1.25e6, 0)))
RUNS = {"1": "a", "2": "a", "3": "c"}
BASE, BALANCED, RESPONSE, ALONE = (
    Weights(r, cost=c, downtime=d) for r, c, d in ((0.5, 0.5, 0), (0.3, 0.3, 0.4), (0.6, 0, 0.4), (1, 0, 0))
)
LIMITS = Limits(0.4, 6, 4)
TABLE = {  # nodes of operator 2: downtime ms, printed upload, losses for the four weightings
    "a": (0, 0, 0.663542, 0.398125, 0.476250, 0.793750), "b": (970, 970, 0.680208, 0.505125, 0.573250, 0.793750),
    "c": (970, 970, 0.507292, 0.401375, 0.385750, 0.481250),
    "ab": (870, 870, 0.594097, 0.443458, 0.369917, 0.471528),
    "ac": (870, 870, 0.610764, 0.453458, 0.399917, 0.521528),
    "bb": (970, 1020, 0.589931, 0.450958, 0.364917, 0.446528),
    "bc": (920, 970, 0.606597, 0.455958, 0.389917, 0.496528),
}  # fmt: skip


@pytest.mark.parametrize("nodes", TABLE)
def test_losses_of_the_full_decision(nodes):
    where = {**RUNS, "2": tuple(nodes)}
    kept_ms, printed_ms, *losses = TABLE[nodes]
    moved = DECISION.downtime_s(RUNS, where)
    assert moved * 1e3 == pytest.approx(kept_ms)
    literal = replace(DECISION, downtime=replace(DECISION.downtime, upload_form="printed"))
    printed = literal.downtime_s(RUNS, where)
    assert printed * 1e3 == pytest.approx(printed_ms)
    for weights, by_hand in zip((BASE, BALANCED, RESPONSE, ALONE), losses, strict=True):
        found = loss(metrics(DECISION, where), weights, LIMITS, moved)
        assert found == pytest.approx(by_hand, abs=6e-7)


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
@pytest.mark.parametrize(("weights", "best"), [(BASE, "c"), (BALANCED, "a"), (RESPONSE, "bb"), (ALONE, "bb")])
def test_full_decision(solver, weights, best):
    found = solve(DECISION, weights, limits=LIMITS, running=RUNS, solver=solver)
    assert "".join(found.nodes["2"]) == best
    assert found.status == "optimal"
    assert found.actions["2"] == {"a": "none", "c": "migrate", "bb": "scale-out"}[best]
    assert found.downtime_s * 1e3 == pytest.approx(TABLE[best][0])


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
def test_bounds_and_one_step(solver):
    tight = solve(DECISION, BALANCED, limits=Limits(0.3, 6, 4), running=RUNS, solver=solver)
    assert (tight.nodes["2"], tight.loss) == (("c",), pytest.approx(0.4495))
    step = solve(DECISION, RESPONSE, limits=LIMITS, running=RUNS, restricted=True, solver=solver)
    assert step.nodes["2"] == ("a", "b")


def test_when_the_thesis_scales_out_first():
    """partialRank doubles in place; the others cost 7 and take no time: first at 7 minutes, balanced at 8."""
    names = ("partial", *map(str, range(7)))
    network = Network(("a",), 0.0, 100)
    stays = (0.145702, 0.156375, 0.301401), (0.087421, 0.093825, 0.180840)
    goes = (0.152196, 0.152290, 0.152393), (0.131318, 0.131374, 0.131436)
    for weights, stay, go, first in ((BASE, stays[0], goes[0], 7), (BALANCED, stays[1], goes[1], 8)):
        for k, minute in enumerate((6, 7, 8)):
            load = {"partial": 21.4 * (70 + 5 * minute)}
            replication = Replication([2, *[1] * 7], [2371, *[np.inf] * 7], source_rate_per_s=load)
            problem = Problem(Application(names), network, {}, replication, Downtime(state_bytes=1536))
            runs = dict.fromkeys(names, "a")
            limits = Limits(0.175, 30, 7.5)
            both = {**runs, "partial": ("a", "a")}
            for where, printed in ((runs, stay[k]), (both, go[k])):
                found = loss(metrics(problem, where), weights, limits, problem.downtime_s(runs, where))
                assert found == pytest.approx(printed, abs=6e-7)
            action = solve(problem, weights, limits=limits, running=runs).actions["partial"]
            assert (action == "scale-out") == (minute >= first)


@pytest.mark.parametrize(
    ("nodes", "runs", "most", "size"),
    [(3, "a", 3, 6), (3, "ab", 2, 7), (3, "aa", 2, 4), (3, "ab", 3, 10), (8, "a", 3, 16)],
)
def test_sizes_of_the_neighbourhood(nodes, runs, most, size):
    running = np.array([runs.count(n) for n in "abcdefgh"[:nodes]])
    assert neighbours(multisets(nodes, most), running).sum() == size
    if runs == "a":
        assert neighbours(multisets(nodes, most), running, printed=True).sum() == {3: 9, 8: 44}[nodes]


@pytest.mark.parametrize(("nodes", "most", "columns"), [(8, 2, 9470), (12, 2, 37_364), (8, 3, 113_750)])
def test_variables_of_the_thesis(nodes, most, columns):
    problem = taxi(nodes, most)
    runs = {o: "n0" if k < 4 else "n1" for k, o in enumerate(problem.application.operators)}
    problem = replace(problem, downtime=Downtime())
    downtime, running = problem.downtime_model, problem.running(runs)
    objective = limited_objective(BALANCED, LIMITS)
    program = elastic_program(options(problem), downtime, running, objective, LIMITS, thesis=True)
    assert len(program.cost) == columns
    near = options(problem, one_step(running))
    small = elastic_program(near, downtime, running, objective, LIMITS, thesis=True)
    m = 2 * nodes
    assert len(small.cost) == 4 * m**2 + 4 * nodes * m + 5 * m + 4 * nodes + nodes**2 + 2
