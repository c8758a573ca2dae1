"""The sensitivity page without a browser: sliders are values, errors are lines in the view."""

import threading

import pytest

from dspkit import apps, plots, ui
from dspkit.comparison import sensitivity
from dspkit.core import DspkitError
from dspkit.policies.ds2 import DS2
from dspkit.policies.fission import Fission
from dspkit.ui import run
from tiny import wait_for


@pytest.fixture(scope="module")
def page():
    page = ui.Sensitivity("tweet_words", duration_s=60)
    assert page._sweeping.wait(300)
    return page


def _spec(output):
    return output.outputs[0]["data"][plots.PLOTLY_MIME]


def test_it_has_the_sliders_that_the_paper_varies(page):
    assert {"replicas", "mid_replicas", "scale_out_above", "scale_in_below", "mid_term_interval_s"} <= set(page.sliders)
    assert page.error == ""
    assert page.policy == Fission()
    assert len(page.frame) == 42  # 6 x 6 values, and the 5 of the paper


def test_a_moved_slider_is_another_run_of_which_the_map_shows_where_it_is(page):
    page.sliders["mid_replicas"].value = 8
    assert page.policy == Fission(mid_replicas=8)
    expected = sensitivity.play_policy(apps.tweet_words(), page.policy, duration_s=60)
    assert page.history == expected
    assert "Fission(mid_replicas=8)" in page._code.value
    names = [t.get("name") for t in _spec(page._map)["data"]]
    assert names.count("this setting") == 2  # its cell, and its point
    assert "Sweep" not in page._stale.value
    page.sliders["mid_replicas"].value = 5


def test_a_knob_that_was_not_swept_makes_the_map_old_until_it_is_swept_again(page):
    page.sliders["scale_out_above"].value = 0.8
    assert "Sweep" in page._stale.value
    assert [t.get("name") for t in _spec(page._map)["data"]].count("this setting") == 1
    page.button.click()
    assert page._sweeping.wait(300)
    assert page.error == ""
    assert "Sweep" not in page._stale.value
    page.sliders["scale_out_above"].value = 1.0


def test_other_axes_and_another_application():
    page = ui.Sensitivity("tweet_words", duration_s=10)
    page.x.value, page.y.value = "scale_out_above", "replicas"
    assert page.sweep().wait(300)
    assert {"scale_out_above", "replicas"} <= set(page.frame)
    page.app.value = "news_entities"
    assert page._sweeping.wait(300)
    assert page.error == ""
    assert page.frame.lost.notna().all()
    assert page.history.topology == apps.news_entities().topology


def test_what_does_not_go_together_is_a_line_and_goes_when_it_does(page):
    page.sliders["scale_in_below"].value = 1.0
    assert "scale_in_below &lt; scale_out_above" in page.error
    assert "dspkit-error" in page.error
    page.sliders["scale_in_below"].value = 0.5
    assert page.error == ""
    page.x.value = page.y.value
    page.button.click()
    assert "twice" in page.error
    page.x.value = "mid_replicas"
    page.button.click()
    assert page._sweeping.wait(300)
    assert page.error == ""


def test_a_sweep_goes_on_in_the_background_fills_the_map_and_can_be_stopped(page, monkeypatch):
    gate, measure = threading.Semaphore(0), sensitivity.measure
    monkeypatch.setattr(run, "REDRAW_S", 0)

    def slowly(*args, **options):
        gate.acquire()
        return measure(*args, **options)

    monkeypatch.setattr(sensitivity, "measure", slowly)
    page.button.click()
    assert page.button.description == "Stop"
    assert page.progress.layout.visibility == "visible"
    gate.release(5)

    def cells():
        return [z for row in _spec(page._map)["data"][0]["z"] for z in row]

    wait_for(lambda: sum(z is not None for z in cells()) == 5)
    assert len(cells()) == 42  # all places are there from the start
    assert page.progress.value == 5
    page.sliders["replicas"].value = 2  # a slider is answered meanwhile
    assert page.history == sensitivity.play_policy(apps.tweet_words(), Fission(replicas=2), duration_s=60)
    page.sliders["replicas"].value = 1
    page.button.click()
    gate.release(2)
    assert page._sweeping.wait(300)
    assert page.button.description == "Sweep"
    assert page._sweeping.done[0] < 8
    monkeypatch.undo()
    page.button.click()
    assert page._sweeping.wait(300)
    assert page.frame.lost.notna().all()


def test_another_sweep_stops_the_one_before_and_an_error_in_one_is_a_line(page, monkeypatch):
    first = page.sweep()
    second = page.sweep()
    assert first.wait(300)
    assert second.wait(300)
    assert first.done[0] <= 42 == second.done[0]

    def broken(*_, **__):
        raise DspkitError("a broken run", expected="one that works", fix="repair it")

    with monkeypatch.context() as patch:
        patch.setattr(sensitivity, "measure", broken)
        assert page.sweep().wait(300)
        assert "a broken run" in page.error
    assert page.button.description == "Sweep"
    page.button.click()
    assert page._sweeping.wait(300)
    assert page.error == ""


def test_its_picture_is_published_beside_it_for_reports(page, monkeypatch):
    import IPython.display

    published = []
    monkeypatch.setattr(IPython.display, "display", lambda data, raw: published.append(data))
    page._ipython_display_()
    assert plots.PLOTLY_MIME in published[0]
    assert "application/vnd.jupyter.widget-view+json" in published[0]
    assert published[0][plots.PLOTLY_MIME]["data"][0]["type"] == "heatmap"


def test_the_code_that_it_shows_is_the_same_run(page):
    import html
    import re

    code = html.unescape(re.search(r"<pre>(.*)</pre>", page._code.value, re.S)[1])
    names = {}
    exec(code, names)
    assert names["history"] == page.history
    assert len(names["frame"]) > 10


def test_any_policy_with_knobs_can_be_swept():
    page = ui.Sensitivity(
        "tweet_words",
        DS2(),
        names=("activation", "warm_up_windows"),
        axes=("activation", "warm_up_windows"),
        duration_s=20,
    )
    assert page._sweeping.wait(300)
    assert page.error == ""
    assert set(page.frame.columns) >= {"activation", "warm_up_windows", "lost"}


@pytest.mark.parametrize("wrong", [{"app": "typo"}, {"names": ("typo",)}, {"axes": ("scale_out_above", "typo")}])
def test_unknown_names_are_refused(wrong):
    with pytest.raises(DspkitError):
        ui.Sensitivity(**wrong)
