"""A long life of a job on a cluster: fifty changes and five losses of processes, with each record counted once.

In a file of its own, so that it runs beside the other tests of clusters.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import live
from dspkit.spark import SparkCluster
from dspkit.spark.runtime import cluster as processes
from dspkit.spark.runtime import session

CORES = 8


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_each_once_through_fifty_rescales_and_five_losses_with_workers_that_come_and_go(
    mode: str, tmp_path: Path
) -> None:
    """Stop and start between; Python workers, executors and a whole worker are killed at any moment."""
    live.end()
    if (other := session.running_session()) is not None:
        session.stop(other)
    chance, seen = random.Random(7), 0
    kinds = (
        "-m dspkit.spark.runtime.daemon",
        "--executor-id",
        "-m dspkit.spark.runtime.daemon",
        "deploy.worker.Worker",
        "--executor-id",
    )
    kills = dict(zip(sorted(chance.sample(range(1, 50), 5)), kinds, strict=True))
    with SparkCluster.local(2, CORES, memory="512m") as cluster:
        base = cluster.start(mode)
        for part in range(2):
            with live.job(1500, 20, master=cluster, spark=base, mode=mode, checkpoint=tmp_path, epoch_s=1.0) as job:
                for turn in range(25 * part, 25 * part + 25):
                    few = {name: chance.randint(1, 3) for name in job.topology.order}
                    workers = chance.choice((2, 3)) if turn % 5 == 0 else job.deployment.workers
                    job.deploy(replace(job.deployment.scaled(few), workers=workers))
                    if turn in kills:
                        victims = [p.pid for p in processes.below({os.getpid()}) if kills[turn] in p.command]
                        os.kill(chance.choice(victims), signal.SIGKILL)
                    time.sleep(chance.uniform(0, 0.5))
                live.works(job)
            now = live.each_once(tmp_path)
            assert now > seen
            seen = now
