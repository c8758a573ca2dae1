"""Functions of the operators of a live job: on Arrow batches or pandas frames, with state by key, or as SQL.

A function takes an iterator of Arrow batches and returns one, as in Spark's own `mapInArrow`. It is called once per
epoch, its input ends with the epoch, and it reads all of it. An operator with several inputs finds the sender's name in
`batch.schema.metadata[b"from"]`; one with several outputs sends each batch to all of them, or yields `("name", batch)`
to send it to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core.lazy import load
from .dead_letters import Guarded, check_kept
from .errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from .event_time import EventTime


GROUPS = 4096  # key groups of keyed state: no keyed operator runs with more instances; a power of two


@dataclass(frozen=True)
class Function:
    """The code of one operator; make it with `arrow`, `frame`, `keyed`, `sql` or `dataframe`.

    Parameters
    ----------
    run
        The function, from an iterator of Arrow batches to another one; with state it also takes a dict.
    schema
        Columns of its output; None for a sink.
    key
        The column, or the columns, by which records find the instance with their state; empty without state.
    value
        Arrow type of the state of a key; None without state.
    query
        An expression that Spark evaluates before `run` gets the records: SQL, or a function of DataFrames.
    event_time
        Of a source: when its records happened.
    timer
        Field of the state's values with the time at which the function wants to see a key again; empty without.
    late
        Receiver of records that come too late, with the columns of the input; they are dropped if it is empty.
    times
        Columns of the input with event times.
    on_error
        Receiver of the records for which the function raises; without one, the job ends.
    windows
        The windows that its state is of, which must be the same for a checkpoint to fit.

    Examples
    --------
    >>> upper = arrow(lambda batches: batches, "word string")
    >>> upper.schema.names, upper.stateful
    (['word'], False)
    """

    run: Callable[..., Iterator[Any]]
    schema: pa.Schema | None
    key: str | tuple[str, ...] = ""
    value: pa.DataType | None = None
    query: Any = None
    event_time: EventTime | None = None
    timer: str = ""
    late: str = ""
    times: tuple[str, ...] = ()
    windows: str = ""
    on_error: str = ""

    @property
    def stateful(self) -> bool:
        """True if it keeps state by key."""
        return self.value is not None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the key; none without state."""
        return (self.key,) * bool(self.key) if isinstance(self.key, str) else self.key


def arrow(
    run: Callable[[Iterator[Any]], Iterator[Any]],
    schema: Any = None,
    *,
    event_time: EventTime | None = None,
    on_error: str = "",
) -> Function:
    """Return an operator that maps an iterator of Arrow batches to an iterator of Arrow batches of `schema`.

    Parameters
    ----------
    run
        The function; it must be picklable, or defined in the notebook.
    schema
        Columns of its output, as "word string, n int64", a mapping or an Arrow schema; None for a sink.
    event_time
        For a source: when the records of its log happened, and how long results wait for those that are behind.
    on_error
        An operator behind this one that gets the records for which the function raises, with the columns of the input,
        `error` and `traceback`. The function is then called with one batch at a time, and with parts of a batch for
        which it raised, so it must treat each record by itself.

    Examples
    --------
    >>> import pyarrow.compute as pc
    >>> def long_words(batches):
    ...     for batch in batches:
    ...         yield batch.filter(pc.greater(pc.utf8_length(batch.column("word")), 3))
    >>> arrow(long_words, "word string").schema.names
    ['word']
    """
    late = event_time.late if event_time is not None else ""
    return _guarded(Function(run, as_schema(schema), event_time=event_time, late=late), on_error)


def _guarded(function: Function, on_error: str) -> Function:
    if not on_error:
        return function
    return replace(function, run=Guarded(function.run, function.schema), on_error=on_error)


