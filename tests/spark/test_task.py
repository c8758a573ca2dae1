"""A task reports what its function does wrong, and keeps nothing of an epoch that is not done as declared."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

import tasks
from dspkit import workload
from dspkit.spark import CheckpointError, SourceError, TraceSource, arrow, keyed
from dspkit.spark.dataflow import exchange, state, store, task
from dspkit.spark.dataflow.exchange import wire
from dspkit.spark.dataflow.task import OperatorFailed
from dspkit.spark.errors import FAILED, SOURCE_FAILED, FunctionError, readable
from dspkit.spark.functions import as_schema

SCHEMA = as_schema("id int64, v int64")
BATCHES = [pa.RecordBatch.from_pydict({"id": [i, i + 1], "v": [7, 8]}, schema=SCHEMA) for i in range(5)]


def _failed(run: Callable[[], object]) -> str:
    """The text that a task reports of its operator."""
    with pytest.raises(OperatorFailed) as caught:
        run()
    text = str(caught.value)
    assert text.startswith(FAILED)
    name, told = json.loads(text.removeprefix(FAILED))
    assert name == "count"
    error = readable(RuntimeError(f"org.apache.spark.SparkException: {text}\n\tat org.apache.spark"))
    assert isinstance(error, FunctionError)
    assert told in str(error)
    return str(told)


def _states(folder: Path) -> list[Path]:
    return list(folder.glob("state/*/*"))


def first_only(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for batch in itertools.islice(batches, 3):
        known.update(dict.fromkeys(batch.column("id").to_pylist(), 1))
    yield from ()


def raises_in_loop(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for i, _ in enumerate(batches):
        if i == 3:
            return
    yield from ()


def unread(batches: Iterator[Any], known: dict[int, Any]) -> None:
    return None


def closed(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    next(batches)
    batches.close()
    yield from ()


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("function", [first_only, raises_in_loop, unread, closed])
def test_a_function_that_returns_before_its_input_ends_commits_nothing(
    function: Any, passes: bool, tmp_path: Path
) -> None:
    stage = tasks.stage(keyed(function, key="id", state="int64"), tmp_path, SCHEMA, passes=passes)
    told = _failed(lambda: tasks.epoch(stage, 0, 1, BATCHES))
    assert "'count'" in told
    assert "returned before its input ended" in told
    assert _states(tmp_path) == []


@pytest.mark.parametrize("passes", [False, True])
def test_a_function_need_not_ask_once_more_than_there_are_batches(passes: bool, tmp_path: Path) -> None:
    stage = tasks.stage(keyed(first_only, key="id", state="int64"), tmp_path, SCHEMA, passes=passes)
    plan = tasks.epoch(stage, 0, 1, BATCHES[:3])
    assert store.operator_state(tmp_path, plan, 1).num_rows == 4


def test_functions_without_state_are_held_to_it_too(tmp_path: Path) -> None:
    stage = tasks.stage(arrow(lambda batches: iter([next(batches)]), SCHEMA), tmp_path, SCHEMA)
    assert "returned before its input ended" in _failed(lambda: tasks.epoch(stage, 0, 1, BATCHES))


def half(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for batch in batches:
        for key in batch.column("id").to_pylist():
            known[key] = known.get(key, 0) + 0.5
    yield from ()


def total(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for batch in batches:
        known[-1] = known.get(-1, 0) + batch.num_rows
    yield from ()


def misnamed(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for batch in batches:
        known["total"] = batch.num_rows
    yield from ()


@pytest.mark.parametrize(
    ("function", "k", "words"),
    [
        (half, 1, ["known[0] = 0.5 at operator 'count'", "int64 would make it 0"]),
        (total, 5, ["known[-1] at operator 'count'", "another instance"]),
        (misnamed, 1, ["known['total'] at operator 'count'", "id int64"]),
    ],
)
def test_state_that_is_not_as_declared_is_reported_and_not_written(
    function: Any, k: int, words: list[str], tmp_path: Path
) -> None:
    stage = tasks.stage(keyed(function, key="id", state="int64"), tmp_path, SCHEMA)
    before = [pa.RecordBatch.from_pydict({"id": [*range(50)], "v": [0] * 50}, schema=SCHEMA)]
    told = _failed(lambda: tasks.epoch(stage, 0, k, before))
    assert all(word in told for word in words), told
    assert "\n" not in told
    owner = exchange.owners(pa.array([-1]), k)[0]
    assert {path.name for path in _states(tmp_path)} <= {f"1-{owner}.json"}


def looks_around(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    for batch in batches:
        for key in batch.column("id").to_pylist():
            known[key] = known.get(key, 0) + known.get((key + 1) % 50, 0) * 0 + 1
    yield from ()


def test_a_key_of_another_instance_that_is_looked_up_is_an_error_and_not_absent(tmp_path: Path) -> None:
    """The function would see other values with more instances; one instance has all keys."""
    batches = [pa.RecordBatch.from_pydict({"id": [*range(50)], "v": [0] * 50}, schema=SCHEMA)]
    stage = tasks.stage(keyed(looks_around, key="id", state="int64"), tmp_path, SCHEMA)
    tasks.epoch(stage, 0, 1, batches)
    tasks.epoch(stage, 1, 1, batches)
    told = _failed(lambda: tasks.epoch(stage, 2, 2, batches))
    assert "a key of another instance" in told
    assert "looked up" in told


def leaves(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for _ in batches:
        raise SystemExit(3)
    yield from ()


def interrupts(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for _ in batches:
        raise KeyboardInterrupt
    yield from ()


def closes_itself(batches: Iterator[Any], known: dict[Any, Any]) -> Iterator[Any]:
    for _ in batches:
        raise GeneratorExit
    yield from ()


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize(
    ("function", "last"),
    [(leaves, "SystemExit: 3"), (interrupts, "KeyboardInterrupt"), (closes_itself, "GeneratorExit")],
)
def test_whatever_a_function_raises_is_its_own_error(function: Any, last: str, passes: bool, tmp_path: Path) -> None:
    stage = tasks.stage(keyed(function, key="id", state="int64"), tmp_path, SCHEMA, passes=passes)
    told = _failed(lambda: tasks.epoch(stage, 0, 1, BATCHES))
    assert told.splitlines()[-1] == last
    assert f"in {function.__name__}" in told
    assert _states(tmp_path) == []


@pytest.mark.parametrize(("rows", "asked"), [(slice(1, None), "5 records .* asked for 6"), ([0] * 9, "9 records")])
def test_a_source_that_gives_another_number_of_records_is_an_error(rows: Any, asked: str, tmp_path: Path) -> None:
    def make(ids: Any, event_s: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": ids[rows], "v": ids[rows]}, schema=SCHEMA)

    source = TraceSource(workload.Constant(100), make, SCHEMA, partitions=2)
    stage = replace(tasks.stage(arrow(lambda batches: batches, SCHEMA), tmp_path, SCHEMA), index=0, source=source)
    frame = np.array([0, 0, 0, 10, 13, 1, 10, 13], "<i8").tobytes()
    with pytest.raises(OperatorFailed) as caught:
        tasks.run(stage, state.begin_epoch(tmp_path, 0, (1, 1)), 0, [wire([(0, -1, 0, frame, 1)])])
    assert str(caught.value).startswith(SOURCE_FAILED)
    error = readable(caught.value)
    assert isinstance(error, SourceError)
    with pytest.raises(SourceError, match=asked):
        raise error


def test_an_error_of_the_source_that_the_function_catches_ends_the_task(tmp_path: Path) -> None:
    """Otherwise the epoch would be committed, and the records of the source lost with it."""

    def make(ids: Any, event_s: Any) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": ids[1:], "v": ids[1:]}, schema=SCHEMA)

    def catches(batches: Any) -> Any:
        try:
            yield from batches
        except Exception:
            return

    source = TraceSource(workload.Constant(100), make, SCHEMA, partitions=2)
    stage = replace(tasks.stage(arrow(catches, SCHEMA), tmp_path, SCHEMA), index=0, source=source)
    frame = np.array([0, 0, 0, 10, 13, 1, 10, 13], "<i8").tobytes()
    with pytest.raises(OperatorFailed, match=SOURCE_FAILED):
        tasks.run(stage, state.begin_epoch(tmp_path, 0, (1, 1)), 0, [wire([(0, -1, 0, frame, 1)])])


def test_a_task_whose_state_is_damaged_says_so_by_type(tmp_path: Path) -> None:
    stage = tasks.stage(
        keyed(tasks.last, key="id", state=pa.struct({"n": pa.int64(), "v": pa.int64()})), tmp_path, SCHEMA
    )
    tasks.epoch(stage, 0, 1, BATCHES)
    (path,) = _states(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    store._OPEN.clear()  # the next epoch is another process's
    with pytest.raises(CheckpointError, match=r"1-0.json of 0-.*checksum"):
        tasks.epoch(stage, 1, 1, BATCHES)
    error = CheckpointError("it", expected="this", fix="that")
    assert readable(error) is error


def test_from_its_second_task_on_a_process_looks_for_garbage_in_new_objects_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that another process takes over is freed all the same: nothing in it refers back to it."""
    made = tasks.stage(
        keyed(tasks.last, key="id", state=pa.struct({"n": pa.int64(), "v": pa.int64()})), tmp_path, SCHEMA
    )
    monkeypatch.setattr(task, "_runs", itertools.count())
    frozen = []
    try:
        for epoch in range(3):
            plan = state.begin_epoch(tmp_path, epoch, (1, 1))
            context = Mock(**{"getLocalProperty.return_value": plan.text(), "partitionId.return_value": 0})
            context.taskAttemptId.return_value = 0
            monkeypatch.setattr("pyspark.TaskContext.get", Mock(return_value=context))
            list(made.run(iter(tasks.frames(SCHEMA, "id", BATCHES, 1)[0])))
            frozen.append(gc.get_freeze_count() > 0)
        assert frozen == [False, True, True]
        kept = [weakref.ref(there) for _, there in store._OPEN.values()]
        assert kept
        gc.disable()
        store._OPEN.clear()
        assert [each() for each in kept] == [None] * len(kept)
    finally:
        gc.enable()
        gc.unfreeze()
