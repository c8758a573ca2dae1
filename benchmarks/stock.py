"""Stock queries: what observation costs, how well batches are predicted, and whether changes lose records.

Every claim runs a local Spark with four slots, as a user would start it. On a busy machine ratios hold, times do not.
"""

from __future__ import annotations

import atexit
import json
import math
import shutil
import statistics
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Claim
from benchmarks._stock_kinds import KINDS, StockQuery, change_often

_SLOTS, _BLOCKS, _BATCHES = 4, 6, 6
_FILE, _MS = 200, 1.0  # records of a file, milliseconds of work per record


@cache
def _spark() -> Any:
    from pyspark.sql import SparkSession

    from dspkit.spark import ensure_java

    ensure_java()
    builder = SparkSession.builder.master(f"local[{_SLOTS}]")
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50", "spark.sql.warehouse.dir": str(_folder()),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
    }  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="dspkit-bench-stock-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _slow(batches: Any) -> Any:
    for batch in batches:
        time.sleep(1e-3 * _MS * batch.num_rows)
        yield batch


class _Fed:
    """A query without state whose cost per record is known: files in, a Python function that sleeps, no output."""

    def __init__(self, tasks: int = _SLOTS, trigger: str = "2 seconds"):
        self.inbox, self.written = _folder(), 0
        read = _spark().readStream.schema("id bigint").option("maxFilesPerTrigger", 4).json(str(self.inbox))
        frame = read.repartition(tasks, "id").mapInArrow(_slow, "id bigint")
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(_folder()))
        self.query = writer.trigger(processingTime=trigger).start()

    def feed(self, files: int) -> None:
        for _ in range(files):
            part = self.inbox / ".part"
            first = self.written * _FILE
            part.write_text("".join(json.dumps({"id": i}) + "\n" for i in range(first, first + _FILE)))
            part.rename(self.inbox / f"{self.written:06d}.json")
            self.written += 1

    def batches(self, count: int, files: int) -> list[float]:
        """Return the seconds of so many more batches of `files` files each."""
        known = len(self._rows())
        while len(self._rows()) < known + count:
            self.feed(max(0, (len(self._rows()) + 3) * files - self.written))
            time.sleep(0.1)
        return [p["durationMs"]["triggerExecution"] / 1e3 for p in self._rows()[known : known + count]]

    def _rows(self) -> list[Any]:
        return [p for p in self.query.recentProgress if p["numInputRows"] > 0]


def observation_over_batch_time() -> Claim:
    """Median batch time while attached over that while not, in blocks that take turns, and the share spent looking."""
    from dspkit.spark import attach

    fed = _Fed()
    fed.batches(4, 4)
    seconds: dict[str, list[float]] = {"attached": [], "alone": []}
    shares = []
    for turn in range(_BLOCKS):
        job = attach(fed.query) if turn % 2 else None
        seconds["attached" if job else "alone"] += fed.batches(_BATCHES, 4)
        if job:
            shares.append(job.cost)
            job.detach()
    fed.query.stop()
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    detail = medians | {"shares": shares, "batches": {name: len(each) for name, each in seconds.items()}}
    return Claim(medians["attached"] / medians["alone"], "x", target=1.01, better="lower", detail=detail)


def attaching_and_detaching() -> Claim:
    """Median batch time of a query that is attached and detached all the time, over that of its quiet blocks."""
    from dspkit.spark import attach

    stock = StockQuery(_spark(), "aggregation", _folder(), trigger="500 milliseconds")
    stock.feed(4)
    stock.start()
    stock.done()
    seconds: dict[str, list[float]] = {"attached": [], "alone": []}
    attached = 0
    for turn in range(2 * _BLOCKS):
        known = _finished(stock)
        while len(fresh := _finished(stock)[len(known) :]) < 10 or (
            turn % 2 and attached < 500 * (turn + 1) / (2 * _BLOCKS)
        ):
            stock.feed(1 if len(fresh) < 10 else 0)
            if turn % 2:
                job = attach(stock.query)
                if attached % 5 == 0:
                    job.tasks(1 + attached % 8)
                job.detach()
                attached += 1
            else:
                time.sleep(0.1)
        seconds["attached" if turn % 2 else "alone"] += fresh
    exact = stock.done()
    rules = stock.query._jsq.streamingQuery().sparkSessionForStream().experimental().extraOptimizations().size()
    stock.query.stop()
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    detail = medians | {
        "attachments": attached,
        "exact": exact,
        "rules_left": rules,
        "batches": sum(map(len, seconds.values())),
    }
    value = medians["attached"] / medians["alone"] if exact and not rules else math.inf
    return Claim(value, "x", target=1.1, better="lower", detail=detail)


