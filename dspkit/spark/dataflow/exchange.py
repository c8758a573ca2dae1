"""Frames that operators exchange, which are small Arrow batches with an address, and the keys that direct them.

A key is what a column holds, or what several columns hold together, then a tuple in Python. Equality is that of Arrow's
values with two exceptions, which are Python's: 0.0 and -0.0 are one key, and all NaN are one key. The group of a key
follows from its value, not from its text, so that it is the same in every process. An instance owns a contiguous range
of groups, and a new instance takes its range in the middle: at a rescale from 2 to 3 a third of the groups moves.

Spark moves rows of five columns: the operator that a frame is for, the one that it is from (and on a cluster of ours
the number of the worker where that ran), the instance that it is for, the records themselves in Arrow's own format, and
the most records that a frame should hold there, which is -1 for the frame of a watermark (`watermarks.py`). So a frame
costs Spark as much as one row, whatever its size; each edge has a schema of its own; and a frame arrives as soon as it
is sent, where rows would wait until a batch of them is full.

A frame costs as much as some hundred records, so frames must not become small. Without a key they are assigned whole,
in turn; a receiver merges those that wait (`runs`). Neither makes frames that keep the job's slowest instance busy for
longer than `WORK_S`: flow control finds how many records of the sources that are, sources write it into their rows, and
each operator passes it on, times the records that it sends per record.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...core.typing import Array
from ..errors import SchemaError
from ..functions import GROUPS

if TYPE_CHECKING:
    import pyarrow as pa


NAN = float("nan")  # the one that stands for all in keys
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of splitmix64
_NULL = 0xA5A5_5A5A_C3C3_3C3C
GROUP_SHIFT = 64 - (GROUPS.bit_length() - 1)  # the upper bits of a hash are its group
_LONG = 128  # bytes of a key, beyond which it is hashed by itself
_DAY_MILLIS = 86_400_000
_FIXED_ZONE = re.compile(r"(Etc/)?(UTC|GMT|Zulu|UCT)|Z|[+-]\d\d:?\d\d")


def check_key(name: str, kind: pa.DataType, operator: str) -> None:
    """Raise an error if a column of this type cannot be a key, or a part of one."""
    from pyarrow import types

    fix = "send a string or a number that stands for it"
    if types.is_struct(kind):
        fix = "send its fields as columns, and name them: key=('user', 'window')"
    elif types.is_dictionary(kind):
        fix = "send the values themselves"
    elif types.is_time64(kind) and kind.unit == "ns":
        fix = "cast it to time64('us'): a Python time has no nanoseconds"
    elif types.is_timestamp(kind) and kind.tz is not None and not _FIXED_ZONE.fullmatch(kind.tz):
        fix = f"cast it to timestamp('{kind.unit}', 'UTC'): when clocks change, two instants are equal in Python"
    elif (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_temporal(kind)
        or _is_bytes(kind)
    ) and not types.is_interval(kind):
        return
    raise SchemaError(
        f"key {name!r} of type {kind} at {operator!r}",
        expected="bool, an integer, a float, a decimal, string, binary, a date, a time, a duration, or a timestamp "
        "without a time zone or with a constant one",
        fix=fix,
    )


def groups(keys: Any) -> Array:
    """Return the group of each key; for several columns `keys` is a sequence of arrays, or an array of structs."""
    import numpy as np

    found: Array = (places(keys) >> np.uint64(GROUP_SHIFT)).astype(np.int64)
    return found


def places(keys: Any) -> Array:
    """Return a hash of each key, the same in every process; its upper bits are the key's group."""
    import numpy as np
    import pyarrow as pa

    if isinstance(keys, pa.StructArray):
        keys = keys.flatten()
    columns = [keys] if isinstance(keys, pa.Array | pa.ChunkedArray) else list(keys)
    mixed: Array = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = _mix(mixed + np.uint64(_GOLDEN) + _hashes(column))
    return mixed


