"""The graph of ETPs says what ETP says, by shape and words and not by colour alone."""

import json

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings

from dspkit import DspkitError, apps, etp, plots, run
from dspkit.policies.static import Static
from dspkit.testing.strategies import topologies as any_topology

EVIL = '<script>alert("x")</script>'


def _traces(plot):
    return {t["name"]: t for t in plot.spec["data"] if "name" in t}


def test_it_shows_who_is_congested_and_the_ways_of_the_chosen():
    edges = [("a", "b"), ("a", "c"), ("b", "d")]
    measured = {"a": (9, 9), "b": (50, 20), "c": (10, 10), "d": (20, 15)}
    plot = plots.etp(edges, measured, operator="a")
    traces = _traces(plot)
    assert len(traces["congested"]["x"]) == 2
    assert traces["congested"]["text"] == ["✕", "✕"]
    assert traces["congested"]["marker"]["symbol"] != traces["keeps up"]["marker"]["symbol"]
    assert len(traces["effective sink"]["x"]) == len(traces["chosen"]["x"]) == 1
    lines = [t["line"]["dash"] for t in plot.spec["data"] if t["mode"] == "lines"]
    assert sorted(lines) == ["dot", "dot", "solid"]
    labels = [note["text"] for note in plot.spec["layout"]["annotations"] if note["text"]]
    assert labels == ["a<br><b>40%</b>", "b<br><b>0%</b>", "c<br><b>40%</b>", "d<br><b>60%</b>"]
    assert plot.summary == (
        "2 of 4 operators are congested, by ETP: d (60%), b (0%); a reaches c unhindered, blocked by b."
    )
    assert "not measured" in _traces(plots.etp(edges, {"a": (9, 9)}))


def test_names_from_data_are_escaped():
    plot = plots.etp([(EVIL, "b")], {EVIL: (1, 1), "b": (9, 1)}, operator=EVIL, title=EVIL)
    assert "<script" not in json.dumps(plot.spec["data"])
    assert "<script" not in json.dumps({k: v for k, v in plot.spec["layout"].items() if k != "meta"})


@given(any_topology())
@settings(max_examples=30)
def test_any_graph_can_be_drawn(topology):
    measured = {name: (i + 1.0, 1.0) for i, name in enumerate(topology.order)}
    plot = plots.etp(topology, measured, operator=topology.order[0])
    assert isinstance(plot.figure, go.Figure)
    json.dumps(plot.bundle, allow_nan=False)
    assert plot.summary.endswith(".")
    assert plot.figure.layout.meta["summary"] == plot.summary


def test_a_snapshot_of_a_run_can_be_drawn():
    app = apps.star()
    snapshot = run(Static(), app.simulator(), steps=60)[-1].snapshot
    assert "operators" in plots.etp(app.topology, snapshot).summary
    assert "congested" in plots.etp(app.topology, etp.unblocked(app.topology, snapshot)).summary


def test_runs_side_by_side():
    app = apps.star()
    runs = {name: run(Static(), app.simulator(scale=scale), steps=30) for name, scale in (("low", 0.5), (EVIL, 1.0))}
    plot = plots.throughputs(runs, asked_s=100.0)
    assert isinstance(plot.figure, go.Figure)
    assert "<script" not in json.dumps(plot.spec["data"])
    last = runs["low"][-1].snapshot
    assert plot.spec["data"][0]["y"][-1] == sum(last.operators[n].processing_rate for n in app.topology.sinks)
    assert len({t["line"]["dash"] for t in plot.spec["data"]}) == 2
    with pytest.raises(DspkitError, match="run the policies first"):
        plots.throughputs({})
