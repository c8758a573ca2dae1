"""Logs outside of Spark, without Spark: what is looked at, marked and fetched is each record, once and in its place."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit.core import DspkitError
from dspkit.core.files import file_error
from dspkit.spark import FileSource, KafkaSource, RedisSource, SourceError
from dspkit.spark.dataflow.state import seal
from dspkit.spark.metering import Clock, ClockWatch
from dspkit.spark.sources import log as source_log
from dspkit.spark.sources.log import Catalog, LogSource, LogTailer, Mark


def _take(source: LogSource, looked: LogTailer, read: list[int], most: int = 1 << 30) -> list[dict[str, Any]]:
    """Fetch what is there, as a task does: a frame of stretches, bounded."""
    words = [0, 0]
    for p, upto in enumerate(looked.counts):
        if (end := min(upto, read[p] + most)) > read[p]:
            words += [p, read[p], end]
            read[p] = end
    if len(words) == 2:
        return []
    records, read_to = source.records(np.array(words, "<i8").tobytes(), {})
    assert all(read_to[p] == read[p] for p in read_to)
    assert len(records.event) == records.batch.num_rows
    rows: list[dict[str, Any]] = records.batch.to_pylist()
    return rows


def _follow(source: LogSource, folder: Path, done: Callable[[], list[int]] = list) -> tuple[LogSource, LogTailer]:
    placed = source.at(folder / "marks")
    return placed, LogTailer(placed, done)


@pytest.fixture(autouse=True)
def _clients() -> Iterator[None]:
    yield
    source_log.close_all()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), min_size=1, max_size=25), st.data())
def test_each_line_of_growing_files_is_read_once_and_again_the_same(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("files")
    (folder / "logs").mkdir()
    source, looked = _follow(FileSource(folder / "logs", "*.log", partitions=2), folder)
    read, got, number = [0, 0], [], 0
    for file, lines, torn in writes:
        with (folder / "logs" / f"{file}.log").open("a") as opened:
            for _ in range(lines):
                opened.write(f"line {number}\n")
                number += 1
            if torn:  # the end comes later, or never
                opened.write(f"line {number}")
                opened.flush()
                looked._look()
                opened.write("\n")
                number += 1
        if data.draw(st.booleans()):
            looked._look()
        got += _take(source, looked, read, most=data.draw(st.integers(1, 7)))
        if data.draw(st.booleans()):  # another process continues, with the same marks; files may have grown meanwhile
            source_log.close_all()
            source, looked = _follow(FileSource(folder / "logs", "*.log", partitions=2), folder)
    looked._look()
    while rest := _take(source, looked, read, most=3):
        got += rest
    assert sorted(got, key=str) == sorted(({"line": f"line {i}"} for i in range(number)), key=str)
    source_log.close_all()
    second, all_read = [], [0, 0]
    while rest := _take(source, looked, all_read, most=5):  # replayed from the start: the same lines at the same places
        second += rest
    assert sorted(second, key=str) == sorted(got, key=str)


def test_a_file_that_shrinks_or_goes_is_told(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a").write_text("one\ntwo\n")
    source, looked = _follow(FileSource(logs, partitions=1), tmp_path)
    assert looked.counts == [2]
    (logs / "a").write_text("one\n")
    with pytest.raises(SourceError, match="only grow"):
        looked._look()
    with pytest.raises(SourceError, match="ends early"):
        _take(source, looked, [0])
    (logs / "a").unlink()
    source_log.close_all()
    with pytest.raises(SourceError, match="FileNotFoundError"):
        _take(source, looked, [0])


def test_a_file_in_the_place_of_another_one_is_told_however_large_it_is(tmp_path: Path) -> None:
    """Rotated by its own name: its first lines would have been taken for those of the file before."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text("one\ntwo\n")
    _, looked = _follow(FileSource(logs, "*.log", partitions=1), tmp_path)
    (logs / "a.log").rename(logs / "a.log.1")
    (logs / "a.log").write_text("three\nfour\nfive\nsix\n")
    with pytest.raises(SourceError, match=r"another file than before; .* a new name"):
        looked._look()


