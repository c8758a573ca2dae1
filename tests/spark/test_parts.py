"""The parts of a live job that need no Spark: frames, key groups, state files, the log, snapshots."""

from __future__ import annotations

import contextlib
import itertools
import math
import pickle
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import live
import tasks
from dspkit import Deployment, Topology, workload
from dspkit.apps import autrascale as words
from dspkit.apps.live import Service
from dspkit.core import ArgumentError, Latency
from dspkit.spark import CheckpointError, QueryError, SparkJob, TraceSource, TurnedSource
from dspkit.spark.dataflow import exchange, state, store
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.dataflow.exchange import Edge, Records, owners, stamped
from dspkit.spark.dataflow.state import KeyedState, Plan
from dspkit.spark.functions import as_schema
from dspkit.spark.metering import EVERY_S, Clock, Collector, ObservedWindow, Totals, snapshot
from dspkit.spark.runtime import cluster as processes
from dspkit.spark.runtime import supervisor
from dspkit.spark.runtime import workers as nodes
from dspkit.spark.runtime.supervisor import HEADROOM, STALL_S, TARGET_S, Progress, StallWatch, Supervisor, allowance
from dspkit.spark.sources.log import LogTailer, close_all

SCHEMA = stamped(as_schema("word string, n int64"), "split")
NUMBERS = KeyedState("count", ("n",), (pa.int64(),), pa.int64(), single=True)


def _batch(words: list[str]) -> pa.RecordBatch:
    n = len(words)
    columns = [pa.array(words, pa.string()), pa.array(range(n), pa.int64())]
    return pa.RecordBatch.from_arrays([*columns, pa.array(range(n), pa.int64()), pa.array([7] * n)], schema=SCHEMA)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=200), st.integers(1, 9))
def test_frames_bring_each_record_once_and_all_of_a_key_to_one_instance(words: list[str], k: int) -> None:
    owners: dict[str, set[int]] = {}
    found: list[tuple[str, int]] = []
    for _, _, instance, frame in Edge(0, 1, SCHEMA, "word", k).frames(_batch(words)):
        assert 0 <= instance < k
        records = Records.unpack(frame, SCHEMA)
        assert records.batch.schema.metadata == {b"from": b"split"}
        got = records.batch.to_pydict()
        found += zip(got["word"], got["n"], strict=True)
        assert records.event.tolist() == got["n"]  # stamps travel with their records
        for word in got["word"]:
            owners.setdefault(word, set()).add(instance)
    assert sorted(found, key=lambda pair: pair[1]) == [(word, i) for i, word in enumerate(words)]
    assert all(len(each) == 1 for each in owners.values())


@given(st.integers(1, 500), st.integers(1, 9))
def test_without_a_key_records_are_spread_evenly(rows: int, k: int) -> None:
    edge = Edge(0, 1, SCHEMA, "", k)
    got: Counter[int] = Counter()
    for _ in range(k):
        for _, _, instance, frame in edge.frames(_batch(["x"] * rows)):
            got[instance] += Records.unpack(frame, SCHEMA).batch.num_rows
    assert sum(got.values()) == edge.sent == rows * k
    assert max(got.values()) - min(got.values()) <= k


@given(
    st.dictionaries(st.integers(), st.integers(0, 9), max_size=60), st.lists(st.integers(1, 6), min_size=1, max_size=4)
)
def test_state_survives_any_change_of_parallelism(known: dict[int, int], ks: list[int]) -> None:
    import tempfile

    known = {k % 2**62: v for k, v in known.items()}
    left = dict(known)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for epoch, k in enumerate(ks):
            plan = state.begin_epoch(folder, epoch, (k,))
            after: dict[int, int] = {}
            for i in range(k):
                own = tasks.read_state(folder, plan, 0, i, NUMBERS)
                if epoch == 0:
                    own = {key: v for key, v in known.items() if owners(pa.array([key]), k)[0] == i}
                tasks.save_state(folder, plan, 0, i, NUMBERS, own)
                assert not set(own) & set(after)
                after |= own
            assert after == left
            table = store.operator_state(folder, plan, 0)
            assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == known


