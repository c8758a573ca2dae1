"""Live jobs with sinks: through rescales, restarts and kill -9 a sink has each record of the log once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import live
from dspkit import Topology
from dspkit.spark import ParquetSink, SinkError, SparkJob, SqlSink, TableSink, arrow
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.workload import Constant

pytestmark = pytest.mark.spark
GRAPH = Topology(
    ("read", "work", "files", "rows", "table"),
    (("read", "work"), ("work", "files"), ("work", "rows"), ("work", "table")),
)


def _sinks(folder: Path) -> dict[str, Any]:
    return {
        "files": ParquetSink(folder / "files"),
        "rows": SqlSink(f"sqlite:///{folder}/rows.db", "rows"),
        "table": TableSink(rows=500),
    }


def _job(folder: Path, mode: str = "realtime", **more: Any) -> SparkJob:
    settings = {"window_s": 1.0, "epoch_s": 1.0, "max_batch_records": 2000, "spark": live.spark(mode)} | more
    if mode == "plain":
        mode, settings = "microbatch", settings | {"engine": "plain"}
    functions = {"work": arrow(live.Work(50), live.RECORD)}
    load = settings.pop("load", Constant(1500.0))
    return SparkJob(
        GRAPH, functions, load, mode=mode, checkpoint=folder / "checkpoint", sinks=_sinks(folder), **settings
    )


def _each_once(folder: Path) -> int:
    """The number of records that the log gave out, after checking that each sink has each of them exactly once."""
    upto = Checkpoint(folder / "checkpoint").offsets()[0]
    given = Counter(p + s * len(upto) for p, read in enumerate(upto) for s in range(read))
    files = _sinks(folder)["files"].files()
    assert Counter(n for path in files for n in pq.read_table(path).column("id").to_pylist()) == given
    assert Counter(pq.read_table(folder / "files").column("id").to_pylist()) == given
    with sqlite3.connect(folder / "rows.db") as connection:
        assert Counter(n for (n,) in connection.execute("SELECT id FROM rows")) == given
    return given.total()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["realtime"])
def test_sinks_have_each_record_once_through_rescales_and_restarts(mode: str, tmp_path: Path) -> None:
    chance, before = random.Random(mode), 0
    for _ in range(2):
        with _job(tmp_path, mode) as job:
            for _ in range(2):
                job.deploy(job.deployment.scaled({name: chance.randint(1, 4) for name in GRAPH.order}))
                time.sleep(chance.uniform(0, 1))
            live.works(job)
            live.until(lambda job=job: len(job.table("table", 100)) == 100)
            rows = job.table("table", 100)
            assert list(rows.columns) == ["id", "event_s"]
            assert rows["id"].is_unique
            assert list(job.table("files", 50).columns) == list(job.table("rows", 50).columns) == ["id", "event_s"]
        now = _each_once(tmp_path)
        assert now > before
        before = now


@pytest.mark.slow
def test_a_sink_that_gives_up_ends_the_job_and_nothing_is_lost(tmp_path: Path) -> None:
    with _job(tmp_path) as job:
        live.until(lambda: len(job.table("rows", 10)) == 10)
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON rows BEGIN SELECT RAISE(FAIL, 'it is full'); END")
    with _job(tmp_path) as job, pytest.raises(SinkError, match=r"it is full.*nothing is lost"):
        live.until(lambda: job.observe() is None)
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("DROP TRIGGER full")
    with _job(tmp_path) as job:
        live.works(job)
    _each_once(tmp_path)


@pytest.mark.slow
def test_a_job_killed_with_its_driver_leaves_each_row_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    for _ in range(2):
        with subprocess.Popen([sys.executable, __file__, str(tmp_path)], env=env, start_new_session=True) as driver:
            try:
                newest = _committed(tmp_path)
                live.until(lambda newest=newest: _committed(tmp_path) > newest)
                time.sleep(chance.uniform(0, 1.5))
            finally:  # else the end of this block waits for it for ever
                os.killpg(driver.pid, signal.SIGKILL)
    with _job(tmp_path) as job:
        live.works(job)
    assert _each_once(tmp_path) > 1000


def _committed(folder: Path) -> int:
    return Checkpoint(folder / "checkpoint").committed()


if __name__ == "__main__":
    with _job(Path(sys.argv[1]), spark=None, master="local[32]") as running:
        while True:
            running.observe()
            running.deploy(running.deployment.scaled({name: random.randint(1, 4) for name in GRAPH.order}))
