"""Windows over event time give what plain Python gives, whatever the parallelism, the frames and the epochs."""

from __future__ import annotations

import operator
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tasks
from dspkit import Topology, workload
from dspkit.spark import EventTime, EventWindow, Function, FunctionError, TraceSource, arrow, windowed
from dspkit.spark.dataflow import plan as line
from dspkit.spark.dataflow import state, store, task
from dspkit.spark.dataflow.exchange import Records, stamped, wire
from dspkit.spark.dataflow.task import Task
from dspkit.spark.functions import as_schema

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # these runs wait for the disk most of the time otherwise
PARTITIONS = 5
RECORD = "id int64, key int64, at float64, n int64"
TOPOLOGY = Topology.chain("read", "odd", "window", "after")


@pytest.fixture(scope="module", autouse=True)
def many_watermarks() -> Iterator[None]:
    """A source sends its watermark after each frame, not every tenth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "MARK_S", 0.0)
        yield


@dataclass(frozen=True)
class Log:
    """Records whose event times are in some disorder; partition i % 5 is `step` times as fast as the clock."""

    seed: int
    disorder_s: float
    step_s: float = 0.7
    schema: str = RECORD

    def __call__(self, ids: Any, event_s: Any) -> pa.RecordBatch:
        x = (ids.astype(np.uint64) + np.uint64(self.seed)) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        behind = (x >> np.uint64(40)).astype(float) / (1 << 24) * self.disorder_s
        # bursts with silence between them, so that sessions end
        at = ids // PARTITIONS * self.step_s + (ids // 60) * 9.0 - behind
        columns = [ids, (x % np.uint64(40)).astype(np.int64), np.round(at, 1), (x % np.uint64(7)).astype(np.int64)]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=["id", "key", "at", "n"])

    def rows(self, read: list[int]) -> list[list[dict[str, Any]]]:
        """The records of each partition, in its order."""
        return [self(np.arange(n) * PARTITIONS + p, np.zeros(n)).to_pylist() for p, n in enumerate(read)]


def odd(batches: Iterator[Any]) -> Iterator[Any]:
    """Drops a quarter of the records, and the number."""
    for batch in batches:
        kept = batch.filter(pc.not_equal(pc.bit_wise_and(batch.column("id"), 3), 0))
        yield kept.drop_columns(["id"])


def keep(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield from ()


class Cluster:
    """Instances without Spark: what they send to each other is mixed at random, in order between each two."""

    def __init__(self, folder: Path, log: Any, functions: Mapping[str, Any], topology: Topology, seed: int):
        self.topology, self.folder, self.log = topology, folder, log
        self._random = np.random.default_rng(seed)
        logs = log if isinstance(log, Mapping) else {"read": log}
        sources = {
            name: TraceSource(workload.Constant(1), make=each, schema=each.schema, partitions=PARTITIONS)
            for name, each in logs.items()
        }
        whole = line.functions(topology, functions, sources)
        self.stages = line.stages(topology, whole, sources, folder, tasks._meter)
        self.names = [stage.name for stage in self.stages]
        self.read, self.results = [0] * PARTITIONS, defaultdict[str, list[Any]](list)
        self.late = 0

    def epoch(self, number: int, k: tuple[int, ...], upto: list[int], *, fails: bool = False) -> None:
        """Run an epoch up to these numbers of records in each partition, or an attempt that fails."""
        plan = state.begin_epoch(self.folder, number, k)
        wires: dict[tuple[int, int], dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for stage in self.stages:  # by receiver, and by sender: what it sent, in order
            if stage.source is not None:
                for reader in range(k[stage.index]):
                    wires[stage.index, reader]["log"] = self._frames(stage.index, reader, k[stage.index], upto)
        late, sent = 0, defaultdict[str, list[Any]](list)  # by edge, in the order in which it was sent
        for stage in self.stages:
            for instance in range(k[stage.index]):
                if fails and stage is self.stages[-2] and instance == k[stage.index] - 1:
                    return
                beside = sum(k[: stage.index]) if stage.source is not None else 0  # tasks of sources are one stage
                made = Task(stage, plan, beside + instance, 0)
                for batch in made.run(iter(self._mixed(list(wires[stage.index, instance].values())))):
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        to, _, p, frame, most = row
                        wires[to, p][stage.index, instance].append(row)
                        if most >= 0:
                            sent[f"{stage.name} -> {self.names[to]}"] += _unpacked(frame, self.stages[to], stage.index)
                late += made._meter.late or 0
        for edge, rows in sent.items():
            self.results[edge] += rows
        self.late += late
        self.read = upto

    def _frames(self, source: int, reader: int, readers: int, upto: list[int]) -> list[Any]:
        rows: list[Any] = []
        now, most = {p: self.read[p] for p in range(reader, PARTITIONS, readers)}, int(self._random.choice([2, 9]))
        while any(at < upto[p] for p, at in now.items()):
            words = [time_ns() // 1000, 0]
            for p, at in now.items():
                high = min(upto[p], at + int(self._random.integers(0, most)))
                words += [p, at, high] if high > at else []
                now[p] = high
            if len(words) > 2:
                rows.append((source, -1, 0, np.array(words, "<i8").tobytes(), 50))
        return rows

    def _mixed(self, lanes: list[list[Any]]) -> list[pa.RecordBatch]:
        """The rows of all senders in a random order, in batches of a random number of rows."""
        turns = [i for i, lane in enumerate(lanes) for _ in lane]
        self._random.shuffle(turns)
        places = [iter(lane) for lane in lanes]
        rows = [next(places[i]) for i in turns]
        made = []
        while rows:
            n = int(self._random.integers(1, 5))
            made.append(wire(rows[:n]))
            rows = rows[n:]
        return made


def _unpacked(frame: bytes, stage: Any, sender: int) -> list[dict[str, Any]]:
    name, schema = stage.inputs[sender]
    return Records.unpack(frame, stamped(schema, name)).batch.to_pylist()


def on_time(rows: list[list[dict[str, Any]]], time: EventTime) -> tuple[list[dict[str, Any]], list[Any], float]:
    """The records that are on time, those that are late, and the watermark, all from the order of the log alone."""
    kept, late, newest = [], [], []
    for partition in rows:
        most = -1e30
        for row in partition:
            at = round(row["at"] * 1e6)
            tardy = at < most - (time.delay_s + time.lateness_s) * 1e6
            (late if tardy else kept).append(row)
            most = max(most, at)
        newest.append(most)
    return kept, late, min(newest) - time.delay_s * 1e6


def tumbling(rows: list[Any], size: int, slide: int) -> dict[Any, int]:
    """The sums of `n` by key and window, as (key, start, end) in microseconds."""
    found: Counter[Any] = Counter()
    for row in rows:
        at = round(row["at"] * 1e6)
        start = at // slide * slide
        while start > at - size:
            found[row["key"], start, start + size] += row["n"]
            start -= slide
    return found


def sessions(rows: list[Any], gap: int) -> dict[Any, int]:
    found: dict[Any, int] = {}
    by_key = defaultdict(list)
    for row in rows:
        by_key[row["key"]].append((round(row["at"] * 1e6), row["n"]))
    for key, mine in by_key.items():
        mine.sort()
        start, last, total = mine[0][0], mine[0][0], 0
        for at, n in mine:
            if at - last >= gap:
                found[key, start, last + gap] = total
                start, total = at, 0
            last, total = at, total + n
        found[key, start, last + gap] = total
    return found


def n_of(row: dict[str, Any]) -> int:
    return int(row["n"])


RESULT = "key int64, start float64, end float64, value int64"
SUM: dict[str, Any] = {"key": "key", "time": "at", "of": n_of, "merge": operator.add}
KINDS: dict[str, tuple[Function, Any]] = {
    "tumbling": (windowed(RESULT, size_s=4, **SUM), lambda rows: tumbling(rows, 4_000_000, 4_000_000)),
    "sliding": (windowed(RESULT, size_s=6, slide_s=2, **SUM), lambda rows: tumbling(rows, 6_000_000, 2_000_000)),
    "session": (windowed(RESULT, gap_s=1.5, **SUM), lambda rows: sessions(rows, 1_500_000)),
}


def _triples(results: list[dict[str, Any]]) -> list[tuple[Any, int]]:
    return [((r["key"], round(r["start"] * 1e6), round(r["end"] * 1e6)), r["value"]) for r in results]


def _random_run(
    cluster: Cluster, random: np.random.Generator, epochs: int = 4, upto: int = 40
) -> Iterator[list[list[dict[str, Any]]]]:
    """Run epochs with random parallelism, some of them twice; yield the records that were read by then."""
    for number in range(epochs):
        alike = int(random.integers(0, 2))  # partitions are at about the same time, or some are far behind
        base = int(random.integers(5, upto)) * alike
        to = [have + base + int(random.integers(0, 3 if alike else upto)) for have in cluster.read]
        for attempt in range(int(random.integers(1, 3)), 0, -1):
            k = tuple(int(random.integers(1, 5)) for _ in cluster.stages)
            cluster.epoch(number, k, to, fails=attempt > 1)
        yield cluster.log.rows(to)


@pytest.mark.parametrize("kind", list(KINDS))
@example(seed=1, delay_s=0.0, lateness_s=6.0)
@example(seed=2, delay_s=0.0, lateness_s=6.0)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), delay_s=st.sampled_from([0.0, 1.0, 3.0]), lateness_s=st.sampled_from([0.0, 6.0]))
def test_results_are_those_of_plain_python_whatever_the_instances(
    kind: str, seed: int, delay_s: float, lateness_s: float
) -> None:
    function, answers = KINDS[kind]
    time = EventTime("at", delay_s=delay_s, lateness_s=lateness_s)
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        functions = {"read": time, "odd": arrow(odd, "key int64, at float64, n int64"), "window": function}
        cluster = Cluster(Path(folder), Log(seed, 9.0), functions | {"after": arrow(keep)}, TOPOLOGY, seed)
        for rows in _random_run(cluster, random):
            kept, late, watermark = on_time(rows, time)
            kept = [row for row in kept if row["id"] & 3]
            wanted = {w: value for w, value in answers(kept).items() if w[2] <= watermark}
            sent = _triples(cluster.results["window -> after"])
            if not lateness_s:
                assert sorted(sent) == sorted(wanted.items())  # each once
            elif kind != "session":
                assert dict(sent) == wanted  # the last result of each window
            else:
                assert set(wanted.items()) <= set(sent)
            assert cluster.late == len(late)


def biggest(row: dict[str, Any]) -> dict[str, int]:
    return {"key": row["key"], "sum": row["value"]}


def bigger(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return max(one, other, key=lambda each: (each["sum"], each["key"]))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_windows_of_windows_and_a_receiver_of_late_records(seed: int) -> None:
    """The key with the largest sum per sliding window; late records go to an operator of their own, as they were."""
    topology = Topology(
        TOPOLOGY.operators + Topology.chain("best", "late").operators,
        (("read", "odd"), ("odd", "window"), ("window", "best"), ("best", "after"), ("read", "late")),
    )
    time = EventTime("at", delay_s=0.5, late="late")
    state_type = pa.struct({"key": pa.int64(), "sum": pa.int64()})
    best = windowed(
        "end float64, key int64, sum int64",
        key="end",
        time=("start", "end"),
        of=biggest,
        merge=bigger,
        state=state_type,
    )
    functions = {
        "read": time,
        "odd": arrow(odd, "key int64, at float64, n int64"),
        "window": KINDS["sliding"][0],
        "best": best,
        "after": arrow(keep),
        "late": arrow(keep),
    }
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        cluster = Cluster(Path(folder), Log(seed, 9.0), functions, topology, seed)
        for rows in _random_run(cluster, np.random.default_rng(seed)):
            kept, late, watermark = on_time(rows, time)
            sums = tumbling([row for row in kept if row["id"] & 3], 6_000_000, 2_000_000)
            wanted: dict[int, tuple[int, int]] = {}
            for (key, _, end), total in sums.items():
                if end <= watermark:
                    wanted[end] = max(wanted.get(end, (-1, -1)), (total, key))
            sent = [(round(r["end"] * 1e6), (r["sum"], r["key"])) for r in cluster.results["best -> after"]]
            assert sorted(sent) == sorted(wanted.items())
            by_id = sorted(cluster.results["read -> late"], key=lambda row: row["id"])
            assert by_id == sorted(late, key=lambda row: row["id"])


def tags_of(row: dict[str, Any]) -> list[int]:
    return [row["id"]]


def extended(one: list[int], other: list[int]) -> list[int]:
    one.extend(other)
    return one


def test_a_merge_that_changes_its_first_value_gives_each_window_its_own() -> None:
    lists = pa.list_(pa.int64())
    schema = pa.schema({"key": pa.int64(), "value": lists})
    function = windowed(schema, key="key", time="at", size_s=3, slide_s=1, of=tags_of, merge=extended, state=lists)
    found = [row["value"] for row in _alone(function, [float(at) for at in range(5)], 5.0)]
    assert found == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def _alone(function: Function, at: list[float], watermark: float) -> list[dict[str, Any]]:
    """The results for records of one key, with numbers from 0, once the watermark has come."""
    about = {"from": "read", "watermark": str(-(1 << 60))}
    columns = {"id": pa.array(range(len(at)), pa.int64()), "key": pa.array([7] * len(at)), "at": pa.array(at)}
    read = pa.RecordBatch.from_pydict(columns, metadata=about)
    about = {"from": "timers", "watermark": str(round(watermark * 1e6))}
    due = pa.RecordBatch.from_pydict({"key": pa.array([7])}, metadata=about)
    return [row for batch in function.run(iter([read, due]), {}) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["start", "end", "key"])
def test_a_result_with_the_name_of_another_column_is_an_error(name: str) -> None:
    def named(key: int, window: EventWindow, value: int) -> dict[str, Any]:
        return {"value": value, name: 1.0}

    def repeated(key: int, window: EventWindow, value: int) -> dict[str, Any]:
        return {"value": value, "key": key}

    settings: dict[str, Any] = {"key": "key", "time": "at", "size_s": 4}
    assert [row["key"] for row in _alone(windowed(RESULT, result=repeated, **settings), [1.0], 5.0)] == [7]
    with pytest.raises(FunctionError, match=f"{name!r}.* in a result"):
        _alone(windowed(RESULT, result=named, **settings), [1.0], 5.0)


def counts(rows: list[Any], size: int, slide: int, closed: float) -> list[tuple[Any, int]]:
    """The sums of `n` of count windows, of the records that are older than `closed`."""
    found = []
    by_key = defaultdict(list)
    for row in rows:
        if (at := round(row["at"] * 1e6)) < closed:
            by_key[row["key"]].append((at, row["n"]))
    for key, mine in by_key.items():
        mine.sort()
        for end in range(size, len(mine) + 1, slide):
            inside = mine[end - size : end]
            found.append(((key, inside[0][0], inside[-1][0]), sum(n for _, n in inside)))
    return found


@pytest.mark.parametrize(("size", "slide"), [(5, 5), (6, 2), (4, 3)])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), lateness_s=st.sampled_from([0.0, 6.0]))
def test_count_windows_count_in_the_order_of_event_time(size: int, slide: int, seed: int, lateness_s: float) -> None:
    time = EventTime("at", delay_s=1.0, lateness_s=lateness_s)
    window = windowed(RESULT, count=size, slide=slide, **SUM)
    functions = {"read": time, "odd": arrow(odd, "key int64, at float64, n int64"), "window": window}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        cluster = Cluster(Path(folder), Log(seed, 9.0), functions | {"after": arrow(keep)}, TOPOLOGY, seed)
        for rows in _random_run(cluster, np.random.default_rng(seed)):
            kept, _, watermark = on_time(rows, time)
            kept = [row for row in kept if row["id"] & 3]
            wanted = counts(kept, size, slide, watermark - lateness_s * 1e6)
            assert sorted(_triples(cluster.results["window -> after"])) == sorted(wanted)


def test_the_random_runs_have_results_late_records_and_changes(tmp_path: Path) -> None:
    """So that the tests above are not about nothing."""
    time = EventTime("at", delay_s=0.5)
    functions = {"read": time, "odd": arrow(odd, "key int64, at float64, n int64"), "window": KINDS["session"][0]}
    cluster = Cluster(tmp_path, Log(7, 4.0), functions | {"after": arrow(keep)}, TOPOLOGY, 7)
    cluster.epoch(0, (2, 3, 2, 1), [40] * PARTITIONS)
    first = len(cluster.results["window -> after"])
    cluster.epoch(1, (3, 1, 4, 1), [80, 80, 60, 80, 80])
    assert 0 < first < len(cluster.results["window -> after"])
    assert cluster.late > 5


def test_an_operator_that_moves_times_back_makes_records_late_for_the_window_behind_it(tmp_path: Path) -> None:
    topology = Topology(
        TOPOLOGY.operators + Topology.chain("late", "x").operators[:1],
        (("read", "odd"), ("odd", "window"), ("window", "after"), ("window", "late")),
    )
    window = windowed(RESULT, size_s=4, late="late", **SUM)
    sent = "key int64, at float64, n int64"
    functions = {"read": EventTime("at"), "odd": arrow(earlier, sent), "window": window, "late": arrow(keep)}
    cluster = Cluster(tmp_path, Log(3, 0.0), functions | {"after": arrow(keep)}, topology, 3)
    cluster.epoch(0, (1, 1, 1, 1, 1), [40] * PARTITIONS)
    before = cluster.late
    cluster.epoch(1, (1, 1, 2, 1, 1), [41] * PARTITIONS)  # 20 s of event time after the records to come
    late = cluster.results["window -> late"]
    assert cluster.late == len(late) > before > 0
    assert {tuple(row) for row in late} == {("key", "at", "n")}


def earlier(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        at = pa.array(batch.column("at").to_numpy() - 20.0)
        yield pa.RecordBatch.from_arrays([batch.column("key"), at, batch.column("n")], names=["key", "at", "n"])


# The examples of docs/spark.md


@dataclass(frozen=True)
class Texts:
    """Records with a name of few, the number of an order of few, and an amount; times are up to two seconds back."""

    seed: int
    schema: str
    step_s: float = 40.0

    def __call__(self, ids: Any, event_s: Any) -> pa.RecordBatch:
        x = (ids.astype(np.uint64) + np.uint64(self.seed)) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(31)
        name = [f"w{n}" for n in (x % np.uint64(9)).tolist()]
        at = np.round(ids // PARTITIONS * self.step_s + (x >> np.uint64(20)) % np.uint64(20) / 10, 1)
        order = ids // PARTITIONS // 3 * 4 + (x % np.uint64(4)).astype(np.int64)
        columns = {"word": name, "id": [f"i{n}" for n in order.tolist()], "order": order, "amount": ids, "at": at}
        schema = as_schema(self.schema)
        return pa.RecordBatch.from_pydict({field: pa.array(columns[field]) for field in schema.names}, schema=schema)

    def rows(self, read: list[int]) -> list[list[dict[str, Any]]]:
        return [self(np.arange(n) * PARTITIONS + p, np.zeros(n)).to_pylist() for p, n in enumerate(read)]


@pytest.fixture(scope="module")
def examples() -> dict[str, Any]:
    """The names that the section of docs/spark.md on event time defines."""
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    section = text.partition("## Event time and windows\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {"report": arrow(keep)}
    for part in section.split("```python\n")[1:]:
        exec(part.partition("```")[0], names)
    return names


def _example(
    folder: Path, log: Any, functions: Mapping[str, Any], topology: Topology
) -> tuple[Cluster, list[list[dict[str, Any]]] | dict[str, Any]]:
    cluster = Cluster(folder, log, functions, topology, 3)
    for number, k in enumerate([(2, 1, 3, 2, 1), (1, 3, 2, 3, 2), (3, 2, 1, 1, 1)]):
        cluster.epoch(number, k[: len(cluster.stages)], [30 * (number + 1) + 2 * p for p in range(PARTITIONS)])
    logs = log if isinstance(log, Mapping) else {"": log}
    rows = {name: each.rows(cluster.read) for name, each in logs.items()}
    return cluster, rows if isinstance(log, Mapping) else rows[""]


def test_the_example_of_the_most_used_words(examples: dict[str, Any], tmp_path: Path) -> None:
    log = Texts(1, "word string, at float64", step_s=1.0)
    cluster, rows = _example(tmp_path, {"words": log}, examples["functions"], examples["top"])
    kept, _, watermark = on_time(rows["words"], examples["functions"]["words"])
    words: dict[float, Counter[str]] = defaultdict(Counter)
    for row in kept:
        words[row["at"] // 10 * 10 + 10][row["word"]] += 1
    wanted = [
        (end, rank, word, n)
        for end, counted in words.items()
        if end * 1e6 <= watermark
        for rank, (word, n) in enumerate(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:3], 1)
    ]
    assert len(wanted) > 15
    assert sorted(tuple(row.values()) for row in cluster.results["top -> report"]) == sorted(wanted)


def test_the_example_of_sessions(examples: dict[str, Any], tmp_path: Path) -> None:
    topology, sessions_of = examples["clicks"], examples["sessions"]
    log = Texts(2, "word string, at float64", step_s=400.0)
    functions = {"clicks": EventTime("at", delay_s=5.0), "sessions": sessions_of, "report": arrow(keep)}

    def renamed(ids: Any, event_s: Any) -> pa.RecordBatch:
        batch = log(ids, event_s)
        return pa.RecordBatch.from_arrays(batch.columns, names=["user", "at"])

    renamed.schema, renamed.rows = "user string, at float64", log.rows  # type: ignore[attr-defined]
    cluster, rows = _example(tmp_path, {"clicks": renamed}, functions, topology)
    kept, _, watermark = on_time(rows["clicks"], functions["clicks"])
    wanted = {
        each: n
        for each, n in sessions([{"key": r["word"], "at": r["at"], "n": 1} for r in kept], 1800 * 10**6).items()
        if each[2] <= watermark
    }
    sent = [row | {"key": row["user"]} for row in cluster.results["sessions -> report"]]
    assert len(wanted) > 15
    assert sorted(_triples(sent)) == sorted(wanted.items())


def test_the_example_of_each_event_once(examples: dict[str, Any], tmp_path: Path) -> None:
    functions = {"read": EventTime("at", delay_s=3.0), "distinct": examples["distinct"], "report": arrow(keep)}
    log = Texts(3, "id string, at float64", step_s=120.0)
    cluster, rows = _example(tmp_path, log, functions, Topology.chain("read", "distinct", "report"))
    kept, late, watermark = on_time(rows, functions["read"])
    sent = [row["id"] for row in cluster.results["distinct -> report"]]
    assert not late
    assert sorted(sent) == sorted({row["id"] for row in kept})
    assert len(sent) < len(kept) * 0.6
    state = _state(cluster, "distinct")
    last = {row["id"]: row["at"] for row in sorted(kept, key=operator.itemgetter("at"))}
    assert {name for name, at in last.items() if at + 3600 > watermark / 1e6} >= set(state)
    assert len(state) < len(sent) * 0.9


def test_the_example_of_orders_and_payments(examples: dict[str, Any], tmp_path: Path) -> None:
    columns = "order int64, at float64, amount int64"
    logs = {"orders": Texts(4, columns), "payments": Texts(5, columns)}
    topology = Topology(
        Topology.chain("orders", "payments", "join", "report").operators,
        (("orders", "join"), ("payments", "join"), ("join", "report")),
    )
    functions = dict.fromkeys(logs, EventTime("at", delay_s=3.0)) | {"join": examples["join"], "report": arrow(keep)}
    cluster, rows = _example(tmp_path, logs, functions, topology)
    orders, payments = ([row for part in rows[name] for row in part] for name in logs)
    wanted = [
        (o["order"], o["amount"], p["amount"])
        for o in orders
        for p in payments
        if o["order"] == p["order"] and abs(o["at"] - p["at"]) <= 600
    ]
    assert len(wanted) > 50
    assert sorted(tuple(row.values()) for row in cluster.results["join -> report"]) == sorted(wanted)
    watermark = min(max(r["at"] for r in part) for each in rows.values() for part in each) - 3
    kept = [
        e["at"] for value in _state(cluster, "join").values() for side in ("orders", "payments") for e in value[side]
    ]
    assert sorted(kept) == sorted(r["at"] for r in orders + payments if r["at"] + 600 >= watermark)


def _state(cluster: Cluster, name: str) -> dict[Any, Any]:
    plan = state.read_plan(cluster.folder, 2)
    assert plan is not None
    table = store.operator_state(cluster.folder, plan, cluster.names.index(name))
    return dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
