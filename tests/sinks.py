"""A job without Spark that writes to a sink, and what is left of it when it is killed at any of its steps.

As a program (`python tests/sinks.py parquet FOLDER 1`) it kills itself at the first step, at the second, and so on;
after each time a new process continues from the checkpoint, and the sink's contents are compared with a plain loop.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dspkit.core.files import make_folder
from dspkit.spark import ParquetSink, Sink, SqlSink, TableSink
from dspkit.spark.dataflow import state
from dspkit.spark.dataflow.checkpoint import Checkpoint, _sums
from dspkit.spark.dataflow.runs import write_durably
from dspkit.spark.sinks.publisher import Publisher, Target
from dspkit.spark.sinks.sink import Staging

SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string()})
JOB = {"operators": ["read", "out"], "stateful": [], "sinks": ["out"], "partitions": {"read": 1}, "engine": "jar"}
EACH = 7  # records of an epoch
assert pd  # Arrow loads it, which takes longer than all else that a process does here


def row(number: int) -> dict[str, Any]:
    return {"id": number, "word": "w" * (number % 5)}


def write_spark(folder: Path, kind: str, epoch: int, text: str) -> None:
    """Write one of Spark's files as Checkpoints.java does: durably, under its name last."""
    path = folder / "spark" / kind / str(epoch)
    make_folder(path.parent)
    for name, data in ((f".{epoch}.crc", _sums(text.encode())), (str(epoch), text.encode())):
        fresh = path.with_name(f".{epoch}.{uuid.uuid4()}.tmp")
        write_durably(fresh, [data])
        os.replace(fresh, path.with_name(name))
    state.synchronise(path.parent)


class FakeJob:
    """A log of numbers, and an operator that sends each to its sink."""

    identity: Mapping[str, Any] = JOB

    def __init__(self, folder: Path, sink: Sink):
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.sink = sink.at(self.checkpoint.own / "tables" / "1")
        self.checkpoint.identify(self.identity)
        if not self.checkpoint.zero_micros:
            self.checkpoint.zero_micros = 1
        make_folder(self.checkpoint.folder / "spark")
        (self.checkpoint.folder / "spark" / "metadata").write_text(json.dumps({"id": str(uuid.UUID(int=1))}))
        self.publisher = Publisher(self.checkpoint, {1: Target("out", self.sink, SCHEMA)})
        self.undone = self.publisher.recover()

    @property
    def read(self) -> int:
        """The number of records that are read and committed."""
        offsets = self.checkpoint.offsets()
        return offsets[0][0] if offsets else 0

    def attempt(self, k: int, count: int = EACH, instances: int | None = None) -> tuple[int, int]:
        """Run an epoch up to its commit, or only some of its instances; return its number and how far it has read."""
        epoch, low = self.checkpoint.committed() + 1, self.read
        plan = state.begin_epoch(self.checkpoint.own, epoch, (1, k))
        write_spark(self.checkpoint.folder, "offsets", epoch, f"v1\n{{}}\n{json.dumps([low + count])}")
        for i in range(k if instances is None else instances):
            self.work(plan, i, range(low, low + count))
        return epoch, low + count

    def work(self, plan: state.Plan, instance: int, numbers: range) -> None:
        """Run an instance in an attempt at an epoch with these records."""
        staging = Staging(self.checkpoint.own, plan, 1, instance, SCHEMA)
        mine = [row(n) for n in numbers if n % plan.k[1] == instance]
        for at in range(0, len(mine), 2):
            staging.write(pa.RecordBatch.from_pylist(mine[at : at + 2], schema=SCHEMA))
        staging.commit()

    def commit(self, k: int, count: int = EACH) -> None:
        """Run an epoch and commit it; its rows are not published yet."""
        epoch, _ = self.attempt(k, count)
        write_spark(self.checkpoint.folder, "commits", epoch, 'v1\n{"nextBatchWatermarkMs":0}')

    def epoch(self, k: int, count: int = EACH) -> None:
        self.commit(k, count)
        self.publisher.publish()


