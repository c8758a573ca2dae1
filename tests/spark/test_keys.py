"""Keys of every type: one owner each, through any change of parallelism, and the same state as in a plain dict."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from dspkit import Topology, workload
from dspkit.spark import FunctionError, SchemaError, TraceSource, arrow, keyed
from dspkit.spark.dataflow import plan, state, store
from dspkit.spark.dataflow.exchange import check_key, groups, keys_of, owned, owners
from dspkit.spark.dataflow.state import KeyedState
from dspkit.spark.functions import GROUPS, same

NAN = math.nan


def _declared(kind: pa.DataType, value: Any = None) -> KeyedState:
    return KeyedState("count", ("n",), (kind,), value or pa.int64(), single=True)


# Types, and the Python values that their columns hold.
_text, _blob = st.text(max_size=9), st.binary(max_size=9)
_moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))
_seconds = _moments.map(lambda d: d.replace(microsecond=0))
_spans = st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))
_days = st.dates(dt.date(1600, 1, 1), dt.date(2400, 1, 1))


def _decimals(digits: int, places: int) -> st.SearchStrategy[decimal.Decimal]:
    most = 10**digits - 1
    return st.integers(-most, most).map(lambda n: decimal.Decimal(n).scaleb(-places, decimal.Context(prec=80)))


def _whole(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.sampled_from([low, high, high // 2 + 1])


def _real(bits: Any) -> st.SearchStrategy[float]:
    return st.floats(width=bits) | st.sampled_from([0.0, -0.0, NAN, -NAN, math.inf])


SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{getattr(pa, f"int{bits}")(): _whole(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): _whole(bits, signed=False) for bits in (8, 16, 32, 64)},
    pa.float16(): _real(16),
    pa.float32(): _real(32),
    pa.float64(): _real(64),
    pa.string(): _text | st.text(min_size=120, max_size=140),
    pa.large_string(): _text,
    pa.binary(): _blob,
    pa.large_binary(): _blob,
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal32(5, 2): _decimals(5, 2),
    pa.decimal64(15, 3): _decimals(15, 3),
    pa.decimal128(30, 5): _decimals(30, 5),
    pa.decimal256(60, 2): _decimals(60, 2),
    pa.date32(): _days,
    pa.date64(): _days,
    pa.time32("s"): st.times().map(lambda t: t.replace(microsecond=0)),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.time64("us"): st.times(),
    pa.timestamp("s"): _seconds,
    pa.timestamp("us"): _moments,
    pa.timestamp("ns"): _moments,
    pa.timestamp("us", "UTC"): _moments.map(lambda d: d.replace(tzinfo=dt.UTC)),
    pa.timestamp("s", "+02:00"): _seconds.map(lambda d: d.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))),
    pa.duration("s"): _spans.map(lambda d: dt.timedelta(d.days, d.seconds)),
    pa.duration("us"): _spans,
    pa.duration("ns"): _spans,
}
OTHERS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.time64("ns"): st.times(),
    pa.timestamp("us", "Europe/Berlin"): _moments.map(lambda d: d.replace(tzinfo=dt.UTC)),
    pa.dictionary(pa.int32(), pa.string()): _text,
    pa.list_(pa.float64()): st.lists(_real(64) | st.none(), max_size=3),
    pa.list_(pa.int8(), 2): st.lists(_whole(8, signed=True), min_size=2, max_size=2),
    pa.large_list(pa.string()): st.lists(_text, max_size=3),
    pa.map_(pa.string(), pa.int64()): st.dictionaries(_text, _whole(64, signed=True), max_size=3).map(
        lambda d: list(d.items())
    ),
    pa.struct({"a": pa.uint64(), "b": pa.list_(pa.date32())}): st.fixed_dictionaries(
        {"a": _whole(64, signed=False) | st.none(), "b": st.lists(_days, max_size=2)}
    ),
}
VALUES = SCALARS | OTHERS


@st.composite
def _columns(draw: st.DrawFn) -> tuple[pa.Schema, pa.DataType, list[list[tuple[Any, ...]]]]:
    """One to three columns of a key and one of a value, the value's type in the state, and rows of some epochs."""
    kinds = draw(st.lists(st.sampled_from(list(SCALARS)), min_size=1, max_size=3))
    value = draw(st.sampled_from([kind for kind in VALUES if not pa.types.is_dictionary(kind)]))  # no column can be one
    parts = st.tuples(*(SCALARS[kind] | st.none() for kind in kinds))
    pool = draw(st.lists(parts, min_size=1, max_size=12))
    row = st.tuples(st.sampled_from(pool), VALUES[value] | st.none()).map(lambda pair: (*pair[0], pair[1]))
    epochs = draw(st.lists(st.lists(row, max_size=30), min_size=1, max_size=4))
    names = [*(f"key{i}" for i in range(len(kinds))), "v"]
    sent = value.value_type if pa.types.is_dictionary(value) else value  # no column of a record is a dictionary
    return pa.schema(list(zip(names, [*kinds, sent], strict=True))), value, epochs