def test_a_try_that_came_to_nothing_is_never_read(tmp_path: Path) -> None:
    first = state.begin_epoch(tmp_path, 0, (1,))
    tasks.save_state(tmp_path, first, 0, 0, NUMBERS, {1: 1})
    died = state.begin_epoch(tmp_path, 1, (2,))
    tasks.save_state(
        tmp_path, died, 0, int(owners(pa.array([1]), 2)[0]), NUMBERS, {1: 99}
    )  # one of two instances wrote, then the query died
    again = state.begin_epoch(tmp_path, 1, (1,))
    assert tasks.read_state(tmp_path, again, 0, 0, NUMBERS) == {1: 1}
    tasks.save_state(
        tmp_path, died, 0, 1 - int(owners(pa.array([1]), 2)[0]), NUMBERS, {}
    )  # a task that outlived its query
    tasks.save_state(tmp_path, again, 0, 0, NUMBERS, {1: 2})
    after = state.begin_epoch(tmp_path, 2, (3,))
    assert {k: v for i in range(3) for k, v in tasks.read_state(tmp_path, after, 0, i, NUMBERS).items()} == {1: 2}
    (tmp_path / "state" / again.token / "0-0.json").unlink()
    with pytest.raises(CheckpointError, match="keep a checkpoint's folder whole"):
        tasks.read_state(tmp_path, after, 0, 0, NUMBERS)


def test_plans_say_the_same_after_a_round_trip() -> None:
    plan = Plan(3, "3-x", (1, 2), Plan(2, "2-y", (2, 2)))
    assert Plan.parse(plan.text()) == plan


LOADS = [workload.Constant(100), workload.Jump(10, 50, 20), workload.Sine(100, 50, 30), workload.Square(0, 40, 10)]


@pytest.mark.parametrize("load", LOADS, ids=repr)
def test_records_come_about_when_the_load_has_offered_them(load: workload.Workload) -> None:
    source = TraceSource(load, partitions=3, horizon_s=60)
    words = [123, 1_000_000]
    for p in range(3):
        words += [p, 0, 400]
    records, read = source.records(np.array(words, "<i8").tobytes(), {})
    assert read == {0: 400, 1: 400, 2: 400}
    assert records.batch.column("id").to_pylist() == list(range(1200))
    seconds = (records.event - 1_000_000) * 1e-6
    assert (np.diff(seconds) >= 0).all()
    grid = np.arange(0, float(seconds[-1]), 0.05)  # the load's own integral, by the midpoint rule on a finer grid
    integral = np.concatenate([[0], np.cumsum(load.rates(grid + 0.025) * 0.05)])
    counted = np.searchsorted(seconds, np.append(grid, grid[-1] + 0.05), side="right")
    assert np.abs(counted - np.minimum(integral, 1200)).max() <= 2 + 0.01 * integral[-1]
    for second in (0.0, 5.5, 30.0):
        exact = float(load.rates(np.arange(0, second, 0.01) + 0.005).sum()) / 100
        assert source.offered(second) == pytest.approx(exact, abs=2)


def test_beyond_its_horizon_a_log_goes_on_at_its_last_rate() -> None:
    source = TraceSource(workload.Jump(10, 50, 20), horizon_s=40)
    assert source.offered(100) == pytest.approx(20 * 10 + 80 * 50)
    records, _ = source.records(np.array([0, 0, 3, 100, 101], "<i8").tobytes(), {})  # record 1603
    assert records.event[0] * 1e-6 == pytest.approx(20 + (1604 - 200) / 50)


