"""What a live job reports and does, against what its functions and its load are known to be."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pyarrow as pa
import pytest

import live
from dspkit import Deployment, Operator, Topology, control_loop, demo, policies, workload
from dspkit.core import DeploymentError, OperatorMetrics, Snapshot
from dspkit.spark import ClusterError, SparkJob, ThreadError, TraceSource, arrow, dataframe, frame, keyed, sql
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.runtime import supervisor

pytestmark = pytest.mark.spark
UTILISATIONS = [0.6, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.2, 1.0))]


@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_the_true_rate_is_that_of_the_operator_however_busy_it_is(utilisation: float) -> None:
    """5 ms per record: 200 records/s for an instance, whether it waits, or is never done.

    Other programs can only make an instance slower, as time without a core counts as busy: what the naps take is a
    bound always, and the value in a quiet window.
    """
    rate = 200 * utilisation if utilisation < 1 else 260.0
    with live.job(rate, 5000, window_s=2.0, epoch_s=30.0) as job:
        seen, quiet = live.quiet_window(job, full=utilisation == 1)
    _as_designed(seen.operators["work"], 200, utilisation, quiet)


def _as_designed(metrics: OperatorMetrics, rate: float, utilisation: float, quiet: bool) -> None:
    if not metrics.processing_rate:  # nothing in this window: it is not quiet, and says nothing
        assert metrics.true_rate is None
        assert not quiet
        return
    assert metrics.true_rate is not None
    assert metrics.true_rate <= 1.05 * rate
    assert metrics.utilisation >= 0.95 * min(1.0, metrics.processing_rate / rate)
    assert metrics.utilisation <= 1
    if quiet:
        assert metrics.true_rate == pytest.approx(rate, rel=0.1)
        assert metrics.utilisation == pytest.approx(utilisation, abs=0.1)


NAP = "SELECT id, event_s FROM input WHERE reflect('java.lang.Thread', 'sleep', 20L) IS NULL"  # Spark waits, in Java
SUM = "SELECT id, event_s FROM input WHERE aggregate(sequence(1, id % 2 + 30000), 0L, (a, x) -> a + x) > 0"


@pytest.mark.slow
@pytest.mark.parametrize("utilisation", UTILISATIONS)
def test_the_true_rate_of_a_query_is_that_of_its_work_in_java(utilisation: float) -> None:
    """20 ms per record, of which Python sees nothing but how long it took; a frame costs it some 0.2 ms."""
    rate = 50 * utilisation if utilisation < 1 else 65.0
    with _query_job(NAP, rate) as job:
        seen, quiet = live.quiet_window(job, full=utilisation == 1)
    metrics = seen.operators["work"]
    _as_designed(metrics, 50, utilisation, quiet)
    assert metrics.cpu < 0.2 * metrics.utilisation  # it waits


@pytest.mark.slow
def test_the_cores_of_a_query_are_counted_where_java_works() -> None:
    with _query_job(SUM, 150) as job:
        seen, quiet = live.quiet_window(job)
    metrics = seen.operators["work"]
    assert metrics.cpu > 0 or not quiet
    assert metrics.cpu < metrics.utilisation + 0.05  # others may hold a core meanwhile
    if quiet:
        assert metrics.utilisation > 0.1
        assert metrics.cpu > 0.3 * metrics.utilisation


def _query_job(query: str, rate: float) -> SparkJob:
    functions = {"work": sql(query, live.RECORD), "end": arrow(live.swallow)}
    settings: Any = dict(spark=live.spark("realtime"), window_s=4.0, epoch_s=30.0)
    return SparkJob(Topology.chain("read", "work", "end"), functions, workload.Constant(rate), **settings)


def test_ds2_brings_a_job_through_a_load_step() -> None:
    """An instance of `work` does 1,000 records/s at most, of which 2,400 come after the step: it takes three or more.

    How many decisions that takes, and how many more instances, is a matter of what else this machine does; in a quiet
    one three are enough.
    """
    load, gauge = workload.Jump(400, 2400, 4.0), live.Interference()
    with live.job(micros=1000, load=load, window_s=2.0) as job:
        steps = []
        for step in control_loop(policies.get("ds2")(), job, steps=40, settle=1):
            steps.append(step)
            if step.snapshot.deployment.parallelism["work"] >= 3 and step.snapshot.throughput > 1100 and len(steps) > 8:
                break
        assert job.restarts == 0
    quiet = gauge.share() < live.QUIET
    before, last = [step.snapshot for step in steps if step.snapshot.t < 4], steps[-1].snapshot
    assert all(snapshot.deployment.parallelism["work"] < 3 for snapshot in before) or not quiet
    assert last.deployment.parallelism["work"] >= 3
    assert last.throughput > 1100  # more than the one instance of the beginning can do
    if quiet:
        assert sum(step.rescaled for step in steps if step.snapshot.t > 4) <= 3
        assert last.deployment.parallelism["work"] in (3, 4)


DIAMOND = Topology(
    ("read", "split", "left", "right", Operator("join", stateful=True)),
    (("read", "split"), ("split", "left"), ("split", "right"), ("left", "join"), ("right", "join")),
)


@pytest.mark.parametrize("mode", ["realtime", pytest.param("microbatch", marks=pytest.mark.slow)])
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
        live.works(job)
        job.deploy(job.deployment.scaled({"join": 3, "split": 2}))
        snapshot, quiet = live.quiet_window(job)
    busiest = max(m.utilisation for m in snapshot.operators.values())
    assert busiest < 0.5 or not quiet  # some 20 us a record: what passes by is no work
    kept = Checkpoint(tmp_path)
    read = kept.offsets()[0]
    given = np.concatenate([np.arange(upto) * len(read) + p for p, upto in enumerate(read)])
    rows = zip(*kept.state("join").to_pydict().values(), strict=True)
    found = {key: (row["left"], row["right"]) for key, row in rows}
    assert found == {d: ((n, 0) if d % 2 == 0 else (0, n)) for d, n in enumerate(np.bincount(given % 10).tolist())}


@pytest.mark.slow
def test_two_sources_meet_and_each_has_its_own_rate() -> None:
    topology = Topology(("fast", "slow", "count"), (("fast", "count"), ("slow", "count")))
    sources = {"fast": workload.Constant(900), "slow": TraceSource(workload.Constant(300), partitions=4)}
    functions = {"count": keyed(live.count, key="id", state="int64")}
    with SparkJob(topology, functions, sources, spark=live.spark("realtime"), window_s=2.0, epoch_s=30.0) as job:
        snapshot = job.observe()
        got = live.counted(job, 6000)
    assert snapshot.source_rates == pytest.approx({"fast": 900, "slow": 300}, rel=0.01)
    assert got["offered fast"] == pytest.approx(3 * got["offered slow"], rel=0.01)
    assert got["fast -> count"] == pytest.approx(got["fast"], rel=0.1)
    assert got["slow -> count"] == pytest.approx(got["slow"], rel=0.1)
    assert got["ended"] == pytest.approx(got["fast"] + got["slow"], rel=0.1)
    assert got["fast"] == pytest.approx(3 * got["slow"], rel=0.2)  # neither waits for the other


@pytest.mark.slow
def test_an_operator_that_sends_two_for_one_says_so_and_throughput_counts_source_records() -> None:
    topology = Topology.chain("read", "words", "count")
    functions = {"words": arrow(live.words, "word int64"), "count": arrow(live.swallow)}
    load = workload.Constant(1000)
    with SparkJob(topology, functions, load, spark=live.spark("realtime"), window_s=2.0, epoch_s=30.0) as job:
        got = live.counted(job, 5000)  # so that what an edge of a window parts is little
    assert got["words -> count"] == pytest.approx(2 * got["words"], rel=0.05)
    assert got["count"] == pytest.approx(2 * got["words"], rel=0.1)
    assert got["ended"] == pytest.approx(got["read"], rel=0.2)


@pytest.mark.parametrize("mode", ["realtime", pytest.param("microbatch", marks=pytest.mark.slow)])
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
        assert any(job.observe().operators["pairs"].true_rate for _ in range(60))
        got = live.counted(job, 3000)
        job.deploy(job.deployment.scaled({"last": 2, "count": 3}))
        live.works(job)
    assert got["pairs -> last"] == pytest.approx(4 / 3 * got["pairs"], rel=0.02)
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
        tracker = live.spark("realtime").sparkContext.statusTracker()

        def tasks() -> list[int]:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            return sorted(stage.numTasks for stage in stages if stage is not None)

        live.until(lambda: tasks() == [2, 3, 5])
        job.observe()
        assert tasks() == [2, 3, 5]  # and they stay


@pytest.mark.parametrize(
    "mode", ["realtime", *(pytest.param(m, marks=pytest.mark.slow) for m in ("microbatch", "plain"))]
)
def test_a_load_that_stands_still_still_lets_the_job_be_rescaled(mode: str) -> None:
    with live.job(load=workload.Constant(0), mode=mode) as job:
        job.deploy(job.deployment.scaled({"work": 4}))
        snapshot = job.observe()
    assert snapshot.deployment.parallelism["work"] == 4
    assert snapshot.latency is None
    assert snapshot.operators["work"].true_rate is None
    assert snapshot.execution == ("pipelined" if mode == "realtime" else "micro-batch")


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
    verdict = r"([\d,]+) lines processed, each once: the results equal those of plain Python. The report: (.*)"
    told = re.fullmatch(verdict, said[-1])
    assert told
    assert int(told[1].replace(",", "")) > 1000
    assert "SparkJob(source, flat_map, count, sink" in Path(told[2]).read_text()
    assert [line.split()[0] for line in said[5:-2]] == ["5", "10"]


def test_a_rescale_is_downtime_and_a_routine_commit_is_not() -> None:
    with live.job(300, window_s=1.0, epoch_s=1.0) as job:
        seen: list[Snapshot] = []
        live.until(lambda: seen.append(job.observe()) or sum(s.commit_s for s in seen))
        if not job.restarts:
            assert sum(s.downtime_s for s in seen) == 0
        job.deploy(job.deployment.scaled({"work": 2}))
        live.until(lambda: seen.append(job.observe()) or sum(s.downtime_s for s in seen))
        assert all(len(s.operators["work"].instances or ()) == s.deployment.parallelism["work"] for s in seen)


@pytest.mark.parametrize("which", ["meters", "flow", "supervisor", "stragglers"])
def test_a_job_whose_thread_has_ended_says_so_at_once(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended it: here an error in what it calls."""

    def broken(*_: Any) -> Any:
        raise SystemExit("unforeseen")

    with live.job(300, window_s=60.0) as job:
        thread = next(t for t in job._threads if t._thread.name == f"dspkit-{which}")
        name, owner = {
            "meters": ("receive", job._collector),
            "flow": ("allowance", supervisor),
            "supervisor": ("_again", job._supervisor),
            "stragglers": ("look", thread._run.__self__),
        }[which]
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, broken)
            if which == "supervisor":
                patched.setattr(job._supervisor._engine, "alive", lambda: False)
            began = time.monotonic()
            with pytest.raises(ThreadError, match="SystemExit: unforeseen"):
                job.observe()
            assert time.monotonic() - began < job.window_s  # long before the window's end
            with pytest.raises(ThreadError):
                job.deploy(job.deployment.scaled({"work": 2}))


