"""Dead letters: records for which a function raises go to another operator, and the job continues.

The function is called with one batch at a time. If it raises, what it made of the batch is dropped, and it is called
with either half, and so on down to single records. So it must treat each record by itself, whatever batch it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import FunctionError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa


COLUMNS = ("error", "traceback")


@dataclass(frozen=True)
class DeadLetters:
    """Records for which a function raised, and the exception of each."""

    batch: pa.RecordBatch
    errors: list[Exception]


@dataclass(frozen=True)
class Guarded:
    """A function of batches that yields the records for which it raises as dead letters.

    Parameters
    ----------
    run
        The function.
    schema
        The columns of its output; a value that they cannot hold is an error of its record.

    Examples
    --------
    >>> import pyarrow as pa
    >>> def inverse(batches):
    ...     for batch in batches:
    ...         yield pa.record_batch({"x": [1 / x for x in batch.column("x").to_pylist()]})
    >>> good, bad = Guarded(inverse, pa.schema({"x": pa.float64()}))([pa.record_batch({"x": [1, 0]})])
    >>> good.to_pylist(), bad.batch.to_pylist(), bad.errors
    ([{'x': 1.0}], [{'x': 0}], [ZeroDivisionError('division by zero')])
    """

    run: Callable[[Iterator[Any]], Any]
    schema: pa.Schema | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            bad: list[tuple[pa.RecordBatch, Exception]] = []
            yield from self._made(batch, bad)
            if bad:
                rows = pa.Table.from_batches([row for row, _ in bad]).combine_chunks().to_batches()[0]
                yield DeadLetters(rows, [error for _, error in bad])

    def _made(self, batch: pa.RecordBatch, bad: list[tuple[pa.RecordBatch, Exception]]) -> Iterator[Any]:
        given = iter([batch])
        try:
            made = [self._declared(own_copy(out)) for out in self.run(given) or ()]
        except Exception as error:
            if batch.num_rows <= 1:
                bad.append((batch, error))
                return
            half = batch.num_rows // 2
            yield from self._made(batch.slice(0, half), bad)
            yield from self._made(batch.slice(half), bad)
        else:
            if any(left.num_rows for left in given):
                raise FunctionError(
                    "a function with on_error, which returned before it had read its batch",
                    expected="one that reads all batches that it is given, one at a time",
                    fix="read on without using the rest (for batch in batches: pass), instead of returning",
                )
            yield from made

    def _declared(self, out: Any) -> Any:
        """Return an output with the declared types, if it has the declared columns."""
        import pyarrow as pa

        name, batch = out if isinstance(out, tuple) and len(out) == 2 else (None, out)
        if not isinstance(batch, pa.RecordBatch) or self.schema is None or batch.schema.equals(self.schema):
            return out
        if sorted(batch.schema.names) != sorted(self.schema.names):  # an error of the program, not of a record
            return out
        batch = as_declared(batch, self.schema)
        return batch if name is None else (name, batch)


def own_copy(out: Any) -> Any:
    """Return an output of a function in memory of its own: the function may fill its arrays again for the next one.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> numbers = np.zeros(2)
    >>> given = pa.RecordBatch.from_arrays([pa.array(numbers)], names=["x"])
    >>> kept, numbers[0] = own_copy(given), 7.0
    >>> given.to_pydict(), kept.to_pydict()
    ({'x': [7.0, 0.0]}, {'x': [0.0, 0.0]})
    """
    import pyarrow as pa

    if isinstance(out, tuple) and len(out) == 2:
        return out[0], own_copy(out[1])
    if not isinstance(out, pa.RecordBatch):  # an error, which is reported where it is sent
        return out
    file = pa.BufferOutputStream()
    with pa.ipc.new_stream(file, out.schema) as stream:  # a single message leaves dictionaries out
        stream.write_batch(out)
    return pa.ipc.open_stream(file.getvalue()).read_next_batch()


def as_declared(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """Return the batch with its columns in the declared order, cast to the declared types."""
    import pyarrow as pa

    if sorted(batch.schema.names) != sorted(declared.names):
        raise TypeError(f"it gave columns {batch.schema.names}, and said it would give {declared.names}")
    columns = [batch.column(field.name).cast(field.type) for field in declared]
    for name, column in zip(declared.names, columns, strict=True):
        check_kept(name, batch.column(name), column)
    return pa.RecordBatch.from_arrays(columns, schema=declared)


def check_kept(name: str, given: pa.Array, cast: pa.Array) -> None:
    """Raise a ValueError if Arrow made something else of a value without a word.

    It makes infinite what is too large for a narrower float, cuts the digits of a float for a decimal and the time of
    day for a date, has True for all numbers but 0, and leaves out fields of structs. Floats may be rounded.

    Examples
    --------
    >>> import pyarrow as pa
    >>> check_kept("x", pa.array([1e300]), pa.array([1e300]).cast(pa.float32()))
    Traceback (most recent call last):
    ValueError: 1e+300 in column 'x', which float does not hold
    """
    import pyarrow.compute as pc
    from pyarrow import types

    if types.is_struct(cast.type):
        fields = {field.name: before for field, before in zip(given.type, given.flatten(), strict=True)}
        if fields.keys() != {field.name for field in cast.type}:  # Arrow leaves out some, and has null for others
            raise ValueError(f"{given.type} in column {name!r}, which was declared as {cast.type}")
        for field, after in zip(cast.type, cast.flatten(), strict=True):
            check_kept(name, fields[field.name], after)
    elif types.is_nested(cast.type):
        check_kept(name, _flat(given), _flat(cast))
    elif _cuts(given.type, cast.type):
        kept = pc.equal(cast.cast(given.type), given)
        if pc.any(pc.invert(kept)).as_py():
            raise ValueError(f"{given.filter(pc.invert(kept))[0]} in column {name!r}, which {cast.type} does not hold")
    elif types.is_floating(cast.type) and (types.is_floating(given.type) or types.is_integer(given.type)):
        lost = given.filter(pc.and_(pc.is_finite(given), pc.is_inf(cast)))
        if len(lost):
            raise ValueError(f"{lost[0]} in column {name!r}, which {cast.type} does not hold")


def _cuts(given: pa.DataType, cast: pa.DataType) -> bool:
    from pyarrow import types

    number = types.is_integer(given) or types.is_floating(given)
    return bool(
        (number and types.is_boolean(cast))
        or (types.is_floating(given) and types.is_decimal(cast))
        or (types.is_timestamp(given) and types.is_date(cast))
    )


def _flat(array: pa.Array) -> pa.Array:
    """Return the values of all lists, or the pairs of all maps."""
    import pyarrow as pa

    if pa.types.is_map(array.type):  # `items` also has those outside of a slice
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    return array.flatten()


def storable(text: str) -> str:
    r"""Return a text with escapes for what Arrow or a database does not hold: halves of characters and zero bytes.

    Examples
    --------
    >>> storable("a\0b\ud800")
    'a\\x00b\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def described(error: BaseException) -> str:
    r"""Return the type and the text of an exception, also of one that raises when it is asked for its text.

    Examples
    --------
    >>> described(ValueError("half of a character: \ud800"))
    'ValueError: half of a character: \\ud800'
    """
    try:
        said = str(error)
    except Exception as other:
        said = f"<its text raised a {type(other).__name__}>"
    return storable(f"{type(error).__name__}: {said}")


def with_error(columns: pa.Schema, operator: str) -> pa.Schema:
    """Return the columns of the dead letters of an operator, which has these columns as its input."""
    import pyarrow as pa

    if taken := sorted({*COLUMNS} & {*columns.names}):
        raise SchemaError(
            f"columns {', '.join(taken)} in the input of {operator!r}, which sends dead letters",
            expected=f"other names, as {' and '.join(COLUMNS)} describe the exception there",
            fix="rename them before they are sent",
        )
    return pa.schema([*columns, *((name, pa.string()) for name in COLUMNS)])