def test_a_turned_load_is_its_integral_and_each_record_is_the_same_when_it_is_read_again(tmp_path, monkeypatch) -> None:
    """Against the integral of factor times rate in small steps; a job that continues finds the same records."""
    load, wave, turns = workload.Sine(200, 150, 40), 0.001, ((0.0, 1.0), (7.31, 2.5), (13.0, 0.0), (18.2, 0.4))
    now = {"factor": 1.0, "s": 0.0}
    monkeypatch.setattr(time, "time", lambda: 1_000_000 + now["s"])
    trace = TraceSource(load, partitions=3, horizon_s=60, step_s=0.01)
    source = TurnedSource(trace, lambda: now["factor"]).at(tmp_path / "marks")
    tailer = LogTailer(source, lambda: [0, 0, 0])
    assert sum(tailer.counts) == 0  # it does not fill before the job has begun
    tailer.began(1_000_000, [0, 0, 0])
    times = np.arange(0, 30, wave) + wave / 2
    factors = np.select([times >= at for at, _ in reversed(turns)], [factor for _, factor in reversed(turns)])
    offered = np.cumsum(factors * load.rates(times) * wave)
    for (at, factor), until in zip(turns, (7.31, 13.0, 18.2, 30.0), strict=True):
        now["factor"] = factor
        for now["s"] in (at, (at + until) / 2, until):
            tailer._look()
            assert sum(tailer.counts) == pytest.approx(np.interp(now["s"], times, offered), abs=2)
    whole = sum(tailer.counts)
    stretches = [(p, 0, count) for p, count in enumerate(tailer.counts)]
    frame = np.array([5, 1_000_000_000_000, *itertools.chain(*stretches)], "<i8").tobytes()
    close_all()
    worker = pickle.loads(pickle.dumps(source))  # a task's, which has no slider
    records, read_to = worker.records(frame, {})
    assert records.batch.column("id").to_pylist() == list(range(whole))
    assert read_to == dict(enumerate(tailer.counts))
    seconds = (records.event - 1_000_000_000_000) / 1e6
    assert np.interp(seconds, times, offered) == pytest.approx(np.arange(1, whole + 1), abs=2)
    assert not ((seconds > 13.05) & (seconds < 18.15)).any()  # nothing arrives at a factor of 0
    half = np.array([5, 1_000_000_000_000, 1, 40, tailer.counts[1]], "<i8")
    again, _ = worker.records(half.tobytes(), {})
    same = (np.arange(whole) % 3 == 1) & (np.arange(whole) >= 121)
    assert again.event.tolist() == records.event[same].tolist()
    assert worker.partition_of(half[2:].reshape(-1, 3)).tolist() == [1] * (tailer.counts[1] - 40)
    close_all()
    now["factor"], now["s"] = 3.0, 33.0
    later = LogTailer(source, lambda: [0, 0, 0])  # of a job that continues: it changes nothing before it has begun
    assert sum(later.counts) <= whole
    later.began(1_000_000, tailer.counts)
    later._look()
    assert sum(later.counts) == pytest.approx(whole + 0.4 * load.rates(np.arange(30, 33, wave)).sum() * wave, abs=2)
    assert worker.records(frame, {})[0].event.tolist() == records.event.tolist()
    close_all()


def test_a_turned_load_that_continues_does_not_offer_its_history_again(tmp_path) -> None:
    """The first window after a restart begins with what the log has by then, and a new log with nothing."""
    source = TurnedSource(TraceSource(workload.Constant(500), partitions=2), lambda: 1.0).at(tmp_path / "marks")
    for ago in (-0.2, 100.0):  # a log that is about to begin, and one that began long ago
        tailer = LogTailer(source, lambda: [0, 0])
        tailer.start(lambda counts: None)
        time.sleep(0.1)
        now = time.time()
        try:
            tailer.began(now - ago, [0, 0])
            assert tailer.offered(now) == pytest.approx(500 * max(0.0, ago), abs=2_500)  # of a busy machine, 5 s
            if ago < 0:
                assert tailer.offered(now) == 0
        finally:
            tailer.close()
    assert tailer.error is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_turned_load_never_falls_when_the_clock_is_set_back(restarted, tmp_path, monkeypatch) -> None:
    """A mark below what was read gave other records the numbers of those that a job had read."""
    now = {"factor": 2.0, "s": 20.0}
    monkeypatch.setattr(time, "time", lambda: 1_000_000 + now["s"])
    trace = TraceSource(workload.Constant(50), partitions=3, horizon_s=60)
    source = TurnedSource(trace, lambda: now["factor"]).at(tmp_path / "marks")
    tailer = LogTailer(source, lambda: [0, 0, 0])
    tailer.began(1_000_000, [0, 0, 0])
    tailer._look()
    read = list(tailer.counts)
    assert sum(read) == 2_000
    frame = np.array(
        [5, 1_000_000_000_000, *itertools.chain(*((p, 0, n) for p, n in enumerate(read)))], "<i8"
    ).tobytes()
    first = source.records(frame, {})[0].event.tolist()
    now["s"] = 5.0
    if restarted:
        tailer = LogTailer(source, lambda: [0, 0, 0])
        tailer.began(1_000_000, read)
    for factor in (3.0, 0.5):
        now["factor"] = factor
        tailer._look()
        assert tailer.counts == read
    now["s"] = 24.0
    tailer._look()
    assert sum(tailer.counts) == pytest.approx(2_000 + 4 * 25, abs=1)
    assert source.records(frame, {})[0].event.tolist() == first
    close_all()


