"""Watermarks and timers, and the errors of jobs that use event time wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tasks
from dspkit import Topology, workload
from dspkit.core import ArgumentError, TopologyError
from dspkit.spark import (
    CheckpointError,
    EventTime,
    FunctionError,
    SchemaError,
    SourceError,
    TraceSource,
    arrow,
    keyed,
    windowed,
)
from dspkit.spark.dataflow import plan as line
from dspkit.spark.dataflow import savepoint, state, store, watermarks
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.dataflow.exchange import Edge, stamped, wire
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.dataflow.task import OperatorFailed, Task
from dspkit.spark.dataflow.watermarks import BEFORE, MARK, PartitionTimes, Timers, Watermarks
from dspkit.spark.event_time import micros, one_micros
from dspkit.spark.functions import as_schema, same
from dspkit.spark.metering import Clock, ClockWatch

SECOND = 1_000_000
TIMES = EventTime("at", delay_s=2.0, lateness_s=1.0, idle_s=5.0)


def _late(times: PartitionTimes, p: int, at: list[float], now: int = 0) -> list[bool]:
    found: list[bool] = times.late(np.full(len(at), p), np.array([round(t * SECOND) for t in at]), now).tolist()
    return found


def test_a_record_is_late_by_the_order_of_its_own_partition() -> None:
    times = PartitionTimes(TIMES, [0, 1], 0, {})
    assert _late(times, 0, [10, 7, 6.9, 20, 17, 16.9]) == [False, False, True, False, False, True]
    assert _late(times, 1, [1, -1]) == [False, False]  # another partition does not matter
    assert _late(times, 0, [16.9]) == [True]  # nor does the frame
    times.advance()
    assert times.now == (1 - 2) * SECOND


@pytest.mark.parametrize("step", [3600, -3600])
@pytest.mark.parametrize("held_up", [False, True])
def test_no_partition_is_idle_because_the_clock_was_set(held_up: bool, step: int) -> None:
    """Its next records would be late. Frames that were stamped before may come after it was noticed."""
    seconds, moved = [100.0], [0]
    clock = Clock(elapsed=lambda: seconds[0], now=lambda: seconds[0] + moved[0])
    task: Any = object.__new__(Task)
    task._time = times = PartitionTimes(TIMES, [0, 1], 100 * SECOND, {})
    task._watch, task._clock_set = ClockWatch(clock), (0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dspkit.spark.dataflow.task._now", lambda: round(clock.now() * SECOND))
        read = task._by_the_clock
        _late(times, 0, [10], read(100 * SECOND))
        _late(times, 1, [40], read(100 * SECOND))
        seconds[0] = 101.0
        if held_up:
            moved[0] = step
        _late(times, 0, [11], read(101 * SECOND))  # stamped by the clock of before
        moved[0] = step
        for second in (101.5, 102, 103, 104, 105):
            seconds[0] = second
            times.empty([0], read(round((second + step) * SECOND)))
            times.advance()
            assert times.now == 9 * SECOND, second
        seconds[0] = 106.0
        times.empty([0], read((106 + step) * SECOND))
        times.advance()
        assert times.now == 38 * SECOND  # five seconds without a record


def test_an_idle_partition_does_not_hold_up_the_others_and_comes_back() -> None:
    times = PartitionTimes(TIMES, [0, 1, 2], 0, {})
    _late(times, 0, [10])
    _late(times, 1, [30])
    times.advance()
    assert times.now == BEFORE  # nothing is known of partition 2
    times.empty([0, 2], 4 * SECOND)
    times.advance()
    assert times.now == BEFORE  # not for long enough
    times.empty([0, 2], 5 * SECOND)
    assert times.advance()
    assert (times.now, times.idle) == (28 * SECOND, False)
    times.empty([1], 5 * SECOND)
    times.advance()
    assert (times.now, times.sent, times.idle) == (28 * SECOND, 28 * SECOND, True)  # all are idle: the greatest
    _late(times, 0, [11, 12], 6 * SECOND)
    assert times.advance()
    assert (times.now, times.sent, times.idle) == (28 * SECOND, 10 * SECOND, False)  # what is sent speaks of it
    _late(times, 0, [31, 33], 6 * SECOND)
    times.advance()
    assert (times.now, times.sent, times.idle) == (31 * SECOND, 31 * SECOND, False)


def test_a_partition_is_idle_by_when_it_was_said_to_be_empty() -> None:
    """A frame that says so may wait for long, and records of the partition behind it."""
    times = PartitionTimes(TIMES, [0, 1], 0, {})
    _late(times, 0, [10], 1 * SECOND)
    _late(times, 1, [30], 100 * SECOND)  # so the frames waited for 94 s before they were worked on
    times.empty([0], 6 * SECOND - 1)
    times.advance()
    assert times.now == 8 * SECOND
    times.empty([0], 6 * SECOND)
    times.advance()
    assert times.now == 28 * SECOND


def test_the_rest_of_a_micro_batch_was_empty_when_it_began() -> None:
    saved = {0: (10 * SECOND, 0), 1: (20 * SECOND, 0)}
    for read_s, began_s, watermark in ((4, 90, 8), (5, 90, 28), (90, 4, 8), (90, 5, 28)):
        times = PartitionTimes(TIMES, [0, 1], began_s * SECOND, saved)
        _late(times, 1, [30], read_s * SECOND)
        _late(times, 1, [30], 99 * SECOND)
        times.rest_is_empty()
        times.advance()
        assert times.now == watermark * SECOND
    times = PartitionTimes(TIMES, [0, 1], 5 * SECOND, saved)
    times.rest_is_empty()
    times.advance()
    assert (times.now, times.idle) == (18 * SECOND, True)


def test_a_partition_with_records_that_nobody_reads_is_not_idle() -> None:
    times = PartitionTimes(TIMES, [0, 1], 0, {0: (0, 0), 1: (40 * SECOND, 0)})
    times.advance()
    assert (times.now, times.idle) == (-2 * SECOND, False)


def test_a_receiver_takes_the_least_of_all_instances_and_never_goes_back() -> None:
    marks = Watermarks({3: 2, 4: 1})
    marks.mark(3, 0, 10, False)
    marks.mark(4, 0, 12, False)
    assert not marks.advance()  # one instance has not said anything
    marks.mark(3, 1, 8, False)
    assert marks.advance()
    assert marks.now == 8
    marks.mark(3, 1, 9, True)
    marks.advance()
    assert (marks.now, marks.idle) == (10, False)
    marks.mark(3, 1, 9, False)
    assert marks.advance()
    assert (marks.now, marks.sent) == (10, 9)
    marks.mark(3, 1, 9, False)
    assert not marks.advance()
    for sender, instance, at in ((3, 0, 14), (3, 1, 9), (4, 0, 12)):
        marks.mark(sender, instance, at, True)
    marks.advance()
    assert (marks.now, marks.sent, marks.idle) == (14, 14, True)
    marks.mark(4, 0, 12, False)
    assert marks.advance()
    assert (marks.now, marks.sent, marks.idle) == (14, 12, False)
    # behind it another receiver has an active sender at 13, and must not go on to 14 with it before the woken one has
    behind = Watermarks({0: 1, 1: 1})
    for at in (13, 20):
        behind.mark(0, 0, marks.sent, marks.idle)
        behind.mark(1, 0, at, False)
        behind.advance()
    assert behind.now == 12


def test_times_are_microseconds_whatever_the_column() -> None:
    moment = datetime(2020, 5, 1, 12, 0, 0, 250_000, UTC)
    exact = round(moment.timestamp() * 1e6)
    for kind in (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Rome"), pa.timestamp("ns", "UTC")):
        assert micros(pa.array([moment], kind)).tolist() == [exact]
    assert micros(pa.array([moment.timestamp()])).tolist() == [exact]
    assert micros(pa.array([date(2020, 5, 1)])).tolist() == [exact - 43200 * SECOND - 250_000]
    for same_moment in (moment, moment.replace(tzinfo=None)):
        assert one_micros(same_moment, pa.timestamp("us", "UTC")) == exact
    assert one_micros(moment.timestamp(), pa.float64()) == one_micros(exact, pa.int64()) == exact
    for missing in (None, float("nan"), float("inf")):
        with pytest.raises(SourceError, match="a record with the event time"):
            micros(pa.array([1.0, missing]))
    with pytest.raises(SchemaError, match="cast it"):
        micros(pa.array([5]))


@pytest.mark.parametrize("wrong", [{"delay_s": -1.0}, {"lateness_s": "1"}, {"idle_s": float("nan")}, {"time": 3}])
def test_an_impossible_event_time_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="as in EventTime"):
        EventTime(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"size_s": 0},
        {"size_s": 10, "gap_s": 1},
        {"size_s": 10, "slide_s": 3},
        {"size_s": 10, "slide_s": 20},
        {"slide_s": 2},
        {"count": 1.5},
        {"count": 3, "slide": 4},
        {"gap_s": 1, "of": len},
        {"time": ("a", "b"), "size_s": 1},
        {"time": ("a",)},
    ],
)
def test_impossible_windows_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        windowed("key int64, value int64", **({"key": "key", "time": "at"} | wrong))


def test_columns_that_no_result_has_are_refused() -> None:
    with pytest.raises(SchemaError, match="some of"):
        windowed("key int64, n int64", key="key", time="at", size_s=1)
    with pytest.raises(SchemaError, match="float64 seconds, or a timestamp"):
        windowed("key int64, end int64", key="key", time="at", size_s=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "value"},
        {"state": pa.struct({"end": pa.float64()}), "of": dict, "merge": dict.__or__},
        {"state": pa.struct({"start": pa.float64()}), "of": dict, "merge": dict.__or__},
    ],
)
def test_values_that_have_the_names_of_other_columns_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="value"):
        windowed("end float64", **({"key": "key", "time": "at", "size_s": 1} | wrong))


RECORD = "key int64, at float64"
COUNT = windowed("key int64, value int64", key="key", time="at", size_s=1)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"window": COUNT}, "EventTime"),
        ({"read": EventTime("missing"), "window": COUNT}, "'missing'"),
        ({"read": EventTime("key"), "window": COUNT}, "cast it"),
        ({"read": EventTime("at", late="nobody"), "window": COUNT}, "add the edge"),
        ({"read": arrow(same, "key int64", event_time=EventTime("at")), "window": COUNT}, "the event time 'at'"),
        ({"window": arrow(same, RECORD, event_time=EventTime("at"))}, "a source"),
    ],
)
def test_a_job_without_the_event_time_that_it_needs_is_refused(functions: dict[str, Any], words: str) -> None:
    source = TraceSource(workload.Constant(1), schema=RECORD)
    with pytest.raises(TopologyError, match=words):
        line.functions(Topology.chain("read", "window"), functions, {"read": source})


def _windows_of_windows(lateness_s: float, later: str = "pair") -> None:
    counted = windowed(
        "key int64, start float64, end float64, value int64", key="key", time="at", size_s=1, late="late"
    )
    second = {"pair": {"time": ("start", "end")}, "size": {"time": "end", "size_s": 4}}[later]
    functions = {
        "read": EventTime("at", lateness_s=lateness_s),
        "window": counted,
        "pass": arrow(same, counted.schema),
        "second": windowed("key int64, value int64", key="key", **second),
        "late": windowed("key int64, value int64", key="key", time="at", size_s=1),  # of records, not of results
    }
    topology = Topology(
        Topology.chain(*functions).operators,
        (("read", "window"), ("window", "pass"), ("pass", "second"), ("window", "late")),
    )
    line.functions(topology, functions, {"read": TraceSource(workload.Constant(1), schema=RECORD)})


@pytest.mark.parametrize("later", ["pair", "size"])
def test_windows_of_results_that_are_corrected_are_refused(later: str) -> None:
    _windows_of_windows(0.0, later)
    with pytest.raises(TopologyError, match="'second', whose windows are of results of 'window'"):
        _windows_of_windows(1.0, later)


def test_a_log_has_a_time_of_its_own() -> None:
    source = TraceSource(workload.Constant(1))
    found = line.functions(Topology.chain("read", "x"), {"read": EventTime(), "x": arrow(same)}, {"read": source})
    schema = found["read"].schema
    assert schema is not None
    assert schema.field("event_time").type == pa.timestamp("us", "UTC")
    batch = pa.RecordBatch.from_pydict({"id": [1]})
    assert EventTime().with_own_time(batch, np.array([5])).column("event_time").cast(pa.int64()).to_pylist() == [5]
    with pytest.raises(SchemaError, match="a log with a column"):
        EventTime().sends(as_schema("event_time float64"))


def _identity(lateness_s: float) -> dict[str, Any]:
    topology, source = Topology.chain("read", "window"), TraceSource(workload.Constant(1), schema=RECORD)
    given = {"read": EventTime("at", lateness_s=lateness_s), "window": COUNT}
    return line.identity(topology, line.functions(topology, given, {"read": source}), {"read": source})


def test_the_lateness_of_a_checkpoint_can_only_become_smaller(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.take()
    for lateness_s in (5.0, 5.0, 2.0):
        checkpoint.identify(_identity(lateness_s))
    for larger in (2.5, 5.0):
        with pytest.raises(CheckpointError, match=f"lateness_s of 2.0 at the source of 'window', and {larger} now"):
            checkpoint.identify(_identity(larger))
        with pytest.raises(CheckpointError, match=r"savepoint x of a job with a lateness_s of 2\.0"):
            savepoint._check_job(_identity(2.0), _identity(larger), {}, {}, Path("x"))
    checkpoint.identify(_identity(1.0))
    checkpoint.release()


# Timers

SENT = as_schema("user int64, at float64")
UNTIL = pa.struct({"n": pa.int64(), "until": pa.float64()})


def forgetful(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    """Counts each user's records, and forgets users three seconds after their last one."""
    for batch in batches:
        if batch.schema.metadata[b"from"] == b"timers":
            for user in batch.column("user").to_pylist():
                del known[user]
        else:
            for user, at in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                known[user] = {"n": known[user]["n"] + 1 if user in known else 1, "until": at + 3}
    yield from ()


