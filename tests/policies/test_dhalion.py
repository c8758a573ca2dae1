"""Dhalion: Heron's public rule by hand, what it diagnoses, and what it stops trying."""

import pytest

from dspkit import Deployment, Plant, Simulator, Snapshot, Topology, run, workload
from dspkit.core import OperatorMetrics
from dspkit.policies.dhalion import DOWN, UP, Dhalion, DhalionState, scale_up
from dspkit.simulator import NodeSlow, Service, Skew

JOB = Topology.chain("source", "work", max_parallelism=100)


@pytest.mark.parametrize(
    ("n", "pressure", "after"),
    [(1, 0.5, 2), (3, 0.5, 6), (4, 0.2, 5), (4, 0.75, 16), (2, 0.8, 10), (2, 0.9, 10), (5, 0.0, 5)],
)
def test_the_scale_up_factor(n, pressure, after):
    """n (1 + bp / (1 - bp)), rounded up; bp / (1 - bp) is 4 at most."""
    assert scale_up(n, pressure) == after


def _window(t, k, *, blocked=0.0, busy=1.0, rate=100.0, work=100.0, backlog=0.0):
    return Snapshot(
        t=t, window_s=10.0, deployment=Deployment({"source": 1, "work": k}),
        operators={
            "source": OperatorMetrics(rate, rate, rate, 1e4, 0.01, 0.0, 1, blocked=blocked),
            "work": OperatorMetrics(rate, rate, rate, work, busy, backlog, k, blocked=0.0),
        },
        source_rates={"source": rate}, throughput=rate, latency=None, event_latency=None, lag=0.0,
        edge_rates={("source", "work"): rate},
    )  # fmt: skip


def _play(policy, windows, state=None):
    state = state or policy.init(JOB)
    for w in windows:
        state, decision = policy.step(state, w)
    return state, decision


def test_back_pressure_is_put_down_to_who_causes_it():
    windows = [_window(10.0 * i, 4, blocked=0.5) for i in range(1, 7)]
    _, decision = _play(Dhalion(), windows[:5])
    assert decision.deployment == windows[0].deployment  # a minute is not over
    _, decision = _play(Dhalion(), windows)
    assert dict(decision.deployment.parallelism) == {"source": 1, "work": 8}
    assert decision.why["diagnosis"] == f"{UP}: work"
    quiet = [_window(10.0 * i, 4, blocked=0.015, busy=0.99) for i in range(1, 7)]  # 15 ms a second are noise
    assert _play(Dhalion(), quiet)[1].deployment == quiet[0].deployment


def test_skew_and_slow_instances_are_told_and_have_no_resolver():
    idle = [_window(10.0 * i, 4, blocked=0.5, busy=0.4) for i in range(1, 7)]
    _, decision = _play(Dhalion(), idle)
    assert decision.why["diagnosis"] == "skew: work"
    assert decision.deployment == idle[0].deployment
    slow = [_window(10.0, 4, work=100.0)] + [_window(10.0 * i, 4, blocked=0.5, work=30.0) for i in range(2, 8)]
    _, decision = _play(Dhalion(cooldown_s=0.0, decision_interval_s=70.0), slow)
    assert decision.why["diagnosis"] == "slow instances: work"


def test_an_idle_operator_loses_a_part_and_what_did_not_help_is_blacklisted():
    policy, t, state, k, ran = Dhalion(), 0.0, None, 10, []
    for _ in range(200):  # nine instances are not enough
        t += 10
        pressed = {"blocked": 0.3, "busy": 1.0} if k < 10 else {"busy": 0.5}
        state, decision = _play(policy, [_window(t, k, **pressed)], state)
        if (now := decision.deployment.parallelism["work"]) != k:
            ran.append(now)
            k = now
    assert ran[:3] == [8, 12, 9]  # a fifth goes; 8 / 0.7; a fifth again
    assert state.tried[DOWN, "work"][1] >= 2
    before = len(ran)
    state, decision = _play(policy, [_window(t + 10.0 * i, k, busy=0.5) for i in range(1, 40)], state)
    assert len(ran) == before
    assert decision.deployment.parallelism["work"] == k  # it no longer tries


