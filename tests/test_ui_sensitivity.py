"""The sensitivity page without a browser: sliders are values, errors are lines in the view."""

import pytest

from dspkit import plots, sensitivity, topologies, ui
from dspkit.errors import DspkitError
from dspkit.policies.ds2 import DS2
from dspkit.policies.fission import Fission


@pytest.fixture(scope="module")
def page():
    return ui.Sensitivity("tweet_words", duration_s=60)


def _spec(output):
    return output.outputs[0]["data"][plots.PLOTLY_MIME]


def test_it_has_the_sliders_that_the_paper_varies(page):
    assert {"replicas", "mid_replicas", "upper", "lower", "mid_s"} <= set(page.sliders)
    assert page.error == ""
    assert page.policy == Fission()
    assert len(page.frame) == 42  # 6 x 6 values, and the 5 of the paper


def test_a_moved_slider_is_another_run_of_which_the_map_shows_where_it_is(page):
    page.sliders["mid_replicas"].value = 8
    assert page.policy == Fission(mid_replicas=8)
    expected = sensitivity.play(topologies.tweet_words(), page.policy, duration_s=60)
    assert page.history == expected
    assert "Fission(mid_replicas=8)" in page._code.value
    names = [t.get("name") for t in _spec(page._map)["data"]]
    assert names.count("this setting") == 2  # its cell, and its point
    assert "Sweep" not in page._stale.value
    page.sliders["mid_replicas"].value = 5


def test_a_knob_that_was_not_swept_makes_the_map_old_until_it_is_swept_again(page):
    page.sliders["upper"].value = 0.8
    assert "Sweep" in page._stale.value
    assert [t.get("name") for t in _spec(page._map)["data"]].count("this setting") == 1
    page.button.click()
    assert page.error == ""
    assert "Sweep" not in page._stale.value
    page.sliders["upper"].value = 1.0


def test_other_axes_and_another_application():
    page = ui.Sensitivity("tweet_words", duration_s=10)
    page.x.value, page.y.value = "upper", "replicas"
    frame = page.sweep()
    assert {"upper", "replicas"} <= set(frame)
    page.app.value = "news_entities"
    assert page.error == ""
    assert page.history.topology == topologies.news_entities().topology


def test_what_does_not_go_together_is_a_line_and_goes_when_it_does(page):
    page.sliders["lower"].value = 1.0
    assert "lower &lt; upper" in page.error
    assert "dspkit-error" in page.error
    page.sliders["lower"].value = 0.5
    assert page.error == ""
    page.x.value = page.y.value
    page.button.click()
    assert "twice" in page.error
    page.x.value = "mid_replicas"
    page.button.click()
    assert page.error == ""


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
        "tweet_words", DS2(), names=("activation", "warm_up"), axes=("activation", "warm_up"), duration_s=20
    )
    assert page.error == ""
    assert set(page.frame.columns) >= {"activation", "warm_up", "lost"}


@pytest.mark.parametrize("wrong", [{"app": "typo"}, {"names": ("typo",)}, {"axes": ("upper", "typo")}])
def test_unknown_names_are_refused(wrong):
    with pytest.raises(DspkitError):
        ui.Sensitivity(**wrong)
