"""Spark's event logs, REST answers and progress lines; a real application's against what the live backend measured."""

from __future__ import annotations

import gzip
import json
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import live
from benchmarks._event_log import CHAIN, QUERY, Stage, events
from dspkit import Deployment, Topology
from dspkit.loaders import Limits, LoaderError, SparkEventLog, SparkProgress, SparkRest
from dspkit.workload import Constant

NAMES = ["read", "work", "count"]
TASK, END, COMPLETED = "SparkListenerTaskEnd", "SparkListenerJobEnd", "SparkListenerStageCompleted"


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def lz4(data: bytes) -> bytes:
    """As lz4-java's LZ4BlockOutputStream; its checksums are not read."""
    made = b""
    for i in range(0, len(data), 1 << 15):
        part = data[i : i + (1 << 15)]
        packed = pa.Codec("lz4_raw").compress(part, asbytes=True)
        token, packed = (0x20, packed) if len(packed) < len(part) else (0x10, part)
        made += struct.pack("<8sBIII", b"LZ4Block", token | 5, len(packed), len(part), 0) + packed
    return made + struct.pack("<8sBIII", b"LZ4Block", 0x10 | 5, 0, 0, 0)


def snappy(data: bytes) -> bytes:
    """As snappy-java's SnappyOutputStream."""
    parts = [pa.Codec("snappy").compress(data[i : i + (1 << 15)], asbytes=True) for i in range(0, len(data), 1 << 15)]
    return struct.pack(">8sii", b"\x82SNAPPY\0", 1, 1) + b"".join(struct.pack(">i", len(p)) + p for p in parts)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKERS = {"plain": bytes, "zstd": zstd, "lz4": lz4, "snappy": snappy, "gz": gzip.compress}


def test_a_stage_is_an_operator_with_records_over_run_time_less_waits(tmp_path):
    """R/(T - W), from numbers that were chosen: see CHAIN."""
    loader = SparkEventLog(write(tmp_path / "log", list(events(5))), names=NAMES)
    history = loader.history()
    assert not loader.problems
    assert history.topology.edges == (("read", "work"), ("work", "count"))
    assert [s.snapshot.window_s for s in history] == pytest.approx([1.0, 2.0, 2.0, 2.0, 2.0])
    for step in history[1:]:
        assert step.snapshot.execution == "micro-batch"
        for name, stage in zip(NAMES, CHAIN, strict=True):
            m = step.snapshot.operators[name]
            busy_s = (stage.run_ms - stage.wait_ms) / 1000  # of a task
            assert m.parallelism == stage.tasks
            assert m.processing_rate == pytest.approx(stage.received * stage.tasks / 2)
            assert m.true_rate == pytest.approx(stage.received / busy_s)
            assert m.utilisation == pytest.approx(busy_s / 2)
            assert m.cpu == pytest.approx(stage.tasks * stage.run_ms / 2000 / 2)
        assert step.snapshot.operators["work"].output_rate == pytest.approx(16 * 250 / 2)
        assert step.snapshot.latency.mean == pytest.approx(1.0)
        assert step.snapshot.edge_rates["work", "count"] == pytest.approx(2000)
    grouped = SparkEventLog(tmp_path / "log", names=NAMES, window_s=4).history()
    assert [s.snapshot.window_s for s in grouped] == pytest.approx([5.0, 4.0])
    assert grouped[1].snapshot.operators["work"].true_rate == pytest.approx(16 * 500 / (16 * 0.36))


def test_branches_come_from_the_stages_parents(tmp_path):
    fork = (
        Stage(1, 10, 10, 100),
        Stage(2, 10, 5, 100, 0, (0,)),
        Stage(2, 10, 5, 100, 0, (0,)),
        Stage(1, 10, 0, 9, 0, (1, 2)),
    )
    history = SparkEventLog(write(tmp_path / "log", list(events(3, fork)))).history()
    edges = {("stage_0", "stage_1"), ("stage_0", "stage_2"), ("stage_1", "stage_3"), ("stage_2", "stage_3")}
    assert set(history.topology.edges) == edges