def owners(keys: Any, instances: int) -> Array:
    """Return the instance that owns each key."""
    import numpy as np

    owner: Array = np.array(_order(instances))[groups(keys) * instances // GROUPS]
    return owner


def owned(instance: int, instances: int) -> tuple[int, int]:
    """Return the groups of an instance: from the first up to but not including the second.

    >>> [owned(i, 3) for i in range(3)]  # of two instances the first owns groups 0 to 2047
    [(0, 1366), (2731, 4096), (1366, 2731)]
    """
    at = _order(instances).index(instance)
    return -(-at * GROUPS // instances), -(-(at + 1) * GROUPS // instances)


@cache
def _order(instances: int) -> tuple[int, ...]:
    """Return the instances in the order of their ranges; if each new one came last, half of the groups would move."""
    order: list[int] = []
    for i in range(instances):
        order.insert((i + 1) // 2, i)
    return tuple(order)


def _mix(x: Any) -> Any:
    import numpy as np

    x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND)
    return x ^ (x >> np.uint64(31))


def _hashes(column: Any) -> Array:
    """Return a number per value, equal for equal values."""
    import numpy as np
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        parts = [_hashes(chunk) for chunk in column.chunks]
        joined: Array = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
        return joined
    if not len(column):
        return np.zeros(0, np.uint64)
    kind = column.type
    if pa.types.is_boolean(kind):
        made = column.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64)
    elif _is_bytes(kind):
        made = _bytes_hashes(column)
    elif pa.types.is_decimal(kind):
        made = _wide_hashes(column)
    elif pa.types.is_floating(kind):
        numbers = _fixed(column, f"f{kind.bit_width // 8}").astype(np.float64) + 0.0  # -0.0 becomes 0.0
        made = np.where(np.isnan(numbers), NAN, numbers).view(np.uint64)
    elif pa.types.is_unsigned_integer(kind):
        made = _fixed(column, f"u{kind.bit_width // 8}").astype(np.uint64)
    else:
        whole = _fixed(column, f"i{kind.bit_width // 8}").astype(np.int64)
        made = (whole // _DAY_MILLIS if pa.types.is_date64(kind) else whole).astype(np.uint64)
    if column.null_count:
        made = np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(_NULL), made)
    hashed: Array = made
    return hashed


def _is_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _fixed(column: Any, dtype: str) -> Array:
    """Return the values of an array of constant width; those of nulls are arbitrary."""
    import numpy as np

    values = np.frombuffer(column.buffers()[1], dtype, count=column.offset + len(column))
    found: Array = values[column.offset :]
    return found


def _wide_hashes(column: Any) -> Array:
    import numpy as np

    width, rows = column.type.byte_width, len(column)
    raw = np.frombuffer(column.buffers()[1], np.uint8, count=(column.offset + rows) * width)
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = raw.reshape(-1, width)[column.offset :]
    mixed: Array = np.zeros(rows, np.uint64)
    for word in padded.view("<u8").T:
        mixed = _mix(mixed + np.uint64(_GOLDEN) + word)
    return mixed


def _bytes_hashes(column: Any) -> Array:
    """Return the hashes of strings or bytes: eight bytes at a time, of all keys at once."""
    import numpy as np
    import pyarrow as pa

    column = column.cast(pa.large_binary())
    _, bounds, data = column.buffers()
    at = np.frombuffer(bounds, np.int64, count=column.offset + len(column) + 1)[column.offset :]
    low, high = int(at[0]), int(at[-1])
    padded = np.zeros(high - low + 8, np.uint8)
    if high > low:
        padded[: high - low] = np.frombuffer(data, np.uint8, count=high - low, offset=low)
    starts, lengths = at[:-1] - low, np.diff(at)
    word_at = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    keep = np.array([(1 << 8 * n) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
    mixed: Array = _mix(lengths.astype(np.uint64) + np.uint64(_GOLDEN))
    short = np.where(lengths <= _LONG, lengths, 0)
    for done in range(0, int(short.max()), 8):
        rows = np.flatnonzero(short > done)
        words = word_at[starts[rows] + done] & keep[np.minimum(short[rows] - done, 8)]
        mixed[rows] = _mix(mixed[rows] + words + np.uint64(_GOLDEN))
    for row in np.flatnonzero(lengths > _LONG).tolist():
        text = padded[starts[row] : starts[row] + lengths[row]].tobytes()
        mixed[row] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return mixed


def keys_of(column: Any) -> list[Any]:
    """Return keys as Python has them: a tuple for a key of several columns, which are the fields of a struct."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        return list(zip(*map(keys_of, column.flatten()), strict=True))
    keys: list[Any] = column.to_pylist()
    return [NAN if key != key else key for key in keys] if pa.types.is_floating(column.type) else keys


def with_one_nan(key: Any) -> Any:
    """Return the key with the one NaN that stands for all."""
    if type(key) is tuple:
        return tuple(NAN if part != part else part for part in key)
    return NAN if key != key else key


WIRE = "_to int, _from int, _p int, _frame binary, _most int"  # as a schema of Spark
END = -1  # receiver of the row that ends the input, as in Gather.java
OPERATOR = (1 << 12) - 1  # bits of `_from` that name the operator; those above name the worker, as in Links.java
STAMPS = ("_event", "_read")  # event time of a record, and when it left its log: microseconds
WORK_S = 0.02  # work of a frame for the slowest instance
FEWEST = 32  # records that may be in one frame, however long they take
LARGEST = 1 << 14  # records of a frame that is merged or cut, however fast they are
Row = tuple[int, int, int, Any, int]  # of WIRE; a frame is bytes or a buffer of Arrow
_QUERY_HEAD = struct.Struct("<qqq")
_MERGED_BYTES = 1 << 26  # of frames that are merged
_MOST_BYTES = (1 << 31) - 1  # of binary data in a batch


@cache
def wire_schema() -> pa.Schema:
    """Return WIRE as an Arrow schema."""
    import pyarrow as pa

    whole = pa.int32()
    return pa.schema([("_to", whole), ("_from", whole), ("_p", whole), ("_frame", pa.binary()), ("_most", whole)])


def wire(rows: list[Row]) -> pa.RecordBatch:
    """Return frames as a batch of Spark's rows."""
    import pyarrow as pa

    # Arrow's own conversion from Python takes longer than all else that a frame needs, so the buffers are made here.
    to, sender, p, frames, most = zip(*rows, strict=True)
    ends = [0, *accumulate(map(len, frames))]
    if ends[-1] > _MOST_BYTES:
        raise pa.ArrowCapacityError(f"{ends[-1]} bytes of frames in one batch; at most {_MOST_BYTES}")
    numbers = [
        pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(array("i", column))])
        for column in (to, sender, p, most)
    ]
    data = frames[0] if len(rows) == 1 else b"".join(frames)
    binary = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(data)]
    numbers.insert(3, pa.Array.from_buffers(pa.binary(), len(rows), binary))
    return pa.RecordBatch.from_arrays(numbers, schema=wire_schema())


