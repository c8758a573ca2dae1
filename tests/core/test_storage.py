"""What a file of a run holds, older and newer files, and what cannot be stored or read."""

import json
import os
from dataclasses import MISSING, fields, make_dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspkit import History, Operator, Topology
from dspkit.core import Decision, Deployment, FileError, Latency, OperatorMetrics, Snapshot, Step
from dspkit.core import history as storage

CHAIN = Topology((Operator("a", np.int64(4), stateful=np.bool_(True)), "b"), (("a", "b"),))


def _metrics(**changed):
    return OperatorMetrics(**{**dict.fromkeys(_REQUIRED, 1.0), "parallelism": 1, **changed})


def _history(about=None, why=None, notes=(), **changed):
    here = Deployment({"a": 1, "b": 1})
    snapshot = Snapshot(
        t=10.0, window_s=10.0, deployment=here, operators={"a": _metrics(), "b": _metrics(cpu=0.5)},
        source_rates={"a": 1.0}, throughput=1.0, latency=Latency(1.0, 1.0, 2.0, 3.0), event_latency=None, lag=0.0,
        edge_rates={("a", "b"): 1.0}, nodes={"n": 0.5},
    )  # fmt: skip
    return History(CHAIN, [Step(0, replace(snapshot, **changed), Decision(here, why or {}))], about, notes)


_REQUIRED = [f.name for f in fields(OperatorMetrics) if f.default is MISSING]
_OPTIONAL = {
    cls: [f.name for f in fields(cls) if (f.default, f.default_factory) != (MISSING, MISSING)]
    for cls in (OperatorMetrics, Snapshot, Step)
}


def _rewrite(path, change, **head):
    """The file again, with rows (and their types, if new) and head changed."""
    table = pq.read_table(path)
    rows, meta = table.to_pylist(), json.loads(table.schema.metadata[b"dspkit"]) | head
    schema = change(rows, table.schema) or table.schema
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table.replace_schema_metadata({"dspkit": json.dumps(meta)}), path)


def _without(schema, column, inner=None):
    """The schema without a column, or without one of those inside the structs of a list."""
    if inner is None:
        return schema.remove(schema.get_field_index(column))
    struct = schema.field(column).type.value_type
    kept = pa.struct([struct.field(i) for i in range(struct.num_fields) if struct.field(i).name != inner])
    return schema.set(schema.get_field_index(column), pa.field(column, pa.list_(kept)))


def _with(schema, column, inner):
    struct = schema.field(column).type.value_type
    more = pa.struct([*(struct.field(i) for i in range(struct.num_fields)), pa.field(inner, pa.float64())])
    return schema.set(schema.get_field_index(column), pa.field(column, pa.list_(more)))


def test_every_field_has_a_column():
    columns = list(storage._columns(storage._schema()))
    assert len(columns) == len(set(columns))
    columns = set(columns)
    assert {f.name for f in fields(Step)} - columns == {"snapshot", "state"}
    assert {f.name for f in fields(Snapshot)} <= columns
    assert {f"operators.{f.name}" for f in fields(OperatorMetrics)} <= columns
    assert {f"latency.{f.name}" for f in fields(Latency)} <= columns
    assert {f"deployment.{f.name}" for f in fields(Deployment)} <= columns


def test_plain_fields_are_stored_by_their_type():
    made = make_dataclass("Made", [("x", float), ("n", int | None), ("word", str), ("on", bool), ("no", list[float])])
    assert storage._scalars(made) == {"x": pa.float64(), "n": pa.int64(), "word": pa.string(), "on": pa.bool_()}


def test_numbers_that_are_none_come_back_equal(tmp_path):
    odd = {"x": float("nan"), "y": [float("inf"), -float("inf")], 1: "one", "1": "two"}
    history = _history(about=odd, why=odd, notes=[(3.5, "pressed a button")])
    loaded = History.load(history.save(tmp_path / "run.parquet"))
    assert loaded == history
    assert loaded.notes == [(3.5, "pressed a button")]
    assert loaded.about["x"] is None
    assert loaded.topology["a"] == Operator("a", 4, stateful=True)


@pytest.mark.parametrize("name", _OPTIONAL[OperatorMetrics])
def test_a_metric_that_an_older_file_lacks_takes_its_default(tmp_path, name):
    path = _history().save(tmp_path / "run.parquet")
    _rewrite(path, lambda rows, schema: _without(schema, "operators", name))
    default = next(f.default for f in fields(OperatorMetrics) if f.name == name)
    assert {getattr(m, name) for m in History.load(path)[0].snapshot.operators.values()} == {default}


