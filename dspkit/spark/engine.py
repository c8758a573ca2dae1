"""The engine with our jar: the whole graph is one query, in real-time mode or in micro-batches.

Each stage of the query hosts one operator with exactly as many tasks as it has instances. The plan holds a placeholder
where their number belongs; the jar's rule puts the present one there whenever Spark plans an epoch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import query
from .frames import WIRE
from .source import TraceSource
from .source_log import LogSource
from .task import Stage

_FIRST, _STRIDE = 1_000_000, 1_000  # of placeholders, as in Job.java
_LOOK_S = 0.005
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Line:
    """The graph as a line of stages: the sources beside each other first, then one operator after the other."""

    stages: Sequence[Stage]
    sources: Mapping[str, TraceSource | LogSource]
    folder: Path  # the checkpoint
    committed: Callable[[], int]  # its newest epoch that is done
    epoch_s: float
    most_records: int  # in a micro-batch
    queries: Mapping[int, Any] = field(default_factory=dict)  # of operators that are expressions, by their number


class JarEngine:
    """One run of the query; after it has died a new one goes on from the checkpoint."""

    def __init__(self, spark: Any, line: Line, mode: str):
        self._spark, self._line, self._mode = spark, line, mode
        self._number = next(_numbers)
        self._jvm = spark.sparkContext._jvm.dspkit
        self._jvm.Rescale.install(spark._jsparkSession)
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", "dspkit.Checkpoints")
        self._query: Any = None
        self._job: Any = None

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        """Run; where the logs have not begun (0) they wait for `begin`."""
        folder = str(self._line.folder / "dspkit")
        warm_up = zero_micros == 0 and self._mode == "realtime"
        self._job = self._jvm.Job.open(self._number, folder, _text(k), zero_micros, warm_up)
        writer = self._frames().writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(self._line.folder / "spark"))
        writer = writer.option("asyncProgressTrackingEnabled", "false")
        if self._mode == "realtime":
            writer = writer.trigger(realTime=f"{round(self._line.epoch_s * 1000)} milliseconds")
        self._query = writer.start()

    def _frames(self) -> Any:
        from pyspark.sql import functions as F

        heads = [stage for stage in self._line.stages if stage.source is not None]
        frames: Any = None
        for stage in heads:
            part = self._log(stage).mapInArrow(stage.run, WIRE)
            frames = part if frames is None else frames.unionAll(part)
        for stage in self._line.stages[len(heads) :]:
            place = _FIRST + _STRIDE * self._number + stage.index
            frames = frames.repartitionById(place, F.col("_p"))
            if stage.index in self._line.queries:
                frames = frames.withColumn("_frame", F.expr(self._query_of(stage)))
            frames = frames.mapInArrow(stage.run, WIRE)
        return frames

    def _query_of(self, stage: Stage) -> str:
        """What an operator's query makes of its own frames; those that only come by stay as they are."""
        name, came = f"dspkit_query_{stage.index}", next(iter(stage.inputs.values()))[1]
        assert stage.function.schema is not None
        query.register(self._spark, name, stage.name, self._line.queries[stage.index], came, stage.function.schema)
        return f"if(_to = {stage.index}, {name}(_frame), _frame)"

    def _log(self, stage: Stage) -> Any:
        source = self._line.sources[stage.name]
        options: dict[str, Any] = {
            "job": self._number,
            "operator": stage.index,
            "partitions": source.partitions,
            "most_records": self._line.most_records,
        }
        if isinstance(source, TraceSource):  # of another log the driver says how far it is filled
            options["trace"] = source.points()
        reader = self._spark.readStream.format("dspkit-trace")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        self._job.want(_text(k))

    def rescale(self, k: Sequence[int], wait_s: float, *, pause: bool = False) -> bool:
        """End the epoch and run the next with `k`; whether that was seen to begin within `wait_s`."""
        version = self._job.rescale(_text(k), pause)
        begun = lambda: self._job.applied() >= version or self._idle() or not self.alive()  # noqa: E731
        return until(begun, wait_s) and self.alive()

    def _idle(self) -> bool:
        """Whether no micro-batch is at work; then none is planned until there is something in the logs."""
        return self._mode == "microbatch" and self._line.committed() >= self._job.epoch()

    def ready(self, wait_s: float) -> bool:
        """Whether it runs; a micro-batch is planned when there is something in the logs, and no sooner."""
        planned = lambda: self._mode == "microbatch" or self._job.epoch() >= 0 or not self.alive()  # noqa: E731
        return until(planned, wait_s) and self.alive()

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""
        self._job.begin(zero_micros)

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until this is said again, and so many in one frame."""
        if self._job is not None:
            self._job.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """How many records each partition of a source's log has by now."""
        if self._job is not None:
            self._job.filled(operator, _text(counts))

    def alive(self) -> bool:
        return bool(self._query is not None and self._query.isActive)

    def error(self) -> Exception | None:
        """Why the query died."""
        found = self._query.exception() if self._query is not None else None
        return found if found is None or isinstance(found, Exception) else RuntimeError(str(found))

    def finish(self, k: Sequence[int], wait_s: float) -> None:
        """Cut the epoch, so that all that was done is committed, then stop."""
        if self.alive():
            self.rescale(k, wait_s, pause=True)
        self.stop()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        if self._job is not None:
            self._job.close()


def _text(k: Sequence[int]) -> str:
    return ",".join(map(str, k))


def until(happened: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_S)
    return True
