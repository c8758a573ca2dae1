"""Stock queries that run: what must never harm them, and the members of Spark that changing them rests on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame

import live
from dspkit.spark import AttachError, attach, realtime_slots
from dspkit.spark.runtime import session
from dspkit.spark.stock.knobs import KNOBS
from dspkit.spark.stock.observation import STAGE

CLASSES = "org.apache.spark.sql.execution."


class Files:
    """A query over a folder as a user writes it: files in, a function of the user's out."""

    def __init__(self, home: Path, shape: Callable[[Any], Any] = lambda frame: frame, mode: str = "append"):
        self.spark = live.spark("plain").newSession()
        self.spark.conf.set("spark.sql.shuffle.partitions", "4")
        (home / "in").mkdir()
        self.home, self.written, self.rows = home, 0, list[Any]()
        self.act: Callable[[], object] = lambda: None
        self.frame = shape(self.spark.readStream.schema("id bigint").json(str(home / "in")))
        self._mode = mode
        self.query: Any = None

    def start(self, trigger: str | None = None) -> Files:
        writer = self.frame.writeStream.outputMode(self._mode).option("checkpointLocation", str(self.home / "state"))
        writer = writer if trigger is None else writer.trigger(processingTime=trigger)
        self.query = writer.foreachBatch(self._keep).start()
        return self

    def _keep(self, frame: Any, number: int) -> None:
        self.act()
        self.rows += [row["id"] for row in frame.collect()]

    def feed(self) -> None:
        part = self.home / "part"
        part.write_text("".join(json.dumps({"id": 5 * self.written + i}) + "\n" for i in range(5)))
        part.rename(self.home / "in" / f"{self.written:06d}.json")
        self.written += 1

    def done(self) -> bool:
        """Wait until all that was written is read; return whether each record came once."""
        live.until(lambda: len(self.rows) >= 5 * self.written or not self.query.isActive, 60)
        return sorted(self.rows) == list(range(5 * self.written))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path)
    yield made
    if made.query is not None:
        made.query.stop()


def test_a_trigger_of_an_hour_is_taken_back_at_once(files):
    """The query waits for its next trigger in a clock that can be set; Spark's own would wait out the hour."""
    files.start("300 milliseconds").feed()
    assert files.done()
    job = attach(files.query)
    job.trigger("1 hour")
    live.until(lambda: job._changer._pace.waitsUntil() > 1e3 * (time.time() + 300), 60)
    files.feed()
    job.detach()
    assert files.done()
    execution = files.query._jsq.streamingQuery()
    assert execution.triggerExecutor().clock().getClass().getSimpleName() == "SystemClock"


def test_a_clean_stop_that_is_not_possible_in_time_leaves_the_query_running(files):
    go = threading.Event()
    files.start("200 milliseconds").feed()
    assert files.done()
    files.act = lambda: go.wait(60)
    job = attach(files.query)
    files.feed()
    live.until(lambda: files.query.status["isTriggerActive"], 60)
    with pytest.raises(AttachError, match="has not ended within 1 s"):
        job.stop(clean=True, timeout_s=1)
    go.set()
    files.feed()
    assert files.done()
    job.detach()
    files.feed()
    assert files.done()


def test_stops_between_batches_leave_nothing_half_done_whatever_the_trigger(files):
    for trigger in (None, "100 milliseconds", "1 minute", None):
        files.start(trigger).feed()
        if trigger != "1 minute":
            assert files.done()
        else:
            live.until(lambda: files.query.status["message"] == "Waiting for next trigger", 60)
        job = attach(files.query)
        job.stop(clean=True)
        assert not job._changer.half_done()
    files.start()
    assert files.done()


def test_a_query_that_fails_while_attached_is_said_to_have_failed(files):
    files.start().feed()
    assert files.done()
    with attach(files.query, window_s=0.2) as job:
        change = job.tasks(2)

        def fail() -> None:
            raise RuntimeError("the table is gone")

        files.act = fail
        files.feed()
        live.until(lambda: not files.query.isActive, 60)
        live.until(lambda: job.doctor().state == "ended", 30)
        assert "the table is gone" in job.doctor().why
        assert not change.wait(0.1)
        assert job.observe() is None
        with pytest.raises(AttachError, match="the table is gone"):
            job.limit(files=2)
    assert job.detach() is None


def test_one_attachment_changes_a_query_at_a_time_and_the_newest_takes_over(files):
    files.start().feed()
    assert files.done()
    first, second = attach(files.query), attach(files.query)
    try:
        first.limit(files=3)
        second.limit(files=7)
        assert second._changer.read_limit() == ("files", 7)
        with pytest.raises(AttachError, match="newer one has taken over"):
            first.limit(files=3)
        first.detach()
        assert second._changer.read_limit() == ("files", 7), "it has nothing left to undo"
    finally:
        first.close()
        second.close()
    assert attach(files.query)._changer.read_limit() is None


