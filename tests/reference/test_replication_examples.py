"""The worked examples of the ODRP card: every printed metric, utility, count and threshold."""

from dataclasses import replace

import numpy as np
import pytest

from dspkit import placement
from dspkit.placement import Application, Network, Problem, Ranges, Replication, Weights, metrics, solve, utility
from dspkit.placement.datasets import replica_example
from dspkit.placement.generators import sequential_application
from dspkit.placement.metrics import REPLICA_AIMS as AIMS
from dspkit.placement.metrics import single_objective
from dspkit.placement.replication.options import how_many, multisets, options
from dspkit.placement.replication.program import replica_program
from dspkit.placement.replication.solve import feasible
from replicas import taxi

CHAIN = replica_example()
TABLE = {  # nodes of operator 2: R ms, A, C with multiplicity, with support, T B/s with multiplicity, with support
    "a": (317.5, 0.9900, 3.2, 3.2, 15000, 15000),
    "b": (317.5, 0.9702, 3.4, 3.4, 30000, 30000),
    "c": (192.5, 0.9900, 3.2, 3.2, 15000, 15000),
    "ab": (188.6111, 0.9702, 4.3, 4.3, 22500, 22500),
    "ac": (208.6111, 0.9900, 4.2, 4.2, 15000, 15000),
    "bb": (3215 / 18, 0.9702, 4.4, 4.2, 30000, 15000),
    "bc": (198.6111, 0.9702, 4.3, 4.3, 22500, 22500),
}


def deployed(nodes):
    return {"1": "a", "2": tuple(nodes), "3": "c"}


def ranges_of_all(problem):
    found = [metrics(problem, deployed(nodes)) for nodes in TABLE]
    columns = ([getattr(m, name) for m in found] for name in ("response_s", "log_availability", "traffic", "cost"))
    return Ranges(*((min(c), max(c)) for c in columns))


@pytest.mark.parametrize("nodes", TABLE)
@pytest.mark.parametrize("traffic", ["multiplicity", "support"])
@pytest.mark.parametrize("of", [metrics, placement.check])
def test_table(nodes, traffic, of):
    found = of(replica_example(traffic=traffic), deployed(nodes))
    response_ms, availability, *rest = TABLE[nodes]
    cost, traffic_bytes = rest[0::2] if traffic == "multiplicity" else rest[1::2]
    assert found.response_s * 1e3 == pytest.approx(response_ms, abs=6e-5)
    assert found.availability == pytest.approx(availability, abs=1e-12)
    assert found.cost == pytest.approx(cost)
    assert found.traffic == pytest.approx(traffic_bytes)


def test_candidates_and_feasible_ones():
    assert len(multisets(3, 2)) == 9
    named = [CHAIN.nodes_of(d)["2"] for d in feasible(options(CHAIN))]
    assert {"".join(n) for n in named} == set(TABLE)
    assert len(named) == 7


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
def test_one_objective_alone_has_the_placements_of_the_thesis_s_example(solver):
    assert solve(CHAIN, "response_s", solver=solver).nodes["2"] == ("b", "b")
    cheapest = solve(CHAIN, "cost", solver=solver)
    assert cheapest.loss == pytest.approx(3.2)
    assert cheapest.nodes["2"] in {("a",), ("c",)}


def test_uniform_weights():
    printed = {"a": 0.750, "b": 0.208333, "c": 0.975, "ab": 0.377833, "ac": 0.737667, "bb": 0.25, "bc": 0.359833}
    weights, ranges = Weights(0.25, 0.25, 0.25, "traffic", cost=0.25), ranges_of_all(CHAIN)
    for nodes, worth in printed.items():
        found = metrics(CHAIN, deployed(nodes))
        assert utility(found, weights, ranges) == pytest.approx(worth, abs=6e-7)
    answer = solve(CHAIN, weights, ranges)
    assert answer.nodes["2"] == ("c",)
    assert answer.loss == pytest.approx(1 - 0.975)
    support = replica_example(traffic="support")
    found = metrics(support, deployed("bb"))
    assert utility(found, weights, ranges_of_all(support)) == pytest.approx(0.522727, abs=6e-7)


