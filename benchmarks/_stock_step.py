"""A load step on a stock query: `python -m benchmarks._stock_step {ds2,flink_autoscaler,...,spark,none} [SECONDS]`.

A windowed word count as a user would write it, on executors of two slots: a Python function sleeps 6 ms per line, words
are counted by window in RocksDB, and a foreachBatch function keeps the counts. 60 lines/s arrive, then 250, then none.
A policy of ours controls the executors or the trigger; with `spark`, Spark's own dynamic allocation does, and with
`none` all three executors run throughout. Prints one line of JSON per window, and one at the end: seconds from the step
until the lag falls for good, the longest batch, and whether the counts are those of plain Python.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

WORDS = ("all", "the", "world", "is", "a", "stage")
LINE_S, ROWS, LOW, HIGH = 0.006, 50, 1.2, 5.0  # seconds per line, lines per file, files/s before and after the step
WORKERS, CORES, WINDOW_S, STEP_S = 3, 2, 10.0, 40.0
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUICK: dict[str, dict[str, Any]] = {
    "ds2": {"activation": 2},
    "flink_autoscaler": {"metrics_window_s": 20.0, "warm_up_s": 0.0},
}


def _session(name: str, home: Path) -> Any:
    from dspkit.spark import ensure_java

    ensure_java()
    os.environ.setdefault("SPARK_SCALA_VERSION", "2.13")  # local-cluster asks for it where Spark came by pip
    from pyspark.sql import SparkSession

    lean = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": lean,
        "spark.executor.extraJavaOptions": lean,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.executor.cores": str(CORES),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.numRecentProgressUpdates": "2000",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
        "spark.sql.session.timeZone": "UTC",
    }
    if name == "spark":
        settings |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(WORKERS),
            "spark.dynamicAllocation.executorIdleTimeout": "20s",
        }
    builder = SparkSession.builder.master(f"local-cluster[{WORKERS},{CORES},700]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _split(batches: Any) -> Any:
    for batch in batches:
        time.sleep(LINE_S * batch.num_rows)
        yield batch


class Load:
    """Files of lines at `LOW` and then `HIGH` files/s, and the words that must be counted."""

    def __init__(self, inbox: Path, lasts_s: float):
        self.inbox, self.lasts_s, self.files, self.truth = inbox, lasts_s, 0, Counter[str]()
        self.began: float | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    @property
    def t(self) -> float:
        return 0.0 if self.began is None else time.time() - self.began

    def _write(self) -> None:
        early = time.time()  # until it begins: LOW, for 20 s at most
        while not self.ended.wait(0.05):
            first = min(20.0, (self.began or time.time()) - early)
            t = min(self.t, self.lasts_s)
            while self.files < LOW * (first + min(t, STEP_S)) + HIGH * max(0.0, t - STEP_S):
                self._file()
            if self.t > self.lasts_s:
                return

    def _file(self) -> None:
        lines = []
        for i in range(ROWS):
            words = [WORDS[(self.files + i + j) % 6] + str(i % 20) for j in range(3)]
            self.truth.update(words)
            lines.append(json.dumps({"at": 1_700_000_000 + self.files // 10, "line": " ".join(words)}))
        part = self.inbox / f".{self.files}"
        part.write_text("\n".join(lines))
        part.rename(self.inbox / f"{self.files:07d}.json")
        self.files += 1


def main(name: str, lasts_s: float = 150.0, home: str | None = None) -> dict[str, Any]:
    """Run one load step under one policy; return its figures."""
    with tempfile.TemporaryDirectory(prefix="dspkit-step-", dir=home) as folder:
        return _run(name, lasts_s, Path(folder))


def _run(name: str, lasts_s: float, home: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from dspkit import policies
    from dspkit.spark import attach

    spark = _session(name, home)
    (inbox := home / "in").mkdir()
    counted: dict[Any, int] = {}
    lines = spark.readStream.schema("at bigint, line string").option("maxFilesPerTrigger", 40).json(str(inbox))
    words = lines.mapInArrow(_split, "at bigint, line string").withColumn("t", F.timestamp_seconds("at"))
    words = words.withColumn("word", F.explode(F.split("line", " "))).withWatermark("t", "1 hour")
    counts = words.groupBy(F.window("t", "1 minute"), "word").count()

    def keep(frame: Any, number: int) -> None:
        counted.update({(row["window"]["start"], row["word"]): row["count"] for row in frame.collect()})

    load = Load(inbox, lasts_s)
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(home / "state"))
    query = writer.foreachBatch(keep).start()
    told: list[dict[str, Any]] = []
    try:
        while sum(p["numInputRows"] > 0 for p in query.recentProgress) < 2 and query.isActive:
            time.sleep(0.2)
        job = attach(query, window_s=WINDOW_S)
        policy = policies.get("static" if name in ("spark", "none") else name)(**QUICK.get(name, {}))
        if name not in ("spark", "none"):
            job.executors(1)
        load.began = time.time()
        acts = name not in ("spark", "none")
        steps = job.steer(policy, executors=(1, WORKERS)) if acts else iter(job.observe, None)
        for step in steps:
            s = step.snapshot if acts else step
            row = {
                "t": round(load.t),
                "done": round(s.throughput),
                "lag": round(s.lag),
                "load": os.getloadavg()[0],
                "batch_s": s.latency and round(s.latency.mean, 2),
                "slots": job._slots,
            }
            if acts:
                row |= {"to": dict(step.deployment.parallelism), "settings": dict(step.deployment.settings)}
            told.append(row)
            print(json.dumps(row), flush=True)
            if load.t > lasts_s + 10 and s.lag == 0:
                break
        load.thread.join()
        while load.files * ROWS > sum(p["numInputRows"] for p in query.recentProgress) and query.isActive:
            time.sleep(0.2)
        slow = [_described(b) for b in job.batches if b.lasted > 10]
        longest = max(b.lasted for b in job.batches)
        cost, changes = job.cost, [(c.knob, c.value, c.state) for c in job.changes]
        job.stop(clean=True)
    finally:
        load.ended.set()
        query.stop()
        spark.stop()
    got = Counter[str]()
    for (_, word), n in counted.items():
        got[word] += n
    after = [row for row in told if row["t"] > STEP_S]
    worst = max(after, key=lambda row: row["lag"])
    return {
        "policy": name,
        "lag_falls_s": worst["t"] - STEP_S,
        "most_lag": worst["lag"],
        "empty_s": next((row["t"] - STEP_S for row in after if row["t"] > worst["t"] and row["lag"] <= 2 * ROWS), None),
        "slot_s": sum(row["slots"] for row in told) * WINDOW_S,
        "longest_batch_s": longest,
        "slow": slow,
        "changes": changes,
        "cost": cost,
        "exact": got == load.truth,
        "words": sum(got.values()),
    }


def _described(batch: Any) -> dict[str, Any]:
    stages = [
        {
            "tasks": r.tasks,
            "failed": r.failed,
            "run_s": r.run_s,
            "wait_s": r.wait_s,
            "longest_s": r.longest_s,
            "cpu_s": r.cpu_s,
        }
        for r in batch.stages
    ]
    return {"number": batch.number, "rows": batch.rows, "s": batch.lasted, "phases": batch.phases, "stages": stages}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 150.0)))
