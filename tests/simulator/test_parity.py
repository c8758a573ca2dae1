"""Two runs side by side: matched by time, averaged where windows differ, and their distance told."""

import json
import math
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import Deployment, History, Operator, Topology, apps, plots, run
from dspkit.core import ArgumentError, Latency, MetricError, OperatorMetrics, Snapshot, Step
from dspkit.policies.ds2 import DS2

EVIL = '<script>alert("x")</script>'


def _history(values, window_s=10.0, start=0.0, names=("a", "b")):
    """A run in which throughput and mean latency are given by window; operators process as much."""
    topology = Topology.chain(*names)
    steps = []
    for i, (throughput, latency) in enumerate(values):
        metrics = {n: OperatorMetrics(throughput, throughput, throughput, None, 0.5, 0, 1) for n in names}
        times = None if latency is None else Latency(latency, latency, latency, latency)
        s = Snapshot(
            start + (i + 1) * window_s, window_s, Deployment(dict.fromkeys(names, 1)), metrics, {names[0]: throughput},
            throughput, times, times, 0, {tuple(names): throughput},
        )  # fmt: skip
        steps.append(Step(i, s, None))
    return History(topology, steps)


def _points(plot, number=""):
    """The dots of a panel, by name."""
    dots = [t for t in plot.spec["data"] if t["mode"] == "markers" and t["xaxis"] == f"x{number}"]
    return {t["name"]: (t["x"], t["y"]) for t in dots}


def test_each_window_is_a_dot_and_the_sentence_is_arithmetic():
    a = _history([(100, 1.0), (200, 2.0), (400, 4.0)])
    b = _history([(110, 1.0), (240, 2.5), (400, 6.0)])
    plot = plots.parity(a, b)
    assert _points(plot) == {"throughput": ([100, 200, 400], [110, 240, 400])}
    assert _points(plot, 2) == {"mean latency": ([1, 2, 4], [1, 2.5, 6])}
    assert _points(plot, 3) == dict.fromkeys("ab", ([100, 200, 400], [110, 240, 400]))
    assert plot.summary == (
        "In 3 windows of 10 s, simulated is off measured by 10 % in throughput (median; 19 % at the 95th percentile)"
        " and 25 % in mean latency (48 %)."  # of 0, 10, 20 and of 0, 25, 50
    )
    assert isinstance(plot.figure, go.Figure)
    json.dumps(plot.bundle, allow_nan=False)


def test_a_run_agrees_with_itself():
    history = run(DS2(), apps.word_count().simulator(), steps=30)
    plot = plots.parity(history, history)
    assert "by 0 % in throughput (median; 0 %" in plot.summary
    for panel in ("", 2, 3):
        for x, y in _points(plot, panel).values():
            assert x == y


def test_the_longer_windows_count_rates_by_time_latencies_by_records():
    fine = _history([(100, 1.0), (300, 3.0), (50, None), (150, 5.0)], window_s=5)
    coarse = _history([(180, 2.0), (100, 4.0)], window_s=10)
    for plot in (plots.parity(fine, coarse), plots.parity(coarse, fine)):
        assert "In 2 windows of 10 s" in plot.summary
    x, y = _points(plots.parity(fine, coarse))["throughput"]
    assert (x, y) == (pytest.approx([200, 100]), [180, 100])
    x, y = _points(plots.parity(fine, coarse), 2)["mean latency"]
    assert (x, y) == (pytest.approx([(100 * 1 + 300 * 3) / 400, 5.0]), [2, 4])


@given(st.lists(st.floats(0.1, 1e6), min_size=2, max_size=20), st.sampled_from([1.0, 3.0, 7.0, 10.0]))
def test_averages_keep_the_records(rates, window_s):
    """However the windows lie: in the time that is covered, as many records."""
    fine = _history([(r, 1.0) for r in rates], window_s=1.0)
    coarse = _history([(1.0, 1.0)] * 20, window_s=window_s)
    whole = int(len(rates) / window_s + 1e-9)
    if not whole:
        with pytest.raises(MetricError, match="overlap"):
            plots.parity(fine, coarse)
        return
    x, _ = _points(plots.parity(fine, coarse))["throughput"]
    assert sum(x) * window_s == pytest.approx(sum(rates[: round(whole * window_s)]))