def test_a_line_that_is_too_long_is_told_instead_of_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dspkit.spark.sources.files._MOST", 1 << 20)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a").write_bytes(b"one\n" + bytes((1 << 20) - 4))
    _, looked = _follow(FileSource(logs, partitions=1), tmp_path)
    assert looked.counts == [1]
    with (logs / "a").open("ab") as file:
        file.write(b"0000\n")
    with pytest.raises(SourceError, match="a line of more than 1 MB"):
        looked._look()


def test_marks_that_were_not_written_to_the_end_are_repaired_and_old_ones_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Catalog.begin(tmp_path / "marks", [["", 0]], 5)
    catalog = Catalog(tmp_path / "marks", 1)
    other = Catalog(tmp_path / "marks", 1)  # a task's
    marks = [Mark(10 * i, [f"file {i % 3}", 100 * i], i) for i in range(1, 100)]
    catalog.add({0: marks[:50]})
    with catalog.path(0).open("a") as file:
        file.write("[510, [")
    assert len(other.marks(0).marks) == 51
    assert Catalog(tmp_path / "marks", 1).repair() == [[Mark(0, ["", 0], 5), *marks[:50]]]
    catalog = Catalog(tmp_path / "marks", 1)
    catalog.add({0: marks[50:]})
    assert other.marks(0).at(505) == (marks[49], 510)
    catalog._seen[0].trim_at = 0
    catalog.trim(0, lambda: [985], lambda mark: mark.where[0])
    kept = other.marks(0).marks
    assert kept[-2:] == marks[-2:]
    assert len(kept) < 10
    assert {mark.where[0] for mark in kept} >= {"file 0", "file 1", "file 2"}
    catalog.path(0).unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        other.marks(0)


def _catalog(folder: Path, trimmed: bool) -> Catalog:
    """Return twelve marks of each of two partitions, or what is left of more."""
    Catalog.begin(folder, [["", 0]] * 2, 5)
    catalog = Catalog(folder, 2)
    for i in range(1, 12 if not trimmed else 30, 2):
        catalog.add({p: [Mark(10 * j, [f"file {j % 3 + p}", 100 * j], j) for j in (i, i + 1)] for p in range(2)})
        if i == 19:
            catalog._seen[0].trim_at = 0
            catalog.trim(0, lambda: [170, 170], lambda mark: mark.where[0])
    return catalog


@pytest.mark.parametrize("trimmed", [False, True])
def test_no_line_of_marks_is_missed_doubled_or_moved_in_silence(trimmed: bool, tmp_path: Path) -> None:
    """Marks that are read are those that were written; each line dropped, doubled, swapped or joined is an error."""
    catalog = _catalog(tmp_path / "marks", trimmed)
    path, right = catalog.path(0), [*catalog.marks(0).marks]
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert 10 < len(lines) == len(right) + 1 < 24  # with the head
    damaged = {f"without line {i}": [*lines[:i], *lines[i + 1 :]] for i in range(len(lines))}
    damaged |= {f"line {i} twice": [*lines[: i + 1], *lines[i:]] for i in range(len(lines))}
    damaged |= {
        f"lines {i} and {j} swapped": [*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]]
        for i in range(len(lines))
        for j in range(i + 1, len(lines))
    }
    damaged |= {
        f"line {i} joined to the next": [*lines[:i], lines[i][:-1] + b"*", *lines[i + 1 :]] for i in range(len(lines))
    }
    damaged |= {f"the first {i} lines": lines[:i] for i in range(len(lines))}
    damaged |= {f"line {i} at the end again": [*lines, lines[i]] for i in range(len(lines))}
    damaged["the other partition's"] = [catalog.path(1).read_bytes()]
    for what, changed in damaged.items():
        path.write_bytes(b"".join(changed))
        for read in (lambda: Catalog(path.parent, 2).marks(0), lambda: Catalog(path.parent, 2).repair()):
            with pytest.raises(SourceError, match="marks that cannot be read"):
                pytest.fail(f"{what}: {read()}")
    path.write_bytes(whole)
    assert Catalog(path.parent, 2).repair()[0] == right
    (path.parent / "counts.json").unlink()
    for read in (lambda: Catalog(path.parent, 2).marks(0), lambda: Catalog(path.parent, 2).repair()):
        with pytest.raises(SourceError, match=r"counts.json"):
            read()


