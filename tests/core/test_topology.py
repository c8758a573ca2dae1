"""What can run, and every way to say it wrong."""

import copy
import pickle
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from dspkit import Deployment, Operator, Topology
from dspkit.core import DeploymentError, TopologyError
from dspkit.testing.strategies import topologies

CHAIN = Topology.chain("read", "count", "write", max_parallelism=8)


@pytest.mark.parametrize(
    ("operators", "edges", "came", "fix"),
    [
        (("a", "b", "c"), (("a", "b"), ("b", "c"), ("c", "b")), "cycle 'b' -> 'c' -> 'b'", "remove one"),
        (("a", "b"), (("a", "a"), ("a", "b")), "cycle 'a' -> 'a'", "remove one"),
        (("a", "b"), (("a", "b"), ("b", "x")), "unknown operator 'x'", "add an operator of that name"),
        (("a", "b"), (("a", "b"), ("b", "")), "unknown operator ''", "rename the end of the edge"),
        (("a", "b"), (("a", "b"), (None, "b")), "unknown operator None", "rename the end of the edge"),
        (("a", "b"), (("a", "b"), (0, "b")), "unknown operator 0", "rename the end of the edge"),
        (("a", "b", "c"), (("a", "b", "c"),), "edge ('a', 'b', 'c')", "two edges"),
        (("a", "b"), ("ab",), "edge 'ab'", "two edges"),
        (("a", "b"), "ab", "edges = 'ab'", "pass edges="),
        (("a", "b"), 3, "edges = 3", "pass edges="),
        ("ab", (("a", "b"),), "operators = 'ab'", "pass operators="),
        (("a", 3), (("a", 3),), "operator 3", "pass operators="),
        (("a", "b", "a"), (("a", "b"),), "operator 'a' twice", "drop or rename"),
        (("a", "b"), (("a", "b"), ("a", "b")), "edge ('a', 'b') twice", "drop or rename"),
        (("a", "b", "lone"), (("a", "b"),), "isolated operator 'lone'", "connect it"),
        ((), (), "no operator", "Operator("),
        (("a", " "), (("a", " "),), "operator name ' '", "name"),
        (("a", "\ud800"), (("a", "\ud800"),), "operator name '\\ud800'", "name"),
    ],
)
def test_a_graph_that_is_none_is_refused_with_a_reason(operators, edges, came, fix):
    with pytest.raises(TopologyError) as error:
        Topology(operators, edges)
    assert came in str(error.value)
    assert "expected" in str(error.value)
    assert fix in error.value.fix


def test_a_cycle_is_told_along_its_edges():
    edges = [("s", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "t")]
    with pytest.raises(TopologyError, match="cycle") as error:
        Topology(("s", "a", "b", "c", "t"), edges)
    told = re.findall(r"'(\w)'", error.value.got)
    assert len(told) == 4
    assert set(zip(told, told[1:], strict=False)) == {("a", "b"), ("b", "c"), ("c", "a")}


@pytest.mark.parametrize(("low", "high"), [(0, 4), (5, 4), (1.5, 4), ("1", 4), (1, None), (True, 4), (1, True)])
def test_bounds_of_an_operator_are_whole_and_in_order(low, high):
    with pytest.raises(TopologyError, match="min_parallelism"):
        Operator("a", max_parallelism=high, min_parallelism=low)


def test_an_operator_holds_plain_values():
    made = Operator("a", np.int64(4), np.int32(2), stateful=np.bool_(True))
    assert [type(v) for v in (made.max_parallelism, made.min_parallelism, made.stateful)] == [int, int, bool]
    assert made == Operator("a", 4, 2, stateful=True)


@pytest.mark.parametrize(
    ("parallelism", "message"),
    [
        ({"read": 1, "count": 1}, "misses ['write']"),
        ({"read": 1, "count": 1, "write": 1, "more": 1}, "adds ['more']"),
        ({"read": 1, "count": 9, "write": 1}, "parallelism 9 for 'count'; expected 1 to 8"),
    ],
)
def test_a_deployment_that_does_not_fit_is_refused(parallelism, message):
    with pytest.raises(DeploymentError) as error:
        CHAIN.check(Deployment(parallelism))
    assert message in str(error.value)
    with pytest.raises(DeploymentError, match="expected a Deployment"):
        CHAIN.check(parallelism)