@pytest.mark.parametrize(("cls", "name"), [(c, n) for c in (Snapshot, Step) for n in _OPTIONAL[c] if n != "state"])
def test_a_column_that_an_older_file_lacks_takes_its_default(tmp_path, cls, name):
    path = _history().save(tmp_path / "run.parquet")
    _rewrite(path, lambda rows, schema: _without(schema, name))
    field = next(f for f in fields(cls) if f.name == name)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    step = History.load(path)[0]
    assert getattr(step if cls is Step else step.snapshot, name) == default


@pytest.mark.parametrize(("law", "execution"), [("pipeline", "pipelined"), ("sequential", "micro-batch")])
def test_an_older_file_has_a_law_instead_of_an_execution(tmp_path, law, execution):
    history = _history(execution=execution)
    path = history.save(tmp_path / "run.parquet")

    def older(rows, schema):
        for row in rows:
            row["law"] = law
            del row["execution"]
        at = schema.get_field_index("execution")
        return schema.set(at, pa.field("law", pa.string()))

    _rewrite(path, older)
    assert "execution" not in pq.read_schema(path).names
    assert History.load(path) == history


def test_an_older_file_with_an_unknown_law_is_refused(tmp_path):
    path = _history().save(tmp_path / "run.parquet")

    def older(rows, schema):
        for row in rows:
            row["law"] = "parallel"
            del row["execution"]
        return schema.set(schema.get_field_index("execution"), pa.field("law", pa.string()))

    _rewrite(path, older)
    with pytest.raises(FileError, match="parallel"):
        History.load(path)


def test_notes_and_bounds_that_an_older_file_lacks_take_their_defaults(tmp_path):
    path = _history().save(tmp_path / "run.parquet")
    table = pq.read_table(path)
    head = json.loads(table.schema.metadata[b"dspkit"])
    del head["notes"], head["topology"]["operators"][0]["stateful"]
    pq.write_table(table.replace_schema_metadata({"dspkit": json.dumps(head)}), path)
    assert History.load(path).notes == []
    assert not History.load(path).topology["a"].stateful


@pytest.mark.parametrize("column", ["lag", "deployment", "operators"])
def test_a_file_without_a_column_that_must_be_is_refused(tmp_path, column):
    path = _history().save(tmp_path / "run.parquet")
    _rewrite(path, lambda rows, schema: _without(schema, column))
    with pytest.raises(FileError, match="not a dspkit run"):
        History.load(path)


def test_what_a_newer_dspkit_wrote_is_said_to_be_newer(tmp_path):
    path = _history().save(tmp_path / "run.parquet")
    _rewrite(path, lambda rows, schema: None, format=2)
    with pytest.raises(FileError, match="of format 2; expected format 1; update dspkit"):
        History.load(path)
    _rewrite(
        path, lambda rows, schema: _with(schema, "operators", "colour").append(pa.field("mood", pa.string())), format=1
    )
    with pytest.raises(FileError, match=r"with operators\.colour, mood; expected .*; update dspkit"):
        History.load(path)
    topology = {"operators": [{"name": "a", "taste": 1}], "edges": []}
    _rewrite(path, lambda rows, schema: storage._schema(), topology=topology)
    with pytest.raises(FileError, match=r"with topology\.operators\.taste"):
        History.load(path)


@pytest.mark.parametrize(
    "history",
    [
        _history(nodes={"\ud800": 0.5}),
        _history(nodes={7: 0.5}),
        History(CHAIN, [Step(2**64, _history()[0].snapshot, None)]),
    ],
    ids=["half a character", "a number as a name", "a number too large"],
)
def test_what_cannot_be_stored_is_refused_with_the_reason(history, tmp_path):
    with pytest.raises(FileError, match="a run that cannot be stored: "):
        history.save(tmp_path / "run.parquet")
    assert os.listdir(tmp_path) == []


def test_text_of_any_kind_in_words_for_readers_is_stored(tmp_path):
    history = _history(about={"\ud800": "\udfff"}, why={"x": "\ud800"}, notes=[(1, "\ud800")])
    assert History.load(history.save(tmp_path / "run.parquet")) == history


def test_a_folder_is_neither_written_over_nor_read(tmp_path):
    with pytest.raises(FileError, match="which is a folder"):
        _history().save(tmp_path, overwrite=True)
    with pytest.raises(FileError, match="which is a folder; expected a saved run"):
        History.load(tmp_path)


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    """By hand, as tests may run as root, who may read everything."""

    def deny(*_):
        raise PermissionError(13, "Permission denied")

    path = _history().save(tmp_path / "run.parquet")
    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(FileError, match="Permission denied"):
        History.load(path)


def test_half_a_file_is_refused(tmp_path):
    path = _history().save(tmp_path / "run.parquet")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FileError, match="not a dspkit run"):
        History.load(path)


def test_a_folder_named_as_a_partition_adds_no_column(tmp_path):
    history = _history()
    assert History.load(history.save(tmp_path / "policy=ds2" / "run.parquet")) == history
