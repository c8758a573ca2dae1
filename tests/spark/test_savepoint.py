"""Savepoints: a job with other operators continues from one exactly, or is refused in words."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import live
import sinks
import tasks
from dspkit import Topology
from dspkit.core import ArgumentError
from dspkit.core.files import ExistingFileError
from dspkit.spark import CheckpointError, FunctionError, ParquetSink, SinkError, SparkJob, arrow, keyed
from dspkit.spark.dataflow import savepoint, state, watermarks
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.dataflow.exchange import owners
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.sinks.publisher import Publisher, Target
from dspkit.spark.sinks.sink import SinkMark
from dspkit.workload import Constant

COUNT = KeyedState("count", ("n",), (pa.int64(),), pa.int64(), single=True)
SEEN = replace(COUNT, operator="seen", value=pa.string())
PAIRS = replace(COUNT, value=pa.struct({"n": pa.int64(), "was": pa.string()}))


def _identity(operators: list[str], stateful: list[str], **more: Any) -> dict[str, Any]:
    whole = {"operators": operators, "stateful": stateful, "sinks": [], "partitions": {"read": 1}, "engine": "jar"}
    return whole | {"key groups": 4096} | more


OLD = _identity(["read", "count", "end"], ["count"])
NEW = _identity(["read", "seen", "split", "count"], ["seen", "count"])


class KeyedJob:
    """A log of numbers, which keyed operators count; without Spark."""

    def __init__(self, folder: Path, job: dict[str, Any], declared: Mapping[str, KeyedState]):
        self.checkpoint, self.names, self.declared = Checkpoint(folder), job["operators"], declared
        self.checkpoint.identify(job)
        if not self.checkpoint.zero_micros:
            self.checkpoint.zero_micros = 1
        (folder / "spark").mkdir(exist_ok=True)
        (folder / "spark" / "metadata").write_text(json.dumps({"id": "89d982c7-f7f1-43f5-ae67-6628cc713c0a"}))
        self.undone = self.checkpoint.recover()

    def epoch(self, k: int, values: dict[str, Any]) -> None:
        """Count the next 50 numbers, modulo 30, with `k` instances of each operator; `values` adds one to a value."""
        epoch, low = self.checkpoint.committed() + 1, (self.checkpoint.read(0) or [0])[0]
        plan = state.begin_epoch(self.checkpoint.own, epoch, (1, *[k] * (len(self.names) - 1)))
        for name, declared in self.declared.items():
            for i in range(k):
                known = tasks.read_state(self.checkpoint.own, plan, self.names.index(name), i, declared)
                for key in (n % 30 for n in range(low, low + 50)):
                    if owners(pa.array([key]), k)[0] == i:
                        known[key] = values[name](known.get(key))
                tasks.save_state(self.checkpoint.own, plan, self.names.index(name), i, declared, known)
        sinks.write_spark(self.checkpoint.folder, "offsets", epoch, f"v1\n{{}}\n[{low + 50}]")
        sinks.write_spark(self.checkpoint.folder, "commits", epoch, 'v1\n{"nextBatchWatermarkMs":0}')

    def known(self, name: str) -> dict[Any, Any]:
        return dict(tasks.pairs(self.declared[name], self.checkpoint.state(name)))


def plus_one(value: int | None) -> int:
    return (value or 0) + 1


def longer(value: str | None) -> str:
    return (value or "") + "x"


def pair_plus_one(value: dict[str, Any] | None) -> dict[str, Any]:
    return {"n": value["n"] + 1, "was": value["was"]} if value else {"n": 1, "was": "new"}


def _counts(low: int, high: int) -> Counter[int]:
    return Counter(n % 30 for n in range(low, high))


@pytest.mark.parametrize("epochs", [1, 7])
@pytest.mark.parametrize("converted", [False, True])
def test_a_job_with_other_operators_continues_exactly(converted: bool, epochs: int, tmp_path: Path) -> None:
    chance = random.Random(epochs)
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    for _ in range(epochs):
        old.epoch(chance.randint(1, 5), {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", epochs - 1)
    for _ in range(5):  # the old job runs on, and removes its files
        old.epoch(chance.randint(1, 5), {"count": plus_one})
    shutil.rmtree(tmp_path / "old")
    declared = {"count": PAIRS if converted else COUNT, "seen": SEEN}
    convert = {"count": lambda n: {"n": n, "was": str(n)}} if converted else {}
    savepoint.restore(tmp_path / "saved", Checkpoint(tmp_path / "new"), NEW, declared, convert)
    job = KeyedJob(tmp_path / "new", NEW, declared)
    assert job.undone == []
    at = 50 * epochs
    was = _counts(0, at)
    for more in range(4):
        now = _counts(0, at + 50 * more)
        if converted:
            assert job.known("count") == {
                key: {"n": n, "was": str(was[key]) if key in was else "new"} for key, n in now.items()
            }
        else:
            assert job.known("count") == now
        assert job.known("seen") == {key: n * "x" for key, n in _counts(at, at + 50 * more).items()}
        job.epoch(chance.randint(1, 5), {"count": pair_plus_one if converted else plus_one, "seen": longer})
    again = KeyedJob(tmp_path / "third", OLD, {"count": COUNT})  # the savepoint can be used more than once
    assert again.checkpoint.committed() == -1


def test_a_savepoint_is_a_checkpoint_that_a_job_can_continue(tmp_path: Path) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    for k in (1, 3, 2):
        old.epoch(k, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 2)
    with pytest.raises(ExistingFileError, match="which exists"):
        savepoint.save(old.checkpoint, tmp_path / "saved", 2)
    job = KeyedJob(tmp_path / "saved", OLD, {"count": COUNT})
    job.epoch(4, {"count": plus_one})
    assert job.known("count") == _counts(0, 200)
    assert old.known("count") == _counts(0, 150)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, KeyedState], dict[str, Any], str]] = {
    "state lost": (_identity(["read", "end"], []), {}, {}, "with the state of count, which this job does not have"),
    "other type": (OLD, {"count": PAIRS}, {}, "the state of 'count' of type int64.*pass convert="),
    "other key": (OLD, {"count": replace(COUNT, kinds=(pa.string(),))}, {}, "by the key key int64.*key string"),
    "other engine": (OLD | {"engine": "plain"}, {"count": COUNT}, {}, "with other engine: jar"),
    "other partitions": (OLD | {"partitions": {"read": 2}}, {"count": COUNT}, {}, "with other partitions"),
    "unknown name": (OLD, {"count": COUNT}, {"cuont": str}, "conversions of the state of cuont"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_job_that_cannot_continue_is_refused_in_words(why: str, tmp_path: Path) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    old.epoch(2, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    job, declared, convert, said = REFUSED[why]
    new = Checkpoint(tmp_path / "new")
    new.own.mkdir(parents=True)
    with pytest.raises((CheckpointError, ArgumentError), match=said):
        savepoint.restore(tmp_path / "saved", new, job, declared, convert)
    if (new.own / "restoring").exists():
        with pytest.raises(CheckpointError, match="not yet filled from a savepoint"):
            new.identify(job)
    savepoint.restore(tmp_path / "saved", new, OLD, {"count": COUNT}, {})
    assert KeyedJob(tmp_path / "new", OLD, {"count": COUNT}).known("count") == _counts(0, 50)
    with pytest.raises(CheckpointError, match="which a job has used"):
        savepoint.restore(tmp_path / "saved", new, OLD, {"count": COUNT}, {})


def test_an_operator_with_timers_can_be_added_and_none_can_get_them_later(tmp_path: Path) -> None:
    """A window that is added has not heard of a time yet; that of an operator with state would be unknown."""
    times: dict[str, Any] = {"event times": {"read": "at"}, "windows": {}}
    old = KeyedJob(tmp_path / "old", OLD | times | {"timers": []}, {"count": COUNT})
    old.epoch(2, {"count": plus_one})
    plan = state.read_plan(old.checkpoint.own, 0)
    assert plan is not None
    watermarks.save(old.checkpoint.own, plan, 0, 0, {"partitions": {}})
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    declared = {"seen": SEEN, "count": COUNT}
    made = Checkpoint(tmp_path / "new")
    made.take()
    with pytest.raises(CheckpointError, match="other timers"):
        savepoint.restore(tmp_path / "saved", made, NEW | times | {"timers": ["count"]}, declared, {})
    savepoint.restore(tmp_path / "saved", made, NEW | times | {"timers": ["seen"]}, declared, {})
    plan = state.read_plan(made.own, 0)
    assert watermarks.load(made.own, plan, NEW["operators"].index("seen")) == [{"watermark": watermarks.BEFORE}]


def test_state_can_be_given_up(tmp_path: Path) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    old.epoch(2, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    savepoint.restore(tmp_path / "saved", Checkpoint(tmp_path / "new"), OLD, {"count": PAIRS}, {"count": None})
    job = KeyedJob(tmp_path / "new", OLD, {"count": PAIRS})
    job.epoch(3, {"count": pair_plus_one})
    assert job.known("count") == {key: {"n": n, "was": "new"} for key, n in _counts(50, 100).items()}


def test_a_value_that_the_new_type_does_not_hold_is_named(tmp_path: Path) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    old.epoch(2, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    with pytest.raises(FunctionError, match=r"\.5"):
        savepoint.restore(
            tmp_path / "saved", Checkpoint(tmp_path / "new"), OLD, {"count": COUNT}, {"count": lambda n: n + 0.5}
        )


@pytest.mark.parametrize("damage", ["state/*/*.json", "runs/*", "epochs/*", "job.json"])
def test_a_damaged_savepoint_is_refused(damage: str, tmp_path: Path) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    old.epoch(2, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    for path in (tmp_path / "saved" / "dspkit").glob(damage):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 64
        path.unlink()
        path.write_bytes(data)
    with pytest.raises(CheckpointError):
        savepoint.restore(tmp_path / "saved", Checkpoint(tmp_path / "new"), OLD, {"count": COUNT}, {})
    with pytest.raises(CheckpointError, match="which is no savepoint"):
        savepoint.restore(tmp_path / "nowhere", Checkpoint(tmp_path / "new"), OLD, {"count": COUNT}, {})


def test_a_sink_goes_back_to_the_savepoint_and_has_each_row_once(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "rows")
    old = sinks.FakeJob(tmp_path / "old", sink)
    for k in (1, 2, 3):
        old.epoch(k)
    with old.publisher.settled() as epoch:
        savepoint.save(old.checkpoint, tmp_path / "saved", epoch)
    for k in (1, 2, 3) * 3:  # more than a job goes back by itself
        old.epoch(k)
    new = tmp_path / "new" / "checkpoint"
    savepoint.restore(tmp_path / "saved", Checkpoint(new), sinks.JOB, {}, {})
    job = sinks.FakeJob(tmp_path / "new", sink)
    assert sinks.contents(sink) == [sinks.row(n) for n in range(21)]
    job.epoch(2, count=3)
    assert sinks.contents(sink) == [sinks.row(n) for n in range(24)]
    with pytest.raises(SinkError, match="with epochs up to 3, although it had got those up to 11"):
        sinks.FakeJob(tmp_path / "old", sink)


def test_a_savepoint_with_another_target_and_an_added_sink(tmp_path: Path) -> None:
    old = sinks.FakeJob(tmp_path / "old", ParquetSink(tmp_path / "rows"))
    old.epoch(2)
    savepoint.save(old.checkpoint, tmp_path / "saved", 0)
    new = Checkpoint(tmp_path / "new")
    job = sinks.JOB | {"operators": ["read", "more", "out"], "sinks": ["more", "out"]}
    savepoint.restore(tmp_path / "saved", new, job, {}, {})
    new.identify(job)
    other = {i: Target(str(i), ParquetSink(tmp_path / f"other {i}"), sinks.SCHEMA) for i in (1, 2)}
    assert Publisher(new, other).recover() == []
    marks = [SinkMark.read(new.own, i) for i in (1, 2)]
    assert [mark.published for mark in marks] == [0, 0]
    assert marks[1].writer == SinkMark.read(old.checkpoint.own, 1).writer != marks[0].writer


def test_a_stale_copy_of_a_checkpoint_does_not_withdraw_what_came_later(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "rows")
    job = sinks.FakeJob(tmp_path, sink)
    job.epoch(1)
    shutil.copytree(job.checkpoint.folder, tmp_path / "copy" / "checkpoint")
    for _ in range(6):
        job.epoch(2)
    with pytest.raises(SinkError, match="with epochs up to 6, a checkpoint with those up to 0"):
        sinks.FakeJob(tmp_path / "copy", sink)
    assert sinks.contents(sink) == [sinks.row(n) for n in range(job.read)]


@pytest.mark.spark
@pytest.mark.slow
def test_a_live_job_continues_from_a_savepoint_with_another_operator_and_converted_state(tmp_path: Path) -> None:
    with live.job(2000, 50, checkpoint=tmp_path / "old", epoch_s=1.0) as job:
        live.works(job)
        job.deploy(job.deployment.scaled({"count": 3}))
        live.works(job)
        epoch = job.save(tmp_path / "saved")
        before = sum(Checkpoint(tmp_path / "saved").offsets()[0])
        live.until(lambda: job.observe() and sum(Checkpoint(tmp_path / "old").offsets()[0]) > before)
    assert live.each_once(tmp_path / "old") > live.each_once(tmp_path / "saved") > 0
    assert Checkpoint(tmp_path / "saved").committed() == epoch
    functions = {
        "first": arrow(live.Work(10), live.RECORD),
        "work": arrow(live.Work(10), live.RECORD),
        "count": keyed(live.counts_with_text, key="id", state=live.COUNT_AND_TEXT),
    }
    graph = Topology.chain("read", "first", "work", "count")
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "window_s": 1.0, "epoch_s": 1.0}
    start = {"start_from": tmp_path / "saved", "convert": {"count": lambda n: {"n": n, "text": "old"}}}
    with SparkJob(graph, functions, Constant(2000), checkpoint=tmp_path / "new", **settings, **start) as job:
        job.deploy(job.deployment.scaled({"count": 2}))
        live.works(job)
    old = Checkpoint(tmp_path / "saved").state("count").column("key").to_pylist()
    kept = Checkpoint(tmp_path / "new")
    upto = kept.offsets()[0]
    table = kept.state("count")
    found = dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
    given = {p + s * len(upto) for p, read in enumerate(upto) for s in range(read)}
    assert found == {key: {"n": 1, "text": "old" if key in set(old) else "new"} for key in given}
    assert len(given) > len(old)


def test_a_start_that_was_interrupted_anywhere_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = KeyedJob(tmp_path / "old", OLD, {"count": COUNT})
    for k in (2, 3):
        old.epoch(k, {"count": plus_one})
    savepoint.save(old.checkpoint, tmp_path / "saved", 1)
    declared = {"count": COUNT, "seen": SEEN}
    steps = last = 0
    while steps >= last:
        last, steps = last + 7, 0
        new = Checkpoint(tmp_path / f"new {last}")

        def step(call: Any, *args: Any, _last: int = last, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == _last:
                raise SystemExit
            return call(*args, **more)

        with monkeypatch.context() as patch:
            for name in ("replace", "link", "unlink", "fsync", "mkdir"):
                patch.setattr(os, name, partial(step, getattr(os, name)))
            with contextlib.suppress(SystemExit):
                savepoint.restore(tmp_path / "saved", new, NEW, declared, {})
        begun = (new.own / "restoring").exists()
        if begun:
            with pytest.raises(CheckpointError, match="not yet filled"):
                new.identify(NEW)
        if begun or not (new.own / "job.json").exists():
            savepoint.restore(tmp_path / "saved", new, NEW, declared, {})
        job = KeyedJob(new.folder, NEW, declared)
        assert job.known("count") == _counts(0, 100)
        assert job.known("seen") == {}
    assert last > 35
