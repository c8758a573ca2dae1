"""Stock queries: the model against known costs, states, findings, windows, the command line, and one live query."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import live
from benchmarks._event_log import CHAIN, QUERY, events
from benchmarks._stock_kinds import KINDS, StockQuery, change_often
from dspkit import Operator, Topology, advise, loaders
from dspkit.__main__ import main
from dspkit.core import ArgumentError, MetricError
from dspkit.spark import AttachError, Recording, attach, repartition
from dspkit.spark.stock import job as stock_job
from dspkit.spark.stock import knobs
from dspkit.spark.stock.diagnosis import Query, diagnose, share_that_keeps_up, slots_needed, what_if
from dspkit.spark.stock.job import windows
from dspkit.spark.stock.knobs import KNOBS
from dspkit.spark.stock.model import fit_batch_time, slots_used
from dspkit.spark.stock.observation import (
    FilesWaiting,
    MicroBatch,
    PlanStage,
    ProgressReader,
    StageRun,
    StateReport,
    batch_of,
    join_stages,
    plan_stages,
)

A, B, C = 0.2, 0.002, 0.01  # seconds per batch, per record and per task


def batches(
    count: int, *, rows: Any = 1000, a: float = A, b: float = B, k: int = 4, every_s: float = 10.0, noise: float = 0.0,
    seed: int = 0, stages: bool = False, **more: Any,
) -> list[MicroBatch]:  # fmt: skip
    """Batches whose durations are known: a + b n / k, times a lognormal factor."""
    rng, found, t = np.random.default_rng(seed), [], 1000.0
    for i in range(count):
        n = float(rows(i) if callable(rows) else rows)
        lasted = (a + b * n / k) * float(np.exp(noise * rng.standard_normal()))
        began = t
        t = began + (every_s if every_s else lasted)
        phases = {"triggerExecution": lasted, "addBatch": 0.9 * lasted, "walCommit": 0.02 * lasted}
        runs = [StageRun(i, k, k, run_s=b * n, received=n, wrote=n, operator="query")] if stages else []
        found.append(MicroBatch("q", i, began, began + lasted, runs, rows=n, phases=phases, **more))
    return found


def sizes(i: int) -> float:
    return (250.0, 500.0, 1000.0, 4000.0)[i % 4]


# ---- the model


def test_fixed_and_proportional_time_are_recovered_although_single_batches_are_outliers():
    seen = batches(40, rows=sizes, noise=0.03)
    for i in range(5, 40, 9):
        seen[i].phases["triggerExecution"] *= 12
    model = fit_batch_time(seen, slots=4)
    assert model.source == "fit"
    assert model.a.low <= A <= model.a.high
    assert model.b.low <= B <= model.b.high
    assert model.a.value == pytest.approx(A, rel=0.1)
    assert model.b.value == pytest.approx(B, rel=0.05)
    assert model.seconds(8000, 8).value == pytest.approx(A + B * 1000, rel=0.05)


def test_batches_of_one_size_tell_nothing_more_unless_their_tasks_were_measured():
    model = fit_batch_time(batches(20), slots=4)
    assert not model.known
    assert "cannot be told apart" in model.note
    with pytest.raises(ArgumentError, match="probe"):
        what_if(Query(batches(20), 4, 10.0, 0.0))
    model = fit_batch_time(batches(20, stages=True), slots=4)
    assert model.source == "tasks"
    assert model.b.value == pytest.approx(B)
    assert model.a.value == pytest.approx(A)


def test_what_a_task_costs_is_told_from_batches_in_several_numbers_of_tasks():
    seen = []
    for i in range(48):
        k, n = (8, 4, 2)[i % 3], sizes(i // 3)
        t = A + B * n / min(k, 4) + C * k
        runs = [StageRun(i, k, k, run_s=B * n, received=n)]
        seen.append(MicroBatch("q", i, 10.0 * i, 10.0 * i + t, runs, rows=n, phases={"triggerExecution": t}))
    model = fit_batch_time(seen, slots=4)
    assert model.c.value == pytest.approx(C, rel=0.01)
    assert model.a.value == pytest.approx(A, rel=0.01)


def test_intervals_cover_new_batches_as_often_as_they_say():
    """90 % of 600 batches of other sizes and slots; 3 standard errors, and 3 % for the error of the fit itself."""
    inside = []
    for seed in range(30):
        model = fit_batch_time(batches(40, rows=sizes, noise=0.1, seed=seed), slots=4)
        for other in batches(20, rows=2000, noise=0.1, k=8, seed=1000 + seed):
            told = model.seconds(2000, 8)
            inside.append(told.low <= other.lasted <= told.high)
    assert abs(np.mean(inside) - 0.9) < 0.03 + 3 * (0.9 * 0.1 / 600) ** 0.5


def test_slots_are_used_as_far_as_stages_have_tasks():
    """Work over time, stage by stage: half of the work on 2 slots and half on 8 takes 1/4 + 1/16 of it."""
    assert slots_used(8, [1, 1], [2, 8]) == pytest.approx(2 / (1 / 2 + 1 / 8))
    assert slots_used(3, [5, 1], [200, 200]) == pytest.approx(3)


@pytest.mark.parametrize("interval", [0.0, 2.0])
@pytest.mark.parametrize("rate", [300.0, 1500.0, 4000.0])
def test_the_slots_needed_are_the_fewest_that_keep_up(interval, rate):
    model = fit_batch_time(batches(40, rows=sizes, noise=0.02), slots=4)
    k, share = slots_needed(model, rate, interval)
    assert share >= 0.9
    if interval:  # by hand: a + b r P / k <= 0.85 P
        assert abs(k - B * rate * interval / (0.85 * interval - A)) <= 1
    assert k == 1 or share_that_keeps_up(model, rate, interval, np.inf, k - 1) < 0.9


# ---- states and findings


def lag(per_s: float, first: float = 0.0) -> list[tuple[float, float]]:
    return [(1000.0 + t, first + per_s * t) for t in range(0, 300, 10)]


@pytest.mark.parametrize(
    ("state", "query"),
    [
        ("unknown", Query([], 4, 10.0, 0.0)),
        ("unknown", Query(batches(2), 4, 10.0, 0.0)),
        ("idle", Query(batches(30), 4, 10.0, 1300.0)),
        ("keeps up", Query(batches(30, rows=10000), 4, 10.0, 1300.0)),
        ("keeps up", Query(batches(30, every_s=0), 4, 0.0, 1021.0, lag(0.0, 100))),
        ("behind", Query(batches(30, rows=20000), 4, 9.0, 1300.0)),
        ("behind", Query(batches(30, every_s=0, rows=4000, stages=True), 4, 0.0, 1300.0, lag(500, 3000))),
        ("behind", Query(batches(30, every_s=0, rows=lambda i: 1000 * 1.1**i), 4, 0.0, 1300.0)),
        ("unhealthy", Query(batches(30, a=20, rows=sizes, every_s=0), 4, 10.0, 1300.0)),
        ("stuck", Query(batches(30), 4, 10.0, 1500.0, running=(200.0, 3, 2), live=True)),
        ("ended", Query(batches(30), 4, 10.0, 1300.0, ended="it failed: no space left")),
    ],
)
def test_the_state_of_the_loop(state, query):
    told = diagnose(query)
    assert told.state == state, told
    assert told.why.endswith((".", "left"))
    assert json.loads(told.to_json())["state"] == state


def test_more_executors_do_not_help_where_the_fixed_part_is_the_batch():
    told = diagnose(Query(batches(30, a=20, rows=sizes, every_s=0), 4, 10.0, 1300.0))
    assert "more executors do not help" in told.why
    assert not any("spark.executor.instances" in line for line in told.settings)


def state(stores: int, commit_s: float, **custom: float) -> tuple[StateReport, ...]:
    return (StateReport("stateStoreSave", 1000.0, 1e6, stores, commit_s, 0.1, 0.0, custom),)


FILES = (("FileStreamSource[file:/in]", 1.0),)
FINDINGS = {
    "slots": (Query(batches(30, rows=15000, stages=True), 8, 10.0, 1300.0), "spark.executor.instances"),
    "read limit": (
        Query(batches(30, rows=sizes, sources=FILES), 4, 1.0, 1300.0, limit=("files", 40)),
        "maxFilesPerTrigger",
    ),
    "trigger": (Query(batches(30, rows=sizes, a=2.0), 4, 1.0, 1300.0), "processingTime"),
    "state partitions": (Query(batches(30, state=state(200, 3.0)), 4, 10.0, 1300.0), "shuffle.partitions  16"),
    "changelog checkpoints": (
        Query(batches(30, state=state(8, 0.1, rocksdbSaveZipFilesLatencyMs=400.0)), 4, 10.0, 1300.0),
        "changelogCheckpointing",
    ),
    "sink": (Query(batches(30), 4, 10.0, 1300.0, repeats=True, live=True), "stop(clean=True)"),
    "dynamic allocation": (
        Query(batches(30), 4, 10.0, 1300.0, settings={"spark.dynamicAllocation.enabled": "true"}),
        "dynamicAllocation",
    ),
}


@pytest.mark.parametrize("subject", FINDINGS)
def test_a_cost_is_found_with_a_setting_to_paste(subject):
    query, setting = FINDINGS[subject]
    found = [f for f in diagnose(query).findings if f.subject == subject]
    assert len(found) == 1, diagnose(query)
    assert any(setting in line for line in found[0].settings)
    assert found[0].text.endswith(".")


def test_a_healthy_query_gets_no_such_advice():
    told = diagnose(Query(batches(30, rows=10000, stages=True), 4, 10.0, 1300.0))
    assert not {f.subject for f in told.findings} & (set(FINDINGS) - {"slots"}), told


def test_slow_logs_of_offsets_and_a_long_task_are_named():
    seen = batches(30, stages=True)
    for batch in seen:
        batch.phases["walCommit"] = batch.phases["commitOffsets"] = 0.3 * batch.lasted
        batch.stages[0].median_s, batch.stages[0].longest_s = 0.05, 0.5
    told = {f.subject: f for f in diagnose(Query(seen, 4, 10.0, 1300.0)).findings}
    assert told["checkpoint files"].evidence["share"] == pytest.approx(0.6)
    assert "10.0 times the median" in told["skew"].text


def test_what_if_agrees_with_the_formula_and_counts_the_lag_batch_by_batch():
    query = Query(batches(40, rows=sizes), 4, 2.0, 1400.0)
    told = what_if(query, slots=8, rate=5000.0, trigger_s=2.0, price_per_slot_hour=0.1)
    assert told.seconds.value == pytest.approx(A + B * 10000 / 8, rel=0.01)
    assert told.cost_per_hour == pytest.approx(0.8)
    assert not told.keeps_up
    assert told.lag[-1][1] > told.lag[1][1]
    easy = what_if(query, slots=8, rate=500.0, trigger_s=2.0)
    assert easy.keeps_up
    assert easy.lag[-1][1] == pytest.approx(1000.0)  # what arrives in an interval
    capped = what_if(query, slots=4, rate=1000.0, trigger_s=0.0, max_per_batch=100)
    assert capped.sustained.value == pytest.approx(100 / (A + B * 25), rel=0.01)


@pytest.mark.parametrize("limit", [None, 500.0])
def test_a_job_that_is_started_now_and_then_costs_what_its_runs_take(limit):
    """A run of all that came in an hour, in one batch or in batches of the limit, by hand."""
    query = Query(batches(40, rows=sizes), 4, 2.0, 1400.0)
    told = what_if(query, available_now_s=3600.0, rate=2.0, max_per_batch=limit, price_per_slot_hour=0.1)
    rows = 2.0 * 3600
    full, rest = divmod(rows, limit or rows)
    took = full * (A + B * (limit or rows) / 4) + (A + B * rest / 4 if rest else 0.0)
    assert told.rows == rows
    assert told.seconds.value == pytest.approx(took, rel=0.01)
    assert told.cost_per_hour == pytest.approx(0.4 * took / 3600, rel=0.01)
    assert told.keeps_up
    assert max(n for _, n in told.lag) == pytest.approx(rows, rel=0.01)
    most = limit / (A + B * limit / 4) if limit else (3600 - A) * 4 / B / 3600
    assert told.sustained.value == pytest.approx(most, rel=0.01)
    assert not what_if(query, available_now_s=3600.0, rate=1.1 * most, max_per_batch=limit).keeps_up
    with pytest.raises(ArgumentError, match="between runs"):
        what_if(query, available_now_s=0.0)


# ---- windows


def test_even_windows_hold_each_record_once():
    rng = np.random.default_rng(0)
    seen, t = [], 50.0
    for i in range(60):
        t += float(rng.exponential(2))
        n, lasted = float(rng.integers(1, 500)), float(rng.exponential(3)) + 0.01
        runs = [StageRun(2 * i, 2, 2, run_s=0.4, received=n, shuffled=2 * n, operator="read"),
                StageRun(2 * i + 1, 4, 4, run_s=0.8, received=2 * n, wrote=n, operator="count")]  # fmt: skip
        seen.append(MicroBatch("q", i, t, t + lasted, runs, rows=n, phases={"triggerExecution": lasted}))
        t += lasted
    graph = Topology((Operator("read"), Operator("count", stateful=True)), (("read", "count"),))
    found = windows(seen, graph, 5.0, slots=4)
    assert {s.window_s for s in found} == {5.0}
    assert [s.t for s in found] == pytest.approx([5.0 * (i + 1) for i in range(len(found))])
    total = sum(b.rows for b in seen)
    assert sum(s.throughput * s.window_s for s in found) == pytest.approx(total)
    assert sum(s.edge_rates["read", "count"] * s.window_s for s in found) == pytest.approx(2 * total)
    busy = sum(s.operators["count"].utilisation * s.operators["count"].parallelism * 5 for s in found if s.operators)
    assert busy == pytest.approx(0.8 * len(seen), rel=0.15)  # less where a window has more than its slots
    idle = windows(seen, graph, 5.0, slots=4, start=t + 100, end=t + 110)
    assert [s.throughput for s in idle] == [0.0, 0.0]


def test_a_lag_that_grows_is_part_of_what_is_offered():
    found = windows(batches(30, stages=True), Topology((Operator("query"),)), 10.0, 4, lags=lag(20.0))
    assert found[10].source_rate == pytest.approx(100 + 20, rel=0.01)


# ---- Spark's reports


def progress(number: int, rows: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "id": QUERY, "runId": "r", "name": None, "batchId": number, "numInputRows": rows,
        "timestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000Z",
        "durationMs": {"addBatch": 300, "walCommit": 20, "triggerExecution": 400} if rows else {"triggerExecution": 1},
        "stateOperators": [], "sources": [{"description": "FileStreamSource[file:/x]", "numInputRows": rows}],
    } | more  # fmt: skip


def test_a_report_is_read_once_and_idle_ones_are_no_batches():
    query = SimpleNamespace(recentProgress=[progress(0), progress(1), progress(2, 0)])
    reader = ProgressReader(query)
    assert [b.number for b in reader.new()] == [0, 1]
    query.recentProgress += [progress(2, 7, timestamp="2026-01-01T00:00:09.000Z")]
    assert [(b.number, b.rows) for b in reader.new()] == [(2, 7.0)]
    assert reader.new() == []


@pytest.mark.parametrize(
    "wrong", [{"numInputRows": "1"}, {"numInputRows": float("nan")}, {"timestamp": "now"}, {"batchId": -1}]
)
def test_a_report_that_is_none_is_refused(wrong):
    with pytest.raises(MetricError):
        batch_of(progress(0) | wrong)


def test_kafkas_offsets_are_the_lag():
    source = {
        "description": "KafkaV2[x]",
        "numInputRows": 5,
        "endOffset": {"t": {"0": 5}},
        "latestOffset": {"t": {"0": 9}},
    }
    assert batch_of(progress(0, sources=[source])).backlog == 4


def test_waiting_files_are_counted_against_the_checkpoint(tmp_path):
    inbox, log = tmp_path / "in", tmp_path / "log"
    inbox.mkdir()
    log.mkdir()
    for i in range(10):
        (inbox / f"{i}.json").write_text("")
    (inbox / ".hidden").write_text("")
    for batch in range(2):
        lines = [
            json.dumps({"path": f"file:///in/{batch * 2 + i}.json", "timestamp": 1, "batchId": batch}) for i in (0, 1)
        ]
        (log / str(batch)).write_text("v1\n" + "\n".join(lines))
    counted = FilesWaiting(inbox, log, every_s=0.0)
    assert counted.records([(0, 300), (1, 100)]) == 6 * 100
    assert counted.per_batch == {0: 2, 1: 2}
    counted._due = 0.0
    assert counted.records([(1, 100), (7, 5000)]) == 6 * 50, "of a query that has long run, only what was seen counts"
    counted._due = 0.0
    assert counted.records([]) is None
    seldom = FilesWaiting(inbox, log, every_s=60.0)
    assert seldom.records([(1, 200)]) == 6 * 100
    assert seldom.records([(1, 400)]) is None, "a former count says nothing about the present"
    compacted = log / "2.compact"  # of all batches so far, of which Spark deletes the parts
    own = {"path": "file:///in/4.json", "timestamp": 1, "batchId": 2}
    lines = [line for part in ("0", "1") for line in (log / part).read_text().splitlines()[1:]]
    compacted.write_text("\n".join(["v1", *lines, json.dumps(own)]))
    (log / "0").unlink()
    fresh = FilesWaiting(inbox, log, every_s=0.0)
    assert fresh.records([(0, 20), (2, 70)]) == 5 * 30
    assert fresh.per_batch == {0: 2, 1: 2, 2: 1}


def test_files_of_one_name_in_several_folders_are_several(tmp_path):
    inbox, log = tmp_path / "in", tmp_path / "log"
    log.mkdir()
    for day in ("day=1", "day=2 x"):
        (inbox / day).mkdir(parents=True)
        (inbox / day / "part-0.json").write_text("")
    read = {"path": f"file://{tmp_path}/in/day=2%20x/part-0.json", "timestamp": 1, "batchId": 0}
    (log / "0").write_text("v1\n" + json.dumps(read))
    assert FilesWaiting(inbox, log).records([(0, 50)]) == 50
    (inbox / "day=2 x" / "part-1.json").write_text("")
    assert FilesWaiting(inbox, log).records([(0, 50)]) == 100


class Node:
    """A node of a physical plan, with the methods of Spark's."""

    def __init__(self, name: str, *children: Node, partitions: int = 4):
        self.name, self.kids, self.partitions = name, children, partitions

    def nodeName(self) -> str:
        return self.name

    def children(self) -> Any:
        return SimpleNamespace(size=lambda: len(self.kids), apply=lambda i: self.kids[i])

    def outputPartitioning(self) -> Any:
        return SimpleNamespace(numPartitions=lambda: self.partitions)


