"""A checkpoint with damaged files: the job goes back to the newest epoch that is whole, or says what to do."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from dspkit.spark import CheckpointError, SourceError
from dspkit.spark.dataflow import state
from dspkit.spark.dataflow.checkpoint import Checkpoint, _sums
from dspkit.spark.dataflow.exchange import owners
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.sinks.sink import SinkMark, Staging, staged
from dspkit.spark.sources.log import Catalog, Mark

DECLARED = KeyedState("count", ("n",), (pa.int64(),), pa.int64(), single=True)
JOB = {"operators": ["read", "count"], "stateful": ["count"], "partitions": {"read": 2}, "engine": "jar"}


def _write(folder: Path, kind: str, epoch: int, text: str) -> None:
    path = folder / "spark" / kind / str(epoch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.with_name(f".{epoch}.crc").write_bytes(_sums(text.encode()))


def _run(folder: Path, epoch: int, k: int, *, commit: bool = True) -> None:
    """One epoch, which counts the ten records that it reads of each partition."""
    kept = Checkpoint(folder)
    start = kept.read(0) or [0, 0]
    plan = state.begin_epoch(kept.own, epoch, (1, k))
    for i in range(k):
        known = tasks.read_state(kept.own, plan, 1, i, DECLARED)
        for p, low in enumerate(start):
            for record in range(low, low + 10):
                if owners(pa.array([key := record * 2 + p]), k)[0] == i:
                    known[key] = known.get(key, 0) + 1
        tasks.save_state(kept.own, plan, 1, i, DECLARED, known)
    _write(folder, "offsets", epoch, f"v1\n{{}}\n{json.dumps([low + 10 for low in start])}")
    if commit:
        _write(folder, "commits", epoch, 'v1\n{"nextBatchWatermarkMs":0}')


@cache
def _built(epochs: int) -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory()
    folder = Path(made.name)
    Checkpoint(folder).identify(JOB)
    for epoch in range(epochs):
        _run(folder, epoch, 1 + epoch % 3)
    _run(folder, epochs, 2, commit=False)
    (folder / "spark" / "metadata").write_text('{"id":"89d982c7-f7f1-43f5-ae67-6628cc713c0a"}')
    return made


def _checkpoint(folder: Path, epochs: int) -> Checkpoint:
    """A checkpoint with that many committed epochs, and one that is at work."""
    shutil.copytree(_built(epochs).name, folder, dirs_exist_ok=True)
    return Checkpoint(folder)


def _counts(kept: Checkpoint) -> dict[int, int]:
    return dict(tasks.pairs(DECLARED, kept.state("count")))


def _exact(folder: Path, kept: Checkpoint) -> None:
    """Each record that is read counts once; now and after the next epochs."""
    for _ in range(3):
        if (epoch := kept.committed()) >= 0:
            assert _counts(kept) == dict.fromkeys(range(2 * kept.read(0)[0]), 1)
        _run(folder, epoch + 1, 3)
    assert kept.recover() == []


def _state_files(kept: Checkpoint, epoch: int) -> list[Path]:
    return sorted(kept.own.glob(f"state/{epoch}-*/*.json"))


def _flip(path: Path, bit: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    at = 4 * len(data) if bit is None else bit % (8 * len(data))
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


PLACES: dict[str, Callable[[Path, Checkpoint, int], Path]] = {
    "state": lambda folder, kept, epoch: _state_files(kept, epoch)[-1],
    "run": lambda folder, kept, epoch: sorted(kept.own.glob(f"runs/1-*-{epoch}-*.run"))[-1],
    "plan": lambda folder, kept, epoch: kept.own / "epochs" / f"{epoch}.json",
    "offsets": lambda folder, kept, epoch: folder / "spark" / "offsets" / str(epoch),
    "commit": lambda folder, kept, epoch: folder / "spark" / "commits" / str(epoch),
}
DAMAGES: dict[str, Callable[[Path], object]] = {"flip": _flip, "cut": _cut, "empty": _empty, "delete": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", PLACES)
def test_a_job_goes_back_to_the_newest_whole_epoch(
    place: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = _checkpoint(tmp_path, 7)  # epochs 0 to 6, of which 4 to 6 are kept
    assert kept.recover() == []
    assert kept.committed() == 6
    DAMAGES[damage](PLACES[place](tmp_path, kept, 6))
    if place == "commit" and damage == "delete":
        assert kept.recover() == []  # it is not committed, then
        assert kept.committed() == 5
        return
    with caplog.at_level(logging.WARNING, "dspkit"):
        assert kept.recover() == [6]
    assert "goes back to the end of epoch 5 and repeats the records of epochs 6" in caplog.text
    assert kept.committed() == 5
    assert sorted(int(p.name) for p in (tmp_path / "spark" / "offsets").glob("[0-9]*")) == [*range(6)]
    _exact(tmp_path, kept)


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 5)

    @given(st.integers(0, 10**6), st.sampled_from(list(PLACES)))
    @settings(max_examples=200, deadline=None)
    def check(bit: int, place: str) -> None:
        path = PLACES[place](tmp_path, kept, 4)
        _flip(path, bit)
        with pytest.raises(CheckpointError, match="cannot be read"):
            kept._check(4)
        _flip(path, bit)
        kept._check(4)

    check()


MICROS = 1_763_620_000_123_456
SMALL: dict[str, Callable[[Checkpoint], Any]] = {
    "job.json": lambda kept: kept._identity(),
    "began": lambda kept: kept.zero_micros,
    "sinks/1/mark.json": lambda kept: SinkMark.read(kept.own, 1),
    "sinks/1/3-x/0.json": lambda kept: staged(kept.own, state.Plan(3, "3-x", (1, 1)), 1),
    "logs/0.marks": lambda kept: [*Catalog(kept.own / "logs", 1).marks(0).marks],
    "logs/counts.json": lambda kept: [*Catalog(kept.own / "logs", 1).marks(0).marks],
}


@pytest.mark.parametrize("name", SMALL)
def test_no_flipped_bit_and_no_cut_changes_what_a_small_file_says(name: str, tmp_path: Path) -> None:
    """Not who the job is, nor when its logs began, how far a sink has got, or where the records of a log are."""
    kept = Checkpoint(tmp_path)
    kept.identify(JOB)
    kept.zero_micros = MICROS
    SinkMark("4f1c", 7, 5).write(kept.own, 1)
    plan, columns = state.Plan(3, "3-x", (1, 1)), pa.schema({"n": pa.int64()})
    rows = Staging(kept.own, plan, 1, 0, columns)
    rows.write(pa.record_batch({"n": pa.array([1, 2])}))
    rows.commit()
    Catalog.begin(kept.own / "logs", [["a", 0]], 17)
    Catalog(kept.own / "logs", 1).add({0: [Mark(10 * i, ["a", 100 * i], 17 + i) for i in range(1, 4)]})
    path, read = kept.own / name, SMALL[name]
    whole, right = path.read_bytes(), read(kept)
    for damage in range(8 * len(whole) + len(whole)):
        if damage < 8 * len(whole):
            _flip(path, damage)
        else:
            path.write_bytes(whole[: damage - 8 * len(whole)])
        try:
            found = read(kept)
        except (CheckpointError, SourceError):
            pass
        else:
            assert found == right, damage
        path.write_bytes(whole)
    assert read(kept) == right


def test_small_files_of_older_versions_are_read(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 1)
    (kept.own / "job.json").write_text(json.dumps(JOB, indent=1))
    kept.identify(JOB)
    for text in (f"{MICROS}", f"{MICROS}\n"):
        (kept.own / "began").write_text(text)
        assert kept.zero_micros == MICROS
    path = SinkMark.path(kept.own, 1)
    path.parent.mkdir(parents=True)
    path.write_text('{"writer": "4f1c", "published": 7, "held": 5}')
    assert SinkMark.read(kept.own, 1) == SinkMark("4f1c", 7, 5)
    (kept.own / "logs").mkdir()


def test_several_epochs_are_undone_at_once(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 7)
    _flip(_state_files(kept, 6)[0])
    _empty(PLACES["plan"](tmp_path, kept, 5))
    assert kept.recover() == [5, 6]
    _exact(tmp_path, kept)


def test_a_young_job_goes_back_to_its_beginning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = _checkpoint(tmp_path, 2)
    for epoch in range(2):
        _flip(_state_files(kept, epoch)[0])
    assert kept.recover() == [0, 1]
    assert "goes back to the beginning" in caplog.text
    assert kept.committed() == -1
    assert kept.offsets() == []
    _exact(tmp_path, kept)


def test_without_any_whole_epoch_the_error_says_what_to_do(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 7)
    for epoch in range(3, 7):
        for path in _state_files(kept, epoch):
            _cut(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        CheckpointError, match=r"no kept epoch.*of 6-.*checksum.*epochs 3 to 6.*restore.*choose another folder"
    ):
        kept.recover()
    assert sorted(tmp_path.rglob("*")) == before  # nothing is removed that might be restored


def test_going_back_may_be_interrupted_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(Exception):
        pass

    unlink = Path.unlink
    for steps in range(8):  # offsets of epochs 7, 6, 5 and their checksums, then commits
        folder = tmp_path / str(steps)
        kept = _checkpoint(folder, 7)
        _flip(_state_files(kept, 6)[0])
        _flip(_state_files(kept, 5)[0])
        left = [steps]

        def crash(path: Path, left: list[int] = left, **more: Any) -> None:
            if not left[0]:
                raise Crash
            left[0] -= 1
            unlink(path, **more)

        monkeypatch.setattr(Path, "unlink", crash)
        with pytest.raises(Crash):
            kept.recover()
        monkeypatch.setattr(Path, "unlink", unlink)
        kept.recover()
        assert kept.committed() == 4
        _exact(folder, kept)


def test_offsets_of_an_epoch_that_was_not_committed_are_planned_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = _checkpoint(tmp_path, 5)
    _empty(tmp_path / "spark" / "offsets" / "5")
    assert kept.recover() == []
    assert "offsets of epochs [5] are damaged" in caplog.text
    assert not (tmp_path / "spark" / "offsets" / "5").exists()
    _exact(tmp_path, kept)


def test_marks_of_logs_are_kept_for_all_epochs_that_a_job_may_go_back_to(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 3)
    assert kept.settled(0) == [0, 0]
    _run(tmp_path, 3, 1)
    assert kept.settled(0) == [10, 10]  # the end of epoch 0
    _flip(tmp_path / "spark" / "offsets" / "0")
    assert kept.settled(0) == [0, 0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"operators": 7}', "\x00" * 100])
def test_a_broken_identity_is_an_error_with_a_way_back(text: str, tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 2)
    (kept.own / "job.json").write_text(text)
    for use in (lambda: kept.identify(JOB), lambda: kept.state("count"), kept.recover):
        with pytest.raises(CheckpointError, match=r"job.json.*delete the file if this is that job"):
            use()
    (kept.own / "job.json").unlink()
    kept.identify(JOB)
    assert _counts(kept) == dict.fromkeys(range(40), 1)


@pytest.mark.parametrize("text", [None, "", "7", '{"id": 7}', '{"id": "x"}'])
def test_broken_metadata_of_spark_are_written_again(
    text: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept, path = _checkpoint(tmp_path, 2), tmp_path / "spark" / "metadata"
    good = '{"id":"89d982c7-f7f1-43f5-ae67-6628cc713c0a"}'
    path.write_text(good)
    path.with_name(".metadata.crc").write_bytes(_sums(good.encode()))
    assert kept.recover() == []
    assert path.read_text() == good
    caplog.clear()
    path.unlink() if text is None else path.write_text(text)
    assert kept.recover() == []
    assert "metadata is damaged" in caplog.text
    assert uuid.UUID(json.loads(path.read_text())["id"])
    assert not path.with_name(".metadata.crc").exists()
    caplog.clear()
    assert kept.recover() == []
    assert caplog.text == ""


@pytest.mark.parametrize("text", ["", "soon", "\x00" * 8, "7\n", "17636200", "[1]"])
def test_a_broken_beginning_is_an_error_with_a_way_back(text: str, tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 1)
    assert kept.zero_micros == 0
    (kept.own / "began").write_text(text)
    with pytest.raises(
        CheckpointError, match=r"began.*microseconds since 1970; write it there; .* first started at \w+ \d{16}"
    ):
        _ = kept.zero_micros
    (kept.own / "began").write_text(f"{MICROS}\n")
    assert kept.zero_micros == MICROS


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "null", '{"epoch": 1}', '{"epoch": 1, "token": "a", "k": 7, "sum": 0}']
)
def test_a_broken_plan_is_an_error_by_type(text: str) -> None:
    with pytest.raises(CheckpointError, match="plan of an epoch"):
        state.Plan.parse(text)


def test_a_plan_that_names_another_parallelism_than_was_written_is_an_error() -> None:
    plan = state.Plan(3, "3-x", (1, 3), state.Plan(2, "2-y", (1, 3)))
    assert state.Plan.parse(plan.text()) == plan
    for text in (plan.text().replace("[1, 3]", "[1, 2]", 1), plan.text()[::-1].replace("]3", "]2", 1)[::-1]):
        with pytest.raises(CheckpointError, match="checksum"):
            state.Plan.parse(text)


OFFSETS = ["", "[1]", "[1,2]\n[1,2]", "[1,-2]", "{}", "[1.5,2]", "7"]


@pytest.mark.parametrize("text", ["", "v1", *(f"v1\n{{}}\n{rest}" for rest in OFFSETS)])
def test_broken_offsets_are_an_error_by_type(text: str, tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 2)
    _write(tmp_path, "offsets", 1, text)
    for use in (kept.offsets, lambda: kept.read(0)):
        with pytest.raises(CheckpointError, match="offsets of epoch 1"):
            use()
    assert kept.records() == 20  # those of the epoch before
    assert kept.recover() == [1]


def test_a_plan_or_state_that_is_gone_is_an_error_by_type(tmp_path: Path) -> None:
    kept = _checkpoint(tmp_path, 2)
    (kept.own / "epochs" / "1.json").unlink()
    with pytest.raises(CheckpointError, match="no plan of epoch 1"):
        kept.state("count")
    shutil.rmtree(kept.own / "state")
    assert kept.recover() == [0, 1]


def test_state_is_on_the_disk_before_its_task_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run, then the manifest before its name, then its folder and those above."""
    import os

    done: list[str] = []
    replace, fsync = os.replace, os.fsync

    def synchronised(handle: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{handle}").removeprefix(str(tmp_path)))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synchronised)
    monkeypatch.setattr(os, "replace", lambda path, to: (done.append(f"-> {to.name}"), replace(path, to))[1])
    plan = state.Plan(0, "0-t", (1,))
    tasks.save_state(tmp_path, plan, 0, 0, DECLARED, {1: 1})
    run, runs, fresh, named, *folders = done
    assert (run[:12], runs) == ("/runs/0-0-0-", "/runs")
    assert (fresh.rpartition(".")[0], named) == ("/state/0-t/0-0.json", "-> 0-0.json")
    assert folders == ["/state/0-t", "/state", ""]


def test_the_names_of_new_folders_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a checkpoint could be gone after a power failure although epochs were committed in it."""
    import os

    done: list[tuple[str, list[str]]] = []

    def synchronised(handle: int) -> None:
        folder = Path(os.readlink(f"/proc/self/fd/{handle}"))
        done.append((str(folder.relative_to(tmp_path)), sorted(path.name for path in folder.iterdir())))

    monkeypatch.setattr(os, "fsync", synchronised)
    kept = Checkpoint(tmp_path / "jobs" / "mine")
    kept.take()
    kept.release()
    assert done == [(".", ["jobs"]), ("jobs", ["mine"]), ("jobs/mine", ["dspkit"]), ("jobs/mine/dspkit", ["epochs"])]


def test_a_full_disk_is_an_error_by_type(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"cannot be written.*make room"):
        tasks.save_state(tmp_path, state.Plan(0, "0-t", (1,)), 0, 0, DECLARED, {1: 1})