def test_a_window_without_any_reading_says_that_nothing_was_measured() -> None:
    topology = Topology.chain("a", "b")
    window = ObservedWindow(
        0, 5, Deployment({"a": 1, "b": 2}), "pipelined", {"a": 50.0}, {"a": 50.0}, ((1.0, 2.5), (4.0, 9.0)), {}
    )
    got = snapshot(topology, ("a", "b"), window, Totals(), Totals())
    assert got.latency is None
    assert got.operators["b"].true_rate is None
    assert (got.source_rate, got.throughput, got.lag, got.downtime_s) == (10, 0, 50, 2.5)


def test_a_record_split_over_branches_is_counted_once() -> None:
    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    done = {0: 100, 1: 100, 2: 100, 3: 350}  # l sends three for one, r a half for one
    sent = {0: {1: 100, 2: 100}, 1: {3: 300}, 2: {3: 50}, 3: {}}
    after = Totals(
        {i: Counter({"done": done[i], "busy": 1} | {f"edge {v}": n for v, n in sent[i].items()}) for i in done}
    )
    window = ObservedWindow(0, 1, Deployment(topology.uniform()), "pipelined", {"s": 100.0}, {"s": 0.0}, (), {})
    got = snapshot(topology, ("s", "l", "r", "j"), window, Totals(), after)
    assert got.throughput == pytest.approx(100)
    assert got.operators["s"].output_rate == 200


def test_word_count_counts_the_words_of_its_lines() -> None:
    batch = words.lines(np.arange(500), np.zeros(500))
    truth = Counter(word for line in batch.column("line").to_pylist() for word in line.split())
    assert sum(truth.values()) == 500 * words.WORDS_PER_LINE
    known: dict[str, int] = {}
    (told,) = words.count(words.flat_map(iter((batch,))), known)
    assert known == truth
    assert dict(zip(*(column.to_pylist() for column in told.columns), strict=True)) == truth


def test_a_service_time_below_zero_is_refused() -> None:
    with pytest.raises(ArgumentError, match="micros"):
        Service(-1)


def test_a_folder_that_cannot_be_one_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="folder to write in"):
        Checkpoint(tmp_path / "file").take()
    assert Checkpoint(tmp_path / "new").committed() == -1


def _readings(**operators: dict[str, float]) -> Totals:
    counts = {int(name[1:]): Counter(each) for name, each in operators.items()}
    return Totals(counts, {i: Counter(each) for i, each in counts.items()})


