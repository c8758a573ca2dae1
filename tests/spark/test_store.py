"""State in runs: the mapping against a dict, through epochs, rescales, failed attempts, kills and damaged files."""

from __future__ import annotations

import copy
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dspkit.spark import CheckpointError, FunctionError
from dspkit.spark.dataflow import runs, state, store
from dspkit.spark.dataflow.exchange import owners
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.functions import as_type

INT = KeyedState("count", ("id",), (pa.int64(),), pa.int64(), single=True)
LISTS = KeyedState("count", ("word",), (pa.string(),), pa.list_(pa.int64()), single=True)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it changes nothing as long as the machine runs


class Job:
    """The instances of one operator, epoch by epoch, without Spark."""

    def __init__(self, folder: Path, declared: KeyedState, k: int = 1):
        self.folder, self.declared, self.k, self.epoch = folder, declared, k, 0

    def begin(self) -> list[store.StateStore]:
        self.plan = state.begin_epoch(self.folder, self.epoch, (self.k,))
        return [store.open_store(self.folder, self.plan, 0, i, self.declared) for i in range(self.k)]

    def commit(self, stores: list[store.StateStore]) -> None:
        for i, each in enumerate(stores):
            store.commit_store(self.plan, 0, i, each)
        self.epoch += 1

    def owner(self, keys: list[Any]) -> list[int]:
        owner: list[int] = owners(self.declared.key_array(keys), self.k).tolist()
        return owner

    def read(self) -> dict[Any, Any]:
        table = store.operator_state(self.folder, self.plan, 0)
        *keys, values = (column.to_pylist() for column in table.columns)
        found = keys[0] if self.declared.single else list(zip(*keys, strict=True))
        assert len(set(found)) == len(found)
        return dict(zip(found, values, strict=True))


def _batch(declared: KeyedState, keys: list[Any]) -> pa.RecordBatch:
    """Records with these keys."""
    array = declared.key_array(keys)
    columns = [array] if declared.single else array.flatten()
    return pa.RecordBatch.from_arrays(columns, names=list(declared.columns))


def forget() -> None:
    """As in another process: nothing is open."""
    store._OPEN.clear()
    runs._opened.clear()


def wait_for_upkeep() -> None:
    for thread in threading.enumerate():
        if thread.name == "dspkit-state":
            thread.join()


