"""Tasks of one keyed operator without Spark: epochs whose records come in frames, as from a sender."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dspkit.spark.dataflow import state, store
from dspkit.spark.dataflow.exchange import LARGEST, Edge, keys_of, stamped, wire
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.dataflow.task import Stage, Task
from dspkit.spark.functions import Function
from dspkit.spark.metering import MeterAddress

_sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # receives the readings of all meters
_sink.bind(("127.0.0.1", 0))
_meter = MeterAddress(*_sink.getsockname(), b"secret")


def stage(function: Function, folder: Path, sent: pa.Schema, **more: Any) -> Stage:
    """Operator 1, "count", which reads from operator 0, "read"."""
    settings: dict[str, Any] = {"inputs": {0: ("read", sent)}, "outputs": (), "source": None, "passes": False} | more
    return Stage(1, "count", function, folder=folder, meter=_meter, **settings)


def frames(sent: pa.Schema, key: Any, batches: Iterable[pa.RecordBatch], k: int) -> list[list[pa.RecordBatch]]:
    """For each instance, the batches of Spark's rows with its frames."""
    edge = Edge(0, 1, stamped(sent, "read"), key, k)
    given: list[list[pa.RecordBatch]] = [[] for _ in range(k)]
    for batch in batches:
        zeros = pa.array(np.zeros(batch.num_rows, np.int64))
        whole = pa.RecordBatch.from_arrays([*batch.columns, zeros, zeros], schema=edge.schema)
        for frame in edge.frames(whole):
            given[frame[2]].append(wire([(*frame, LARGEST)]))
    return given


def run(made: Stage, plan: state.Plan, instance: int, rows: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Run one instance to its end, and return what it sends."""
    return list(Task(made, plan, instance, 0).run(iter(rows)))


def epoch(made: Stage, number: int, k: int, batches: Sequence[pa.RecordBatch], stop: int | None = None) -> state.Plan:
    """Run an attempt at an epoch; with `stop`, only that many of its instances come to their end."""
    plan = state.begin_epoch(made.folder, number, (1, k))
    given = frames(made.inputs[0][1], made.function.key, batches, k)
    for instance in range(k if stop is None else min(stop, k)):
        run(made, plan, instance, given[instance])
    return plan


def read_state(folder: Path, plan: state.Plan, operator: int, instance: int, declared: KeyedState) -> dict[Any, Any]:
    """The keys of an instance at the beginning of an epoch, as a process finds them that knows nothing yet."""
    store._OPEN.clear()
    return store.open_store(folder, plan, operator, instance, declared).copy()


def save_state(
    folder: Path, plan: state.Plan, operator: int, instance: int, declared: KeyedState, known: dict[Any, Any]
) -> None:
    """End an epoch of an instance with these keys."""
    there = store.open_store(folder, plan, operator, instance, declared)
    for key in list(there):
        if key not in known:
            del there[key]
    there.update(known)
    store.commit_store(plan, operator, instance, there)


def pairs(declared: KeyedState, table: pa.Table) -> list[tuple[Any, Any]]:
    """The keys and values of an operator's state."""
    columns = [column.combine_chunks() for column in table.columns[:-1]]
    keys = columns[0] if declared.single else pa.StructArray.from_arrays(columns, names=list(declared.columns))
    return list(zip(keys_of(keys), table.column("value").to_pylist(), strict=True))


def last(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    """Keeps how many records each key had, and the value `v` of the last one; the other columns are the key."""
    for batch in batches:
        *keys, values = (column.to_pylist() for column in batch.columns)
        for key, value in zip(keys[0] if len(keys) == 1 else zip(*keys, strict=True), values, strict=True):
            before = known[key]["n"] if key in known else 0
            known[key] = {"n": before + 1, "v": value}
    yield from ()
