"""Savepoints: a committed epoch of a job, from which another job can start that differs from it.

A savepoint is a folder like a checkpoint, with the files of one epoch. Operators of the new job take over the state of
those of the same name. Their numbers may change, which are part of the names of files; a type of state may change with
a function that converts the values.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core import ArgumentError
from ...core.files import ExistingFileError, make_folder, write_atomically
from ..errors import CheckpointError
from ..sinks.sink import SinkMark
from . import watermarks
from .checkpoint import LATENESS, RESTORING, Checkpoint, check_lateness
from .exchange import keys_of, owned
from .runs import Part, StateRows, scan, write_run
from .state import KeyedState, Plan, incomplete, link, read_plan, seal, synchronise
from .store import Manifest, _manifest_path, operator_parts

Convert = Mapping[str, Callable[[Any], Any] | None]
_BY_NAME = ("operators", "edges", "sends", "stateful", "keys", "sinks")  # of the identity: may differ
_ADDED = ("timers", "windows")  # of the identity: the same for operators that there were
_PARTIAL = ".dspkit-savepoint-"
_OF_OPERATOR = re.compile(r"(\D*)(\d+)(-\d+.*)")  # names of files of state: time-3-0.json


def save(checkpoint: Checkpoint, path: Path, epoch: int) -> None:
    """Copy a committed epoch to a new folder, which gets its name when it is complete and on the disk."""
    path = path.absolute()
    if path.exists():
        raise ExistingFileError(
            f"savepoint {path}, which exists", expected="a new folder", fix="choose another name, or remove it"
        )
    fresh, lock = path.with_name(f"{_PARTIAL}{secrets.token_hex(8)}"), -1
    try:
        make_folder(path.parent)
        _remove_stale(path.parent)
        fresh.mkdir()
        lock = os.open(fresh, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        _copy_epoch(checkpoint, Checkpoint(fresh), epoch)
        for folder in sorted({each.parent for each in fresh.rglob("*")}):
            synchronise(folder)
        Checkpoint(fresh)._check(epoch)
        fresh.rename(path)
        synchronise(path.parent)
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"savepoint {path}: {error}", expected="a disk with room for it", fix="make room, or choose another folder"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _remove_stale(parent: Path) -> None:
    """Remove what processes that were killed left of savepoints; the folder of one that is alive is locked."""
    for folder in parent.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(handle)


def _copy_epoch(there: Checkpoint, here: Checkpoint, epoch: int) -> None:
    """Copy the files of one epoch from a checkpoint to an empty one."""
    (here.own / "runs").mkdir(parents=True)
    for name in ("job.json", "began", f"epochs/{epoch}.json"):
        _copy(there.own / name, here.own / name)
    if (plan := read_plan(there.own, epoch)) is None:
        raise incomplete(f"no plan of epoch {epoch}")
    for file in (there.own / "state" / plan.token).glob("*.json"):
        _copy(file, here.own / "state" / plan.token / file.name)
    known = there._identity()
    for name in known["stateful"]:
        for part in operator_parts(there.own, plan, known["operators"].index(name)):
            link(there.own / "runs" / part.name, here.own / "runs" / part.name)
    for file in _logs(there.own):
        _copy(file, here.own / file.relative_to(there.own))
    for name in known["sinks"]:
        operator = known["operators"].index(name)
        # The new job can have another target; without rows that this one is known to have, none are missed in it.
        replace(SinkMark.read(there.own, operator), published=epoch, held=-1).write(here.own, operator)
    for file in (each for each in (there.own / "tables").rglob("*") if each.is_file()):
        _copy(file, here.own / file.relative_to(there.own))
    for name in ("metadata", f"commits/{epoch}", f"offsets/{epoch}", f"offsets/{epoch - 1}"):
        for file in ((path := there.folder / "spark" / name), path.with_name(f".{path.name}.crc")):
            if file.exists():
                _copy(file, here.folder / "spark" / file.relative_to(there.folder / "spark"))


def _logs(own: Path) -> list[Path]:
    """Return the files of marks of logs, after those of their numbers: the driver adds marks and then counts them."""
    return [*(own / "logs").rglob("counts.json"), *(own / "logs").rglob("*.marks")]


def _copy(path: str | Path, to: str | Path) -> None:
    """Copy a file durably but for its folder, marks of a log up to the last whole line: the driver appends to them."""
    to = Path(to)
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)
    if to.suffix == ".marks":
        whole = to.read_bytes()
        os.truncate(to, whole.rfind(b"\n") + 1)
    synchronise(to)


def restore(
    savepoint: Path, to: Checkpoint, job: Mapping[str, Any], declared: Mapping[str, KeyedState], convert: Convert
) -> None:
    """Fill a new checkpoint from a savepoint, for a job with this identity and these declarations of state."""
    source, marker = Checkpoint(savepoint), to.own / RESTORING
    if (to.own / "job.json").exists() and not marker.exists():
        raise CheckpointError(
            f"checkpoint {to.folder}, which a job has used, and a savepoint to start from",
            expected="a new folder for the checkpoint",
            fix="leave start_from out to continue from the checkpoint, or choose another folder",
        )
    if not (source.own / "job.json").exists() or (epoch := source.committed()) < 0:
        raise CheckpointError(
            f"{savepoint}, which is no savepoint", expected="a folder that job.save() wrote", fix="check the path"
        )
    source._check(epoch)
    known, wanted = source._identity(), json.loads(json.dumps(job))
    _check_job(known, wanted, declared, convert, savepoint)
    write_atomically(marker, lambda path: path.write_text(str(savepoint)), overwrite=True)
    for each in (*to.own.iterdir(), to.folder / "spark"):
        if each.name not in ("lock", RESTORING, "log"):
            shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)
    plan = read_plan(source.own, epoch)
    assert plan is not None  # as `_check` found it
    _Restore(source, to, plan, known["operators"], wanted["operators"]).run(wanted, declared, convert)
    for folder in sorted({each.parent for each in to.folder.rglob("*")}):
        synchronise(folder)
    write_atomically(to.own / "job.json", lambda path: path.write_bytes(seal(wanted)))
    marker.unlink()
    synchronise(to.own)


def _check_job(
    known: dict[str, Any],
    job: dict[str, Any],
    declared: Mapping[str, KeyedState],
    convert: Convert,
    savepoint: Path,
) -> None:
    """Raise an error if the job cannot continue from a job with the identity `known`."""
    if unknown := sorted(set(convert) - set(known["stateful"])):
        raise ArgumentError(
            f"conversions of the state of {', '.join(unknown)}",
            expected=f"some of {', '.join(known['stateful']) or 'none'}, which have state in the savepoint",
            fix="check the names",
        )
    check_lateness(known, job, f"savepoint {savepoint}")
    kept = {*known["operators"]} & {*job["operators"]}
    for what in (known.keys() | job.keys()) - {*_BY_NAME, LATENESS}:
        before, now = (_of_some(each.get(what), kept) if what in _ADDED else each.get(what) for each in (known, job))
        if before != now:
            raise CheckpointError(
                f"savepoint {savepoint} of a job with other {what}: {before}",
                expected=f"the same as this job's: {now}",
                fix="leave them as they were; operators can be added, and state converted",
            )
    sources = [[name for name in each["operators"] if name in known["partitions"]] for each in (known, job)]
    if sources[0] != sources[1]:
        raise CheckpointError(
            f"savepoint {savepoint} of a job with the sources {sources[0]}",
            expected=f"those of this job, in its order: {sources[1]}",
            fix="name the sources in the order of the savepoint",
        )
    if lost := [name for name in known["stateful"] if name not in declared and convert.get(name, "") is not None]:
        raise CheckpointError(
            f"savepoint {savepoint} with the state of {', '.join(lost)}, which this job does not have",
            expected="a keyed operator of the same name for each",
            fix=f"keep the operator, or pass convert={{{lost[0]!r}: None}} to give its state up",
        )


def _of_some(entries: Any, operators: Collection[str]) -> Any:
    """Return the entries of some operators, of a list of operators or a mapping by operator."""
    if isinstance(entries, dict):
        return {name: entry for name, entry in entries.items() if name in operators}
    return [name for name in entries or () if name in operators]


class _Restore:
    """The copy of one epoch, in which operators get other numbers."""

    def __init__(self, source: Checkpoint, to: Checkpoint, plan: Plan, before: list[str], now: list[str]):
        self._from, self._to, self._before, self._now = source.own, to.own, before, now
        self._folders = source.folder, to.folder
        k = dict(zip(before, plan.k, strict=True))
        self._old, self._plan = plan, Plan(plan.epoch, plan.token, tuple(k.get(name, 1) for name in now))
        self._number = {before.index(name): now.index(name) for name in now if name in before}

    def run(self, job: dict[str, Any], declared: Mapping[str, KeyedState], convert: Convert) -> None:
        epoch, text = self._plan.epoch, self._plan.text()
        for name in ("epochs", "runs", f"state/{self._plan.token}"):
            (self._to / name).mkdir(parents=True)
        write_atomically(self._to / "epochs" / f"{epoch}.json", lambda path: path.write_text(text))
        for file in (self._from / "state" / self._old.token).glob("*.json"):
            found = _OF_OPERATOR.fullmatch(file.name)  # of keyed state, which is copied below, or of event time
            if found and found[1] and int(found[2]) in self._number:
                name = f"{found[1]}{self._number[int(found[2])]}{found[3]}"
                _copy(file, self._to / "state" / self._plan.token / name)
        for name, state in declared.items():
            if name in self._before and convert.get(name, "") is not None and self._has_state(name):
                self._take(name, state, convert.get(name))
            else:
                self._begin(name, state, timer=name in job.get("timers", ()))
        for file in (self._from / "began", *_logs(self._from)):
            if file.exists():
                _copy(file, self._to / file.relative_to(self._from))
        for name in job["sinks"]:
            number = self._now.index(name)
            if name in self._before and SinkMark.path(self._from, old := self._before.index(name)).exists():
                SinkMark.read(self._from, old).write(self._to, number)
                if (table := self._from / "tables" / str(old)).exists():
                    shutil.copytree(table, self._to / "tables" / str(number), copy_function=_copy)
            else:
                SinkMark(secrets.token_hex(8), epoch, -1).write(self._to, number)
        shutil.copytree(self._folders[0] / "spark", self._folders[1] / "spark", copy_function=_copy)

    def _has_state(self, name: str) -> bool:
        return _manifest_path(self._from, self._old.token, self._before.index(name), 0).exists()

    def _begin(self, name: str, state: KeyedState, *, timer: bool) -> None:
        """Write empty state for an operator that had none."""
        number = self._now.index(name)
        if timer and name not in self._before:  # it has not heard of a time yet
            watermarks.save(self._to, self._plan, number, 0, {"watermark": watermarks.BEFORE})
        for i in range(k := self._plan.k[number]):
            low, high = owned(i, k)
            made = Manifest(low, high, (0,) * (high - low), (), state.schema.serialize().to_pybytes().hex())
            made.write(_manifest_path(self._to, self._plan.token, number, i))

    def _take(self, name: str, state: KeyedState, convert: Callable[[Any], Any] | None) -> None:
        """Copy the state of an operator, with other names and perhaps other values."""
        import pyarrow as pa

        old, number = self._before.index(name), self._now.index(name)
        for i in range(self._old.k[old]):
            manifest = Manifest.read(_manifest_path(self._from, self._old.token, old, i))
            kept = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(manifest.schema)))
            if list(kept)[:-1] != list(state.schema)[:-1]:
                raise CheckpointError(
                    f"the state of {name!r} by the key {_columns(list(kept)[:-1])}",
                    expected=f"the key that the job declares: {_columns(list(state.schema)[:-1])}",
                    fix=f"keep the key, or pass convert={{{name!r}: None}} to give the state up",
                )
            if convert is None and kept.field("value").type != state.value:
                raise CheckpointError(
                    f"the state of {name!r} of type {kept.field('value').type}",
                    expected=f"the type that the job declares: {state.value}",
                    fix=f"pass convert={{{name!r}: function}}, which returns the new value for an old one",
                )
            if convert is None:
                parts = tuple(self._renamed(part, number) for part in manifest.parts)
                for part, made in zip(manifest.parts, parts, strict=True):
                    if not (self._to / "runs" / made.name).exists():
                        link(self._from / "runs" / part.name, self._to / "runs" / made.name)
            else:
                parts = tuple(self._converted(manifest, state, f"{number}-{i}", convert))
            schema = state.schema.serialize().to_pybytes().hex()
            made_manifest = replace(manifest, parts=parts, schema=schema)
            made_manifest.write(_manifest_path(self._to, self._plan.token, number, i))

    def _renamed(self, part: Part, number: int) -> Part:
        return replace(part, name=f"{number}-{part.name.partition('-')[2]}")

    def _converted(
        self, manifest: Manifest, state: KeyedState, name: str, convert: Callable[[Any], Any]
    ) -> Iterator[Part]:
        """Yield runs with converted values, the newest first."""
        import numpy as np

        made = []
        for i, rows in enumerate(scan(self._from / "runs", manifest.parts, manifest.low, manifest.high)):
            value = state.value_array(keys_of(rows.key), [convert(each) for each in rows.value.to_pylist()])
            kept = StateRows(rows.place, rows.key, value, np.zeros(len(rows.place), bool))
            run = f"{name}-{self._plan.epoch}-{secrets.token_hex(6)}.run"
            made.append(write_run(self._to / "runs", run, kept, (self._plan.epoch, i), 0))
        yield from reversed(made)


def _columns(fields: list[Any]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)