KINDS: dict[str, tuple[Any, Any]] = {
    "int": (pa.int64(), st.integers(-3, 40)),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "text": (pa.string(), st.sampled_from(["", "a", "b", "\0", "é", "a" * 200, None])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), None])),
    "bool": (pa.bool_(), st.sampled_from([True, False, None])),
    "pair": (pa.string(), st.tuples(st.sampled_from(["a", None]), st.integers(0, 9))),
}
VALUES: dict[str, tuple[Any, Any]] = {
    "int": (pa.int64(), st.one_of(st.none(), st.integers(-9, 9))),
    "text": (pa.string(), st.text(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "struct": (
        pa.struct({"n": pa.float64(), "l": pa.list_(pa.string())}),
        st.fixed_dictionaries({"n": st.sampled_from([0.0, -0.0, 2.5]), "l": st.lists(st.text(max_size=2), max_size=2)}),
    ),
}


def _declared(key: str, value: str) -> KeyedState:
    if key == "pair":
        return KeyedState("count", ("w", "n"), (pa.string(), pa.int32()), VALUES[value][0], single=False)
    return KeyedState("count", ("id",), (KINDS[key][0],), VALUES[value][0], single=True)


NAN = float("nan")


def _one_nan(key: Any) -> Any:
    if key != key:
        return "nan"
    return 0.0 if key == 0.0 and isinstance(key, float) else key


def _act(chance: random.Random, known: Any, truth: dict[Any, Any], key: Any, value: Any) -> None:
    """Do the same with the store and with a dict, and compare what they answer."""
    same = _one_nan(key)
    did = chance.randrange(10)
    if did < 3:
        known[key], truth[same] = copy.deepcopy(value), value
    elif did == 3:
        assert known.get(key, "no") == truth.get(same, "no")
    elif did == 4:
        assert (key in known) == (same in truth)
        if same in truth:
            assert known[key] == truth[same]
        else:
            with pytest.raises(KeyError):
                known[key]
    elif did == 5:
        assert known.pop(key, "no") == truth.pop(same, "no")
    elif did == 6 and same in truth:
        del known[key], truth[same]
    elif did == 7:
        assert known.setdefault(key, copy.deepcopy(value)) == truth.setdefault(same, value)
    elif did == 8 and isinstance(truth.get(same), list):
        known[key].append(5)
        truth[same] = [*truth[same], 5]
    elif did == 9 and isinstance(truth.get(same), dict):
        known[key]["l"].append("x")
        truth[same] = {**truth[same], "l": [*truth[same]["l"], "x"]}


def _shown(value: Any) -> Any:
    """Text that differs for 0.0 and -0.0 as values, but not with the order of the entries."""
    if isinstance(value, dict):
        return sorted((repr(_one_nan(key)), _shown(each)) for key, each in value.items())
    return repr(value)


@pytest.mark.parametrize("key", KINDS)
@pytest.mark.parametrize("value", VALUES)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], phases=[Phase.generate]
)
@given(data=st.data())
def test_a_store_answers_as_a_dict_through_epochs_rescales_and_failed_attempts(
    key: str, value: str, data: Any, tmp_path_factory: Any
) -> None:
    declared, folder = _declared(key, value), tmp_path_factory.mktemp("job")
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    job, truth = Job(folder, declared), {}
    pairs = st.lists(st.tuples(KINDS[key][1], VALUES[value][1]), max_size=25)
    for _ in range(data.draw(st.integers(1, 7))):
        job.k = data.draw(st.integers(1, 4))
        stores = job.begin()
        done = copy.deepcopy(truth)
        for each in stores if chance.random() < 0.3 else ():
            each.memory = 1  # of a few entries: some are written early
        for each_key, each_value in data.draw(pairs):
            known = stores[job.owner([each_key])[0]]
            if chance.random() < 0.5:
                known.prefetch(_batch(declared, [each_key, each_key]))
            _act(chance, known, done, each_key, copy.deepcopy(each_value))
            if chance.random() < 0.1:
                known._flush(everything=False)
        owner = dict(zip(done, job.owner([NAN if k == "nan" else k for k in done]), strict=True))
        for i, known in enumerate(stores):
            mine = {k: v for k, v in done.items() if owner[k] == i}
            assert len(known) == len(mine)
            assert bool(known) == bool(mine)
            assert sorted(map(repr, map(_one_nan, known))) == sorted(map(repr, mine))
            assert _shown(dict(known.items())) == _shown(mine)
            assert len(list(known.values())) == len(mine)
        if chance.random() < 0.3:  # the attempt fails, perhaps after some of it was written
            for i, known in enumerate(stores):
                if chance.random() < 0.5:
                    store.commit_store(job.plan, 0, i, known)
            continue
        job.commit(stores)
        truth = done
        assert _shown(job.read()) == _shown(truth)
        runs.verify(folder / "runs", store.operator_parts(folder, job.plan, 0))
        if chance.random() < 0.5:
            forget()
    wait_for_upkeep()
    shutil.rmtree(folder)


@pytest.mark.parametrize("steps", [3, 40])
def test_merges_and_removed_files_change_nothing(steps: int, tmp_path: Path) -> None:
    chance, truth = random.Random(steps), {}
    job = Job(tmp_path, INT, 2)
    most = 0
    for epoch in range(steps):
        job.k = chance.choice([2, 3, 3, 3])
        stores = job.begin()
        wait_for_upkeep()
        keys = [chance.randrange(300) for _ in range(60)]
        for key, owner in zip(keys, job.owner(keys), strict=True):
            if chance.random() < 0.3:
                stores[owner].pop(key, None)
                truth.pop(key, None)
            else:
                stores[owner][key] = truth[key] = epoch
        job.commit(stores)
        assert job.read() == truth
        assert sum(each.size()["state_keys"] for each in stores) == len(truth)
        most = max(most, *(len({part.newest for part in each._parts}) for each in stores))
        if chance.random() < 0.3:
            forget()
    assert most < 3 * store.FAN_IN, "runs are never merged"
    left = {path.name for path in (tmp_path / "runs").iterdir()}
    assert len(left) < 90 * 3 or steps == 3
    if steps == 40:
        assert any(part.level for each in stores for part in each._parts)
        assert min(int(name.split("-")[2]) for name in left) > 0, "the first runs are replaced and removed"