def test_a_parallelism_below_an_operators_least_is_refused():
    topology = Topology((Operator("a", 4, 2), "b"), (("a", "b"),))
    with pytest.raises(DeploymentError, match="parallelism 1 for 'a'; expected 2 to 4"):
        topology.check(Deployment({"a": 1, "b": 1}))
    assert topology.check(Deployment({"a": 2, "b": 1})).instances == 3
    assert topology.clip({"a": 1}) == {"a": 2}


@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, "3", None, True, float("nan")])
def test_parallelism_is_a_whole_number_from_one_up(k):
    with pytest.raises(DeploymentError, match="whole number from 1 up"):
        Deployment({"read": k})


@pytest.mark.parametrize(
    "wrong",
    [
        {"parallelism": 3},
        {"parallelism": None},
        {"parallelism": {1: 1}},
        {"placement": [("a", 0)]},
        {"placement": {"a": "node"}},
        {"placement": {("a", 0, 1): "node"}},
        {"placement": {(3, 0): "node"}},
        {"placement": {("a", 0.5): "node"}},
        {"placement": {("a", True): "node"}},
        {"placement": {("a", "0"): "node"}},
        {"placement": {("a", -1): "node"}},
        {"placement": {("a", 0): 7}},
        {"placement": {("a", 0): "\ud800"}},
        {"settings": "fast"},
        {"workers": 0},
    ],
)
def test_what_is_no_deployment_is_refused(wrong):
    with pytest.raises(DeploymentError) as error:
        Deployment(**{"parallelism": {"a": 1}, **wrong})
    assert next(iter(wrong))[:6] in str(error.value) or "instance of 'a'" in str(error.value)


def test_a_place_is_held_under_a_plain_key():
    deployment = Deployment({"a": np.int64(1)}, placement={("a", np.int64(0)): "node"})
    assert [type(index) for _, index in deployment.placement] == [int]


@pytest.mark.parametrize("instance", [("count", 2), ("typo", 0)])
def test_an_instance_that_does_not_run_has_no_place(instance):
    deployment = Deployment({"read": 1, "count": 2, "write": 1}, placement={instance: "node"})
    with pytest.raises(DeploymentError, match=f"instance {instance[1]} of '{instance[0]}'"):
        CHAIN.check(deployment)


def test_clip_rounds_up_but_not_over_rounding_errors():
    assert CHAIN.clip({"read": 0.0, "count": 3.0000000001, "write": 3.1}) == {"read": 1, "count": 3, "write": 4}
    assert CHAIN.clip({"read": float("inf"), "count": 8.01}) == {"read": 8, "count": 8}
    assert CHAIN.clip({"read": -5, "count": np.float32(2.5)}) == {"read": 1, "count": 3}


@pytest.mark.parametrize("k", [float("nan"), float("-inf"), None, "3", np.float64("nan")])
def test_clip_refuses_what_is_no_number(k):
    with pytest.raises(DeploymentError, match="of 'count'; expected a number"):
        CHAIN.clip({"read": 1, "count": k})


def test_an_unknown_operator_is_named_with_those_known():
    with pytest.raises(TopologyError, match=r"'typo'; expected one of 'read', 'count', 'write'"):
        CHAIN.upstream("typo")


@given(topologies())
def test_order_sources_and_sinks_are_those_of_networkx(topology):
    graph = nx.DiGraph(topology.edges)
    graph.add_nodes_from(o.name for o in topology.operators)
    place = {name: i for i, name in enumerate(topology.order)}
    assert all(place[u] < place[v] for u, v in graph.edges)
    assert set(topology.sources) == {n for n, degree in graph.in_degree() if degree == 0}
    assert set(topology.sinks) == {n for n, degree in graph.out_degree() if degree == 0}
    for name in topology.order:
        assert set(topology.upstream(name)) == set(graph.predecessors(name))
        assert set(topology.downstream(name)) == set(graph.successors(name))


def test_what_runs_cannot_be_changed_and_survives_copies():
    deployment = Deployment({"read": 1, "count": 2, "write": 1}, workers=2, settings={"a": [1, {"b": 2}]})
    with pytest.raises(TypeError, match="frozen"):
        deployment.parallelism["count"] = 5
    for twin in (pickle.loads(pickle.dumps(deployment)), copy.deepcopy(deployment)):
        assert twin == deployment
        assert hash(twin) == hash(deployment)
    assert deployment.scaled({"count": 5}).parallelism == {"read": 1, "count": 5, "write": 1}
    assert deployment.instances == 4
