"""Kubernetes' autoscaler: its documented rule and constants, by hand."""

from dataclasses import replace

import pytest

from dspkit import Deployment, Snapshot, Topology
from dspkit.core import KnobError, OperatorMetrics
from dspkit.policies.hpa import HPA, desired

JOB = Topology.chain("a", max_parallelism=100)


def _window(t, k, cores, *, metered=None, silent=False):
    busy = min(1.0, cores / (metered or k))
    metrics = OperatorMetrics(1.0, 1.0, 1.0, 1.0, busy, 0.0, metered or k, cpu=cores)
    return Snapshot(
        t=t, window_s=15.0, deployment=Deployment({"a": k}), operators={} if silent else {"a": metrics},
        source_rates={"a": 1.0}, throughput=1.0, latency=None, event_latency=None, lag=0.0, edge_rates={},
    )  # fmt: skip


def _play(policy, uses, k=4, *, obey=True):
    """What runs after each look, every 15 s; `uses` are cores for each instance."""
    state, ran = policy.init(JOB), []
    for i, use in enumerate(uses):
        state, decision = policy.step(state, _window(15.0 * (i + 1), k, use * k))
        k = decision.deployment.parallelism["a"] if obey else k
        ran.append(decision.deployment.parallelism["a"])
    return ran


def test_the_examples_of_the_documentation():
    """Current 200m, desired 100m: doubled; current 50m: halved; within a tenth: as it is."""
    assert desired(3, 3 * 0.2, 0.1) == 6
    assert desired(4, 4 * 0.05, 0.1) == 2
    assert desired(10, 10 * 0.109, 0.1) == desired(10, 10 * 0.091, 0.1) == 10
    assert desired(10, 10 * 0.112, 0.1) == 12  # ceil(11.2)
    assert desired(5, 0.0, 0.5) == 0  # the bounds make it the least


def test_missing_meters_damp_and_never_turn_the_direction():
    assert desired(4, 3 * 0.9, 0.5, missing=1) == 6  # 2.7 cores over 4 pods: 1.35 times, ceil(5.4)
    assert desired(4, 3 * 0.6, 0.5, missing=1) == 4  # 1.2 times; with an idle one 0.9: stays
    assert desired(4, 2 * 0.2, 0.5, missing=2) == 3  # (0.4 + 2 x 0.5) / 4 = 0.35, 0.7 times: ceil(2.8)
    assert desired(4, 1 * 0.45, 0.5, missing=3) == 4  # 0.9 of what is metered; with the others 0.975
    assert desired(4, 0.0, 0.5, missing=4) == 4


def test_pods_that_are_not_ready_count_as_idle_where_it_scales_out():
    assert desired(8, 4 * 1.0, 0.5, unready=4) == 8  # twice too much by those ready, just right by all
    assert desired(8, 4 * 1.0, 0.25, unready=4) == 16
    assert desired(8, 4 * 0.25, 0.5, unready=4) == 2  # in: those not ready do not count


def test_a_scale_out_may_double_or_add_four_every_fifteen_seconds():
    busy = _play(HPA(target_utilisation=0.1, ready_s=0.0), [1.0] * 4, k=1)
    assert busy == [5, 10, 20, 40]  # + 4, then twice
    assert _play(HPA(target_utilisation=0.1, ready_s=0.0, up_period_s=60.0), [1.0] * 4, k=1) == [5, 5, 5, 5]
    slow = _play(HPA(target_utilisation=0.1, ready_s=0.0, up_pods=1, up_percent=10.0), [1.0] * 3, k=10)
    assert slow == [11, 13, 15]  # ceil(12.1), ceil(14.3)


def test_a_scale_in_waits_for_the_greatest_wish_of_five_minutes():
    uses = [0.7] + [0.35] * 22
    ran = _play(HPA(target_utilisation=0.7), uses)
    assert ran[:20] == [4] * 20  # the wish for 4 was at 15 s
    assert ran[20] == 2  # at 315 s it is forgotten
    assert _play(HPA(target_utilisation=0.7, scale_in_stabilisation_s=0.0), uses)[:2] == [4, 2]
    # a scale-out does not wait, unless it is told to
    up = [0.7, 1.4, 1.4, 1.4]
    assert _play(HPA(target_utilisation=0.7, ready_s=0.0), up, obey=False) == [4, 8, 8, 8]
    assert _play(HPA(target_utilisation=0.7, ready_s=0.0, scale_out_stabilisation_s=45.0), up, obey=False) == [
        4,
        4,
        4,
        8,
    ]


def test_silence_and_its_own_rhythm():
    policy = HPA(target_utilisation=0.1)
    state, decision = policy.step(policy.init(JOB), _window(15.0, 4, 4.0, silent=True))
    assert decision.deployment.parallelism["a"] == 4
    assert decision.why["no data"] == ("a",)
    state, _ = policy.step(state, _window(30.0, 4, 4.0))
    state, decision = policy.step(state, _window(40.0, 4, 4.0))
    assert decision.why["rule"].startswith("waits")
    busy = replace(_window(45.0, 4, 0.0), operators={"a": OperatorMetrics(1, 1, 1, 1, 0.7, 0, 4)})
    assert HPA(signal="cpu").step(HPA().init(JOB), busy)[1].why["no data"] == ("a",)
    assert HPA().step(HPA().init(JOB), busy)[1].why["use of a core"] == {"a": 0.7}
    with pytest.raises(KnobError, match="above 0"):
        HPA(up_pods=0, up_percent=0.0)
