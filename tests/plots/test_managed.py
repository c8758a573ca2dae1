"""Runs under control as pictures: valid, escaped, and their sentences say the numbers."""

import json

import plotly.graph_objects as go
import pytest

from dspkit import DspkitError, History, apps, plots
from dspkit.policies.hierarchical import Hierarchical
from reproduction.hierarchical.study import summary, two_days

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def history():
    return two_days(Hierarchical(grants="all"), days=0.05)


def test_runs_under_control_are_drawn_and_told(history):
    picture = plots.managed({"all": history, EVIL: history}, target_latency_s=0.2, title=EVIL)
    assert isinstance(picture.figure, go.Figure)
    data = json.dumps([picture.spec["data"], {k: v for k, v in picture.spec["layout"].items() if k != "meta"}])
    assert "<script" not in data
    assert f"all ran {summary(history)['availability']:.1%} of the time" in picture.summary
    stops = next(t for t in picture.spec["data"] if t.get("yaxis") == "y3")
    assert sum(stops["customdata"]) == pytest.approx(sum(s.snapshot.downtime_s for s in history))
    dashed = [t["line"] for t in picture.spec["data"] if t["mode"] == "lines" and "dash" in t["line"]]
    styles = {(line["color"], line["dash"]) for line in dashed}
    assert len(styles) == 2  # never by colour alone


def test_nothing_to_draw_is_told():
    with pytest.raises(DspkitError, match="runs without a step"):
        plots.managed({})
    with pytest.raises(DspkitError, match="runs without a step"):
        plots.managed({"none": History(apps.taxi().topology)})
