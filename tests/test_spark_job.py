"""What a live job reports and does, against what its functions and its load are known to be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import live
from dspkit import Deployment, Operator, Topology, mape, policies, workload
from dspkit.apps import demo
from dspkit.spark import SparkJob, TraceSource, arrow, dataframe, frame, keyed, sql
from dspkit.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark
UTILISATIONS = [0.6, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.2, 1.0))]


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_the_true_rate_is_that_of_the_operator_however_busy_it_is(utilisation: float) -> None:
    """5 ms a record: 200 records/s for an instance, whether it waits, or is never done."""
    rate = 200 * utilisation if utilisation < 1 else 260.0
    with live.job(rate, 5000, window_s=2.0, epoch_s=30.0) as job:
        job.observe()  # workers are cold
        metrics = job.observe().operators["work"]
    assert metrics.true_rate == pytest.approx(200, rel=0.05)
    assert metrics.utilisation == pytest.approx(utilisation, abs=0.05)


NAP = "SELECT id, event_s FROM input WHERE reflect('java.lang.Thread', 'sleep', 20L) IS NULL"  # Spark waits, in Java
SUM = "SELECT id, event_s FROM input WHERE aggregate(sequence(1, id % 2 + 30000), 0L, (a, x) -> a + x) > 0"


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_the_true_rate_of_a_query_is_that_of_its_work_in_java(utilisation: float) -> None:
    """20 ms a record, of which Python sees nothing but how long it took; a frame costs it some 0.2 ms."""
    rate = 50 * utilisation if utilisation < 1 else 65.0
    with _query_job(NAP, rate) as job:
        job.observe()
        metrics = job.observe().operators["work"]
    assert metrics.true_rate == pytest.approx(50, rel=0.05)
    assert metrics.utilisation == pytest.approx(utilisation, abs=0.05)
    assert metrics.cpu < 0.2 * metrics.utilisation  # it waits


def test_the_cores_of_a_query_are_counted_where_java_works() -> None:
    with _query_job(SUM, 150) as job:
        job.observe()
        metrics = job.observe().operators["work"]
    assert metrics.utilisation > 0.1
    assert 0.3 * metrics.utilisation < metrics.cpu < metrics.utilisation + 0.05  # others may hold a core meanwhile


def _query_job(query: str, rate: float) -> SparkJob:
    functions = {"work": sql(query, live.RECORD), "end": arrow(live.swallow)}
    settings: Any = dict(spark=live.spark("realtime"), window_s=4.0, epoch_s=30.0)
    return SparkJob(Topology.chain("read", "work", "end"), functions, workload.Constant(rate), **settings)


def test_ds2_brings_a_job_through_a_load_step_within_three_decisions() -> None:
    load = workload.Jump(400, 2400, 4.0)
    with live.job(micros=1000, load=load, window_s=2.0) as job:
        steps = list(mape(policies.get("ds2")(), job, steps=9, settle=1))
    after = [step for step in steps if step.snapshot.t > 4]
    assert sum(step.rescaled for step in after) <= 3
    last = steps[-1].snapshot
    assert last.deployment.parallelism["work"] in (3, 4)
    assert last.throughput >= 0.9 * 2400


DIAMOND = Topology(
    ("read", "split", "left", "right", Operator("join", stateful=True)),
    (("read", "split"), ("split", "left"), ("split", "right"), ("left", "join"), ("right", "join")),
)


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_a_graph_with_branches_and_a_join_counts_each_record_on_its_own_side(mode: str, tmp_path: Any) -> None:
    functions = {
        "split": arrow(live.sides, live.RECORD),
        "left": arrow(live.slowly, "digit int64"),
        "right": frame(live.digit, "digit int64"),
        "join": keyed(live.joined, key="digit", state=pa.struct({"left": pa.int64(), "right": pa.int64()})),
    }
    k = Deployment({"read": 2, "split": 1, "left": 3, "right": 2, "join": 2})
    settings: Any = dict(spark=live.spark(mode), mode=mode, window_s=1.0, epoch_s=2.0, checkpoint=tmp_path)
    with SparkJob(DIAMOND, functions, workload.Constant(1500), deployment=k, **settings) as job:
        assert any(job.observe().throughput for _ in range(60))
        job.deploy(job.deployment.scaled({"join": 3, "split": 2}))
        snapshot = next(s for s in iter(job.observe, None) if s.throughput)
    busiest = max(m.utilisation for m in snapshot.operators.values())
    assert busiest < 0.5  # some 20 us a record: what passes by is no work
    kept = Checkpoint(tmp_path)
    read = kept.offsets()[0]
    given = np.concatenate([np.arange(upto) * len(read) + p for p, upto in enumerate(read)])
    rows = zip(*kept.state("join").to_pydict().values(), strict=True)
    found = {key: (row["left"], row["right"]) for key, row in rows}
    assert found == {d: ((n, 0) if d % 2 == 0 else (0, n)) for d, n in enumerate(np.bincount(given % 10).tolist())}


def test_two_sources_meet_and_each_has_its_own_rate() -> None:
    topology = Topology(("fast", "slow", "count"), (("fast", "count"), ("slow", "count")))
    sources = {"fast": workload.Constant(900), "slow": TraceSource(workload.Constant(300), partitions=4)}
    functions = {"count": keyed(live.count, key="id", state="int64")}
    with SparkJob(topology, functions, sources, spark=live.spark("realtime"), window_s=2.0, epoch_s=30.0) as job:
        job.observe()
        snapshot = job.observe()
    assert snapshot.source_rates == pytest.approx({"fast": 900, "slow": 300}, rel=0.01)
    assert snapshot.edge_rates == pytest.approx({("fast", "count"): 900, ("slow", "count"): 300}, rel=0.1)
    assert snapshot.throughput == pytest.approx(1200, rel=0.1)


def test_an_operator_that_sends_two_for_one_says_so_and_throughput_counts_source_records() -> None:
    topology = Topology.chain("read", "words", "count")
    functions = {"words": arrow(live.words, "word int64"), "count": arrow(live.swallow)}
    load = workload.Constant(1000)
    with SparkJob(topology, functions, load, spark=live.spark("realtime"), window_s=2.0, epoch_s=30.0) as job:
        job.observe()
        snapshot = job.observe()
    assert snapshot.selectivity(("words", "count")) == pytest.approx(2, rel=0.05)  # a window may part the two
    assert snapshot.throughput == pytest.approx(1000, rel=0.1)
    assert snapshot.operators["count"].processing_rate == pytest.approx(2000, rel=0.1)


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_operators_may_be_sql_and_dataframe_expressions(mode: str, tmp_path: Any) -> None:
    """Some records dropped, each of the others exploded into two, then computed with: against plain arithmetic."""
    topology = Topology.chain("read", "pairs", "last", "count")
    functions = {
        "pairs": sql("SELECT explode(array(id, id + 1)) AS n FROM input WHERE id % 3 <> 0", "n int64"),
        "last": dataframe(lambda df: df.selectExpr("n % 10 AS digit"), "digit int64"),
        "count": keyed(live.digits_counted, key="digit", state="int64"),
    }
    k = Deployment({"read": 1, "pairs": 2, "last": 1, "count": 2})
    settings: Any = dict(spark=live.spark(mode), mode=mode, window_s=1.0, epoch_s=2.0, checkpoint=tmp_path)
    with SparkJob(topology, functions, workload.Constant(900), deployment=k, **settings) as job:
        seen = next(s for s in iter(job.observe, None) if s.throughput)
        job.deploy(job.deployment.scaled({"last": 2, "count": 3}))
        assert any(job.observe().throughput for _ in range(60))
    assert seen.selectivity(("pairs", "last")) == pytest.approx(4 / 3, rel=0.02)
    assert seen.operators["pairs"].true_rate
    kept = Checkpoint(tmp_path)
    read = kept.offsets()[0]
    ids = np.concatenate([np.arange(upto) * len(read) + p for p, upto in enumerate(read)])
    made = np.concatenate([ids[ids % 3 != 0], ids[ids % 3 != 0] + 1]) % 10
    found = dict(zip(*kept.state("count").to_pydict().values(), strict=True))
    assert found == {d: n for d, n in enumerate(np.bincount(made).tolist()) if n}


def test_each_operator_runs_as_many_tasks_as_it_has_instances() -> None:
    """Counted by Spark itself: the tasks at work, stage by stage."""
    with live.job(500, epoch_s=30.0) as job:
        job.deploy(job.deployment.scaled({"read": 2, "work": 5, "count": 3}))
        job.observe()
        tracker = live.spark("realtime").sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        assert sorted(stage.numTasks for stage in stages) == [2, 3, 5]


@pytest.mark.parametrize("mode", ["realtime", "microbatch", "plain"])
def test_a_load_that_stands_still_still_lets_the_job_be_rescaled(mode: str) -> None:
    with live.job(load=workload.Constant(0), mode=mode) as job:
        job.deploy(job.deployment.scaled({"work": 4}))
        snapshot = job.observe()
    assert snapshot.deployment.parallelism["work"] == 4
    assert snapshot.latency is None
    assert snapshot.operators["work"].true_rate is None
    assert snapshot.law == ("pipeline" if mode == "realtime" else "sequential")


@pytest.mark.parametrize("mode", ["plain"])
def test_where_the_jar_cannot_be_used_one_line_says_so(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    live.spark(mode)  # a Spark that somebody else started
    with SparkJob(Topology.chain("read", "end"), {"end": arrow(live.swallow)}, workload.Constant(0)) as job:
        assert job.mode == "microbatch"
    assert [r.getMessage() for r in caplog.records] == [
        "micro-batches without dspkit's jar, instead of real-time mode: a Spark runs that was started without it"
    ]


@pytest.mark.slow
def test_the_demo_tells_that_its_answers_are_right_and_leaves_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    live.spark("realtime")
    demo.main(["--seconds", "10"])
    said = capsys.readouterr().out.splitlines()
    told = re.fullmatch(r"([\d,]+) lines worked on, each once: the answers .* Python. The report: (.*)", said[-1])
    assert told
    assert int(told[1].replace(",", "")) > 1000
    assert "SparkJob(read, split, count" in Path(told[2]).read_text()
    assert [line.split()[0] for line in said[5:-2]] == ["5", "10"]