@pytest.mark.slow
def test_what_a_failed_run_has_read_but_not_committed_is_lag_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment of the restart on, before any task of the next run has read a record."""
    with live.job(1000, window_s=1.0, epoch_s=60.0) as job:
        live.works(job)
        job.deploy(job.deployment.scaled({"work": 2}))  # which commits
        live.until(lambda: sum(map(sum, job._checkpoint.offsets())) > 0)
        committed = sum(map(sum, job._checkpoint.offsets()))

        def read() -> float:
            """Records that count as read."""
            offered = 1e9
            return offered - sum(job._logs.lag({"read": offered}, job._collector.totals(), job._names).values())

        live.until(lambda: read() > committed + 2000)
        again: list[float] = []
        waits = job._workers.wait

        def wait(slots: int) -> None:
            again.append(read())
            waits(slots)

        monkeypatch.setattr(job._workers, "wait", wait)
        pid = [reading["pid"] for (_, operator, _), reading in job._collector._last.items() if operator == 1][-1]
        os.kill(pid, signal.SIGKILL)
        live.until(lambda: again)
        assert again[0] == committed
        live.works(job)


@pytest.mark.slow
def test_a_stopped_worker_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with live.job(300, window_s=1.0, epoch_s=2.0) as job:
        live.works(job)
        pid = [reading["pid"] for (_, operator, _), reading in job._collector._last.items() if operator == 1][-1]
        os.kill(pid, signal.SIGSTOP)
        live.until(lambda: job.observe() and job.restarts)  # the process may be idle: the next epoch needs it
        live.works(job)
    assert "is stopped: it is killed" in caplog.text


def test_a_job_that_continues_from_a_checkpoint_warms_up_as_a_new_one_does(tmp_path: Any) -> None:
    """Sources begin to read once all tasks run, however long these take to start; no record waits for workers."""
    for _ in range(2):
        with live.job(300, window_s=1.0, epoch_s=1.0, checkpoint=tmp_path) as job:
            token = job._collector._tokens[0]
            first = [reading for key, reading in job._collector._last.items() if key[0] == token]
            assert len(first) == job.deployment.instances
            assert all(reading["counts"]["arrived"] == 0 for reading in first)
            live.works(job)


@pytest.mark.slow
def test_a_job_is_observed_while_a_change_drains(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspkit.spark.job._PROMPT_S", 0.5)
    shut = tmp_path / "shut"
    functions = {"work": arrow(live.Gate(shut), live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "window_s": 1.0, "checkpoint": tmp_path / "job"}
    with SparkJob(Topology.chain("read", "work", "count"), functions, workload.Constant(500), **settings) as job:
        live.works(job)
        shut.touch()
        live.until(lambda: job.observe().throughput == 0)
        first, second = (job.deployment.scaled({"work": k}) for k in (2, 3))
        for wanted in (first, second):  # the second replaces the first, which has not begun
            job.deploy(wanted)
            assert job.deployment == wanted
            assert job.observe().deployment.parallelism["work"] == 1
        assert (seen := job.observe()).downtime_s == seen.window_s  # nothing is read
        shut.unlink()
        seen = live.until(lambda: (seen := job.observe()).deployment == second and seen)
        assert len(seen.operators["work"].instances or ()) == 3
        no_worker = ClusterError("no worker", expected="one", fix="wait")
        with monkeypatch.context() as patch:
            patch.setattr(job._workers, "scale_up", Mock(side_effect=no_worker))
            with pytest.raises(ClusterError, match="no worker"):
                job.deploy(first)
        assert job.deployment == job.observe().deployment == second  # what cannot be carried out changes nothing
        assert job.restarts == 0
    live.each_once(tmp_path / "job")


@pytest.mark.slow
def test_a_function_that_leaks_has_its_process_replaced_and_nothing_is_lost(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process has to run the operator twice before it is known to grow, so epochs are short."""
    monkeypatch.setattr("dspkit.spark.dataflow.plan.GROWTH_BYTES", 1 << 24)
    functions = {"work": arrow(live.leaks, live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "window_s": 1.0, "epoch_s": 3.0}
    with SparkJob(
        Topology.chain("read", "work", "count"), functions, workload.Constant(500), checkpoint=tmp_path, **settings
    ) as job:

        def said() -> Any:
            (instance,) = job.observe().operators["work"].instances or ()
            assert instance.memory_bytes is None or instance.memory_bytes > 1 << 20
            words = r"process (\d+) of 'work' has .* grows from epoch to epoch"
            return next((found for message in caplog.messages if (found := re.match(words, message))), None)

        pid = int(live.until(said)[1])
        live.until(lambda: job.observe() and not psutil.pid_exists(pid))
        live.works(job)
        assert job.restarts == 0
    assert live.each_once(tmp_path) > 0


@pytest.mark.slow
def test_jobs_of_one_process_run_side_by_side_or_the_second_is_refused(tmp_path: Any) -> None:
    """Together they need all slots, and each gives its own back at the end of each of its epochs."""
    live.end()

    def job(name: str, **k: int) -> SparkJob:
        start = Deployment({"read": 1, "work": 1, "count": 1} | k)
        master: dict[str, Any] = {"master": "local[8]", "spark": None, "deployment": start, "epoch_s": 1.0}
        return live.job(500, checkpoint=tmp_path / name, **master)

    with job("one", work=2) as one:
        with pytest.raises(
            DeploymentError, match=r"needs 5 slots at once; expected at most the 8 .*less the 4 of other"
        ):
            job("three", work=3)
        with job("two", work=2) as two:
            with pytest.raises(DeploymentError, match=r"needs 5 slots at once; .*less the 4 of other jobs"):
                one.deploy(one.deployment.scaled({"work": 3}))
            before = [Checkpoint(tmp_path / name).committed() for name in ("one", "two")]
            for name, at in zip(("one", "two"), before, strict=True):
                live.until(lambda name=name, at=at: Checkpoint(tmp_path / name).committed() > at + 5)
            two.deploy(two.deployment.scaled({"work": 1}))
            one.deploy(one.deployment.scaled({"work": 3}))
            live.works(one)
            live.works(two)
            assert (one.restarts, two.restarts) == (0, 0)
    assert live.each_once(tmp_path / "one") > 0
    assert live.each_once(tmp_path / "two") > 0