def test_a_plan_is_cut_at_its_exchanges_and_a_joins_stages_are_found_by_what_they_hold():
    left = Node("Exchange", Node("WholeStageCodegen (1)", Node("MicroBatchScan")), partitions=3)
    right = Node("Exchange", Node("WholeStageCodegen (2)", Node("MapInArrow", Node("MicroBatchScan"))), partitions=3)
    plan = plan_stages(Node("WriteToDataSourceV2", Node("StreamingSymmetricHashJoin", left, right)))
    assert [s.name for s in plan] == ["read", "read+map", "join"]
    assert plan[2].inputs == ["read", "read+map"]
    assert plan[2].stateful
    assert plan[2].partitions == 3
    runs = [StageRun(i, 3) for i in (48, 49, 50)]
    drawn = [["WholeStageCodegen (2)", "MapInArrow", "MicroBatchScan"], ["WholeStageCodegen (1)", "MicroBatchScan"],
             ["StreamingSymmetricHashJoin"]]  # fmt: skip
    assert join_stages(plan, runs, drawn)
    assert [r.operator for r in runs] == ["read+map", "read", "join"]
    assert not join_stages(plan, runs, [["MicroBatchScan"], ["MicroBatchScan"], ["x"]])
    assert not join_stages(plan, runs[:2])
    assert join_stages([PlanStage("a"), PlanStage("b", inputs=["a"])], [StageRun(1, 1), StageRun(2, 1)])