def test_sources_may_take_what_the_slowest_operator_can_do() -> None:
    inputs = {0: (), 1: (0,), 2: (1,)}
    nothing = _readings()
    assert allowance(nothing, nothing, [1, 1, 1], inputs)[0] == 512  # a first few, to measure by
    waits = _readings(o0={"done": 300, "busy": 0.1, "edge 1": 300}, o1={"busy": 0.2})
    assert allowance(nothing, waits, [1, 1, 1], inputs)[0] == 212  # the first are at work, for an unknown time
    drops = _readings(o0={"done": 3000, "busy": 0.1})
    assert allowance(nothing, drops, [1, 1, 1], inputs)[0] == 3000  # as many again: the others are still idle
    fast = _readings(
        o0={"done": 300, "busy": 0.1, "edge 1": 300}, o1={"done": 300, "busy": 1e-3, "edge 2": 600}, o2={"busy": 0.2}
    )
    # The last operator is still at the first frame. 600 of its records are 300 of the sources'.
    assert allowance(nothing, fast, [1, 1, 1], inputs) == (212, 64)
    # 1 does 1000 a second and sends two for one, of which 2 does 500 a second with each of its 3 instances: the sources
    # may take 750 a second, for the time between two words and what may wait.
    steady = _readings(
        o0={"done": 300, "busy": 0.1, "edge 1": 300},
        o1={"done": 300, "busy": 0.3, "edge 2": 600},
        o2={"done": 600, "busy": 1.2},
    )
    may, in_one_frame = allowance(nothing, steady, [1, 1, 3], inputs)
    assert may == pytest.approx(HEADROOM * 750 * (EVERY_S + TARGET_S), abs=1)
    assert in_one_frame == 250 // 50  # of 2's instances one does those of 250 source records per second: 20 ms of work
    # On a machine where 2's instances wait for cores in three quarters of that time, frames are four times as large.
    crowded = Totals(steady.operators | {2: steady.operators[2] | Counter({"work": 0.3})}, steady.epoch)
    assert allowance(nothing, crowded, [1, 1, 3], inputs) == (may, 4 * 250 // 50)
    full = _readings(o0={"done": 1300, "busy": 0.1, "edge 1": 1300}, o1=steady.operators[1], o2=steady.operators[2])
    for before in (nothing, full):  # a second's work waits; also when no source took anything of late
        assert allowance(before, full, [1, 1, 3], inputs)[0] == 0


def _started(
    costs_s: Sequence[float], seconds: float, sends: Sequence[float], last_begins_s: float = 0.0
) -> list[tuple[float, float]]:
    """Return what a chain has in flight, and what has left it, at each reading after the start of an overloaded job.

    Every operator does what it can in steps of 10 ms, the sources take what they may; `sends` are records per record.
    The last operator loads something first.
    """
    inputs = {i: (i - 1,) if i else () for i in range(len(costs_s))}
    done, busy, seen = [0.0] * len(costs_s), [0.0] * len(costs_s), deque[Totals](maxlen=10)
    credit, steps, found = 512.0, round(EVERY_S / 0.01), []
    for reading in range(round(seconds / EVERY_S)):
        for _ in range(steps):
            for i, cost in enumerate(costs_s):
                there = credit if i == 0 else done[i - 1] * sends[i - 1] - done[i]
                works = i < len(costs_s) - 1 or reading * EVERY_S >= last_begins_s
                did = min(there, 0.01 / cost) if works else 0.0
                done[i], busy[i] = done[i] + did, busy[i] + did * cost
                credit -= did if i == 0 else 0
        counts = {f"o{i}": {"done": done[i], "busy": busy[i]} for i in range(len(done))}
        for i in range(len(done) - 1):
            counts[f"o{i}"][f"edge {i + 1}"] = done[i] * sends[i]
        seen.append(_readings(**counts))
        credit = allowance(seen[0], seen[-1], [1] * len(costs_s), inputs)[0]
        made = math.prod(sends[:-1])
        found.append((done[0] - done[-1] / made, done[-1] / made))
    return found


def test_a_slow_operator_is_not_flooded_before_it_is_measured() -> None:
    """As many records are in flight at the start as later on, or a few hundred, though the others are fast."""
    for slow, sends, begins_s in ((1e-3, 1.0, 0.0), (1e-3, 1.0, 1.0), (1e-4, 1.0, 2.0), (2.5e-4, 4.0, 1.0)):
        flying = [each for each, _ in _started((1e-6, 1e-6, 2e-6, slow), 8, (1.0, 1.0, sends, 1.0), begins_s)]
        later = max(flying[-10:])
        assert later == pytest.approx(HEADROOM * (EVERY_S + TARGET_S) / (slow * sends), rel=0.5)
        assert max(flying) <= max(2 * 512, 1.2 * later)


def test_a_start_that_is_careful_costs_a_fast_job_little() -> None:
    """At 600,000 records/s the first second brings as much as a later one, but for the first readings."""
    made = [each for _, each in _started((1e-6, 1e-6, 1 / 6e5), 4, (1.0, 1.0, 1.0))]
    at = round(1 / EVERY_S)
    assert made[at - 1] > 0.5 * 6e5
    assert made[2 * at - 1] - made[at - 1] > 0.97 * 6e5


def test_nodes_share_the_time_between_two_readings() -> None:
    before, after = (10.0, {"a": 1.0, "gone": 5.0}), (14.0, {"a": 3.0, "new": 1.0, "over": 9.0})
    assert nodes.shares(before, after) == {"a": 0.5, "new": 0.25, "over": 1.0}
    assert nodes.shares(after, after) == {}
    first, second = nodes.machine(), nodes.machine()
    assert first[0] <= second[0]
    assert set(first[1]) == {"localhost"}


def test_what_runs_below_a_process_is_found_and_can_be_ended() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", code]) as parent, contextlib.ExitStack() as stack:
        stack.callback(parent.kill)
        found = live.until(lambda: (f := processes.below({parent.pid})) and "time.sleep(60)" in f[0].command and f, 50)
        assert all(p.resident_bytes > 0 for p in found)
        processes.kill(found, grace_s=0.0)
        assert parent.wait(30) is not None
    assert processes.below({parent.pid}) == []


def test_a_frame_that_a_query_emptied_still_says_how_many_came() -> None:
    schema = stamped(as_schema("n int64"), "somebody")
    records, seconds, worked = exchange.unpack_query(struct.pack("<qqq", 5_000_000, 2_000_000, 7), schema)
    assert (records.rows, records.batch.num_rows, seconds, worked) == (7, 0, 0.005, 0.002)
    assert records.batch.schema.names == ["n"]


@dataclass
class _Query:
    """An engine that dies as often as it is told, of one error."""

    deaths: list[str]

    def start(self, k: Any, zero_micros: int) -> None:
        pass

    def ready(self, timeout_s: float) -> bool:
        return True

    def alive(self) -> bool:
        return not self.deaths

    def error(self) -> Exception:
        return RuntimeError(self.deaths.pop())

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("why", "deaths", "given_up"),
    [("ExecutorLostFailure", 5, False), ("ExecutorLostFailure", 11, True), ("broken", 1, False), ("broken", 3, True)],
)
def test_a_lost_machine_counts_little_against_the_restarts_of_a_job(why: str, deaths: int, given_up: bool) -> None:
    engine = _Query([why] * deaths)
    keeper = Supervisor(lambda: engine, lambda: 0, [1], 0, 2, lambda: None)  # type: ignore[arg-type, return-value]
    keeper.ready(1)
    end = time.monotonic() + 30
    while engine.deaths and keeper.failed is None and time.monotonic() < end:
        time.sleep(0.01)
    assert (keeper.failed is not None) == given_up
    keeper.thread.ended.set()


