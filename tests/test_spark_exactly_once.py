"""Every record counts once: through rescales, restarts, killed workers, and a change of mode on one checkpoint.

The counter is keyed by the record's own number, so a lost record shows as a missing key and a repeated one as a 2.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import live
from dspkit.spark import SparkJob
from dspkit.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark
MODES = ("realtime", "microbatch", pytest.param("plain", marks=pytest.mark.slow))


def _workers() -> list[int]:
    """The Python workers below this process, without the daemon that they are forked from."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    children: dict[int, list[int]] = {}
    for pid, parent, _ in rows:
        children.setdefault(int(parent), []).append(int(pid))
    below, found = [os.getpid()], []
    while below:
        for pid in children.get(below.pop(), []):
            below.append(pid)
            found.append(pid)
    daemons = {int(pid) for pid, parent, args in rows if "dspkit.spark.daemon" in args}
    parents = {int(pid): int(parent) for pid, parent, _ in rows}
    return [pid for pid in found if pid in daemons and parents[pid] in daemons]


def _rescale(job: SparkJob, chance: random.Random) -> None:
    job.deploy(job.deployment.scaled({name: chance.randint(1, 6) for name in job.topology.order}))


def _kill_one_at_work(job: SparkJob, chance: random.Random) -> None:
    """Kill workers until the query has died of it: some of them sit idle, left over from more instances."""
    before, workers = job.restarts, _workers()
    chance.shuffle(workers)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 2
        while job.restarts == before and time.monotonic() < end:
            time.sleep(0.05)
        if job.restarts > before:
            return
    assert any(job.restarts > before for _ in range(20) if job.observe()), "no worker was missed"


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost_or_repeated_through_rescales_restarts_and_killed_workers(mode: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    with live.job(3000, 50, mode=mode, checkpoint=tmp_path) as job:
        assert any(job.observe().throughput for _ in range(60))
        for _ in range(6):
            _rescale(job, chance)
            time.sleep(chance.uniform(0, 0.5))
        for _ in range(2):
            if mode == "realtime":
                _kill_one_at_work(job, chance)
            else:  # a micro-batch dies of it, or its task is run again
                for pid in _workers()[::2]:
                    os.kill(pid, signal.SIGKILL)
            _rescale(job, chance)
        assert any(job.observe().throughput for _ in range(60))
    first = live.each_once(tmp_path)
    assert first > 1000
    with live.job(3000, 50, mode=mode, checkpoint=tmp_path) as job:  # and on from the checkpoint, with other counts
        _rescale(job, chance)
        assert any(job.observe().throughput for _ in range(60))
    assert live.each_once(tmp_path) > first


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_the_other_mode(tmp_path: Path) -> None:
    seen = 0
    for mode, k in (("realtime", 3), ("microbatch", 2), ("realtime", 5)):
        with live.job(2000, 50, mode=mode, checkpoint=tmp_path) as job:
            job.deploy(job.deployment.scaled({"count": k}))
            assert any(job.observe().throughput for _ in range(60))
        now = live.each_once(tmp_path)
        assert now > seen
        seen = now


def test_a_job_that_is_stopped_hard_goes_on_from_its_last_epoch(tmp_path: Path) -> None:
    job = live.job(2000, 50, checkpoint=tmp_path, epoch_s=1.0)
    job.observe()
    job.deploy(job.deployment.scaled({"count": 3}))
    job.observe()
    job._supervisor._engine.stop()  # as if the process had ended: no cut before
    job._supervisor._ended.set()
    job._supervisor.failed = RuntimeError("stopped by the test")
    job.close()
    before = Checkpoint(tmp_path).committed()
    assert before >= 1
    live.each_once(tmp_path)
    with live.job(2000, 50, checkpoint=tmp_path) as job:
        job.observe()
    assert Checkpoint(tmp_path).committed() > before
    live.each_once(tmp_path)


def test_old_epochs_leave_nothing_behind(tmp_path: Path) -> None:
    with live.job(1000, 50, checkpoint=tmp_path) as job:
        for k in (1, 2) * 5:
            job.deploy(job.deployment.scaled({"count": k}))
    assert len(list((tmp_path / "dspkit" / "epochs").iterdir())) <= 5
    assert len(list((tmp_path / "dspkit" / "state").iterdir())) <= 5
    live.each_once(tmp_path)
