"""Picking an operator without a browser; buttons that ask a policy for machines."""

import time

import pytest

from dspkit import apps, etp, ui
from dspkit.plots import PLOTLY_MIME
from dspkit.policies.on_demand import ScaleIn, ScaleOut
from dspkit.policies.stela import Stela
from dspkit.ui.controls import Panel

EDGES = [("a", "b"), ("a", "c"), ("b", "<i>d</i>")]
RATES = {"a": (9, 9), "b": (50, 20), "c": (10, 10), "<i>d</i>": (20, 15)}


def _spec(picker):
    return picker.chart.outputs[0]["data"][PLOTLY_MIME]


def test_a_pick_is_drawn_and_explained():
    picker = ui.EtpPicker(EDGES, RATES)
    assert picker.operator == "<i>d</i>"  # the first in the ranking
    picker.operator = "a"
    assert "a processes 9 of 9 records/s: not congested." in picker.why.value
    assert "b is congested on a → b → &lt;i&gt;d&lt;/i&gt;" in picker.why.value
    assert any(t.get("name") == "effective sink" for t in _spec(picker)["data"])
    assert "plots.etp(topology, rates, 1.2, operator=&#x27;a&#x27;)" in picker.code.value
    assert picker.error == ""


def test_the_congestion_rate_follows_the_slider():
    picker = ui.EtpPicker(EDGES, RATES, operator="a")
    assert f"ETP {10 / 25:.1%}" in picker.why.value
    picker.rate.value = 3.0
    assert "ETP 100.0%" in picker.why.value


def test_names_need_not_be_words_and_many_make_a_list():
    picker = ui.EtpPicker([(i, i + 1) for i in range(30)], dict.fromkeys(range(31), (10, 10)), operator=7)
    assert type(picker.pick).__name__ == "Dropdown"
    assert picker.operator == 7
    picker.operator = 30
    assert "30 processes" in picker.why.value


def test_an_error_is_a_line_in_the_view(monkeypatch):
    picker = ui.EtpPicker(EDGES, RATES)

    def fail(*_, **__):
        raise ValueError("no <ink>")

    monkeypatch.setattr("dspkit.plots.etp", fail)
    picker.operator = "b"
    assert "no &lt;ink&gt;" in picker.error
    assert "dspkit-error" in picker.error


def test_buttons_ask_for_machines():
    asked = []
    panel = Panel(Stela(), asked.append, pytest.fail, lambda: 70.0)
    machines, out, into = panel.asking
    machines.value = 2
    out.click()
    into.click()
    panel["congestion_rate"].value = 1.5  # a turned knob keeps what was asked
    assert asked[-1] == Stela(congestion_rate=1.5, requests=(ScaleOut(2, 70.0), ScaleIn(2, 70.0)))
    panel.close()


def test_a_policy_that_cannot_be_asked_has_no_buttons():
    from dspkit.policies.ds2 import DS2

    assert not hasattr(Panel(DS2(), lambda _: None, pytest.fail), "asking")


def test_machines_join_while_a_run_goes_on():
    explorer = ui.Explorer("linear", "stela", windows=60, speed=0)
    explorer.view.speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 3)
    explorer._panel.asking[1].click()
    explorer.view.speed.value = 0
    assert explorer.wait(300)
    assert explorer.error == ""
    history = explorer.history
    assert [n for s in history if (n := s.snapshot.deployment.workers)][-1] == 5
    assert any("ScaleOut(at_s=" in what for _, what in history.notes)
    names: dict = {}
    exec(explorer.settings.code().rsplit("\n", 1)[0], names)  # the code asks for the same at the same time
    assert names["history"][-1].snapshot.deployment.workers == 5


def _until(true, timeout_s=180):
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_every_app_of_stelas_has_machines_to_spare():
    for name in ("diamond", "linear", "network_monitoring", "page_load", "processing", "star"):
        app = apps.available()[name]()
        snapshot = app.simulator().observe()
        target, _ = Stela().answer(ScaleOut(2), app.topology, snapshot)
        app.simulator().deploy(target)
        assert set(etp.rates(snapshot).processing) == set(app.topology.order)
