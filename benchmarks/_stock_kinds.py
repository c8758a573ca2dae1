"""Stock queries with four kinds of state over files of known records, and what each must have counted in the end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KINDS = ("aggregation", "deduplication", "join", "transform")
KEYS = 97
PER_FILE = 60
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {"spark.sql.shuffle.partitions": "8", "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.noDataMicroBatches.enabled": "false"}  # fmt: skip


class StockQuery:
    """A query over a folder of files, as a user would write it, with a foreachBatch sink that keeps rows by batch.

    Each record is written once for aggregation and transform, and read by both sides of the join; for deduplication
    every id comes twice.
    """

    def __init__(self, spark: Any, kind: str, home: Path, *, trigger: str | None = None):
        self.kind, self.home, self.checkpoint = kind, home, home / "checkpoint"
        self.inbox = home / "inbox"
        self.inbox.mkdir(parents=True)
        self.spark, self.files, self.out = spark.newSession(), 0, {}  # type: Any, int, dict[int, list[Any]]
        for name, value in SETTINGS.items():
            self.spark.conf.set(name, value)
        self._trigger = trigger
        self.query: Any = None

    def feed(self, count: int) -> None:
        """Write files of `PER_FILE` records each."""
        for _ in range(count):
            first = self.files * PER_FILE
            ids = [i // 2 if self.kind == "deduplication" else i for i in range(first, first + PER_FILE)]
            part = self.home / "part"
            part.write_text("".join(json.dumps({"id": i, "at": 1_700_000_000 + i}) + "\n" for i in ids))
            part.rename(self.inbox / f"{self.files:06d}.json")
            self.files += 1

    def start(self, checkpoint: str | None = None) -> Any:
        """Start the query, or continue it from a checkpoint."""
        frame, mode = self._frame()
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", checkpoint or str(self.checkpoint))
        if self._trigger:
            writer = writer.trigger(processingTime=self._trigger)
        self.query = writer.foreachBatch(self._keep).start()
        return self.query

    def _keep(self, frame: Any, number: int) -> None:
        self.out[number] = [tuple(row) for row in frame.collect()]

    def _source(self) -> Any:
        from pyspark.sql import functions as F

        read = self.spark.readStream.schema("id bigint, at bigint").option("maxFilesPerTrigger", 2)
        return read.json(str(self.inbox)).withColumn("t", F.timestamp_seconds("at"))

    def _frame(self) -> tuple[Any, str]:
        from pyspark.sql import functions as F

        keyed = self._source().withColumn("key", F.col("id") % KEYS)
        if self.kind == "aggregation":
            return keyed.groupBy("key").count(), "update"
        if self.kind == "deduplication":
            return self._source().dropDuplicates(["id"]).select("id"), "append"
        if self.kind == "join":
            left = self._source().withWatermark("t", "1 hour").selectExpr("id as l", "t as lt")
            right = self._source().withWatermark("t", "1 hour").selectExpr("id as r", "t as rt")
            near = "l = r AND lt BETWEEN rt - interval 1 minute AND rt + interval 1 minute"
            return left.join(right, F.expr(near)).select("l"), "append"
        return keyed.groupBy("key").transformWithStateInPandas(
            _counter(), "key bigint, n bigint", "Update", "None"
        ), "update"

    def exact(self) -> bool:
        """Return whether every record that was written counts once."""
        total = self.files * PER_FILE
        rows = [row for number in sorted(self.out) for row in self.out[number]]
        if self.kind in ("aggregation", "transform"):
            newest = dict(rows)
            return newest == dict(Counter(i % KEYS for i in range(total)))
        ids = Counter(row[0] for row in rows)
        wanted = range(total // 2) if self.kind == "deduplication" else range(total)
        return ids == Counter(wanted)

    def done(self, timeout_s: float = 300.0) -> bool:
        """Wait until the state has all that was written; return whether it is exact then."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.query.isActive:
            if self.exact():
                return True
            time.sleep(0.1)
        return self.exact()


def _counter() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        """Counts the rows of each key."""

        def init(self, handle: Any) -> None:
            self.n = handle.getValueState("n", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timer: Any) -> Iterator[Any]:
            n = (self.n.get() or (0,))[0] + sum(len(part) for part in rows)
            self.n.update((n,))
            yield pd.DataFrame({"key": [key[0]], "n": [n]})

        def close(self) -> None: ...

    return Count()


def change_often(stock: StockQuery, job: Any, changes: int, rng: Any, partitions: int = 8) -> tuple[int, int]:
    """Change limit, trigger and tasks in turn while records arrive; return the changes asked for and confirmed."""
    knobs: list[Callable[[], Any]] = [
        lambda: job.limit(files=int(rng.integers(1, 5))),
        lambda: job.tasks(int(rng.integers(1, partitions + 1))),
        lambda: job.trigger(float(rng.choice([0.3, 0.5, 0.8]))),
    ]
    confirmed = 0
    for i in range(changes):
        change = knobs[i % len(knobs)]()
        until = time.monotonic() + 120
        while change.state == "asked" and time.monotonic() < until and stock.query.isActive:
            stock.feed(1)
            change.wait(0.7)
        confirmed += change.state == "confirmed"
    return changes, confirmed