def unmoved(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for batch in batches:
        for user in batch.column("user").to_pylist():
            known.setdefault(user, {"n": 0, "until": 1.0})
    yield from ()


def unnamed(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    for batch in batches:
        for user in batch.column("user").to_pylist():
            known[user] = {"n": 0}
    yield from ()


def _frames(batches: list[dict[str, list[Any]]], marks: list[float], k: int) -> list[list[pa.RecordBatch]]:
    """For each instance its frames, each followed by a watermark, in seconds."""
    given: list[list[pa.RecordBatch]] = [[] for _ in range(k)]
    edge = Edge(0, 1, stamped(SENT, "read"), "user", k)
    for batch, mark in zip(batches, marks, strict=True):
        made = pa.RecordBatch.from_pydict(batch, schema=SENT)
        zeros = pa.array(np.zeros(made.num_rows, np.int64))
        for frame in edge.frames(pa.RecordBatch.from_arrays([*made.columns, zeros, zeros], schema=edge.schema)):
            given[frame[2]].append(wire([(*frame, 100)]))
        for p in range(k):
            given[p].append(wire([(1, 0, p, watermarks.pack(0, round(mark * SECOND), False), MARK)]))
    return given


def _epoch(
    folder: Path, function: Any, number: int, k: int, batches: list[dict[str, list[Any]]], marks: list[float]
) -> dict[Any, Any]:
    stage = tasks.stage(keyed(function, key="user", state=UNTIL, timer="until"), folder, SENT, timed=True)
    plan = state.begin_epoch(folder, number, (1, k))
    for instance, rows in enumerate(_frames(batches, marks, k)):
        tasks.run(stage, plan, instance, rows)
    table = store.operator_state(folder, plan, 1)
    return dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))