def test_only_what_both_saw_is_compared():
    a = _history([(100, None), (200, 2.0), (300, 3.0), (400, 4.0)])
    b = _history([(220, 2.0), (300, None), (400, 5.0)], start=10.0)
    plot = plots.parity(a, b)
    assert _points(plot)["throughput"] == ([200, 300, 400], [220, 300, 400])
    assert _points(plot, 2)["mean latency"] == ([2, 4], [2, 5])
    silent = History(a.topology, [replace(s, snapshot=replace(s.snapshot, operators={})) for s in a])
    assert all(len(x) == 0 for x, _ in _points(plots.parity(silent, b), 3).values())
    mute = _history([(100, None)] * 3)
    assert plots.parity(mute, mute).summary.endswith("at the 95th percentile).")


def test_runs_that_cannot_be_compared_are_refused():
    a = _history([(100, 1.0)] * 3)
    with pytest.raises(MetricError, match=r"operators \['a', 'b'\] and \['a', 'c'\].*same topology"):
        plots.parity(a, _history([(100, 1.0)], names=("a", "c")))
    with pytest.raises(MetricError, match=r"0 to 30 s and 100 to 110 s.*overlap"):
        plots.parity(a, _history([(100, 1.0)], start=100.0))
    with pytest.raises(MetricError, match="empty history"):
        plots.parity(a, History(a.topology))
    for pair in ((a, None), (None, a), (a, 5)):
        with pytest.raises(MetricError, match=r"expected a History; pass what run\(\)"):
            plots.parity(*pair)
    for names in (("a",), "ab", None, (1, 2), ("a", "b", "c")):
        with pytest.raises(ArgumentError, match="two names"):
            plots.parity(a, a, names=names)


def test_axes_are_of_logarithms_where_values_span_a_lot():
    near = plots.parity(*[_history([(100, 1.0), (900, 1.5)])] * 2).spec["layout"]
    assert "type" not in near["xaxis"]
    far = plots.parity(*[_history([(1, 0.001), (0, None), (9000, 10.0)])] * 2).spec
    for n in ("", 2):
        layout = far["layout"][f"xaxis{n}"], far["layout"][f"yaxis{n}"]
        assert [a["type"] for a in layout] == ["log", "log"]
        assert layout[0]["range"] == layout[1]["range"]
        for t in far["data"]:
            if t["xaxis"] == f"x{n}" and t["mode"] == "markers":
                assert min(t["x"]) > 0  # a logarithm has no place for 0
                low, high = layout[0]["range"]
                assert low <= math.log10(min(t["x"])) <= math.log10(max(t["x"])) <= high


def test_long_runs_are_thinned_and_their_errors_are_not():
    values = np.random.default_rng(0).uniform(100, 200, 5000)
    a, b = _history([(v, v) for v in values]), _history([(v * 1.5, v) for v in values])
    plot = plots.parity(a, b)
    for panel in ("", 2, 3):
        assert 300 <= sum(len(x) for x, _ in _points(plot, panel).values()) <= plots.MOST_POINTS
    assert "In 5000 windows of 10 s, simulated is off measured by 50 %" in plot.summary


def test_operators_differ_in_symbol_and_names_are_escaped():
    a = _history([(100, 1.0)] * 3, names=(EVIL, "b"))
    plot = plots.parity(a, a, names=(EVIL, "simulated"), title=EVIL)
    shown = {**plot.spec, "layout": {k: v for k, v in plot.spec["layout"].items() if k != "meta"}}
    assert "<script" not in json.dumps(shown)
    dots = [t for t in plot.spec["data"] if t["mode"] == "markers" and t["xaxis"] == "x3"]
    assert len({t["marker"]["symbol"] for t in dots}) == len({t["marker"]["color"] for t in dots}) == 2
    assert Operator(EVIL) in a.topology.operators


@pytest.mark.browser
def test_nothing_is_cut_off_in_a_notebook(page, page_errors):
    """At the width of a cell: titles of the panels and axes and the legend lie inside the figure."""
    from plotly.offline import get_plotlyjs

    history = run(DS2(), apps.star().simulator(), steps=40)
    figure = plots.parity(history, history, title="Star").figure
    body = figure.to_html(full_html=False, include_plotlyjs=False)
    page.set_content(f"<script>{get_plotlyjs()}</script><div style='width:760px'>{body}</div>")
    page.wait_for_selector(".legend text")
    whole = page.locator(".main-svg").first.bounding_box()
    parts = [".annotation-text", ".legend", ".xtitle, .x2title, .x3title", ".ytitle", ".gtitle"]
    boxes = [box.bounding_box() for part in parts for box in page.locator(part).all()]
    assert len(boxes) == 3 + 1 + 3 + 1 + 1
    for box in boxes:
        assert whole["x"] <= box["x"]
        assert box["x"] + box["width"] <= whole["x"] + whole["width"] + 1
        assert whole["y"] <= box["y"]
        assert box["y"] + box["height"] <= whole["y"] + whole["height"] + 1
    assert page_errors == []