def test_a_query_that_stands_still_while_records_wait_is_reported_once_with_what_is_known() -> None:
    now, seen = [0.0], Progress(100, 5, 3, {"read": 1, "work": 2}, {"read": (1, 1, 0), "work": (4, 1, 0)})
    made = [seen]
    watch = StallWatch(lambda: made[0], lambda: now[0])

    def after(seconds: float, **changed: Any) -> str | None:
        now[0] += seconds
        made[0] = replace(made[0], **changed)
        return watch.look()

    assert after(STALL_S - 1) is None
    said = after(2, spent={"read": (1, 1, 31), "work": (66, 1, 0)}, waiting=5000)
    assert said is not None
    assert f"for {STALL_S + 1:.0f} s although 5,000 wait; in epoch 3" in said
    assert "read: 1 tasks, blocked by the next operator; work: 2 tasks, wait for input" in said
    assert after(10 * STALL_S) is None  # once
    assert after(1, done=101) is None
    assert after(STALL_S - 1) is None
    assert "work: 2 tasks, no reading since" in str(after(2))  # it stands still again
    assert after(0, epoch=4) is None
    for _ in range(5):
        assert after(STALL_S, waiting=0) is None  # without input nothing has to happen
    assert after(0, waiting=9, tasks={}) is None
    assert "no task runs" in str(after(STALL_S))


@dataclass
class _Still(_Query):
    """A query that runs."""