def test_a_value_that_was_changed_in_place_is_written_and_one_that_was_only_read_is_not(tmp_path: Path) -> None:
    job = Job(tmp_path, LISTS)
    (known,) = job.begin()
    known.update({"a": [1], "b": [2]})
    job.commit([known])
    (known,) = job.begin()
    assert known["a"] == [1]
    known["b"].append(3)
    job.commit([known])
    assert job.read() == {"a": [1], "b": [2, 3]}
    newest = runs.open_run(tmp_path / "runs", known._parts[0])
    assert newest.key.to_pylist() == ["b"]
    count = len(list((tmp_path / "runs").iterdir()))
    (known,) = job.begin()
    assert known["a"] == [1]
    job.commit([known])
    assert len(list((tmp_path / "runs").iterdir())) == count, "nothing was changed, and nothing written"


def test_a_value_that_somebody_still_holds_is_not_written_too_early(tmp_path: Path) -> None:
    job = Job(tmp_path, LISTS)
    (known,) = job.begin()
    known.memory = 0
    held = known.setdefault("held", [])
    inner = KeyedState("count", ("word",), (pa.string(),), pa.list_(pa.list_(pa.int64())), single=True)
    for i in range(5000):
        known[f"{i}"] = [i]
        if i % 100 == 0:
            known.prefetch(_batch(LISTS, [f"{i}"]))
    assert dict.__len__(known) < 2500
    held.append(7)
    job.commit([known])
    assert job.read() == {"held": [7]} | {f"{i}": [i] for i in range(5000)}
    assert store.held_by_others({"a": [[1]]}.values()) == [False]
    part: list[int] = [1]
    assert store.held_by_others({"a": [part]}.values()) == [True]
    assert inner.value == pa.list_(pa.list_(pa.int64()))


@pytest.mark.parametrize("value", ["int", "list"])
def test_memory_stays_bounded_while_state_grows(value: str, tmp_path: Path) -> None:
    declared = _declared("int", value)
    job, count = Job(tmp_path, declared), 60_000
    (known,) = job.begin()
    known.memory = 600_000
    most = 0
    for low in range(0, count, 1000):
        known.prefetch(_batch(declared, list(range(low, low + 1000))))
        for key in range(low, low + 1000):
            if value == "int":
                known[key] = known.get(key, 0) + key
            else:
                known.setdefault(key, []).append(key)
        most = max(most, dict.__len__(known) + len(known._young) + len(known._old))
    assert most < 15_000
    assert len(known) == count
    job.commit([known])
    assert job.read() == {key: key if value == "int" else [key] for key in range(count)}


TEXTS = KeyedState("count", ("word",), (pa.string(),), pa.string(), single=True)


@pytest.mark.parametrize(("declared", "repeats"), [(TEXTS, 1), (TEXTS, 3), (LISTS, 1)], ids=["text", "grows", "list"])
def test_memory_stays_bounded_although_no_large_value_was_ever_looked_up(
    declared: KeyedState, repeats: int, tmp_path: Path
) -> None:
    """Values of 100 kB under new keys: no run says how large they are. Each in one go, or growing."""
    (known,) = Job(tmp_path, declared).begin()
    known.memory, most = 6_000_000, 0
    for low in range(0, 400, 20):
        keys = [f"word {i}" for i in range(low, low + 20)]
        for part in range(1, repeats + 1):
            known.prefetch(_batch(declared, keys))
            count = (100_000 if declared is TEXTS else 12_500) * part // repeats
            known.update((key, "a" * count if declared is TEXTS else [7] * count) for key in keys)
        held = [dict.values(known), known._young.values(), known._old.values()]
        most = max(most, sum(sys.getsizeof(value) for each in held for value in each if type(value) in (str, list)))
    assert most < 12_000_000  # a batch of 2 MB beyond what one third may be, and what the cache holds