def test_a_query_that_sorts_keeps_its_tasks(tmp_path):
    """Rows of two sorted partitions in one task would reach the sink in another order."""
    sorts = Files(tmp_path, lambda frame: frame.groupBy("id").count().orderBy("id"), "complete").start()
    try:
        sorts.feed()
        assert sorts.done()
        with attach(sorts.query) as job, pytest.raises(AttachError, match="sorts"):
            job.tasks(2)
        rule = attach(sorts.query)._changer
        rule._static("dspkit.Steer", "install", "org.apache.spark.sql.SparkSession",
                     rule.execution.sparkSessionForStream()).set(2, 0)  # fmt: skip
        sorts.rows.clear()
        sorts.feed()
        live.until(lambda: len(sorts.rows) == 10, 60)
        assert sorts.rows == list(range(10))
        plan = str(rule.execution.lastExecution().optimizedPlan().treeString())
        assert "Repartition" not in plan, "the rule itself leaves sorted plans alone"
    finally:
        sorts.query.stop()


def test_a_continuous_query_is_refused(tmp_path):
    rate = live.spark("plain").readStream.format("rate").option("rowsPerSecond", 5).load()
    writer = rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(continuous="1 second").start()
    try:
        live.until(lambda: query.status["message"] != "Starting new streaming query", 30)
        with pytest.raises(AttachError, match="continuous trigger"):
            attach(query)
        assert query.isActive
    finally:
        query.stop()


# ---- what changing a query rests on, by name: a test that fails here says what a new Spark has changed


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A query with state that has run a batch, attached."""
    files = Files(tmp_path_factory.mktemp("internals"), lambda frame: frame.groupBy("id").count(), "update")
    files.start("200 milliseconds").feed()
    assert files.done()
    job = attach(files.query, budget=1.0)
    live.until(lambda: any(b.stages for b in job.batches), 60)
    yield job
    job.close()
    files.query.stop()


def methods(name: str, spark: Any) -> set[tuple[str, int]]:
    """Names and numbers of parameters of a class's methods."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kind = spark._jvm.java.lang.Class.forName(name, True, loader)
    return {(str(m.getName()), int(m.getParameterCount())) for m in kind.getMethods()}


BACKEND = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend"
INTERNALS: dict[str, Callable[[Any, Any], bool]] = {
    "StreamExecution.uniqueSources_$eq": lambda q, s: q.uniqueSources().size() == 1
    and ("uniqueSources_$eq", 1) in methods(str(q.getClass().getName()), s),
    "ReadLimit.maxRows": lambda q, s: _limit(s, "maxRows") == "ReadMaxRows",
    "ReadLimit.maxFiles": lambda q, s: _limit(s, "maxFiles") == "ReadMaxFiles",
    "ReadLimit.maxBytes": lambda q, s: _limit(s, "maxBytes") == "ReadMaxBytes",
    "ProcessingTimeExecutor.intervalMs": lambda q, s: "intervalMs" in _fields(q.triggerExecutor()),
    "ProcessingTimeExecutor.clock": lambda q, s: "clock" in _fields(q.triggerExecutor()),
    "StreamExecution.sparkSessionForStream": lambda q, s: not q.sparkSessionForStream().equals(s._jsparkSession),
    "ExperimentalMethods.extraOptimizations": lambda q, s: q.sparkSessionForStream()
    .experimental().extraOptimizations().size() == 0,
    "StreamExecution.lastExecution": lambda q, s: bool(q.lastExecution().executedPlan().nodeName())
    and "Aggregate [" in str(q.lastExecution().optimizedPlan().treeString()),
    "StreamExecution.resolvedCheckpointRoot": lambda q, s: str(q.resolvedCheckpointRoot()).startswith("file:"),
    "StreamExecution.offsetLog": lambda q, s: int(q.offsetLog().getLatestBatchId().get()) >= 0,
    "StreamExecution.commitLog": lambda q, s: int(q.commitLog().getLatestBatchId().get()) >= 0,
    "StreamExecution.sink": lambda q, s: "ForeachBatch" in str(q.sink().getClass().getSimpleName()),
    "CoarseGrainedSchedulerBackend.killExecutors": lambda q, s: ("killExecutors", 4) in methods(BACKEND, s),
    "CoarseGrainedSchedulerBackend.decommissionExecutor": lambda q, s: ("decommissionExecutor", 4)
    in methods(BACKEND, s),
    "CoarseGrainedSchedulerBackend.getRequestedTotalExecutors": lambda q, s: ("getRequestedTotalExecutors", 0)
    in methods(BACKEND, s),
    "SparkContext.requestTotalExecutors": lambda q, s: ("requestTotalExecutors", 3)
    in methods("org.apache.spark.SparkContext", s),
    "LowLatencyClock.setClock": lambda q, s: ("setClock", 1) in methods(CLASSES + "datasources.v2.LowLatencyClock", s),
    "SparkSession._streamingCheckpointManager": lambda q, s: hasattr(s._streamingCheckpointManager, "repartition"),
}  # fmt: skip


def _limit(spark: Any, name: str) -> str:
    made = getattr(spark._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit, name)(3)
    assert int(getattr(made, name)()) == 3
    return str(made.getClass().getSimpleName())