@pytest.mark.parametrize("packer", PACKERS)
def test_packed_logs_say_the_same(tmp_path, packer):
    data = ("\n".join(events(20)) + "\n").encode()
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(data)
    packed.write_bytes(PACKERS[packer](data))
    loaders = [SparkEventLog(path, names=NAMES) for path in (plain, packed)]
    assert loaders[0].history().steps == loaders[1].history().steps
    assert not loaders[1].problems
    packed.write_bytes(packed.read_bytes()[: packed.stat().st_size * 2 // 3])  # it is still being written
    history = loaders[1].history()
    assert 8 <= len(history) < 20
    assert loaders[1].problems


def test_rolled_logs_are_read_in_order_and_compacted_ones_stand_for_what_was_before(tmp_path):
    lines = list(events(20))
    folder = tmp_path / "eventlog_v2_local-1"
    folder.mkdir()
    write(folder / "appstatus_local-1", [])
    third = len(lines) // 3
    for i, part in enumerate((lines[:third], lines[third : 2 * third], lines[2 * third :])):
        write(folder / f"events_{(2, 10, 11)[i]}_local-1", part)
    whole = SparkEventLog(write(tmp_path / "log", lines), names=NAMES).history()
    assert SparkEventLog(folder, names=NAMES).history().steps == whole.steps
    write(folder / "events_10_local-1.compact", lines[: 2 * third])
    assert SparkEventLog(folder, names=NAMES).history().steps == whole.steps
    with pytest.raises(LoaderError, match="without events_1"):
        SparkEventLog(tmp_path).history()


def change(lines: list[str], event: str, nth: int, edit: object) -> list[str]:
    """The log with one event edited."""
    places = [i for i, line in enumerate(lines) if line.startswith(f'{{"Event":"{event}"')]
    told = json.loads(lines[places[nth]])
    edit(told)
    return [json.dumps(told) if i == places[nth] else line for i, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("event", "edit", "reason"),
    [
        (TASK, lambda e: e["Task Metrics"].update({"Executor Run Time": -5}), "Executor Run Time: negative"),
        (TASK, lambda e: e["Task Metrics"].update({"Executor Run Time": "5"}), "Executor Run Time: not a number"),
        (TASK, lambda e: e["Task Metrics"].pop("Shuffle Read Metrics"), "Fetch Wait Time: missing"),
        (TASK, lambda e: e.update({"Stage ID": "x"}), "Stage ID: not a whole number"),
        (TASK, lambda e: e.update({"Task Metrics": None}), "Executor Run Time: missing"),
        (TASK, lambda e: e["Task End Reason"].update(Reason="Killed"), "batch with tasks that are missing or failed"),
        (END, lambda e: e["Job Result"].update(Result="JobFailed"), "job that failed"),
        (END, lambda e: e.update({"Completion Time": 1}), "clock stepped back"),
        (COMPLETED, lambda e: e["Stage Info"].update({"Failure Reason": "lost"}), "stage that failed"),
    ],
)
def test_a_batch_that_was_not_seen_whole_is_dropped(tmp_path, event, edit, reason):
    nth = {TASK: 28 * 3 + 4, END: 3, COMPLETED: 9}[event]
    log = write(tmp_path / "log", change(list(events(6)), event, nth, edit))
    loader = SparkEventLog(log, names=NAMES)
    history = loader.history()
    assert loader.problems[reason] == 1
    assert len(history) == 5  # the one before and the one after are as they were
    assert {round(s.snapshot.operators["work"].true_rate, 6) for s in history} == {1388.888889}
    with pytest.raises(LoaderError, match="nothing to drop"):
        SparkEventLog(log, names=NAMES, strict=True).history()


def test_a_log_of_lies_cannot_fill_the_memory(tmp_path):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(zstd(b"\n" * (1 << 28)))
    with pytest.raises(LoaderError, match="lines"):
        SparkEventLog(bomb).history()
    bomb.write_bytes(zstd(b" " * (1 << 28)))
    with pytest.raises(LoaderError, match="expansion"):
        SparkEventLog(bomb, limits=Limits(expansion=100)).history()
    with pytest.raises(LoaderError, match="total_bytes"):
        SparkEventLog(bomb, limits=Limits(expansion=10**6, total_bytes=10**6)).history()
    long = tmp_path / "long"
    with long.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * (1 << 20))
        file.write(("\n" + "\n".join(events(3))).encode())
    tracemalloc.start()
    loader = SparkEventLog(long, names=NAMES)
    assert len(loader.history()) == 3
    assert tracemalloc.get_traced_memory()[1] < 30 << 20
    tracemalloc.stop()
    assert loader.problems["line too long"] == 1
    deep = write(tmp_path / "deep", ['{"Event":"SparkListenerTaskEnd","x":' + "[" * 200_000, *events(2)])
    loader = SparkEventLog(deep, names=NAMES)
    assert len(loader.history()) == 2
    assert loader.problems["not JSON"] == 1


def test_a_log_of_progress_alone_cannot_fill_the_memory(tmp_path):
    name = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
    lines = [json.dumps({"Event": name, "progress": json.loads(progress(i))}) for i in range(20)]
    with pytest.raises(LoaderError, match="readings"):
        SparkEventLog(write(tmp_path / "log", lines), limits=Limits(readings=10)).history()


def test_several_queries_are_told_apart(tmp_path):
    other = "0" * 36
    lines = list(events(3)) + [line.replace('ID":', 'ID":9') for line in events(3, query=other)]
    log = write(tmp_path / "log", lines)
    with pytest.raises(LoaderError, match="choose it with query="):
        SparkEventLog(log).history()
    assert len(SparkEventLog(log, query=QUERY).history()) == 3


def rest_of(lines: list[str], folder: Path) -> Path:
    """The answers that the REST API would give about a log: Spark adds the tasks up itself."""
    jobs, stages = {}, {}
    for line in lines:
        told = json.loads(line)
        if told["Event"] == "SparkListenerTaskEnd":
            m = told["Task Metrics"]
            stage = stages.setdefault(
                told["Stage ID"], dict.fromkeys(("run", "wait", "cpu", "in", "read", "out"), 0) | {"n": 0}
            )
            for key, value in (
                ("run", m["Executor Run Time"]),
                ("cpu", m["Executor CPU Time"]),
                ("wait", m["Shuffle Read Metrics"]["Fetch Wait Time"]),
                ("read", m["Shuffle Read Metrics"]["Total Records Read"]),
                ("in", m["Input Metrics"]["Records Read"]),
                ("out", m["Shuffle Write Metrics"]["Shuffle Records Written"]),
                ("n", 1),
            ):
                stage[key] += value
        elif told["Event"] == "SparkListenerJobStart":
            batch = told["Properties"]["streaming.sql.batchId"]
            jobs[told["Job ID"]] = {
                "jobId": told["Job ID"], "status": "SUCCEEDED", "stageIds": told["Stage IDs"], "numSkippedStages": 0,
                "submissionTime": stamp(told["Submission Time"]),
                "description": f"\nid = {QUERY}\nrunId = {'1' * 36}\nbatch = {batch}",
            }  # fmt: skip
        elif told["Event"] == "SparkListenerJobEnd":
            jobs[told["Job ID"]]["completionTime"] = stamp(told["Completion Time"])
    folder.mkdir()
    (folder / "jobs.json").write_text(json.dumps(list(jobs.values())[::-1]))
    told = [
        {
            "stageId": i, "status": "COMPLETE", "numTasks": s["n"], "numCompleteTasks": s["n"], "numFailedTasks": 0,
            "executorRunTime": s["run"], "executorCpuTime": s["cpu"], "shuffleFetchWaitTime": s["wait"],
            "inputRecords": s["in"], "shuffleReadRecords": s["read"], "shuffleWriteRecords": s["out"],
            "outputRecords": 0,
        }
        for i, s in stages.items()
    ]  # fmt: skip
    (folder / "stages.json").write_text(json.dumps(told[::-1]))
    return folder


def stamp(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}GMT"


def test_the_rest_api_and_the_log_of_one_application_agree(tmp_path):
    lines = list(events(6))
    log = SparkEventLog(write(tmp_path / "log", lines), names=NAMES).history()
    loader = SparkRest(rest_of(lines, tmp_path / "rest"), names=NAMES)
    rest = loader.history()
    assert not loader.problems
    assert rest.topology == log.topology
    for a, b in zip(rest, log, strict=True):
        for name in NAMES:
            pair = [s.snapshot.operators[name] for s in (a, b)]
            assert pair[0].true_rate == pytest.approx(pair[1].true_rate)
            assert pair[0].processing_rate == pytest.approx(pair[1].processing_rate)
    stages = json.loads((tmp_path / "rest" / "stages.json").read_text())
    (tmp_path / "rest" / "stages.json").write_text(json.dumps(stages[:-2]))  # what Spark no longer keeps
    assert len(loader.history()) == 5
    assert loader.problems["job whose stages Spark has forgotten"] == 1


def progress(batch: int, rows: int = 6000, worked: int = 1500, lasted: int = 2000, **more: object) -> str:
    """A line in the form that Spark's documentation prints."""
    began = 1_795_034_658_000 + 3000 * batch
    source = {"description": "KafkaV2[Subscribe[clicks]]", "numInputRows": rows, "inputRowsPerSecond": 1.0,
              "startOffset": {"clicks": {"0": 1, "1": 2}}, "endOffset": {"clicks": {"0": 100, "1": 200}},
              "latestOffset": {"clicks": {"0": 150, "1": 225}}}  # fmt: skip
    told = {
        "id": QUERY, "runId": "1" * 36, "name": None, "timestamp": stamp(began).replace("GMT", "Z"), "batchId": batch,
        "numInputRows": rows, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0,
        "durationMs": {"addBatch": worked, "triggerExecution": lasted, "getBatch": 1, "walCommit": 12},
        "stateOperators": [{"numRowsTotal": 4}], "sources": [source], "sink": {"numOutputRows": -1},
    }  # fmt: skip
    return json.dumps(told | more)


def test_progress_lines_are_one_operator(tmp_path):
    log = write(tmp_path / "progress.jsonl", [progress(i) for i in range(4)])
    loader = SparkProgress(log)
    history = loader.history()
    assert not loader.problems
    assert history.topology["query"].stateful
    for step in history[1:]:  # from the end of one batch to the end of the next: three seconds
        m = step.snapshot.operators["query"]
        assert (m.processing_rate, m.true_rate, m.utilisation) == pytest.approx((2000, 4000, 0.5))
        assert step.snapshot.lag == 75
        assert step.snapshot.latency.p99 == 2.0
    assert SparkProgress(json.loads(line) for line in log.read_text().splitlines()).history().steps == history.steps
    four = SparkProgress(log, parallelism=4).history()
    assert four[1].snapshot.operators["query"].true_rate == pytest.approx(1000)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"numInputRows": "many"}, "progress: not a number"),
        ({"numInputRows": -1}, "progress: negative"),
        ({"durationMs": {"addBatch": 9000, "triggerExecution": 2000}}, "progress: worked longer than the batch took"),
        ({"durationMs": {"triggerExecution": 2000}}, "progress: rows without any time"),
        ({"timestamp": "yesterday"}, "not a time"),
        ({"timestamp": "2001-01-01T00:00:00.000Z"}, "clock stepped back"),
    ],
)
def test_a_progress_that_makes_no_sense_is_dropped(more, reason):
    lines = [progress(0), progress(1), progress(2, **more), progress(3), "{", "[]"]
    loader = SparkProgress(lines)
    assert len(loader.history()) == 3
    assert loader.problems[reason] == 1
    assert {round(s.snapshot.operators["query"].true_rate) for s in loader.history()} == {4000}