def stamped(schema: pa.Schema, sender: str) -> pa.Schema:
    """Return the schema of the frames of one edge, which also carries the sender's name."""
    import pyarrow as pa

    fields = [*schema, *(pa.field(name, pa.int64()) for name in STAMPS)]
    return pa.schema(fields, metadata={"from": sender})


@dataclass(frozen=True)
class Records:
    """A batch as a function sees it, and the stamps of its records."""

    batch: pa.RecordBatch
    event: Array
    read: Array
    row_count: int | None = None  # number of input records, if a query has processed them already

    @property
    def rows(self) -> int:
        """Number of input records."""
        return int(self.batch.num_rows) if self.row_count is None else self.row_count

    @classmethod
    def unpack(cls, frame: Any, schema: pa.Schema) -> Records:
        """Return the records of a frame."""
        import pyarrow as pa

        whole = pa.ipc.read_record_batch(frame, schema)
        last = whole.num_columns - 1
        event, read = whole.column(last - 1).to_numpy(), whole.column(last).to_numpy()
        return cls(whole.select(range(last - 1)), event, read)

    @classmethod
    def merged(cls, parts: Sequence[Records]) -> Records:
        """Return the records of several frames of one sender, in their order."""
        import numpy as np
        import pyarrow as pa

        if len(parts) == 1:
            return parts[0]
        whole = pa.Table.from_batches([part.batch for part in parts]).combine_chunks().to_batches()
        counted = any(part.row_count is not None for part in parts)
        return cls(
            whole[0] if whole else parts[0].batch,
            np.concatenate([part.event for part in parts]),
            np.concatenate([part.read for part in parts]),
            sum(part.rows for part in parts) if counted else None,
        )

    def stamp(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return `batch`, an output of these records, with their stamps: equal positions have equal stamps."""
        import numpy as np
        import pyarrow as pa

        rows = batch.num_rows
        if rows == len(self.event):
            event, read = self.event, self.read
        elif len(self.event):
            place = np.arange(rows) * len(self.event) // max(1, rows)
            event, read = self.event[place], self.read[place]
        else:
            event = read = np.full(rows, time.time_ns() // 1000, np.int64)  # made from no record: here and now
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(event), pa.array(read)], schema=schema)


def unpack_query(frame: Any, schema: pa.Schema) -> tuple[Records, float, float]:
    """Return the results of a query for one frame, the seconds that they took, and those of a core.

    `Select.java` writes these numbers in front of the results, and that of the input records.
    """
    import numpy as np
    import pyarrow as pa

    nanos, worked, came = _QUERY_HEAD.unpack_from(frame)
    if len(frame) > _QUERY_HEAD.size:
        records = Records.unpack(memoryview(frame)[_QUERY_HEAD.size :], schema)
    else:
        seen = pa.schema(list(schema)[:-2], metadata=schema.metadata)
        nothing = np.zeros(0, np.int64)
        records = Records(pa.RecordBatch.from_pylist([], seen), nothing, nothing)
    return Records(records.batch, records.event, records.read, came), nanos * 1e-9, worked * 1e-9


def runs(parts: Iterable[tuple[int, Records]], most: int) -> Iterator[Records]:
    """Yield the records of frames that wait together: those of one sender merged, up to `most` records.

    A frame is never cut, and those of one sender stay in their order.
    """
    waiting: dict[int, list[Records]] = {}
    for sender, records in parts:
        before = waiting.setdefault(sender, [])
        together = [*before, records]
        if before and (sum(p.rows for p in together) > most or sum(p.batch.nbytes for p in together) > _MERGED_BYTES):
            yield Records.merged(before)
            before.clear()
        before.append(records)
    for each in waiting.values():
        if each:
            yield Records.merged(each)


@dataclass
class Edge:
    """One edge, as an instance of the sender sees it: splits batches into frames for the receiver's instances."""

    start: int
    end: int
    schema: pa.Schema
    key: str | tuple[str, ...]
    instances: int
    sent: int = 0
    sent_to: Counter[int] = field(default_factory=Counter)  # by instance
    _turn: int = field(default=0)

    def frames(self, batch: pa.RecordBatch, most: int = LARGEST) -> Iterator[tuple[int, int, int, pa.Buffer]]:
        """Yield the frames of a batch: receiver, sender, instance, bytes.

        Without a key they hold at most `most` records each.
        """
        self.sent += batch.num_rows
        for instance, part in self.parts(batch, most):
            self.sent_to[instance] += part.num_rows
            yield self.end, self.start, instance, part.serialize()

    def parts(self, batch: pa.RecordBatch, most: int = LARGEST) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the parts of a batch, each with the receiver's instance that it is for."""
        return self._by_key(batch) if self.key else self._in_turn(batch, most)

    def _in_turn(self, batch: pa.RecordBatch, most: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        rows = batch.num_rows
        pieces = -(-rows // max(1, most))
        for i in range(pieces):
            low, high = rows * i // pieces, rows * (i + 1) // pieces
            yield self._turn % self.instances, batch.slice(low, high - low)
            self._turn += 1

    def _by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        import numpy as np
        import pyarrow as pa

        if self.instances == 1:
            yield 0, batch
            return
        names = (self.key,) if isinstance(self.key, str) else self.key
        owner = owners([batch.column(name) for name in names], self.instances)
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=self.instances))
        ordered = batch.take(pa.array(order))
        low = 0
        for instance, high in enumerate(ends.tolist()):
            if high > low:
                yield instance, ordered.slice(low, high - low)
            low = high
