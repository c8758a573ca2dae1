"""Pictures hold what the run holds, as data that any plotly draws, and say it in a sentence."""

import json
from dataclasses import replace
from itertools import pairwise

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings

import dspkit
from dspkit import DspkitError, History, Operator, Simulator, Topology, plots, run, workload
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Plant, Service
from dspkit.testing.strategies import topologies

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def history():
    return run(DS2(), dspkit.apps.word_count().simulator(), steps=60, settle=1)


def _traces(plot):
    return {t["name"]: t for t in plot.spec["data"]}


def _all(history):
    app = dspkit.apps.word_count()
    return [
        plots.timeline(history, target_latency_s=0.2),
        plots.timeline(history[:1]),
        plots.topology(history.topology, history[-1].snapshot),
        plots.topology(app.topology),
        plots.workload(app.load, 900, title="A title"),
    ]


def test_every_picture_is_valid_plotly_strict_json_and_has_its_sentence(history):
    for plot in _all(history):
        assert isinstance(plot.figure, go.Figure)  # which checks each field
        json.dumps(plot.bundle, allow_nan=False)
        assert plot.summary.endswith(".")
        assert plot.figure.layout.meta["summary"] == plot.summary


def test_the_timeline_shows_what_was_measured_and_decided(history):
    plot = plots.timeline(history, target_latency_s=0.2)
    traces, app = _traces(plot), history.application
    assert traces["throughput"]["y"] == app.throughput.tolist()
    assert traces["input rate"]["y"] == app.source_rate.tolist()
    assert set(traces["latency target"]["y"]) == {0.2}
    assert max(traces["decision"]["y"]) < 1  # inside the figure, where a mouse finds them
    gaps = [y is None for y in traces["mean latency"]["y"]]
    assert gaps == app.latency_mean.isna().tolist()
    assert any(gaps)
    instances = [t for t in plot.spec["data"] if t.get("yaxis") == "y3" and t["name"] == "count"]
    counts = history.operators[history.operators.operator == "count"].parallelism
    assert instances[0]["y"] == counts.tolist()
    acted = history.decisions[history.decisions.rescaled]
    assert traces["decision"]["x"] == acted.t.tolist()
    assert all(change in text for change, text in zip(acted.changes, traces["decision"]["text"], strict=True))
    assert len(plot.spec["layout"]["shapes"]) == len(acted) > 0


def test_lines_that_share_a_panel_differ_in_dash_too(history):
    lines = [t for t in plots.timeline(history).spec["data"] if t.get("yaxis") == "y3" and t["mode"] == "lines"]
    assert len({t["line"]["dash"] for t in lines}) == len(lines)
    assert len({t["line"]["color"] for t in lines}) == len(lines)


def test_the_sentence_is_arithmetic_of_the_run(history):
    said = plots.tell(history, 0.2)
    app = history.application
    assert "In 600 s" in said
    assert f"{plots.si(app.throughput.mean())} of {plots.si(app.source_rate.mean())} records/s" in said
    assert f"; {int(app.rescaled.sum())} rescalings led" in said
    assert "; 0 rescalings led" in plots.tell(history[-1:])
    assert "; 1 rescaling led" in plots.tell(history[:1])
    late = (app.latency_mean > 0.2).sum() / app.latency_mean.notna().sum()
    assert f"{late:.0%} of the windows that have a latency" in said


def test_what_was_done_by_hand_has_its_marks(history):
    turned = History(history.topology, history, history.about, [(50.0, "count 1 → 5, by hand <b>")])
    plot = plots.timeline(turned)
    marks = _traces(plot)["by hand"]
    assert (marks["x"], marks["text"]) == ([50.0], ["count 1 → 5, by hand &lt;b&gt;"])
    assert marks["marker"]["symbol"] != _traces(plot)["decision"]["marker"]["symbol"]
    assert "and 1 change by hand" in plot.summary


def test_long_runs_are_thinned_but_keep_their_ends():
    long = run(Static(), dspkit.apps.word_count().simulator(window_s=1, tick_s=1), steps=2000)
    trace = _traces(plots.timeline(long))["throughput"]
    assert len(trace["x"]) <= plots.MOST_POINTS + 1
    assert (trace["x"][0], trace["x"][-1]) == (1.0, 2000.0)


def test_the_graph_shows_rates_instances_and_the_busiest(history):
    snapshot = history[-1].snapshot
    plot = plots.topology(history.topology, snapshot)
    labels = [label for t in plot.spec["data"] for label in t["text"]]
    for name, metrics in snapshot.operators.items():
        assert f"{name} × {metrics.parallelism}<br>{metrics.utilisation:.0%} busy" in labels
    texts = [note["text"] for note in plot.spec["layout"]["annotations"]]
    assert f"{plots.si(snapshot.edge_rates['source', 'flat_map'])}/s" in texts
    busiest = max(snapshot.operators, key=lambda n: snapshot.operators[n].utilisation)
    assert f"is {busiest} at" in plot.summary
    assert {t["name"]: t["marker"]["symbol"] for t in plot.spec["data"] if t.get("name") in ("source", "sink")} == {
        "source": "square", "sink": "diamond"
    }  # fmt: skip


