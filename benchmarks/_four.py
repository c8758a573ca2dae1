"""The job of `spark_rates` and `spark_rivals`: a source and four light Python operators, record by record.

Hash a number, drop a tenth, format a name, count by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dspkit.spark import SparkJob

OPERATORS = ("read", "hash", "drop", "name", "count")


def hashed(number: int) -> int:
    return number * 2654435761 % 10007


def kept(code: int) -> bool:
    return code % 10 != 0


def named(code: int) -> str:
    return f"n{code % 1000}"


def hash_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        codes = [hashed(number) for number in batch.column("id").to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(codes, pa.int64())], names=["code"])


def drop_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        codes = [code for code in batch.column("code").to_pylist() if kept(code)]
        yield pa.RecordBatch.from_arrays([pa.array(codes, pa.int64())], names=["code"])


def name_batches(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        names = [named(code) for code in batch.column("code").to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(names, pa.string())], names=["name"])


def count_batches(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    for batch in batches:
        for name in batch.column("name").to_pylist():
            known[name] = known.get(name, 0) + 1
    yield from ()


@dataclass(frozen=True)
class CountFrames:
    """`count_batches` that also writes, at the end of each epoch, how many batches and records an instance had."""

    folder: Path

    def __call__(self, batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
        frames = records = 0

        def counted() -> Iterator[Any]:
            nonlocal frames, records
            for batch in batches:
                frames, records = frames + 1, records + batch.num_rows
                yield batch

        yield from count_batches(counted(), known)
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{frames} {records}\n")


def job(per_s: float, instances: int, frames: Path | None = None, **settings: Any) -> SparkJob:
    """Return the live job, with so many instances of each operator; `frames` is a folder for `CountFrames`."""
    from dspkit import Deployment, Topology, workload
    from dspkit.core import Operator
    from dspkit.spark import SparkJob, TraceSource, arrow, keyed

    functions = {
        "hash": arrow(hash_batches, "code int64"),
        "drop": arrow(drop_batches, "code int64"),
        "name": arrow(name_batches, "name string"),
        "count": keyed(CountFrames(frames) if frames else count_batches, key="name", state="int64"),
    }
    operators = tuple(Operator(name, 10, stateful=name == "count") for name in OPERATORS)
    topology = Topology(operators, Topology.chain(*OPERATORS).edges)
    start = Deployment(dict.fromkeys(OPERATORS, instances))
    return SparkJob(topology, functions, TraceSource(workload.Constant(per_s)), deployment=start, **settings)


def cpu_by_process() -> dict[int, float]:
    """Return the processor time so far of this process and all below it, by number."""
    import psutil  # type: ignore[import-untyped]

    me, found = psutil.Process(), {}
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        found[process.pid] = times.user + times.system
    return found


def spent(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the processor time between two readings, of the processes that still run."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def load() -> float:
    """Return the machine's load average of the last minute, which says how far to trust absolute figures."""
    return os.getloadavg()[0]