def frame(run: Callable[[pd.DataFrame], pd.DataFrame], schema: Any = None, *, on_error: str = "") -> Function:
    """Return an operator that maps one pandas frame to another with the columns of `schema`.

    In the frame, columns of integers with nulls have pandas' nullable types (Int64). A NaN in it is sent as null.

    Parameters
    ----------
    run
        The function, called once per batch.
    schema
        Columns of its output, as "word string, n int64", a mapping or an Arrow schema; None for a sink.
    on_error
        An operator behind this one that gets the records for which the function raises; see `arrow`.

    Examples
    --------
    >>> frame(lambda rows: rows[rows.word.str.len() > 3], "word string").schema.names
    ['word']
    """
    made = as_schema(schema)
    return _guarded(Function(_Frames(run, made), made), on_error)


def keyed(
    run: Callable[[Iterator[Any], dict[Any, Any]], Iterator[Any]],
    schema: Any = None,
    *,
    key: str | Sequence[str],
    state: Any,
    timer: str = "",
) -> Function:
    """Return an operator with state by key: a function of batches and a dict, `run(batches, known)`.

    All records of one key go to the same instance. `known` holds a value of type `state` by key, is saved with each
    epoch, and moves with its keys when the operator is rescaled. A value can be anything that Arrow can hold; one that
    `state` does not hold exactly is an error, as is a key that belongs to another instance. A key of several columns is
    a tuple in `known`.

    With `timer` the function also gets batches from the sender `timers`, with the columns of the key: keys whose time,
    in that field of their value, the watermark has reached. It then deletes the key, or sets a later time or None. It
    sets times for keys of the batch that it works on.

    Parameters
    ----------
    run
        The function; it changes the dict in place.
    schema
        Columns of its output, as "word string, n int64", a mapping or an Arrow schema; None for a sink.
    key
        The column of the input that is the key, or several.
    state
        Arrow type of the values, or its name.
    timer
        Field of the values, which are structs, with the time at which the function wants to see the key again: a
        float64 of seconds, a timestamp, or an int64 of microseconds.

    Examples
    --------
    >>> def count(batches, known):
    ...     for batch in batches:
    ...         for word in batch.column("word").to_pylist():
    ...             known[word] = known.get(word, 0) + 1
    ...     yield from ()
    >>> keyed(count, key="word", state="int64").stateful
    True
    >>> keyed(count, key=("user", "window"), state="int64").keys
    ('user', 'window')
    """
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise SchemaError(
            f"key {key!r}", expected="a column, or several", fix="as in key='word', key=('user', 'window')"
        )
    if not isinstance(key, str) and "value" in names:  # the name of the state's own column
        raise SchemaError(f"key {key!r}", expected="columns other than 'value'", fix="rename it before it is sent")
    value = as_type(state)
    if timer:
        _check_timer(value, timer)
    return Function(run, as_schema(schema), key if isinstance(key, str) else names, value, timer=timer)


def _check_timer(value: pa.DataType, timer: str) -> None:
    from pyarrow import types

    kind = value.field(timer).type if types.is_struct(value) and value.get_field_index(timer) >= 0 else None
    if kind is None or not (types.is_float64(kind) or types.is_timestamp(kind) or types.is_int64(kind)):
        raise SchemaError(
            f"timer={timer!r} with state of type {value}",
            expected="a field of the state: float64 seconds, a timestamp, or int64 microseconds",
            fix=f"as in state=pa.struct({{'n': pa.int64(), {timer!r}: pa.float64()}})",
        )


def sql(query: str, schema: Any) -> Function:
    """Return an operator that is an SQL expression over its `input`, which Spark evaluates per record, without Python.

    Columns may be computed, selected and exploded, records filtered; an expression over several records at once
    (groups, joins, order) is rejected when the job starts.

    Parameters
    ----------
    query
        SELECT ... FROM input ...
    schema
        Columns of its output, as "word string, n int64", a mapping or an Arrow schema.

    Examples
    --------
    >>> sql("SELECT upper(word) AS word FROM input WHERE length(word) > 3", "word string").schema.names
    ['word']
    """
    if not isinstance(query, str) or not query.strip():
        raise SchemaError(f"the query {query!r}", expected="SELECT ... FROM input", fix="write it as text")
    return Function(same, _declared(schema), query=query)


