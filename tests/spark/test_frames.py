"""Frames from instance to instance, without Spark: nothing is lost, keys keep their order, frames stay large."""

from __future__ import annotations

import heapq
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit.core import Topology
from dspkit.spark import TraceSource, arrow, errors
from dspkit.spark.dataflow import plan as line
from dspkit.spark.dataflow.exchange import END, FEWEST, LARGEST, Edge, Records, Row, runs, stamped, wire
from dspkit.spark.dataflow.state import Plan
from dspkit.spark.dataflow.task import OperatorFailed, Stage, Task
from dspkit.spark.functions import Function, as_schema
from dspkit.spark.metering import MeterAddress
from dspkit.workload import Constant

SENT = "key int64, n int64"
SCHEMA = stamped(as_schema(SENT), "before")
JAVA = Path(errors.__file__).parent / "jvm"
LAST: Row = (END, END, 0, b"", 0)


def _numbered(ids: Any, event_s: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(ids % 7), pa.array(ids)], names=["key", "n"])


def _records(rows: int, first: int = 0) -> Records:
    ids = np.arange(first, first + rows)
    return Records(_numbered(ids, ids), ids * 10, ids * 20)


def _batch(rows: int) -> pa.RecordBatch:
    records = _records(rows)
    return records.stamp(records.batch, SCHEMA)


@given(st.integers(1, 3000), st.integers(1, 9), st.integers(1, 2000), st.booleans())
def test_each_record_is_in_one_frame_and_in_order(rows: int, k: int, most: int, keyed: bool) -> None:
    found: dict[int, list[int]] = defaultdict(list)
    edge = Edge(0, 1, SCHEMA, "key" if keyed else "", k)
    for _, _, instance, frame in edge.frames(_batch(rows), most):
        records = Records.unpack(frame, SCHEMA)
        found[instance] += records.batch.column("n").to_pylist()
        assert records.event.tolist() == [n * 10 for n in records.batch.column("n").to_pylist()]
        assert keyed or records.rows <= most
    assert sorted(n for each in found.values() for n in each) == list(range(rows))
    assert edge.sent == rows
    for each in found.values():
        assert each == sorted(each)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), max_size=40), st.integers(1, 500))
def test_frames_that_wait_are_merged_by_sender_in_their_order(frames: list[tuple[int, int]], most: int) -> None:
    first, parts, sent = 0, [], defaultdict(list)
    for sender, rows in frames:
        records = _records(rows, first)
        parts.append((sender, Records.unpack(records.stamp(records.batch, SCHEMA).serialize(), SCHEMA)))
        sent[sender] += range(first, first + rows)
        first += rows
    made = list(runs(parts, most))
    owner = {n: sender for sender, each in sent.items() for n in each}
    got = defaultdict(list)
    for records in made:
        numbers = records.batch.column("n").to_pylist()
        assert records.batch.schema.metadata == {b"from": b"before"}
        assert records.event.tolist() == [n * 10 for n in numbers]
        assert records.read.tolist() == [n * 20 for n in numbers]
        assert len({owner[n] for n in numbers}) <= 1
        assert records.rows <= max(most, *(rows for _, rows in frames))
        if numbers:
            got[owner[numbers[0]]] += numbers
    assert {s: n for s, n in got.items() if n} == {s: n for s, n in sent.items() if n}
    for sender in range(4):
        sizes: list[int] = []
        for rows in (rows for who, rows in frames if who == sender):
            if sizes and sizes[-1] + rows <= most:
                sizes[-1] += rows
            else:
                sizes.append(rows)
        assert [r.rows for r in made if r.rows and owner[r.batch.column("n")[0].as_py()] == sender] == [
            rows for rows in sizes if rows
        ]


def test_a_query_that_dropped_all_records_of_merged_frames_still_says_how_many_came() -> None:
    nothing = _records(0).batch
    none = np.zeros(0, np.int64)
    merged = Records.merged([Records(nothing, none, none, 5), Records(_records(3).batch, *2 * [np.arange(3)], 4)])
    assert (merged.rows, merged.batch.num_rows) == (9, 3)


@pytest.mark.parametrize("rows", [[(1, 0, 2, b"abc", 9)], [(1, 0, 2, b"", 9), (3, 1, 4, b"xy", 1 << 30)]])
def test_rows_for_spark_are_what_was_put_in(rows: list[Row]) -> None:
    made = wire(rows)
    made.validate(full=True)
    assert [tuple(row.values()) for row in made.to_pylist()] == rows


