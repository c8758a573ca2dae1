"""DS2's manager: activation, warm-up, silent meters, the boost."""

import dataclasses

import pytest

from dspkit import Deployment, OperatorMetrics, Snapshot, Topology
from dspkit.core import KnobError
from dspkit.policies.ds2 import DS2

CHAIN = Topology.chain("src", "op", "end")


def _snapshot(t, true_rate, parallelism=1, *, offered=100.0, taken=100.0):
    idle = OperatorMetrics(taken, taken, taken, 1000, taken / 1000, 0, 1)
    op = dataclasses.replace(idle, true_rate=true_rate, parallelism=parallelism)
    return Snapshot(
        t=t, window_s=10, deployment=Deployment({"src": 1, "op": parallelism, "end": 1}),
        operators={"src": idle, "op": op, "end": idle}, source_rates={"src": offered}, throughput=taken, latency=None,
        event_latency=None, lag=0, edge_rates={("src", "op"): taken, ("op", "end"): taken},
    )  # fmt: skip


def _play(policy, snapshots):
    state, wanted = policy.init(CHAIN), []
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
        wanted.append(decision.deployment.parallelism["op"])
    return wanted


def test_activation_waits_and_takes_the_median_or_the_largest():
    rates = [50, 10, 34]  # recommendations 2, 10, 3
    snapshots = [_snapshot(10 * i, rate) for i, rate in enumerate(rates)]
    assert _play(DS2(activation=3), snapshots) == [1, 1, 3]
    assert _play(DS2(activation=3, combine="max"), snapshots) == [1, 1, 10]
    assert _play(DS2(), snapshots) == [2, 10, 3]


def test_a_change_by_anyone_restarts_activation_and_warm_up():
    policy = DS2(activation=2, warm_up_windows=1)
    snapshots = [_snapshot(0, 50), _snapshot(10, 50), _snapshot(20, 25, 2), _snapshot(30, 25, 2), _snapshot(40, 25, 2)]
    assert _play(policy, snapshots) == [1, 2, 2, 2, 4]


def test_a_silent_operator_and_those_below_it_stay_and_count_for_nothing():
    snapshot = _snapshot(10, 50, 3)
    mute = dataclasses.replace(snapshot, operators={"src": snapshot.operators["src"]})
    assert _play(DS2(), [mute]) == [3]
    policy, state = DS2(), DS2().init(CHAIN)
    _, decision = policy.step(state, mute)
    assert decision.why["no data"] == ("op", "end")
    dead = dataclasses.replace(snapshot, operators={})
    assert _play(DS2(activation=1), [dead, snapshot]) == [3, 2]


def test_zero_load_scales_in_to_the_least_even_if_nothing_was_processed():
    assert _play(DS2(), [_snapshot(10, 50, 3, offered=0.0)]) == [1]
    nothing = _snapshot(10, None, 3, offered=0.0, taken=0.0)
    assert _play(DS2(boost_above=1.5), [nothing]) == [1]  # and no boost of nothing by nothing


def test_boost_multiplies_only_when_converged_and_short_of_the_target():
    short = [_snapshot(10 * i, 50, 2, offered=100, taken=80) for i in range(2)]
    assert _play(DS2(), short) == [2, 2]  # the paper's default: an infinite threshold
    assert _play(DS2(boost_above=1.2), short) == [3, 3]  # 2 * 1.25 rounded up
    assert _play(DS2(boost_above=1.3), short) == [2, 2]
    once = [short[0], _snapshot(10, 50, 2, offered=100, taken=95)]
    assert _play(DS2(boost_above=1.2, activation=2), once) == [2, 2]  # it must stay above
    assert _play(DS2(boost_above=1.2, activation=2), short) == [2, 3]
    growing = [_snapshot(0, 50, 1, offered=100, taken=50)]
    assert _play(DS2(boost_above=1.2), growing) == [2]  # it scales up anyway: no boost on top