# ---- recordings and the command line


def log_with_progress(path: Path, count: int = 12) -> Path:
    """An event log whose jobs take 1 s of the 1.6 s of their batches."""
    lines = []
    for line in events(count):
        lines.append(line)
        if '"SparkListenerJobEnd"' in line:
            number = json.loads(line)["Job ID"]
            at = 1_795_034_658 + 2 * number
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))
            told = progress(number, 4000, timestamp=stamp, durationMs={"addBatch": 1100, "triggerExecution": 1600})
            name = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
            lines.append(json.dumps({"Event": name, "progress": told}))
    cores = {"Executor ID": "driver", "Timestamp": 1, "Executor Info": {"Host": "h", "Total Cores": 16}}
    lines.insert(1, json.dumps({"Event": "SparkListenerExecutorAdded", **cores}))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_event_logs_latency_is_the_whole_batch_and_not_the_span_of_its_jobs(tmp_path):
    loader = loaders.SparkEventLog(log_with_progress(tmp_path / "log"))
    history = loader.history()
    assert not loader.problems
    assert history[3].snapshot.latency.mean == pytest.approx(1.6)
    assert history[3].snapshot.commit_s == pytest.approx(0.5)  # 1.6 s less the 1.1 s of addBatch
    said = " ".join(advise(loader, policies=["ds2"]).sentences)
    assert "Planning and committing batches take another 25%" in said
    recording = attach(loader)
    assert recording._slots == 16
    told = recording.doctor()
    assert told.figures["busy"] == pytest.approx(0.8, abs=0.02)
    assert told.state == "keeps up"
    assert set(recording.history.topology.order) == {"stage_0", "stage_1", "stage_2"}
    busy_ms = sum(s.tasks * (s.run_ms - s.wait_ms) for s in CHAIN)
    assert told.model.b.value == pytest.approx(busy_ms / 1e3 / 4000)


