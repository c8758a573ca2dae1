"""Live Spark with state of 10,000 to 10 million keys: rescales, ends of epochs, bytes written, throughput.

Each size has a checkpoint of its own, filled once. Its job then continues from there, in turns with those of the other
sizes in one Spark, so that other load on the machine affects all. Claims compare the largest number of keys with the
smallest; the details have the curve, and 1 GB of values. Stock Spark follows in processes of its own, size by size.
`DSPKIT_STATE_KEYS=10000,100000,1000x500 python -m benchmarks spark_state` is a small run; 1000x500 has 1,000 keys with
values of 500 bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import Claim, _four

if TYPE_CHECKING:
    from dspkit.spark import SparkJob


class Size(NamedTuple):
    """A number of keys, and the bytes of a value; 8 are an integer."""

    keys: int
    value: int = 8

    def __str__(self) -> str:
        return f"{self.keys:,}" + f" of {self.value:,} B" * (self.value > 8)


_SIZES = os.environ.get("DSPKIT_STATE_KEYS", "10000,100000,1000000,10000000,1000000x1000")
SIZES = tuple(Size(*map(int, each.split("x"))) for each in _SIZES.split(","))
_COUNTS = [size for size in SIZES if size.value == 8]
_STOCK_MOST = {"sql": 1_000_000, "python": 100_000}  # keys; with more, its first batch takes many minutes
_STOCK_LIMIT_S = 1200.0
LIGHT, FLAT_OUT = 5_000.0, 2_000_000.0  # records/s offered
TURNS = 3
EPOCH_S = 5.0
EPOCHS = 4  # windows of one epoch each, per turn
_FILL = 1_000_000  # records/s offered of the first record of each key
_KEY = 8  # bytes of a key, which is an integer of 64 bits
_AFTER_S = 4.0  # a silence that begins later is not that of the rescale
_PATIENCE_S = 900.0  # until all keys are there, and nothing waits
_STAMP = struct.Struct("<d")


def keys_of(ids: Any, size: int) -> Any:
    """Return the keys of records: each key once, then any of them."""
    import numpy as np

    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    return np.where(ids < size, ids, (mixed % np.uint64(size)).astype(np.int64))


@dataclass(frozen=True)
class Read:
    """Send the key of each record."""

    size: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            keys = keys_of(batch.column("id").to_numpy(), self.size)
            yield pa.RecordBatch.from_arrays([pa.array(keys)], names=["key"])


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Count each key, and send it on."""
    for batch in batches:
        for key in batch.column("key").to_pylist():
            known[key] = known.get(key, 0) + 1
        yield batch


@dataclass(frozen=True)
class CountInBytes:
    """The same with a value of so many bytes, the first of which are the count."""

    value: int

    def __call__(self, batches: Iterator[Any], known: dict[int, bytes]) -> Iterator[Any]:
        rest = os.urandom(self.value - 8)
        for batch in batches:
            for key in batch.column("key").to_pylist():
                before = int.from_bytes(known.get(key, b"")[:8], "little")
                known[key] = (before + 1).to_bytes(8, "little") + rest
            yield batch


@dataclass(frozen=True)
class Sink:
    """Write down when each batch arrives."""

    stamps: Path

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with self.stamps.open("ab", buffering=0) as file:
            for _ in batches:
                file.write(_STAMP.pack(time.time()))
        yield from ()