class _Line:
    """Stages of a chain, run one after the other by their tasks, as Spark would; chance decides what waits together."""

    def __init__(self, functions: dict[str, Function], k: list[int], keys: dict[str, str] | None = None):
        names = ("read", *functions)
        source = {"read": TraceSource(Constant(1), _numbered, SENT)}
        code = line.functions(Topology.chain(*names), functions, source)
        made = line.stages(Topology.chain(*names), code, source, Path("/nowhere"), MeterAddress("127.0.0.1", 9, b""))
        self.stages = [_keyed(stage, keys or {}) for stage in made]
        self.k = k

    def run(self, frames: list[list[Row]], chance: random.Random) -> list[list[Row]]:
        """Return what the last stage sent, by instance, for frames of the source by its instance."""
        for stage, k in zip(self.stages, self.k, strict=True):
            sent: list[list[Row]] = []
            for instance in range(k):
                senders = [[row for row in each if row[2] == instance] for each in frames]
                rows = frames[instance] if stage.index == 0 else _mixed(senders, chance)
                plan = Plan(0, "0-x", tuple(self.k))
                batches = _cut([*rows, LAST], chance)
                sent.append([row for made in Task(stage, plan, instance, 0).run(batches) for row in _rows(made)])
            frames = sent
        return frames


def _keyed(stage: Stage, keys: dict[str, str]) -> Stage:
    from dataclasses import replace

    outputs = tuple(replace(output, key=keys.get(output.name, "")) for output in stage.outputs)
    return replace(stage, outputs=outputs, marked=True)


def _rows(made: pa.RecordBatch) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in made.columns), strict=True))


def _mixed(senders: list[list[Row]], chance: random.Random) -> list[Row]:
    """Return the rows of several senders mixed, those of each in their order."""
    queues = [list(rows) for rows in senders if rows]
    mixed = []
    while queues:
        queue = chance.choice(queues)
        mixed.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    return mixed


def _cut(rows: list[Row], chance: random.Random) -> Iterator[pa.RecordBatch]:
    while rows:
        n = chance.randint(1, 12)
        yield wire(rows[:n])
        rows = rows[n:]


def _source(instance: int, readers: int, frames: list[int], most: int) -> list[Row]:
    """Return rows of a reader's own partition."""
    rows, low = [], 0
    for size in frames:
        words = np.array([0, 0, instance, low, low + size], "<i8").tobytes()
        rows.append((0, -1, 0, words, most))
        low += size
    return rows


def _forward(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


class _Order:
    """A sink that notes the records in their order."""

    def __init__(self) -> None:
        self.calls: list[list[tuple[int, int]]] = []

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.calls.append([*zip(*(column.to_pylist() for column in batch.columns), strict=True)])
        yield from ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 300), max_size=8), min_size=1, max_size=3),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.booleans(),
    st.integers(1, 3000),
    st.randoms(use_true_random=False),
)
def test_a_chain_of_tasks_brings_each_record_once_and_keeps_the_order_of_keys(
    frames: list[list[int]], k: tuple[int, int], keyed: bool, most: int, chance: random.Random
) -> None:
    sink = _Order()
    keys = {"a": "key", "sink": "key"} if keyed else {}
    chain = _Line({"a": arrow(_forward, SENT), "sink": arrow(sink)}, [len(frames), *k], keys)
    rows = [_source(i, len(frames), each, most) for i, each in enumerate(frames)]
    chain.run(rows, chance)
    got = [pair for call in sink.calls for pair in call]
    partitions = TraceSource(Constant(1)).partitions
    expected = [n * partitions + i for i, each in enumerate(frames) for n in range(sum(each))]
    assert Counter(n for _, n in got) == Counter(expected)
    if keyed:  # the records of a key from one reader arrive in the order of its log
        for i in range(len(frames)):
            by_key = defaultdict(list)
            for key, n in got:
                if n % partitions == i:
                    by_key[key].append(n)
            assert all(each == sorted(each) for each in by_key.values())


def test_an_input_that_ends_without_its_last_row_is_an_error() -> None:
    (stage, _) = _Line({"sink": arrow(_Order())}, [1, 1]).stages
    rows = _source(0, 1, [5, 5], 100)
    with pytest.raises(OperatorFailed, match="not read to its end"):
        list(Task(stage, Plan(0, "0-x", (1, 1)), 0, 0).run(iter([wire(rows)])))
    assert list(Task(stage, Plan(0, "0-x", (1, 1)), 0, 0).run(iter([wire([*rows, LAST])])))


def test_an_output_that_is_more_than_its_input_usually_gives_is_shared_by_the_instances() -> None:
    def collected(batches: Iterator[Any]) -> Iterator[Any]:
        waiting = list(batches)
        yield pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]

    chain = _Line({"all": arrow(collected, SENT), "work": arrow(_forward, SENT)}, [1, 1, 4])
    chain.stages = chain.stages[:2]
    chain.k = [1, 1, 4]
    (stages, k), chance = (chain.stages, chain.k), random.Random(1)
    (made,) = _run_two(stages, k, _source(0, 1, [50] * 40, 50), chance)
    sizes = [Records.unpack(row[3], stamped(as_schema(SENT), "all")).rows for row in made]
    assert sum(sizes) == 2000
    assert max(sizes) <= 50  # of which the slowest instance has 20 ms of work
    assert {row[2] for row in made} == {0, 1, 2, 3}


