"""Rows of CSV and Parquet files and of data frames, a few at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .base import Limits, LoaderError
from .given import given_path

_BATCH = 1024  # rows of Parquet at a time
_LONGEST = 1000  # characters of a word in Parquet: longer ones are dropped before they are repeated


def read(data: Any, names: Mapping[str, str], asked: set[str], limits: Limits) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows by quantity, each with its place."""
    if hasattr(data, "columns") and hasattr(data, "itertuples"):
        columns = _choose(list(data.columns), names, asked)
        limits.check("readings", len(data))
        frame = data[[names[quantity] for quantity in columns]]
        for index, row in enumerate(frame.itertuples(index=False, name=None)):
            yield f"row {index}", dict(zip(columns, row, strict=True))
        return
    if not isinstance(data, (str, Path)):
        raise LoaderError(f"{type(data).__name__}", expected="a path or a DataFrame", fix="pass one")
    path = given_path(data)
    readers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix.lower() not in readers:
        raise LoaderError(f"file {path.name!r}", expected=" or ".join(readers), fix="convert it first")
    try:
        yield from readers[path.suffix.lower()](path, names, asked, limits)
    except OSError as error:
        raise LoaderError(f"{path}: {error.strerror or error}", expected="a file to read", fix="check it") from error


def _choose(there: list[Any], names: Mapping[str, str], asked: set[str]) -> list[str]:
    """The quantities whose columns are there; those that were asked for and the time must be."""
    for quantity, column in names.items():
        if (quantity in asked or quantity == "t") and there.count(column) != 1:
            raise LoaderError(
                f"columns {', '.join(map(str, there))!s:.300}",
                expected=f"a column {column!r} for {quantity}, once",
                fix="name it with columns={...}",
            )
    return [quantity for quantity, column in names.items() if there.count(column) == 1]


def _csv(path: Path, names: Mapping[str, str], asked: set[str], limits: Limits) -> Iterator[tuple[str, dict[str, Any]]]:
    limits.check("total_bytes", path.stat().st_size)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(_short(file, limits), strict=True)
            head = next(reader, None)
            if head is None:
                raise LoaderError(f"{path.name}, which is empty", expected="a line of column names", fix="check it")
            columns = _choose(head, names, asked)
            places = [head.index(names[quantity]) for quantity in columns]
            for count, row in enumerate(reader, 1):
                limits.check("readings", count)
                if row:
                    full = [row[i] if i < len(row) else None for i in places]
                    yield f"line {reader.line_num}", dict(zip(columns, full, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise LoaderError(f"{path.name}: {error!s:.200}", expected="a CSV file in UTF-8", fix="check it") from error


def _short(file: Any, limits: Limits) -> Iterator[str]:
    """Lines of text; one that does not end is refused before it fills the memory."""
    while line := file.readline(limits.line_bytes + 1):
        limits.check("line_bytes", len(line))
        yield line


def _parquet(
    path: Path, names: Mapping[str, str], asked: set[str], limits: Limits
) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.types as pt

    try:
        with path.open("rb") as raw, pq.ParquetFile(raw) as file:
            limits.check("readings", file.metadata.num_rows)
            columns = _choose(list(file.schema_arrow.names), names, asked)
            chosen = [names[quantity] for quantity in columns]
            schema = file.schema_arrow
            for name in chosen:
                kind = schema.field(name).type
                if pt.is_nested(kind):
                    raise LoaderError(f"column {name!r} of {kind}", expected="numbers or text", fix="flatten it")
            words = [
                n for n in chosen if pt.is_string(schema.field(n).type) or pt.is_large_string(schema.field(n).type)
            ]
            with pq.ParquetFile(raw, read_dictionary=words) as file:  # a word is held once, however often it is meant
                index = 0
                for batch in file.iter_batches(_BATCH, columns=chosen):
                    values = {column: _values(batch.column(names[column])) for column in columns}
                    for i in range(batch.num_rows):
                        yield f"row {index + i}", {column: values[column][i] for column in columns}
                    index += batch.num_rows
    except (pa.ArrowException, MemoryError, UnicodeDecodeError, OverflowError) as error:
        raise LoaderError(f"{path.name}: {error!s:.200}", expected="a Parquet file", fix="check it") from error


def _values(column: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.DictionaryArray):
        fits = pc.less_equal(pc.binary_length(column.dictionary), _LONGEST)
        words = pc.if_else(fits, column.dictionary, None).to_pylist()
        return [None if i is None else words[i] for i in column.indices.to_pylist()]
    return list(column.to_pylist())
