"""The loops: two phases of scheduling, and a ramp followed minute by minute."""

from dataclasses import replace

import numpy as np
import pytest

from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import (
    Application,
    Downtime,
    Limits,
    Network,
    Problem,
    Replication,
    Weights,
    follow,
    schedule,
    with_rates,
)
from dspkit.placement.datasets import replica_example

EXAMPLE = replica_example()
BALANCED = Weights(0.3, cost=0.3, downtime=0.4)


def test_two_phases():
    enacted = []
    rates = {("1", "2"): 10.0, ("2", "3"): 10.0}
    first, second = schedule(EXAMPLE, enacted.append, lambda: (rates, {"1": 10.0}), solver="brute")
    assert enacted == [first.nodes, second.nodes]
    assert first.replicas["2"] == 1  # without load and by cost, one is enough
    assert first.loss == pytest.approx(3)  # three replicas, no traffic that costs
    assert second.nodes["2"] == ("b", "b")  # as if the rates had been known
    assert second.loss == pytest.approx(3.215 / 18)


def test_rates_are_those_that_were_measured():
    problem = with_rates(EXAMPLE, (7, 5), {"1": 9})
    assert problem.load_per_s.tolist() == [9, 7, 5]
    assert problem.candidates == EXAMPLE.candidates
    assert problem.replication.traffic == EXAMPLE.replication.traffic


@pytest.mark.parametrize(
    "measured", [None, 3, ((1, 2),), ((1, -2), {}), ((1, 2), 3), ((1, 2), {"2": 1}), (("x", 2), {})]
)
def test_bad_measures(measured):
    with pytest.raises(PlacementError):
        schedule(EXAMPLE, list, lambda: measured, solver="brute")


@pytest.mark.parametrize("change", [{"enact": None}, {"measure": 3}, {"early": "speed"}])
def test_bad_schedules(change):
    given = {"enact": list, "measure": lambda: (10, {}), **change}
    with pytest.raises(PlacementError):
        schedule(EXAMPLE, given.pop("enact"), given.pop("measure"), **given)


def ramp(minutes=range(60)):
    """The thesis's hour, 70 to 220 records/s and back; partialRank may double in place, the others cost 7."""
    names = ("partial", *map(str, range(7)))
    for t in minutes:
        source = 70 + 5 * t if t <= 30 else 220 - 5 * (t - 30)
        replication = Replication(
            [2, *[1] * 7], [2371, *[np.inf] * 7], source_rate_per_s={"partial": 21.4 * source}
        )  # fmt: skip
        yield Problem(Application(names), Network(("a",), 0.0, 100), {}, replication, Downtime(state_bytes=1536))


@pytest.mark.parametrize(("weights", "out"), [((0.5, 0.5, 0.0), 7), ((0.3, 0.3, 0.4), 8), ((0.6, 0.0, 0.4), 8)])
def test_a_ramp_is_followed(weights, out):
    """The oracle of the card at every minute: change if the printed objective says so, else stay."""
    limits, w = Limits(0.175, 30, 7.5), Weights(weights[0], cost=weights[1], downtime=weights[2])
    two, changes = False, []
    for t, found in enumerate(follow(ramp(), w, limits, solver="brute")):
        rate = 21.4 * (70 + 5 * t if t <= 30 else 220 - 5 * (t - 30))
        r = {n: 1 / (2371 - rate / n) if rate / n < 2371 else np.inf for n in (1, 2)}
        loss = {n: w.response * r[n] / 0.175 + w.cost * (7 + n) / 30 for n in (1, 2)} if t else {1: 0, 2: 1}
        loss[1] += w.downtime * (0.25 / 7.5) * two
        loss[2] += w.downtime * (0.75 / 7.5) * (not two)
        allowed = [n for n in (1, 2) if r[n] <= 0.175]
        best = min(allowed, key=loss.get)
        assert found.replicas["partial"] == best, t
        if best != 1 + two:
            changes.append(t)
            assert found.downtime_s == pytest.approx(0.75 if best == 2 else 0.25)
        two = best == 2
    assert changes[0] == out


def test_a_node_that_goes_is_left():
    network = EXAMPLE.network
    lesser = Network(("a", "c"), network.delay_s[::2, ::2], 2, (1, 2), (0.99, 1))
    without = replace(EXAMPLE, network=lesser)
    moments = [replace(EXAMPLE, downtime=Downtime()), replace(without, downtime=Downtime())]
    before, after = follow(moments, BALANCED, Limits(0.4, 6, 4), first=Weights(1), solver="brute")
    assert before.nodes["2"] == ("b", "b")
    assert after.running.lost.tolist() == [False, True, False]
    assert after.actions["2"] == "scale-out"
    assert after.downtime_s > 0


def test_an_application_that_cannot_start_says_so():
    with pytest.raises(InfeasibleError):
        next(follow([replace(EXAMPLE, downtime=Downtime())], BALANCED, Limits(0.1, 6, 4)))