def test_numbers_of_numpy_cannot_be_changed_and_arrays_can(tmp_path: Path) -> None:
    mine = np.arange(3)
    cases = [
        ([np.int64(1), np.float32(2), np.bool_(True), np.datetime64(5, "s")], False),
        ([np.void(b"ab")], True),
        (np.array([1, 2]), False),
        (mine, True),
        (np.arange(4)[1:], True),
        (np.array([[]], object), True),
        ({"a": [np.int64(1)]}, False),
    ]
    held = {i: value for i, (value, _) in enumerate(cases)}
    wanted = [may for _, may in cases]
    cases.clear()
    assert store.held_by_others(held.values()) == wanted
    (known,) = Job(tmp_path, LISTS).begin()
    known.memory = 0
    for low in range(0, 2000, 100):
        known.prefetch(_batch(LISTS, [f"{i}" for i in range(low, low + 100)]))
        known.update((f"{i}", [np.int64(i)]) for i in range(low, low + 100))
    assert dict.__len__(known) <= 201


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc: tested on Linux")
def test_removed_runs_are_let_go(tmp_path: Path) -> None:
    """A file that is still mapped takes room on the disk after it was removed."""
    job, chance = Job(tmp_path, INT), random.Random(1)
    for epoch in range(30):
        (known,) = job.begin()
        wait_for_upkeep()
        for key in [chance.randrange(300) for _ in range(60)]:
            known[key] = known.get(key, 0) + epoch
        job.commit([known])
    there = {path.name for path in (tmp_path / "runs").iterdir()}
    (known,) = job.begin()
    del known
    wait_for_upkeep()
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    assert mapped
    gone = [line for line in mapped if line.endswith("(deleted)") and not any(name in line for name in there)]
    assert not gone


def test_json_lists_what_is_not_in_memory(tmp_path: Path) -> None:
    job, truth = Job(tmp_path, LISTS), {"a": [1], "b": [2], "c": []}
    (known,) = job.begin()
    assert json.dumps(known) == "{}"
    known.update(truth)
    assert json.loads(json.dumps(known)) == truth
    job.commit([known])
    (known,) = job.begin()
    assert json.loads(json.dumps(known)) == truth
    assert json.loads(json.dumps({"all": known}, indent=1)) == {"all": truth}
    del known["a"]
    known["d"] = [4]
    assert json.loads(json.dumps(known)) == {"b": [2], "c": [], "d": [4]}
    known.clear()
    assert json.dumps(known) == "{}"


def test_a_full_disk_while_a_batch_is_prepared_is_no_error_of_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = Job(tmp_path, INT)
    (known,) = job.begin()
    known.memory = 0
    known.update((i, i) for i in range(2000))
    with monkeypatch.context() as patched:
        patched.setattr(store, "write_run", full)
        with pytest.raises(CheckpointError, match=r"cannot be written.*No space left.*make room"):
            known.prefetch(_batch(INT, [1]))
    with pytest.raises(CheckpointError, match="No space left"):
        job.commit([known])  # whatever the function made of it
    (known,) = job.begin()
    assert not known


def test_a_scan_holds_few_bytes_however_large_some_values_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, truth = Job(tmp_path, TEXTS), {}
    (known,) = job.begin()
    for i in range(3000):
        known[f"{i}"] = truth[f"{i}"] = "a" * (400_000 if i % 60 == 0 else 10)
    job.commit([known])
    monkeypatch.setattr(runs, "_WINDOW_BYTES", 1_000_000, raising=False)
    windows = list(runs.scan(tmp_path / "runs", known._parts, 0, 4096))
    assert sum(len(rows.place) for rows in windows) == 3000
    for rows in windows:
        one_group = len(set((rows.place >> np.uint64(52)).tolist())) == 1
        assert one_group or rows.key.nbytes + rows.value.nbytes <= 1_010_000
    assert 10 < len(windows) < 60
    assert job.read() == truth


def test_an_error_of_a_merge_is_told_and_the_job_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("an error of dspkit")

    monkeypatch.setattr(store, "merge_runs", broken)
    job, truth, failed = Job(tmp_path, INT), {}, []
    for epoch in range(30):
        (known,) = job.begin()
        wait_for_upkeep()
        known[epoch] = epoch
        try:
            job.commit([known])
            truth[epoch] = epoch
        except CheckpointError as error:
            failed.append(str(error))
            monkeypatch.undo()
            monkeypatch.setattr(os, "fsync", lambda _: None)
    (said,) = failed
    assert "ValueError while state was merged: an error of dspkit" in said
    assert job.read() == truth
    assert any(part.level for part in known._parts), "it is merged after all"


