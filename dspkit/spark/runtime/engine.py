"""The engine with our jar: the whole graph is one query, in real-time mode or in micro-batches.

Each stage of the query hosts one operator with exactly as many tasks as it has instances. The plan contains a
placeholder for their number; the jar's rule replaces it with the present one whenever Spark plans an epoch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..dataflow import query
from ..dataflow.frames import WIRE
from ..dataflow.task import Stage
from ..sources.log import LogSource
from ..sources.trace import TraceSource

_FIRST, _STRIDE = 1_000_000, 1_000  # of placeholders, as in Job.java
_LONGEST = "30 days"
_LOOK_S = 0.005
_numbers = itertools.count(1)


@dataclass(frozen=True)
class QueryPlan:
    """The graph as a line of stages: the sources side by side first, then one operator after the other."""

    stages: Sequence[Stage]
    sources: Mapping[str, TraceSource | LogSource]
    folder: Path  # the checkpoint
    committed: Callable[[], int]  # its newest committed epoch
    epoch_s: float
    max_batch_records: int  # in a micro-batch
    queries: Mapping[int, Any] = field(default_factory=dict)  # of operators that are expressions, by index
    homes: Callable[[], str] = str  # the executors of all instances, as Job.java reads them; empty: anywhere
    links: str = ""  # those on which frames are held, likewise


class JarEngine:
    """One run of the query; after it has died a new one continues from the checkpoint."""

    def __init__(self, spark: Any, line: QueryPlan, mode: str):
        self._spark, self._line, self._mode = spark, line, mode
        self._number = next(_numbers)
        self._jvm = spark.sparkContext._jvm.dspkit
        self._jvm.Rescale.install(spark._jsparkSession)
        if mode == "realtime":
            self._jvm.Gather.install(spark._jsparkSession)
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", "dspkit.Checkpoints")
        self._query: Any = None
        self._job: Any = None

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        """Run the query; if the logs have not begun (0) they wait for `begin`."""
        folder = str(self._line.folder / "dspkit")
        warm_up = zero_micros == 0 and self._mode == "realtime"
        self._job = self._jvm.Job.open(self._number, folder, _text(k), self._line.homes(), zero_micros, warm_up)
        self._job.links(self._line.links)
        writer = self._frames().writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(self._line.folder / "spark"))
        writer = writer.option("asyncProgressTrackingEnabled", "false")
        if self._mode == "realtime":
            writer = writer.trigger(realTime=_LONGEST)  # our readers end an epoch
        self._query = writer.start()

    def _frames(self) -> Any:
        from pyspark.sql import functions as F

        heads = [stage for stage in self._line.stages if stage.source is not None]
        frames: Any = None
        for stage in heads:
            part = self._log(stage).mapInArrow(self._marked(stage).run, WIRE)
            frames = part if frames is None else frames.unionAll(part)
        for stage in self._line.stages[len(heads) :]:
            place = _FIRST + _STRIDE * self._number + stage.index
            frames = frames.repartitionById(place, F.col("_p"))
            if stage.index in self._line.queries:
                frames = frames.withColumn("_frame", F.expr(self._query_of(stage)))
            frames = frames.mapInArrow(self._marked(stage).run, WIRE)
        return frames

    def _marked(self, stage: Stage) -> Stage:
        """Return the stage as it runs in this mode: `Gather` marks the end of its input in real-time mode."""
        return replace(stage, marked=self._mode == "realtime")

    def _query_of(self, stage: Stage) -> str:
        """Return an expression that applies an operator's query to its own frames and leaves others unchanged."""
        name, columns = f"dspkit_query_{stage.index}", next(iter(stage.inputs.values()))[1]
        assert stage.function.schema is not None
        query.register(self._spark, name, stage.name, self._line.queries[stage.index], columns, stage.function.schema)
        return f"if(_to = {stage.index} AND _most >= 0, {name}(_frame), _frame)"  # a watermark is no frame of records

    def _log(self, stage: Stage) -> Any:
        source = self._line.sources[stage.name]
        options: dict[str, Any] = {
            "job": self._number,
            "operator": stage.index,
            "partitions": source.partitions,
            "max_batch_records": self._line.max_batch_records,
            "epoch_ms": round(self._line.epoch_s * 1000),
            "ticks": stage.timed,
        }
        if isinstance(source, TraceSource):  # for another log the driver reports how far it is filled
            options["trace"] = source.points()
        reader = self._spark.readStream.format("dspkit-trace")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        self._job.want(_text(k), self._line.homes())

    def rescale(self, k: Sequence[int], timeout_s: float, *, pause: bool = False) -> bool:
        """End the epoch and run the next with `k`; return whether it began within `timeout_s`."""
        version = self._job.rescale(_text(k), self._line.homes(), pause)
        begun = lambda: self._job.applied() >= version or self._idle() or not self.alive()  # noqa: E731
        return until(begun, timeout_s) and self.alive()

    def _idle(self) -> bool:
        """Return whether no micro-batch runs; then none is planned until the logs have records."""
        return self._mode == "microbatch" and self._line.committed() >= self._job.epoch()

    def ready(self, timeout_s: float) -> bool:
        """Return whether the query runs; a micro-batch is planned as soon as the logs have records."""
        planned = lambda: self._mode == "microbatch" or self._job.epoch() >= 0 or not self.alive()  # noqa: E731
        return until(planned, timeout_s) and self.alive()

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""
        self._job.begin(zero_micros)

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""
        if self._job is not None:
            self._job.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""
        if self._job is not None:
            self._job.filled(operator, _text(counts))

    def alive(self) -> bool:
        return bool(self._query is not None and self._query.isActive)

    def error(self) -> Exception | None:
        """Return the reason why the query died."""
        found = self._query.exception() if self._query is not None else None
        return found if found is None or isinstance(found, Exception) else RuntimeError(str(found))

    def finish(self, k: Sequence[int], timeout_s: float) -> None:
        """End the epoch, so that all that was done is committed, then stop."""
        if self.alive():
            self.rescale(k, timeout_s, pause=True)
        self.stop()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        if self._job is not None:
            self._job.close()


def _text(k: Sequence[int]) -> str:
    return ",".join(map(str, k))


def until(happened: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return whether it did in time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)
    return True
