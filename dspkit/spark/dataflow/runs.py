"""Runs: immutable files of keyed state, sorted by key group and hash, searched through the page cache.

A run holds the rows that an epoch wrote, or that a merge of runs produced. Its layout, in pages of 4 KiB:

    Arrow stream of one record batch: place, key, value, gone   (`pyarrow.ipc.open_stream` reads the file as it is)
    Bloom filter of the places; the place of every 512th row
    crc32 of each page before this table; a trailer

A place is a hash of a key, whose upper bits are its key group (`exchange.py`), so a range of key groups is a range of
rows. The manifest that names a run pins its length and the crc32 of table and trailer. A page is compared with its
crc32 before its first use, hence opening a run costs the same at any size.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.typing import Array
from ..errors import CheckpointError
from ..functions import GROUPS
from .exchange import GROUP_SHIFT, keys_of, places
from .state import incomplete

if TYPE_CHECKING:
    import pyarrow as pa


PAGE = 4096
PIECE_BYTES = 64 << 20  # a merge begins another run beyond it
_SPARSE = 512  # rows between the entries of the sparse index: one page of places
_BLOOM_BITS = 12  # per row: about 2 % of the keys that a run does not hold are searched for in vain
_WINDOW, _WINDOW_BYTES = 1 << 18, 32 << 20  # rows, and bytes of them, that a scan holds in memory
_OPEN_RUNS = 512  # in one process
_TRAILER = struct.Struct("<8sQQQQQQ")  # mark, rows, head, end of the stream, Bloom words, sparse entries, pages
_MARK = b"dspkit-1"


@dataclass(frozen=True)
class Part:
    """A range of key groups of a run, as a manifest names it."""

    name: str
    size: int
    seal: int  # crc32 of the table of page checksums and the trailer
    rows: int  # of the whole run
    low: int  # key groups: from, up to but not including
    high: int
    newest: tuple[int, int]  # epoch and number of its newest rows: among runs of one key the larger is right
    level: int  # 0 for the rows of an epoch, one more for each merge

    def clip(self, low: int, high: int) -> Part | None:
        """Return the part within a range of key groups; None if there is none."""
        low, high = max(low, self.low), min(high, self.high)
        return replace(self, low=low, high=high) if low < high else None


@dataclass(frozen=True)
class StateRows:
    """Rows of keyed state, in the order of their places."""

    place: Array
    key: pa.Array
    value: pa.Array
    gone: Array

    def take(self, index: Array) -> StateRows:
        """Return the rows at these positions."""
        import pyarrow as pa

        at = pa.array(index)
        return StateRows(self.place[index], self.key.take(at), self.value.take(at), self.gone[index])

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return int(self.place.nbytes + self.key.nbytes + self.value.nbytes + len(self.gone) // 8)


def sort(key: pa.Array, value: pa.Array, gone: Array) -> StateRows:
    """Return rows in the order of their places."""
    import numpy as np

    place = places(key)
    return StateRows(place, key, value, gone).take(np.argsort(place, kind="stable"))


def write_durably(path: Path, data: Sequence[Any]) -> None:
    """Write a new file and wait until it is on the disk; its name is durable after `synchronise` of the folder."""
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        for each in data:
            left = memoryview(each).cast("B")
            while len(left):
                left = left[os.write(number, left) :]
        os.fsync(number)
    finally:
        os.close(number)


def write_run(folder: Path, name: str, rows: StateRows, newest: tuple[int, int], level: int) -> Part:
    """Write sorted rows as a run, durably but for the folder."""
    import numpy as np
    import pyarrow as pa

    count = len(rows.place)
    columns = {"place": pa.array(rows.place), "key": rows.key, "value": rows.value, "gone": pa.array(rows.gone)}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        schema = sink.tell()
        writer.write_batch(batch)
    stream = sink.getvalue()
    head = schema + 8 + struct.unpack_from("<i", stream, schema + 4)[0]
    if not all(_has_known_layout(field.type) for field in batch.schema):
        head = stream.size  # compared as a whole when the run is opened
    words = bloom_filter(rows.place)
    parts = [stream, _padding(stream.size), words, _padding(words.nbytes), sparse := rows.place[::_SPARSE].copy()]
    parts.append(_padding(sparse.nbytes))
    sums = []
    for each in (stream, words, sparse):
        view = memoryview(cast(Any, each)).cast("B")
        for at in range(0, len(view), PAGE):
            page = view[at : at + PAGE]
            crc = zlib.crc32(page)
            sums.append(zlib.crc32(bytes(PAGE - len(page)), crc) if len(page) < PAGE else crc)
    pages = len(sums)
    table = np.array(sums, "<u4").tobytes()
    end = table + _TRAILER.pack(_MARK, count, head, stream.size, len(words), len(sparse), pages)
    write_durably(folder / name, [*parts, end])
    low, high = int(rows.place[0] >> np.uint64(GROUP_SHIFT)), int(rows.place[-1] >> np.uint64(GROUP_SHIFT)) + 1
    return Part(name, pages * PAGE + len(end), zlib.crc32(end), count, low, high, newest, level)


def _padding(size: int) -> bytes:
    return bytes(-size % PAGE)


def _mix(numbers: Array) -> Array:
    """Spread the bits of each number over all of its bits (the finaliser of MurmurHash3)."""
    import numpy as np

    x = numbers ^ (numbers >> np.uint64(33))
    x = x * np.uint64(0xFF51AFD7ED558CCD)
    x = x ^ (x >> np.uint64(33))
    x = x * np.uint64(0xC4CEB9FE1A85EC53)
    mixed: Array = x ^ (x >> np.uint64(33))
    return mixed


def _bloom_bits(place: Array, words: int) -> tuple[Array, Array]:
    """Return the word of each place, and the four bits of it that stand for the place."""
    import numpy as np

    x = _mix(place)
    at = ((x >> np.uint64(32)) * np.uint64(words)) >> np.uint64(32)
    mask = np.zeros(len(place), np.uint64)
    for shift in (0, 6, 12, 18):
        mask |= np.uint64(1) << ((x >> np.uint64(shift)) & np.uint64(63))
    return at.astype(np.int64), mask


def bloom_filter(place: Array) -> Array:
    """Return a Bloom filter of the places, as 64-bit words."""
    import numpy as np

    words = np.zeros(max(1, -(-len(place) * _BLOOM_BITS // 64)), np.uint64)
    np.bitwise_or.at(words, *_bloom_bits(place, len(words)))
    return words


def _expanded(first: Array, last: Array) -> Array:
    """Return the numbers of all ranges, ends included."""
    import numpy as np

    counts = last - first + 1
    ends = np.cumsum(counts)
    return np.repeat(first - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)


class StateRun:
    """A run that is open for reading."""

    def __init__(self, folder: Path, part: Part):
        import numpy as np
        import pyarrow as pa

        self.path = path = folder / part.name
        try:
            size = path.stat().st_size
            if size != part.size:
                raise incomplete(f"{part.name} has {size} bytes instead of {part.size}")
            with pa.memory_map(str(path)) as file:
                whole = file.read_buffer()
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise incomplete(f"{part.name}: {error}") from error
        trailer = whole.slice(size - _TRAILER.size).to_pybytes()
        mark, rows, head, end, words, entries, pages = _TRAILER.unpack(trailer)
        if mark != _MARK or pages * PAGE + 4 * pages + _TRAILER.size != size:
            raise incomplete(f"{part.name} does not end as a run")
        if zlib.crc32(whole.slice(pages * PAGE)) != part.seal:
            raise incomplete(f"the checksums of {part.name} are not those of its manifest")
        self._base, self._bytes = whole.address, memoryview(whole)
        self._sums = np.frombuffer(whole.slice(pages * PAGE, 4 * pages), "<u4")
        self._seen = np.zeros(pages, bool)
        self._unseen = pages
        self.size = size
        bloom = -(-end // PAGE) * PAGE
        sparse = bloom + -(-8 * words // PAGE) * PAGE
        self._check_bytes(np.array([0, sparse]), np.array([head, sparse + 8 * entries]))
        self._bloom = np.frombuffer(whole.slice(bloom, 8 * words), np.uint64)
        self._sparse = np.frombuffer(whole.slice(sparse, 8 * entries), np.uint64)
        self._bloom_at = bloom
        batch = pa.ipc.open_stream(whole.slice(0, end)).read_next_batch()
        self._place, self.key, self.value, self._gone = batch.columns
        self.place = np.frombuffer(self._place.buffers()[1], np.uint64)[:rows]
        self.rows = int(rows)

    def find(self, place: Array, which: Array, keys: list[Any]) -> Array:
        """Return the row of each of the keys `which`, whose places are sorted; -1 if the run does not hold it."""
        import numpy as np

        found = np.full(len(place), -1, np.int64)
        at, mask = _bloom_bits(place, len(self._bloom))
        self._check_bytes(self._bloom_at + 8 * at, self._bloom_at + 8 * at + 8)
        maybe = np.flatnonzero((self._bloom[at] & mask) == mask)
        if not len(maybe):
            return found
        row = self.first(place[maybe])
        inside = row < self.rows
        maybe, row = maybe[inside], row[inside]
        equal = self.place[row] == place[maybe]
        maybe, row = maybe[equal], row[equal]
        if not len(row):
            return found
        self.check(self.key, row, row + 1)
        found[maybe] = row
        held = keys_of(self.key.take(_index(row)))
        wanted = [keys[i] for i in which[maybe].tolist()]
        if held != wanted:
            for i, start, key in zip(maybe.tolist(), row.tolist(), wanted, strict=True):
                found[i] = self._behind(start, key, int(place[i]))
        return found

    def _behind(self, row: int, key: Any, place: int) -> int:
        """Return the row of a key among those of its place, of which `row` is the first; -1 if there is none."""
        while row < self.rows and self._place_of(row) == place:
            self.check(self.key, *_one(row))
            if keys_of(self.key[row : row + 1]) == [key]:
                return row
            row += 1
        return -1

    def _place_of(self, row: int) -> int:
        self.check(self._place, *_one(row))
        return int(self.place[row])

    def first(self, place: Array) -> Array:
        """Return the first row at or behind each place."""
        import numpy as np

        if not len(place):
            return np.zeros(0, np.int64)
        block = np.maximum(np.searchsorted(self._sparse, place, side="left") - 1, 0)
        low = block * _SPARSE
        high = np.minimum(low + _SPARSE, self.rows)
        self.check(self._place, low, np.minimum(high + 1, self.rows))
        while True:
            open_ = low < high
            if not open_.any():
                return low
            middle = (low + high) >> 1
            less = open_ & (self.place[np.minimum(middle, self.rows - 1)] < place)
            low, high = np.where(less, middle + 1, low), np.where(open_ & ~less, middle, high)

    def bytes_before(self, row: Array) -> Array:
        """Return the bytes of the keys and values in front of these rows."""
        return self._bytes_before(self.key, row) + self._bytes_before(self.value, row)

    def _bytes_before(self, column: Any, row: Array) -> Array:
        import numpy as np
        import pyarrow as pa

        kind, types = column.type, pa.types
        found: Array = np.zeros(len(row), np.int64)
        if not _has_known_layout(kind):
            found = row * self.size // self.rows
        elif not len(column) or types.is_null(kind):
            return found
        elif types.is_struct(kind):
            for i in range(kind.num_fields):
                found = found + self._bytes_before(column.field(i), row)
        elif types.is_fixed_size_list(kind):
            found = self._bytes_before(column.values, row * kind.list_size)
        elif width := _offset_width(kind):
            self._check_buffer(column.buffers()[1], row * width, (row + 1) * width)
            at = np.frombuffer(column.buffers()[1], np.int32 if width == 4 else np.int64)[row].astype(np.int64)
            names = ("keys", "items") if types.is_map(kind) else ("values",) if types.is_nested(kind) else ()
            found = row * width + (0 if names else at)
            for name in names:
                found = found + self._bytes_before(getattr(column, name), at)
        else:
            found = row * kind.bit_width >> 3
        return found

    def values(self, row: Array) -> list[Any]:
        """Return the values of these rows."""
        self.check(self.value, row, row + 1)
        found: list[Any] = self.value.take(_index(row)).to_pylist()
        return found

    def gone(self, row: Array) -> Array:
        """Return whether these rows say that their key was deleted."""
        import numpy as np

        self.check(self._gone, row, row + 1)
        return np.asarray(self._gone.take(_index(row)).to_numpy(zero_copy_only=False), bool)

    def slice(self, low: int, high: int) -> StateRows:
        """Return the rows of a range."""
        import numpy as np

        start, end = np.array([low]), np.array([high])
        for column in (self._place, self.key, self.value, self._gone):
            self.check(column, start, end)
        gone = np.asarray(self._gone[low:high].to_numpy(zero_copy_only=False), bool)
        return StateRows(self.place[low:high], self.key[low:high], self.value[low:high], gone)

    def verify(self) -> None:
        """Compare all pages with their checksums."""
        import numpy as np

        self._check_bytes(np.zeros(1, np.int64), np.array([len(self._seen) * PAGE]))

    def check(self, column: Any, start: Array, end: Array) -> None:
        """Compare the pages behind ranges of rows of a column with their checksums, unless that was done before."""
        import numpy as np
        import pyarrow as pa

        some = end > start
        start, end = start[some], end[some]
        if not self._unseen or not len(start):
            return
        kind, types, buffers = column.type, pa.types, column.buffers()
        width = _offset_width(kind)
        if not _has_known_layout(kind) or types.is_null(kind):
            return
        if buffers[0] is not None:
            self._check_buffer(buffers[0], start >> 3, (end + 7) >> 3)
        if types.is_struct(kind):
            for i in range(kind.num_fields):
                self.check(column.field(i), start, end)
        elif types.is_fixed_size_list(kind):
            self.check(column.values, start * kind.list_size, end * kind.list_size)
        elif width:
            self._check_buffer(buffers[1], start * width, (end + 1) * width)
            at = np.frombuffer(buffers[1], np.int32 if width == 4 else np.int64)
            inner = at[start].astype(np.int64), at[end].astype(np.int64)
            names = ("keys", "items") if types.is_map(kind) else ("values",) if types.is_nested(kind) else ()
            if not names:
                self._check_buffer(buffers[2], *inner)
            for name in names:
                self.check(getattr(column, name), *inner)
        else:
            bits = kind.bit_width
            self._check_buffer(buffers[1], start * bits >> 3, (end * bits + 7) >> 3)

    def _check_buffer(self, buffer: Any, start: Array, end: Array) -> None:
        if buffer is None:
            return
        at = buffer.address - self._base
        self._check_bytes(at + start, at + end)

    def _check_bytes(self, start: Array, end: Array) -> None:
        import numpy as np

        if not self._unseen:
            return
        some = end > start
        first, last = start[some] // PAGE, (end[some] - 1) // PAGE
        if (last - first <= 1).all() and self._seen[first].all() and self._seen[last].all():
            return
        pages = np.unique(_expanded(first, last)) if len(first) > 1 else _expanded(first, last)
        for page in pages[~self._seen[pages]].tolist():
            if zlib.crc32(self._bytes[page * PAGE : page * PAGE + PAGE]) != self._sums[page]:
                raise incomplete(f"page {page} of {self.path.name} does not have its checksum")
            self._seen[page] = True
            self._unseen -= 1


def _offset_width(kind: Any) -> int:
    """Return the bytes of an offset of a type of variable length, 0 for others."""
    import pyarrow as pa

    types = pa.types
    if types.is_string(kind) or types.is_binary(kind) or types.is_list(kind) or types.is_map(kind):
        return 4
    return 8 if types.is_large_string(kind) or types.is_large_binary(kind) or types.is_large_list(kind) else 0


def _has_known_layout(kind: Any) -> bool:
    """Return whether the bytes of a row can be found, in all parts of a type; not in dictionaries and views."""
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind) or types.is_map(kind):
        return all(_has_known_layout(kind.field(i).type) for i in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _has_known_layout(kind.value_type)
    fixed = types.is_primitive(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    return bool(fixed or types.is_fixed_size_binary(kind) or types.is_null(kind) or _offset_width(kind))


def _index(rows: Array) -> pa.Array:
    import pyarrow as pa

    return pa.array(rows)


def _one(row: int) -> tuple[Array, Array]:
    import numpy as np

    return np.array([row]), np.array([row + 1])


_opened: dict[tuple[Path, int, int], StateRun] = {}  # by path, size and seal; the one used last is last
_OPENING = threading.Lock()


def open_run(folder: Path, part: Part) -> StateRun:
    """Return an open run; runs never change, so that pages compared once stay so in this process."""
    key = (folder / part.name, part.size, part.seal)
    with _OPENING:
        run = _opened.pop(key, None) or StateRun(folder, part)
        _opened[key] = run
        if len(_opened) > _OPEN_RUNS:
            del _opened[next(iter(_opened))]
        return run


def let_go() -> None:
    """Close the runs whose files were removed: as long as a run is open, it takes room on the disk."""
    with _OPENING:
        for key in [key for key in _opened if not key[0].exists()]:
            del _opened[key]


def scan(folder: Path, parts: Sequence[Part], low: int, high: int, *, with_gone: bool = False) -> Iterator[StateRows]:
    """Yield the newest row of each key within a range of key groups, in the order of places.

    `parts` begins with the newest. Rows of deleted keys are left out unless `with_gone`.
    """
    import numpy as np

    clipped = [clip for part in parts if (clip := part.clip(low, high))]
    opened = [(open_run(folder, part), part) for part in clipped]
    edges = np.arange(low, high + 1, dtype=np.uint64)
    bounds, nbytes = [], np.zeros(len(edges), np.int64)
    for run, part in opened:
        inside = np.clip(edges, part.low, part.high)
        there = np.full(len(inside), run.rows, np.int64)
        there[inside < GROUPS] = run.first(inside[inside < GROUPS] << np.uint64(GROUP_SHIFT))
        bounds.append(there)
        nbytes = nbytes + run.bytes_before(there)
    if not bounds:
        return
    table = np.array(bounds)
    total = table.sum(axis=0)
    start, last = 0, len(edges) - 1
    while start < last:
        rows_end = int(np.searchsorted(total, total[start] + _WINDOW, side="right")) - 1
        bytes_end = int(np.searchsorted(nbytes, nbytes[start] + _WINDOW_BYTES, side="right")) - 1
        end = min(max(min(rows_end, bytes_end), start + 1), last)
        if total[end] > total[start]:
            slices = [
                run.slice(int(b[start]), int(b[end]))
                for (run, _), b in zip(opened, table, strict=True)
                if b[end] > b[start]
            ]
            rows = newest(slices)
            if not with_gone and rows.gone.any():
                rows = rows.take(np.flatnonzero(~rows.gone))
            if len(rows.place):
                yield rows
        start = end


def joined(slices: Sequence[StateRows]) -> StateRows:
    """Return the rows of several slices behind each other."""
    import numpy as np
    import pyarrow as pa

    return StateRows(
        np.concatenate([rows.place for rows in slices]),
        pa.concat_arrays([rows.key for rows in slices]),
        pa.concat_arrays([rows.value for rows in slices]),
        np.concatenate([rows.gone for rows in slices]),
    )


def newest(slices: Sequence[StateRows]) -> StateRows:
    """Return the rows of several slices, the newest first, with one row per key."""
    import numpy as np

    if len(slices) == 1:
        return slices[0]
    whole = joined(slices)
    whole = whole.take(np.argsort(whole.place, kind="stable"))
    again = np.flatnonzero(whole.place[1:] == whole.place[:-1]) + 1
    if not len(again):
        return whole
    keep = np.ones(len(whole.place), bool)
    held = dict(
        zip((rows := np.union1d(again, again - 1)).tolist(), keys_of(whole.key.take(_index(rows))), strict=True)
    )
    begin = -1
    for row in again.tolist():  # of one place, nearly always of one key
        if begin < 0 or whole.place[begin] != whole.place[row]:
            begin = row - 1
            seen = [held[begin]]
        if any(held[row] is key or held[row] == key for key in seen):
            keep[row] = False
        else:
            seen.append(held[row])
    return whole.take(np.flatnonzero(keep))


def verify(folder: Path, parts: Sequence[Part]) -> None:
    """Raise an error if a page of the runs is not as it was written."""
    for part in {part.name: part for part in parts}.values():
        StateRun(folder, part).verify()