def test_a_merge_is_adopted_behind_all_that_is_newer_whatever_the_order_of_its_parts(tmp_path: Path) -> None:
    """Parts of two former instances are equally new, so that either may come first."""
    part = lambda name, epoch, low, high: runs.Part(name, 1, 0, 1, low, high, (epoch, 0), 0)  # noqa: E731
    newer, left, right, old = part("n", 9, 0, 4096), part("a", 5, 0, 2048), part("b", 5, 2048, 4096), part("o", 1, 0, 9)
    made = [runs.Part("m", 1, 0, 2, 0, 4096, (5, 0), 1)]
    (tmp_path / "merges").mkdir()
    for due in ([left, right], [right, left]):
        content = {"epoch": 9, "from": [vars(each) for each in due], "to": [vars(each) for each in made]}
        rows = {name: [list(each.values()) for each in parts] for name, parts in content.items() if name != "epoch"}
        store.write_sealed(tmp_path / "merges" / "0-0.x.9.json", {"epoch": 9} | rows)
        for before in ([newer, left, right, old], [newer, right, left, old]):
            assert list(store.adopted(tmp_path, "0-0", 10, before)) == [newer, *made, old]


def test_bytes_in_front_of_rows_are_those_of_the_values(tmp_path: Path) -> None:
    """Text, lists, structs and maps of them: the bytes of offsets and contents, without those of nulls."""
    kinds: dict[pa.DataType, tuple[list[Any], Callable[[Any], int]]] = {
        pa.int64(): ([1, None], lambda _: 8),
        pa.decimal128(9, 2): ([Decimal(1)], lambda _: 16),
        pa.string(): (["é", "", None, "abc"], lambda v: 4 + len((v or "").encode())),
        pa.large_binary(): ([b"ab", None], lambda v: 8 + len(v or b"")),
        pa.list_(pa.string()): ([["a", "bcd"], [], None], lambda v: 4 + sum(4 + len(w) for w in v or [])),
        pa.list_(pa.int16(), 3): ([[1, 2, 3]], lambda _: 6),
        pa.struct({"a": pa.int32(), "b": pa.string()}): ([{"a": 1, "b": "xyz"}], lambda v: 4 + 4 + len(v["b"])),
        pa.map_(pa.string(), pa.int8()): ([[("k", 1)], []], lambda v: 4 + sum(4 + len(k) + 1 for k, _ in v)),
        pa.null(): ([None], lambda _: 0),
    }
    (tmp_path / "runs").mkdir()
    for i, (kind, (some, size)) in enumerate(kinds.items()):
        values = [some[j % len(some)] for j in range(700)]
        rows = runs.sort(pa.array(range(700)), pa.array(values, kind), np.zeros(700, bool))
        run = runs.StateRun(tmp_path / "runs", runs.write_run(tmp_path / "runs", f"{i}.run", rows, (0, 0), 0))
        sizes = [8 + size(values[key]) for key in rows.key.to_pylist()]
        at = np.array([0, 1, 350, 699, 700])
        assert run.bytes_before(at).tolist() == [sum(sizes[:row]) for row in at], kind


def test_a_rescale_moves_no_rows_and_an_unchanged_instance_opens_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, INT, 2)
    stores = job.begin()
    for key, owner in zip(range(20_000), job.owner(list(range(20_000))), strict=True):
        stores[owner][key] = key
    job.commit(stores)
    size = sum(path.stat().st_size for path in (tmp_path / "runs").iterdir())
    job.k = 3
    stores = job.begin()
    stores[0][next(k for k in range(100) if job.owner([k])[0] == 0)] = -1
    job.commit(stores)
    after = sum(path.stat().st_size for path in (tmp_path / "runs").iterdir())
    assert after - size < 3 * runs.PAGE + 1000
    assert [each.size()["state_keys"] for each in stores] == [len(each) for each in stores]
    assert sum(each.size()["state_keys"] for each in stores) == 20_000
    assert abs(sum(each.size()["state_bytes"] for each in stores) - after) < 10

    def never(*_: Any) -> Any:
        raise AssertionError("a file is read")

    wait_for_upkeep()
    monkeypatch.setattr(store.StateStore, "tend", lambda *_, **__: None)
    monkeypatch.setattr(store.Manifest, "read", never)
    monkeypatch.setattr(runs, "StateRun", never)
    stores = job.begin()
    assert stores[0][next(k for k in range(100) if job.owner([k])[0] == 0)] == -1
    job.commit(stores)


