"""Small live jobs for the tests, and one Spark that they share: starting Java takes longer than most of them.

Workers import this module: what a test's own module defines is not to be found from there.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dspkit import Snapshot, Topology
from dspkit.spark import SparkJob, arrow, keyed
from dspkit.spark.runtime import session
from dspkit.spark.runtime.workers import warm
from dspkit.workload import Constant

RECORD = "id int64, event_s float64"
_running: dict[str, Any] = {}


def spark(mode: str) -> Any:
    """The Spark for jobs in `mode`, which may be "plain": without our jar. One for another mode is ended first."""
    if mode not in _running:
        end()
        _running[mode] = session.start_session(
            "local[64]", "microbatch" if mode == "plain" else mode, with_jar=mode != "plain"
        )
        warm(_running[mode])  # the first job does not wait for the imports of its workers
    return _running[mode]


def end() -> None:
    while _running:
        session.stop(_running.popitem()[1])


class Interference:
    """A gauge of other programs: the share of time for which some task waited for a core.

    Rates and busy times mean something in a quiet window only; those of another one are inconclusive.
    """

    def __init__(self) -> None:
        self._since, self._waited = time.monotonic(), self._total()

    @staticmethod
    def _total() -> float:
        """Seconds, as the kernel counts them; where it does not, a full load says that tasks wait."""
        try:
            with open("/proc/pressure/cpu", encoding="ascii") as file:
                return int(file.readline().rpartition("=")[2]) * 1e-6
        except OSError:
            return time.monotonic() * (os.getloadavg()[0] > (os.cpu_count() or 1))

    def share(self) -> float:
        """Since the last call."""
        since, waited = self._since, self._waited
        self._since, self._waited = time.monotonic(), self._total()
        return (self._waited - waited) / max(1e-9, self._since - since)


QUIET = 0.15


def quiet_window(job: SparkJob, most: int = 6, *, full: bool = False) -> tuple[Snapshot, bool]:
    """Return the first window in which others left the cores alone, or else the last; and whether they did.

    It begins when workers are warm, and unless the job is to be `full` its logs as good as read.
    """
    works(job)
    gauge = Interference()
    for _ in range(most):
        snapshot = job.observe()
        read = snapshot.lag < 0.2 * max(1.0, snapshot.source_rate) * snapshot.window_s
        if gauge.share() < QUIET and (read or full):
            return snapshot, True
    return snapshot, False


def until(happened: Callable[[], Any], seconds: float = 180) -> Any:
    """Return what `happened` returns as soon as that is true."""
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


def works(job: SparkJob) -> None:
    """Wait until records get through; on a busy machine the first workers take their time."""
    until(lambda: job.observe().throughput > 0, 300)


def counted(job: SparkJob, records: float, most: int = 200) -> dict[str, float]:
    """Return what was counted over as many windows as `records` at the end of the graph take.

    By operator what it did, by edge what was sent, "offered" by source, "ended": an edge of a window may part them.
    """
    sums: Counter[Any] = Counter()
    for _ in range(most):
        seen = job.observe()
        sums["ended"] += seen.throughput * seen.window_s
        for rates in (seen.source_rates, seen.edge_rates, {o: m.processing_rate for o, m in seen.operators.items()}):
            kind = "offered " if rates is seen.source_rates else ""
            for name, rate in rates.items():
                sums[kind + " -> ".join(name) if isinstance(name, tuple) else kind + name] += rate * seen.window_s
        if sums["ended"] >= records:
            return dict(sums)
    raise AssertionError(f"too few: {sums}")


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


class Gate:
    """Hands records on unless a file says that it is shut."""

    def __init__(self, shut: Any):
        self.shut = shut

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            while self.shut.exists():
                time.sleep(0.05)
            yield batch


_LEAKED: list[bytes] = []


def leaks(batches: Iterator[Any]) -> Iterator[Any]:
    """Hands records on, and keeps 200 kB for each batch."""
    for batch in batches:
        _LEAKED.append(os.urandom(200_000))
        yield batch


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Counts each key, and sends nothing on."""
    for batch in batches:
        for key in batch.column("id").to_pylist():
            known[key] = known.get(key, 0) + 1
    yield from ()


def odd_keys(ids: Any, event_s: Any) -> pa.RecordBatch:
    """Keys that are easily lost: both zeros, NaN, unsigned numbers beyond 2 ** 63, times and nulls."""
    reals = np.array([0.0, -0.0, np.nan, -np.nan, 0.1, np.inf])[ids % 6]
    at = pa.array([None if i % 4 == 0 else 10**15 + i % 4 for i in ids.tolist()], pa.timestamp("us", "UTC"))
    columns = [pa.array(reals), pa.array(ids.astype(np.uint64) % 50 + np.uint64(2**63 - 20)), at]
    return pa.RecordBatch.from_arrays(columns, schema=ODD_KEYS)


