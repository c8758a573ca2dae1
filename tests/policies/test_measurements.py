"""The signals that policies read where back-pressure hides a load, and single instances where they are known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from dspkit import Deployment, OperatorMetrics, Plant, Simulator, Snapshot, Topology, apps, etp, run, workload
from dspkit.core import InstanceMetrics
from dspkit.policies._measurements import Attained, arrivals, fullest, mean_use, shares, uses, whole_epochs
from dspkit.policies.dhalion import SKEW, UP, Dhalion
from dspkit.policies.elastic_storm import ElasticStorm
from dspkit.policies.elysium import Elysium, Joint
from dspkit.policies.fission import Fission
from dspkit.policies.hierarchical import Hierarchical
from dspkit.policies.hpa import HPA
from dspkit.simulator import Service
from dspkit.workload import Constant, Jump

JOB = Topology.chain("read", "work", "sink", max_parallelism=8)
WAITS = OperatorMetrics(100, 100, 100, true_rate=100, utilisation=1.0, backlog=0, parallelism=2, cpu=0.06)


def test_the_larger_of_cpu_and_busy_time_counts() -> None:
    assert mean_use(WAITS) == 1.0  # busy all the time, with 3 % of a core each
    assert mean_use(WAITS, "cpu") == pytest.approx(0.03)
    burns = replace(WAITS, utilisation=0.5, cpu=1.6)  # threads of a library beside its own
    assert (mean_use(burns), mean_use(burns, "busy")) == (pytest.approx(0.8), 0.5)
    unmetered = replace(WAITS, cpu=None)
    assert (mean_use(unmetered), mean_use(unmetered, "cpu")) == (1.0, None)
    assert uses(None) is None
    assert shares(WAITS) == (0.5, 0.5)


def _held(t: float, k: int = 1, *, offered: float = 1800.0, taken: float = 900.0, blocked: float = 0.0) -> Snapshot:
    """A live job in miniature: `work` takes a millisecond per record, and flow control stops `read`, which idles."""
    done = min(taken, 1000.0 * k)
    return Snapshot(
        t=t, window_s=2.0, deployment=Deployment({"read": 1, "work": k, "sink": 1}),
        operators={
            "read": OperatorMetrics(offered, done, done, 5e4, 0.02, 900 * t, 1, cpu=0.02, blocked=blocked),
            "work": OperatorMetrics(done, done, done, 1000.0, done / 1000 / k, 400, k, cpu=0.04, blocked=0.01),
            "sink": OperatorMetrics(done, done, done, 5e4, 0.02, 5, 1, cpu=0.02, blocked=0.0),
        },
        source_rates={"read": offered}, throughput=done, latency=None, event_latency=None, lag=900 * t,
        edge_rates={("read", "work"): done, ("work", "sink"): done},
    )  # fmt: skip


def test_a_source_that_idles_while_its_log_grows_is_held_back() -> None:
    assert etp.held_back(_held(2.0))
    assert not etp.held_back(_held(2.0, offered=900.0))  # it takes all that it is offered
    assert not etp.held_back(replace(_held(2.0), downtime_s=1.0))  # a change stops a source as well
    busy = _held(2.0)
    read = replace(busy.operators["read"], utilisation=0.99)
    assert not etp.held_back(replace(busy, operators={**busy.operators, "read": read}))  # it is too slow itself


def test_demand_takes_the_place_of_arrivals_under_back_pressure_only() -> None:
    assert arrivals(_held(2.0)) == {"read": 1800.0, "work": 1800.0, "sink": 1800.0}
    assert arrivals(_held(2.0), "arrivals") == {"read": 1800.0, "work": 900.0, "sink": 900.0}
    free = replace(_held(2.0, offered=900.0), source_rates={"read": 9999.0})  # whatever the sources are offered
    assert arrivals(free)["work"] == 900.0


def _epochs(lags: list[float], busy: tuple[float, ...] = (0.97, 0.95, 0.96, 0.97, 0.5)) -> list[Snapshot]:
    """Epochs of five windows: in the last one the job drains and commits. `lags` are those at the ends of epochs."""
    made = []
    for epoch, (before, after) in enumerate(pairwise([lags[0], *lags])):
        for i, share in enumerate(busy):
            seen = _held(2.0 * (epoch * len(busy) + i + 1), taken=1000 * share)
            lag = before + (after - before) * (i + 1) / len(busy)
            made.append(replace(seen, lag=lag, commit_s=0.2 if i == len(busy) - 1 else 0.0))
    return made


def test_the_time_that_a_full_operator_loses_at_the_ends_of_epochs_is_measured() -> None:
    attained = Attained()
    for i, snapshot in enumerate(_epochs([2000.0, 4000.0, 6000.0])):
        attained = attained.after(snapshot)
        assert attained.share == (
            1.0 if i < 9 else pytest.approx(0.87)
        )  # the lag is the same all through the first epoch
    for snapshot in _epochs([5000.0, 4000.0], (0.6, 0.6, 0.6, 0.6, 0.2)):  # it keeps up: no operator is full
        attained = attained.after(replace(snapshot, t=snapshot.t + 30))
    assert attained.share == pytest.approx(0.87)


def test_nothing_is_lost_where_no_epoch_ends_or_the_job_keeps_up() -> None:
    grows = _epochs([2000.0, 4000.0, 6000.0])
    for windows in (
        [replace(s, commit_s=0.0) for s in grows],
        [replace(s, downtime_s=0.1) for s in grows],
        [replace(s, execution="micro-batch") for s in grows],
        _epochs([100.0, 200.0, 300.0]),  # less than a second's worth waits
        _epochs([9000.0, 6000.0, 3000.0]),
    ):
        attained = Attained()
        for snapshot in windows:
            attained = attained.after(snapshot)
        assert attained.share == 1.0
    idle = Attained()
    for snapshot in _epochs([2000.0, 4000.0, 6000.0], (0.2, 0.2, 0.2, 0.2, 0.1)):  # something else holds the job up
        idle = idle.after(snapshot)
    assert idle.share == 1.0


def test_a_mean_is_taken_over_whole_epochs() -> None:
    windows = _epochs([2000.0, 4000.0, 6000.0])[:-2]
    assert [s.t for s in whole_epochs(windows, 6.0)] == [18.0, 20.0, 22.0, 24.0, 26.0]
    assert len(whole_epochs(windows, 11.0)) == 10
    assert len(whole_epochs(windows[:7], 6.0)) == 3  # one end only: how long an epoch is is not known


def _linear() -> tuple[Topology, Plant]:
    """Full queues that stop those upstream: 1 ms per record at `work`."""
    services = {"read": Service(1e-5), "work": Service(1e-3, queue_records=100), "sink": Service(1e-5)}
    return JOB, Plant(services, pause_s=0.0)


@pytest.mark.parametrize(("load", "keeps_up"), [("demand", True), ("arrivals", False)])
def test_fission_keeps_up_under_back_pressure(load: str, keeps_up: bool) -> None:
    """With arrivals the load never exceeds what runs, as the source is stopped: the audit's finding F3."""
    topology, plant = _linear()
    policy = Fission(load=load, capacity="first", mid_term=False)
    history = run(policy, Simulator(topology, plant, Jump(500.0, 3000.0, 20.0), window_s=1.0), steps=90)
    last = history[-1].snapshot
    assert (last.throughput >= 0.99 * last.source_rate) is keeps_up
    assert (last.deployment.parallelism["work"] >= 3) is keeps_up