def test_bytes_written_follow_the_keys_that_were_touched(tmp_path: Path) -> None:
    job = Job(tmp_path, INT)
    (known,) = job.begin()
    known.update((key, key) for key in range(200_000))
    job.commit([known])
    (known,) = job.begin()
    before = {path.name for path in (tmp_path / "runs").iterdir()}
    touched = random.Random(1).sample(range(200_000), 5000)
    for key in touched:
        known[key] = known.get(key, 0) + 1
    job.commit([known])
    written = sum(p.stat().st_size for p in (tmp_path / "runs").iterdir() if p.name not in before)
    assert written <= 3 * 16 * len(touched)


@pytest.mark.parametrize(
    ("key", "value", "equal"),
    [("bool", True, 1), ("int64", 1, True), ("float64", 1.5, Decimal("1.5")), ("decimal128(9, 2)", Decimal(1), 1.0)],
)
def test_a_key_of_another_type_hides_no_equal_one(key: str, value: Any, equal: Any, tmp_path: Path) -> None:
    """In Python True is equal to 1: a look-up with one must not make the other absent, whose state would be lost."""
    kind = pa.decimal128(9, 2) if key.startswith("decimal") else as_type(key)
    job = Job(tmp_path, KeyedState("count", ("id",), (kind,), pa.int64(), single=True))
    (known,) = job.begin()
    known[value] = 10
    job.commit([known])
    forget()
    (known,) = job.begin()
    known.get(equal)
    known[value] = known.get(value, 0) + 1
    job.commit([known])
    assert job.read() == {value: 11}


def test_what_is_written_while_a_loop_runs_is_what_the_loop_sees(tmp_path: Path) -> None:
    job = Job(tmp_path, INT)
    (known,) = job.begin()
    known.update((key, 1) for key in range(600))
    job.commit([known])
    (known,) = job.begin()
    known.memory = 0  # entries are written to a run as soon as they may be
    known.update((key, 2) for key in range(600, 900))
    seen = {}
    for n, (key, value) in enumerate(known.items()):
        seen[key] = value
        if n % 50 == 0:
            known._bound()
    assert seen == {key: 1 if key < 600 else 2 for key in range(900)}
    del known[700], known[3]
    assert sorted(known) == [key for key in range(900) if key not in (3, 700)]
    known.clear()
    assert not known
    job.commit([known])
    assert job.read() == {}


def test_two_attempts_of_one_epoch_at_once_do_not_touch_each_other(tmp_path: Path) -> None:
    job = Job(tmp_path, INT)
    (known,) = job.begin()
    known[1] = 1
    job.commit([known])
    (first,) = job.begin()
    orphan = job.plan
    first[1] = 99
    (second,) = job.begin()  # the same epoch again, while the first attempt still runs
    assert second[1] == 1
    second[2] = 2
    job.commit([second])
    store.commit_store(orphan, 0, 0, first)  # a task that outlived its query
    assert job.read() == {1: 1, 2: 2}
    (known,) = job.begin()
    assert dict(known) == {1: 1, 2: 2}


def test_foreign_keys_and_values_that_the_type_cannot_hold_are_refused(tmp_path: Path) -> None:
    job = Job(tmp_path, INT, 2)
    stores = job.begin()
    foreign = next(k for k in range(100) if job.owner([k])[0] == 1)
    stores[0][foreign] = 1
    with pytest.raises(FunctionError, match="another instance"):
        job.commit(stores)
    (known, _) = job.begin()
    known[next(k for k in range(100) if job.owner([k])[0] == 0)] = 2.5
    with pytest.raises(FunctionError, match=r"2\.5"):
        job.commit([known])
    assert known.get("x") is None
    assert 1.5 not in known
    with pytest.raises(KeyError):
        known["all"]
    with pytest.raises(TypeError):
        known.get([])


