"""Sweeps of a policy's knobs, the count of lost events, and their pictures."""

import pandas as pd
import pytest

from dspkit import apps, plots, run, workload
from dspkit.comparison import sensitivity
from dspkit.comparison.scores import EventsLost, events_lost, share_lost
from dspkit.core import DspkitError
from dspkit.policies.ds2 import DS2
from dspkit.policies.fission import Fission
from dspkit.policies.static import Static

APP = apps.news_entities()


def test_one_replica_each_does_what_the_bottleneck_can():
    """Theory: 141 events/s for 600 s, or all where less came, no more than 260 events held back: 82 to 85 thousand."""
    counted = events_lost(sensitivity.play_policy(APP, Static()))
    assert 0.97 * 141 * 600 < counted.processed <= 141 * 600
    assert counted.replica_seconds == 4 * 600


@pytest.mark.parametrize("name", ["tweet_words", "news_entities"])
@pytest.mark.parametrize(
    "policy", [Static(), Fission(), Fission(mid_term=False, replicas=3)], ids=["one", "elastic", "3"]
)
def test_in_a_pipeline_every_event_is_processed_dropped_or_waits(name, policy):
    counted = events_lost(sensitivity.play_policy(apps.available()[name](), policy))
    assert counted.processed + counted.dropped + counted.waiting == pytest.approx(counted.offered, rel=1e-6)
    assert counted.share == pytest.approx((counted.dropped + counted.waiting) / counted.offered, abs=1e-6)


def test_branches_take_each_event_once():
    app = apps.tweet_branches()
    counted = events_lost(
        sensitivity.play_policy(
            app, Static(), parallelism={"stop_words": 2, "language": 2, "dictionary": 6, "count": 6, "store": 2}
        )
    )
    assert counted.processed == pytest.approx(counted.offered, rel=1e-3)
    assert counted.dropped == 0


def test_what_a_log_keeps_is_not_dropped():
    """Word count reads a log: nothing is refused, what was not processed waits."""
    history = run(Static(), apps.word_count().simulator(workload.Constant(50e3)), steps=20)
    counted = events_lost(history)
    assert counted.dropped == 0
    assert counted.processed + counted.waiting == pytest.approx(counted.offered, rel=0.01)


def test_shares_of_nothing_and_more_than_the_ideal():
    assert share_lost(5, 0) == 0
    assert share_lost(110, 100) == pytest.approx(-0.1)
    assert EventsLost(200, 150, 30, 20, 1).share == 0.25
    with pytest.raises(DspkitError, match="without steps"):
        events_lost([])
    for processed, ideal in ((-1, 5), (float("nan"), 5), (1, float("inf"))):
        with pytest.raises(DspkitError, match="counts from 0 up"):
            share_lost(processed, ideal)


def test_a_sweep_is_the_runs_one_by_one():
    frame = sensitivity.sweep(APP, Fission(), {"mid_replicas": (0, 8), "scale_out_above": (0.4, 0.8)}, duration_s=300)
    assert frame[["mid_replicas", "scale_out_above"]].values.tolist() == [
        [0, 0.8],
        [8, 0.8],
    ]  # 0.4 is below `scale_in_below`: left out
    for row in frame.itertuples():
        history = sensitivity.play_policy(
            APP, Fission(mid_replicas=row.mid_replicas, scale_out_above=0.8), duration_s=300
        )
        counted = events_lost(history)
        assert (row.lost, row.replica_seconds) == (counted.share, counted.replica_seconds)
        assert row.rescalings == sum(s.rescaled for s in history)


@pytest.mark.parametrize("axes", [{}, {"typo": (1, 2)}])
def test_a_sweep_over_what_is_no_knob_is_refused(axes):
    with pytest.raises(DspkitError, match="expected knobs"):
        sensitivity.sweep(APP, Fission(), axes)


@pytest.mark.parametrize(
    "axes",
    [
        ["scale_out_above"],
        {"scale_out_above": 0.8},
        {"scale_out_above": "0.8"},
        {"scale_out_above": ()},
        {"scale_out_above": (99,)},
    ],
)
def test_a_sweep_of_no_values_is_refused(axes):
    with pytest.raises(DspkitError):
        sensitivity.sweep(APP, Fission(), axes, duration_s=10)


@pytest.mark.parametrize(
    "options", [{"duration_s": 0}, {"duration_s": float("nan")}, {"duration_s": float("inf")}, {"window_s": 0}]
)
def test_runs_without_a_window_are_refused(options):
    with pytest.raises(DspkitError):
        sensitivity.play_policy(APP, Static(), **options)


def test_a_name_is_no_application():
    with pytest.raises(DspkitError, match=r"apps\.tweet_words"):
        sensitivity.play_policy("tweet_words", Static())


