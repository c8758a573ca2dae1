"""Long live runs: memory over fifteen minutes of rescales, and over ten minutes of ten-fold overload.

`DSPKIT_SOAK=0.1 python -m benchmarks spark_soak` takes a tenth of the time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import Claim
from benchmarks.spark import Wait

SHARE = float(os.environ.get("DSPKIT_SOAK", "1"))
MB = 1 << 20


@dataclass
class Work:
    """Return one of a thousand keys per record, after a number of microseconds."""

    micros: float

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in Wait(self.micros)(batches):
            yield pa.RecordBatch.from_arrays([pa.array(batch.column("id").to_numpy() % 1000)], names=["key"])


def _count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    for batch in batches:
        for key in batch.column("key").to_pylist():
            known[key] = known.get(key, 0) + 1
    yield from ()


def _job(rate: float, micros: float) -> Any:
    from dspkit import Topology, workload
    from dspkit.spark import SparkJob, arrow, keyed

    functions = {"work": arrow(Work(micros), "key int64"), "count": keyed(_count, key="key", state="int64")}
    return SparkJob(Topology.chain("read", "work", "count"), functions, workload.Constant(rate), window_s=5.0)


def _memory(job: Any) -> dict[str, float]:
    """Return the resident memory of this process and of a Python worker (mean), and the JVM's live heap, MB."""
    from dspkit.spark.runtime import processes, session

    runtime = session.running_session().sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    own = next(p for p in processes.running() if p.pid == os.getpid())
    workers = [p for p in processes.below({os.getpid()}) if "dspkit.spark.runtime.daemon" in p.command]
    return {
        "driver": own.resident_bytes / MB,
        "a worker": sum(p.resident_bytes for p in workers) / max(1, len(workers)) / MB,
        "Java's heap": (runtime.totalMemory() - runtime.freeMemory()) / MB,
    }


def _run(job: Any, minutes: float, each_window: Callable[[Any], None]) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the growth in megabytes per minute by process, over the last two thirds, and other measurements."""
    import numpy as np

    rows, times, snapshots = [], [], []
    end = time.monotonic() + 60 * minutes * SHARE
    while time.monotonic() < end:
        each_window(job)
        snapshots.append(job.observe())
        times.append(snapshots[-1].t / 60)
        rows.append(_memory(job))
    later = len(rows) // 3
    slopes = {name: float(np.polyfit(times[later:], [r[name] for r in rows[later:]], 1)[0]) for name in rows[0]}
    latencies = [s.latency.p99 for s in snapshots[later:] if s.latency]
    seen = {
        "minutes": times[-1], "first MB": rows[later], "last MB": rows[-1], "MB a minute": slopes,
        "restarts": job.restarts, "records/s": float(np.mean([s.throughput for s in snapshots[later:]])),
        "p99 s, worst window": max(latencies, default=float("inf")),
    }  # fmt: skip
    return slopes, seen


def soak_mb_per_minute() -> Claim:
    """The fastest growth of memory of driver, JVM heap and a Python worker in 15 min of random rescales."""
    chance = random.Random(3)

    def rescale(job: Any) -> None:
        job.deploy(job.deployment.scaled({name: chance.randint(1, 5) for name in job.topology.order}))

    with _job(2000.0, 200.0) as job:
        slopes, seen = _run(job, 15, rescale)
    return Claim(max(slopes.values()), "MB/min", 1.0, "lower", seen)


def overload_mb_per_minute() -> Claim:
    """The same in 10 min of ten-fold overload; infinite if the job died."""
    with _job(10_000.0, 1000.0) as job:  # one instance of 1 ms processes 1,000 records/s
        slopes, seen = _run(job, 10, lambda _: None)
    return Claim(max(slopes.values()) if not seen["restarts"] else float("inf"), "MB/min", 1.0, "lower", seen)
