"""Micro-batches of a stock query, as Spark reports them: progress, and the sums of its stages.

A batch is known from two places. Its `StreamingQueryProgress` has rows, phases and state; the status store of the
driver (or an event log, or the REST API) has the tasks of its stages. Reading both changes nothing in the query. Its
physical plan says how the stages are connected, and what each of them does.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ...core import BackendError, Latency, MetricError, Operator, Topology
from ...core.validation import whole
from ..runtime import workers

_OFFSETS = ("endOffset", "latestOffset")
STAGE = (
    "stageId", "numTasks", "numCompleteTasks", "numFailedTasks", "executorRunTime", "shuffleFetchWaitTime",
    "executorCpuTime", "inputRecords", "shuffleReadRecords", "shuffleWriteRecords", "outputRecords", "jvmGcTime",
    "diskBytesSpilled",
)  # fmt: skip
_MOST_FILES = 200_000  # files of a folder that are counted for the lag of a file source
_REST = 50.0  # times the duration of a count, for which none is made


class AttachError(BackendError):
    """A query that cannot be attached to, or a change of it that is not possible."""


@dataclass(slots=True)
class StageRun:
    """The sums over the tasks of one stage, in seconds and records."""

    id: int
    tasks: int
    done: int = 0  # tasks that succeeded
    failed: int = 0
    run_s: float = 0.0
    wait_s: float = 0.0
    cpu_s: float = 0.0
    received: float = 0.0
    shuffled: float = 0.0  # records written for the next stage
    wrote: float = 0.0  # records written elsewhere
    parents: tuple[int, ...] | None = None  # None: unknown; then each follows the one before
    gc_s: float = 0.0
    spilled: float = 0.0  # bytes
    longest_s: float | None = None  # of its tasks
    median_s: float | None = None
    operator: str = ""

    @property
    def busy_s(self) -> float:
        """Seconds of task time without the waits for the stage before."""
        return max(0.0, self.run_s - self.wait_s)


@dataclass(frozen=True)
class StateReport:
    """One stateful operator of a batch, as its progress reports it; times are sums over tasks, in seconds."""

    name: str
    rows: float
    memory_bytes: float
    stores: int
    commit_s: float
    update_s: float
    dropped: float  # rows behind the watermark
    custom: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class MicroBatch:
    """One micro-batch, or one job outside of them; times in seconds since 1970."""

    query: str
    number: int
    began: float
    ended: float
    stages: list[StageRun] = field(default_factory=list)
    backlog: float | None = None  # records that were left in the log
    rows: float | None = None  # None: no progress was reported
    phases: dict[str, float] = field(default_factory=dict)  # seconds by Spark's name of the phase
    sources: tuple[tuple[str, float], ...] = ()  # description and rows of each
    state: tuple[StateReport, ...] = ()
    slots: int = 0  # of the cluster while it ran; 0: not known

    @property
    def where(self) -> str:
        return f"batch {self.number} of {self.query}" if self.query else f"job {self.number}"

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage the places of its parents."""
        place = {stage.id: i for i, stage in enumerate(self.stages)}
        return tuple(
            tuple(place[p] for p in stage.parents if p in place)
            if stage.parents is not None
            else ((i - 1,) if i else ())
            for i, stage in enumerate(self.stages)
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(stage.tasks for stage in self.stages)

    @property
    def lasted(self) -> float:
        """Seconds from the trigger to the commit; without progress, the span of the jobs."""
        return self.phases.get("triggerExecution", self.ended - self.began)

    @property
    def stores(self) -> int:
        """State stores that the batch opens and commits."""
        return sum(s.stores for s in self.state)

    def report(self, told: MicroBatch) -> None:
        """Take over what the progress of the batch says: the jobs span only a part of it."""
        self.began, self.ended = min(self.began, told.began), max(self.ended, told.ended)
        self.rows, self.phases, self.backlog = told.rows, told.phases, told.backlog
        self.sources, self.state = told.sources, told.state


def batch_latency(seconds: Sequence[float], records: Sequence[float]) -> Latency | None:
    """Return mean and percentiles over the records, each of which takes as long as its batch."""
    pairs = sorted((s, n) for s, n in zip(seconds, records, strict=True) if n > 0)
    total = sum(n for _, n in pairs)
    if not total > 0:
        return None
    levels, seen, wanted = [], 0.0, [0.5, 0.95, 0.99]
    for s, n in pairs:
        seen += n
        while wanted and seen >= wanted[0] * total * (1 - 1e-12):
            levels.append(s)
            wanted.pop(0)
    return Latency(sum(s * n for s, n in pairs) / total, *levels)


def batch_of(report: Any) -> MicroBatch:
    """Return the batch that one `StreamingQueryProgress` describes, as a mapping.

    Examples
    --------
    >>> progress = {"id": "q", "batchId": 3, "timestamp": "2026-01-01T00:00:01.000Z", "numInputRows": 500,
    ...             "durationMs": {"addBatch": 400, "triggerExecution": 600}}
    >>> batch = batch_of(progress)
    >>> batch.number, batch.rows, batch.lasted, batch.phases["addBatch"]
    (3, 500.0, 0.6, 0.4)
    """
    report = report.get("progress", report) if isinstance(report, Mapping) else report
    if not isinstance(report, Mapping):
        raise _unusable("progress that is no mapping")
    sources = [s for s in _items(report, "sources") if isinstance(s, Mapping)]
    each = tuple((str(s.get("description", ""))[:1000], _number(s, "numInputRows", 0.0)) for s in sources)
    whole = report.get("numInputRows")
    rows = sum(n for _, n in each) if whole is None and each else _number(report, "numInputRows")
    durations = report.get("durationMs")
    phases = (
        {str(k)[:80]: _number(durations, k) / 1e3 for k in list(durations)[:64]}
        if isinstance(durations, Mapping)
        else {}
    )
    began = _instant(report.get("timestamp"))
    return MicroBatch(
        str(report.get("id") or "")[:200],
        int(_number(report, "batchId")),
        began,
        began + phases.get("triggerExecution", 0.0),
        backlog=_backlog(sources),
        rows=rows,
        phases=phases,
        sources=each,
        state=tuple(_state(s) for s in _items(report, "stateOperators") if isinstance(s, Mapping)),
    )


def _state(told: Mapping[str, Any]) -> StateReport:
    custom = told.get("customMetrics")
    kept = {k: _number(custom, k, 0.0) for k in list(custom)[:200]} if isinstance(custom, Mapping) else {}
    return StateReport(
        str(told.get("operatorName", ""))[:200],
        _number(told, "numRowsTotal", 0.0),
        _number(told, "memoryUsedBytes", 0.0),
        int(_number(told, "numStateStoreInstances", _number(told, "numShufflePartitions", 0.0))),
        _number(told, "commitTimeMs", 0.0) / 1e3,
        (_number(told, "allUpdatesTimeMs", 0.0) + _number(told, "allRemovalsTimeMs", 0.0)) / 1e3,
        _number(told, "numRowsDroppedByWatermark", 0.0),
        kept,
    )


def _backlog(sources: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the records left in the sources' logs, if all of them report it, as Kafka's does."""
    left = 0.0
    for source in sources:
        end, latest = (_offsets(source.get(name)) for name in _OFFSETS)
        if end is None or latest is None or end.keys() != latest.keys():
            return None
        left += sum(max(0.0, latest[key] - end[key]) for key in end)
    return left if sources else None


def _offsets(value: Any) -> dict[tuple[str, str], float] | None:
    try:
        value = json.loads(value) if isinstance(value, str) else value
        found = {(t, p): float(n) for t, of in value.items() for p, n in of.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return found if found and all(map(math.isfinite, found.values())) else None


def _items(report: Mapping[str, Any], name: str) -> list[Any]:
    value = report.get(name)
    return value[:1000] if isinstance(value, list) else []


def _number(told: Any, name: str, default: float | None = None) -> float:
    value = told.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _unusable(f"{name}={value!r:.60} in a progress")
    if value < 0:  # Spark's word for unknown
        if default is None:
            raise _unusable(f"{name}={value!r:.60} in a progress")
        return default
    return float(value)


def _instant(value: Any) -> float:
    try:
        return datetime.fromisoformat(str(value)[:40].replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise _unusable(f"timestamp={value!r:.60} in a progress") from None


def _unusable(got: str) -> MetricError:
    return MetricError(got, expected="a StreamingQueryProgress of Spark", fix="pass it as Spark writes it")


class ProgressReader:
    """The progress reports of a query, each one once.

    Parameters
    ----------
    query : StreamingQuery
        Of classic PySpark or of Spark Connect.

    Examples
    --------
    >>> ProgressReader(query).new()  # doctest: +SKIP
    """

    def __init__(self, query: Any):
        self._query, self._java = query, getattr(query, "_jsq", None)
        self._last = ""  # the newest timestamp that was returned

    def new(self) -> list[MicroBatch]:
        """Return the batches with rows that were reported since the last call, oldest first."""
        found = []
        for told in self._reports():
            batch = batch_of(told)
            if batch.rows and "addBatch" in batch.phases:  # an idle query reports the number of the batch to come
                found.append(batch)
        return found

    def _reports(self) -> Iterator[Mapping[str, Any]]:
        """Progress as mappings; of classic queries only what is new crosses to Python."""
        every = list(self._query.recentProgress) if self._java is None else self._news()
        fresh: list[Any] = []
        newest = self._last
        for i in reversed(range(len(every))):  # each element of a Java array is a call
            one = every[i]
            stamp = str(_member(one, "timestamp"))
            if stamp <= self._last:  # ISO times of one zone sort as text
                break
            newest = max(newest, stamp)
            fresh.append(one)
        self._last = newest
        for one in reversed(fresh):
            told = one if isinstance(one, Mapping) and type(one) is dict else json.loads(_member(one, "json"))
            yield told

    def _news(self) -> Any:
        """Return Java's progress reports, or none if the last one is known already."""
        assert self._java is not None
        last = self._java.lastProgress()
        if last is None or str(last.timestamp()) <= self._last:
            return ()
        return self._java.recentProgress()


def _member(thing: Any, name: str) -> Any:
    """Return a property of PySpark's progress, the result of the same method of Java's, or an entry of a mapping."""
    if type(thing) is dict:
        return thing[name]
    value = getattr(thing, name)
    return value() if callable(value) else value


class StatusStore:
    """Stages and tasks of a running query, from Spark's own store in the driver: no UI, no HTTP, no listener.

    The jobs of a query carry its run id as job group, so that nothing has to be parsed but the number of the batch.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    run_id : str
        The run id of the query.

    Examples
    --------
    >>> StatusStore(spark, query.runId).batches({7})  # doctest: +SKIP
    """

    def __init__(self, spark: Any, run_id: Any):
        context = spark.sparkContext._jsc.sc()
        jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
        self._store, self._tracker, self._run = context.statusStore(), context.statusTracker(), str(run_id)
        self._arrays = jvm.java.util.Arrays
        self._levels = gateway.new_array(jvm.double, 2)
        self._levels[0], self._levels[1] = 0.5, 1.0

    def batches(self, numbers: set[int], *, spread: bool = False) -> dict[int, list[StageRun]]:
        """Return the completed stages of these batches as far as Spark still has them, in the order of their ids."""
        found: dict[int, list[StageRun]] = {}
        for number_of_job in sorted(self._jobs(), reverse=True):
            job = self._store.job(number_of_job)
            description = job.description()
            number = batch_number(description.get()) if description.isDefined() else None
            if number is None:
                continue
            if number < min(numbers):
                break
            if number in numbers:
                stages = [
                    self._store.lastStageAttempt(i) for i in json.loads(str(job.stageIds().mkString("[", ",", "]")))
                ]
                runs = [stage_run(self.values(s)) for s in stages if str(s.status().toString()) == "COMPLETE"]
                found.setdefault(number, []).extend(runs)
        for runs in found.values():
            runs.sort(key=lambda run: run.id)
            for run in runs if spread else ():
                self._spread(run)
        return found

    def running(self) -> tuple[int, int]:
        """Return the active and the failed tasks of the jobs that run now."""
        jobs = [self._store.job(number) for number in sorted(self._jobs())[-4:]]
        alive = [job for job in jobs if str(job.status().toString()) == "RUNNING"]
        return sum(int(j.numActiveTasks()) for j in alive), sum(int(j.numFailedTasks()) for j in alive)

    @staticmethod
    def values(stage: Any) -> dict[str, Any]:
        """Return the sums of a stage by name: a call for each costs less than turning all of it into text."""
        return {name: getattr(stage, name)() for name in STAGE}

    def _jobs(self) -> list[int]:
        """Return the ids of the query's jobs, as text: each element of a Java array would be a call."""
        ids: list[int] = json.loads(self._arrays.toString(self._tracker.getJobIdsForGroup(self._run)))
        return ids

    def operations(self, stage: int) -> list[str]:
        """Return the names of the plan's nodes that ran in a stage, as Spark draws them."""
        names, todo = [], [self._store.operationGraphForStage(stage).rootCluster()]
        while todo:
            cluster = todo.pop()
            names.append(str(cluster.name()))
            kids = cluster.childClusters().toList()
            todo += [kids.apply(i) for i in range(kids.size())]
        return names[1:]

    def _spread(self, run: StageRun) -> None:
        found = self._store.taskSummary(run.id, 0, self._levels)
        if found.isDefined():
            times = found.get().executorRunTime()
            run.median_s, run.longest_s = (float(times.apply(i)) / 1e3 for i in range(2))


def batch_number(description: Any) -> int | None:
    """Return the batch that the description of a query's job names in its last line.

    Examples
    --------
    >>> batch_number("word count\\nid = 1\\nrunId = 2\\nbatch = 17"), batch_number("count at cell 3")
    (17, None)
    """
    last = str(description or "").rsplit("\n", 1)[-1]
    head, _, number = last.partition("batch = ")
    return int(number) if not head and number.isdecimal() and len(number) < 16 else None


def stage_run(told: Mapping[str, Any]) -> StageRun:
    """Return the sums of a stage as Spark's store and its REST API write them."""
    return StageRun(
        int(told["stageId"]),
        int(told["numTasks"]),
        int(told["numCompleteTasks"]),
        int(told["numFailedTasks"]),
        told["executorRunTime"] / 1e3,
        told["shuffleFetchWaitTime"] / 1e3,
        told["executorCpuTime"] / 1e9,
        float(told["inputRecords"] + told["shuffleReadRecords"]),
        float(told["shuffleWriteRecords"]),
        float(told["outputRecords"]),
        gc_s=told.get("jvmGcTime", 0) / 1e3,
        spilled=float(told.get("diskBytesSpilled", 0)),
    )


class FilesWaiting:
    """The records that wait in a folder for a file source, which reports no lag.

    The files of the folder are counted against those that the checkpoint lists as read, every few seconds at most. A
    file counts as many records as those of the batches seen so far had on average.

    Parameters
    ----------
    folder : Path
        The folder that the query reads.
    log : Path
        The list of files in its checkpoint: `sources/0`.
    every_s : float
        Seconds between two counts.

    Examples
    --------
    >>> FilesWaiting(Path("inbox"), Path("checkpoint/sources/0")).records([(0, 1000)])  # doctest: +SKIP
    """

    def __init__(self, folder: Path, log: Path, every_s: float = 1.0):
        self._folder, self._log, self._every_s = folder, log, every_s
        self._read: set[str] = set()
        self._parts: set[str] = set()
        self._due, self._waiting = -math.inf, 0
        self.per_batch: dict[int, int] = {}  # files by number of the batch

    def records(self, seen: Iterable[tuple[int, float]]) -> float | None:
        """Return the records that wait, by the numbers of the batches seen and the rows of each.

        None while that is not known, and until the next count is due.
        """
        began = time.monotonic()
        if began < self._due:
            return None
        self._count()
        took = time.monotonic() - began
        self._due = began + took + max(self._every_s, _REST * took)  # a folder of many files is counted less often
        known = [(self.per_batch[number], rows) for number, rows in seen if number in self.per_batch]
        files = sum(count for count, _ in known)
        return self._waiting * sum(rows for _, rows in known) / files if files else None

    def _count(self) -> None:
        for part in self._log.iterdir():
            if part.name in self._parts or part.name.startswith("."):
                continue
            lines = part.read_text("utf-8", "replace").splitlines()[1:]
            told = [json.loads(line) for line in lines if line.strip()]
            # a compacted part lists the files of all batches before it, whose own parts Spark deletes
            own = int(part.name.partition(".")[0]) if part.name[:1].isdecimal() else -1
            self.per_batch |= Counter(int(file.get("batchId", own)) for file in told)
            self._parts.add(part.name)
            self._read |= {self._name(file["path"]) for file in told}
        self._waiting = sum(name not in self._read for name in self._names())

    def _name(self, uri: str) -> str:
        """Return the path of a file below the folder; its name, if it is written there in another way."""
        path, below = unquote(urlparse(uri).path), f"{self._folder}/"
        return path[len(below) :] if path.startswith(below) else path.rsplit("/", 1)[-1]

    def _names(self) -> Iterator[str]:
        todo, count = [""], 0
        while todo:
            below = todo.pop()
            with os.scandir(self._folder / below) as entries:
                for entry in entries:
                    if entry.name.startswith((".", "_")):
                        continue
                    if entry.is_dir():
                        todo.append(f"{below}{entry.name}/")
                        continue
                    count += 1
                    if count > _MOST_FILES:
                        raise AttachError(
                            f"more than {_MOST_FILES} files in {self._folder}",
                            expected="a folder that can be counted",
                            fix="pass waiting=, a function that returns the records that wait",
                        )
                    yield below + entry.name


def whole_batches(batches: Iterable[MicroBatch]) -> list[MicroBatch]:
    """Return the batches with rows and a duration, in order and each once."""
    found = {(b.number, b.began): b for b in batches if b.rows and b.lasted > 0}
    return sorted(found.values(), key=lambda b: (b.began, b.number))


# ---- the physical plan as a graph of operators: what lies between two exchanges is one stage

NAMES = {  # an operator is named after these nodes; the others move rows from one to the next
    "StateStoreSave": "aggregate",
    "StreamingSymmetricHashJoin": "join",
    "StreamingDeduplicate": "dedupe",
    "StreamingDeduplicateWithinWatermark": "dedupe",
    "TransformWithStateInPySpark": "transform",
    "TransformWithState": "transform",
    "FlatMapGroupsInPandasWithState": "apply",
    "FlatMapGroupsWithState": "apply",
    "SessionWindowStateStoreSave": "session",
    "StreamingGlobalLimit": "limit",
    "MapInArrow": "map",
    "MapInPandas": "map",
    "PythonMapInArrow": "map",
    "ArrowEvalPython": "udf",
    "BatchEvalPython": "udf",
    "Generate": "explode",
    "MicroBatchScan": "read",
    "RealTimeStreamScan": "read",
}
STATEFUL = frozenset({"aggregate", "join", "dedupe", "transform", "apply", "session", "limit"})


@dataclass
class PlanStage:
    """One stage of the plan, from an exchange (or a source) to the next exchange (or the sink)."""

    name: str = ""
    nodes: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    partitions: int | None = None  # of the exchange that it reads; None: the source decides

    @property
    def stateful(self) -> bool:
        """True if one of its nodes keeps state."""
        return any(NAMES.get(node) in STATEFUL for node in self.nodes)


def plan_stages(executed_plan: Any) -> list[PlanStage]:
    """Return the stages of a physical plan (a Java object, or one with the same methods), from the sources on."""
    found: list[PlanStage] = []
    last = PlanStage()
    _visit(executed_plan, last, found)
    _name(last, found)
    return found


def _children(node: Any) -> list[Any]:
    kids = node.children()
    return [kids.apply(i) for i in range(kids.size())]


def _visit(node: Any, stage: PlanStage, found: list[PlanStage]) -> None:
    name = str(node.nodeName())
    if name == "AdaptiveSparkPlan":
        _visit(node.executedPlan(), stage, found)
        return
    if name.startswith("ShuffleQueryStage"):
        _visit(node.plan(), stage, found)
        return
    if name == "Exchange":
        before = PlanStage()
        stage.partitions = int(node.outputPartitioning().numPartitions())
        _visit(_children(node)[0], before, found)
        _name(before, found)
        stage.inputs.append(before.name)
        return
    stage.nodes.append(name)
    for child in _children(node):
        _visit(child, stage, found)


def _name(stage: PlanStage, found: list[PlanStage]) -> None:
    words = [NAMES[n] for n in reversed(stage.nodes) if n in NAMES]
    called = "+".join(dict.fromkeys(words)) or ("work" if stage.inputs else "read")
    taken = {s.name for s in found}
    stage.name = next(n for i in count(1) if (n := called if i == 1 else f"{called}_{i}") not in taken)
    found.append(stage)


def topology_of(stages: Sequence[PlanStage], most: int) -> Topology:
    """Return the stages as operators of a topology, each with at most `most` instances."""
    edges = tuple(dict.fromkeys((i, s.name) for s in stages for i in s.inputs))
    return Topology(tuple(Operator(s.name, max(1, most), stateful=s.stateful) for s in stages), edges)


def join_stages(stages: Sequence[PlanStage], runs: Sequence[StageRun], drawn: Sequence[Sequence[str]] = ()) -> bool:
    """Write into each run the name of its operator; return False where they do not match.

    Without a branch, stages run in the order of the plan. At joins they do not: there the nodes that Spark draws for
    each stage (`drawn`), with the numbers of their generated code, tell which is which.

    Parameters
    ----------
    stages : sequence of PlanStage
        The plan, from the sources on.
    runs : sequence of StageRun
        The stages that Spark ran, in the order of their ids.
    drawn : sequence of sequences of str
        Nodes that Spark draws for each run.

    Examples
    --------
    >>> plan = [PlanStage("read"), PlanStage("count", inputs=["read"])]
    >>> runs = [StageRun(7, 2), StageRun(8, 4)]
    >>> join_stages(plan, runs), [run.operator for run in runs]
    (True, ['read', 'count'])
    """
    if len(stages) != len(runs):
        return False
    branches = any(len(s.inputs) > 1 for s in stages)
    if not branches:
        for stage, run in zip(stages, runs, strict=True):
            run.operator = stage.name
        return True
    if len(drawn) != len(runs):
        return False
    left = list(stages)
    for run, names in sorted(zip(runs, drawn, strict=True), key=lambda pair: -len(pair[1])):
        marks = set(names)
        fits = [len(marks & set(s.nodes)) / max(1, len(marks | set(s.nodes))) for s in left]
        best = max(range(len(left)), key=lambda i: fits[i])
        if fits.count(fits[best]) > 1 or not fits[best]:
            return False  # two stages that look the same
        run.operator = left.pop(best).name
    return True


@dataclass(frozen=True)
class RealtimeSlots:
    """The slots that a query in real-time mode needs: one for each task of each stage, as all of them run at once.

    Parameters
    ----------
    sources : int
        Partitions of its sources.
    exchanges : tuple of int
        Partitions of each exchange of its plan.
    free : int
        Slots that no task uses at present.

    Examples
    --------
    >>> slots = RealtimeSlots(2, (16,), 8)
    >>> slots.fits, str(slots)
    (False, '2 + 16 = 18 tasks run at once, and 8 slots are free: Spark would end the query in its first batch')
    """

    sources: int
    exchanges: tuple[int, ...]
    free: int

    @property
    def needed(self) -> int:
        """The tasks that run at once."""
        return self.sources + sum(self.exchanges)

    @property
    def fits(self) -> bool:
        """True if there are enough free slots."""
        return self.needed <= self.free

    def __str__(self) -> str:
        terms = " + ".join(str(n) for n in (self.sources, *self.exchanges))
        text = f"{terms} = {self.needed} tasks run at once, and {self.free} slots are free"
        return text + ("" if self.fits else ": Spark would end the query in its first batch")


_EXCHANGE = re.compile(r"Exchange (?:SinglePartition|\w+\(.*?(\d+)\)), ")


def realtime_slots(frame: Any, source_partitions: int) -> RealtimeSlots:
    """Return the slots that a streaming DataFrame needs in real-time mode, before it is started.

    Parameters
    ----------
    frame : DataFrame
        A streaming DataFrame of classic PySpark.
    source_partitions : int
        Partitions of its sources together, as of Kafka's topics: only the broker knows them.

    Examples
    --------
    >>> print(realtime_slots(df, source_partitions=8))  # doctest: +SKIP
    8 + 16 = 24 tasks run at once, and 32 slots are free
    """
    if not getattr(frame, "isStreaming", False) or not hasattr(frame, "_jdf"):
        raise AttachError(
            f"{frame!r:.100}", expected="a streaming DataFrame of classic PySpark", fix="pass spark.readStream..."
        )
    spark = frame.sparkSession
    plan = str(spark._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple"))
    found = tuple(int(n or 1) for n in _EXCHANGE.findall(plan))
    free = workers.task_slots(spark) - workers.running_tasks(spark)
    return RealtimeSlots(whole(source_partitions, "source_partitions", 1), found, free)