@pytest.mark.parametrize("sealed", [False, True])
def test_marks_of_older_versions_are_counted_from_now_on(
    sealed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marks = [[0, ["a", 0], 17], [10, ["a", 100], 18]]
    text = b"".join((seal(mark) if sealed else json.dumps(mark).encode()) + b"\n" for mark in marks)
    for p in range(2):
        (tmp_path / f"{p}.marks").write_bytes(text + b"[20, [")
    with caplog.at_level(logging.WARNING, "dspkit"):
        assert Catalog(tmp_path, 2).repair() == [[Mark(*mark) for mark in marks]] * 2
    assert "of an older dspkit" in caplog.text
    caplog.clear()
    assert Catalog(tmp_path, 2).repair() == [[Mark(*mark) for mark in marks]] * 2
    assert not caplog.text
    lines = (tmp_path / "0.marks").read_bytes().splitlines(keepends=True)
    (tmp_path / "0.marks").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(SourceError, match="1 marks of partition 0, which had 2"):
        Catalog(tmp_path, 2).repair()
    (tmp_path / "0.marks").write_bytes(text)  # the file of the older version again
    with pytest.raises(SourceError, match=r"no head|checksum"):
        Catalog(tmp_path, 2).repair()


def test_a_disk_that_is_full_for_a_moment_does_not_lose_where_the_lines_of_a_file_are(tmp_path: Path) -> None:
    """A look that could not write its marks is repeated with them; before, lines were read from another file."""
    logs, path = tmp_path / "logs", tmp_path / "marks" / "0.marks"
    logs.mkdir()
    source, looked = _follow(FileSource(logs, partitions=1), tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in "abcd":
        (logs / name).write_text("".join(f"{name}{j}\n" for j in range(3)))
        before = list(looked.counts)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limits[1]))  # half a line fits
            with pytest.raises(OSError, match="File too large"):
                looked._look()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert looked.counts == before  # nothing is announced whose place is not on the disk
        looked._look()
        with (logs / "a").open("a") as file:  # a line that the numbers of another file would have reached
            file.write(f"more {name}\n")
    looked._look()
    want = [f"{name}{j}" for name in "abcd" for j in range(3)] + [f"more {name}" for name in "abcd"]
    assert sorted(row["line"] for row in _take(source, looked, [0])) == sorted(want)
    places = [(mark.number, *mark.where) for mark in Catalog(tmp_path / "marks", 1).marks(0).marks]
    assert places == sorted(set(places))  # none is there twice