def _run_two(stages: list[Stage], k: list[int], rows: list[Row], chance: random.Random) -> list[list[Row]]:
    frames = [rows]
    for stage in stages:
        task = Task(stage, Plan(0, "0-x", tuple(k)), 0, 0)
        frames = [[row for made in task.run(_cut([*frames[0], LAST], chance)) for row in _rows(made)]]
    return frames


# A simulation of a job whose clock is ours: readers, edges and merging are those of a live job.

CORES, OVERHEAD_S, RECORD_S = 2, 0.0005, 0.5e-6


def _constant(name: str) -> float:
    text = (JAVA / "TraceReader.java").read_text(encoding="utf-8")
    (value,) = re.findall(rf"\b{name} = ([\d_.]+)", text)
    return float(value.replace("_", ""))


def _simulated(k: int, per_s: float, hops: int, keyed: int | None, seconds: float) -> tuple[list[float], float]:
    """Return the mean records of a call at each hop, and the longest time that a record waited for an idle instance.

    An instance that is free takes all frames that wait for it, merged as `runs` merges them. All instances share two
    cores; a call takes a fixed time and one per record.
    """
    linger = min(_constant("LATEST_MICROS") * k**0.5, _constant("ENOUGH") / (per_s / k) * 1e6) * 1e-6
    edges = [
        [Edge(hop, hop + 1, SCHEMA, "key" if hop + 1 == keyed else "", k, _turn=i) for i in range(k)]
        for hop in range(hops)
    ]
    waiting: dict[tuple[int, int], list[tuple[float, int, Records]]] = defaultdict(list)
    busy: set[tuple[int, int]] = set()
    calls: list[list[int]] = [[] for _ in range(hops + 1)]
    longest, free, order = 0.0, CORES, 0
    events: list[tuple[float, int, str, Any]] = []

    def at(when: float, what: str, data: Any) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (when, order, what, data))

    def send(now: float, hop: int, i: int, records: Records) -> None:
        for instance, part in edges[hop][i].parts(records.stamp(records.batch, SCHEMA), LARGEST):
            waiting[hop + 1, instance].append((now, hop, Records.unpack(part.serialize(), SCHEMA)))

    rng = np.random.default_rng(1)
    for i in range(k):
        for j in range(int(seconds / linger)):
            at(linger * (j + 1), "read", (i, round(per_s / k * linger)))
    while events:
        now, _, what, data = heapq.heappop(events)
        if what == "read":
            i, rows = data
            ids = rng.integers(0, 1 << 30, rows)
            records = Records(_numbered(ids, ids), ids, ids)
            calls[0].append(rows)
            send(now, 0, i, records)
        else:
            hop, i, made = data
            busy.discard((hop, i))
            free += 1
            if hop < hops:
                for records in made:
                    send(now, hop, i, records)
        ready = sorted((each[0][0], at) for at, each in waiting.items() if each and at not in busy)
        for since, (hop, i) in ready[:free]:
            frames, waiting[hop, i] = waiting[hop, i], []
            if free == CORES:
                longest = max(longest, now - since)  # all were idle, and it waited nonetheless
            made = list(runs([(sender, records) for _, sender, records in frames], LARGEST))
            calls[hop] += [records.rows for records in made]
            seconds_of = sum(OVERHEAD_S + RECORD_S * records.rows for records in made)
            busy.add((hop, i))
            free -= 1
            at(now + seconds_of, "done", (hop, i, made))
    return [float(np.mean(each)) for each in calls], longest


def test_frames_stay_large_over_four_hops_of_ten_instances() -> None:
    means, longest = _simulated(10, 200_000, 4, None, 0.5)
    assert min(means) >= 500, means
    assert longest == 0  # nothing waits while all instances are free


def test_frames_that_a_key_cut_are_whole_again_behind_it() -> None:
    means, longest = _simulated(10, 200_000, 4, 2, 0.5)
    assert min(means) >= 500, means  # cut in ten by the key, and merged, as the readers take theirs at the same time
    assert longest == 0


@pytest.mark.parametrize("rows", [1, FEWEST, 3 * LARGEST])
def test_a_batch_is_cut_no_smaller_than_it_must(rows: int) -> None:
    sizes = [part.num_rows for _, part in Edge(0, 1, SCHEMA, "", 10).parts(_batch(rows))]
    assert len(sizes) == -(-rows // LARGEST)
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_made_from_no_record_has_the_present_time() -> None:
    before = time.time_ns() // 1000
    stamps = _records(0).stamp(_records(2).batch, SCHEMA)
    assert all(before <= stamp <= time.time_ns() // 1000 for stamp in stamps.column("_event").to_pylist())