def _plain(value: Any) -> Any:
    """A value in which equal ones are equal in Python: NaN has no equal there."""
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


@given(_columns(), st.data())
@settings(max_examples=120, deadline=None)
def test_any_state_is_that_of_a_plain_dict_through_rescales_and_kills(made: Any, data: st.DataObject) -> None:
    """Attempts die before, between and after their instances wrote; the next one runs with another parallelism."""
    schema, value_type, epochs = made
    names = schema.names[:-1]
    key = names[0] if len(names) == 1 else tuple(names)
    function = keyed(tasks.last, key=key, state=pa.struct({"n": pa.int64(), "v": value_type}))
    expected: dict[Any, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        stage = tasks.stage(function, Path(folder), schema)
        declared = stage.declared()
        assert declared is not None
        for number, rows in enumerate(epochs):
            arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            at = data.draw(st.integers(0, len(rows)))
            batches = [batch.slice(0, at), batch.slice(at)]
            for k, stop in data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=2)):
                tasks.epoch(stage, number, k, batches, stop)
            plan = tasks.epoch(stage, number, data.draw(st.integers(1, 5)), batches)
            for *parts, value in zip(*(array.to_pylist() for array in arrays), strict=True):
                found = _plain(parts[0] if len(parts) == 1 else tuple(parts))
                expected[found] = {"n": expected[found]["n"] + 1 if found in expected else 1, "v": _plain(value)}
            table = store.operator_state(Path(folder), plan, 1)
            pairs = [(_plain(found), _plain(value)) for found, value in tasks.pairs(declared, table)]
            assert len(dict(pairs)) == len(pairs)  # no key has two owners
            assert dict(pairs) == expected
            assert table.column_names == [*(["key"] if len(names) == 1 else names), "value"]


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_equal_keys_are_in_one_group_wherever_they_stand_in_an_array(kind: pa.DataType) -> None:
    @given(st.lists(SCALARS[kind] | st.none(), min_size=1, max_size=20))
    @settings(max_examples=25, deadline=None)
    def check(values: list[Any]) -> None:
        check_key("n", kind, "count")
        array = pa.array(values, kind)
        whole = groups(array)
        assert ((whole >= 0) & (whole < GROUPS)).all()
        assert [int(groups(pa.array([value], kind))[0]) for value in values] == whole.tolist()
        assert groups(pa.concat_arrays([pa.array([None, None], kind), array])[2:]).tolist() == whole.tolist()
        assert groups(pa.chunked_array([array[:1], array[1:]])).tolist() == whole.tolist()
        for one, group in zip(map(_plain, array.to_pylist()), whole.tolist(), strict=True):
            assert all(
                g == group for other, g in zip(map(_plain, array.to_pylist()), whole, strict=True) if other == one
            )

    check()


def test_groups_are_the_same_in_another_process() -> None:
    """Also where Python hashes text otherwise."""
    code = (
        "import pyarrow as pa; from dspkit.spark.dataflow.exchange import groups\n"
        "print(groups([pa.array(['a', 'ü' * 200, None]), pa.array([1.5, -0.0, None])]).tolist())"
    )
    here = groups([pa.array(["a", "ü" * 200, None]), pa.array([1.5, 0.0, None])]).tolist()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(here)


@pytest.mark.parametrize(
    "keys",
    [
        range(-5000, 50000),
        [i << 40 for i in range(50000)],
        [i / 8 for i in range(50000)],
        [f"word {i}" for i in range(50000)],
        [f"{i:0150d}" for i in range(50000)],
        [decimal.Decimal(i) for i in range(50000)],
    ],
    ids=["numbers", "high bits", "eighths", "words", "long words", "decimals"],
)
def test_key_groups_share_the_keys_evenly(keys: Any) -> None:
    array = pa.array(list(keys))
    for columns in (array, [pa.array([7] * len(array)), array], [array, array]):
        counts = np.bincount(groups(columns), minlength=GROUPS)
        expected = len(array) / GROUPS
        chi2 = float(((counts - expected) ** 2 / expected).sum())
        assert chi2 < 4560  # the 99.9999 % point of chi squared with 4095 degrees of freedom is about 4540