def test_a_disk_that_has_room_again_after_a_failed_append_gets_nothing_behind_the_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair frees room itself: a buffer that was flushed after it left a hole in the marks, for ever."""
    Catalog.begin(tmp_path / "marks", [["", 0]], 5)
    catalog, marks = Catalog(tmp_path / "marks", 1), [Mark(10 * i, ["a", 100 * i], i) for i in range(1, 9)]
    size, limits, cut = catalog.path(0).stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE), os.truncate

    def truncate(file: int, to: int) -> None:
        cut(file, to)
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    monkeypatch.setattr(os, "truncate", truncate)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            catalog.add({0: marks})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert catalog.path(0).stat().st_size == size
    assert Catalog(tmp_path / "marks", 1).marks(0).marks == [Mark(0, ["", 0], 5)]
    catalog.add({0: marks})
    assert Catalog(tmp_path / "marks", 1).marks(0).marks[1:] == marks


@pytest.mark.parametrize("where", ["counts.json", "0.marks", "read"])
def test_a_disk_that_fails_for_a_moment_is_asked_again_whichever_file_it_refuses(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").mkdir()
    _, looked = _follow(FileSource(tmp_path / "logs", partitions=1), tmp_path)
    left, real, counts = [2], source_log.write_atomically, Catalog._counts

    def full(path: Path, fill: Callable[[Path], object], *, overwrite: bool = False) -> Path:
        left[0] -= path.name == where
        if path.name == where and left[0] >= 0:
            raise file_error(path, OSError(errno.ENOSPC, ""))
        return real(path, fill, overwrite=overwrite)

    def unread(catalog: Catalog) -> list[int | None]:
        left[0] -= where == "read"
        if where == "read" and left[0] >= 0:
            raise OSError(errno.EIO, "Input/output error")
        return counts(catalog)

    monkeypatch.setattr(source_log, "write_atomically", full)
    monkeypatch.setattr(Catalog, "_counts", unread)
    looked._catalog._seen[0].trim_at = 0 if where == "0.marks" else 1 << 20  # its rewriting is the trim
    told: list[list[int]] = []
    looked.start(lambda counts: told.append(list(counts)))
    (tmp_path / "logs" / "a").write_text("x\n" * 7)
    end = time.monotonic() + 10
    while told[-1] != [7] and looked.error is None and time.monotonic() < end:
        time.sleep(0.01)
    looked.close()
    assert looked.error is None
    assert told[-1] == [7]
    assert left[0] < 2
    assert caplog.text
    monkeypatch.undo()
    assert Catalog(tmp_path / "marks", 1).repair()[0][-1][:2] == (0, ["a", 0])


def test_a_file_that_vanishes_during_a_look_loses_nothing_of_the_others(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    source, looked = _follow(FileSource(logs, partitions=1), tmp_path)
    (logs / "a").write_text("a0\na1\n")
    (logs / "b").symlink_to(logs / "gone")  # as a file that is removed after the names were listed
    with pytest.raises(FileNotFoundError):
        looked._look()
    (logs / "b").unlink()
    (logs / "c").write_text("c0\n")
    looked._look()
    assert [row["line"] for row in _take(source, looked, [0])] == ["a0", "a1", "c0"]


def test_a_job_that_has_read_a_log_does_not_begin_its_marks_anew(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    source = FileSource(tmp_path / "logs").at(tmp_path / "marks")
    with pytest.raises(SourceError, match=r"no folder .*marks.*committed"):
        LogTailer(source, list, known=True)


def test_entries_of_redis_streams_come_once_with_their_time(stream: Any, redis_url: str, tmp_path: Path) -> None:
    for i in range(3500):
        stream.xadd(f"s{i % 2}", {"n": i, "word": f"w{i}"}, id=f"{1000 + i}-{i % 3}")
    source = RedisSource(["s0", "s1", "not there yet"], fields="n int64, word string", url=redis_url)
    placed, looked = _follow(source, tmp_path)
    assert looked.counts == [1750, 1750, 0]
    assert len(placed._open()[1].marks(0).marks) == 2  # the beginning, and one of the first thousand
    read, got = [0, 0, 0], _take(placed, looked, [0, 0, 0], most=1300)
    _take(placed, looked, read, most=1300)
    source_log.close_all()  # as in another process; between two marks
    for i in range(3500, 3600):
        stream.xadd("not there yet", {"n": i, "word": f"w{i}"})
    placed, looked = _follow(source, tmp_path)
    while rest := _take(placed, looked, read, most=100):
        got += rest
    assert sorted(row["n"] for row in got) == list(range(3600))
    assert all(row["word"] == f"w{row['n']}" for row in got)
    records, _ = placed.records(np.array([0, 0, 1, 3, 5], "<i8").tobytes(), {})
    assert records.event.tolist() == [(1000 + 7) * 1000, (1000 + 9) * 1000]
    late, after = _follow(RedisSource("s0", fields="n int64", url=redis_url, since="latest"), tmp_path / "late")
    assert after.counts == [0]
    stream.xadd("s0", {"n": 7})
    after._look()
    assert _take(late, after, [0]) == [{"n": 7}]


def test_entries_that_redis_trimmed_before_they_were_read_are_told(stream: Any, redis_url: str, tmp_path: Path) -> None:
    for i in range(300):
        stream.xadd("s", {"n": i})
    source = RedisSource("s", fields="n int64", url=redis_url)
    placed, looked = _follow(source, tmp_path)
    read = [0]
    _take(placed, looked, read, most=100)
    stream.xtrim("s", maxlen=200, approximate=False)
    assert len(_take(placed, looked, read, most=50)) == 50  # only what was read is gone
    stream.xtrim("s", maxlen=100, approximate=False)
    with pytest.raises(SourceError, match="trimmed or deleted"):
        _take(placed, looked, read, most=50)
    stream.delete("s")
    stream.xadd("s", {"n": 1})
    with pytest.raises(SourceError, match="began with"):
        looked._look()
    source_log.close_all()
    placed, looked = _follow(RedisSource("s", fields="m int64", url=redis_url), tmp_path / "other")
    with pytest.raises(SourceError, match="without 'm'"):
        _take(placed, looked, [0])


def _send(producer: Any, topic: str, count: int, start: int = 0) -> None:
    for i in range(start, start + count):
        producer.produce(topic, key=f"k{i}", value=f"v{i}", timestamp=1_000_000 + i)
    producer.flush(10)


def test_messages_of_a_kafka_topic_come_once_with_their_time(broker: tuple[str, Any], tmp_path: Path) -> None:
    servers, producer = broker
    _send(producer, "numbers", 1000)
    source = KafkaSource("numbers", servers)
    placed, looked = _follow(source, tmp_path)
    assert sum(looked.counts) == 1000
    read, got = [0] * placed.partitions, []
    for _ in range(3):
        got += _take(placed, looked, read, most=40)
    source_log.close_all()
    _send(producer, "numbers", 200, 1000)
    placed, looked = _follow(source, tmp_path)
    while rest := _take(placed, looked, read, most=60):
        got += rest
    assert sorted(int(row["value"][1:]) for row in got) == list(range(1200))
    assert all(row["key"][1:] == row["value"][1:] for row in got)
    records, _ = placed.records(np.array([0, 0, 0, 2, 5], "<i8").tobytes(), {})  # back to where it was
    numbers = [int(value[1:]) for value in records.batch.column("value").to_pylist()]
    assert records.event.tolist() == [(1_000_000 + n) * 1000 for n in numbers]
    late, after = _follow(KafkaSource("numbers", servers, since="latest", text=False), tmp_path / "late")
    assert sum(after.counts) == 0
    _send(producer, "numbers", 1, 5000)
    after._look()
    assert _take(late, after, [0] * late.partitions) == [{"key": b"k5000", "value": b"v5000"}]


def test_logs_that_do_not_answer_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Redis streams s"):
        _follow(RedisSource("s", fields="n int64", url="redis://127.0.0.1:9/0"), tmp_path)
    with pytest.raises(SourceError, match="folder that is there"):
        FileSource(tmp_path / "none")
    for make in (
        lambda: RedisSource([], fields="n int64"),
        lambda: RedisSource(["a", "a"], fields="n int64"),
        lambda: RedisSource("a", fields="n int64", since="noon"),
        lambda: KafkaSource("t", since="noon"),
        lambda: FileSource(tmp_path, partitions=0),
    ):
        with pytest.raises(DspkitError):
            make()


def test_a_follower_tells_of_growth_and_counts_by_time(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    _, looked = _follow(FileSource(tmp_path / "logs", partitions=1), tmp_path)
    told: list[list[int]] = []
    looked.start(lambda counts: told.append(list(counts)))
    before = time.time()
    (tmp_path / "logs" / "a").write_text("x\n" * 7)
    end = time.monotonic() + 10
    while told[-1] != [7] and time.monotonic() < end:
        time.sleep(0.01)
    looked.close()
    assert told[-1] == [7]
    assert looked.offered(before - 1) == 0
    assert looked.offered(time.time() + 1) == 7
    assert Catalog(tmp_path / "marks", 1).marks(0).marks[-1][:2] == (0, ["a", 0])


@pytest.mark.parametrize(
    "url", ["redis://:se/cret@127.0.0.1:6379/0", "rediss://u:se#cret@h:1", "secret", "redis://h:secret"]
)
def test_a_refused_address_of_redis_does_not_show_its_password(url: str) -> None:
    with pytest.raises(SourceError, match="which is not shown") as refused:
        RedisSource("clicks", fields="user string", url=url).begin()
    assert refused.value.__suppress_context__
    assert not re.search(r"\bse\b|secret", str(refused.value))


@pytest.mark.parametrize("step", [3600.0, -3600.0, -20.0])
def test_a_log_has_offered_the_same_after_the_clock_was_set(
    step: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, moved = [1e9], [0.0]
    monkeypatch.setattr(source_log, "time", SimpleNamespace(time=lambda: now[0] + moved[0], monotonic=time.monotonic))
    (tmp_path / "logs").mkdir()
    _, looked = _follow(FileSource(tmp_path / "logs", partitions=1), tmp_path)
    looked._clock = ClockWatch(Clock(elapsed=lambda: now[0], now=lambda: now[0] + moved[0]))
    for i in range(1, 21):
        now[0] += 1.0
        if i == 11:
            moved[0] = step
            assert looked.offered(now[0] + step) == 10  # before it looks again
        with (tmp_path / "logs" / "a").open("a") as file:
            file.write("line\n")
        looked._look()
    assert [looked.offered(1e9 + step + i) for i in range(1, 21)] == list(range(1, 21))


def test_a_clock_that_is_set_back_makes_no_line_of_a_file_late(tmp_path: Path) -> None:
    """Its time is the event time of the line: dropped as late would be all lines of an hour."""
    (tmp_path / "logs").mkdir()
    source, looked = _follow(FileSource(tmp_path / "logs", partitions=1), tmp_path)
    (tmp_path / "logs" / "a").write_text("one\n")
    looked._look()
    ahead = round((time.time() + 3600) * 1e6)
    looked._follower._last[0] = looked._follower._last[0]._replace(micros=ahead)
    (tmp_path / "logs" / "b").write_text("two\n")
    looked._look()
    assert source._open()[1].marks(0).marks[-1].micros == ahead


def test_how_far_a_log_is_filled_is_said_without_waiting_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dspkit.spark.runtime.foreach_batch import LogReader, PlainEngine

    (tmp_path / "dspkit").mkdir()
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    engine = PlainEngine(None, SimpleNamespace(folder=tmp_path))
    reader = LogReader({"filled": str(engine._filled(1)), "partitions": 2, "most": 100})
    assert reader.latestOffset() == {"next": [0, 0]}
    for counts in ([3, 4], [5, 4], [5, 4], [60, 4]):
        engine.filled(1, counts)
        assert reader.latestOffset() == {"next": [min(50, counts[0]), 4]}
    assert not waited
    assert [path.name for path in (tmp_path / "dspkit").iterdir()] == ["filled-1.json"]
    engine._filled(1).write_bytes(bytes(7))  # as a power cut may leave it
    assert reader.latestOffset() == {"next": [0, 0]}
