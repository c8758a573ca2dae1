"""Records for which a function raises go to another operator, each once, and all others as if those had not been."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import live
import tasks
from dspkit import Topology, apps, workload
from dspkit.core import TopologyError
from dspkit.spark import ParquetSink, SchemaError, SparkJob, SqlSink, TraceSource, arrow, frame
from dspkit.spark.dataflow import plan
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.dataflow.exchange import Records, stamped
from dspkit.spark.dataflow.task import OperatorFailed, Output
from dspkit.spark.dead_letters import DeadLetters, Guarded, as_declared, with_error
from dspkit.spark.functions import as_schema

TEXT = live.TEXT
WHOLE = as_schema("id int64, n int8")
LETTERS = with_error(TEXT, "parse")


def parse_frame(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"id": rows["id"], "n": [int(text) for text in rows["text"]]})


def _batches(texts: list[str], size: int) -> list[pa.RecordBatch]:
    rows = [{"id": i, "text": text} for i, text in enumerate(texts)]
    return [pa.RecordBatch.from_pylist(rows[at : at + size], schema=TEXT) for at in range(0, len(rows), size)]


def _good(text: str) -> bool:
    return text not in ("x", "300")


@given(st.lists(st.sampled_from(["1", "-7", "x", "300", "127"]), max_size=40), st.integers(1, 12), st.booleans())
def test_each_record_is_either_processed_or_a_dead_letter(texts: list[str], size: int, by_frame: bool) -> None:
    function = frame(parse_frame, WHOLE, on_error="bad") if by_frame else arrow(live.parse, WHOLE, on_error="bad")
    good, bad = [], []
    for out in function.run(iter(_batches(texts, size))):
        if isinstance(out, DeadLetters):
            assert out.batch.num_rows == len(out.errors)
            bad += zip(out.batch.to_pylist(), map(type, out.errors), strict=True)
        else:
            assert out.schema.equals(WHOLE)
            good += out.to_pylist()
    times = 1 if by_frame else 2
    assert good == [{"id": i, "n": int(t)} for i, t in enumerate(texts) if _good(t) for _ in range(times)]
    assert [row for row, _ in bad] == [{"id": i, "text": t} for i, t in enumerate(texts) if not _good(t)]
    assert all(issubclass(kind, ValueError) for _, kind in bad)  # Arrow's own is one as well


def _sent(function: Any, tmp_path: Path, batches: list[pa.RecordBatch], outputs: tuple[Output, ...]) -> dict[int, Any]:
    """The rows that a task sends, by receiver."""
    stage = tasks.stage(function, tmp_path, TEXT, outputs=outputs)
    made = plan_of(tmp_path)
    (given_,) = tasks.frames(TEXT, "", batches, 1)
    found: dict[int, Any] = {}
    for rows in tasks.run(stage, made, 0, given_):
        for row in rows.to_pylist():
            schema = stamped(LETTERS if row["_to"] == 3 else function.schema, "count")
            found.setdefault(row["_to"], []).extend(Records.unpack(row["_frame"], schema).batch.to_pylist())
    return found


def plan_of(folder: Path) -> Any:
    from dspkit.spark.dataflow import state

    return state.begin_epoch(folder, 0, (1, 1, 1, 1))


def test_a_task_sends_dead_letters_with_their_errors_to_their_receiver_alone(tmp_path: Path) -> None:
    outputs = (Output(2, "next", ""), Output(3, "bad", "", late=LETTERS))
    found = _sent(arrow(live.parse, WHOLE, on_error="bad"), tmp_path, _batches(["1", "x", "2", "300"], 4), outputs)
    assert found[2] == [{"id": i, "n": n} for i, n in ((0, 1), (2, 2)) for _ in range(2)]
    first, second = found[3]
    assert (first["id"], first["text"]) == (1, "x")
    assert first["error"] == "ValueError: invalid literal for int() with base 10: 'x'"
    assert 'int(row["text"])' in first["traceback"]
    assert second["text"] == "300"
    assert second["error"].startswith("ArrowInvalid: ")


def exits(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        raise SystemExit(3)
    yield from ()


def wrong_columns(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.rename_columns(["id", "else"])


def returns_early(batches: Iterator[Any]) -> Iterator[Any]:
    return iter(())


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def odd(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            if row["text"] == "x":
                raise Unspeakable
            if row["text"] == "300":
                raise ValueError("half \ud800 and zero \0")
        yield batch


def test_errors_whose_text_is_no_text_are_dead_letters_as_well(tmp_path: Path) -> None:
    outputs = (Output(2, "next", ""), Output(3, "bad", "", late=LETTERS))
    found = _sent(arrow(odd, TEXT, on_error="bad"), tmp_path, _batches(["1", "x", "2", "300"], 4), outputs)
    assert [row["text"] for row in found[2]] == ["1", "2"]
    first, second = found[3]
    assert first["error"] == "Unspeakable: <its text raised a RuntimeError>"
    assert second["error"] == r"ValueError: half \ud800 and zero \x00"
    assert second["traceback"].endswith(second["error"])


SINGLE = as_schema("id int64, x float32")


def as_frame(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"id": rows["id"], "x": [float(text) for text in rows["text"]]})


def as_batches(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield pa.RecordBatch.from_pandas(as_frame(batch.to_pandas()))


LARGE = 2**53 + 1  # which no float64 holds
INTEGERS = {
    pa.int64(): [LARGE, None],
    pa.uint64(): [2**64 - 1, None, 0],
    pa.int8(): [-128, None],
    pa.list_(pa.int64()): [[LARGE, None], None, []],
    pa.struct({"n": pa.int64()}): [{"n": LARGE}, {"n": None}, None],
    pa.list_(pa.struct({"n": pa.uint64()})): [[{"n": 2**64 - 1}, {"n": None}]],
    pa.map_(pa.string(), pa.int64()): [[("a", LARGE), ("b", None)]],
}


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_beside_nulls_stay_what_they_are_in_a_frame(kind: pa.DataType) -> None:
    batch = pa.record_batch({"x": pa.array(INTEGERS[kind], kind)})
    (sent,) = frame(lambda rows: rows, batch.schema).run(iter([batch]))
    assert sent.equals(batch)


@pytest.mark.parametrize("function", [arrow(as_batches, SINGLE), frame(as_frame, SINGLE)])
def test_a_number_that_would_become_infinite_is_an_error(function: Any) -> None:
    texts = ["1", "1e300", "inf", "nan", "-1e39", "1e38"]
    guarded = Guarded(function.run, SINGLE)
    good, bad = [], []
    for out in guarded(iter(_batches(texts, 6))):
        if isinstance(out, DeadLetters):
            bad += zip(out.batch.column("text").to_pylist(), map(str, out.errors), strict=True)
        else:
            good += map(str, out.column("x").to_pylist())
    assert good == ["1.0", "inf", "None", str(float(np.float32(1e38)))]  # pandas knows no difference to NaN
    assert [text for text, _ in bad] == ["1e300", "-1e39"]
    assert bad[0][1] == "1e+300 in column 'x', which float does not hold"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_, [1.0, 1e300]),
        (lambda each: pa.list_(each, 2), [1.0, 1e300]),
        (lambda each: pa.struct({"a": pa.list_(each)}), {"a": [1e300]}),
        (lambda each: pa.map_(pa.string(), each), [("a", 1e300)]),
    ],
)
def test_numbers_inside_of_lists_and_structs_do_not_become_infinite_either(kind: Any, value: Any) -> None:
    narrow = pa.schema({"x": kind(pa.float32())})
    batch = pa.RecordBatch.from_arrays([pa.array([value, None, value], kind(pa.float64()))], ["x"]).slice(1)
    with pytest.raises(ValueError, match=r"1e\+300 in column 'x', which float does not hold"):
        as_declared(batch, narrow)
    assert as_declared(batch.slice(0, 1), narrow).num_rows == 1


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [
        (pa.float64(), 0.5, pa.bool_()),
        (pa.float64(), float("nan"), pa.bool_()),
        (pa.int64(), 7, pa.bool_()),
        (pa.float64(), 1.005, pa.decimal128(10, 2)),
        (pa.timestamp("us"), datetime(2026, 11, 20, 0, 0, 1), pa.date32()),
        (pa.list_(pa.float64()), [1.0, 0.5], pa.list_(pa.bool_())),
        (pa.struct({"a": pa.int64(), "b": pa.int64()}), {"a": 1, "b": 2}, pa.struct({"a": pa.int64()})),
        (pa.struct({"a": pa.int64()}), {"a": 1}, pa.struct({"a": pa.int64(), "b": pa.int64()})),
    ],
    ids=str,
)
def test_a_value_that_the_declared_type_would_cut_is_an_error(
    kind: pa.DataType, value: Any, declared: pa.DataType
) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value], kind)], ["x"])
    with pytest.raises(ValueError, match=r"in column 'x', which (was declared|.* does not hold)"):
        as_declared(batch, pa.schema({"x": declared}))


def test_a_value_that_the_declared_type_holds_is_cast() -> None:
    rows = {
        "yes": [1.0, None],
        "price": [1.25, None],
        "day": [datetime(2026, 11, 20), None],
        "s": [{"a": 1, "b": 2}, None],
    }
    declared = {"yes": pa.bool_(), "price": pa.decimal128(10, 2), "day": pa.date32()}
    swapped = pa.struct({"b": pa.int64(), "a": pa.int64()})
    made = as_declared(pa.record_batch(rows), pa.schema({**declared, "s": swapped})).to_pylist()
    assert made[0] == {"yes": True, "price": Decimal("1.25"), "day": date(2026, 11, 20), "s": {"a": 1, "b": 2}}
    assert made[1] == dict.fromkeys(rows)


@pytest.mark.parametrize("function", [exits, wrong_columns, returns_early])
def test_what_is_no_error_of_a_record_still_ends_the_job(function: Any, tmp_path: Path) -> None:
    outputs = (Output(2, "next", ""), Output(3, "bad", "", late=LETTERS))
    with pytest.raises(OperatorFailed):
        _sent(arrow(function, WHOLE, on_error="bad"), tmp_path, _batches(["1", "2"], 2), outputs)


def refills(batches: Iterator[Any]) -> Iterator[Any]:
    numbers = np.zeros(3)
    for batch in batches:
        for text in batch.column("text").to_pylist():
            numbers[:] = int(text)
            yield pa.RecordBatch.from_arrays([pa.array(numbers)], names=["x"])  # Arrow does not copy it


def test_what_a_function_sends_stays_as_it_was_when_it_fills_its_array_again() -> None:
    function = arrow(refills, "x float64", on_error="bad")
    found = [out.column("x").to_pylist() for out in function.run(iter(_batches(["1", "2", "3"], 3)))]
    assert found == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    seen = []

    def notes(batches: Iterator[Any]) -> Iterator[Any]:
        seen.extend(x for batch in batches for x in batch.column("x").to_pylist())
        yield from ()

    topology, functions = Topology.chain("read", "make", "note"), {"make": arrow(refills, "x float64")}
    whole = apps.Live(functions | {"note": arrow(notes)}, live.texts, "id int64, text string", dict, {}, (10, 20))
    apps.rehearse(apps.App("mine", topology, live=whole), [live.texts(np.arange(1, 3), None)], instances=1)
    assert seen == [1.0] * 3 + [2.0] * 3


GRAPH = Topology(("read", "parse", "next", "bad"), (("read", "parse"), ("parse", "next"), ("parse", "bad")))


def _functions(topology: Topology = GRAPH, schema: Any = TEXT, sinks: Any = None, **made: Any) -> Any:
    source = TraceSource(workload.Constant(10), live.texts, schema)
    given_ = {
        "parse": arrow(live.parse, WHOLE, on_error="bad"),
        "next": arrow(live.swallow),
        "bad": arrow(live.swallow),
    }
    whole = {name: function for name, function in (given_ | made).items() if name in topology.order and function}
    return plan.functions(topology, whole, {"read": source}, sinks)


def test_graphs_that_cannot_send_dead_letters_are_refused() -> None:
    assert _functions()["parse"].on_error == "bad"
    with pytest.raises(TopologyError, match=r"dead letters of 'parse' for 'elsewhere'.*one of its receivers"):
        _functions(parse=arrow(live.parse, WHOLE, on_error="elsewhere"))
    with pytest.raises(TopologyError, match="dead letters of 'read'"):
        _functions(read=arrow(live.parse, WHOLE, on_error="parse"))
    with pytest.raises(SchemaError, match="columns error in the input of 'parse'"):
        _functions(schema=as_schema("id int64, error string"))
    assert _functions(parse=arrow(live.swallow, on_error="bad"), topology=Topology.chain("read", "parse", "bad"))


def test_a_receiver_of_dead_letters_may_be_a_sink_alone() -> None:
    whole = _functions(sinks={"bad": ParquetSink("bad")}, bad=None)
    assert whole["bad"].schema == LETTERS
    (stage,) = (s for s in plan.stages(GRAPH, whole, {"read": SOURCE}, Path(), tasks._meter) if s.name == "bad")
    assert [columns for _, columns in stage.inputs.values()] == [LETTERS]


def test_a_rehearsal_raises_what_would_be_a_dead_letter() -> None:
    functions = {
        "parse": arrow(live.parse, WHOLE, on_error="bad"),
        "next": arrow(live.swallow),
        "bad": arrow(live.swallow),
    }
    app = apps.App("mine", GRAPH, live=apps.Live(functions, live.texts, "id int64, text string", dict, {}, (10, 20)))
    assert apps.rehearse(app, [live.texts(np.arange(1, 6), None)]).records == {
        "read": 5,
        "parse": 5,
        "next": 10,
        "bad": 0,
    }
    with pytest.raises(ValueError, match="invalid literal"):
        apps.rehearse(app, [live.texts(np.arange(10), None)])


SOURCE = TraceSource(workload.Constant(1000), live.texts, TEXT)


@pytest.mark.spark
@pytest.mark.slow
def test_a_live_job_continues_without_its_bad_records(tmp_path: Path) -> None:
    functions = {"parse": arrow(live.parse, WHOLE, on_error="bad")}
    sinks = {
        "next": SqlSink(f"sqlite:///{tmp_path}/good.db", "good"),
        "bad": SqlSink(f"sqlite:///{tmp_path}/bad.db", "bad"),
    }
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "checkpoint": tmp_path / "c", "epoch_s": 1.0}
    with SparkJob(GRAPH, functions, SOURCE, sinks=sinks, window_s=1.0, **settings) as job:
        for k in (2, 3, 1):
            job.deploy(job.deployment.scaled({"parse": k, "next": k, "bad": 4 - k}))
            live.works(job)
        live.until(lambda: len(job.table("bad", 100)) == 100)
    upto = Checkpoint(tmp_path / "c").offsets()[0]
    ids = [p + s * len(upto) for p, read in enumerate(upto) for s in range(read)]
    with sqlite3.connect(tmp_path / "good.db") as good, sqlite3.connect(tmp_path / "bad.db") as bad:
        found = Counter(good.execute("SELECT id, n FROM good").fetchall())
        letters = bad.execute("SELECT id, text, error FROM bad ORDER BY id").fetchall()
    assert found == Counter({(n, n % 100): 2 for n in ids if n % 7})
    assert letters == [
        (n, f"x{n}", f"ValueError: invalid literal for int() with base 10: 'x{n}'") for n in sorted(ids) if n % 7 == 0
    ]
    assert len(letters) >= 100