def test_fission_takes_the_latest_rate_of_a_replica_under_back_pressure() -> None:
    """The first windows of a live job are its slowest: with that rate a source would be overloaded for good."""
    slow = _held(2.0)
    cold = replace(slow.operators["read"], true_rate=1500.0)
    windows = [replace(slow, operators={**slow.operators, "read": cold}), *(_held(2.0 * i) for i in range(2, 8))]
    for capacity, source in (("auto", 1), ("first", 2)):
        policy = Fission(capacity=capacity, mid_term=False, decision_interval_s=2.0)
        state, most = policy.init(JOB), 1
        for window in windows:
            state, decision = policy.step(state, window)
            most = max(most, decision.deployment.parallelism["read"])
        assert most == source


@pytest.mark.parametrize(
    "policy",
    [
        HPA(decision_interval_s=2.0),
        ElasticStorm(),
        Elysium(decision_interval_s=2.0, metrics_window_s=2.0),
        Joint(decision_interval_s=2.0, metrics_window_s=2.0),
        Hierarchical(decision_interval_s=2.0, grant_interval_s=2.0, tokens_per_min=60.0),
    ],
    ids=lambda policy: policy.name,
)
def test_work_that_waits_is_no_idle_work(policy: Any) -> None:
    """An operator that is busy all the time with 3 % of a core is overloaded; by CPU alone it is not."""
    for signal, expected in (("auto", True), ("busy", True), ("cpu", False)):
        chosen = replace(policy, signal=signal)
        state, grew = chosen.init(JOB), False
        for i in range(1, 6):
            state, decision = chosen.step(state, _held(2.0 * i, taken=1000.0))
            grew = grew or decision.deployment.parallelism["work"] > 1
        assert grew is expected, signal


def test_elysium_takes_the_offered_load_where_the_source_is_stopped() -> None:
    policy = Elysium(decision_interval_s=2.0, metrics_window_s=2.0)
    for load, x in (("demand", 1800.0), ("arrivals", 1800.0), ("emitted", 900.0)):
        chosen = replace(policy, load=load)
        state = chosen.init(JOB)
        for i in (1, 2):
            state, decision = chosen.step(state, _held(2.0 * i))
        assert decision.why["load"] == {"read": x}
    app = apps.rolling_top_words()  # whose queues grow: nothing is stopped, and the load is what the source emits
    seen = run(replace(policy, decision_interval_s=60.0), app.simulator(Constant(50.0)), steps=12)
    assert not etp.held_back(seen[-1].snapshot)