def test_the_command_line_says_by_its_exit_code_whether_a_query_keeps_up(tmp_path, capsys):
    log = str(log_with_progress(tmp_path / "log"))
    assert main(["doctor", log]) == 0
    assert "keeps up" in capsys.readouterr().out
    assert main(["doctor", log, "--fail-if", "behind", "unhealthy"]) == 0
    assert main(["doctor", log, "--json", "--fail-if", "keeps up"]) == 1
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["state"] == "keeps up"
    lines = tmp_path / "progress.jsonl"
    lines.write_text("".join(json.dumps(progress(i)) + "\n" for i in range(12)))
    assert main(["doctor", str(lines), "--slots", "4"]) == 0
    (tmp_path / "batch").write_text("\n".join(line for line in events(3)))
    assert main(["doctor", str(tmp_path / "batch")]) == 2
    assert "no progress of a streaming query" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "none")]) == 2


def test_a_batch_application_gets_a_sentence_and_no_advice(tmp_path):
    path = tmp_path / "log"
    path.write_text("\n".join(line.replace("sql.streaming.queryId", "x") for line in events(6)))
    with pytest.raises(MetricError, match="batch application"):
        advise(loaders.SparkEventLog(path))


def test_a_log_that_the_history_server_compacted_is_named(tmp_path):
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    (folder / "events_1_app.compact").write_text("\n".join(events(6)))
    loader = loaders.SparkEventLog(folder)
    loader.history()
    assert any("compacted" in reason for reason in loader.problems)


