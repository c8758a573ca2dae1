"""The two layers in runs: periods, what is dropped, other managers, backends without places."""

import math
from dataclasses import replace

import pytest

from dspkit import Deployment, Topology, run
from dspkit.core import ArgumentError
from dspkit.policies._managers import ManagerView, ReplicaAction, applied, delay, plan_action
from dspkit.policies.ds2 import DS2
from dspkit.policies.guards import RescaleBudget
from dspkit.policies.hierarchical import Bucket, Hierarchical
from dspkit.simulator import Node, Plant, Service, Simulator
from dspkit.workload import Constant, Square

CHAIN = Topology.chain("source", "work", "sink", max_parallelism=4)


def _job(load, seconds=None, **options):
    seconds = seconds or {"source": 1e-4, "work": 1e-2, "sink": 1e-4}
    plant = Plant({n: Service(s) for n, s in seconds.items()}, {f"n{i}": Node(8) for i in range(3)}, pause_s=2.0)
    return Simulator(CHAIN, plant, load, window_s=10.0, seed=1, **options)


def test_both_periods_count_by_themselves():
    """Managers of operators ask every 20 s; the one for all answers every 60 s, and only the newest request counts."""
    policy = Hierarchical(grants="all", decision_interval_s=20, grant_interval_s=60)
    history = run(policy, _job(Constant(150)), steps=12)
    acted = [step.snapshot.t for step in history if step.rescaled]
    assert acted[0] == 60
    rules = [step.snapshot.t for step in history if "granted" in step.decision.why]
    assert rules == [60, 120]
    asked = [len(step.decision.why["asked"]) for step in history if step.snapshot.t <= 50]
    assert asked == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(("hears", "response"), [("calm", 0.09), ("all", 0.56), ("worst", 3.0)])
def test_what_counts_as_the_response_time(hears, response):
    """Mean, median, 99 % and whether it stood still: two calm windows, and one with a stop."""
    policy = Hierarchical(hears=hears)
    heard = ((0.08, 0.07, 0.2, False), (0.10, 0.09, 0.3, False), (1.5, 0.1, 3.0, True))
    state = policy.init(CHAIN)._replace(heard=heard)
    assert policy.response(state) == pytest.approx(response)
    assert policy.response(policy.init(CHAIN)) == math.inf


def test_what_is_declined_is_dropped_and_asked_anew():
    policy = Hierarchical(beta=1.0, target_latency_s=1000.0)  # never a token
    history = run(policy, _job(Constant(150)), steps=12)
    assert not any(step.rescaled for step in history)
    requests, granted = history[-1].state.counts
    assert (requests, granted) == (4, 0)  # one a period of 30 s
    assert history[-1].state.requests == ()


def test_tokens_bound_the_grants():
    policy = Hierarchical(beta=0.0, tokens_per_min=1.0)
    history = run(policy, _job(Square(20, 250, 120)), steps=180)
    assert 3 <= sum(step.rescaled for step in history) <= math.floor(1800 / 60)
    free = run(replace(policy, grants="all"), _job(Square(20, 250, 120)), steps=180)
    assert sum(step.rescaled for step in free) >= sum(step.rescaled for step in history)


def test_an_interval_without_output_is_above_any_threshold():
    policy = Hierarchical()
    assert policy.response(policy.init(CHAIN)) == math.inf
    assert policy._filled(Bucket(), math.inf).level == 0.5
    rising = Hierarchical(rule="rising")
    assert rising._filled(Bucket(), math.inf).level == 0.5
    calm = policy.init(CHAIN)._replace(heard=((0.1, 0.09, 0.2, False), (9.0, 0.11, 9.9, True)))
    assert policy.response(calm) == 0.1  # what was buffered in a stop does not count
    stops = policy.init(CHAIN)._replace(heard=((9.0, 0.11, 9.9, True),))
    assert policy.response(stops) == 0.11


def test_another_policy_may_ask():
    asks = Hierarchical(grants="all", manager=DS2())
    history = run(asks, _job(Constant(250)), steps=24)
    counts = [step.snapshot.deployment.parallelism["work"] for step in history]
    assert sorted(set(counts)) == [1, 2, 3]  # one replica at a time
    assert history[-1].snapshot.lag < 100
    with pytest.raises(ArgumentError, match="an instance of a policy"):
        Hierarchical(manager=DS2)