def test_optimum_flips_at_ten_elevenths():
    ranges = ranges_of_all(CHAIN)

    def best(response):
        answer = solve(CHAIN, Weights(response, cost=1 - response), ranges)
        return "".join(answer.nodes["2"]), 1 - answer.loss

    assert best(0.95) == ("bb", pytest.approx(0.95))
    other = metrics(CHAIN, deployed("c"))
    assert utility(other, Weights(0.95, cost=0.05), ranges) == pytest.approx(0.905)
    assert best(10 / 11 - 1e-3)[0] == "c"
    assert best(10 / 11 + 1e-3)[0] == "bb"


def test_a_used_node_counts_once():
    problem = Problem(sequential_application(3), Network(("a", "c"), 0.01, 3, 1, (0.99, 1)))
    where = {"0": "a", "1": "a", "2": "c"}
    assert metrics(replace(problem, replication=Replication()), where).availability == pytest.approx(0.99)
    assert placement.metrics(problem, where).availability == pytest.approx(0.9801)


def pipeline(rates, heavy=()):
    """The numerical experiments' pipeline of ten on one perfect node: network effects are nil."""
    names = tuple(map(str, range(10)))
    mu = [np.inf, *[20.0] * 8, np.inf]
    factor = [5.0 if i in heavy else 1.0 for i in range(10)]
    most = [1, *[2] * 8, 1]
    app = Application(names, tuple(zip(names, names[1:], strict=False)), 1, 0, [*rates, rates[-1]])
    return Problem(app, Network(("n",), 0.0, 100), replication=Replication(most, mu, factor))


REPLICAS = {  # weights of response and cost: instances at 2, 4, ..., 18 records/s
    (0.8, 0.2): (10, 10, 10, 10, 12, 16, 18, 18, 18),
    (0.5, 0.5): (10, 10, 10, 10, 10, 10, 10, 12, 14),
    (0.2, 0.8): (10,) * 9,
}
LATENCY_MS = (436.8, 481.2, 535.9, 605.1, 632.7, 584.0, 568.4, 605.1, 647.1)
ONE_EACH_MS = (436.8, 481.2, 535.9, 605.1, 695.7, 819.9, 1003.0, 1306.8, 1964.4)


@pytest.mark.parametrize("weights", REPLICAS)
def test_when_replication_pays(weights):
    ranges = Ranges((1.230, 2.810), (-1.0, 0.0), (8e3, 40e3), (11, 25))
    for k, rate in enumerate(range(2, 20, 2)):
        problem = pipeline([rate * 0.95**i for i in range(8)])
        answer = solve(problem, Weights(weights[0], cost=weights[1]), ranges)
        assert sum(answer.replicas.values()) == REPLICAS[weights][k]
        if weights == (0.8, 0.2):
            assert answer.metrics.response_s * 1e3 == pytest.approx(LATENCY_MS[k], abs=0.06)
        if weights == (0.2, 0.8):
            assert answer.metrics.response_s * 1e3 == pytest.approx(ONE_EACH_MS[k], abs=0.06)


def test_least_response_time_of_the_numerical_experiments():
    problem = pipeline([14.0] * 8, heavy=(4, 5))
    assert solve(problem, "response_s").loss == pytest.approx(1.23077, abs=6e-6)
    alone = solve(replace(problem, replication=replace(problem.replication, max_replicas=1)), "response_s")
    assert alone.loss == pytest.approx(2.66667, abs=6e-6)


@pytest.mark.parametrize(("nodes", "most", "count"), [(3, 2, 9), (6, 3, 83), (8, 2, 44), (15, 2, 135), (24, 2, 324)])
def test_how_many_multisets(nodes, most, count):
    assert how_many(nodes, most) == len(multisets(nodes, most)) == count


def test_variables_of_the_thesis():
    problem = replace(taxi(6, 3), replication=Replication(3))
    program = replica_program(options(problem), single_objective("response_s"), thesis=True)
    assert len(program.cost) == 55_819
    assert AIMS[0] == "response_s"
