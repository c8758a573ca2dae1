"""Live Spark: the highest rate that word count keeps up with, compared with a plain PySpark job.

The sink of the app is left out, as the plain job has none: read, split, count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import Claim

if TYPE_CHECKING:
    from dspkit.spark import SparkJob
    from dspkit.workload import Workload

LADDER = (10_000.0, 20_000.0, 50_000.0, 100_000.0, 200_000.0)  # lines/s, of ten words each
BATCH = 20_000  # lines in a micro-batch of both jobs
SECONDS = 20.0


def _word_count(load: Workload, **settings: Any) -> SparkJob:
    """Return word count as a live job."""
    from dspkit import Topology
    from dspkit.apps import autrascale as words
    from dspkit.core import Operator
    from dspkit.spark import SparkJob, TraceSource, arrow, keyed

    names = ("read", "split", "count")
    topology = Topology(tuple(Operator(n, 10, stateful=n == "count") for n in names), Topology.chain(*names).edges)
    functions = {"split": arrow(words.flat_map, "word string"), "count": keyed(_counted, key="word", state="int64")}
    return SparkJob(topology, functions, TraceSource(load, words.lines, "line string"), **settings)


def _counted(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    for batch in batches:
        for found in batch.column("word").value_counts().to_pylist():
            known[found["values"]] = known.get(found["values"], 0) + found["counts"]
    yield from ()


def _climb(ladder: Sequence[float], parallelism: int) -> tuple[float, dict[str, Any]]:
    """Return the highest rate of the ladder that the job keeps up with, and the measurements."""
    from dspkit import Deployment, workload

    best, detail = 0.0, {}
    start = Deployment(dict.fromkeys(("read", "split", "count"), parallelism))
    for rate in ladder:
        load = workload.Constant(rate)
        with _word_count(load, deployment=start, window_s=8.0, epoch_s=30.0) as job:
            job.observe()
            s = job.observe()
        ages = s.event_latency
        times = {} if ages is None else {f"{n} ms": round(1000 * getattr(ages, n)) for n in ("p50", "p95", "p99")}
        detail[f"{rate:g}"] = {"throughput": round(s.throughput)} | times
        if s.throughput < 0.95 * rate:
            break
        best = rate
    return best, detail


def word_count_sustained_per_s() -> Claim:
    """The highest of 10 k to 200 k lines/s (ten words each) that word count keeps up with, one instance each."""
    best, detail = _climb(LADDER, 1)
    return Claim(best, "lines/s", target=10_000.0, detail=detail)


def latency_p99_at_10k_lines_ms() -> Claim:
    """The 99th percentile of the age of lines, words counted, at 10 k lines/s: 100 k words/s."""
    _, detail = _climb(LADDER[:1], 1)
    return Claim(detail["10000"].get("p99 ms", float("inf")), "ms", 150.0, "lower", detail)


def _lines(batches: Iterator[Any]) -> Iterator[Any]:
    from dspkit.apps.autrascale import lines

    for batch in batches:
        ids = batch.column("value").to_numpy()
        yield lines(ids, ids)


def _by_hand() -> float:
    """Return the lines/s of the same job in plain PySpark: numbers to lines to words, counted by Spark itself."""
    from dspkit.apps.autrascale import flat_map
    from dspkit.spark.runtime import session

    base = session.start_session("local[64]", "microbatch")
    session.find_modules(base)
    spark = base.newSession()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).option("numPartitions", 1)
    words = reader.load().mapInArrow(_lines, "line string").mapInArrow(flat_map, "word string")
    query = words.groupBy("word").count().writeStream.outputMode("update").format("noop").start()
    try:
        end = time.monotonic() + 60
        while not query.recentProgress and time.monotonic() < end:
            time.sleep(0.1)
        first = query.lastProgress["batchId"]
        began = time.monotonic()
        time.sleep(SECONDS)
        batches = query.lastProgress["batchId"] - first
        return float(batches * BATCH / (time.monotonic() - began))
    finally:
        query.stop()
        session.stop(base)


def _ours(mode: str) -> float:
    """Return the lines/s of our job under overload."""
    from dspkit import workload

    load = workload.Constant(1e6)
    with _word_count(load, mode=mode, max_batch_records=BATCH, window_s=SECONDS / 2, epoch_s=30.0) as job:
        job.observe()
        return sum(job.observe().throughput for _ in range(2)) / 2


def micro_batch_over_by_hand() -> Claim:
    """Throughput of word count in our micro-batches over that of plain PySpark, in one run."""
    ours, by_hand = _ours("microbatch"), _by_hand()
    return Claim(ours / by_hand, "x", target=0.5, detail={"ours": ours, "by hand": by_hand})


def realtime_over_by_hand() -> Claim:
    """Throughput of word count in real-time mode over that of plain PySpark in micro-batches, in one run."""
    ours, by_hand = _ours("realtime"), _by_hand()
    return Claim(ours / by_hand, "x", target=0.5, detail={"ours": ours, "by hand": by_hand})


def _parity() -> dict[str, float]:
    """Return the errors of a plant fitted at two parallelisms at two others; measured once for both claims."""
    from dspkit import apps
    from reproduction.live import study as parity_live

    if not _off:
        app = apps.get("word_count")()
        for row in parity_live.rows(app, parity_live.live(app)):
            _off[f"throughput at {row.k} under {row.offered:g}/s"] = 100 * row.throughput_off
            _off[f"latency at {row.k} under {row.offered:g}/s"] = 100 * row.latency_off
    return _off


_off: dict[str, float] = {}


def parity_throughput_percent() -> Claim:
    """The worst error of a fitted plant's throughput at parallelisms that it was not fitted to; IO-bound."""
    off = {name: value for name, value in _parity().items() if name.startswith("throughput")}
    return Claim(max(off.values()), "%", 10.0, "lower", off)


def parity_latency_percent() -> Claim:
    """The same for mean latency."""
    off = {name: value for name, value in _parity().items() if name.startswith("latency")}
    return Claim(max(off.values()), "%", 25.0, "lower", off)