def _fields(thing: Any) -> list[str]:
    return [str(f.getName()) for f in thing.getClass().getDeclaredFields()]


@pytest.mark.parametrize("member", INTERNALS)
def test_spark_still_has(member, running):
    assert INTERNALS[member](running._changer.execution, session.running_session()), f"this Spark has changed {member}"


def test_spark_still_names_the_jobs_of_a_query_after_its_run_and_their_batch(running):
    store = running._store
    jobs = store._jobs()
    assert jobs, "jobs no longer have the run id of their query as job group"
    told = str(store._store.job(max(jobs)).description().get())
    assert told.rsplit("\n", 1)[-1].startswith("batch = "), "a batch is no longer named so"


@pytest.mark.parametrize("name", [*STAGE, "status"])
def test_spark_still_reports_of_a_stage(name, running):
    stage = next(b for b in reversed(running.batches) if b.stages).stages[-1]
    assert getattr(running._store._store.lastStageAttempt(stage.id), name)() is not None, f"no {name} of a stage"


def test_the_sums_of_stages_are_those_of_sparks_own_text(running):
    """Against Jackson, with which Spark writes its REST answers."""
    jvm = session.running_session()._jvm
    scala = jvm.com.fasterxml.jackson.module.scala.DefaultScalaModule()
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper().registerModule(scala)
    runs = next(b for b in reversed(running.batches) if b.stages).stages
    for run in runs:
        stage = running._store._store.lastStageAttempt(run.id)
        told = json.loads(mapper.writeValueAsString(stage))
        assert running._store.values(stage) == {name: told[name] for name in STAGE}
    levels = running._store._levels
    spread = json.loads(mapper.writeValueAsString(running._store._store.taskSummary(runs[-1].id, 0, levels).get()))
    assert [1e3 * runs[-1].median_s, 1e3 * runs[-1].longest_s] == pytest.approx(spread["executorRunTime"])


def test_spark_still_says_that_a_query_waits_for_its_trigger_in_these_words(running):
    live.until(lambda: running._user.status["message"] == "Waiting for next trigger", 30)


def test_spark_still_lists_the_files_of_each_batch_in_its_checkpoint(running):
    assert running._files is not None, "the description of a file source, or sources/0 of the checkpoint, has changed"
    assert sum(running._files.per_batch.values()) == 1


# ---- real-time mode


@pytest.fixture
def realtime(tmp_path: Path) -> Iterator[Any]:
    """A query of two source partitions and a repartition of its own over Spark's low-latency memory source."""
    spark = live.spark("plain").newSession()
    for name, value in {
        "minBatchDuration": "500", "allowlistCheck": "false",
    }.items():  # fmt: skip
        spark.conf.set(f"spark.sql.streaming.realTimeMode.{name}", value)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    jvm = spark.sparkContext._jvm
    kind = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
    encoder = jvm.org.apache.spark.sql.Encoders.LONG()
    source = kind(77, spark._jsparkSession, 2, jvm.org.apache.spark.util.SystemClock(), encoder)
    frame = DataFrame(source.toDF(), spark).repartition(3, "value").selectExpr("value + 1 as v")
    ended = threading.Event()

    def feed() -> None:
        i = 0
        while not ended.wait(0.05):
            data = jvm.java.util.stream.LongStream.range(i, i + 5).boxed().toList()
            source.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(data))
            i += 5

    def start(seconds: int) -> Any:
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path))
        started.append(writer.trigger(realTime=f"{seconds} seconds").start())
        threading.Thread(target=feed, daemon=True).start()
        return started[0]

    started: list[Any] = []
    yield SimpleNamespace(frame=frame, start=start)
    ended.set()
    for query in started:
        query.stop()


def test_a_realtime_query_is_checked_before_the_start_and_only_changed_as_it_can_be(realtime):
    """2 + 3 tasks; a batch of 60 s is cut, and the next one runs its repartition in 5 tasks."""
    slots = realtime_slots(realtime.frame, source_partitions=2)
    assert (slots.needed, slots.fits) == (5, True)
    assert not realtime_slots(realtime.frame.repartition(64), source_partitions=2).fits
    with pytest.raises(AttachError, match="streaming DataFrame"):
        realtime_slots(live.spark("plain").range(3), source_partitions=2)
    query = realtime.start(60)
    job = attach(query)
    try:
        live.until(lambda: not query.isActive or job._changer._tasks() == 5, 60)
        assert query.exception() is None
        assert set(job.missing) == set(KNOBS)
        with pytest.raises(AttachError, match="real-time mode only"):
            job.tasks(2)
        with pytest.raises(AttachError, match="tasks at once"):
            job.shuffle(80)
        job.shuffle(5)
        began = time.monotonic()
        job.cut()
        live.until(lambda: not query.isActive or job._changer._tasks() == 7, 50)
        assert query.exception() is None
        assert time.monotonic() - began < 50, "the batch lasts 60 s"
    finally:
        job.close()