def dataframe(run: Callable[[Any], Any], schema: Any) -> Function:
    """Return an operator that is a function from one Spark DataFrame to another; the same as `sql` otherwise.

    Parameters
    ----------
    run
        The function, called once, when the job starts.
    schema
        Columns of its output, as "word string, n int64", a mapping or an Arrow schema.

    Examples
    --------
    >>> dataframe(lambda df: df.selectExpr("upper(word) AS word"), "word string").schema.names
    ['word']
    """
    if not callable(run):
        raise SchemaError(f"{run!r}", expected="a function of a DataFrame", fix="as in lambda df: df.select('id')")
    return Function(same, _declared(schema), query=run)


def _declared(schema: Any) -> pa.Schema:
    if (made := as_schema(schema)) is None:
        raise SchemaError("no schema", expected="the columns of the query's output", fix="as in 'word string'")
    return made


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Forward the input: the default function of a source."""
    yield from batches


def as_schema(schema: Any) -> pa.Schema | None:
    """Return an Arrow schema from text such as `"word string, n int64"`, a mapping, or an Arrow schema.

    >>> as_schema("word string, n int64").names
    ['word', 'n']
    """
    pa = load("pyarrow", "standard")

    if (given := schema) is None:
        return None
    if isinstance(schema, str):
        words = [part.split() for part in schema.split(",")]
        schema = dict(words) if all(len(pair) == 2 for pair in words) else None
    if isinstance(schema, Mapping):
        schema = pa.schema([(name, as_type(kind)) for name, kind in schema.items()])
    if not isinstance(schema, pa.Schema):
        raise SchemaError(f"schema {given!r}", expected="'word string, n int64' or an Arrow schema", fix="rewrite it")
    for field in schema:
        if field.name.startswith("_") or any(map(pa.types.is_dictionary, _within(field.type))):
            raise SchemaError(
                f"column {field.name!r} of {field.type}",
                expected="a name without a leading underscore, and a type other than dictionary",
                fix="rename it, or send the values themselves",
            )
    return schema.remove_metadata()


def _within(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all types of its parts."""
    yield kind
    for i in range(kind.num_fields):
        yield from _within(kind.field(i).type)


def as_type(kind: Any) -> pa.DataType:
    """Return an Arrow type from a type or its name."""
    import pyarrow as pa

    try:
        return kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
    except (TypeError, ValueError):
        raise SchemaError(
            f"type {kind!r}",
            expected="an Arrow type or its name, as int64, float64, string",
            fix="use one of these names, or a pyarrow type",
        ) from None


@dataclass(frozen=True)
class _Frames:
    """A pandas function as a function of Arrow batches."""

    run: Callable[[pd.DataFrame], Any]
    schema: pa.Schema | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            made = self.run(as_pandas(batch))
            if self.schema is not None and made is not None and len(made):
                batch = pa.RecordBatch.from_pandas(made, schema=self.schema, preserve_index=False)
                for field in self.schema:
                    if field.name in made.columns and _narrow(field.type):
                        check_kept(field.name, pa.array(made[field.name], from_pandas=True), batch.column(field.name))
                yield batch


def as_pandas(rows: pa.RecordBatch | pa.Table) -> pd.DataFrame:
    """Return rows as a pandas frame whose integers are exact: beside nulls, pandas makes floats of them by itself.

    Columns of integers with nulls have pandas' nullable types, as Int64; inside of lists and structs nulls are None.

    >>> import pyarrow as pa
    >>> as_pandas(pa.record_batch({"x": [2**53 + 1, None]}))["x"].tolist()
    [9007199254740993, <NA>]
    """
    import pandas as pd
    import pyarrow as pa

    made: pd.DataFrame = rows.to_pandas(integer_object_nulls=True)
    for i, column in enumerate(rows.columns):
        if column.null_count and pa.types.is_integer(column.type):
            nullable = pd.api.types.pandas_dtype(str(column.type).replace("i", "I", 1).replace("u", "U", 1))
            made.isetitem(i, column.to_pandas(types_mapper={column.type: nullable}.get))
    return made


def _narrow(kind: pa.DataType) -> bool:
    """Return whether these are floats that hold less than float64, or lists of them."""
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _narrow(kind.value_type)
    return bool(types.is_float16(kind) or types.is_float32(kind))