def test_it_waits_three_minutes_after_an_action():
    policy = Dhalion()
    state, decision = _play(policy, [_window(10.0 * i, 4, blocked=0.5) for i in range(1, 7)])
    k = decision.deployment.parallelism["work"]
    later = [_window(60.0 + 10.0 * i, k, blocked=0.5) for i in range(1, 20)]
    acted = []
    for w in later:
        state, decision = policy.step(state, w)
        if decision.deployment != w.deployment:
            acted.append(w.t)
            break
    assert acted == [240.0]  # 180 s after 60 s


def test_on_the_simulator_it_reaches_what_the_load_needs():
    """950 records/s at 5 ms each need five instances. What waits makes it overshoot; then it gives back, bit by bit."""
    chain = Topology.chain("source", "work", max_parallelism=64)
    plant = Plant({"source": Service(1e-4), "work": Service(5e-3)}, pause_s=5.0)
    history = run(Dhalion(), Simulator(chain, plant, workload.Constant(950)), steps=300)
    counts = [s.snapshot.deployment.parallelism["work"] for s in history]
    assert max(counts) > 6
    assert counts[-1] in (5, 6, 7)
    assert history[-1].snapshot.lag < 1000


@pytest.mark.parametrize("fault", [NodeSlow(0.0, node="node-1", factor=0.2), Skew(0.0, operator="work", share=0.9)])
def test_faults_do_not_break_it(fault):
    chain = Topology.chain("source", "work", max_parallelism=8)
    plant = Plant({"source": Service(1e-4), "work": Service(5e-3)}, faults=(fault,))
    history = run(Dhalion(), Simulator(chain, plant, workload.Constant(700)), steps=40)
    assert isinstance(history[-1].state, DhalionState)


def _live(t, k=1, *, offered=1800.0, done=900.0, base=0.03, sink=0.4):
    """A live job: flow control stops the source without a blocked operator; all show a little back-pressure."""
    operators = {
        "source": OperatorMetrics(offered, done, done, 5e4, 0.02, 900 * t if offered > done else 5.0, 1, blocked=base),
        "work": OperatorMetrics(done, done, done, 1000.0, done / 1000 / k, 50.0, k, blocked=base),
        "sink": OperatorMetrics(done, done, done, done / sink, sink, 5.0, 1, blocked=0.0),
    }
    return Snapshot(
        t=t, window_s=10.0, deployment=Deployment({"source": 1, "work": k, "sink": 1}), operators=operators,
        source_rates={"source": offered}, throughput=done, latency=None, event_latency=None, lag=0.0,
        edge_rates={("source", "work"): done, ("work", "sink"): done},
    )  # fmt: skip


LIVE = Topology.chain("source", "work", "sink", max_parallelism=100)


def test_a_source_stopped_by_flow_control_is_put_down_to_the_busiest_operator():
    state = Dhalion().init(LIVE)
    for i in range(1, 7):
        state, decision = Dhalion().step(state, _live(10.0 * i))
    assert decision.why["diagnosis"] == f"{UP}: work"
    assert decision.deployment.parallelism == {"source": 1, "work": 2, "sink": 1}  # half of the input is not taken


def test_the_back_pressure_that_an_engine_always_shows_is_none():
    """Three per cent at each operator; it blamed the one that is neither busy nor has anything waiting."""
    state = Dhalion().init(LIVE)
    for i in range(1, 7):
        state, decision = Dhalion().step(state, _live(10.0 * i, offered=900.0))
    assert decision.why["diagnosis"] == "healthy"
    assert not decision.why["back-pressure"]


def test_one_instance_is_never_uneven():
    one = [_window(10.0 * i, 1, blocked=0.5, busy=0.6) for i in range(1, 7)]
    _, decision = _play(Dhalion(), one)
    assert decision.why["diagnosis"] == f"{UP}: work"


def test_a_diagnosis_without_a_resolver_says_why_and_hides_none_that_has_one():
    uneven = [_window(10.0 * i, 4, blocked=0.5, busy=0.4) for i in range(1, 7)]
    _, decision = _play(Dhalion(), uneven)
    assert "do not divide a frequent key" in decision.why["resolver"]