# ---- bad input, and what is shown


def fake(**more: Any) -> Any:
    idle = {"isTriggerActive": False, "isDataAvailable": False, "message": ""}
    given = {"isActive": True, "recentProgress": [], "id": QUERY, "runId": "r", "name": "words", "status": idle}
    return SimpleNamespace(**(given | {"exception": lambda: None} | more))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://localhost:4040", "SparkRest"),
        ([], "0 queries"),
        ([fake(), fake()], "2 queries"),
        (fake(isActive=False), "has ended"),
        (fake(isActive=False, exception=lambda: RuntimeError("no space")), "it failed: no space"),
    ],
)
def test_what_cannot_be_attached_gets_a_sentence(given, said):
    with pytest.raises(AttachError, match=said):
        attach(given)


def test_a_query_of_connect_is_observed_and_not_changed():
    query = fake(recentProgress=[progress(i) for i in range(12)])
    with attach([query], window_s=0.2, waiting=lambda: 50.0) as job:
        live.until(lambda: len(job.batches) == 12, 10)
        assert job.doctor().state in ("idle", "keeps up")
        assert set(job.missing) == set(KNOBS)
        with pytest.raises(AttachError, match="Connect"):
            job.limit(rows=5)
        with pytest.raises(AttachError, match="executors, a read limit or a trigger"):
            job.backend()
        snapshot = job.observe()
        assert snapshot.execution == "micro-batch"
        assert snapshot.lag == 50.0
        query.isActive, query.exception = False, lambda: ValueError("the disk <b>is</b> full")
        live.until(lambda: job.doctor().state == "ended", 10)
        assert "the disk" in job.doctor().why
        assert "<b>is</b>" not in job._repr_html_()
        assert "&lt;b&gt;" in job._repr_html_()
        assert job.observe() is None


