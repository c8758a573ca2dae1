"""Small live jobs for the tests, and one Spark that they share: starting Java takes longer than most of them.

Workers import this module: what a test's own module defines is not to be found from there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dspkit import Topology
from dspkit.spark import SparkJob, arrow, keyed, session
from dspkit.workload import Constant

RECORD = "id int64, event_s float64"
_running: dict[str, Any] = {}


def spark(mode: str) -> Any:
    """The Spark for jobs in `mode`, which may be "plain": without our jar. One for another mode is ended first."""
    if mode not in _running:
        end()
        _running[mode] = session.start("local[64]", "microbatch" if mode == "plain" else mode, with_jar=mode != "plain")
    return _running[mode]


def end() -> None:
    while _running:
        session.stop(_running.popitem()[1])


class Work:
    """Hands records on, each after `micros` of waiting, as one that asks a server; short naps are put together."""

    def __init__(self, micros: float):
        self.micros = micros

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        owed = 0.0
        for batch in batches:
            owed += batch.num_rows * self.micros * 1e-6
            if owed > 5e-4:
                began = time.perf_counter()
                time.sleep(owed)
                owed -= time.perf_counter() - began
            yield batch


class Burn:
    """Hands records on, each after `micros` of a core: what others do to the cores makes it late, not dearer."""

    def __init__(self, micros: float):
        self.micros = micros

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            end = time.thread_time() + batch.num_rows * self.micros * 1e-6
            while time.thread_time() < end:
                pass
            yield batch


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Counts each key, and sends nothing on."""
    for batch in batches:
        for key in batch.column("id").to_pylist():
            known[key] = known.get(key, 0) + 1
    yield from ()


def digits_counted(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    for batch in batches:
        for key, n in Counter(batch.column("digit").to_pylist()).items():
            known[key] = known.get(key, 0) + n
    yield from ()


def words(batches: Iterator[Any]) -> Iterator[Any]:
    """Two words a record: its number modulo 7 and modulo 5."""
    for batch in batches:
        ids = batch.column("id").to_numpy()
        yield pa.RecordBatch.from_arrays([pa.array(np.concatenate([ids % 7, ids % 5]))], names=["word"])


def sides(batches: Iterator[Any]) -> Iterator[Any]:
    """Even numbers to the left, odd ones to the right."""
    for batch in batches:
        even = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 0)
        yield "left", batch.filter(even)
        yield "right", batch.filter(pc.invert(even))


def joined(batches: Iterator[Any], known: dict[int, dict[str, int]]) -> Iterator[Any]:
    """Counts what came from each side, by the number's last digit."""
    for batch in batches:
        side = batch.schema.metadata[b"from"].decode()
        for key, n in Counter(batch.column("digit").to_pylist()).items():
            row = known.setdefault(key, {"left": 0, "right": 0})
            row[side] += n
    yield from ()


def digit(data: Any) -> Any:
    return data.assign(digit=data["id"] % 10)[["digit"]]


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    yield from Work(20)(digits(batches))


def digits(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array(batch.column("id").to_numpy() % 10)], names=["digit"])


def numbered(batches: Iterator[Any]) -> Iterator[Any]:
    """The number that each record of a log ends with."""
    for batch in batches:
        text = [str(value).split()[-1] for value in batch.columns[-1].to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(map(int, text), pa.int64())], names=["id"])


def broken(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        raise ZeroDivisionError("that is mine")
    yield from ()


def single(batches: Iterator[Any]) -> Iterator[Any]:
    """Each record in a frame of its own, so that Spark's rows are records from here on."""
    for batch in batches:
        for i in range(batch.num_rows):
            yield batch.slice(i, 1)


def swallow(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield from ()


def job(rate: float = 2000.0, micros: float = 100.0, *, mode: str = "realtime", **more: Any) -> SparkJob:
    """read -> work -> count: an operator of known service time, then one that counts each record."""
    functions = {"work": arrow(Work(micros), RECORD), "count": keyed(count, key="id", state="int64")}
    load = more.pop("load", None) or Constant(rate)
    settings = {"window_s": 1.0, "epoch_s": 3.0, "most_records": 5000} | more
    settings["spark"] = more.get("spark") or spark(mode)
    if mode == "plain":
        mode, settings = "microbatch", settings | {"engine": "plain"}
    return SparkJob(Topology.chain("read", "work", "count"), functions, load, mode=mode, **settings)


def each_once(checkpoint: Any, operator: str = "count") -> int:
    """How many records the log gave out, after checking that the operator counted each of them exactly once."""
    from dspkit.spark.checkpoint import Checkpoint

    kept = Checkpoint(checkpoint)
    table, partitions = kept.state(operator), kept.offsets()[0]
    given = {p + s * len(partitions) for p, upto in enumerate(partitions) for s in range(upto)}
    counted = Counter(dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)))
    assert table.num_rows == len(counted), "a key has two owners"
    assert set(counted) == given
    assert set(counted.values()) <= {1}
    return len(given)