ODD_KEYS = pa.schema({"real": pa.float64(), "user": pa.uint64(), "at": pa.timestamp("us", "UTC")})


@dataclass(frozen=True)
class Tally:
    """Counts the records of each key, of one column or several."""

    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[Any], known: dict[Any, int]) -> Iterator[Any]:
        for batch in batches:
            parts = [batch.column(name).to_pylist() for name in self.columns]
            for key in parts[0] if len(parts) == 1 else zip(*parts, strict=True):
                known[key] = known.get(key, 0) + 1
        yield from ()


EVENT = "key int64, at float64, n int64"


def jittered(ids: Any, event_s: Any) -> pa.RecordBatch:
    """Records of 60 keys, up to 1.6 s behind their place in the log."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    behind = (mixed >> np.uint64(33)) % np.uint64(1000) * 0.0016
    columns = [((mixed >> np.uint64(20)) % np.uint64(60)).astype(np.int64), np.round(event_s - behind, 6), ids]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["key", "at", "n"])


def newest_result(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            known[row["key"], row["start"]] = {"end": row["end"], "value": row["value"]}
    yield from ()


def out_of_order(ids: Any, event_s: Any) -> pa.RecordBatch:
    """Records that are up to three seconds behind the order in which they come."""
    behind = (ids * 7919 % 31) / 10
    columns = [ids % 5, np.round(event_s * 20 - behind, 1), ids % 7]  # event time is twenty times as fast
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=["key", "at", "n"])


def n_of(row: dict[str, Any]) -> int:
    return int(row["n"])


def received(batches: Iterator[Any], known: dict[Any, list[int]]) -> Iterator[Any]:
    """Keeps the results of each window: of all of them each once."""
    for batch in batches:
        for key, end, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            known[key, end] = [*known.get((key, end), []), value]
    yield from ()


def few_only(batches: Iterator[Any]) -> Iterator[Any]:
    """Returns after three batches."""
    for _, batch in zip(range(3), batches, strict=False):
        yield batch


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


PADDED = pa.schema({"id": pa.int64(), "text": pa.string()})


def padded(batches: Iterator[Any]) -> Iterator[Any]:
    """Records of some 10 kB."""
    for batch in batches:
        text = pa.array(["x" * 10_000] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([batch.column("id"), text], schema=PADDED)


def exits(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        sys.exit(3)
    yield from ()


def counts_in_words(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    """State of another type than it was declared to have."""
    for batch in batches:
        for key in batch.column("id").to_pylist():
            known[key] = "1"
    yield from ()


TEXT = pa.schema({"id": pa.int64(), "text": pa.string()})


def parse(batches: Iterator[Any]) -> Iterator[Any]:
    """Numbers from text, twice each; text that is no number raises, one beyond int8 does not fit the declared type."""
    for batch in batches:
        rows = [{"id": row["id"], "n": int(row["text"])} for row in batch.to_pylist() for _ in range(2)]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema({"id": pa.int64(), "n": pa.int64()}))


def texts(ids: Any, event_s: Any) -> pa.RecordBatch:
    """Each seventh text is no number."""
    values = [str(n % 100) if n % 7 else f"x{n}" for n in ids.tolist()]
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(values)], schema=TEXT)


COUNT_AND_TEXT = pa.struct({"n": pa.int64(), "text": pa.string()})


def counts_with_text(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for batch in batches:
        for key in batch.column("id").to_pylist():
            before = known.get(key, {"n": 0, "text": "new"})
            known[key] = before | {"n": before["n"] + 1}
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
    settings = {"window_s": 1.0, "epoch_s": 3.0, "max_batch_records": 5000} | more
    if "spark" not in more:
        settings["spark"] = spark(mode)
    if mode == "plain":
        mode, settings = "microbatch", settings | {"engine": "plain"}
    return SparkJob(Topology.chain("read", "work", "count"), functions, load, mode=mode, **settings)


def each_once(checkpoint: Any, operator: str = "count") -> int:
    """How many records the log gave out, after checking that the operator counted each of them exactly once."""
    from dspkit.spark.dataflow.checkpoint import Checkpoint

    kept = Checkpoint(checkpoint)
    table, partitions = kept.state(operator), kept.offsets()[0]
    given = {p + s * len(partitions) for p, upto in enumerate(partitions) for s in range(upto)}
    counted = Counter(dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)))
    assert table.num_rows == len(counted), "a key has two owners"
    assert set(counted) == given
    assert set(counted.values()) <= {1}
    return len(given)
