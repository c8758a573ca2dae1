"""Exact conversion of Python values to Arrow: what is read back equals what was written, or the conversion fails.

`pa.array(values, type)` cuts in silence: 2.5 becomes 2 as int64, a microsecond is dropped as timestamp[ms], a field
that a struct does not declare is left out. Here each of these is an error that names the value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


class InexactError(Exception):
    """A value that an Arrow type does not hold exactly: its position, and the reason."""

    def __init__(self, position: int, reason: str):
        super().__init__(reason)
        self.position, self.reason = position, reason


def check_value(kind: pa.DataType, operator: str) -> None:
    """Raise an error if Arrow cannot convert Python values to this type of state, or not select single ones."""
    import pyarrow as pa

    try:
        one = pa.array([None], kind)
        pa.concat_arrays([one, one.take(pa.array([0]))])
    except pa.ArrowException:
        raise SchemaError(
            f"state of type {kind} at {operator!r}",
            expected="a type to which Arrow converts Python values, and of which it selects single ones",
            fix="as in state='int64', or state=pa.struct({'n': pa.int64()})",
        ) from None


def exact_array(values: Collection[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an Arrow array that holds them exactly, or raise an InexactError.

    Containers may change their kind (a tuple is read back as a list, a dict of a map as pairs), their contents may not.

    >>> import pyarrow as pa
    >>> exact_array([2.0, None], pa.int64()).to_pylist()
    [2, None]
    >>> exact_array([2.5], pa.int64())
    Traceback (most recent call last):
    dspkit.spark.dataflow.conversion.InexactError: int64 would make it 2
    """
    import pyarrow as pa

    values = list(values)
    refused = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        made = pa.array(values, kind)
    except refused as error:
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except refused as reason:
                raise InexactError(i, str(reason).partition("\n")[0]) from None
        raise InexactError(0, str(error)) from None
    if not _surely_exact(values, kind):
        for i, (given, read) in enumerate(zip(values, made.to_pylist(), strict=True)):
            if not same(given, read):
                raise InexactError(i, f"{kind} would make it {read!r:.200}")
    return made


def same(given: Any, read: Any) -> bool:
    """Return whether a value that was read back is the one that was given."""
    import numpy as np

    if given is None or read is None:
        return given is read
    if isinstance(read, list):
        if isinstance(given, Mapping):  # a map, which is read as a list of pairs
            given = list(given.items())
        elif isinstance(given, np.ndarray):
            given = given.tolist()
        return isinstance(given, list | tuple) and _all_same(given, read)
    if isinstance(read, tuple):
        return isinstance(given, list | tuple) and _all_same(given, read)
    if isinstance(read, dict):
        return isinstance(given, Mapping) and given.keys() == read.keys() and all(same(given[n], read[n]) for n in read)
    if isinstance(read, datetime) and isinstance(given, datetime) and given.tzinfo and read.tzinfo:
        return given.astimezone(UTC) == read.astimezone(UTC)  # by themselves they differ in an hour that occurs twice
    if isinstance(read, float) and read != read:
        return bool(given != given)
    # What can be changed in place would be stored as it is when the epoch ends, and read back as another type.
    return not isinstance(given, bytearray | memoryview | np.ndarray) and bool(given == read)


def _all_same(given: Collection[Any], read: Collection[Any]) -> bool:
    return len(given) == len(read) and all(map(same, given, read))


def _surely_exact(values: Collection[Any], kind: pa.DataType) -> bool:
    """Return whether Arrow converts Python values of these types exactly, or refuses them by itself: the fast way."""
    from pyarrow import types

    found = set(map(type, values)) - {type(None)}
    if not found:
        return True
    if types.is_integer(kind):
        return found == {int}
    if types.is_float64(kind):
        return found <= {float, int}  # Arrow refuses an int beyond 2 ** 53
    if types.is_boolean(kind):
        return found == {bool}
    if types.is_string(kind) or types.is_large_string(kind):
        return found == {str}
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return found == {bytes}
    if types.is_decimal(kind):
        return found <= {Decimal, int}
    if types.is_struct(kind):
        rows = [row for row in values if row is not None]
        fields = list(kind)
        if found != {dict} or len({field.name for field in fields}) < len(fields) or {*map(len, rows)} != {len(fields)}:
            return False
        try:
            return all(_surely_exact([row[field.name] for row in rows], field.type) for field in fields)
        except KeyError:
            return False
    if (types.is_list(kind) or types.is_large_list(kind)) and found <= {list, tuple}:
        inner = list(chain.from_iterable(each for each in values if each is not None))
        return _surely_exact(inner, kind.value_type)
    return False
