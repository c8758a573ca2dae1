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
        if [(f.name, f.type) for f in to_arrow_schema(made.schema)] != [(f.name, f.type) for f in output_schema]:
            declared = ", ".join(f"{field.name} {field.type}" for field in output_schema)
            raise SchemaError(
                f"a query of {operator!r} that gives {made.schema.simpleString()}",
                expected=f"its schema: {declared}",
                fix="change the query or the schema; CAST(x AS BIGINT) gives int64",
            )
        jvm = spark.sparkContext._jvm
        jvm.dspkit.Select.register(spark._jsparkSession, name, operator, rows._jdf.schema(), made._jdf)
    except PySparkException as error:
        raise _refused(operator, str(error)) from error
    except Py4JJavaError as error:
        raise _refused(operator, str(error.java_exception.getMessage())) from error


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
