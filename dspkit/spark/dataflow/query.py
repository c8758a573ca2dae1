"""Operators that are SQL or DataFrame expressions: Spark evaluates them on whole frames, in Java (`Select.java`).

The task's Python gets a frame of the results, behind three numbers: the time that they took, the part of it that a core
worked, and the number of input records. It sends the results on and keeps the meter, as for any operator.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..errors import SchemaError
from .frames import Records

if TYPE_CHECKING:
    import pyarrow as pa


_HEAD = struct.Struct("<qqq")


def register(
    spark: Any, name: str, operator: str, query: Any, input_schema: pa.Schema, output_schema: pa.Schema
) -> None:
    """Register the query in this session as a function `name` of a frame with records of `input_schema`."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for field in (*input_schema, *output_schema):
        _check_column(field, operator)
    columns = from_arrow_schema(input_schema)
    try:
        rows = spark.createDataFrame(spark.sparkContext.emptyRDD(), columns)
        if callable(query):
            made = query(rows)
        else:
            rows.createOrReplaceTempView("input")
            made = spark.sql(query)
        if not isinstance(made, DataFrame):
            raise SchemaError(f"{made!r} from the query of {operator!r}", expected="a DataFrame", fix="return one")
        given = to_arrow_schema(made.schema, timezone="UTC")
        if [(f.name, f.type) for f in given] != [(f.name, f.type) for f in output_schema]:
            declared = ", ".join(f"{field.name} {field.type}" for field in output_schema)
            raise SchemaError(
                f"a query of {operator!r} that gives {made.schema.simpleString()}",
                expected=f"its schema: {declared}",
                fix="change the query or the schema; CAST(x AS BIGINT) gives int64, TIMESTAMP timestamp[us, tz=UTC]",
            )
        jvm = spark.sparkContext._jvm
        jvm.dspkit.Select.register(spark._jsparkSession, name, operator, rows._jdf.schema(), made._jdf)
    except PySparkException as error:
        raise _refused(operator, str(error)) from error
    except Py4JJavaError as error:
        raise _refused(operator, str(error.java_exception.getMessage())) from error


def _check_column(field: pa.Field, operator: str) -> None:
    """Raise an error if Java takes the values of a column for something else, as milliseconds for microseconds."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    zone = getattr(field.type, "tz", None) or "UTC"
    try:
        read = None if pa.types.is_time(field.type) else to_arrow_type(from_arrow_type(field.type), timezone=zone)
    except PySparkException:
        read = None
    if read != field.type:
        raise SchemaError(
            f"column {field.name!r} of {field.type} in the query of {operator!r}",
            expected="a type that Spark's SQL holds as it is: bool, int8 to int64, float32, float64, decimal128, "
            "string, binary, date32, timestamp[us], duration[us], or lists, structs and maps of these",
            fix="cast it in an arrow() operator in front of the query, or behind it",
        )


def _refused(operator: str, what: str) -> SchemaError:
    return SchemaError(
        f"the query of {operator!r}: {what.splitlines()[0]:.300}",
        expected="SELECT ... FROM input WHERE ..., of one record at a time, over the columns of the input",
        fix="do the rest in a keyed() or arrow() operator behind it",
    )


def unpack(frame: Any, schema: pa.Schema) -> tuple[Records, float, float]:
    """Return the query's results for one frame, the seconds that they took, and those of a core."""
    import numpy as np
    import pyarrow as pa

    nanos, worked, came = _HEAD.unpack_from(frame)
    if len(frame) > _HEAD.size:
        records = Records.unpack(memoryview(frame)[_HEAD.size :], schema)
    else:
        seen = pa.schema(list(schema)[:-2], metadata=schema.metadata)
        nothing = np.zeros(0, np.int64)
        records = Records(pa.RecordBatch.from_pylist([], seen), nothing, nothing)
    return Records(records.batch, records.event, records.read, came), nanos * 1e-9, worked * 1e-9
