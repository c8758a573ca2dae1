"""The distances between the workers of a cluster: what the deployment puts far apart takes as long as that says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import live
from dspkit import Deployment, Topology, run, workload
from dspkit.policies.odp import ODP
from dspkit.spark import SparkCluster, SparkJob, arrow, keyed

NAMES = ("read", "work", "count")


@pytest.mark.spark
@pytest.mark.slow
def test_workers_are_as_far_apart_as_their_delays_say(tmp_path: Path) -> None:
    """Each crossing takes at least its delay, also of watermarks and of the end; bytes take their time at the rate."""
    live.end()
    pair = ("worker-1", "worker-2")
    functions = {"work": arrow(live.Work(50), live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    topology = Topology.chain(*NAMES)
    with SparkCluster.local(2, 4, memory="512m", delays={pair: 0.3, pair[::-1]: 0.4}, rates={pair: 1e6}) as cluster:
        assert cluster.links == {pair: (0.3, 1e6), pair[::-1]: (0.4, 1e6)}
        with SparkJob(
            topology, functions, workload.Constant(200), master=cluster, window_s=1.0, checkpoint=tmp_path
        ) as job:
            live.works(job)
            for places, least_s in (("111", 0.0), ("122", 0.3), ("121", 0.7), ("222", 0.0), ("211", 0.4)):
                placement = {(n, 0): f"worker-{p}" for n, p in zip(NAMES, places, strict=True)}
                job.deploy(replace(job.deployment, placement=placement))
                job.observe()  # the change is in it
                found = live.until(lambda: job.observe().latency)
                assert found.p50 >= 0.97 * least_s  # the histogram's bins are 4 % wide
                if not least_s:  # nothing is held: sooner or later the machine has time for the records
                    live.until(lambda: (found := job.observe().latency) and found.p50 < 0.3)
    assert live.each_once(tmp_path) > 500


@pytest.mark.spark
@pytest.mark.slow
def test_a_link_that_is_too_slow_holds_its_senders_up_and_loses_nothing(tmp_path: Path) -> None:
    """Some 10 kB per record and 500 kB/s: the link carries 50 records/s of 400, and the rest waits in the log."""
    live.end()
    functions = {"work": arrow(live.padded, live.PADDED), "count": keyed(live.count, key="id", state="int64")}
    slow = {("worker-1", "worker-2"): 5e5}
    with SparkCluster.local(2, 4, memory="512m", rates=slow) as cluster:
        far = Deployment(dict.fromkeys(NAMES, 1), workers=2, placement={(n, 0): "worker-1" for n in NAMES[:2]})
        far = replace(far, placement={**far.placement, ("count", 0): "worker-2"})
        told: dict[str, Any] = {
            "master": cluster,
            "window_s": 1.0,
            "epoch_s": 2.0,
            "checkpoint": tmp_path,
            "deployment": far,
        }
        with SparkJob(Topology.chain(*NAMES), functions, workload.Constant(400), **told) as job:
            live.works(job)
            seen = [job.observe() for _ in range(8)]
            assert sum(s.operators["count"].processing_rate * s.window_s for s in seen) <= 50 * (8 + 4)
            assert seen[-1].lag > 400
            job.deploy(replace(job.deployment, placement=dict.fromkeys(far.placement, "worker-1")))
            live.until(lambda: job.observe().throughput > 100)
    assert live.each_once(tmp_path) > 100


@pytest.mark.spark
@pytest.mark.slow
def test_pings_measure_the_delays_and_a_policy_places_by_them(tmp_path: Path) -> None:
    """The emulated matrix comes back from round trips; without given delays, ODP plans as if it had them."""
    live.end()
    delays = {("worker-1", "worker-2"): 0.06, ("worker-2", "worker-3"): 0.08, ("worker-1", "worker-3"): 0.3}
    functions = {"work": arrow(live.Work(50), live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    told: dict[str, Any] = {"window_s": 1.0, "checkpoint": tmp_path}
    far = SparkCluster.local(3, 4, memory="512m", delays={**delays, ("worker-3", "worker-2"): 0.1})
    job = SparkJob(Topology.chain(*NAMES), functions, workload.Constant(200), master=far, owns_master=True, **told)
    with job:
        live.works(job)
        seen = live.until(lambda: found if len((found := job.observe()).delays) == 3 else None)
        want = delays | {("worker-2", "worker-3"): 0.09}  # half of the way there and back
        for pair, delay_s in want.items():
            assert delay_s <= seen.delays[pair] < 1.2 * delay_s + 0.02
        settings: dict[str, Any] = {"monitor_s": 3.0, "slots_per_node": 4}
        pinned = {"read": "worker-1", "count": "worker-3"}
        history = run(ODP(pinned=pinned, **settings), job, steps=12)
        assert job.places()["work", 0] == "worker-2"  # 150 ms, the direct way takes 300
        plan = [s.decision for s in history if s.decision and s.decision.why["rule"] == "plan with measured rates"]
        assert plan[0].why["R"] >= 0.15
    assert live.each_once(tmp_path) > 500
