"""DRS as a policy; its formulas and vectors are in tests/reference/test_autrascale.py."""

from dataclasses import replace

import pytest

from dspkit import Deployment, Latency, OperatorMetrics, Snapshot, Topology
from dspkit.core import ArgumentError, KnobError
from dspkit.policies.drs import DRS, allocate, network_time

CHAIN = Topology.chain("src", "op", "end", max_parallelism=50)
QUICK = {"running_s": 10.0, "warm_up_s": 0.0}


def _snapshot(t, k=(1, 1, 1), late=9.0, offered=100.0, rates=(1000.0, 30.0, 200.0)):
    done = min(offered, *(n * v for n, v in zip(k, rates, strict=True)))
    operators = {
        n: OperatorMetrics(done, done, done, v, done / v / i, 0, i)
        for n, i, v in zip(CHAIN.order, k, rates, strict=True)
    }
    return Snapshot(
        t=t, window_s=10, deployment=Deployment(dict(zip(CHAIN.order, k, strict=True))), operators=operators,
        source_rates={"src": offered}, throughput=done, latency=Latency(late, late, late, late), event_latency=None,
        lag=0, edge_rates={("src", "op"): done, ("op", "end"): done},
    )  # fmt: skip


def _ask(policy, *snapshots):
    state, asked = policy.init(CHAIN), []
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
        asked.append(tuple(decision.deployment.parallelism[n] for n in CHAIN.order))
    return asked, decision


def test_true_rates_give_the_least_that_meets_the_target_in_theory():
    policy = DRS(target_latency_s=0.06, **QUICK)
    (asked,), decision = _ask(policy, _snapshot(10))
    assert asked == tuple(allocate([100] * 3, [1000, 30, 200], 100, target_latency_s=0.06, max_parallelism=[40] * 3))
    assert decision.why["expected time"] <= 0.06
    assert network_time([100] * 3, [1000, 30, 200], [asked[0], asked[1] - 1, asked[2]], 100) > 0.06


def test_observed_rates_ask_for_one_more_wherever_an_operator_keeps_up():
    policy = DRS(rates="observed", target_latency_s=0.5, **QUICK)
    (asked,), _ = _ask(policy, _snapshot(10, (2, 8, 4)))
    assert asked == (3, 9, 5)


def test_it_rests_when_the_measured_latency_is_met_and_decides_anew_at_a_new_rate():
    policy = DRS(target_latency_s=0.06, **QUICK)
    first = _snapshot(10)
    (k,), _ = _ask(policy, first)
    asked, decision = _ask(policy, first, _snapshot(20, k, 0.05), _snapshot(30, k, 0.05, offered=200.0))
    assert asked[1] == k
    assert asked[2][1] > k[1]
    assert decision.why["rule"] == "decides"


def test_slots_and_bounds_are_kept_and_told():
    policy = DRS(target_latency_s=0.001, max_slots=9, **QUICK)
    (asked,), _ = _ask(policy, _snapshot(10))
    assert sum(asked) == 9
    (asked,), decision = _ask(replace(policy, max_slots=3), _snapshot(10))
    assert sum(asked) == 6
    assert "just to keep up" in decision.why["too few slots"]
    (asked,), _ = _ask(DRS(target_latency_s=0.001, max_parallelism=2, **QUICK), _snapshot(10))
    assert max(asked) == 2


def test_silent_idle_and_instant_operators():
    seen = _snapshot(10, (1, 5, 1))
    mute = replace(seen, operators={n: m for n, m in seen.operators.items() if n != "op"})
    (asked,), decision = _ask(DRS(target_latency_s=0.5, **QUICK), mute)
    assert asked[1] == 5
    assert "op" in decision.why["no data"]
    (asked,), _ = _ask(DRS(**QUICK), _snapshot(10, (3, 5, 3), offered=0.0))
    assert asked == (1, 1, 1)
    fast = replace(seen.operators["src"], true_rate=None, utilisation=0.0)
    (asked,), _ = _ask(DRS(**QUICK), replace(seen, operators={**seen.operators, "src": fast}))
    assert asked[0] == 1


def test_it_waits_for_the_running_time():
    policy = DRS(running_s=30.0, warm_up_s=10.0)
    asked, _ = _ask(policy, *(_snapshot(10.0 * i) for i in (1, 2, 3)))
    assert asked[:2] == [(1, 1, 1)] * 2
    assert asked[2] != (1, 1, 1)


@pytest.mark.parametrize("wrong", [dict(running_s=5, warm_up_s=9), dict(rates="both"), dict(target_latency_s=0)])
def test_knobs_that_do_not_fit(wrong):
    with pytest.raises(KnobError):
        DRS(**wrong)


def test_an_allocation_without_an_end_is_refused():
    for arguments in (([1], [1], 1), ([1], [0], 1), ([1, 2], [1], 1), ([-1], [1], 1)):
        with pytest.raises(ArgumentError):
            allocate(*arguments, **({} if arguments == ([1], [1], 1) else {"slots": 3}))