def test_the_order_of_the_columns_matters() -> None:
    one, other = pa.array(range(1000)), pa.array(range(1000, 2000))
    assert np.mean(groups([one, other]) == groups([other, one])) < 0.02


@pytest.mark.parametrize(("before", "after", "moves"), [(1, 2, 1 / 2), (2, 3, 1 / 3), (3, 2, 1 / 3), (3, 4, 1 / 3)])
def test_a_rescale_moves_a_third_of_the_keys(before: int, after: int, moves: float) -> None:
    """A remainder of the group would move two thirds from 2 to 3, ranges in the order of the instances a half."""
    keys = pa.array(range(200_000))
    assert float(np.mean(owners(keys, before) != owners(keys, after))) == pytest.approx(moves, abs=0.01)


@given(st.integers(1, 200))
@settings(deadline=None)
def test_instances_own_contiguous_ranges_that_are_equal_and_cover_all_groups(k: int) -> None:
    ranges = sorted(owned(i, k) for i in range(k))
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])]
    assert ranges[-1][1] == GROUPS
    sizes = [high - low for low, high in ranges]
    assert max(sizes) - min(sizes) <= 1
    keys = pa.array(range(2000))
    for key_group, owner in zip(groups(keys).tolist(), owners(keys, k).tolist(), strict=True):
        low, high = owned(owner, k)
        assert low <= key_group < high


def test_all_nan_are_one_key_in_every_method_of_the_dict(tmp_path: Path) -> None:
    plan = state.begin_epoch(tmp_path, 0, (1,))
    known: Any = store.open_store(tmp_path, plan, 0, 0, _declared(pa.float64()))
    known[NAN] = 1
    other = float("nan")
    assert known is not other
    assert known[other] == known.get(float("nan")) == 1
    known[other] += 1
    known.update({float("-nan"): known[other] + 1})
    known |= {float("nan"): known[other] + 1}
    assert known.setdefault(float("nan"), 9) == 4
    assert len(known) == 1
    assert other in known
    assert known.pop(float("nan")) == 4
    assert known.pop(float("nan"), "none") == "none"
    known[float("nan"), 0.0] = 5
    assert known[float("nan"), -0.0] == 5
    del known[float("nan"), 0.0]
    assert not known
    with pytest.raises(KeyError):
        known[other]


REFUSED = [
    (pa.struct({"a": pa.int64()}), "as columns"),
    (pa.list_(pa.int64()), "string or a number"),
    (pa.map_(pa.string(), pa.int64()), "string or a number"),
    (pa.time64("ns"), "nanoseconds"),
    (pa.timestamp("us", "Europe/Berlin"), "'UTC'"),
    (pa.dictionary(pa.int32(), pa.string()), "values themselves"),
    (pa.null(), "string or a number"),
    (pa.string_view(), "string or a number"),
    (pa.month_day_nano_interval(), "string or a number"),
]


@pytest.mark.parametrize(("kind", "fix"), REFUSED, ids=lambda value: str(value)[:20])
def test_other_keys_are_refused_with_a_way_out(kind: pa.DataType, fix: str) -> None:
    with pytest.raises(SchemaError, match=r"key 'n' of type .* at 'count'.*integer.*" + fix):
        check_key("n", kind, "count")


CHAIN = Topology.chain("read", "count")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ({"key": "at"}, "key 'at' of type timestamp.*Berlin.* at 'count'"),
        ({"key": ("id", "where")}, "the key 'where' among them"),
        ({"key": ("id", "tags")}, "key 'tags' of type list"),
        ({"state": pa.dense_union([pa.field("a", pa.int64())])}, "state of type dense_union"),
        ({"state": pa.string_view()}, "state of type string_view"),
    ],
)
def test_keys_and_state_that_cannot_be_are_refused_before_spark_starts(function: Any, words: str) -> None:
    schema = pa.schema({"id": pa.uint64(), "at": pa.timestamp("us", "Europe/Berlin"), "tags": pa.list_(pa.string())})
    sources = {"read": TraceSource(workload.Constant(1), schema=schema)}
    made = {"count": keyed(same, **({"key": "id", "state": "int64"} | function))}
    with pytest.raises(SchemaError, match=words):
        plan.functions(CHAIN, made, sources)


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.list_(pa.binary_view()), pa.run_end_encoded(pa.int32(), pa.int8())]
)
def test_columns_that_arrow_cannot_part_by_key_are_refused_before_spark_starts(kind: pa.DataType) -> None:
    sources = {"read": TraceSource(workload.Constant(1), schema=pa.schema({"id": pa.int64(), "more": kind}))}
    with pytest.raises(SchemaError, match=r"column 'more' of .* for the keyed operator 'count'"):
        plan.functions(CHAIN, {"count": keyed(same, key="id", state="int64")}, sources)


