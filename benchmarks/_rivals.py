"""One program of `spark_rivals`, in a process of its own: `python -m benchmarks._rivals NAME PER_S SECONDS`.

Prints one line of JSON: records/s, cores, records per CPU second, and the 50th and 99th percentile of the age of
records where they are counted, in ms. All count what happens after a warm-up.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import _four

WARM_S = 4.0
_CHUNK = 1000  # most records that a rival's source hands on at once
_SAMPLED = 16  # one record of so many is asked for its age


class Clock:
    """A log that fills at a rate: the numbers that have become due, each with the time at which it did."""

    def __init__(self, per_s: float):
        self.per_s, self.start, self.sent = per_s, time.time(), 0

    def due(self) -> list[tuple[int, float]]:
        """Return the next records, at most a chunk of them."""
        there = min(int((time.time() - self.start) * self.per_s), self.sent + _CHUNK)
        low, self.sent = self.sent, max(self.sent, there)
        return [(n, self.start + (n + 1) / self.per_s) for n in range(low, there)]


class Count:
    """The records that arrived after the warm-up, and the processor time that passed meanwhile."""

    def __init__(self, seconds: float, cpu: Callable[[], dict[int, float]] = _four.cpu_by_process):
        self._cpu, self._begin = cpu, time.time() + WARM_S
        self._end = self._begin + seconds
        self._before: dict[int, float] | None = None
        self.records, self._ages = 0, list[float]()

    def take(self, born: list[float]) -> None:
        """Count records by the times at which they came into being."""
        now = time.time()
        if now < self._begin:
            return
        if self._before is None:
            self._before, self._began = self._cpu(), now
        self.records += len(born)
        self._ages += [now - each for each in born[::_SAMPLED]]

    def over(self) -> bool:
        """Return whether the time is up."""
        return time.time() > self._end

    def told(self) -> dict[str, float]:
        """Return the figures."""
        seconds, cpu_s = time.time() - self._began, _four.spent(self._before or {}, self._cpu())
        return _figures(self.records / seconds, cpu_s / seconds, self._ages)


def _figures(per_s: float, cores: float, ages: list[float]) -> dict[str, float]:
    import numpy as np

    p50, p99 = 1000 * np.quantile(ages, (0.5, 0.99)) if ages else (float("inf"), float("inf"))
    return {"per_s": per_s, "cores": cores, "per_cpu_s": per_s / cores, "p50": float(p50), "p99": float(p99)}


def dspkit(per_s: float, seconds: float, instances: int = 1) -> dict[str, float]:
    """Our job in real-time mode: exactly once, with a commit every ten seconds."""
    with _four.job(per_s, instances, window_s=2.0, epoch_s=10.0) as job:
        end = time.monotonic() + 60
        while not job.observe().throughput and time.monotonic() < end:
            pass
        time.sleep(WARM_S)
        job.observe()
        job.window_s = seconds
        before, began = _four.cpu_by_process(), time.monotonic()
        s = job.observe()
        cores = _four.spent(before, _four.cpu_by_process()) / (time.monotonic() - began)
        ages = s.event_latency
        times = {"p50": float("inf"), "p99": float("inf")}
        if ages is not None:
            times = {"p50": 1000 * ages.p50, "p99": 1000 * ages.p99}
        return {"per_s": s.throughput, "cores": cores, "per_cpu_s": s.throughput / cores} | times


def dspkit_2(per_s: float, seconds: float) -> dict[str, float]:
    """The same with two instances per operator."""
    return dspkit(per_s, seconds, 2)


def bytewax(per_s: float, seconds: float, *, recovery: bool = False) -> dict[str, float]:
    """Return the figures of bytewax in one process with one worker; with `recovery` it snapshots every ten seconds."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import run_main

    count = Count(seconds)

    class Part(StatefulSourcePartition):  # type: ignore[misc]
        def __init__(self) -> None:
            self.clock = Clock(per_s)

        def next_batch(self) -> list[tuple[int, float]]:
            if count.over():
                raise StopIteration
            return self.clock.due()

        def snapshot(self) -> int:
            return self.clock.sent

    class Source(FixedPartitionedSource):  # type: ignore[misc]
        def list_parts(self) -> list[str]:
            return ["0"]

        def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Part:
            return Part()

    class Last(StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: list[Any]) -> None:
            count.take([born for _, born in items])

    class Sink(DynamicSink):  # type: ignore[misc]
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Last:
            return Last()

    flow = Dataflow("four")
    stream = op.input("read", flow, Source())
    stream = op.map("hash", stream, lambda item: (_four.hashed(item[0]), item[1]))
    stream = op.filter("drop", stream, lambda item: _four.kept(item[0]))
    named = op.map("name", stream, lambda item: (_four.named(item[0]), item[1]))
    counted = op.stateful_map("count", named, lambda known, born: ((known or 0) + 1, born))
    op.output("sink", counted, Sink())
    with tempfile.TemporaryDirectory() as folder:
        config = None
        if recovery:
            init_db_dir(Path(folder), 1)
            config = RecoveryConfig(folder)
        run_main(flow, epoch_interval=timedelta(seconds=10), recovery_config=config)
    return _of_source(count.told())


def bytewax_with_recovery(per_s: float, seconds: float) -> dict[str, float]:
    """The same with its recovery on: at least once for a sink like ours."""
    return bytewax(per_s, seconds, recovery=True)


def _of_source(figures: dict[str, float]) -> dict[str, float]:
    """Return the figures per record of the source: a tenth is dropped on the way to where they are counted."""
    return figures | {name: figures[name] / 0.9 for name in ("per_s", "per_cpu_s")}


