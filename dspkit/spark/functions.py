"""What an operator of a live job does: functions on Arrow batches or pandas frames, and what they give.

A function takes an iterator of Arrow batches and gives one, as Spark's own `mapInArrow` does. It begins anew with each
epoch, and its input ends with the epoch. An operator with several inputs finds the sender's name in
`batch.schema.metadata[b"from"]`; one with several outputs sends each batch to all of them, or yields
`("name", batch)` to send it to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

GROUPS = 128  # key groups that state is spread by: no keyed operator runs with more instances


@dataclass(frozen=True)
class Function:
    """One operator's code: make it with `arrow`, `frame`, `keyed`, `sql` or `dataframe`."""

    run: Callable[..., Iterator[Any]]
    schema: pa.Schema | None  # of what it gives; None if nothing goes on from here
    key: str = ""  # the column by which records find the instance that has their state
    value: pa.DataType | None = None  # of what is kept for a key
    query: Any = None  # what Spark itself makes of the records before `run` has them: SQL, or a function of DataFrames

    @property
    def stateful(self) -> bool:
        return self.value is not None


def arrow(run: Callable[[Iterator[Any]], Iterator[Any]], schema: Any = None) -> Function:
    """A function from an iterator of Arrow batches to an iterator of Arrow batches of `schema`."""
    return Function(run, as_schema(schema))


def frame(run: Callable[[pd.DataFrame], pd.DataFrame], schema: Any = None) -> Function:
    """A function from one pandas frame to another with the columns of `schema`."""
    made = as_schema(schema)
    return Function(_Frames(run, made), made)


def keyed(
    run: Callable[[Iterator[Any], dict[Any, Any]], Iterator[Any]], schema: Any = None, *, key: str, state: Any
) -> Function:
    """A function of batches and a dict of what is known by key: `run(batches, known)`.

    All records of one key come to the same instance. `known` holds a value of type `state` by key, is kept with each
    epoch, and moves with its keys when the operator is rescaled. A value that Arrow can hold will do.
    """
    return Function(run, as_schema(schema), key, as_type(state))


def sql(query: str, schema: Any) -> Function:
    """An SQL expression over the operator's `input`, which Spark evaluates record by record, without Python.

    As in `sql("SELECT upper(word) AS word FROM input WHERE length(word) > 3", "word string")`. Columns may be computed,
    chosen and exploded, records dropped; what needs several records at once (groups, joins, order) is refused.
    """
    if not isinstance(query, str) or not query.strip():
        raise SchemaError(f"the query {query!r}", expected="SELECT ... FROM input", fix="write it as text")
    return Function(same, _declared(schema), query=query)


def dataframe(run: Callable[[Any], Any], schema: Any) -> Function:
    """The same as a function from one Spark DataFrame to another, called once, when the job starts."""
    if not callable(run):
        raise SchemaError(f"{run!r}", expected="a function of a DataFrame", fix="as in lambda df: df.select('id')")
    return Function(same, _declared(schema), query=run)


def _declared(schema: Any) -> pa.Schema:
    if (made := as_schema(schema)) is None:
        raise SchemaError("no schema", expected="the columns that the query gives", fix="as in 'word string'")
    return made


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Hand on what comes: what a source does unless it is told otherwise."""
    yield from batches


def as_schema(schema: Any) -> pa.Schema | None:
    """From `"word string, n int64"`, a mapping, or Arrow's own.

    >>> as_schema("word string, n int64").names
    ['word', 'n']
    """
    import pyarrow as pa

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
        if field.name.startswith("_") or pa.types.is_dictionary(field.type):
            raise SchemaError(
                f"column {field.name!r} of {field.type}",
                expected="a name without a leading underscore, of a type that is no dictionary",
                fix="rename it, or send the values themselves",
            )
    return schema.remove_metadata()


def as_type(kind: Any) -> pa.DataType:
    import pyarrow as pa

    try:
        return kind if isinstance(kind, pa.DataType) else pa.type_for_alias(kind)
    except (TypeError, ValueError):
        raise SchemaError(
            f"type {kind!r}", expected="an Arrow type or its name, as int64, float64, string", fix="correct the type"
        ) from None


@dataclass(frozen=True)
class _Frames:
    """A pandas function as one on Arrow batches."""

    run: Callable[[pd.DataFrame], Any]
    schema: pa.Schema | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            made = self.run(batch.to_pandas())
            if self.schema is not None and made is not None and len(made):
                yield pa.RecordBatch.from_pandas(made, schema=self.schema, preserve_index=False)