def test_timers_survive_epochs_rescales_and_other_processes(tmp_path: Path) -> None:
    first = [{"user": [1, 2, 3], "at": [0.0, 1.0, 2.0]}, {"user": [1, 4], "at": [4.0, 4.5]}]
    assert _epoch(tmp_path, forgetful, 0, 2, first, [0.0, 3.9]) == {
        1: {"n": 2, "until": 7.0},
        3: {"n": 1, "until": 5.0},
        2: {"n": 1, "until": 4.0},
        4: {"n": 1, "until": 7.5},
    }
    store._OPEN.clear()  # another process: timers are found in the runs
    assert set(_epoch(tmp_path, forgetful, 1, 3, [{"user": [3], "at": [4.9]}], [7.0])) == {3, 4}
    assert set(_epoch(tmp_path, forgetful, 2, 3, [{"user": [], "at": []}], [7.5])) == {3}  # the same process
    assert _epoch(tmp_path, forgetful, 3, 1, [{"user": [], "at": []}], [9.0]) == {}


def test_a_timer_is_set_again_before_it_is_due(tmp_path: Path) -> None:
    batches = [{"user": [1], "at": [float(at)]} for at in range(10)]
    found = _epoch(tmp_path, forgetful, 0, 1, batches, [at + 2.5 for at in range(10)])
    assert found == {1: {"n": 10, "until": 12.0}}