def test_held_back_is_false_on_engines_whose_queues_drop_or_grow() -> None:
    """So that the papers' own settings are read as they measured: arrivals."""
    services = {"read": Service(1e-5), "work": Service(1e-3, queue_records=math.inf), "sink": Service(1e-5)}
    history = run("static", Simulator(JOB, Plant(services, pause_s=0.0), workload.Constant(3000.0)), steps=5)
    assert history[-1].snapshot.operators["work"].backlog > 50_000
    assert not any(etp.held_back(step.snapshot) for step in history)


def test_fullest_is_the_mean_without_single_instances() -> None:
    assert fullest(WAITS) == 1.0
    assert fullest(None) is None


# Single instances


def _skewed(t: float, busy: tuple[float, ...], blocked: float = 0.0) -> Snapshot:
    """`work` with instances of these busy shares, each in proportion to its records."""
    seen, k = _held(t, len(busy), offered=900.0, blocked=blocked), len(busy)
    each = tuple(InstanceMetrics(1000.0 * b, utilisation=b, backlog=0.0, cpu=0.02) for b in busy)
    done = 1000.0 * sum(busy)
    work = OperatorMetrics(done, done, done, 1000.0, sum(busy) / k, 0.0, k, cpu=0.02 * k, blocked=0.0, instances=each)
    read = replace(seen.operators["read"], input_rate=done, processing_rate=done, backlog=0.0)
    return replace(
        seen, operators={**seen.operators, "work": work, "read": read}, source_rates={"read": done},
        edge_rates={("read", "work"): done, ("work", "sink"): done},
    )  # fmt: skip


def test_each_instance_has_its_use_and_its_share() -> None:
    work = _skewed(2.0, (0.9, 0.3)).operators["work"]
    assert uses(work) == uses(work, "busy") == (0.9, 0.3)
    assert uses(work, "cpu") == (0.02, 0.02)
    assert (mean_use(work), fullest(work)) == (pytest.approx(0.6), 0.9)
    assert shares(work) == (pytest.approx(0.75), pytest.approx(0.25))
    burns = replace(work, instances=tuple(replace(i, cpu=0.5) for i in work.instances or ()), cpu=1.0)
    assert uses(burns) == (0.9, 0.5)  # the larger of both, for each by itself
    silent = replace(work, instances=tuple(replace(i, cpu=None) for i in work.instances or ()))
    assert uses(silent, "cpu") == (0.02, 0.02)


@pytest.mark.parametrize(
    ("busy", "after"),
    [((0.9, 0.9, 0.3), 5), ((0.9, 0.3, 0.3), 4), ((0.69, 0.69, 0.69), 3), ((0.9, 0.9, 0.9), 6), ((0.1, 0.1, 0.5), 3)],
)
def test_elastic_storm_adds_one_for_each_overloaded_executor(busy: tuple[float, ...], after: int) -> None:
    """By their mean it would add three or none, and the last one would be halved."""
    _, decision = ElasticStorm().step(ElasticStorm().init(JOB), _skewed(2.0, busy))
    assert decision.deployment.parallelism["work"] == after


def test_the_fullest_instance_decides_for_those_that_speak_of_instances() -> None:
    """A hot key fills one of two instances; the mean of 0.55 is below every threshold."""
    hot, even = (0.9, 0.2), (0.55, 0.55)
    for policy in (
        Joint(decision_interval_s=2.0, metrics_window_s=2.0),
        Elysium(decision_interval_s=2.0, metrics_window_s=2.0, scale="operators"),
        Hierarchical(decision_interval_s=2.0, grant_interval_s=2.0, grants="all"),
        Fission(decision_interval_s=2.0, windows=1, mid_term=False, scale_out_above=0.8),
    ):
        grown = {}
        for busy in (hot, even):
            state: Any = policy.init(JOB)
            for i in (1, 2, 3):
                state, decision = policy.step(state, _skewed(2.0 * i, busy))
            grown[busy] = decision.deployment.parallelism["work"] > 2
        assert grown == {hot: True, even: False}, policy.name


def test_dhalion_calls_it_skew_if_one_instance_is_full_and_others_are_not() -> None:
    policy = Dhalion(decision_interval_s=4.0, cooldown_s=0.0)
    for busy, diagnosis in (((0.95, 0.2), SKEW), ((0.95, 0.9), UP), ((0.5, 0.5), UP)):
        state = policy.init(JOB)
        for i in (1, 2):
            state, decision = policy.step(state, _skewed(2.0 * i, busy, blocked=0.5))
        assert decision.why["diagnosis"] == f"{diagnosis}: work"
