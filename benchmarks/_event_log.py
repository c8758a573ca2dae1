"""Event logs in the format of Spark 4.3, of any size, with known rates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

QUERY = "334b3650-b564-4930-9ff2-cd17704d6ebf"
_ZERO_MS = 1_795_034_658_000
_ACCUMULABLES = (
    "time to start Python workers", "time to initialize Python workers", "time to run Python workers",
    "time to execute Python code", "duration", "internal.metrics.executorDeserializeTime",
    "internal.metrics.executorDeserializeCpuTime", "internal.metrics.executorRunTime",
    "internal.metrics.executorCpuTime", "internal.metrics.resultSize", "internal.metrics.jvmGCTime",
    "internal.metrics.resultSerializationTime", "internal.metrics.memoryBytesSpilled",
    "internal.metrics.diskBytesSpilled", "internal.metrics.input.recordsRead",
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A stage of each batch: its tasks, and the work of each."""

    tasks: int
    received: int  # records
    sent: int
    run_ms: int
    wait_ms: int = 0
    parents: Sequence[int] = ()


CHAIN = (Stage(8, 500, 1000, 200), Stage(16, 500, 250, 400, 40, (0,)), Stage(4, 1000, 0, 300, 100, (1,)))


def events(batches: int, stages: Sequence[Stage] = CHAIN, *, every_ms: int = 2000, query: str = QUERY) -> Iterator[str]:
    """Yield the lines of a log: each batch begins `every_ms` after the last one and takes half of that time."""
    yield _line("SparkListenerLogStart", {"Spark Version": "4.3.0"})
    task_id = 0
    for batch in range(batches):
        first, began = batch * len(stages), _ZERO_MS + batch * every_ms
        ids = list(range(first, first + len(stages)))
        properties = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": query}
        infos = [_info(first + i, first, stage) for i, stage in enumerate(stages)]
        job = {"Job ID": batch, "Submission Time": began, "Stage Infos": infos, "Stage IDs": ids}
        yield _line("SparkListenerJobStart", job | {"Properties": properties})
        for i, stage in enumerate(stages):
            whole = _task(first + i, stage)
            for index in range(stage.tasks):
                task_id += 1
                yield whole.replace('"Task ID":-1,"Index":-1', f'"Task ID":{task_id},"Index":{index}')
            yield _line("SparkListenerStageCompleted", {"Stage Info": infos[i]})
        ended = {"Job ID": batch, "Completion Time": began + every_ms // 2, "Job Result": {"Result": "JobSucceeded"}}
        yield _line("SparkListenerJobEnd", ended)
    yield _line("SparkListenerApplicationEnd", {"Timestamp": _ZERO_MS + batches * every_ms})


def _line(event: str, told: dict[str, Any]) -> str:
    return json.dumps({"Event": event, **told}, separators=(",", ":"))


def _info(stage_id: int, first: int, stage: Stage) -> dict[str, Any]:
    return {
        "Stage ID": stage_id,
        "Stage Attempt ID": 0,
        "Stage Name": "start at NativeMethodAccessorImpl.java:0",
        "Number of Tasks": stage.tasks,
        "RDD Info": [{"RDD ID": stage_id, "Name": "MapPartitionsRDD", "Scope": '{"id":"8","name":"Exchange"}'}],
        "Parent IDs": [first + p for p in stage.parents],
        "Details": "org.apache.spark.sql.streaming.DataStreamWriter.start(DataStreamWriter.scala:250)",
    }


def _task(stage_id: int, stage: Stage) -> str:
    shuffled = bool(stage.parents)
    kept = [
        {"ID": i, "Name": name, "Update": 166, "Value": 166, "Internal": True, "Count Failed Values": True}
        for i, name in enumerate(_ACCUMULABLES)
    ]
    metrics = {
        "Executor Deserialize Time": 113,
        "Executor Run Time": stage.run_ms,
        "Executor CPU Time": stage.run_ms * 500_000,
        "Result Size": 2683,
        "JVM GC Time": 26,
        "Shuffle Read Metrics": {
            "Remote Blocks Fetched": 0,
            "Local Blocks Fetched": 4,
            "Fetch Wait Time": stage.wait_ms,
            "Remote Bytes Read": 0,
            "Total Records Read": stage.received if shuffled else 0,
            "Push Based Shuffle": {"Corrupt Merged Block Chunks": 0, "Merged Fetch Fallback Count": 0},
        },
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 1000, "Shuffle Records Written": stage.sent},
        "Input Metrics": {"Bytes Read": 0, "Records Read": 0 if shuffled else stage.received},
        "Output Metrics": {"Bytes Written": 0, "Records Written": 0},
        "Updated Blocks": [],
    }
    return _line(
        "SparkListenerTaskEnd",
        {
            "Stage ID": stage_id,
            "Stage Attempt ID": 0,
            "Task Type": "ShuffleMapTask",
            "Task End Reason": {"Reason": "Success"},
            "Task Info": {"Task ID": -1, "Index": -1, "Attempt": 0, "Failed": False, "Accumulables": kept},
            "Task Metrics": metrics,
        },
    )