# A real application.


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    """A live job in micro-batches; what its meters said (times since 1970), its log, and its REST answers."""
    from dspkit.loaders.common.http import Server
    from dspkit.spark import SparkJob, arrow, keyed
    from dspkit.spark.runtime import session

    folder = tmp_path_factory.mktemp("events")
    live.end()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": f"file://{folder}",
    }
    spark = session.start_session("local[8]", "microbatch", settings)
    try:
        # A record waits long: handing one over is time that a task ran to Spark, and no busy time to our meters.
        functions = {
            "read": arrow(live.single, live.RECORD),
            "work": arrow(live.Work(80_000), live.RECORD),
            "count": keyed(live.count, key="id", state="int64"),
        }
        seen, told = [], {}
        deployment = Deployment({"read": 1, "work": 2, "count": 1})
        topology = Topology.chain(*NAMES)
        with SparkJob(
            topology, functions, Constant(22.5), mode="microbatch", window_s=0.2, spark=spark, deployment=deployment
        ) as job:
            url = spark.sparkContext.uiWebUrl
            gauge, end = live.Interference(), time.time() + 180
            while time.time() < end:
                seen.append(job.observe())
                if len(seen) % 10 == 0 and _batches_with_work(Server(url, Limits()), spark) >= 6:
                    break
            seen += [job.observe() for _ in range(5)]
            told["quiet"] = gauge.share() < live.QUIET
            told["rest"] = SparkRest(url, names=NAMES).history()  # asked for while it runs
            told["live"] = [(job._began + snapshot.t, snapshot) for snapshot in seen]
    finally:
        session.stop(spark)
    (told["log"],) = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return told


