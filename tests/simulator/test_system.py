"""Simulated clusters, and every way to describe one wrong."""

import pytest

from dspkit import Plant, Topology
from dspkit.core import ArgumentError
from dspkit.simulator import Node, Service

FORK = Topology(("a", "b", "c"), (("a", "b"), ("a", "c")))


def _services(**changed):
    return {name: changed.get(name, Service()) for name in FORK.order}


@pytest.mark.parametrize("wrong", ["x", None, -1, float("nan"), float("inf"), True, {"b": "x"}, {"b": None}, [1, 2]])
def test_a_selectivity_is_a_finite_number_from_zero(wrong):
    with pytest.raises(ArgumentError, match=r"selectivity=.*; expected a finite number from 0 up"):
        Service(selectivity=wrong)


@pytest.mark.parametrize(
    ("services", "nodes", "message"),
    [
        ({"a": 1e-3}, {"n": Node()}, r"services with 'a': 0\.001; .* wrap it: Service\(0\.001\)"),
        ({3: Service()}, {"n": Node()}, "services with 3"),
        ([Service()], {"n": Node()}, "services=.*; expected a mapping by name"),
        ({"a": Service()}, {"n": 4}, r"nodes with 'n': 4; .* wrap it: Node\(4\)"),
        ({"a": Service()}, 4, "nodes=4; expected a mapping by name"),
        ({"a": Service()}, {"n": Service()}, "a Node per name; as in"),
        ({"a": Service()}, {}, "no nodes"),
    ],
)
def test_a_plant_that_cannot_be_is_refused_by_name(services, nodes, message):
    with pytest.raises(ArgumentError, match=message):
        Plant(services, nodes)


@pytest.mark.parametrize(
    ("services", "message"),
    [
        ({"a": Service()}, r"services for \['a'\]; expected one per operator: \['a', 'b', 'c'\]"),
        (_services(a=Service(selectivity={"b": 1})), r"toward \['b'\]; expected one per receiver: \['b', 'c'\]"),
        (_services(b=Service(selectivity={"a": 1})), r"toward \['a'\]; expected one per receiver: \[\]"),
        (_services(a=Service(results=2)), "results=2 of 'a', which feeds .*; expected results of sinks only"),
    ],
)
def test_a_plant_that_does_not_fit_its_topology_is_refused(services, message):
    with pytest.raises(ArgumentError, match=message):
        Plant(services).check(FORK)


def test_what_goes_to_an_operator_is_what_was_said():
    each = Service(selectivity={"b": 0.25, "c": 2})
    assert (each.toward("b"), each.toward("c"), Service(selectivity=0.5).toward("b")) == (0.25, 2, 0.5)
    with pytest.raises(KeyError):
        each.toward("typo")
    plant = Plant(_services(a=each, c=Service(results=0)))
    assert plant.check(FORK).services["c"].results == 0


def test_more_instances_follow_the_universal_scalability_law():
    service = Service(0.5, contention=0.1, coherency=0.01)
    assert [service.seconds(k) for k in (1, 3)] == pytest.approx([0.5, 0.5 * (1 + 0.1 * 2 + 0.01 * 6)])