def test_the_supervisor_warns_of_a_query_that_stands_still_and_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STALL_S", 0.0)
    monkeypatch.setattr(supervisor, "_STALL_LOOK_S", 0.0)
    answers: list[Any] = [Progress(0, 7, -1, {}, {})]
    asked = Counter[str]()

    def progress() -> Progress:
        asked[type(answers[0]).__name__] += 1
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    keeper = Supervisor(lambda: _Still([]), lambda: 0, [1], 0, 2, lambda: None, progress=progress)  # type: ignore[arg-type, return-value]
    keeper.ready(1)
    end = time.monotonic() + 30
    while not caplog.records and time.monotonic() < end:
        time.sleep(0.01)
    answers[0] = OSError("nothing can be measured")
    while asked["OSError"] < 3 and time.monotonic() < end:
        time.sleep(0.01)
    (record,) = caplog.records
    assert "although 7 wait" in record.getMessage()
    assert asked["OSError"] >= 3  # it goes on
    assert keeper.failed is None
    keeper.thread.ended.set()


def test_a_change_that_ends_after_its_job_was_closed_reserves_no_slots():
    """`deploy` returns after some seconds; what continues beside the windows may end after `close`."""
    topology = Topology.chain("read", "count")
    wanted = Deployment(topology.uniform(3))
    job = object.__new__(SparkJob)
    nothing = Mock()

    def closed(*_: object) -> bool:
        job._open = False
        nodes.reserve(nothing, 0)
        return True

    watching = Mock(failed=None, rescale=closed)
    vars(job).update(
        topology=topology, _names=topology.order, execution="pipelined", _open=True, _workers=nothing, _drains=[],
        _collector=Mock(), _supervisor=watching, _changing=threading.Lock(), _wanted=wanted, _refused=None,
        _deployment=Deployment(topology.uniform(1)), _present=Deployment(topology.uniform(1)), _draining=math.inf,
    )  # fmt: skip
    before = nodes.reserved()
    nodes.reserve(nothing, 6)
    job._change(wanted)
    assert job._refused is None
    assert nodes.reserved() == before