def _finished(stock: StockQuery) -> list[float]:
    """Seconds of the batches with records so far."""
    return [p["durationMs"]["triggerExecution"] / 1e3 for p in stock.query.recentProgress if p["numInputRows"] > 0]


def prediction_error() -> Claim:
    """Median relative error of predicted batches at sizes and numbers of tasks that the model was not fitted to."""
    told = _predictions()
    return Claim(told["error"], "share", target=0.10, better="lower", detail=told)


def prediction_coverage_error() -> Claim:
    """Distance of the share of those batches within their 90 % intervals from 0.9."""
    told = _predictions()
    return Claim(abs(told["inside"] - 0.9), "share", target=0.05, better="lower", detail=told)


@cache
def _predictions() -> dict[str, Any]:
    """Batches of 1, 2 and 4 files in 4 tasks are fitted; of 3 and 6 files, and in 2 tasks, asked."""
    from dspkit.spark import attach

    fed = _Fed(trigger="1 second")
    fed.batches(1, 4)
    job = attach(fed.query, budget=1.0)
    rng = np.random.default_rng(0)
    try:
        fed.feed(8)
        job.limit(files=4).wait(60)

        def ran(files: int) -> Any:
            job.limit(files=files)
            known = len(job.batches)
            fed.feed(files * 2)
            while len(job.batches) < known + 2:
                time.sleep(0.1)
            return job.batches[-1]

        for _ in range(6):
            for files in rng.permutation([1, 2, 4]):
                ran(int(files))
        model = job.model
        errors, inside = [], []
        job._changer.set_shuffle(4)
        for tasks in (4, 2):
            job._changer.set_shuffle(tasks)
            ran(2)
            for _ in range(5):
                for files in rng.permutation([3, 6]):
                    batch = ran(int(files))
                    told = model.seconds(batch.rows, _SLOTS, tasks=batch.sizes)
                    errors.append(abs(told.value - batch.lasted) / batch.lasted)
                    inside.append(told.low <= batch.lasted <= told.high)
    finally:
        job.detach()
        fed.query.stop()
    fit = {"a_s": str(model.a), "b_s": str(model.b), "source": model.source, "truth of b": 1e-3 * _MS}
    return fit | {
        "error": statistics.median(errors),
        "worst": max(errors),
        "inside": float(np.mean(inside)),
        "n": len(errors),
    }


def changes_confirmed() -> Claim:
    """Share of changes of limit, tasks and trigger that a batch showed, on four kinds of state."""
    told = _changed()
    return Claim(told["confirmed"] / told["asked"], "share", target=1.0, detail=told)


def kinds_of_state_that_lost_or_doubled_records() -> Claim:
    """Kinds of state, of four, that miscounted after 48 changes and 4 repartitions, against plain Python's counts."""
    told = _changed()
    return Claim(len(told["wrong"]), "kinds", target=0, better="lower", detail=told)


@cache
def _changed() -> dict[str, Any]:
    from dspkit.spark import attach, repartition

    rng = np.random.default_rng(0)
    told: dict[str, Any] = {"asked": 0, "confirmed": 0, "wrong": [], "repartition_s": {}}
    for kind in KINDS:
        stock = StockQuery(_spark(), kind, _folder(), trigger="300 milliseconds")
        stock.feed(4)
        stock.start()
        stock.done()
        job = attach(stock.query, budget=1.0)
        asked, confirmed = change_often(stock, job, 12, rng)
        told["asked"] += asked
        told["confirmed"] += confirmed
        job.detach()
        moved = repartition(stock.query, 5, spark=_spark())
        told["repartition_s"][kind] = [moved.stop_s, moved.seconds, moved.rows]
        stock.feed(4)
        stock.start()
        if not stock.done() or stock.query.lastProgress["stateOperators"][0]["numShufflePartitions"] != 5:
            told["wrong"].append(kind)
        stock.query.stop()
    return told
