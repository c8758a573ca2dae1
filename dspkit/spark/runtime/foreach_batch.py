"""The engine without our jar: micro-batches through foreachBatch, with PySpark's public API only.

It runs wherever PySpark does. Each batch goes through the same stages with the parallelism at its beginning, so a
rescale waits for the present batch only. Real-time mode is not possible.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ..dataflow import state
from ..dataflow.exchange import WIRE, Row
from ..sources.log import LogSource
from ..sources.trace import TraceSource
from .supervisor import QueryPlan, until

_FRAME = 256  # records


class PlainEngine:
    """One run of the query; after it has died a new one continues from the checkpoint."""

    def __init__(self, spark: Any, line: QueryPlan):
        self._spark, self._line = spark, line
        self._k: list[int] = []
        self._query: Any = None
        self._turn = threading.Lock()  # held while a batch runs
        self._ended = False
        self._epoch = -1
        self._filled_counts: dict[int, list[int]] = {}

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        self._k = list(k)
        if zero_micros:
            self.begin(zero_micros)

    def ready(self, timeout_s: float) -> bool:
        return True

    def begin(self, zero_micros: int) -> None:
        self._spark.dataSource.register(TraceLog)
        frames = None
        for stage in self._line.stages:
            if stage.source is not None:
                part = self._log(stage.index, stage.source, zero_micros)
                frames = part if frames is None else frames.unionAll(part)
        assert frames is not None
        writer = frames.writeStream.option("checkpointLocation", str(self._line.folder / "spark"))
        self._query = writer.foreachBatch(self._batch).start()

    def _log(self, index: int, source: TraceSource | LogSource, zero_micros: int) -> Any:
        most = min(self._line.max_batch_records, 1 << 40)
        description: dict[str, Any] = {"operator": index, "zero": zero_micros, "partitions": source.partitions}
        if isinstance(source, TraceSource):
            description["trace"] = source.points()
        else:
            description["filled"] = str(self._filled(index))
        reader = self._spark.readStream.format(TraceLog.name())
        return reader.option("description", json.dumps(description | {"most": most})).load()

    def _batch(self, frames: Any, epoch: int) -> None:
        from pyspark.sql import functions as F

        with self._turn:
            if self._ended:
                raise RuntimeError("the job has ended")
            plan = state.begin_epoch(self._line.folder / "dspkit", epoch, tuple(self._k))
            self._epoch = epoch
            frames.sparkSession.sparkContext.setLocalProperty(state.PROPERTY, plan.text())
            heads = [stage for stage in self._line.stages if stage.source is not None]
            parts = [
                frames.filter(F.col("_to") == stage.index)
                .repartitionById(plan.k[stage.index], F.col("_p"))
                .mapInArrow(stage.run, WIRE)
                for stage in heads
            ]
            flow = parts[0]
            for part in parts[1:]:
                flow = flow.unionAll(part)
            for stage in self._line.stages[len(heads) :]:
                flow = flow.repartitionById(plan.k[stage.index], F.col("_p")).mapInArrow(stage.run, WIRE)
            flow.write.format("noop").mode("append").save()

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next batch on."""
        self._k = list(k)

    def rescale(self, k: Sequence[int], timeout_s: float) -> bool:
        """Run `k` from the next batch on; return whether the present one ended within `timeout_s`."""
        self._k = list(k)
        ended = self._turn.acquire(timeout=timeout_s)
        if ended:
            self._turn.release()
        return ended and self.alive()

    def allow(self, records: int, in_one_frame: int) -> None:
        """Do nothing: batches are bounded already."""

    def _filled(self, operator: int) -> Path:
        return self._line.folder / "dspkit" / f"filled-{operator}.json"

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Write how many records each partition of a log has by now, for the process that plans offsets.

        That is up to fifty times a second, and the file need not outlive the machine: the disk is not waited for.
        """
        if (counts := list(counts)) != self._filled_counts.get(operator):
            fresh = self._filled(operator).with_suffix(".new")
            fresh.write_text(json.dumps(counts), encoding="utf-8")
            os.replace(fresh, self._filled(operator))
            self._filled_counts[operator] = counts

    def alive(self) -> bool:
        return self._query is None or bool(self._query.isActive)

    def error(self) -> Exception | None:
        found = self._query.exception() if self._query is not None else None
        return found if found is None or isinstance(found, Exception) else RuntimeError(str(found))

    def finish(self, k: Sequence[int], timeout_s: float) -> None:
        """Wait for the present batch and its commit, then stop."""
        if self._turn.acquire(timeout=timeout_s):
            self._ended = True
            self._turn.release()
        until(lambda: self._line.committed() >= self._epoch or not self.alive(), 5.0)
        self.stop()

    def stop(self) -> None:
        self._ended = True
        if self._query is not None:
            self._query.stop()


class TraceLog(DataSource):
    """The replayable log of `TraceSource`, read in Python: the rows equal those of the jar, frame for frame."""

    @classmethod
    def name(cls) -> str:
        return "dspkit-trace-plain"

    def schema(self) -> str:
        return WIRE

    def streamReader(self, schema: Any) -> LogReader:
        return LogReader(json.loads(self.options["description"]))


class Stretch(InputPartition):
    """A part of one partition of the log."""

    def __init__(self, p: int, low: int, high: int):
        super().__init__(p)
        self.p, self.low, self.high = p, low, high


class LogReader(DataSourceStreamReader):
    """The planning and reading of batches; its offsets are the next record of each partition."""

    def __init__(self, description: dict[str, Any]):
        self._description = description
        if "trace" in description:
            points = [point.split(":") for point in description["trace"].split(",")]
            self._times, self._counts = (np.array(column, float) for column in zip(*points, strict=True))

    def initialOffset(self) -> dict[str, Any]:
        return {"next": [0] * self._description["partitions"]}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        before = (start or self.initialOffset())["next"]
        most = max(1, self._description["most"] // len(before))
        return {"next": [max(b, min(there, b + most)) for b, there in zip(before, self._there(), strict=True)]}

    def _there(self) -> list[int]:
        """Return how many records each partition has."""
        parts = self._description["partitions"]
        if "filled" in self._description:
            try:
                return list(json.loads(Path(self._description["filled"]).read_text()))
            except (FileNotFoundError, ValueError):  # the driver has not looked yet, since a power cut perhaps
                return [0] * parts
        seconds = max(0.0, time.time() - self._description["zero"] * 1e-6)
        there = int(np.interp(seconds, self._times, self._counts))
        return [(there - p + parts - 1) // parts for p in range(parts)]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        pairs = zip(start["next"], end["next"], strict=True)
        return [Stretch(p, low, high) for p, (low, high) in enumerate(pairs) if high > low]

    def read(self, part: Any) -> Iterator[Row]:
        for low in range(part.low, part.high, _FRAME):
            stretch = [part.p, low, min(part.high, low + _FRAME)]
            words = [round(time.time() * 1e6), self._description["zero"], *stretch]
            yield self._description["operator"], -1, part.p, np.array(words, "<i8").tobytes(), _FRAME

    def commit(self, end: dict[str, Any]) -> None:
        pass