@given(topologies())
@settings(max_examples=50)
def test_operators_run_from_left_to_right_and_nothing_coincides(topology):
    """Not even a long edge with an operator that it passes."""
    place, bends = plots.positions(topology)
    points = [*place.values(), *(point for points in bends.values() for point in points)]
    assert len(set(points)) == len(points)
    for u, v in topology.edges:
        way = [place[u], *bends[u, v], place[v]]
        assert all(b[0] - a[0] == 1 for a, b in pairwise(way))
    assert plots.topology(topology).figure


def test_reasons_are_a_line_each_whatever_signs_they_hold(history):
    i = next(i for i, s in enumerate(history) if s.rescaled)
    decision = replace(history[i].decision, why={"rule": "busy < 0.3 & idle", "n": 2})
    plot = plots.timeline(History(history.topology, [replace(history[i], decision=decision)]))
    assert _traces(plot)["decision"]["text"][0].endswith("<br>rule: busy &lt; 0.3 &amp; idle<br>n: 2")


def test_names_from_data_are_escaped():
    topology = Topology((Operator(EVIL), Operator("b")), ((EVIL, "b"),))
    plant = Plant({EVIL: Service(1e-3), "b": Service(5e-3)})
    history = run(DS2(), Simulator(topology, plant, workload.Constant(300)), steps=4)
    assert any(s.rescaled for s in history)
    for plot in (plots.timeline(history, title=EVIL), plots.topology(topology, history[-1].snapshot, title=EVIL)):
        assert "<script" not in json.dumps(plot.spec["data"])
        assert "<script" not in json.dumps({k: v for k, v in plot.spec["layout"].items() if k != "meta"})
        assert "&lt;script" in json.dumps(plot.spec)


def test_long_names_and_quotes_leave_room_for_the_chart():
    long, quoted = "L" * 120, 'the "first"'
    topology = Topology((Operator(quoted), Operator(long)), ((quoted, long),))
    plant = Plant({quoted: Service(1e-3), long: Service(1e-3)})
    history = run(DS2(), Simulator(topology, plant, workload.Constant(300)), steps=2)
    names = {t["name"] for t in plots.timeline(history).spec["data"]}
    assert quoted in names
    assert max(map(len, names)) <= 40
    nodes = [t for t in plots.topology(topology, history[-1].snapshot).spec["data"] if t["mode"] == "markers+text"]
    texts = [line for t in nodes for text in t["text"] for line in text.split("<br>")]
    assert 'the "first" × 1' in texts
    assert max(map(len, texts)) <= 40
    assert any(long in text for t in nodes for text in t["hovertext"])
    assert not any(t["cliponaxis"] for t in nodes)  # the upper lines of a broken name would be cut off


def test_a_summary_is_text_and_escaped_once():
    history = run(DS2(), dspkit.apps.word_count().simulator(), steps=3)
    assert "a < b & c:" in plots.nodes({"a < b & c": history}).summary


def test_silent_meters_leave_gaps_not_errors(history):
    mute = replace(history[-1].snapshot, operators={}, latency=None, event_latency=None)
    silent = History(history.topology, [replace(history[-1], snapshot=mute, decision=None)])
    assert plots.timeline(silent, target_latency_s=1).summary
    assert plots.topology(history.topology, mute).summary


def test_an_empty_history_is_refused():
    with pytest.raises(DspkitError, match="run a policy first"):
        plots.timeline(History(dspkit.apps.star().topology))


def test_a_notebook_gets_the_figure_and_the_sentence(history, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append((data, options)))
    plots.timeline(history)._ipython_display_()
    assert plots.PLOTLY_MIME in shown[0][0]
    assert shown[1][1]["metadata"] == {"dspkit": "summary"}


def test_long_names_in_a_chain_do_not_run_into_each_other():
    names = [f"a_rather_long_name_of_operator_{i}" for i in range(8)]
    plot = plots.topology(Topology.chain(*names))
    lines = [line for t in plot.spec["data"] for label in t.get("text", ()) for line in label.split("<br>")]
    assert max(map(len, lines)) <= 92 / len(names)  # letters that a column has room for
    unbroken = plots.topology(Topology.chain(*(f"averylongnameofoperator{i}" for i in range(8))))
    sides = {s for t in unbroken.spec["data"] for s in t.get("textposition", ())}
    assert sides == {"bottom center", "top center"}