def test_a_guard_that_keeps_back_is_seen():
    history = run(RescaleBudget(Hierarchical(grants="all"), changes=0), _job(Constant(150)), steps=12)
    assert not any(step.rescaled for step in history)
    assert history[-1].state is not None


def test_without_places_counts_alone_change():
    history = run(Hierarchical(grants="all", places="no"), _job(Constant(150)), steps=4)
    assert history[-1].deployment == Deployment({"source": 1, "work": 2, "sink": 1})


def test_replicas_that_go_leave_no_hole():
    places = {("a", i): f"n{i}" for i in range(3)} | {("b", 0): "n0"}
    start = Deployment({"a": 3, "b": 1})
    gone = applied(start, places, [ReplicaAction("scale in", "a", 0)], tell=True)
    assert gone.parallelism["a"] == 2
    assert gone.placement == {("a", 0): "n2", ("a", 1): "n1", ("b", 0): "n0"}
    both = applied(
        start, places, [ReplicaAction("migrate", "a", 1, "n9"), ReplicaAction("scale out", "b", to="n1")], tell=True
    )
    assert (both.placement["a", 1], both.placement["b", 1]) == ("n9", "n1")
    assert applied(start, places, [ReplicaAction("scale out", "b", to="n1")], tell=False).placement == {}


def test_the_least_parallelism_and_pins_are_kept():
    view = ManagerView((0.1, 0.1), ("n1", "n2"), {}, ("n1", "n2"), {"n1": 1, "n2": 1}, min_parallelism=2)
    assert plan_action("a", view, Hierarchical(), None) is None
    pinned = ManagerView((0.1,), ("n1",), {"n1": 0.9}, ("n1", "n2"), {"n1": 1, "n2": 1}, max_parallelism=1)
    assert plan_action("a", pinned, Hierarchical(), None) is None


def test_delays_hold_in_both_directions():
    known = {("a", "b"): 0.2}
    assert (delay(known, "b", "a"), delay(known, "a", "c")) == (0.2, 1e-3)
    with pytest.raises(ArgumentError, match="delays"):
        Hierarchical(delays={("a", "b"): float("nan")})
    with pytest.raises(ArgumentError, match="state_bytes"):
        Hierarchical(state_bytes={"a": -1.0})


def test_replicas_leave_a_node_that_is_too_busy_one_by_one_or_as_a_herd():
    """Source and work share a node of one core and ask for 1.3; another is idle. Granted at once, both move there and
    back, period after period; with tokens one goes, and both have what they need."""
    seconds = {"source": 5e-3, "work": 5e-3, "sink": 1e-5}
    plant = Plant({n: Service(s) for n, s in seconds.items()}, {"n1": Node(1), "n2": Node(1)}, pause_s=0.0)
    start = Deployment(CHAIN.uniform(), placement={(n, 0): "n1" for n in CHAIN.order})
    apart = {}
    for grants in ("tokens", "all"):
        job = Simulator(CHAIN, plant, Constant(130), deployment=start, seed=1)
        history = run(Hierarchical(grants=grants, beta=0.0, scale_out_above=1.0), job, steps=60)
        homes = [[step.snapshot.deployment.placement[n, 0] for n in ("source", "work")] for step in history]
        apart[grants] = sum(a != b for a, b in homes), history[-1].snapshot.lag
        assert history[-1].snapshot.deployment.parallelism == CHAIN.uniform()
    assert apart["tokens"][0] > apart["all"][0] == 0
    assert apart["tokens"][1] < apart["all"][1]


def test_windows_longer_than_the_period_bring_as_many_tokens_a_minute():
    plant = Plant({n: Service(1e-4) for n in CHAIN.order}, {"n1": Node(8)})
    job = Simulator(CHAIN, plant, Constant(10), window_s=120.0)
    history = run(Hierarchical(beta=0.0, token_capacity=5.0), job, steps=2)
    assert [step.decision.why["tokens"] for step in history] == [2, 4]
