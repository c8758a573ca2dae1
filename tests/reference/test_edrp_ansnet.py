"""What the thesis prints of EDRP's hour (Table 8.3 and its text), on ANSNET with ends that were searched for."""

import numpy as np
import pytest

from dspkit.core import PlacementError
from dspkit.placement.datasets import SETTINGS, taxi_query
from reproduction.edrp import ansnet as edrp_ansnet
from reproduction.edrp import study as edrp
from reproduction.edrp.network import CITIES, LINKS, ansnet, on_the_way

ROUTE = {"parser", "filter_by_coordinates", "compute_route_id"}
KM = {  # as published with another copy of the Topology Zoo's map (topohub)
    ("Chicago", "Denver"): 1475.80, ("Albuquerque", "Houston"): 1212.68, ("Atlanta", "Greensboro"): 492.38,
    ("Dallas", "Houston"): 362.81, ("Cleveland", "New York"): 650.10, ("St Louis", "Chicago"): 418.62,
}  # fmt: skip


@pytest.fixture(scope="module")
def hours():
    return edrp_ansnet.runs(edrp_ansnet.query())


@pytest.fixture(scope="module")
def told(hours):
    return {name: edrp.summary(found) for name, found in hours.items()}


def test_each_fact_can_fail():
    """An hour in which all objectives are alike keeps none of them."""
    nothing = {
        "first_out_min": 9,
        "last_in_min": 9,
        "reconfigurations": 9,
        "outs": 9,
        "ins": 9,
        "cost": 9.0,
        "R_ms": 9.0,
    }
    same = {name: {**nothing, "downtime_s": 9.0} for name in (edrp.LITERAL, *SETTINGS)}
    assert not any(edrp_ansnet.holds(same).values())


def test_every_decision_is_proven(told):
    assert all(row["proven"] == 1 for row in told.values())


def test_balanced_doubles_and_undoes_who_is_named(hours):
    """partialRank at 8; parser, filterByCoordinates, computeRouteID at 27 and undone at 46: within a minute or two."""
    first, second, third = edrp_ansnet.events(hours["balanced"])
    assert (first["minute"], first["out"]) == (8, ["partial_rank"])
    assert set(second["out"]) == ROUTE == set(third["in"])
    assert abs(second["minute"] - 27) <= 1
    assert abs(third["minute"] - 46) <= 1
    left = hours["balanced"][-1].replicas
    assert [name for name, count in left.items() if count > 1] == ["partial_rank"]


def test_the_baseline_migrates_before_it_doubles(hours):
    """ "As load starts growing, EDRP repeatedly migrates components": a program that knows nothing of what runs."""
    changes = edrp_ansnet.events(hours[edrp.LITERAL])
    before = [event for event in changes if event["minute"] < 7]
    assert len(before) >= 2
    assert all(event["moved"] and not event["out"] for event in before)
    assert {name: n for name, n in hours[edrp.LITERAL][-1].replicas.items() if n > 1} == {}


def test_response_time_doubles_in_two_phases(hours):
    changes = edrp_ansnet.events(hours["response time"])
    assert [set(event["out"]) for event in changes if event["out"]] == [{"partial_rank"}, ROUTE]
    assert sum(event["minute"] > 50 for event in changes if event["in"]) == 1


def test_costs_and_downtimes_are_near_the_printed(told):
    for name in SETTINGS:
        assert told[name]["cost"] == pytest.approx(edrp.PRINTED[name][1], rel=0.05)
    for name in ("balanced", "response time"):
        assert told[name]["downtime_s"] <= 3 * 0.794 + 1e-3  # printed 2.4 s is three times the longest change


def test_distances_are_those_of_the_published_map():
    network = ansnet()
    delay = {pair: network.delay_s[network.index[pair[0]], network.index[pair[1]]] for pair in KM}
    per_km = [delay[pair] / km for pair, km in KM.items()]
    assert np.ptp(per_km) < 0.005 * np.mean(per_km)


def test_ansnet_is_one_network_of_32_ms():
    network = ansnet()
    away = network.delay_s[~np.eye(15, dtype=bool)]
    assert len(CITIES) == 15
    assert (
        len({frozenset(link) for link in LINKS}) == 21
    )  # 25 without Hawaii, two within a city, and one that is there twice
    assert away.mean() == pytest.approx(0.032)
    assert np.isfinite(away).all()
    detour = network.delay_s[:, :, None] + network.delay_s[None]
    assert (network.delay_s <= detour.min(axis=1) + 1e-12).all()


def test_nodes_on_the_way():
    network = ansnet()
    assert on_the_way(network, "Seattle", "Seattle") == 1
    assert on_the_way(network, "New York", "Hartford") == 2
    assert on_the_way(network, "New York", "Los Angeles") == 7


def test_ends_are_named_nodes():
    query = edrp_ansnet.query(("Seattle", "Atlanta"))
    assert edrp.free_way(query) == on_the_way(ansnet(), "Seattle", "Atlanta")
    with pytest.raises(PlacementError, match="two nodes"):
        taxi_query(network=ansnet(), pinned=("Seattle", "Rome"))
