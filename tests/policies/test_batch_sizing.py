"""Dynamic batch sizing against the fixed point of a known processing time, by hand and in the simulator."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspkit import Deployment, Latency, OperatorMetrics, Plant, Simulator, Snapshot, Topology, run, workload
from dspkit.core import DeploymentError
from dspkit.policies.batch_sizing import BatchSizing, next_interval
from dspkit.simulator import Service

CHAIN = Topology.chain("read", "count")


def iterated(took, x: float, steps: int = 300, slack: float = 0.7) -> list[float]:
    """The intervals of a job whose batches of interval x take took(x)."""
    found, before = [x], None
    for _ in range(steps):
        now = (found[-1], took(found[-1]))
        found.append(next_interval(now, before, slack, 0.25))
        before = now if abs(found[-1] - now[0]) > 1e-9 else before
    return found


@pytest.mark.parametrize("begin", [0.05, 1.0, 30.0])
@pytest.mark.parametrize(("a", "share"), [(0.2, 0.1), (0.5, 0.5), (1.0, 0.65)])
def test_the_interval_ends_at_the_fixed_point(a, share, begin):
    """a + s x = rho x at x = a / (rho - s)."""
    assert iterated(lambda x: a + share * x, begin)[-1] == pytest.approx(a / (0.7 - share), rel=1e-3)


def test_where_time_grows_faster_than_the_interval_both_too_long_it_is_reduced():
    """x^2: the line 0.7 x is above it for x < 0.7 only; from 4 and 3 the iteration alone would diverge."""
    found = iterated(lambda x: x * x, 3.0, steps=12)
    assert found[1] == pytest.approx(9 / 0.7)
    assert found[2] == pytest.approx(0.75 * 3.0)
    assert found[-1] < 0.7


def test_a_policy_whose_batches_overrun_reduces_the_interval_where_time_grows_faster():
    """x^2 again, through `step`: 3 takes 9, 9 / 0.7 takes 165; then a quarter off the smaller, to below 0.7."""
    policy, trigger, found = BatchSizing(longest_s=3600.0), 3.0, []
    state = policy.init(CHAIN)
    for i in range(12):
        state, decision = policy.step(state, snapshot(10.0 * i, trigger**2, trigger_s=trigger))
        trigger = decision.deployment.settings["trigger_s"]
        found.append(trigger)
    assert found[0] == pytest.approx(9 / 0.7, abs=1e-3)
    assert found[1] == pytest.approx(0.75 * 3.0)
    assert found[-1] < 0.7


def snapshot(t: float, took: float | None, execution: str = "micro-batch", **settings: float) -> Snapshot:
    metrics = {n: OperatorMetrics(100, 100, 100, 500, 0.2, 0, 1) for n in CHAIN.order}
    latency = None if took is None else Latency(took, took, took, took)
    deployment = Deployment(dict.fromkeys(CHAIN.order, 1), settings=settings)
    return Snapshot(t, 10.0, deployment, metrics, {"read": 100.0}, 100.0, latency, None, 0.0,
                    {("read", "count"): 100.0}, execution=execution)  # fmt: skip


def test_nothing_but_the_interval_is_changed_and_small_changes_are_left_out():
    policy = BatchSizing()
    state = policy.init(CHAIN)
    state, decision = policy.step(state, snapshot(10, 1.4, trigger_s=5.0, other=3.0))
    assert dict(decision.deployment.settings) == {"trigger_s": 2.0, "other": 3.0}
    _, decision = policy.step(state, snapshot(20, 1.41, trigger_s=2.0))
    assert decision.deployment.settings["trigger_s"] == 2.0
    for given in (snapshot(10, None, trigger_s=2.0), snapshot(10, 1.0, "pipelined", trigger_s=2.0)):
        _, decision = policy.step(policy.init(CHAIN), given)
        assert decision.deployment == given.deployment
    _, decision = policy.step(policy.init(CHAIN), snapshot(10, 500.0, trigger_s=2.0))
    assert decision.deployment.settings["trigger_s"] == policy.longest_s


@pytest.mark.parametrize("engine", ["fluid", "records"])
def test_a_simulated_job_comes_to_the_fixed_point_and_follows_its_load(engine):
    """Fixed part 0.4 s, 1 ms per record on one slot: 0.4 / (0.7 - 0.2) and, at twice the rate, 0.4 / (0.7 - 0.4) s."""
    plant = Plant({"read": Service(1e-6), "count": Service(1e-3)}, execution="micro-batch", trigger_s=8.0,
                  batch_overhead_s=0.4)  # fmt: skip
    load = workload.Jump(200.0, 400.0, 300.0)
    with Simulator(CHAIN, plant, load, window_s=20.0, engine=engine) as job:
        history = run(BatchSizing(), job, steps=30)
    intervals = [step.deployment.settings.get("trigger_s", 8.0) for step in history]
    assert intervals[13] == pytest.approx(0.8, rel=0.12)
    assert intervals[-1] == pytest.approx(4 / 3, rel=0.12)
    assert history[-1].snapshot.lag < 2 * 400 * 4 / 3


def test_a_setting_that_the_simulator_does_not_know_is_refused():
    plant = Plant({"read": Service(1e-6), "count": Service(1e-3)}, execution="micro-batch")
    job = Simulator(CHAIN, plant, workload.Constant(100))
    with pytest.raises(DeploymentError, match="trigger_s"):
        job.deploy(replace(job.deployment, settings={"queue": "fast"}))
    pipelined = Simulator(CHAIN, replace(plant, execution="pipelined"), workload.Constant(100))
    assert "settings" not in pipelined.knobs
    with pytest.raises(DeploymentError, match="no settings"):
        pipelined.deploy(replace(pipelined.deployment, settings={"trigger_s": 1.0}))
