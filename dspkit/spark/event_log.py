"""An event log of gigabytes, read by Spark: what comes back are sums by stage, in the form of events again.

Plain files are read in parts, side by side. A packed one can only be read from its beginning: it is one task, which
unpacks it piece by piece with dspkit's own reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..loaders.base import Limits, LoaderError, Problems
from ..loaders.lines import PACKED, read_lines
from ..loaders.spark_log import EVENTS, event_of
from . import session

if TYPE_CHECKING:
    import pyarrow as pa

_TASK, _STAGE, _START, _END, _PROGRESS = EVENTS
_ORDER = (_STAGE, _START, _END, _PROGRESS)  # a job's end finds its stages
_PROBLEM = "dspkit.problem"
_METRICS = (  # of a task, as paths in its event
    ("Executor Run Time",),
    ("Executor CPU Time",),
    ("Shuffle Read Metrics", "Fetch Wait Time"),
    ("Shuffle Read Metrics", "Total Records Read"),
    ("Shuffle Write Metrics", "Shuffle Records Written"),
    ("Input Metrics", "Records Read"),
    ("Output Metrics", "Records Written"),
)
_TASK_SCHEMA = (
    "`Stage ID` bigint, `Task End Reason` struct<Reason: string>, `Task Metrics` struct<"
    "`Executor Run Time`: bigint, `Executor CPU Time`: bigint, "
    "`Shuffle Read Metrics`: struct<`Fetch Wait Time`: bigint, `Total Records Read`: bigint>, "
    "`Shuffle Write Metrics`: struct<`Shuffle Records Written`: bigint>, "
    "`Input Metrics`: struct<`Records Read`: bigint>, `Output Metrics`: struct<`Records Written`: bigint>>"
)
_OTHER_SCHEMA = (  # jobs and stages without their plans
    "Event string, `Job ID` bigint, `Submission Time` bigint, `Completion Time` bigint, `Stage IDs` array<bigint>, "
    "Properties struct<`sql.streaming.queryId`: string, `streaming.sql.batchId`: string>, "
    "`Job Result` struct<Result: string>, `Stage Info` struct<`Stage ID`: bigint, `Number of Tasks`: bigint, "
    "`Parent IDs`: array<bigint>, `Failure Reason`: string>"
)
_GLOB = frozenset("*?[]{}\\")  # which Spark would take for patterns


def read(spark: Any, files: Sequence[Path], limits: Limits, problems: Problems) -> Iterator[tuple[str, int]]:
    """Events, each with the number of tasks that its sums are of."""
    from pyspark.errors import PySparkException

    try:
        yield from _read(spark.newSession(), files, limits, problems)
    except PySparkException as error:
        said = next((line for line in str(error).splitlines() if "LoaderError" in line), str(error))
        raise LoaderError(f"what Spark says: {said:.300}", expected="an event log", fix="see Spark's log") from error


def _read(spark: Any, files: Sequence[Path], limits: Limits, problems: Problems) -> Iterator[tuple[str, int]]:
    from pyspark.sql import functions as F

    rows = _lines(spark, files, limits)
    event = F.regexp_extract(F.substring("value", 1, 300), r'^\s*\{\s*"Event"\s*:\s*"([^"\\]{1,200})"', 1)
    rows = rows.withColumn("event", event)
    tasks = rows.filter(F.col("event") == _TASK).select(F.from_json("value", _TASK_SCHEMA).alias("e"))
    metrics = [reduce(lambda c, name: c[name], path, F.col("e")["Task Metrics"]) for path in _METRICS]
    good = reduce(lambda a, b: a & b, (m.isNotNull() & (m >= 0) for m in metrics))
    ok = F.coalesce(F.col("e")["Task End Reason"]["Reason"] == "Success", F.lit(False))
    known = F.coalesce((F.col("e")["Stage ID"] >= 0) & (good | ~ok), F.lit(False))
    sums = [F.sum(m).alias(f"m{i}") for i, m in enumerate(metrics)]
    by_stage = tasks.groupBy(known.alias("known"), F.col("e")["Stage ID"].alias("stage"), ok.alias("ok"))
    for row in by_stage.agg(F.count("*").alias("n"), *sums).toLocalIterator():
        if not row["known"]:
            problems.count("a task without its numbers", f"stage {row['stage']}", row["n"])
        else:
            yield json.dumps(_event(row)), row["n"]
    small = F.to_json(F.from_json("value", _OTHER_SCHEMA))
    kept = F.when(F.col("event").isin(_STAGE, _START, _END), small).otherwise(F.col("value"))
    places = reduce(lambda c, p: c.when(F.col("event") == p[1], p[0]), enumerate(_ORDER), F.when(F.lit(False), 0))
    chosen = rows.filter(F.col("event").isin(*_ORDER, _PROBLEM) | (F.col("event") == ""))
    others = chosen.select(kept.alias("value"), places.alias("place"), "event").orderBy("place")
    for row in others.toLocalIterator():
        if row["event"] == _PROBLEM:
            told = json.loads(row["value"])
            problems.count(told["reason"], told["where"], told["n"])
        elif row["event"]:
            yield row["value"], 1
        elif (row["value"] or "").strip():
            problems.count("not an event", "a line")


def _event(row: Any) -> dict[str, Any]:
    """The sums of a stage's tasks as one task's end."""
    metrics: dict[str, Any] = {}
    for i, path in enumerate(_METRICS):
        place = metrics
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = row[f"m{i}"]
    reason = {"Reason": "Success" if row["ok"] else "failed"}
    return {"Event": _TASK, "Stage ID": row["stage"], "Task End Reason": reason, "Task Metrics": metrics}


def _lines(spark: Any, files: Sequence[Path], limits: Limits) -> Any:
    plain: list[str] = []
    packed: list[str] = []
    for path in files:
        try:
            with path.open("rb") as file:
                own = file.read(8).startswith(PACKED)
        except OSError as error:
            raise LoaderError(f"{path}: {error.strerror}", expected="a file to read", fix="check the path") from error
        (packed if own or _GLOB & set(str(path)) else plain).append(str(path.absolute()))
    found = [spark.read.text([f"file://{path}" for path in plain])] if plain else []
    if packed:
        session.find_modules(spark)
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
        names = spark.createDataFrame([(path,) for path in packed], "path string").repartition(len(packed))
        found.append(names.mapInArrow(Unpack(limits), "value string"))
    return reduce(lambda a, b: a.unionByName(b), found)


@dataclass(frozen=True)
class Unpack:
    """Names of files in, those of their lines out that are read; runs in Spark's workers."""

    limits: Limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        def made(lines: list[str]) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["value"])

        for batch in batches:
            for path in batch.column(0).to_pylist():
                problems, kept, size = Problems(), [], 0
                for i, line in enumerate(read_lines(Path(path), self.limits, problems), 1):
                    if (event := event_of(line)) is None:
                        problems.count("not an event", f"{Path(path).name} line {i}")
                    elif event in EVENTS:
                        kept.append(line.decode(errors="replace"))
                        size += len(line)
                        if size > 1 << 20:
                            yield made(kept)
                            kept, size = [], 0
                for reason, n in problems.items():
                    told = {"Event": _PROBLEM, "reason": reason, "where": problems.examples[reason][0], "n": n}
                    kept.append(json.dumps(told))
                yield made(kept)
