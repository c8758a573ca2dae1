"""Every record counts once: through rescales, restarts, killed workers, and a change of mode on one checkpoint.

The counter is keyed by the record's own number, so a lost record shows as a missing key and a repeated one as a 2.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import live
from dspkit import Topology, workload
from dspkit.spark import CheckpointError, SparkJob, TraceSource, keyed
from dspkit.spark.dataflow.checkpoint import Checkpoint

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
    daemons = {int(pid) for pid, parent, args in rows if "dspkit.spark.runtime.daemon" in args}
    parents = {int(pid): int(parent) for pid, parent, _ in rows}
    return [pid for pid in found if pid in daemons and parents[pid] in daemons]


def _rescale(job: SparkJob, chance: random.Random) -> None:
    job.deploy(job.deployment.scaled({name: chance.randint(1, 6) for name in job.topology.order}))


def _kill_one_at_work(job: SparkJob, chance: random.Random) -> None:
    """Kill workers until the query has died of it: some of them sit idle, left over from more instances."""
    before, workers = job.restarts, _workers()
    chance.shuffle(workers)
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):  # an idle one may end by itself
            os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 2
        while job.restarts == before and time.monotonic() < end:
            time.sleep(0.05)
        if job.restarts > before:
            return
    assert any(job.restarts > before for _ in range(20) if job.observe()), "no worker was missed"


@pytest.mark.parametrize("mode", ["realtime", pytest.param("microbatch", marks=pytest.mark.slow), MODES[2]])
def test_nothing_is_lost_or_repeated_through_rescales_restarts_and_killed_workers(mode: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    with live.job(3000, 50, mode=mode, checkpoint=tmp_path) as job:
        live.works(job)
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
        live.works(job)
    first = live.each_once(tmp_path)
    assert first > 1000
    with live.job(3000, 50, mode=mode, checkpoint=tmp_path) as job:  # and on from the checkpoint, with other counts
        _rescale(job, chance)
        live.works(job)
    assert live.each_once(tmp_path) > first


@pytest.mark.slow
def test_a_checkpoint_goes_on_in_the_other_mode(tmp_path: Path) -> None:
    seen = 0
    for mode, k in (("realtime", 3), ("microbatch", 2), ("realtime", 5)):
        with live.job(2000, 50, mode=mode, checkpoint=tmp_path) as job:
            job.deploy(job.deployment.scaled({"count": k}))
            live.works(job)
        now = live.each_once(tmp_path)
        assert now > seen
        seen = now


def test_a_job_that_is_stopped_hard_goes_on_from_its_last_epoch(tmp_path: Path) -> None:
    job = live.job(2000, 50, checkpoint=tmp_path, epoch_s=1.0)
    job.observe()
    job.deploy(job.deployment.scaled({"count": 3}))
    job.observe()
    job._supervisor._engine.stop()  # as if the process had ended: no cut before
    job._supervisor.thread.ended.set()
    job._supervisor.failed = RuntimeError("stopped by the test")
    job.close()
    before = Checkpoint(tmp_path).committed()
    assert before >= 1
    live.each_once(tmp_path)
    with live.job(2000, 50, checkpoint=tmp_path) as job:
        job.observe()
    assert Checkpoint(tmp_path).committed() > before
    live.each_once(tmp_path)


def test_keys_that_are_easily_lost_are_counted_through_rescales(tmp_path: Path) -> None:
    """Both zeros and all NaN are one key; unsigned numbers, times and nulls are a key together."""
    topology = Topology(("read", "reals", "pairs"), (("read", "reals"), ("read", "pairs")))
    source = TraceSource(workload.Constant(3000), live.odd_keys, live.ODD_KEYS)
    functions = {
        "reals": keyed(live.Tally(("real",)), key="real", state="int64"),
        "pairs": keyed(live.Tally(("user", "at")), key=("user", "at"), state="int64"),
    }
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "checkpoint": tmp_path, "window_s": 1.0}
    with SparkJob(topology, functions, source, **settings) as job:
        for k in (2, 3, 1, 5):
            live.works(job)
            job.deploy(job.deployment.scaled({"reals": k, "pairs": k}))
        live.works(job)
    kept = Checkpoint(tmp_path)
    read = kept.offsets()[0]
    ids = np.sort(np.concatenate([np.arange(upto) * len(read) + p for p, upto in enumerate(read)]))
    rows = live.odd_keys(ids, ids).to_pydict()
    reals = Counter("nan" if real != real else real + 0.0 for real in rows["real"])
    state = kept.state("reals").to_pydict()
    assert len(state["key"]) == 4
    assert {"nan" if key != key else key: n for key, n in zip(*state.values(), strict=True)} == reals
    pairs = kept.state("pairs")
    assert pairs.schema == pa.schema([*list(live.ODD_KEYS)[1:], pa.field("value", pa.int64())])
    user, at, counts = pairs.to_pydict().values()
    assert dict(zip(zip(user, at, strict=True), counts, strict=True)) == Counter(
        zip(rows["user"], rows["at"], strict=True)
    )


def _spoil_newest(folder: Path) -> int:
    """Flip a bit of each state file of the newest committed epoch, and return its number."""
    newest = Checkpoint(folder).committed()
    for path in (folder / "dspkit" / "state").glob(f"{newest}-*/*.json"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    return newest


@pytest.mark.parametrize("mode", ["realtime", pytest.param("plain", marks=pytest.mark.slow)])
def test_a_job_whose_state_was_damaged_goes_back_an_epoch_and_is_exact(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with live.job(2000, 50, mode=mode, checkpoint=tmp_path, epoch_s=1.0) as job:
        live.until(lambda: job.observe() and Checkpoint(tmp_path).committed() >= 3)
        job.deploy(job.deployment.scaled({"count": 2}))
    live.each_once(tmp_path)
    newest = _spoil_newest(tmp_path)
    with pytest.raises(CheckpointError, match="checksum"):
        Checkpoint(tmp_path).state("count")
    with live.job(2000, 50, mode=mode, checkpoint=tmp_path) as job:
        assert job.undone_epochs == 1
        live.works(job)
        job.deploy(job.deployment.scaled({"count": 3}))
        live.works(job)
    assert f"goes back to the end of epoch {newest - 1}" in caplog.text
    assert Checkpoint(tmp_path).committed() >= newest
    live.each_once(tmp_path)


@pytest.mark.slow
def test_a_running_job_whose_state_is_damaged_goes_back_too(tmp_path: Path) -> None:
    chance = random.Random(1)
    with live.job(2000, 50, checkpoint=tmp_path, epoch_s=5.0) as job:
        end = time.monotonic() + 120
        while not job.undone_epochs:  # again, if an epoch was committed in between
            assert time.monotonic() < end
            if Checkpoint(tmp_path).committed() > 0:
                _spoil_newest(tmp_path)
                _kill_one_at_work(job, chance)
            job.observe()
        live.works(job)
    live.each_once(tmp_path)


@pytest.mark.slow
def test_old_epochs_leave_nothing_behind(tmp_path: Path) -> None:
    with live.job(1000, 50, checkpoint=tmp_path) as job:
        for k in (1, 2) * 5:
            job.deploy(job.deployment.scaled({"count": k}))
        kept = live.until(lambda: (seen := job.observe().operators["count"]).state_keys and seen)
        assert kept.state_bytes
    assert len(list((tmp_path / "dspkit" / "epochs").iterdir())) <= 5
    assert len(list((tmp_path / "dspkit" / "state").iterdir())) <= 5
    live.each_once(tmp_path)
