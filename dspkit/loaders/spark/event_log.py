"""Spark's event log: one JSON event per line, plain or compressed, in one file or rolled over many.

The log is read as a stream: of its gigabytes only the sums per stage are kept in memory. With `spark=`, a Spark
session reads the files in parallel and returns these sums, in the form of events. A plain file is read in several
parts; a compressed one can only be read from its beginning, so that it is one task, which decompresses it in pieces
with dspkit's own reader. stages.py turns the sums into windows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import History, Topology
from ...core.files import open_regular
from ...spark.runtime import session
from ...spark.stock.job import SETTINGS, Recording
from ...spark.stock.observation import MicroBatch, StageRun
from ..common.base import LIMITS, Limits, LoaderError, Problems
from ..common.files import PACKED, at, items, parse_json, read_lines, read_some
from ..common.units import Unusable, number
from ..common.user_hints import Given, given_path, given_stages, given_topology, given_window
from . import stages
from .progress import batch_told, progress

if TYPE_CHECKING:
    import pyarrow as pa


EVENTS = (  # the events that are read; others are skipped unparsed
    "SparkListenerTaskEnd",
    "SparkListenerStageCompleted",
    "SparkListenerJobStart",
    "SparkListenerJobEnd",
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
    "SparkListenerExecutorAdded",
    "SparkListenerExecutorRemoved",
    "SparkListenerEnvironmentUpdate",
)
_TASK, _STAGE, _START, _END, _PROGRESS, _ADDED, _REMOVED, _SETTINGS = EVENTS
_EVENT = re.compile(rb'\{\s*"Event"\s*:\s*"([^"\\]{1,200})"')
_PART = re.compile(r"events_(\d{1,18})_.*?(\.compact)?")


class SparkEventLog:
    """The event log of a Spark application: a file, or the folder of a rolled one.

    A window is a micro-batch, or several that together last `window_s`; each job outside of streaming queries is a
    window.

    Parameters
    ----------
    path : str or Path
        The file or folder.
    names : sequence of str, optional
        The operators' names in the order of the stages' ids.
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    query : str, optional
        The id of the query, if there are several.
    window_s : float, optional
        The length of a window, by default one batch.
    spark : SparkSession, optional
        A session that reads the log; by default this process does, with little memory.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> SparkEventLog("spark-events/app-1", names=["read", "count"]).problems
    no problems
    """

    def __init__(
        self,
        path: str | Path,
        *,
        names: Sequence[str] | None = None,
        topology: Topology | Sequence[str] | None = None,
        query: str | None = None,
        window_s: float | None = None,
        spark: Any = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        self._path, self._query = given_path(path), query
        self._names, self._window_s = given_stages(names), given_window(window_s)
        self._given = Given(given_topology(topology))
        self._spark, self._strict, self._limits = spark, strict, limits

    def history(self) -> History:
        """Read the log."""
        log = self._log()
        batches = stages.of_one_query(log.batches(), self._query, self.problems)
        about = {"loader": "SparkEventLog", "source": self._path.name}
        return stages.history_of_batches(
            batches, self._given, self._names, self._window_s, self.problems, self._limits, about
        )

    def recording(self, *, window_s: float = 10.0) -> Recording:
        """Read the log for `dspkit.spark.attach`: the batches of a streaming query, with phases and state.

        Parameters
        ----------
        window_s : float
            The length of a window.
        """
        log = self._log()
        batches = stages.of_one_query(log.batches(), self._query, self.problems)
        return stages.recording_of_batches(batches, self._names, log.slots, log.settings, window_s)

    def _log(self) -> Log:
        self.problems = Problems(strict=self._strict)
        log = Log(self.problems, self._limits)
        if self._spark is None:
            for where, line in self._lines():
                log.take(line, where)
        else:
            for told, weight in read_events(self._spark, self.files(), self._limits, self.problems):
                log.take(told, "log", weight)
        if any(path.name.endswith(".compact") for path in self.files()) and self._path.is_dir():
            self.problems.count(
                "log that the history server compacted: jobs that had ended are missing", self._path.name
            )
        return log

    def files(self) -> list[Path]:
        """Return the files of the log in order; a compacted one replaces all before it.

        Examples
        --------
        >>> SparkEventLog("spark-events/app-1", names=["read", "count"]).files()
        [PosixPath('spark-events/app-1')]
        """
        if not self._path.is_dir():
            return [self._path]
        parts = []
        for count, path in enumerate(sorted(self._path.iterdir()), 1):
            self._limits.check("names", count)
            if match := _PART.fullmatch(path.name):
                parts.append((int(match[1]), match[2] is not None, path))
        if not parts:
            raise LoaderError(
                f"{self._path}, a folder without events_1_...", expected="one application's log", fix="name its folder"
            )
        compacted = max((index for index, compact, _ in parts if compact), default=0)
        return [path for index, compact, path in sorted(parts) if index > compacted or (index == compacted and compact)]

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        for path in self.files():
            for i, line in enumerate(read_lines(path, self._limits, self.problems), 1):
                event = event_of(line)
                if event is None:
                    self.problems.count("not an event", f"{path.name} line {i}")
                elif event in EVENTS:
                    yield f"{path.name} line {i}", line


def event_of(line: bytes) -> str | None:
    """Return the name of a line's event, without parsing the rest."""
    found = _EVENT.match(line[:300])
    return found[1].decode(errors="replace") if found else None


