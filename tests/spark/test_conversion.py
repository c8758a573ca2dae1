"""Values that an Arrow type would cut or change are found, wherever they stand; the others are kept as they are."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dspkit.spark import FunctionError
from dspkit.spark.dataflow.state import InexactError, KeyedState, exact_array

DAY = dt.datetime(2020, 1, 1, 1, 2, 3, 456789)
PAIR = pa.struct({"a": pa.int64(), "b": pa.float64()})
CUT = [
    (pa.int64(), 2.5),
    (pa.int64(), np.float64(2.5)),
    (pa.int64(), 2**63),
    (pa.int64(), "5"),
    (pa.int64(), float("nan")),
    (pa.int8(), 300),
    (pa.uint64(), -1),
    (pa.float32(), 0.1),
    (pa.float16(), 1e6),
    (pa.float64(), 2**53 + 1),
    (pa.string(), 5),
    (pa.string(), b"a"),
    (pa.string(), "\ud800"),
    (pa.binary(), "a"),
    (pa.binary(2), b"abc"),
    (pa.binary(), bytearray(b"a")),  # can be changed in place
    (pa.binary(2), bytearray(b"ab")),
    (pa.large_binary(), memoryview(b"a")),
    (pa.list_(pa.binary()), [b"a", bytearray(b"a")]),
    (pa.int64(), np.array(5)),
    (pa.bool_(), 1),
    (pa.decimal128(5, 2), Decimal("1.234")),
    (pa.decimal128(5, 2), Decimal("NaN")),
    (pa.decimal128(5, 2), 1.5),
    (pa.timestamp("ms"), DAY),
    (pa.timestamp("us"), DAY.replace(tzinfo=dt.UTC)),
    (pa.timestamp("us", "UTC"), DAY),
    (pa.timestamp("us"), pd.Timestamp(5)),
    (pa.timestamp("ns"), pd.NaT),
    (pa.date32(), DAY),
    (pa.date64(), DAY),
    (pa.time32("s"), DAY.time()),
    (pa.duration("ms"), dt.timedelta(microseconds=5)),
    (pa.null(), 1),
    (pa.list_(pa.int64()), [1, 2.5]),
    (pa.list_(pa.int64()), {1, 2}),
    (pa.list_(pa.int64()), [[1]]),
    (pa.list_(pa.int64(), 3), [1, 2]),
    (PAIR, {"a": 1, "b": 2.0, "c": 3}),
    (PAIR, {"a": 1}),
    (PAIR, {"a": 1.5, "b": 1.5}),
    (PAIR, {"a": 1, "x": 1.5}),
    (PAIR, [("a", 1), ("b", 1.5)]),
    (pa.list_(PAIR), [{"a": 1, "b": 2.0}, {"a": 0.5, "b": 2.0}]),
    (pa.struct({"p": PAIR}), {"p": {"a": 1, "b": 1.0, "c": None}}),
    (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
]
KEPT = [
    (pa.int64(), 2.0),
    (pa.int64(), np.int32(7)),
    (pa.uint64(), 2**64 - 1),
    (pa.float64(), 7),
    (pa.float64(), float("nan")),
    (pa.float64(), -0.0),
    (pa.float64(), np.float32(0.1)),
    (pa.float32(), 0.5),
    (pa.float32(), np.float32(0.1)),
    (pa.float16(), float("inf")),
    (pa.decimal128(5, 2), Decimal("1.2")),
    (pa.decimal128(5, 2), 3),
    (pa.timestamp("us", "UTC"), DAY.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))),
    (pa.timestamp("us", "Europe/Berlin"), dt.datetime(2021, 10, 31, 0, 30, tzinfo=dt.UTC)),
    (pa.timestamp("us", "Europe/Berlin"), dt.datetime(2021, 10, 31, 1, 30, tzinfo=dt.UTC)),
    (pa.timestamp("ns"), pd.Timestamp(5)),
    (pa.binary(), np.bytes_(b"a")),
    (pa.list_(pa.int64()), (1, 2)),
    (pa.list_(pa.int64()), np.array([1, 2])),
    (pa.list_(pa.float64()), [float("nan"), None]),
    (PAIR, {"b": 2.0, "a": 1}),
    (PAIR, OrderedDict(a=1, b=None)),
    (pa.struct({"a": pa.int64()}), Counter(a=2)),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    (pa.dictionary(pa.int32(), pa.string()), "a"),
    (pa.struct([]), {}),
]


def _name(value: Any) -> str:
    """Return a name that is the same in each process: without addresses."""
    return type(value).__name__ if isinstance(value, memoryview) else f"{value!r:.40}"


@pytest.mark.parametrize(("kind", "value"), CUT, ids=_name)
def test_a_value_that_its_type_would_change_is_named_before_anything_is_written(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(InexactError) as caught:
        exact_array([None, None, value, None], kind)
    assert caught.value.position == 2
    declared = KeyedState("count", ("word",), (pa.string(),), kind, single=True)
    with pytest.raises(FunctionError) as said:
        declared.value_array(["fine", "bad"], [None, value])
    assert "known['bad'] = " in str(said.value)
    assert f"{value!r:.200}" in str(said.value)
    assert f"a value that {kind} holds exactly" in str(said.value)


@pytest.mark.parametrize(("kind", "value"), KEPT, ids=_name)
def test_a_value_that_its_type_holds_is_kept(kind: pa.DataType, value: Any) -> None:
    kept = exact_array([value, None], kind)
    (read, nothing) = kept.to_pylist()
    assert nothing is None
    assert repr(exact_array([read, None], kind).to_pylist()) == repr([read, None])
    if isinstance(value, dt.datetime) and value.tzinfo:
        assert read.timestamp() == value.timestamp()
    elif not isinstance(value, np.ndarray | tuple | dict | list | float):
        assert read == value


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), PAIR, pa.list_(pa.int64()), pa.float32()], ids=str)
def test_nothing_and_nulls_are_exact(kind: pa.DataType) -> None:
    assert len(exact_array([], kind)) == 0
    assert exact_array([None], kind).null_count == 1