def _checkpoint(folder: Path, declared: KeyedState, rows: int) -> tuple[Job, dict[Any, Any]]:
    job, truth = Job(folder, declared, 2), {}
    for epoch in range(2):
        stores = job.begin()
        keys = [f"word {i}" for i in range(epoch * rows // 2, epoch * rows // 2 + rows)]
        for key, owner in zip(keys, job.owner(keys), strict=True):
            stores[owner][key] = truth[key] = [epoch, len(key)]
        job.commit(stores)
    forget()
    return job, truth


def test_a_flipped_bit_or_a_missing_byte_is_found_before_it_is_used(tmp_path: Path) -> None:
    job, truth = _checkpoint(tmp_path / "whole", LISTS, 3000)
    keys, chance = sorted(truth), random.Random(3)
    files = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").glob("*/**/*") if path.is_file()]
    files = [path for path in files if path.parts[0] in ("runs", "state")]
    newest = [path for path in files if path.parts[0] == "runs" or path.parts[1] == job.plan.token]
    found = 0
    for path in newest:
        for way in range(12):
            folder = tmp_path / f"copy {found}"
            shutil.copytree(tmp_path / "whole", folder)
            raw = bytearray((folder / path).read_bytes())
            if way == 0:
                raw = raw[:-1]
            elif way == 1:
                raw = raw[: len(raw) // 2]
            elif way == 2:
                raw = bytearray()
            else:
                at = chance.randrange(len(raw))
                raw[at] ^= 1 << chance.randrange(8)
            (folder / path).write_bytes(raw)
            again = Job(folder, LISTS, chance.choice([1, 2, 3]))
            again.epoch = 2
            try:
                stores = again.begin()
                for key, owner in zip(keys, again.owner(keys), strict=True):
                    assert stores[owner].get(key) == truth[key]
                again.commit(stores)
                assert again.read() == truth  # an unread page of padding or of a Bloom filter, or it raises
                runs.verify(folder / "runs", store.operator_parts(folder, again.plan, 0))
                raise AssertionError(f"{path}: way {way} was not noticed")
            except CheckpointError:
                found += 1
            forget()
            shutil.rmtree(folder)
    assert found >= 48


def test_every_page_of_every_type_is_checked_before_its_first_use(tmp_path: Path) -> None:
    """Flip each byte of a small run of many types: the values read are right, or an error is raised."""
    kind = pa.struct(
        {
            "a": pa.list_(pa.struct({"x": pa.string(), "y": pa.decimal128(9, 2)})),
            "b": pa.map_(pa.string(), pa.int8()),
            "c": pa.list_(pa.bool_(), 2),
            "d": pa.large_binary(),
            "e": pa.timestamp("us", "UTC"),
            "f": pa.null(),
            "g": pa.large_list(pa.date32()),
        }
    )
    from datetime import UTC, datetime

    values = [
        None
        if i % 7 == 0
        else {
            "a": [{"x": "é" * (i % 5), "y": Decimal(i) / 4}] * (i % 3),
            "b": [("k", i % 100)] * (i % 2),
            "c": [True, i % 2 == 0],
            "d": b"z" * (i % 4) if i % 5 else None,
            "e": datetime(2026, 1, 1, tzinfo=UTC),
            "f": None,
            "g": [date(2026, 1, 1 + i % 20)] * (i % 4),
        }
        for i in range(400)
    ]
    (tmp_path / "runs").mkdir()
    rows = runs.sort(pa.array(range(400)), pa.array(values, kind), np.zeros(400, bool))
    part = runs.write_run(tmp_path / "runs", "r.run", rows, (0, 0), 0)
    raw = (tmp_path / "runs" / "r.run").read_bytes()
    order = rows.key.to_pylist()
    caught = 0
    for at in range(0, len(raw), 61):
        (tmp_path / "runs" / "r.run").write_bytes(raw[:at] + bytes([raw[at] ^ 16]) + raw[at + 1 :])
        try:
            run = runs.StateRun(tmp_path / "runs", part)
            where = np.arange(0, 400, 3)
            assert run.values(where) == [values[order[i]] for i in where]
            caught -= 1
            run.verify()
            raise AssertionError(f"byte {at} was not noticed")
        except CheckpointError:
            caught += 1
    assert caught > 100


KINDS_OF_VALUES: dict[pa.DataType, list[Any]] = {
    pa.null(): [None],
    pa.bool_(): [True, None, False],
    pa.float16(): [1.5, None],
    pa.decimal256(50, 2): [Decimal("1.25"), None],
    pa.binary(3): [b"abc", None],
    pa.date64(): [date(2020, 1, 1)],
    pa.time32("s"): [time(1, 2, 3), None],
    pa.duration("us"): [timedelta(1), None],
    pa.month_day_nano_interval(): [None, pa.MonthDayNano([1, 2, 3])],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b", None],
    pa.list_(pa.dictionary(pa.int8(), pa.string())): [["a"], ["b", "a"]],
    pa.list_(pa.bool_(), 3): [[True, False, None], None],
    pa.list_view(pa.int64()): [[1], [2, 3]],
    pa.large_list(pa.string()): [["a"], None],
    pa.map_(pa.string(), pa.list_(pa.int8())): [[("a", [1])], [], None],
    pa.struct([]): [{}, None],
}


@pytest.mark.parametrize("kind", KINDS_OF_VALUES, ids=str)
def test_state_can_be_of_any_type_that_arrow_selects(kind: pa.DataType, tmp_path: Path) -> None:
    declared = KeyedState("count", ("id",), (pa.int64(),), kind, single=True)
    some, job = KINDS_OF_VALUES[kind], Job(tmp_path, declared)
    truth = {}
    for epoch in range(3):
        (known,) = job.begin()
        truth |= {key: some[(key + epoch) % len(some)] for key in range(epoch, 600, epoch + 1)}
        known.update({key: truth[key] for key in range(epoch, 600, epoch + 1)})
        job.commit([known])
        forget()
    (known,) = job.begin()
    assert known.copy() == truth
    assert {key: known[key] for key in range(600)} == truth
    job.commit([known])
    assert job.read() == truth


KILLED = """
    import os, sys, random, threading
    from pathlib import Path
    import pyarrow as pa
    from dspkit.spark.dataflow import state, store
    from dspkit.spark.dataflow.exchange import owners
    from dspkit.spark.dataflow.state import KeyedState

    folder, left, torn = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "torn"
    store.FAN_IN = 3
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "replace", "unlink", "close")}

    def step(name):
        def call(*args, **more):
            global left
            if args and isinstance(args[0], (str, os.PathLike)) and str(folder) not in str(args[0]):
                return real[name](*args, **more)
            left -= 1
            if left == 0:
                if torn and name == "write":
                    real["write"](args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), 9)
            return real[name](*args, **more)
        return call

    for name in real:
        setattr(os, name, step(name))
    declared = KeyedState("count", ("id",), (pa.int64(),), pa.int64(), True)
    committed = folder / "committed"
    epoch = int(committed.read_text()) + 1 if committed.is_file() else 0
    while epoch < 12:
        chance = random.Random(epoch)
        k = chance.choice([1, 2, 3])
        plan = state.begin_epoch(folder, epoch, (k,))
        stores = [store.open_store(folder, plan, 0, i, declared) for i in range(k)]
        for thread in threading.enumerate():
            if thread.name == "dspkit-state":
                thread.join()
        keys = [chance.randrange(60) for _ in range(30)]
        for key, owner in zip(keys, owners(pa.array(keys), k).tolist()):
            if chance.random() < 0.3:
                stores[owner].pop(key, None)
            else:
                stores[owner][key] = stores[owner].get(key, 0) + epoch
        for i, each in enumerate(stores):
            store.commit_store(plan, 0, i, each)
        for name in real:  # Spark commits
            setattr(os, name, real[name])
        fresh = folder / "fresh"
        fresh.write_text(str(epoch))
        fresh.replace(committed)
        for name in real:
            setattr(os, name, step(name))
        epoch += 1
    print("left", left)
"""


def _truth_after(epochs: int) -> dict[int, int]:
    truth: dict[int, int] = {}
    for epoch in range(epochs):
        chance = random.Random(epoch)
        chance.choice([1, 2, 3])
        for key in [chance.randrange(60) for _ in range(30)]:
            if chance.random() < 0.3:
                truth.pop(key, None)
            else:
                truth[key] = truth.get(key, 0) + epoch
    return truth


@pytest.mark.parametrize("torn", ["whole", "torn"])
def test_state_equals_the_dict_after_a_kill_at_any_step(torn: str, tmp_path: Path) -> None:
    """Write run, manifest, commit, merge, collect: the process is killed at each n-th operation on files."""
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(KILLED))
    chance, kills = random.Random(5), 0
    folder = tmp_path / "job"
    folder.mkdir()
    start = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    while True:
        left = chance.randrange(1, 120)
        done = subprocess.run(
            [sys.executable, script, folder, str(left), torn], env=start, capture_output=True, text=True, check=False
        )
        assert done.returncode in (0, -9), done.stderr
        epoch = int((folder / "committed").read_text()) if (folder / "committed").is_file() else -1
        if epoch >= 0:
            plan = state.Plan.parse((folder / "epochs" / f"{epoch}.json").read_text())
            table = store.operator_state(folder, plan, 0)
            read = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
            assert read == _truth_after(epoch + 1)
            runs.verify(folder / "runs", store.operator_parts(folder, plan, 0))
        if done.returncode == 0:
            break
        kills += 1
    assert kills >= 5