class Log:
    """The events read so far: sums by stage, and the jobs of stages."""

    def __init__(self, problems: Problems, limits: Limits):
        self._problems, self._limits = problems, limits
        self._open: dict[int, StageRun] = {}  # by stage id, until their job ends
        self._job_of: dict[int, int] = {}
        self._jobs: dict[int, tuple[str, int, float, list[int]]] = {}  # query, batch, start, stages
        self._batches: dict[tuple[str, int], MicroBatch] = {}
        self._progress: dict[tuple[str, int], MicroBatch] = {}
        self._cores: dict[str, int] = {}  # by executor
        self.slots = 0  # most that there were at once
        self.settings: dict[str, str] = {}
        self._stages = 0

    def take(self, line: bytes | str, where: str, tasks: int = 1) -> None:
        """Take one event; `tasks` is the number of tasks whose sums a TaskEnd has."""
        try:
            event = parse_json(line)
            name = at(event, "Event")
            if name == "SparkListenerTaskEnd":
                self._task(event, tasks)
            elif name == "SparkListenerStageCompleted":
                self._stage(at(event, "Stage Info"))
            elif name == "SparkListenerJobStart":
                self._start(event)
            elif name == "SparkListenerJobEnd":
                self._end(event)
            elif name == _PROGRESS:
                self._tell(event)
            elif name in (_ADDED, _REMOVED):
                self._executor(event, name == _ADDED)
            elif name == _SETTINGS:
                self._configure(at(event, "Spark Properties"))
        except Unusable as reason:
            self._problems.count(str(reason), where)

    def batches(self) -> list[MicroBatch]:
        """Return all batches whose jobs succeeded."""
        for job in self._jobs:
            self._problems.count("job without an end", f"job {job}")
        for key, batch in self._batches.items():
            if (told := self._progress.get(key)) is not None:
                batch.report(told)
            batch.slots = self.slots
        return list(self._batches.values())

    def _run(self, stage: int) -> StageRun:
        if stage not in self._open:
            self._stages += 1
            self._limits.check("readings", self._stages)
            self._open[stage] = StageRun(stage, 0)
        return self._open[stage]

    def _task(self, event: Any, tasks: int) -> None:
        stage = _id(event, "Stage ID")
        if at(event, "Task End Reason", "Reason") != "Success":
            self._run(stage).failed += tasks
            return
        metrics = at(event, "Task Metrics")
        read, wrote = at(metrics, "Shuffle Read Metrics"), at(metrics, "Shuffle Write Metrics")
        found = [
            _metric(metrics, "Executor Run Time") / 1e3,
            _metric(read, "Fetch Wait Time") / 1e3,
            _metric(metrics, "Executor CPU Time") / 1e9,
            _metric(at(metrics, "Input Metrics"), "Records Read") + _metric(read, "Total Records Read"),
            _metric(wrote, "Shuffle Records Written"),
            _metric(at(metrics, "Output Metrics"), "Records Written"),
        ]
        run = self._run(stage)
        run.done += tasks
        run.run_s += found[0]
        run.wait_s += found[1]
        run.cpu_s += found[2]
        run.received += found[3]
        run.shuffled += found[4]
        run.wrote += found[5]

    def _stage(self, info: Any) -> None:
        stage = _id(info, "Stage ID")
        if at(info, "Failure Reason") is not None:
            self._problems.count("stage that failed", f"stage {stage}")
            return
        run = self._run(stage)
        run.tasks = _id(info, "Number of Tasks")
        parents = items(at(info, "Parent IDs"))[: self._limits.names]
        run.parents = tuple(p for p in parents if isinstance(p, int) and p < stage)

    def _start(self, event: Any) -> None:
        job, ids = _id(event, "Job ID"), items(at(event, "Stage IDs"))
        self._limits.check("names", len(ids))
        said = at(event, "Properties")
        query, batch = at(said, "sql.streaming.queryId"), at(said, "streaming.sql.batchId")
        began = _time(event, "Submission Time")
        named = isinstance(query, str) and 0 < len(query) <= 200
        key = (query, int(number(batch, text=True))) if named and batch is not None else ("", job)
        self._limits.check("readings", len(self._jobs) + 1)
        self._jobs[job] = (*key, began, [i for i in ids if isinstance(i, int)])

    def _end(self, event: Any) -> None:
        job, ended = _id(event, "Job ID"), _time(event, "Completion Time")
        if job not in self._jobs:
            self._problems.count("end of a job that never began", f"job {job}")
            return
        query, batch_number, began, ids = self._jobs.pop(job)
        runs = [self._open.pop(i) for i in ids if i in self._open]
        if at(event, "Job Result", "Result") != "JobSucceeded":
            self._problems.count("job that failed", f"job {job}")
            return
        batch = self._batches.setdefault((query, batch_number), MicroBatch(query, batch_number, began, ended))
        batch.began, batch.ended = min(batch.began, began), max(batch.ended, ended)
        batch.stages += [run for run in runs if run.tasks]  # a stage whose output was there already did not run

    def _tell(self, event: Any) -> None:
        checked = progress(event)
        told = batch_told(event)
        key = (told.query, told.number)
        if checked["rows"] or key not in self._progress:  # an idle query repeats the number of its next batch
            self._progress[key] = told
            self._limits.check("readings", len(self._progress))

    def _executor(self, event: Any, added: bool) -> None:
        executor = str(at(event, "Executor ID"))[:200]
        if added:
            self._limits.check("names", len(self._cores) + 1)
            self._cores[executor] = int(_metric(at(event, "Executor Info"), "Total Cores"))
        else:
            self._cores.pop(executor, None)
        self.slots = max(self.slots, sum(self._cores.values()))

    def _configure(self, said: Any) -> None:
        for name in SETTINGS:
            if isinstance(value := at(said, name), str):
                self.settings[name] = value[:200]


def _metric(metrics: Any, name: str) -> float:
    try:
        return number(at(metrics, name))
    except Unusable as reason:
        raise Unusable(f"{name}: {reason}") from None


def _id(event: Any, name: str) -> int:
    value = at(event, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise Unusable(f"{name}: not a whole number")
    return value


def _time(event: Any, name: str) -> float:
    """Return seconds since 1970."""
    return _metric(event, name) / 1e3


_ORDER = (_SETTINGS, _ADDED, _STAGE, _START, _END, _PROGRESS, _REMOVED)  # a job's end finds its stages
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


def read_events(spark: Any, files: Sequence[Path], limits: Limits, problems: Problems) -> Iterator[tuple[str, int]]:
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
        with open_regular(path, error=LoaderError, expected="an event log") as file:
            own = read_some(file, path, 8).startswith(PACKED)
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
