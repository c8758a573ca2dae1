"""The state of one instance of a keyed operator: the newest values in memory, all others in runs.

An epoch writes the keys that it changed, as one run, and a manifest that names the runs of the instance. The manifest
lies under the token of its attempt (`state.py`): the runs of an attempt that failed are named by no manifest that is
ever read. A change of parallelism hands on the names of runs with the ranges of key groups; no row is copied.

    state/<token>/<operator>-<instance>.json   manifests; the driver removes them after four epochs
    runs/<operator>-<instance>-<epoch>-<random>.run
    merges/<operator>-<digest>.json            a merge: the parts that it replaces, and those in their place

Runs are merged beside the running epoch (`merge_runs`), by whichever process holds the instance. The result is adopted
by the next epoch that still names all of its parts. `collect` removes files that no kept manifest or merge names.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import secrets
import sys
import threading
from collections.abc import ItemsView, Iterable, Iterator, KeysView, MutableMapping, Sequence, ValuesView
from dataclasses import astuple, dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import CheckpointError
from ..functions import GROUPS
from . import runs
from .exchange import GROUP_SHIFT, groups, keys_of, owned, places, with_one_nan
from .runs import PIECE_BYTES, Part, StateRows, scan, write_durably, write_run
from .state import KEPT, KeyedState, Plan, incomplete, seal, synchronise, unseal

if TYPE_CHECKING:
    import pyarrow as pa


MEMORY_BYTES = 256 << 20  # of keys and values that one instance holds in memory
_LEAST = 16  # entries that it may hold all the same
FAN_IN = 8  # runs of a level that are merged into one of the next
_get: Any = dict.get  # what a store holds as a dict, not as a mapping
_set: Any = dict.__setitem__
_has: Any = dict.__contains__
_delete: Any = dict.__delitem__
_count: Any = dict.__len__
_keys: Any = dict.keys
_values: Any = dict.values
_clear: Any = dict.clear
_ABSENT: Any = object()  # in the cache: no such key
_NOTHING: Any = object()  # from the cache: not known
_ENTRY_BYTES = 200  # of a key and a value in a dict, beside what is measured
_SAMPLE, _SAMPLES = 16, 1024  # entries of a batch that are measured, and over how many the mean is taken
_GUARD: Any = object()  # the first key of the dict: for an empty one json.dumps, in C, never asks for the entries


@dataclass(frozen=True)
class Manifest:
    """The state of an instance at the end of an attempt: its range of key groups, keys per group, and parts of runs."""

    low: int
    high: int
    keys: tuple[int, ...]
    parts: tuple[Part, ...]  # the newest first
    schema: str  # of keys and values, as Arrow writes it, in hexadecimal digits

    def write(self, path: Path) -> None:
        """Write the manifest durably but for its folder, under its final name last."""
        write_sealed(path, {**vars(self), "parts": [astuple(part) for part in self.parts]})

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a manifest, or raise the error of a damaged file."""
        text = read_sealed(path)
        return cls(text["low"], text["high"], tuple(text["keys"]), _parts(text["parts"]), text["schema"])


def _parts(rows: Any) -> tuple[Part, ...]:
    return tuple(
        Part(name, size, seal, count, low, high, (newest[0], newest[1]), level)
        for name, size, seal, count, low, high, newest, level in rows
    )


