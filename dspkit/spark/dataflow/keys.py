"""Keys of keyed operators: the groups that they fall into, the instance that owns them, and their state in Arrow.

A key is what a column holds, or what several columns hold together, then a tuple in Python. Equality is that of Arrow's
values with two exceptions, which are Python's: 0.0 and -0.0 are one key, and all NaN are one key. The group of a key
follows from its value, not from its text, so that it is the same in every process. An instance owns a contiguous range
of groups, and a new instance takes its range in the middle: at a rescale from 2 to 3 a third of the groups moves.

Nothing here depends on the format of the files of state.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.typing import Array
from ..errors import FunctionError, SchemaError
from ..functions import GROUPS
from .conversion import InexactError, exact_array

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


@dataclass(frozen=True)
class KeyedState:
    """The state of a keyed operator as it was declared, and its exact conversion to Arrow.

    Parameters
    ----------
    operator
        Name of the operator.
    columns
        Columns of the key.
    kinds
        Their types.
    value
        Type of the state of a key.
    single
        Whether a key is the value of its one column, not a tuple.
    """

    operator: str
    columns: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    value: pa.DataType
    single: bool

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state as a table."""
        import pyarrow as pa

        names = ["key"] if self.single else list(self.columns)
        return pa.schema([*zip(names, self.kinds, strict=True), ("value", self.value)])

    @property
    def has_floats(self) -> bool:
        """True if a float is a part of the key."""
        from pyarrow import types

        return any(map(types.is_floating, self.kinds))

    def key_array(self, keys: Sequence[Any]) -> pa.Array:
        """Return keys as an array, of structs for several columns, or raise an error that names one it cannot hold."""
        import pyarrow as pa

        if self.single:
            parts: list[Sequence[Any]] = [keys]
        else:
            for key in keys:
                if type(key) is not tuple or len(key) != len(self.columns):
                    raise self._unlike(key, f"it is no tuple of {len(self.columns)}")
            parts = list(zip(*keys, strict=True)) if keys else [()] * len(self.columns)
        made = []
        for part, kind in zip(parts, self.kinds, strict=True):
            try:
                made.append(exact_array(part, kind))
            except InexactError as error:
                raise self._unlike(keys[error.position], error.reason) from None
        whole = made[0] if self.single else pa.StructArray.from_arrays(made, names=list(self.columns))
        if any(len({*map(type, part)} - {type(None)}) > 1 for part in parts):  # values of two types can read the same
            read: dict[Any, int] = {}
            for i, key in enumerate(keys_of(whole)):
                if read.setdefault(key, i) != i:
                    raise self._unlike(keys[i], f"{keys[read[key]]!r:.200} is the same key")
        return whole

    def batch_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the keys of a batch of records."""
        import pyarrow as pa

        columns = [batch.column(name) for name in self.columns]
        return columns[0] if self.single else pa.StructArray.from_arrays(columns, names=list(self.columns))

    def key_array_of_some(self, keys: Sequence[Any]) -> pa.Array:
        """Return those of the keys as an array that the key's type can hold."""
        try:
            return self.key_array(keys)
        except FunctionError:
            held = []
            for key in keys:
                with contextlib.suppress(FunctionError):
                    self.key_array([key])
                    held.append(key)
            return self.key_array(held)

    def value_array(self, keys: Sequence[Any], values: Sequence[Any]) -> pa.Array:
        """Return the values of keys as an array, or raise an error that names the key whose value it cannot hold."""
        try:
            return exact_array(values, self.value)
        except InexactError as error:
            key, value = keys[error.position], values[error.position]
            raise FunctionError(
                f"known[{key!r:.200}] = {value!r:.200} at operator {self.operator!r}: {error.reason}",
                expected=f"a value that {self.value} holds exactly",
                fix="declare another type in keyed(..., state=), or convert the value before it is stored",
            ) from None

    def _unlike(self, key: Any, reason: str) -> FunctionError:
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(self.columns, self.kinds, strict=True))
        return FunctionError(
            f"known[{key!r:.200}] at operator {self.operator!r}: {reason}",
            expected=f"keys as they are in the records ({columns})",
            fix="use the record's own key",
        )

    def check_owned(self, keys: Sequence[Any], group: Array, low: int, high: int) -> None:
        """Raise an error if a key belongs to another instance, which alone has its state, also behind a rescale."""
        import numpy as np

        foreign = np.flatnonzero((group < low) | (group >= high))
        if len(foreign):
            key = keys[int(foreign[0])]
            raise FunctionError(
                f"known[{key!r:.200}] at operator {self.operator!r}, a key of another instance, as are "
                f"{len(foreign)} of the {len(keys)} keys that were set, deleted or looked up",
                expected="keys of the records that an instance receives, which are the only ones that move with it",
                fix="keep the value with a key of the records, or send it to an operator that is keyed by it",
            )
