"""The page of two days without a browser: controls are values, errors are lines in the view."""

import pytest

from dspkit import plots
from dspkit.core import DspkitError
from dspkit.policies.hierarchical import Hierarchical
from reproduction.hierarchical.study import two_days
from reproduction.hierarchical.view import TwoDays


@pytest.fixture(scope="module")
def page():
    return TwoDays(days=0.1)


def test_it_shows_the_run_that_its_controls_say(page):
    assert {"beta", "grants", "scale_out_above", "room"} <= set(page.sliders)
    assert page.history == two_days(Hierarchical(signal="cpu"), days=0.1)
    page.sliders["beta"].value = 0.5
    assert page.policy == Hierarchical(beta=0.5, signal="cpu")
    assert page.history == two_days(Hierarchical(beta=0.5, signal="cpu"), days=0.1)
    assert "Hierarchical(beta=0.5, signal=" in page._code.value
    assert f"{page.row['availability']:.1%}" in page._said.value
    names = [t.get("name") for t in page._chart.outputs[0]["data"][plots.PLOTLY_MIME]["data"]]
    assert {"all are granted", "as set", "load"} <= set(names)


def test_another_load_is_another_run(page):
    page.seed.value = 3
    assert page.history == two_days(page.policy, days=0.1, seed=3)
    assert "seed=3" in page._code.value


def test_what_goes_wrong_is_a_line_in_the_view(page, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("<b>no</b>")

    monkeypatch.setattr("reproduction.hierarchical.view.two_days", broken)
    page.sliders["scale_in_margin"].value = 0.6
    assert "RuntimeError: &lt;b&gt;no" in page.error
    monkeypatch.undo()
    page.sliders["scale_in_margin"].value = 0.75
    assert page.error == ""


def test_an_unknown_knob_is_refused():
    with pytest.raises(DspkitError, match="knobs \\['betta'\\]"):
        TwoDays(names=("betta",), days=0.05)