def test_boost_leaves_sources_alone_if_told_to_and_starts_anew_after_a_decision():
    short = _snapshot(0, 50, 2, offered=100, taken=80)
    for policy, source in ((DS2(boost_above=1.2), 2), (DS2(boost_above=1.2, scale_sources=False), 1)):
        _, decision = policy.step(policy.init(CHAIN), short)
        assert decision.deployment.parallelism["src"] == source
    fine = _snapshot(10, 50, 2, offered=100, taken=99)
    assert _play(DS2(boost_above=1.2), [short, fine]) == [3, 2]


def test_boost_needs_the_meters_of_every_source():
    topology = Topology(("s1", "s2", "op"), (("s1", "op"), ("s2", "op")))
    m = OperatorMetrics(100, 100, 100, 1000, 0.1, 0, 1)
    both = Snapshot(
        t=10, window_s=10, deployment=Deployment(topology.uniform()), operators={"s1": m, "op": m},
        source_rates={"s1": 100.0, "s2": 100.0}, throughput=100, latency=None, event_latency=None, lag=0,
        edge_rates={("s1", "op"): 100.0, ("s2", "op"): 0.0},
    )  # fmt: skip
    policy = DS2(boost_above=1.5)
    _, decision = policy.step(policy.init(topology), both)
    assert set(decision.deployment.parallelism.values()) == {1}


def test_an_unknown_parent_makes_the_demand_of_a_join_unknown_whatever_its_place():
    m = OperatorMetrics(100, 100, 100, 50, 0.9, 0, 1)
    for edges in ((("s1", "op"), ("s2", "op")), (("s2", "op"), ("s1", "op"))):
        topology = Topology(("s1", "s2", "op"), edges)
        snapshot = Snapshot(
            t=10, window_s=10, deployment=Deployment(topology.uniform()), operators={"s1": m, "op": m},
            source_rates={"s1": 100.0, "s2": 100.0}, throughput=100, latency=None, event_latency=None, lag=0,
            edge_rates={("s1", "op"): 100.0},
        )  # fmt: skip
        _, decision = DS2().step(DS2().init(topology), snapshot)
        assert decision.why["no data"] == ("s2", "op")
        assert decision.deployment.parallelism == {"s1": 2, "s2": 1, "op": 1}


def test_what_was_wanted_before_a_change_by_somebody_else_is_forgotten():
    snapshots = [_snapshot(0, 10), _snapshot(10, 10), *(_snapshot(20 + 10 * i, 25, 2) for i in range(3))]
    assert _play(DS2(activation=3), snapshots) == [1, 1, 2, 2, 4]
    assert _play(DS2(activation=3, combine="max"), snapshots) == [1, 1, 2, 2, 4]


def test_literal_ds2_leaves_sources_alone():
    slow_source = _snapshot(10, 1000)
    source = dataclasses.replace(slow_source.operators["src"], true_rate=30.0)
    snapshot = dataclasses.replace(slow_source, operators={**slow_source.operators, "src": source})
    for policy, expected in ((DS2(), 4), (DS2(scale_sources=False), 1)):
        _, decision = policy.step(policy.init(CHAIN), snapshot)
        assert decision.deployment.parallelism["src"] == expected


@pytest.mark.parametrize("knobs", [{"activation": 0}, {"activation": 1.5}, {"combine": "mean"}, {"boost_above": 0.5}])
def test_knobs_out_of_range_are_refused(knobs):
    with pytest.raises(KnobError, match=f"DS2.{next(iter(knobs))}"):
        DS2(**knobs)


def test_within_a_policy_interval_windows_do_not_count():
    snapshots = [_snapshot(10 * i, rate) for i, rate in enumerate((50, 25, 20, 10, 5))]
    assert _play(DS2(decision_interval_s=30), snapshots) == [2, 1, 1, 10, 1]  # nobody obeys here: 1 is what runs
    assert _play(DS2(decision_interval_s=10), snapshots) == _play(DS2(), snapshots)


def test_an_operator_faster_than_its_clock_needs_one_instance():
    snapshot = _snapshot(10, 50, 3)
    instant = dataclasses.replace(snapshot.operators["op"], true_rate=None, utilisation=0.0)
    assert _play(DS2(), [dataclasses.replace(snapshot, operators={**snapshot.operators, "op": instant})]) == [1]