@dataclass(frozen=True)
class Case:
    """The job of one size."""

    spark: Any
    folder: Path
    size: Size
    per_s: float  # offered, once all keys are there

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def stamps(self) -> Path:
        return self.folder / "stamps"

    def job(self) -> SparkJob:
        """Continue the job, and return it when all keys are there and, at a light load, next to no records wait."""
        from dspkit import Deployment, Topology, workload
        from dspkit.core import Operator
        from dspkit.spark import SparkJob, TraceSource, arrow, keyed

        functions = {
            "read": arrow(Read(self.size.keys), "key int64"),
            "count": keyed(*self._counting(), key="key", state="int64" if self.size.value == 8 else "binary"),
            "sink": arrow(Sink(self.stamps)),
        }
        filled_s = max(1, -(-self.size.keys // _FILL))
        load = workload.Jump(self.size.keys / filled_s, self.per_s, filled_s)
        job = SparkJob(
            Topology(
                tuple(Operator(name, 8, stateful=name == "count") for name in functions),
                Topology.chain(*functions).edges,
            ),
            functions,
            TraceSource(load if self.per_s == LIGHT else workload.Constant(self.per_s)),
            deployment=Deployment({"read": 1, "count": 2, "sink": 1}),
            checkpoint=self.checkpoint,
            spark=self.spark,
            master=self.spark.sparkContext.master,
            window_s=1.0,
            epoch_s=EPOCH_S,
        )
        end = time.monotonic() + _PATIENCE_S
        while (s := job.observe()).operators["count"].state_keys != self.size.keys or self._lags(s.lag):
            if time.monotonic() > end:
                job.close()
                raise TimeoutError(f"{self.size} keys are not there after {_PATIENCE_S:g} s: {s}")
        return job

    def _counting(self) -> tuple[Any, str]:
        """Return the function that counts, and the columns that it sends."""
        return (count if self.size.value == 8 else CountInBytes(self.size.value)), "key int64"

    def _lags(self, lag: float) -> bool:
        return self.per_s == LIGHT and lag > self.per_s / 5


@contextlib.contextmanager
def _cases(per_s: float) -> Iterator[list[Case]]:
    """Provide a case per size, filled."""
    from dspkit.spark.runtime import session

    with tempfile.TemporaryDirectory(prefix="dspkit-state-") as folder:
        spark = session.start_session("local[32]", "realtime")
        try:
            cases = [Case(spark, Path(folder, f"{size.keys}x{size.value}"), size, per_s) for size in SIZES]
            for case in cases:
                case.folder.mkdir()
                case.job().close()
            yield cases
        finally:
            session.stop(spark)


Medians = dict[Size, dict[str, float]]


def _medians(found: Mapping[Size, Mapping[str, list[float]]]) -> Medians:
    """Return the medians, but the mean of what merges write, as few epochs have one."""
    middle = {"merged_over_touched": statistics.fmean}
    return {
        size: {name: middle.get(name, statistics.median)(values) for name, values in each.items()}
        for size, each in found.items()
    }


@cache
def _light() -> Medians:
    """Return the medians at a light load, by size: silence and p99 in s, bytes written per epoch and byte touched."""
    found: dict[Size, dict[str, list[float]]] = {size: defaultdict(list) for size in SIZES}
    with _cases(LIGHT) as cases:
        for _ in range(TURNS):
            for case in cases:
                with case.job() as job:
                    for name, values in _epochs(job, case).items():
                        found[case.size][name] += values
                    _silence(job, case, 3)  # the first one of a query takes longer, at any size
                    _silence(job, case, 2)
                    found[case.size]["silence_s"] += [_silence(job, case, 3), _silence(job, case, 2)]
    return _medians(found)


def _silence(job: SparkJob, case: Case, instances: int) -> float:
    """Rescale, and return the longest time between two batches at the sink."""
    job.window_s = 1.0
    job.observe()
    began = time.time()
    job.deploy(job.deployment.scaled({"count": instances}))
    while time.time() < began + _AFTER_S + 1.0:
        job.observe()
    text = case.stamps.read_bytes()
    stamps: list[float] = sorted(at for (at,) in _STAMP.iter_unpack(text[: len(text) // 8 * 8]) if at > began - 1.0)
    return max(b - a for a, b in pairwise([*stamps, time.time()]) if a < began + _AFTER_S)


def _epochs(job: SparkJob, case: Case) -> dict[str, list[float]]:
    """Return p99 in windows with a routine end of an epoch, and what each epoch has written."""
    found: dict[str, list[float]] = defaultdict(list)
    written = _Written(case)
    job.window_s = EPOCH_S
    for _ in range(EPOCHS):
        s = job.observe()
        if s.commit_s > 0 and not s.downtime_s and s.event_latency is not None:
            found["p99_s"].append(s.event_latency.p99)
        for committed, merged in written.since_the_last_look():
            found["bytes_over_touched"].append(committed)
            found["merged_over_touched"].append(merged)
    return found


class _Written:
    """The bytes of state that epochs have written, over those of the keys that they have touched."""

    def __init__(self, case: Case):
        from dspkit.spark.dataflow.checkpoint import Checkpoint

        self._checkpoint, self._size = Checkpoint(case.checkpoint), case.size
        self._epoch, self._known = self._checkpoint.committed(), self._runs(self._checkpoint.committed()).keys()

    def _runs(self, epoch: int) -> dict[str, Any]:
        from dspkit.spark.dataflow.state import read_plan
        from dspkit.spark.dataflow.store import operator_parts

        plan = read_plan(self._checkpoint.own, epoch)
        assert plan is not None
        return {part.name: part for part in operator_parts(self._checkpoint.own, plan, 1)}

    def since_the_last_look(self) -> Iterator[tuple[float, float]]:
        """Yield for each epoch the ratio of what its commit wrote, and of what merges wrote beside it."""
        from dspkit.spark.dataflow.state import read_plan

        for epoch in range(self._epoch + 1, self._checkpoint.committed() + 1):
            runs, plan = self._runs(epoch), read_plan(self._checkpoint.own, epoch)
            assert plan is not None
            fresh = [run for name, run in runs.items() if name not in self._known]
            manifests = (self._checkpoint.own / "state" / plan.token).iterdir()
            committed = sum(run.size for run in fresh if not run.level) + sum(p.stat().st_size for p in manifests)
            self._epoch, self._known = epoch, runs.keys()
            if touched := self._touched(epoch):
                yield committed / touched, sum(run.size for run in fresh if run.level) / touched

    def _touched(self, epoch: int) -> int:
        """Return the bytes of the keys and values that an epoch has touched, by the records that it has read."""
        import numpy as np

        (before,), (after,) = self._checkpoint._offsets(epoch - 1), self._checkpoint._offsets(epoch)
        ids = [np.arange(a, b) * len(after) + p for p, (a, b) in enumerate(zip(before, after, strict=True))]
        return (_KEY + self._size.value) * len(np.unique(keys_of(np.concatenate(ids), self._size.keys)))


@cache
def _flat_out() -> Medians:
    """Return the records/s of the keyed operator, as fast as it can, in windows of two epochs, by size."""
    found: dict[Size, dict[str, list[float]]] = {size: defaultdict(list) for size in SIZES}
    with _cases(FLAT_OUT) as cases:
        for _ in range(TURNS):
            for case in cases:
                with case.job() as job:
                    job.window_s = 2 * EPOCH_S
                    before, began = _four.cpu_by_process(), time.monotonic()
                    per_s = job.observe().operators["count"].processing_rate
                    cpu_s, seconds = _four.spent(before, _four.cpu_by_process()), time.monotonic() - began
                    found[case.size]["per_s"].append(per_s)
                    found[case.size]["per_cpu_s"].append(per_s * seconds / cpu_s)
    return _medians(found)


def _detail(found: Medians, *names: str) -> dict[str, float]:
    return {f"{name} {size}": found[size][name] for name in names for size in SIZES} | {"load": _four.load()}


def _large_over_small(found: Medians, name: str) -> float:
    return found[max(_COUNTS)][name] / found[min(_COUNTS)][name]


@cache
def _stock() -> dict[str, float]:
    """Return the figures of stock Spark by kind and size; a size that does not end in time is left out."""
    found: dict[str, float] = {}
    for size in _COUNTS:
        for kind, most in _STOCK_MOST.items():
            if size.keys > most:
                continue
            command = [sys.executable, "-m", "benchmarks._stock_state", kind, str(size.keys)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_STOCK_LIMIT_S, check=True)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(
                    f"stock Spark ({kind}, {size}): {type(error).__name__} {str(error.stderr)[-300:]}", file=sys.stderr
                )
                continue
            found |= {f"{name} {kind} {size}": each for name, each in json.loads(done.stdout.splitlines()[-1]).items()}
    return found


def rescale_silence_large_over_small() -> Claim:
    """The silence of a rescale (2 to 3 instances and back) with the largest state over that with the smallest."""
    found = _light()
    return Claim(_large_over_small(found, "silence_s"), "x", 1.5, "lower", _detail(found, "silence_s"))


def epoch_bytes_over_touched() -> Claim:
    """Bytes that the commit of an epoch writes over the bytes of the keys it touched, at the worst size."""
    found = _light()
    worst = max(each["bytes_over_touched"] for each in found.values())
    return Claim(worst, "x", 3.0, "lower", _detail(found, "bytes_over_touched", "merged_over_touched"))


def p99_large_over_small() -> Claim:
    """The 99th percentile of latency around routine ends of epochs, largest over smallest."""
    found = _light()
    return Claim(_large_over_small(found, "p99_s"), "x", 1.5, "lower", _detail(found, "p99_s"))


def throughput_large_over_small() -> Claim:
    """Records/s flat out over random keys, largest over smallest."""
    found = _flat_out()
    return Claim(_large_over_small(found, "per_s"), "x", 0.8, detail=_detail(found, "per_s", "per_cpu_s"))


def stock_rescale_silence_over_ours() -> Claim:
    """The silence of a rescale of stock Spark (SQL aggregation; stop, repartition, start) over ours, smallest size."""
    ours, stock = _light(), _stock()
    least = min(_COUNTS)
    detail = stock | _detail(ours, "silence_s", "bytes_over_touched")
    return Claim(stock[f"silence_s sql {least}"] / ours[least]["silence_s"], "x", 5.0, detail=detail)