def test_names_from_data_are_escaped():
    evil = "<script>alert(1)</script>"
    runs = [StageRun(0, 2, 2, run_s=1.0, received=5.0, operator=evil)]
    seen = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 1, runs, rows=5.0, phases={evil: 1.0}) for i in range(9)]
    html = Recording(seen, topology=Topology((Operator(evil),)))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


# ---- changes, on a double of Spark's driver


class Driver:
    """Executors and a plan as Spark's driver has them; `asked` is None where it asked its master for no number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, master: str, asked: int | None, live: int, **conf: str):
        self.asked, self.ids, self.retired, self.killed = asked, [str(i) for i in range(live)], [], []
        self.rules: list[Any] = []
        self.plan, self.realtime, self.free = "", False, 0
        backend = SimpleNamespace(
            getExecutorIds=lambda: self.seq(self.ids),
            getRequestedTotalExecutors=lambda: SimpleNamespace(
                isEmpty=lambda: self.asked is None,
                values=lambda: SimpleNamespace(toList=lambda: self.seq([self.asked])),
            ),
            killExecutors=lambda gone, *_: self.killed.append(gone),
        )
        context = MagicMock()
        context.schedulerBackend.return_value = backend
        context.requestTotalExecutors = lambda total, *_: setattr(self, "asked", total)
        self.spark, self.query = MagicMock(), MagicMock(runId="run", isActive=True)
        self.spark.sparkContext.master = master
        self.spark.sparkContext.getConf().get = lambda name, default="": conf.get(name.replace(".", "_"), default)
        self.spark.sparkContext._jsc.sc.return_value = context
        execution = self.query._jsq.streamingQuery.return_value
        execution.lastExecution().executedPlan().treeString = lambda: self.plan
        execution.trigger().getClass().getSimpleName = lambda: "RealTimeTrigger" if self.realtime else "Processing"
        execution.trigger().batchDurationMs.return_value = 60_000
        monkeypatch.setattr(knobs.session, "retire", lambda _, gone: self.retired.extend(gone))
        monkeypatch.setattr(knobs.workers, "task_slots", lambda _: self.free)
        monkeypatch.setattr(knobs.workers, "running_tasks", lambda _: 0)
        monkeypatch.setattr(knobs.java, "unusable", lambda: None)
        monkeypatch.setattr(knobs.QueryKnobs, "_static", lambda *_: self.rules.append(MagicMock()) or self.rules[-1])
        monkeypatch.setattr(knobs.QueryKnobs, "_tasks", lambda _: 0)
        monkeypatch.setattr(knobs, "_CHANGED", {})
        monkeypatch.setattr(knobs, "_OWN_NUMBERS", {})

    @staticmethod
    def seq(items: list[Any]) -> Any:
        return SimpleNamespace(size=lambda: len(items), apply=lambda i: items[i])

    def knobs(self) -> knobs.QueryKnobs:
        return knobs.QueryKnobs(self.spark, self.query)


@pytest.mark.parametrize(
    ("master", "asked", "conf", "after"),
    [
        ("k8s://x", 6, {}, 6),
        ("spark://x", 6, {}, 6),
        ("yarn", None, {"spark_executor_instances": "6"}, 6),
        ("yarn", 1, {"spark_executor_instances": "6"}, 6),
        ("spark://x", None, {}, 1 << 20),
    ],
)
def test_detaching_restores_the_executors_that_spark_asked_for_not_those_that_lived(
    master, asked, conf, after, monkeypatch
):
    """Two of six had come when the first change was made; all came since."""
    driver = Driver(monkeypatch, master, asked, 2, **conf)
    changer = driver.knobs()
    changer.set_executors(3)
    assert driver.asked == 3
    changer.set_executors(4)
    driver.ids = [str(i) for i in range(6)]
    changer.undo()
    assert driver.asked == after
    assert driver.retired == []


@pytest.mark.parametrize("active", [True, False])
def test_of_more_executors_than_before_the_newest_leave_unless_the_query_has_ended(active, monkeypatch):
    driver = Driver(monkeypatch, "k8s://x", 2, 2)
    changer = driver.knobs()
    changer.set_executors(4)
    driver.ids = [str(i) for i in range(4)]
    driver.query.isActive = active
    changer.undo()
    assert driver.retired == (["2", "3"] if active else [])
    changer.release()
    assert driver.asked == 2


def test_tasks_and_partitions_hold_side_by_side_and_are_undone_together(monkeypatch):
    driver = Driver(monkeypatch, "local[4]", None, 0)
    driver.plan = "Exchange hashpartitioning(a#1, 3), REPARTITION_BY_NUM, [plan_id=4]"
    changer = driver.knobs()
    changer.set_tasks(2)
    assert changer.set_shuffle(5) == [5]
    driver.plan = driver.plan.replace("3)", "5)")
    changer.set_tasks(1)
    assert changer.set_shuffle(0) == [3]
    (rule,) = driver.rules
    assert [call.args for call in rule.set.call_args_list] == [(2, 0), (2, 5), (1, 5), (1, 0)]
    changer.undo()
    changer.set_shuffle(7)
    assert driver.rules[1].set.call_args.args == (0, 7), "the tasks are the query's own again"


def test_a_shuffle_of_a_query_that_cannot_be_steered_says_why(monkeypatch):
    driver = Driver(monkeypatch, "local[4]", None, 0)
    monkeypatch.setattr(knobs.java, "unusable", lambda: "it is made for Spark 4.3")
    changer = driver.knobs()
    job = SimpleNamespace(_running=lambda: changer)
    job._knob = lambda name: stock_job.AttachedQuery._knob(job, name)
    with pytest.raises(AttachError, match="tasks: our rule cannot be loaded: it is made for Spark"):
        stock_job.AttachedQuery.shuffle(job, 4)
    assert driver.rules == []


def test_a_realtime_query_gets_its_own_number_back_only_if_there_are_slots_for_it(monkeypatch):
    driver = Driver(monkeypatch, "local[9]", None, 0)
    driver.realtime, driver.plan = True, "Exchange RoundRobinPartitioning(8), REPARTITION_BY_NUM, [plan_id=4]"
    changer = driver.knobs()
    changer.set_shuffle(2)
    driver.plan = driver.plan.replace("(8)", "(2)")
    driver.free = 5
    with pytest.raises(AttachError, match="tasks at once"):
        changer.set_shuffle(0)
    assert driver.rules[0].set.call_args.args == (0, 2)
    driver.free = 6
    changer.set_shuffle(0)
    assert driver.rules[0].set.call_args.args == (0, 0)


def test_a_newer_attachment_takes_over_with_the_executors_that_leave(monkeypatch, caplog):
    driver = Driver(monkeypatch, "k8s://x", 4, 4)
    first, second, third = (driver.knobs() for _ in range(3))
    first.set_shuffle(5)
    first.set_executors(3)
    assert driver.retired == ["3"]
    second.set_tasks(2)
    assert "takes over" in caplog.text
    driver.rules[0].remove.assert_called_once()
    assert driver.asked == 4 + 1, "the former total, and the one that leaves"
    assert (first.leaving, second.leaving) == (False, True)
    third.set_tasks(3)
    for former in (first, second):
        with pytest.raises(AttachError, match="newer one has taken over"):
            former.set_tasks(4)
        former.undo()
    driver.rules[2].remove.assert_not_called()
    third.release()
    assert (driver.asked, len(driver.killed)) == (4, 1)
    third.undo()
    first.set_tasks(4)
    assert driver.rules[3].set.call_args.args == (4, 0)


@pytest.mark.parametrize(("batches_more", "later_s"), [(2, 0.0), (0, 121.0)])
def test_executors_that_leave_end_after_two_batches_or_with_time(batches_more, later_s, monkeypatch):
    job = SimpleNamespace(_pending=[], _release_at=None, _batches=[SimpleNamespace(number=7)], _changer=MagicMock())
    job._changer.leaving = True
    now = [100.0]
    monkeypatch.setattr(stock_job, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    for _ in range(3):
        stock_job.AttachedQuery._confirm(job)
    job._changer.release.assert_not_called()
    job._batches[0].number += batches_more
    now[0] += later_s
    stock_job.AttachedQuery._confirm(job)
    job._changer.release.assert_called_once()


# ---- one live query, in the Spark that the tests share


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A query as a user writes it: files, a count by key in 8 state partitions, a foreachBatch sink."""
    folder = tmp_path_factory.mktemp("stock")
    (inbox := folder / "in").mkdir()
    spark = live.spark("plain").newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    counts: dict[int, int] = {}
    written = 0

    def feed(files: int) -> int:
        nonlocal written
        for _ in range(files):
            path = inbox / f".{written}.tmp"
            path.write_text("".join(json.dumps({"id": written * 50 + i}) + "\n" for i in range(50)))
            path.rename(inbox / f"{written:06d}.json")
            written += 1
        return written * 50

    def keep(frame: Any, number: int) -> None:
        counts.update({row["key"]: row["count"] for row in frame.collect()})

    feed(6)
    lines = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 2).json(str(inbox))
    counted = lines.selectExpr("id % 7 as key").groupBy("key").count()
    writer = counted.writeStream.outputMode("update").option("checkpointLocation", str(folder / "state"))
    query = writer.foreachBatch(keep).start()
    job = attach(query, window_s=1.0, budget=1.0)
    yield SimpleNamespace(
        query=query, job=job, feed=feed, counts=counts, spark=spark, done=lambda: sum(counts.values())
    )
    job.close()
    query.stop()