def test_one_output_rate_for_all_edges_is_the_mean_of_them():
    """Equal to ours where the edges carry the same; elsewhere the paper's reading feeds both children alike."""
    topology = Topology(("s", "a", "b"), (("s", "a"), ("s", "b")))
    m = OperatorMetrics(100, 100, 100, 1000, 0.1, 0, 1)
    child = dataclasses.replace(m, true_rate=10.0)
    for carried, each, same in (((100.0, 100.0), (10, 10), (10, 10)), ((150.0, 50.0), (15, 5), (10, 10))):
        operators = {"s": dataclasses.replace(m, output_rate=sum(carried)), "a": child, "b": child}
        snapshot = Snapshot(
            t=10, window_s=10, deployment=Deployment(topology.uniform()), operators=operators,
            source_rates={"s": 100.0}, throughput=100, latency=None, event_latency=None, lag=0,
            edge_rates=dict(zip(topology.edges, carried, strict=True)),
        )  # fmt: skip
        for edges, expected in (("each", each), ("same", same)):
            _, decision = DS2(edges=edges).step(DS2().init(topology), snapshot)
            assert (decision.deployment.parallelism["a"], decision.deployment.parallelism["b"]) == expected


def test_boost_is_that_of_the_source_that_is_farthest_behind():
    """As the authors' program: sources at 100 of 200 and 1,000 of 1,000; sums would say 1.09, the maximum is 2."""
    topology = Topology(("s1", "s2", "w"), (("s1", "w"), ("s2", "w")))
    s1, s2 = OperatorMetrics(100, 100, 100, 1000, 0.1, 0, 1), OperatorMetrics(1000, 1000, 1000, 4000, 0.25, 0, 1)
    w = OperatorMetrics(1100, 1100, 1100, 400, 0.9, 0, 3)
    both = Snapshot(
        t=10, window_s=10, deployment=Deployment({"s1": 1, "s2": 1, "w": 3}), operators={"s1": s1, "s2": s2, "w": w},
        source_rates={"s1": 200.0, "s2": 1000.0}, throughput=1100, latency=None, event_latency=None, lag=0,
        edge_rates={("s1", "w"): 100.0, ("s2", "w"): 1000.0},
    )  # fmt: skip
    policy = DS2(boost_above=1.5, scale_sources=False)
    assert policy.step(policy.init(topology), both)[1].deployment.parallelism["w"] == 6


def test_minor_changes_may_be_left_out():
    """The authors' manager: a change counts if some operator grows, or shrinks by two or more."""
    for k, wanted in ((3, 3), (4, 2), (1, 2)):  # two are needed: 3 to 2 is minor
        assert _play(DS2(minor_changes=False), [_snapshot(0, 50, k)]) == [wanted]
    assert _play(DS2(), [_snapshot(0, 50, 3)]) == [2]


def test_spare_instances_are_added_before_rounding_and_do_not_multiply_downstream():
    """The authors' scaling factor: ceil(needed x 1.5) of each operator; demand of those below is that of the load."""
    assert _play(DS2(headroom=0.5), [_snapshot(0, 50, 2)]) == [3]  # 2 are needed
    assert _play(DS2(headroom=0.5), [_snapshot(0, 80, 2)]) == [2]  # 1.25 are: 1.875
    assert _play(DS2(headroom=0.5, boost_above=1.2), [_snapshot(0, 80, 2, offered=100, taken=80)]) == [3]  # 2 x 1.25
    topology = Topology.chain("src", "a", "b")
    m = OperatorMetrics(100, 100, 100, 40, 0.9, 0, 1)
    both = Snapshot(
        t=10, window_s=10, deployment=Deployment({"src": 1, "a": 1, "b": 1}),
        operators={"src": dataclasses.replace(m, true_rate=1000.0), "a": m, "b": m}, source_rates={"src": 100.0},
        throughput=100, latency=None, event_latency=None, lag=0, edge_rates={("src", "a"): 100.0, ("a", "b"): 100.0},
    )  # fmt: skip
    wanted = DS2(headroom=0.4).step(DS2().init(topology), both)[1].deployment.parallelism
    assert (wanted["a"], wanted["b"]) == (4, 4)  # 2.5 x 1.4 = 3.5 each; not 2.5 x 1.4 x 1.4