def contents(sink: Sink) -> list[dict[str, Any]]:
    """All rows of a sink as a program reads them that knows nothing of the job, in the order of the log."""
    if isinstance(sink, ParquetSink):
        by_manifest = [row for path in sink.files() for row in pq.read_table(path).to_pylist()]
        in_folder = [row for path in sink._folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
        order = lambda row: row["id"]  # noqa: E731
        by_manifest.sort(key=order)
        in_folder.sort(key=order)
        assert [row for row in in_folder if row in by_manifest] == by_manifest
        return in_folder
    assert isinstance(sink, SqlSink)
    with sqlite3.connect(sink._file) as connection:
        try:
            found = connection.execute('SELECT id, word FROM "rows" ORDER BY id').fetchall()
        except sqlite3.OperationalError:  # not created yet
            return []
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in found]


def make(kind: str, folder: Path) -> Sink:
    if kind == "sqlite":
        return SqlSink(f"sqlite:///{folder}/rows.db", "rows")
    return TableSink(rows=1000) if kind == "table" else ParquetSink(folder / "rows")


class Steps:
    """Counts the changes that a process makes to files and databases, and kills it before one of them."""

    def __init__(self, last: int):
        self.last, self.done = last, 0
        for name in ("replace", "link", "unlink", "fsync", "mkdir", "rmdir"):
            setattr(os, name, self.counted(getattr(os, name)))
        steps = self

        class Cursor(sqlite3.Cursor):
            execute = steps.counted(sqlite3.Cursor.execute)
            executemany = steps.counted(sqlite3.Cursor.executemany)

        class Connection(sqlite3.Connection):
            def cursor(self, *args: Any) -> Any:
                return super().cursor(Cursor)

        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **more: connect(*args, factory=Connection, **more)

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **more: Any) -> Any:
            self.done += 1
            if self.done == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return step


def work(folder: Path, sink: Sink) -> None:
    """Three epochs with other parallelism each, one of which fails at first; the last two are published together."""
    job = FakeJob(folder, sink)
    job.epoch(1)
    job.attempt(3)
    job.attempt(2, count=EACH + 2, instances=1)
    job.commit(2)
    job.epoch(3)


def check_after(folder: Path, sink: Sink) -> None:
    """Check that a killed job left no more than it committed, and that its successor adds each row once."""
    before = contents(sink.at(folder / "checkpoint" / "dspkit" / "tables" / "1"))
    offsets = Checkpoint(folder / "checkpoint").offsets() if (folder / "checkpoint" / "spark").exists() else []
    committed = offsets[0][0] if offsets else 0
    assert [r for r in before if r["id"] >= committed] == [], "rows of an epoch that was not committed"
    assert len({r["id"] for r in before}) == len(before), "a row twice"
    job = FakeJob(folder, sink)
    assert contents(job.sink) == [row(n) for n in range(job.read)], "after the start"
    for k in (2, 1):
        job.epoch(k)
    assert contents(job.sink) == [row(n) for n in range(job.read)], "after two epochs"
    assert len(list((job.checkpoint.own / "sinks" / "1").iterdir())) == 1, "staged files are left"


def in_child(run: Callable[[], None]) -> int:
    """Run something in a process of its own, and return the signal that ended it."""
    if not (child := os.fork()):
        try:
            run()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or not os.WEXITSTATUS(status), "see above"
    return os.WTERMSIG(status)


def main(kind: str, folder: Path, every: int) -> None:
    chance, last = random.Random(kind), 0
    killed = True
    while killed:
        last += chance.randint(1, 2 * every - 1)
        (place := folder / str(last)).mkdir()

        def first(last: int = last, place: Path = place) -> None:
            Steps(last)
            work(place, make(kind, place))

        killed = in_child(first) == signal.SIGKILL
        again = chance.randint(1, 20)  # the next one may be killed as well, while it recovers

        def second(last: int = again, place: Path = place) -> None:
            Steps(last)
            FakeJob(place, make(kind, place))

        in_child(second)
        in_child(lambda place=place: check_after(place, make(kind, place)))
    print(last)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