@pytest.fixture
def no_slots_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs without Spark never close: the slots that they reserve would be taken from live ones."""
    monkeypatch.setattr(nodes, "_reserved", {})


def _changing(rescale: Any) -> tuple[SparkJob, Deployment, Deployment]:
    """Return a job without Spark, the deployment that it runs, and another one that it is asked for."""
    job: Any = object.__new__(SparkJob)
    before, wanted = Deployment({"read": 1, "work": 1}), Deployment({"read": 1, "work": 3})
    job.mode, job._names, job._open, job._refused = "realtime", ["read", "work"], True, None
    job._changing, job._drains, job._draining = threading.Lock(), [], math.inf
    job._wanted, job._present, job._deployment = wanted, before, before
    job._workers, job._collector, job._supervisor = Mock(), Mock(), Mock(failed=None)
    job._workers.count = None
    job._supervisor.rescale = rescale
    return job, before, wanted


@pytest.mark.usefixtures("no_slots_taken")
def test_a_change_that_fails_on_its_way_is_taken_back_and_the_next_one_is_carried_out() -> None:
    """The query died under it: the next epoch would have run what no snapshot said, and the change had no end."""
    asked: list[list[int]] = []

    def rescale(k: list[int], timeout_s: float) -> bool:
        asked.append(k)
        if len(asked) == 1:
            raise ConnectionError("Java does not answer")
        return True

    job, before, wanted = _changing(rescale)
    job._change(wanted)
    assert asked == [[1, 3], [1, 1]]
    assert job.deployment == job._present == before
    assert isinstance(job._refused, QueryError)
    job, before, wanted = _changing(rescale)
    asked.clear()
    other = job._wanted = Deployment({"read": 1, "work": 2})  # asked for meanwhile
    job._wanted = wanted
    real = job._supervisor.rescale

    def replaced(k: list[int], timeout_s: float) -> bool:
        job._wanted = other
        return bool(real(k, timeout_s))

    job._supervisor.rescale = replaced
    job._change(wanted)
    assert job._wanted is other
    job._supervisor.rescale = real
    job._change(other)
    assert job.deployment == job._present == other


@pytest.mark.usefixtures("no_slots_taken")
def test_a_worker_that_does_not_end_leaves_the_new_deployment_as_the_present_one() -> None:
    job, _, wanted = _changing(lambda k, timeout_s: True)
    job._workers.terminate = Mock(side_effect=OSError("it does not end"))
    job._change(wanted)
    assert job.deployment == job._present == wanted
    assert job._refused is not None


def test_waiting_for_slots_to_start_python_in_has_an_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled, spark, tags = threading.Event(), Mock(), []
    spark.sparkContext.master = "local[64]"
    spark.sparkContext.addJobTag = tags.append
    spark.sparkContext.cancelJobsWithTag = lambda tag: tags.remove(tag) or cancelled.set()

    def save() -> None:
        assert cancelled.wait(50), "it waits for ever"
        raise RuntimeError("the job was cancelled")

    own = Mock()
    own.range().mapInArrow().write.format().mode().save = save
    monkeypatch.setattr(nodes.session, "job_session", lambda spark: own)
    monkeypatch.setattr(nodes, "_WARM_S", 0.1)
    nodes.warm(spark)
    assert not tags
    assert "no slots for Python" in caplog.text
    monkeypatch.setattr(nodes, "_WARM_S", 60)
    with pytest.raises(RuntimeError, match="cancelled"):  # for another reason
        nodes.warm(spark)


def test_a_start_that_does_not_end_does_not_hold_up_the_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_CLOSE_S", 0.1)
    made = Supervisor(Mock(), lambda: 0, [1], 0, 1, lambda: None, lambda cause: "see there")
    begun, end = threading.Event(), threading.Event()

    def hold() -> None:
        with made._lock:
            begun.set()
            end.wait(50)

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(50)
    with pytest.raises(QueryError, match=r"starting again.*see there"):
        made.close(1)
    end.set()
    holder.join(50)
    made.close(1)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_windows_are_as_long_as_they_took_when_the_clock_is_set(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set back by an hour, a window had not ended for an hour; set forward, its rates were those of an hour."""
    seconds, moved = [1000.0], [0.0]

    def now() -> float:
        return 1e9 + seconds[0] + moved[0]

    def sleep(least: float) -> None:
        seconds[0] += max(least, 0.01)
        assert seconds[0] < 1100, "it waits for an hour"
        if seconds[0] > 1003.3:
            moved[0] = step

    monkeypatch.setattr("dspkit.spark.job.time", Mock(time=now, sleep=sleep))
    job, deployment, _ = _changing(Mock())
    job.topology = Topology.chain("read", "work")
    job._wanted = deployment
    job.window_s, job._last, job._until_token, job._unclear = 1.0, None, "", 0
    job._began = job._end = now()
    zero = now()
    job._logs = Mock(offered=lambda at: {"read": 100 * (at - zero)}, lag=lambda *_: {"read": 0.0})
    job._logs.failed, job._threads = None, []
    job._offered = job._logs.offered(job._end)
    job._workers.reading.return_value, job._workers.delays.return_value = (0.0, {}), {}
    job._cores = (0.0, {})
    made = snapshot
    known = Latency(0.1, 0.1, 0.1, 0.1)
    monkeypatch.setattr("dspkit.spark.job.snapshot", lambda *a: replace(made(*a), latency=known, event_latency=known))
    job._collector = Collector(clock=Clock(elapsed=lambda: seconds[0], now=now))
    try:
        job._before, job._moved_s = job._collector.totals(), job._collector.moved_s
        job._shares = None
        seen = [job.observe() for _ in range(8)]
    finally:
        job._collector.close()
    assert [each.window_s for each in seen] == pytest.approx([1.0] * 8, abs=0.3)
    assert [each.t for each in seen] == pytest.approx(list(range(1, 9)), abs=0.5)
    assert [each.latency is None for each in seen] == [False] * 3 + [True] * 2 + [False] * 3
    assert [each.event_latency is None for each in seen] == [each.latency is None for each in seen]
    rates = [round(each.source_rate, -1) for each in seen]
    if step < 0:  # the log's time is the clock's: its readers rest until the clock is there again, and so it is said
        assert (rates[:3], rates[4:]) == ([100] * 3, [0] * 4)
    else:
        assert sum(each.source_rate * each.window_s for each in seen) == pytest.approx(100 * (step + 8), rel=0.01)
