"""Power cuts and kill -9 at any moment: each committed record counts once in the state and in the sink.

As a program (`python tests/spark/test_power.py 200`) it does so many of both, and prints what was not exact.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import sinks
from disk import Disk
from dspkit.core import DspkitError
from dspkit.core.files import write_atomically
from dspkit.spark.dataflow import runs, savepoint, store
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.dataflow.exchange import owners
from dspkit.spark.dataflow.state import KeyedState, Plan
from dspkit.spark.sources.log import Catalog, Mark

COUNT = KeyedState("out", ("n",), (pa.int64(),), pa.int64(), single=True)


class Job(sinks.FakeJob):
    """A log of numbers, and an operator that counts each of them and sends it to its sink."""

    identity = sinks.JOB | {"stateful": ["out"]}

    def work(self, plan: Plan, instance: int, numbers: range) -> None:
        known = store.open_store(self.checkpoint.own, plan, 1, instance, COUNT)
        mine = owners(pa.array(numbers), plan.k[1]) == instance
        for number, own in zip(numbers, mine.tolist(), strict=True):
            if own:
                known[number] = known.get(number, 0) + 1
        store.commit_store(plan, 1, instance, known)
        super().work(plan, instance, numbers)

    def check(self, least: int) -> None:
        """Check that nothing is lost of what was committed, and that each record counts once."""
        assert self.undone == [], "a committed epoch was lost"
        assert self.read >= least, "a committed epoch is gone"
        if self.checkpoint.committed() >= 0:
            counts = self.checkpoint.state("out").to_pydict()
            assert dict(zip(*counts.values(), strict=True)) == dict.fromkeys(range(self.read), 1)
        assert sinks.contents(self.sink) == [sinks.row(n) for n in range(self.read)]
        assert not list((self.checkpoint.folder / "spark").glob("*/.*.tmp*")), "half-written files stay"


def begin(folder: Path, kind: str) -> Job:
    """Start a job on what is there, as in a process that knows nothing yet."""
    for cache in (store._OPEN, store._FAILED, runs._opened):
        cache.clear()
    return Job(folder, sinks.make(kind, folder))


def go_on(folder: Path, kind: str, seed: int, tell: Callable[[int], object]) -> None:
    """Run epochs without end, and tell how many records are committed."""
    chance, job = random.Random(seed), begin(folder, kind)
    while True:
        if chance.random() < 0.2:
            job.attempt(2, instances=1)  # which fails
        job.epoch(chance.randint(1, 3), chance.randint(1, 9))
        tell(job.read)


def cut(folder: Path, kind: str, chance: random.Random) -> None:
    """Run a job until the power is cut, and check what its successor finds."""
    told = [0]
    with Disk(folder, chance).power(chance.randint(1, 600)):
        go_on(folder, kind, chance.randrange(10**9), told.append)
    begin(folder, kind).check(told[-1])


def kill(folder: Path, kind: str, chance: random.Random) -> None:
    """Run a job in a process that is killed, and check what its successor finds."""
    reads, writes = os.pipe()
    seed, after, moment = chance.randrange(10**9), chance.randrange(4), chance.random() * 0.05
    if not (child := os.fork()):
        try:
            go_on(folder, kind, seed, lambda read: os.write(writes, b"%d\n" % read))
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        lines = [pipe.readline() for _ in range(after)]
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        lines += pipe.readlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "the job failed"
    begin(folder, kind).check(int(lines[-1]) if lines else 0)


def survive(root: Path, count: int, seed: int) -> list[str]:
    """Do so many cuts and kills by turns, and return those after which something was not exact."""
    chance, failed = random.Random(seed), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "FAN_IN", 3)  # so that runs are merged
        for i in range(count):
            if i % 10 == 0:  # a young job has more folders to lose
                kind, folder = ("parquet", "table")[i // 10 % 2], root / str(i)
                folder.mkdir()
            how = (cut, kill)[i % 2]
            try:
                how(folder, kind, chance)
            except Exception as error:
                failed.append(f"{how.__name__} {i} ({kind}): {type(error).__name__}: {error!s:.300}")
                kind, folder = "parquet", root / f"{i} again"
                folder.mkdir()
    return failed


def test_what_was_committed_is_exact_after_power_cuts_and_kills(tmp_path: Path) -> None:
    assert survive(tmp_path, 30, 1) == []


def test_a_checkpoint_that_was_copied_while_its_job_ran_is_exact_or_refused(tmp_path: Path) -> None:
    """Files of several moments, in any order, and some that are gone by then: as `cp -r` finds them."""
    went: Counter[str] = Counter()
    for seed in range(9):
        chance, folder = random.Random(seed), tmp_path / str(seed)
        job = begin(folder / "old", "table")
        for k in (1, 3, 2):
            job.epoch(k)
        files = [file for file in job.checkpoint.folder.rglob("*") if file.is_file()]
        chance.shuffle(files)
        for file in files:
            if chance.random() < (0.0, 0.02, 0.1)[seed % 3]:
                job.epoch(chance.randint(1, 3), chance.randint(1, 9))
            to = folder / "new" / "checkpoint" / file.relative_to(job.checkpoint.folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(file, to)
        job.checkpoint.release()
        try:
            copied = begin(folder / "new", "table")
        except DspkitError:
            went["refused"] += 1
            continue
        copied.undone = []  # epochs whose files are those of different moments
        copied.check(0)
        copied.epoch(2)
        copied.check(0)
        went["exact"] += 1
    assert went["exact"] >= 3  # of those during which no epoch ran


def test_a_saved_file_is_there_after_a_power_cut(tmp_path: Path) -> None:
    for seed in range(30):
        chance, folder, saved = random.Random(seed), tmp_path / str(seed), []
        folder.mkdir()
        with Disk(folder, chance).power(chance.randint(1, 60)):
            for i in range(9):
                path = folder / f"a{i // 3}" / f"b{i}"
                write_atomically(path, lambda p, i=i: p.write_text(f"{i}" * 100), overwrite=i % 2 == 0)
                saved.append((path, f"{i}" * 100))
        assert [path.read_text() for path, _ in saved] == [text for _, text in saved]


def test_marks_of_a_log_are_there_before_its_records_are_announced(tmp_path: Path) -> None:
    for seed in range(30):
        chance, folder, told = random.Random(seed), tmp_path / str(seed), []
        folder.mkdir()
        with Disk(folder, chance).power(chance.randint(1, 60)):
            Catalog.begin(folder / "logs" / "0", [["a", 0]] * 2, 7)
            catalog = Catalog(folder / "logs" / "0", 2)
            for i in range(20):
                catalog.add({i % 2: [Mark(i + 1 + j / 2, [f"b{i}", i], i) for j in range(chance.randint(1, 2))]})
                told.append(i)
                catalog.trim(0, lambda: [0, 0], lambda mark: str(mark.where[0]))
        if told:
            found = [{mark.number for mark in marks} for marks in Catalog(folder / "logs" / "0", 2).repair()]
            assert [found[i % 2] & {i + 1} for i in told] == [{i + 1} for i in told]


def test_a_savepoint_and_a_start_from_it_are_whole_after_a_power_cut(tmp_path: Path) -> None:
    for seed in range(20):
        chance, folder, done = random.Random(seed), tmp_path / str(seed), []
        job = begin(folder / "old", "table")
        for k in (2, 3):
            job.epoch(k)
        job.checkpoint.release()
        with Disk(folder, chance).power(chance.randint(1, 400)):
            savepoint.save(job.checkpoint, folder / "saved" / "monday", 1)
            done.append("saved")
            new = Checkpoint(folder / "new" / "checkpoint")
            new.take()
            savepoint.restore(folder / "saved" / "monday", new, Job.identity, {"out": COUNT}, {})
            done.append("restored")
        begin(folder / "old", "table").check(2 * sinks.EACH)
        if "saved" in done or (folder / "saved" / "monday").exists():
            Checkpoint(folder / "saved" / "monday")._check(1)
        savepoint.save(job.checkpoint, folder / "saved" / "tuesday", 1)
        if "saved" not in done and not (folder / "saved" / "monday").exists():
            savepoint.save(job.checkpoint, folder / "saved" / "monday", 1)
        assert sorted(os.listdir(folder / "saved")) == ["monday", "tuesday"], "half-written folders stay"
        if "restored" in done:
            begin(folder / "new", "table").check(2 * sinks.EACH)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = survive(Path(scratch), int(sys.argv[1]), 2)
    print(json.dumps({"given": int(sys.argv[1]), "failed": found}))
