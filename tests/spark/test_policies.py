"""Policies drive a live job through a load step, and leave it with a deployment that keeps up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import live
from dspkit import apps, policies, run
from dspkit.core import Policy, Snapshot
from dspkit.core.loop import control_loop
from dspkit.policies.autrascale import AuTraScale
from dspkit.policies.ds2 import DS2
from dspkit.policies.elastic_storm import ElasticStorm
from dspkit.policies.fission import Fission
from dspkit.spark import SparkCluster
from dspkit.workload import Jump

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BEFORE, AFTER, STEP_S = 500.0, 1500.0, 8.0
# To add one: its name, the policy at a pace that fits a test, its most decisions after the step, and windows.
DRIVERS: dict[str, tuple[Policy, int, int]] = {
    "ds2": (DS2(), 3, 20),
    "fission": (Fission(decision_interval_s=4, windows=1, mid_term=False), 12, 20),
    "elastic_storm": (ElasticStorm(cooldown_windows=1, signal="busy", places="no"), 6, 20),
    "autrascale": (
        AuTraScale(
            target_latency_s=0.5,
            max_parallelism=4,
            levels=2,
            running_s=4.0,
            warm_up_s=2.0,
            rate_change=0.5,
            tolerance=0.05,
        ),
        20,
        25,
    ),
}


def _keeps_up(snapshots: list[Snapshot]) -> bool:
    """Return whether several windows process what arrives in them, and the lag does not grow."""
    done = sum(s.throughput for s in snapshots)
    return done >= 0.95 * sum(s.source_rate for s in snapshots) and snapshots[-1].lag <= snapshots[0].lag + AFTER / 10


@pytest.mark.parametrize("name", DRIVERS)
def test_a_policy_brings_a_live_job_through_a_load_step(name: str) -> None:
    """Word count, 1 ms per line in `flat_map`: 1500 lines/s need two of it at least."""
    policy, most, windows = DRIVERS[name]
    assert name in policies.available()
    settings: Any = {"spark": live.spark("realtime"), "window_s": 2.0, "epoch_s": 30.0}
    with apps.get("word_count")().spark(Jump(BEFORE, AFTER, STEP_S), micros={"count": 20}, **settings) as job:
        history = run(policy, job, steps=windows, settle=1)
        assert job.restarts == 0
    after = [step for step in history if step.snapshot.t > STEP_S]
    assert 1 <= sum(step.rescaled for step in after) <= most
    assert _keeps_up([step.snapshot for step in after[-4:]])
    assert after[-1].snapshot.deployment.parallelism["flat_map"] >= 2


def test_odp_leaves_a_machine_that_fails_and_every_record_counts_once(tmp_path: Path) -> None:
    """Two steps, then on failure: first plan, plan with measured rates, and one without the worker that died."""
    live.end()
    pinned = {"read": "worker-1", "work": "worker-2"}
    policy = policies.get("odp")(pinned=pinned, slots_per_node=4, monitor_s=4)
    with (
        SparkCluster.local(3, 4, memory="512m", replace_lost=False) as cluster,
        live.job(300, 50, master=cluster, spark=cluster.start("realtime"), checkpoint=tmp_path) as job,
    ):
        rules: list[str] = []
        lost = ""
        for step in control_loop(policy, job, steps=200):
            rules += [step.decision.why["rule"]] if step.decision else []
            if not lost and rules[-1:] == ["placed"]:
                lost = step.snapshot.deployment.placement["work", 0]
                cluster._workers[lost].process.kill()
            left = lost and lost not in job.deployment.placement.values()
            if left and step.snapshot.throughput > 0 and job.places() == job.deployment.placement:
                break
        plans = [rules.index(r) for r in ("early plan, without rates", "plan with measured rates", "failed: worker-2")]
        assert plans == sorted(plans)
        assert lost not in cluster.workers
        assert job.deployment.workers == 2
        assert job.restarts >= 1
        assert job.places() == job.deployment.placement
    assert live.each_once(tmp_path) > 300