def meddling(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    """Sets the timer of user 0 while it works on others: later for users below 10, otherwise to the past."""
    for batch in batches:
        timers = batch.schema.metadata[b"from"] == b"timers"
        for user in batch.column("user").to_pylist():
            if timers:
                del known[user]
            else:
                known[user] = {"n": 0, "until": 5.0}
                known[0] = {"n": user, "until": 9.0 if user < 10 else 1.0}
    yield from ()


def test_a_timer_that_was_changed_for_another_key_counts_by_the_end_of_the_epoch(tmp_path: Path) -> None:
    batches = [{"user": [0], "at": [0.0]}, {"user": [1], "at": [0.0]}]
    assert set(_epoch(tmp_path, meddling, 0, 1, batches, [4.0, 6.0])) == {0}
    assert _epoch(tmp_path, meddling, 1, 1, [{"user": [11], "at": [0.0]}], [6.0]) == {}


@pytest.mark.parametrize(("function", "words"), [(unmoved, "later after its timer"), (unnamed, "in its field 'until'")])
def test_a_timer_that_is_not_moved_or_missing_is_an_error(function: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(OperatorFailed, match=words):
        _epoch(tmp_path, function, 0, 1, [{"user": [1], "at": [0.0]}], [2.0])


@pytest.mark.parametrize(
    ("kind", "given", "micros"),
    [
        (pa.float64(), 3600, 3600 * SECOND),
        (pa.float64(), np.float64(1.5), 1_500_000),
        (pa.float64(), np.int64(2), 2 * SECOND),
        (pa.int64(), np.int64(5 * SECOND), 5 * SECOND),
        (pa.int64(), 5e6, 5 * SECOND),
        (pa.timestamp("ms"), datetime(1970, 1, 1, 1), 3600 * SECOND),
        (pa.timestamp("ns", "UTC"), datetime(1970, 1, 1, 1, tzinfo=UTC), 3600 * SECOND),
    ],
)
def test_the_unit_of_a_timer_is_that_of_its_declared_field_before_and_after_a_reload(
    kind: pa.DataType, given: Any, micros: int
) -> None:
    declared = KeyedState("count", ("user",), (pa.int64(),), pa.struct({"until": kind}), True)
    noted, loaded = Timers(declared, "until"), Timers(declared, "until")
    known = {1: {"until": given}}
    noted.note(known, [1])
    loaded.load([(declared.key_array([1]), declared.value_array([1], [known[1]]))])
    assert noted.earliest == loaded.earliest == micros


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.float64(), float("nan")),
        (pa.float64(), "3"),
        (pa.float64(), datetime(2020, 1, 1)),
        (pa.float64(), True),
        (pa.int64(), 0.5),
        (pa.int64(), float("inf")),
        (pa.int64(), datetime(2020, 1, 1)),
        (pa.timestamp("us"), 5.0),
        (pa.timestamp("us"), np.datetime64("2020-01-01")),
    ],
)
def test_a_timer_in_another_unit_is_an_error(kind: pa.DataType, given: Any) -> None:
    declared = KeyedState("count", ("user",), (pa.int64(),), pa.struct({"until": kind}), True)
    with pytest.raises(FunctionError, match=f"in its field 'until', of {kind}".replace("[", ".").replace("]", ".")):
        Timers(declared, "until").note({1: {"until": given}}, [1])


