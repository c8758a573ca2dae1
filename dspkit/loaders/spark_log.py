"""Spark's event log: one JSON event a line, plain or packed, in one file or rolled over many.

Read as a stream: of the gigabytes of a log only the sums of its stages stay in memory. With `spark=` a session of
Spark reads it, file parts side by side. What becomes of it: stages.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core import Topology
from ..history import History
from . import stages
from .base import LIMITS, Limits, LoaderError, Problems
from .given import Given, given_path, given_stages, given_topology, given_window
from .lines import at, items, parse, read_lines
from .spark_progress import progress
from .stages import Batch, StageRun
from .units import Unusable, number

EVENTS = (  # what is read; the rest of a log is passed by unopened
    "SparkListenerTaskEnd",
    "SparkListenerStageCompleted",
    "SparkListenerJobStart",
    "SparkListenerJobEnd",
    "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
)
_EVENT = re.compile(rb'\{\s*"Event"\s*:\s*"([^"\\]{1,200})"')
_PART = re.compile(r"events_(\d{1,18})_.*?(\.compact)?")


class SparkEventLog:
    """The event log of a Spark application: a file, or the folder of a rolled one.

    A window is a micro-batch, or several that together last `window_s`; jobs outside of streaming queries are a window
    each. `names` are the operators' names in the order of the stages' ids, `query` is the id of one of several.
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
        """`spark` is a SparkSession that reads the log; without it this process does, with little memory."""
        self.problems = Problems(strict=strict)
        self._path, self._query = given_path(path), query
        self._names, self._window_s = given_stages(names), given_window(window_s)
        self._given = Given(given_topology(topology))
        self._spark, self._strict, self._limits = spark, strict, limits

    def history(self) -> History:
        """Read the log."""
        self.problems = Problems(strict=self._strict)
        log = Log(self.problems, self._limits)
        if self._spark is None:
            for where, line in self._lines():
                log.take(line, where)
        else:
            from ..spark.event_log import read

            for told, weight in read(self._spark, self.files(), self._limits, self.problems):
                log.take(told, "log", weight)
        batches = stages.of_one_query(log.batches(), self._query, self.problems)
        about = {"loader": "SparkEventLog", "source": self._path.name}
        return stages.history(batches, self._given, self._names, self._window_s, self.problems, self._limits, about)

    def files(self) -> list[Path]:
        """The files of the log in order; what was compacted stands for all before it."""
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
    """The name of a line's event, without reading the rest."""
    found = _EVENT.match(line[:300])
    return found[1].decode(errors="replace") if found else None


class Log:
    """What was read so far: sums by stage, and which jobs they belong to."""

    def __init__(self, problems: Problems, limits: Limits):
        self._problems, self._limits = problems, limits
        self._open: dict[int, StageRun] = {}  # by stage id, until their job ends
        self._job_of: dict[int, int] = {}
        self._jobs: dict[int, tuple[str, int, float, list[int]]] = {}  # query, batch, when it began, stages
        self._batches: dict[tuple[str, int], Batch] = {}
        self._progress: dict[tuple[str, int], float] = {}  # what was left, as told last
        self._stages = 0

    def take(self, line: bytes | str, where: str, tasks: int = 1) -> None:
        """One event; `tasks` is of how many tasks a TaskEnd holds the sums."""
        try:
            event = parse(line)
            name = at(event, "Event")
            if name == "SparkListenerTaskEnd":
                self._task(event, tasks)
            elif name == "SparkListenerStageCompleted":
                self._stage(at(event, "Stage Info"))
            elif name == "SparkListenerJobStart":
                self._start(event)
            elif name == "SparkListenerJobEnd":
                self._end(event)
            elif name == EVENTS[-1]:
                self._tell(event)
        except Unusable as reason:
            self._problems.count(str(reason), where)

    def batches(self) -> list[Batch]:
        """All batches whose jobs ended well."""
        for job in self._jobs:
            self._problems.count("job without an end", f"job {job}")
        for key, batch in self._batches.items():
            batch.backlog = self._progress.get(key)
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
        run.came += found[3]
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
        batch = self._batches.setdefault((query, batch_number), Batch(query, batch_number, began, ended))
        batch.began, batch.ended = min(batch.began, began), max(batch.ended, ended)
        batch.stages += [run for run in runs if run.tasks]  # a stage whose output was there already did not run

    def _tell(self, event: Any) -> None:
        told = progress(event)
        if told["backlog"] is not None:
            query = at(event, "progress", "id")
            self._progress[str(query)[:200], told["batch"]] = told["backlog"]
            self._limits.check("readings", len(self._progress))


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
    """Seconds since 1970."""
    return _metric(event, name) / 1e3