@pytest.mark.parametrize("key", ["", (), ("a", "a"), 7, None, ("a", 7), ("a", "value")])
def test_a_key_that_is_none_is_refused(key: Any) -> None:
    with pytest.raises(SchemaError, match="key"):
        keyed(same, key=key, state="int64")


def test_senders_must_agree_on_each_column_of_a_key() -> None:
    topology = Topology(("a", "b", "count"), (("a", "count"), ("b", "count")))
    sources = {
        n: TraceSource(workload.Constant(1), schema=f"id int64, at {t}") for n, t in (("a", "int32"), ("b", "int64"))
    }
    made = {"count": keyed(same, key=("id", "at"), state="int64")}
    with pytest.raises(SchemaError, match=r"key 'at' of types .*int32.*int64.*one type"):
        plan.functions(topology, made, sources)


def test_a_key_of_another_instance_is_an_error_that_names_it() -> None:
    own = [key for key in range(100) if owners(pa.array([key]), 3)[0] == 1]
    declared = _declared(pa.int64())
    declared.check_owned(own, groups(pa.array(own)), *owned(1, 3))
    foreign = next(key for key in range(100) if key not in own)
    with pytest.raises(
        FunctionError, match=rf"known\[{foreign}\] at operator 'count', .*another instance, as are 1 of the"
    ):
        declared.check_owned([*own, foreign], groups(pa.array([*own, foreign])), *owned(1, 3))


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        (pa.int64(), [1, "all"], "known.'all'. at operator 'count'.*str"),
        (pa.int64(), [1.5], "known.1.5.*int64 would make it 1"),
        (pa.uint8(), [256], "known.256"),
        (pa.float32(), [0.1], "known.0.1.*would make it 0.1000"),
        (pa.timestamp("s"), [dt.datetime(2020, 1, 1, 0, 0, 0, 5)], "would make it datetime"),
        (pa.string(), [b"a"], "known.b'a'.*would make it 'a'"),
    ],
)
def test_a_key_that_its_column_cannot_hold_is_an_error(kind: pa.DataType, keys: list[Any], words: str) -> None:
    with pytest.raises(FunctionError, match=words):
        _declared(kind).key_array(keys)


def test_a_composite_key_is_a_tuple_of_all_its_columns() -> None:
    declared = KeyedState("count", ("user", "at"), (pa.string(), pa.float64()), pa.int64(), single=False)
    array = declared.key_array([("a", 1.5), (None, NAN)])
    assert keys_of(array)[1][0] is None
    assert np.isnan(keys_of(array)[1][1])
    assert declared.schema.names == ["user", "at", "value"]
    assert declared.key_array([]).type == array.type
    for key in ("a", ("a",), ["a", 1.0].__repr__(), ("a", 1.0, 2)):
        with pytest.raises(FunctionError, match="no tuple of 2"):
            declared.key_array([key])


def test_the_frames_of_an_edge_follow_all_columns_of_a_key() -> None:
    schema = pa.schema({"user": pa.string(), "at": pa.uint64()})
    rows = [(f"u{i % 7}", 2**63 + i % 5) for i in range(500)]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )
    given = tasks.frames(schema, ("user", "at"), [batch], 4)
    found: dict[Any, set[int]] = {}
    count: Counter[Any] = Counter()
    for i, frames in enumerate(given):
        for rows_of_spark in frames:
            for frame in rows_of_spark.column("_frame").to_pylist():
                got = pa.ipc.read_record_batch(frame, tasks.stamped(schema, "read")).to_pydict()
                for key in zip(got["user"], got["at"], strict=True):
                    found.setdefault(key, set()).add(i)
                    count[key] += 1
    assert count == Counter(rows)
    assert all(len(each) == 1 for each in found.values())
    assert len(set.union(*found.values())) > 1


def test_arrow_functions_have_no_keys() -> None:
    assert arrow(same).keys == ()