def behind(batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
    """Sets the timers of its users when the input has ended."""
    users = []
    for batch in batches:
        for user in batch.column("user").to_pylist():
            if batch.schema.metadata[b"from"] == b"timers":
                del known[user]
            else:
                users.append(user)
    known.update({user: {"n": 0, "until": 5.0 if user else float("nan")} for user in users})
    yield from ()


def test_a_timer_that_is_set_behind_the_input_counts_from_the_next_epoch_on(tmp_path: Path) -> None:
    assert set(_epoch(tmp_path, behind, 0, 1, [{"user": [1], "at": [0.0]}], [1.0])) == {1}
    assert set(_epoch(tmp_path, behind, 1, 1, [{"user": [2], "at": [0.0]}], [6.0])) == {2}


def test_a_wrong_timer_behind_the_input_is_an_error_and_not_committed(tmp_path: Path) -> None:
    with pytest.raises(OperatorFailed, match="in its field 'until'"):
        _epoch(tmp_path, behind, 0, 1, [{"user": [0], "at": [0.0]}], [1.0])
    assert not list(tmp_path.glob("state/*/*"))


def test_timers_need_a_field_of_the_state() -> None:
    for kind in (pa.int64(), pa.struct({"until": pa.string()}), pa.struct({"n": pa.int64()})):
        with pytest.raises(SchemaError, match="a field of the state"):
            keyed(forgetful, key="user", state=kind, timer="until")


def test_time_goes_on_from_the_checkpoint_and_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    _epoch(tmp_path, forgetful, 0, 2, [{"user": [1], "at": [0.0]}], [2.0])
    plan = state.read_plan(tmp_path, 0)
    assert plan is not None
    kept = watermarks.load(tmp_path, plan, 1)
    assert kept == [{"watermark": 2 * SECOND}] * 2
    path = next(tmp_path.glob("state/*/time-1-1.json"))
    path.write_bytes(path.read_bytes().replace(b"2000000", b"9000000"))
    with pytest.raises((CheckpointError, OperatorFailed), match="checksum"):
        _epoch(tmp_path, forgetful, 1, 1, [{"user": [1], "at": [0.0]}], [2.0])