def _batches_with_work(server, spark):
    app = spark.sparkContext.applicationId
    stages = server.json(f"/api/v1/applications/{app}/stages")
    return sum(s["status"] == "COMPLETE" and s["numTasks"] == 2 and s["shuffleReadRecords"] > 0 for s in stages)


LATE_S = 0.5  # `count` does a whole batch at its end, and our meters are read some moments later


@pytest.mark.slow
@pytest.mark.spark
def test_a_real_application_says_to_all_what_the_live_backend_measured(application):
    times = [t for t, _ in application["live"]]
    for source in ("rest", "log"):
        found = application["rest"] if source == "rest" else SparkEventLog(application["log"], names=NAMES).history()
        zero = found.about["began_unix_s"]
        # Whole batches with records, as far as the meters were watched.
        steps = [s.snapshot for s in found if s.snapshot.operators["work"].processing_rate > 0]
        steps = [s for s in steps if zero + s.t + LATE_S <= times[-1]]
        assert len(steps) >= 2
        begin, end = zero + steps[0].t - steps[0].window_s, zero + steps[-1].t

        def ours_between(begin, end, value):
            total = np.cumsum([value(s) * s.window_s for _, s in application["live"]])
            return np.diff(np.interp([begin, end], times, total))[0]

        records = {}
        for name, late in (("work", 0.0), ("count", LATE_S)):
            theirs = sum(s.operators[name].processing_rate * s.window_s for s in steps)
            ours = ours_between(begin + late, end + late, lambda s, name=name: s.operators[name].processing_rate)
            records[name] = theirs, ours
            # Spark counts frames, which hold several records behind an operator.
            assert theirs == pytest.approx(ours, rel=0.05) if name == "work" else 0 < theirs <= 1.05 * ours, name
        # Naps of 80 ms: what others do to the cores lengthens them, in one of the two clocks more than in the other.
        naps_s = sum(s.operators["work"].utilisation * 2 * s.window_s for s in steps) / records["work"][0]
        ours = ours_between(begin, end, lambda s: 2 * s.operators["work"].utilisation) / records["work"][1]
        print(f"{source}: {naps_s * 1000:.1f} ms per record, live {ours * 1000:.1f} ms, quiet: {application['quiet']}")
        assert min(naps_s, ours) >= 0.075  # less the parts of records at both ends
        assert naps_s == pytest.approx(ours, rel=0.05 if application["quiet"] else 0.3), source


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_logs_and_its_own_packing_is_understood(tmp_path):
    """The same by Spark as by us; packed by Spark itself, with the codecs of `spark.eventLog.compression.codec`."""
    spark = live.spark("plain")
    plain = write(tmp_path / "log", [*events(30), "nonsense"])
    here = SparkEventLog(plain, names=NAMES).history()
    jvm = spark.sparkContext._jvm
    codecs = getattr(jvm.org.apache.spark.io, "CompressionCodec$")
    codecs = getattr(codecs, "MODULE$")
    for codec in ("zstd", "lz4", "snappy", "lzf"):
        packed = tmp_path / f"log.{codec}"
        stream = codecs.createCodec(spark.sparkContext._jsc.sc().conf(), codec).compressedOutputStream(
            jvm.java.io.FileOutputStream(str(packed))
        )
        stream.write(plain.read_bytes())
        stream.close()
        if codec == "lzf":
            with pytest.raises(LoaderError, match="compressed with lzf"):
                SparkEventLog(packed).history()
        else:
            loader = SparkEventLog(packed, names=NAMES)
            assert loader.history().steps == here.steps
            assert dict(loader.problems) == {"not an event": 1}
    for log in (plain, tmp_path / "log.zstd"):
        loader = SparkEventLog(log, names=NAMES, spark=spark)
        by_spark = loader.history()
        assert dict(loader.problems) == {"not an event": 1}
        assert len(by_spark) == len(here) == 30
        for a, b in zip(by_spark, here, strict=True):
            for name in NAMES:
                pair = [s.snapshot.operators[name] for s in (a, b)]
                assert pair[0].true_rate == pytest.approx(pair[1].true_rate)
                assert pair[0].utilisation == pytest.approx(pair[1].utilisation)
                assert pair[0].processing_rate == pytest.approx(pair[1].processing_rate)
    lines = change(list(events(6)), "SparkListenerTaskEnd", 90, lambda e: e["Task Metrics"].pop("Executor Run Time"))
    loader = SparkEventLog(write(tmp_path / "bad", lines), names=NAMES, spark=spark)
    assert len(loader.history()) == 5
    assert loader.problems["a task without its numbers"] == 1


def test_a_recording_of_progress_has_one_query_and_says_which_there_are():
    def told(query, n):
        lasted = {"addBatch": 4000, "triggerExecution": 5000}
        at = f"2026-01-01T00:00:{10 * n:02}.000Z"
        return {"id": query, "batchId": n, "timestamp": at, "numInputRows": 500, "durationMs": lasted}

    lines = [told(query, n) for n in range(3) for query in ("a", "b")]
    with pytest.raises(LoaderError, match="2 queries: a, b"):
        SparkProgress(lines, parallelism=4).recording()
    found = SparkProgress(lines, parallelism=4, query="b").recording()
    assert [(batch.query, batch.number) for batch in found.batches] == [("b", 0), ("b", 1), ("b", 2)]