@pytest.mark.parametrize("minutes", [0, -1, 2.5, "10", float("nan"), True, 10**9])
def test_lengths_of_a_load_that_make_no_sense_are_refused(minutes):
    with pytest.raises(DspkitError, match="minutes"):
        apps.tweet_words(minutes)


# Pictures

FRAME = pd.DataFrame(
    {
        "a": [1, 2, 1, 2],
        "b_s": [10.0, 10.0, 20.0, 20.0],
        "lost": [0.5, 0.2, 0.3, 0.2],
        "replica_seconds": [100, 200, 150, 300],
    }
)


def test_the_trade_off_marks_what_none_beats_and_says_the_extremes():
    plot = plots.tradeoff(FRAME, "a", "b_s", current={"a": 2, "b_s": 10.0, "lost": 0.2, "replica_seconds": 200})
    heat, points, front, cell, star = plot.spec["data"]
    assert heat["z"] == [[50, 20], [30, 20]]
    assert (heat["x"], heat["y"]) == (["1", "2"], ["10", "20"])
    assert len(points["x"]) == 4
    assert list(zip(front["x"], front["y"], strict=True)) == [(100, 50), (150, 30), (200, 20)]
    assert (cell["x"], cell["y"], star["y"]) == (["2"], ["10"], [20])
    assert "the least is lost with 20 % at a 2 and b 10 s (200 replica-seconds)" in plot.summary
    assert "the most with 50 % at a 1 and b 10 s (100 replica-seconds)" in plot.summary
    assert "the cheapest loses 50 % at a 1" in plot.summary
    assert "3 are undominated" in plot.summary
    assert plot.figure  # plotly takes it


def test_gaps_in_a_sweep_are_gaps_in_the_map():
    heat = plots.tradeoff(FRAME.iloc[:3], "a", "b_s").spec["data"][0]
    assert heat["z"] == [[50, 20], [30, None]]
    begun = FRAME.assign(lost=[0.5, float("nan"), float("nan"), float("nan")])
    heat, points, front, *_ = plots.tradeoff(begun, "a", "b_s").spec["data"]
    assert heat["z"] == [[50, None], [None, None]]
    assert (points["y"], front["y"]) == ([50], [50])
    with pytest.raises(DspkitError, match="sweep first"):
        plots.tradeoff(FRAME.assign(lost=float("nan")), "a", "b_s")


def test_numbers_in_the_map_can_be_read_on_every_shade():
    """Contrast of black text by WCAG: at least 4.5, on each of the shades."""
    plot = plots.tradeoff(FRAME, "a", "b_s", labels={"a": "letters & words"})
    heat = plot.spec["data"][0]
    assert heat["textfont"]["color"] == "black"
    assert plot.spec["layout"]["xaxis"]["title"]["text"] == "letters & words"
    for _, shade in heat["colorscale"]:
        linear = [
            c / 12.92 if (c := int(shade[i : i + 2], 16) / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for i in (1, 3, 5)
        ]
        light = sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
        assert (light + 0.05) / 0.05 > 4.5


@pytest.mark.parametrize(("frame", "x", "y"), [(FRAME, "a", "typo"), (FRAME, "a", "a"), (FRAME.iloc[:0], "a", "b_s")])
def test_what_is_no_sweep_is_refused(frame, x, y):
    with pytest.raises(DspkitError):
        plots.tradeoff(frame, x, y)


def test_a_run_of_drops_as_a_picture():
    history = sensitivity.play_policy(APP, Fission())
    plot = plots.elastic(history)
    names = [trace["name"] for trace in plot.spec["data"]]
    assert {"offered", "processed", "short-term", "mid-term", *APP.topology.order} <= set(names)
    marks = {t["name"]: t for t in plot.spec["data"] if t["mode"] == "markers"}
    assert all(t % 100 == 0 for t in marks["mid-term"]["x"])
    acted = sum(step.rescaled for step in history)
    assert sum(len(t["x"]) for t in marks.values()) == acted
    assert f"{100 * events_lost(history).share:.2f} %" in plot.summary
    assert plot.figure
    other = plots.elastic(sensitivity.play_policy(APP, DS2(), duration_s=300))
    assert "decision" in [trace["name"] for trace in other.spec["data"]]
    with pytest.raises(DspkitError, match="empty history"):
        plots.elastic(history[:0])


def test_forecasts_as_a_picture():
    import numpy as np

    from dspkit.forecasting import LastValue, Series, backtest

    result = backtest(LastValue(), Series(np.arange(100.0), 3600), horizon=3)
    plot = plots.forecast(result, 2)
    came = next(t for t in plot.spec["data"] if t.get("name") == "actual")
    assert came["y"] == result.actual[:, 1].tolist()
    assert came["x"][0] == 51  # hours: the first origin is after 50 values, the second step one later
    assert "MASE" in plot.summary
    assert plot.figure
    with pytest.raises(DspkitError, match="1 to 3"):
        plots.forecast(result, 4)