def processes(per_s: float, seconds: float) -> dict[str, float]:
    """Five processes with pipes between them, which send lists of records: nothing is committed."""
    steps: list[Callable[[list[Any]], list[Any]]] = [
        lambda items: [(_four.hashed(n), born) for n, born in items],
        lambda items: [item for item in items if _four.kept(item[0])],
        lambda items: [(_four.named(code), born) for code, born in items],
    ]
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe(duplex=False) for _ in range(len(steps) + 1)]
    stop = fork.Event()
    started = [fork.Process(target=_emit, args=(per_s, pipes[0][1], stop), daemon=True)]
    for i, step in enumerate(steps):
        started.append(fork.Process(target=_pass, args=(step, pipes[i][0], pipes[i + 1][1]), daemon=True))
    for process in started:
        process.start()
    count, known = Count(seconds), dict[str, int]()
    while not count.over():
        items = pipes[-1][0].recv()
        for name, _ in items:
            known[name] = known.get(name, 0) + 1
        count.take([born for _, born in items])
    figures = count.told()
    stop.set()
    for process in started:
        process.terminate()
        process.join()
    return _of_source(figures)


def _emit(per_s: float, to: Any, stop: Any) -> None:
    clock = Clock(per_s)
    while not stop.is_set():
        if items := clock.due():
            to.send(items)
        else:
            time.sleep(0.001)


def _pass(step: Callable[[list[Any]], list[Any]], source: Any, to: Any) -> None:
    while True:
        to.send(step(source.recv()))


def map_in_arrow(per_s: float, seconds: float, *, with_state: bool = False) -> dict[str, float]:
    """Return the figures of stock micro-batches as fast as they go: three times mapInArrow, and Spark's own count.

    Its `rate` source offers whole seconds, so records are half a second old on the way in.
    """
    from pyspark.sql import functions as F

    from dspkit.spark.runtime import session

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    conf = {"spark.sql.shuffle.partitions": "1", "spark.sql.streaming.stateStore.providerClass": provider}
    spark = session.start_session("local[8]", "microbatch", conf)
    session.find_modules(spark)
    source = spark.readStream.format("rate").option("rowsPerSecond", int(per_s)).option("numPartitions", 1).load()
    at = F.unix_millis("timestamp")
    rows = source.observe("seen", F.min(at).alias("low"), F.max(at).alias("high"), F.count("*").alias("n"))
    rows = rows.selectExpr("value AS id").mapInArrow(_four.hash_batches, "code long")
    rows = rows.mapInArrow(_four.drop_batches, "code long").mapInArrow(_four.name_batches, "name string")
    if with_state:
        counted = rows.groupBy("name").transformWithStateInPandas(
            statefulProcessor=_processor(), outputStructType="name string, n long", outputMode="Update", timeMode="None"
        )
    else:
        counted = rows.groupBy("name").count()
    with tempfile.TemporaryDirectory() as folder:
        query = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", folder).start()
        try:
            return _micro_batches(query, per_s, seconds)
        finally:
            query.stop()
            session.stop(spark)


def _micro_batches(query: Any, per_s: float, seconds: float) -> dict[str, float]:
    """Return the figures of the batches that end within a window, which begins with the end of a batch."""
    found: dict[int, tuple[float, int, float, float]] = {}  # by batch: its end, records, oldest, youngest

    def look() -> None:
        if query.exception() is not None:
            raise query.exception()
        for progress in query.recentProgress:
            seen = progress.observedMetrics.get("seen")
            if seen is not None and seen["n"]:
                end = _epoch(progress.timestamp) + progress.durationMs["triggerExecution"] / 1000
                found[progress.batchId] = (end, seen["n"], seen["low"] / 1000, seen["high"] / 1000)

    limit = time.monotonic() + 90
    while len(found) < 3 and time.monotonic() < limit:
        time.sleep(0.1)
        look()
    before, began = _four.cpu_by_process(), max((each[0] for each in found.values()), default=time.time())
    time.sleep(seconds)
    look()
    cores = _four.spent(before, _four.cpu_by_process()) / seconds
    inside = [each for each in found.values() if each[0] > began]
    ages = [end - low - (high - low) * (i + 0.5) / 100 for end, _, low, high in inside for i in range(100)]
    last = max((each[0] for each in inside), default=began + seconds)
    return _figures(sum(each[1] for each in inside) / max(last - began, 1e-9), cores, ages)


def _epoch(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.count = handle.getValueState("n", "n long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timer_values: Any) -> Iterator[Any]:
            before = self.count.get()[0] if self.count.exists() else 0
            after = before + sum(len(each) for each in rows)
            self.count.update((after,))
            yield pd.DataFrame({"name": [key[0]], "n": [after]})

        def close(self) -> None:
            pass

    return Counts()


def transform_with_state(per_s: float, seconds: float) -> dict[str, float]:
    """The same with a count in Python, by transformWithStateInPandas."""
    return map_in_arrow(per_s, seconds, with_state=True)


RIVALS: dict[str, Callable[[float, float], dict[str, float]]] = {
    "dspkit": dspkit,
    "dspkit_2": dspkit_2,
    "bytewax": bytewax,
    "bytewax_with_recovery": bytewax_with_recovery,
    "processes": processes,
    "map_in_arrow": map_in_arrow,
    "transform_with_state": transform_with_state,
}


if __name__ == "__main__":
    print(json.dumps(RIVALS[sys.argv[1]](float(sys.argv[2]), float(sys.argv[3]))))
