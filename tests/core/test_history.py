"""Frames, files and words of a run."""

import math
import os
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from dspkit import History, apps, run
from dspkit.core import FileError, InstanceMetrics, changes, files, why_text
from dspkit.policies.ds2 import DS2
from dspkit.testing.strategies import histories


@pytest.fixture(scope="module")
def history():
    return run(DS2(), apps.star().simulator(seed=1), steps=40, settle=1)


def test_frames_are_tidy(history):
    topology = history.topology
    assert len(history.application) == 40
    assert len(history.operators) == 40 * len(topology.operators)
    assert len(history.edges) == 40 * len(topology.edges)
    assert set(history.nodes.node) == {"node-1", "node-2", "node-3", "node-4"}
    assert len(history.decisions) == history.application.decided.sum() < 40  # windows that settle have none
    assert history.decisions.rescaled.sum() == history.application.rescaled.sum() > 0


def test_frames_agree_with_each_other(history):
    sums = history.operators.groupby("t").backlog.sum()
    pd.testing.assert_series_equal(sums, history.application.set_index("t").backlog, check_names=False)
    from_bolt = history.edges[history.edges.start == "bolt"].groupby("t").rate.sum()
    bolt = history.operators[history.operators.operator == "bolt"].set_index("t")
    pd.testing.assert_series_equal(from_bolt, bolt.output_rate, check_names=False)


def test_an_empty_history_still_has_frames_and_a_repr():
    empty = History(apps.star().topology)
    for name in ("application", "operators", "edges", "nodes", "decisions"):
        assert len(getattr(empty, name)) == 0
        assert "t" in getattr(empty, name)
    assert "left" in repr(empty)
    assert empty.application.rescaled.dtype == empty.application.decided.dtype == bool
    assert list(empty.decisions[empty.decisions.rescaled]) == list(empty.decisions)  # a mask, even of nothing


@given(history=histories())
@settings(max_examples=60)
def test_what_is_saved_is_what_is_loaded(history, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run.parquet"
    history.save(path)
    assert History.load(path) == history


def test_a_simulated_run_is_saved_without_loss_below_runs(history):
    path = history.save()
    assert path.parent == files.home("runs")
    loaded = History.load(path)
    assert loaded == history
    pd.testing.assert_frame_equal(loaded.operators, history.operators)
    assert history.save() != path  # two saves never fight over a name


def test_a_file_in_the_way_is_kept(history, tmp_path):
    path = tmp_path / "run.parquet"
    path.write_text("mine")
    with pytest.raises(FileError, match="overwrite=True"):
        history.save(path)
    assert path.read_text() == "mine"
    history.save(path, overwrite=True)
    assert History.load(path) == history


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    def fail(partial):
        partial.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(tmp_path / "run.parquet", fail)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileError, match="no file"):
        History.load(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(FileError, match="not a dspkit run"):
        History.load(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(FileError, match="not a dspkit run"):
        History.load(tmp_path / "other.parquet")


@pytest.mark.parametrize("damage", [{"t": -1.0}, {"t": math.nan}, {"deployment": None}, {"operators": None}])
def test_a_damaged_row_is_refused(damage, history, tmp_path):
    path = history.save(tmp_path / "run.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[3] |= damage
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    with pytest.raises(FileError, match="not a dspkit run"):
        History.load(path)


def test_slices_are_histories(history):
    assert isinstance(history[:10], History)
    assert history[:].about == history.about
    assert History(history.topology, notes=[(1, "x")])[:].notes == [(1.0, "x")]
    assert history[:10].application.equals(history.application.iloc[:10])
    assert history[-1] is history.steps[-1]


def test_the_repr_tells_the_run_and_escapes_what_it_shows(history):
    text = repr(history)
    for word in ("DS2(", "Simulator(", "40 of 10 s", "records/s", "rescalings", "left 1"):
        assert word in text
    evil = History(history.topology, history, {"policy": "<script>alert(1)</script>"})
    assert "<script>" not in evil._repr_html_()
    assert "&lt;script&gt;" in evil._repr_html_()


def test_changes_and_why_in_words(history):
    before = history[0].snapshot.deployment
    assert changes(before, before) == ""
    assert changes(before, before.scaled({"bolt": 4})) == "bolt 1 → 4"
    assert why_text({"true_rate": {"a": 1234.5678}, "n": [1, 2]}) == "true rate: a 1,235; n: 1, 2"
    assert why_text({"gain": -12345.6}) == "gain: -12,346"
    assert why_text({"rate": 9999.99, "x": None}) == "rate: 10,000; x: unknown"


def test_instances_have_a_frame_of_their_own(history):
    assert history.instances.empty
    assert list(history.instances)[:3] == ["t", "operator", "instance"]
    two = (InstanceMetrics(3, utilisation=0.5, backlog=2, cpu=0.1), InstanceMetrics(1, utilisation=0.1))
    step = history[0]
    metrics = replace(step.snapshot.operators["bolt"], parallelism=2, instances=two)
    measured = replace(step, snapshot=replace(step.snapshot, operators={"bolt": metrics}))
    frame = History(history.topology, [measured]).instances
    assert frame[["operator", "instance", "processing_rate"]].values.tolist() == [["bolt", 0, 3], ["bolt", 1, 1]]
    assert History(history.topology, [measured]).operators["skew"].tolist() == [pytest.approx(0.5 / 0.3)]