def until_done(stock: Any, total: int) -> None:
    live.until(lambda: stock.done() == total or stock.query.exception(), 120)
    assert stock.query.exception() is None


def test_a_live_query_is_observed_changed_and_left_as_it_was(stock):
    """Plan and stages are joined, each change shows in a batch, records are counted once, and detaching undoes all."""
    job = stock.job
    until_done(stock, 300)
    live.until(lambda: sum(b.rows for b in job.batches) == 300, 60)  # progress comes after the sink
    live.until(lambda: any(b.stages for b in job.batches), 60)
    assert set(job.missing) == {"executors"}, "Spark's internals have changed"
    assert job.topology.order == ("read", "aggregate")
    assert job.topology["aggregate"].stateful
    limit = job.limit(files=1)
    assert job._changer.read_limit() == ("files", 1)
    tasks = job.tasks(3)
    total = stock.feed(6)
    assert limit.wait(90)
    assert tasks.wait(90)
    shown = next(b for b in job.batches if b.number == tasks.batch)
    assert shown.stages[-1].tasks == 3
    with pytest.raises(AttachError, match="12 tasks for 8 partitions"):
        job.tasks(12)
    until_done(stock, total)
    session = job._changer.execution.sparkSessionForStream()
    assert session.experimental().extraOptimizations().size() == 1
    job.detach()
    assert session.experimental().extraOptimizations().size() == 0
    total = stock.feed(4)
    until_done(stock, total)
    again = attach(stock.query, window_s=1.0, budget=1.0)
    try:
        live.until(lambda: again.batches and again.batches[-1].stages, 60)
        assert again._changer.read_limit() == ("files", 2)
        assert again.batches[-1].stages[-1].tasks == 8
        again.stop(clean=True)
    finally:
        again.close()
    assert not stock.query.isActive
    assert Counter(stock.counts) == Counter(i % 7 for i in range(total))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_changes_and_a_repartition_lose_no_record_of_any_kind_of_state(kind, tmp_path):
    """Limit, tasks and trigger change while records arrive, then state moves to 5 partitions: against plain counts."""
    stock = StockQuery(live.spark("plain"), kind, tmp_path, trigger="300 milliseconds")
    stock.feed(4)
    stock.start()
    try:
        assert stock.done()
        with attach(stock.query, budget=1.0) as job:
            asked, confirmed = change_often(stock, job, 6, np.random.default_rng(1))
            assert asked == confirmed
        with pytest.raises(AttachError, match="another number"):
            repartition(stock.query, 8, spark=stock.spark)
        assert stock.query.isActive
        moved = repartition(stock.query, 5, copy=tmp_path / "copy", spark=stock.spark)
        assert moved.before == 8
        assert moved.rows is None or moved.rows > 0
        stock.feed(4)
        stock.start(moved.checkpoint)
        assert stock.done()
        assert stock.query.lastProgress["stateOperators"][0]["numShufflePartitions"] == 5
    finally:
        stock.query.stop()