def write_sealed(path: Path, content: Any) -> None:
    """Write JSON with its checksum, durably but for its folder, under its final name last."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    write_durably(fresh, [seal(content)])
    os.replace(fresh, path)


def read_sealed(path: Path) -> Any:
    """Read what `write_sealed` wrote, or raise the error of a damaged file."""
    try:
        return unseal(path.read_bytes(), plain=b"")
    except (OSError, ValueError) as error:
        raise incomplete(f"{path.name} of {path.parent.name}: {error}") from error


def inherited(manifests: Sequence[Manifest], low: int, high: int) -> Manifest:
    """Return what the owner of a range of key groups takes over from the former owners."""
    keys, parts = [0] * (high - low), []
    for manifest in manifests:
        for group in range(max(low, manifest.low), min(high, manifest.high)):
            keys[group - low] = manifest.keys[group - manifest.low]
        parts += [clip for part in manifest.parts if (clip := part.clip(low, high))]
    return Manifest(low, high, tuple(keys), _ordered(parts), manifests[0].schema)


def _ordered(parts: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: part.newest, reverse=True))


class StateStore(dict[Any, Any]):
    """A mapping of the keys of an instance, of which what was changed and what was used lately is in memory.

    As a dict it holds what this epoch changed, and values that can be changed in place and were handed out, behind one
    entry of its own. So writing, and reading what was written, is as fast as in a dict. All other entries are found in
    runs; `prefetch` does it for the keys of a batch at once.
    """

    __getitem__: Any = dict.__getitem__  # with __missing__
    __setitem__: Any = dict.__setitem__
    __eq__: Any = MutableMapping.__eq__
    __hash__ = None
    popitem: Any = MutableMapping.popitem
    update: Any = MutableMapping.update

    def __init__(self, folder: Path, name: str, declared: KeyedState, manifest: Manifest, memory: int = MEMORY_BYTES):
        import pyarrow as pa

        super().__init__({_GUARD: None})
        self.folder, self.name, self.memory = folder, name, memory  # the name: operator and instance
        self._declared, self._manifest = declared, manifest
        self._keys, self._parts = list(manifest.keys), list(manifest.parts)
        kind = declared.value
        while isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        self._nested = pa.types.is_nested(kind)  # values that a function may change in place
        self._sized = not self._nested and all(map(_has_fixed_size, (*declared.kinds, kind)))
        self._lent: set[Any] = set()  # keys whose values were handed out and can be changed in place
        self._gone: set[Any] = set()  # keys in runs that this epoch deleted
        self._young: dict[Any, Any] = {}  # what runs hold: used since the last generation,
        self._old: dict[Any, Any] = {}  # and before
        self._in_runs = 0  # bytes of an entry as runs have it
        self._in_memory, self._measured = 0.0, 0  # bytes of entries that were measured, and their number
        self._used: list[Any] = []  # some of the keys of the last batch
        self._spared = 0  # values that could not be written out, as others hold them
        self._epoch = self._flushed = 0  # the present epoch, and its runs so far
        self._damage: CheckpointError | None = None  # which the function may have swallowed
        self.timers: Any = None  # those of these keys, as they were at the end of the last epoch

    # The mapping

    def __missing__(self, key: Any) -> Any:
        value = self._known(key)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        value = _get(self, key, _NOTHING)
        if value is not _NOTHING:
            return value
        value = self._known(key)
        return default if value is _ABSENT else value

    def __contains__(self, key: object) -> bool:
        return _has(self, key) or (key not in self._gone and self._cached(key) is not _ABSENT)

    def __delitem__(self, key: Any) -> None:
        held = self._held(key)
        if _has(self, key):
            _delete(self, key)
        elif not held or key in self._gone:
            raise KeyError(key)
        if held:
            self._gone.add(key)
        self._lent.discard(key)

    def _own(self) -> list[Any]:
        """Return the keys that it holds as a dict."""
        return list(_keys(self))[1:]

    def __len__(self) -> int:
        self._fetch(own := self._own())
        fresh = sum(not self._held(key) for key in own)
        return sum(self._keys) + fresh - sum(not _has(self, key) for key in self._gone)

    def __bool__(self) -> bool:
        return _count(self) > 1 or sum(self._keys) > len(self._gone)

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self._entries(values=False):
            yield key

    def __reversed__(self) -> Iterator[Any]:
        return iter(list(self)[::-1])

    def keys(self) -> Any:
        """Return a view of the keys."""
        return KeysView(self)

    def items(self) -> Any:
        """Return a view of the entries."""
        return _Items(self)

    def values(self) -> Any:
        """Return a view of the values."""
        return _Values(self)

    def copy(self) -> dict[Any, Any]:
        """Return the entries as a dict."""
        return dict(self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __or__(self, other: Any) -> dict[Any, Any]:
        merged: dict[Any, Any] = self.copy() | other
        return merged

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __ior__(self, other: Any) -> StateStore:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self.copy())

    def __reduce__(self) -> Any:
        return dict, (self.copy(),)

    def _entries(self, *, values: bool) -> Iterator[tuple[Any, Any]]:
        own = self._own()
        for key in own:  # read again: the caller may have removed the key, or this object may have written it to a run
            value = self.get(key, _NOTHING) if values else key in self or _NOTHING
            if value is not _NOTHING:
                yield key, value if values else None
        seen, flushed = set(own), self._flushed
        windows = scan(self._runs, list(self._parts), self._manifest.low, self._manifest.high)
        while True:
            with self._noticed():
                rows = next(windows, None)
            if rows is None:
                return
            held = rows.value.to_pylist() if values else [None] * len(rows.place)
            for key, value in zip(keys_of(rows.key), held, strict=True):
                if key in seen or key in self._gone:
                    continue
                if self._flushed != flushed:  # this window may be older than what was written to a run since
                    value = self.get(key, _NOTHING)
                    if value is _NOTHING:
                        continue
                elif values and _has(self, key):
                    value = _get(self, key)
                elif values and self._nested:
                    value = self._lend(key, value)
                yield key, value
            if values:
                self._bound()

    def clear(self) -> None:
        """Remove all keys."""
        for key in list(self):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, which is the default if it has none."""
        value = self.get(key, _NOTHING)
        if value is _NOTHING:
            self[key] = value = default
        return value

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key, and return its value, or the default if it has none."""
        value = self.get(key, _NOTHING)
        if value is not _NOTHING:
            del self[key]
            return value
        if not default:
            raise KeyError(key)
        return default[0]

    # Reading

    @contextlib.contextmanager
    def _noticed(self) -> Iterator[None]:
        """Keep the error of a file, so that the epoch fails of it whatever the function makes of it."""
        try:
            yield
        except CheckpointError as error:
            self._damage = error
            raise
        except OSError as error:
            self._damage = CheckpointError(
                f"state that cannot be written: {error}",
                expected=f"a disk with room at {self.folder}",
                fix="make room, and start the job again: nothing is lost",
            )
            raise self._damage from error

    @property
    def _runs(self) -> Path:
        return self.folder / "runs"

    def _known(self, key: Any) -> Any:
        """Return the value of a key that this epoch did not write; a value that can change in place counts as lent."""
        if key in self._gone:
            return _ABSENT
        value = self._cached(key)
        return self._lend(key, value) if self._nested and value is not _ABSENT else value

    def _lend(self, key: Any, value: Any) -> Any:
        _set(self, key, value)
        self._lent.add(key)
        self._young[key] = True  # the key is held; the value may no longer be as runs have it
        self._old.pop(key, None)
        return value

    def _cached(self, key: Any) -> Any:
        """Return what runs hold for a key."""
        value = self._young.get(key, _NOTHING)
        if value is _NOTHING:
            value = self._old.get(key, _NOTHING)
            if value is _NOTHING:
                self._fetch([key])
                return self._young.get(key, _ABSENT)  # a key that the type cannot hold is not cached
            self._young[key] = value
        return value

    def _held(self, key: Any) -> bool:
        """Return whether runs hold a key."""
        return self._cached(key) is not _ABSENT

    def prefetch(self, batch: pa.RecordBatch) -> None:
        """Look up the keys of a batch together, and write out what exceeds the memory."""
        self._bound()
        if self._parts or not self._sized:
            keys = keys_of(self._declared.batch_keys(batch))
            self._used = [] if self._sized else keys[:: -(-len(keys) // _SAMPLE) or 1]
            if self._parts:
                self._fetch(keys)

    def _bound(self) -> None:
        if self.full:
            with self._noticed():
                self._flush(everything=False)

    def _measure(self) -> None:
        """Measure some of the entries that were used last, which no run may have held yet."""
        for key in self._used:
            value = _get(self, key, _NOTHING)
            if value is not _NOTHING:
                self._in_memory, self._measured = self._in_memory + _bytes(key) + _bytes(value), self._measured + 1
        self._used = []
        if self._measured > _SAMPLES:
            self._in_memory, self._measured = self._in_memory / 2, self._measured // 2

    @property
    def _each(self) -> int:
        """Bytes of an entry in memory."""
        return _ENTRY_BYTES + max(self._in_runs, int(self._in_memory / max(1, self._measured)))

    @property
    def _limit(self) -> int:
        """Number of entries that may be changed in memory; twice that number may be held in the cache."""
        return max(_LEAST, self.memory // self._each // 3)

    def _fetch(self, keys: Sequence[Any]) -> None:
        if len(self._young) > self._limit:
            self._old, self._young = self._young, {}
        young, old = self._young, self._old
        unknown = []
        for key in dict.fromkeys(keys):
            if key not in young:
                if key in old:
                    young[key] = old[key]
                else:
                    unknown.append(key)
        if unknown:
            # Not those that the type cannot hold: True is equal to 1, and would hide it as absent.
            encoded = self._declared.key_array_of_some(unknown)
            found = dict.fromkeys(keys_of(encoded), _ABSENT)
            with self._noticed():
                found.update(self._looked_up(encoded))
            young.update(found)

    def _looked_up(self, encoded: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the entries that runs hold of these keys."""
        import numpy as np

        if not self._parts or not len(encoded):
            return
        place = places(encoded)
        left = np.argsort(place, kind="stable")
        place, keys = place[left], keys_of(encoded)
        shift = np.uint64(GROUP_SHIFT)
        # Of the keys of others nothing is known here; that one is not there would be wrong.
        owned_by = (place >> shift).astype(np.int64), self._manifest.low, self._manifest.high
        self._declared.check_owned([keys[i] for i in left.tolist()], *owned_by)
        for part in self._parts:
            group = place >> shift
            low, high = (int(np.searchsorted(group, np.uint64(edge))) for edge in (part.low, part.high))
            if low == high:
                continue
            run = runs.open_run(self._runs, part)
            found = run.find(place[low:high], left[low:high], keys)
            hit = np.flatnonzero(found >= 0)
            if not len(hit):
                continue
            row, which = found[hit], left[low:high][hit]
            there = ~run.gone(row)
            self._in_runs = (8 if self._nested else 1) * run.size // run.rows
            yield from zip([keys[i] for i in which[there].tolist()], run.values(row[there]), strict=True)
            keep = np.ones(len(left), bool)
            keep[low + hit] = False
            place, left = place[keep], left[keep]

    # Writing

    def begin(self, epoch: int) -> None:
        """Begin an attempt at an epoch."""
        self._epoch, self._flushed = epoch, 0
        runs.let_go()
        self._parts = list(adopted(self.folder, self.name, epoch, self._parts))

    def tend(self, *, collects: bool) -> None:
        """Merge runs beside the epoch, if some are due, and remove old ones, unless this process is at it already."""
        due = due_parts(self._parts)
        if (due or collects) and (self.folder, self.name) not in _TENDED:
            _TENDED.add((self.folder, self.name))
            work = (self.folder, self.name, self._epoch, due, len(due) == len(self._parts), self._manifest, collects)
            threading.Thread(target=_tend, args=work, daemon=True, name="dspkit-state").start()

    def commit(self, path: Path) -> None:
        """Write what the epoch changed, and the manifest of all: when this returns, both are on the disk."""
        if self._damage is not None:
            raise self._damage
        if (failed := _FAILED.pop((self.folder, self.name), None)) is not None:
            raise CheckpointError(
                f"{type(failed).__name__} while state was merged: {failed}",
                expected="runs that can be merged",
                fix="start the job again, from its checkpoint; this is an error of dspkit, please report it",
            ) from failed
        with self._noticed():
            self._flush(everything=True)
            self._parts = list(adopted(self.folder, self.name, self._epoch, self._parts))
            self._manifest = replace(self._manifest, keys=tuple(self._keys), parts=tuple(self._parts))
            path.parent.mkdir(parents=True, exist_ok=True)
            self._manifest.write(path)
            for folder in (path.parent, path.parent.parent, self.folder):
                synchronise(folder)

    def _flush(self, *, everything: bool) -> None:
        """Write what was changed as a run; without `everything`, values that others still hold are kept in memory."""
        import numpy as np
        import pyarrow as pa

        spared: set[Any] = set()
        if self._nested and not everything:
            spared = {key for key, held in zip(_keys(self), held_by_others(_values(self)), strict=True) if held}
        self._spared = len(spared)
        lent = [key for key in self._lent if key not in spared]
        same = {
            key
            for key, value in self._looked_up(self._declared.key_array_of_some(lent))
            if _same(value, _get(self, key))
        }
        changed = [key for key in self._own() if key not in spared and key not in same]
        gone = [key for key in self._gone if not _has(self, key)]
        if changed or gone:
            key = self._declared.key_array(changed + gone)
            value = self._declared.value_array(changed, [_get(self, each) for each in changed])
            value = pa.concat_arrays([value, pa.nulls(len(gone), value.type)])
            deleted = np.arange(len(key)) >= len(changed)
            group = groups(key)
            self._declared.check_owned(changed + gone, group, self._manifest.low, self._manifest.high)
            held = self._all_held(changed)
            step = np.where(deleted, -1, np.concatenate([~held, np.zeros(len(gone), bool)]).astype(np.int64))
            counts = np.array(self._keys, np.int64)
            np.add.at(counts, group - self._manifest.low, step)
            self._runs.mkdir(parents=True, exist_ok=True)
            name = f"{self.name}-{self._epoch}-{secrets.token_hex(6)}.run"
            part = write_run(self._runs, name, runs.sort(key, value, deleted), (self._epoch, self._flushed), 0)
            synchronise(self._runs)
            self._keys, self._flushed = counts.tolist(), self._flushed + 1
            self._parts.insert(0, part)
            if self._nested:
                for each in changed:
                    self._young.pop(each, None)
                    self._old.pop(each, None)
            else:
                self._young.update(zip(keys_of(key), value.to_pylist(), strict=True))
            self._young.update(dict.fromkeys(gone, _ABSENT))
        if everything:
            _clear(self)
            _set(self, _GUARD, None)
            self._lent.clear()
            if self._nested:
                self._young, self._old = {}, {}
        else:
            for each in [*changed, *same]:
                _delete(self, each)
                self._lent.discard(each)
                if self._nested:
                    self._young.pop(each, None)
                    self._old.pop(each, None)
        self._gone.clear()

    def _all_held(self, keys: list[Any]) -> Any:
        """Return which of the keys runs hold, within the bounds of the memory."""
        import numpy as np

        found: list[bool] = []
        for at in range(0, len(keys), self._limit):
            some = keys[at : at + self._limit]
            self._fetch(some)
            found += [self._young[key] is not _ABSENT for key in some]
        return np.array(found, bool)

    def rows(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values as Arrow arrays, at the beginning of an epoch, before any is changed."""
        for rows in scan(self._runs, list(self._parts), self._manifest.low, self._manifest.high):
            yield rows.key, rows.value

    @property
    def changed(self) -> list[Any]:
        """The keys in memory that this epoch may have changed."""
        return self._own()

    @property
    def full(self) -> bool:
        """True if the next look-up of a batch writes out what was changed."""
        if self._used:  # else nothing has changed since the last time, and `_bound` decides as its caller saw
            self._measure()
        return bool(_count(self) > self._limit + 2 * self._spared)

    def size(self) -> dict[str, int]:
        """Return the keys at the end of the last epoch and the bytes of their runs, as the meters count them."""
        return {"state tasks": 1, "state_keys": sum(self._keys), "state_bytes": sum(map(self._bytes_of, self._parts))}

    def _bytes_of(self, part: Part) -> int:
        """Return the bytes of a part, by its share of the rows of its run."""
        import numpy as np

        run = runs.open_run(self._runs, part)
        edges = np.array([part.low, part.high])
        rows = np.where(edges < GROUPS, run.first(edges.astype(np.uint64) << np.uint64(GROUP_SHIFT)), run.rows)
        return run.size * int(rows[1] - rows[0]) // run.rows

    @property
    def memory_bytes(self) -> int:
        """Estimate of the bytes of keys and values that are in memory."""
        return self._each * (int(_count(self)) + len(self._young) + len(self._old))


class FloatStateStore(StateStore):
    """A store with floats in its keys, in which all NaN are one key."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(with_one_nan(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(with_one_nan(key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(with_one_nan(key))

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(with_one_nan(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return super().get(with_one_nan(key), default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, which is the default if it has none."""
        return super().setdefault(with_one_nan(key), default)


class _Items(ItemsView[Any, Any]):
    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        yield from cast(Any, self)._mapping._entries(values=True)


class _Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _, value in cast(Any, self)._mapping._entries(values=True):
            yield value


def _same(before: Any, now: Any) -> bool:
    """Return whether a value is as it was, to the bit; False in doubt."""
    try:
        return marshal.dumps(before, 2) == marshal.dumps(now, 2)
    except ValueError:  # a type that marshal does not know, as a time
        return False


def _references(values: Iterable[Any]) -> list[int]:
    return [sys.getrefcount(value) for value in values]


_PROBES: Any = ({0: []}.values(), [[]], ([],))
_IN_DICT, _IN_LIST, _IN_TUPLE = (_references(v)[0] for v in _PROBES)  # no other object holds it
_FIXED = (str, bytes, int, float, Decimal, date, time, timedelta, type(None))  # cannot be changed in place


def _has_fixed_size(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_primitive(kind) or types.is_boolean(kind) or types.is_decimal(kind) or types.is_null(kind))


def _bytes(value: Any) -> int:
    """Estimate the bytes of a value and its parts; of many parts some are measured."""
    if isinstance(value, dict):
        parts: Iterable[Any] = chain.from_iterable(value.items())
        count = 2 * len(value)
    elif isinstance(value, list | tuple):
        parts, count = value, len(value)
    else:
        return sys.getsizeof(value)
    some = [_bytes(part) for part in islice(parts, _SAMPLE)]
    return sys.getsizeof(value) + (sum(some) * count // len(some) if some else 0)


def held_by_others(values: Iterable[Any]) -> list[bool]:
    """Return for each value whether anything but its container refers to it, or to a part of it that can be changed."""
    alone = _IN_LIST if isinstance(values, list) else _IN_TUPLE if isinstance(values, tuple) else _IN_DICT
    found = [count > alone for count in _references(values)]
    for i, value in enumerate(values):
        if isinstance(value, _FIXED):
            found[i] = False
        elif type(value) in (dict, list, tuple):
            found[i] = found[i] or any(held_by_others(value.values() if type(value) is dict else value))
        else:
            found[i] = _may_be_held(value, referred=found[i])
    return found


def _may_be_held(value: Any, *, referred: bool) -> bool:
    """Return whether a value of another type may be changed by others: numbers of NumPy cannot."""
    import numpy as np

    if isinstance(value, np.generic):
        return isinstance(value, np.void)
    owns = type(value) is np.ndarray and value.base is None and not value.dtype.hasobject
    return referred or not owns


# Merging

_TENDING = threading.Lock()  # one instance at a time in a process
_TENDED: set[tuple[Path, str]] = set()  # the instances at which a thread is at work, or waits for its turn
_FAILED: dict[tuple[Path, str], BaseException] = {}  # the errors of such threads, which the next commit reports


def due_parts(parts: Sequence[Part]) -> list[Part]:
    """Return the newest parts, to be merged: up to a level of which there are enough runs; an empty list otherwise."""
    for level in sorted({part.level for part in parts}, reverse=True):
        prefix = []
        for part in parts:
            if part.level > level:
                break
            prefix.append(part)
        if len({part.newest for part in prefix if part.level == level}) >= FAN_IN:
            return prefix
    return []


def _digest(parts: Sequence[Part]) -> str:
    return hashlib.blake2b(repr([astuple(part) for part in parts]).encode(), digest_size=12).hexdigest()


def _tend(
    folder: Path, name: str, epoch: int, due: list[Part], oldest: bool, manifest: Manifest, collects: bool
) -> None:
    try:
        # The epoch continues without it, and reports it itself if a disk is full or a file damaged.
        with _TENDING, contextlib.suppress(OSError):
            if due:
                merge_runs(folder, name, epoch, due, oldest, manifest)
            if collects:
                collect(folder, name.partition("-")[0], epoch)
    except BaseException as error:
        _FAILED[folder, name] = error
    finally:
        _TENDED.discard((folder, name))


def merge_runs(folder: Path, name: str, epoch: int, due: Sequence[Part], oldest: bool, manifest: Manifest) -> None:
    """Merge parts into runs of the next level, and publish the result for `adopted`.

    `oldest` says that the instance has no older parts, so that deleted keys need not be kept.
    """
    merges, digest = folder / "merges", _digest(due)
    merges.mkdir(parents=True, exist_ok=True)
    if any(int(path.name.split(".")[2]) > epoch - KEPT + 1 for path in merges.glob(f"{name}.*.claim")):
        return  # another process is at it
    claim = merges / f"{name}.{digest}.{epoch}.claim"
    write_durably(claim, [])
    level = max(part.level for part in due) + 1
    made: list[Part] = []
    gathered: list[StateRows] = []

    def write() -> None:
        if gathered:
            run = f"{name}-{epoch}-{secrets.token_hex(6)}.run"
            made.append(write_run(folder / "runs", run, runs.joined(gathered), due[0].newest, level))
            gathered.clear()

    for rows in scan(folder / "runs", due, manifest.low, manifest.high, with_gone=not oldest):
        if gathered and sum(each.nbytes for each in gathered) + rows.nbytes > PIECE_BYTES:
            write()
        gathered.append(rows)
    write()
    synchronise(folder / "runs")
    content = {"epoch": epoch, "from": [astuple(part) for part in due], "to": [astuple(part) for part in made]}
    write_sealed(claim.with_suffix(".json"), content)
    claim.unlink(missing_ok=True)


def adopted(folder: Path, name: str, epoch: int, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts of an instance, with finished merges in the place of what they were made from."""
    for path in sorted((folder / "merges").glob(f"{name}.*.json")):
        if int(path.name.split(".")[2]) <= epoch - KEPT + 1:
            continue  # its files may be removed
        try:
            merge = read_sealed(path)
        except CheckpointError:
            continue
        due, made = set(_parts(merge["from"])), _parts(merge["to"])
        if due and due <= set(parts):
            first = min(map(parts.index, due))  # of parts that are equally new any one may come first
            parts = [*parts[:first], *made, *(part for part in parts[first:] if part not in due)]
    return parts


def collect(folder: Path, operator: str, epoch: int) -> None:
    """Remove runs of an operator that are older than the kept epochs and that no manifest of these names."""
    keep: set[str] = set()
    for path in folder.glob(f"state/*/{operator}-*.json"):
        try:
            keep |= {part.name for part in Manifest.read(path).parts}
        except CheckpointError:
            if path.exists():
                return  # it may name any of them
    for path in (folder / "merges").glob(f"{operator}-*"):
        if int(path.name.split(".")[2]) <= epoch - KEPT:
            path.unlink(missing_ok=True)
    for path in (folder / "runs").glob(f"{operator}-*.run"):
        if path.name not in keep and int(path.name.split("-")[2]) <= epoch - KEPT:
            path.unlink(missing_ok=True)


# The stores of a process, and the state of an operator

_OPEN: dict[
    tuple[Path, int, int], tuple[str, StateStore]
] = {}  # by instance: the token that committed it, and its store


def _manifest_path(folder: Path, token: str, operator: int, instance: int) -> Path:
    return folder / "state" / token / f"{operator}-{instance}.json"


def open_store(folder: Path, plan: Plan, operator: int, instance: int, declared: KeyedState) -> StateStore:
    """Return the state of an instance at the beginning of an epoch, whichever instances had its keys before."""
    low, high = owned(instance, plan.k[operator])
    before = plan.previous
    token, store = _OPEN.pop((folder, operator, instance), ("", None))
    for other in [key for key, (kept, _) in _OPEN.items() if key[0] == folder and before and kept != before.token]:
        del _OPEN[other]
    if store is None or before is None or token != before.token or before.k[operator] != plan.k[operator]:
        made = declared.schema.serialize().to_pybytes().hex()
        if plan.epoch == 0:
            manifest = Manifest(low, high, (0,) * (high - low), (), made)
        else:
            if before is None:
                raise incomplete(f"no plan of epoch {plan.epoch - 1}")
            old = [i for i in range(before.k[operator]) if overlap(owned(i, before.k[operator]), (low, high))]
            manifest = inherited(
                [Manifest.read(_manifest_path(folder, before.token, operator, i)) for i in old], low, high
            )
        store = (FloatStateStore if declared.has_floats else StateStore)(
            folder, f"{operator}-{instance}", declared, manifest
        )
    store.begin(plan.epoch)
    store.tend(collects=instance == 0)
    return store


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two ranges have a number in common."""
    return max(one[0], other[0]) < min(one[1], other[1])


def commit_store(plan: Plan, operator: int, instance: int, store: StateStore) -> None:
    """Write the state of an instance at the end of an attempt, and keep the store for the next epoch."""
    store.commit(_manifest_path(store.folder, plan.token, operator, instance))
    _OPEN[store.folder, operator, instance] = plan.token, store
    while sum(each.memory_bytes for _, each in _OPEN.values()) > MEMORY_BYTES and len(_OPEN) > 1:
        del _OPEN[next(iter(_OPEN))]


def operator_state(folder: Path, plan: Plan, operator: int) -> pa.Table:
    """Return the state of an operator at the end of an epoch."""
    import pyarrow as pa

    tables = []
    for i in range(plan.k[operator]):
        manifest = Manifest.read(_manifest_path(folder, plan.token, operator, i))
        schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(manifest.schema)))
        tables.append(schema.empty_table())
        for rows in scan(folder / "runs", manifest.parts, manifest.low, manifest.high):
            keys = rows.key.flatten() if pa.types.is_struct(rows.key.type) else [rows.key]
            tables.append(pa.table([*keys, rows.value], schema=schema))
    return pa.concat_tables(tables)


def operator_parts(folder: Path, plan: Plan, operator: int) -> list[Part]:
    """Return the parts of runs that make up the state of an operator at the end of an epoch."""
    manifests = [Manifest.read(_manifest_path(folder, plan.token, operator, i)) for i in range(plan.k[operator])]
    return [part for manifest in manifests for part in manifest.parts]
