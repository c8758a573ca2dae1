"""The Explorer without a browser: buttons are methods, sliders are values, errors are lines in the view."""

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dspkit import DspkitError, ui
from dspkit.knobs import Knob, Knobs, knob, knobs
from dspkit.plots import PLOTLY_MIME
from dspkit.policies._template import Template
from dspkit.policies.ds2 import DS2
from dspkit.ui.background import Background
from dspkit.ui.controls import Panel, control, slider


@pytest.fixture
def explorer():
    explorer = ui.Explorer(windows=40, speed=0)
    yield explorer
    explorer.stop()


def _run(explorer):
    explorer.start()
    assert explorer.wait(60)
    assert explorer.error == ""
    return explorer.history


def _spec(output):
    return output.outputs[0]["data"][PLOTLY_MIME]


def _until(true, timeout_s=20):
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_a_run_fills_the_chart_the_graph_and_the_reasons(explorer):
    history = _run(explorer)
    assert len(history) == 40
    assert len(_spec(explorer._chart)["data"][0]["x"]) == 40
    assert any("busy" in label for trace in _spec(explorer._graph)["data"] for label in trace["text"])
    assert "because" in explorer._why.value
    assert explorer._progress.value == explorer._progress.max == 40
    assert "Finished" in explorer._status.value
    assert explorer._sliders["count"].value == history[-1].decision.deployment.parallelism["count"]


def test_the_code_it_shows_is_the_run_it_made(explorer):
    explorer._scale.value = 1.5
    explorer._sliders["flat_map"].value = 2
    explorer._policy.value = "ds2"
    explorer._panel_box.children[0].children[1].value = 3  # activation
    assert "activation=3" in explorer.settings.code()
    history = _run(explorer)
    names: dict = {}
    exec(explorer.settings.code().rsplit("\n", 1)[0], names)  # ours, and the point of the test
    same = names["history"]
    assert same.application.throughput.tolist() == history.application.throughput.tolist()
    assert [s.decision for s in same] == [s.decision for s in history]


def test_every_policy_can_be_picked_and_shows_its_knobs(explorer):
    assert {"ds2", "static"} <= set(explorer._policy.options)
    for name in explorer._policy.options:
        explorer._policy.value = name
        assert explorer.settings.policy.name == name
        widgets = explorer._panel_box.children[0].children[1:]
        drawn = [k for k in knobs(explorer.settings.policy) if control(k) is not None]
        assert [w.description for w in widgets] == [k.name.replace("_", " ") for k in drawn]
    assert explorer.error == ""


def test_every_application_can_be_picked_and_has_a_slider_an_operator(explorer):
    for name in explorer._app.options:
        explorer._app.value = name
        assert list(explorer._sliders) == [o.name for o in explorer._now.topology.operators]
        assert len(_run(explorer)) == 40


def test_sliders_moved_in_a_run_are_deployed(explorer):
    explorer._policy.value = "static"
    explorer._speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 2)
    explorer._sliders["count"].value = 7
    _until(lambda: explorer.history[-1].snapshot.deployment.parallelism["count"] == 7)
    explorer._speed.value = 0
    assert explorer.wait(60)
    assert explorer.history[-1].snapshot.deployment.parallelism["count"] == 7
    assert explorer.history.application.downtime_s.sum() == 10


def test_policy_and_load_turned_in_a_run_take_effect(explorer):
    explorer._policy.value = "static"
    explorer._speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 2)
    explorer._scale.value = 2.0
    explorer._policy.value = "ds2"
    explorer._speed.value = 0
    assert explorer.wait(60)
    app = explorer.history.application
    assert app.rescaled.any()
    assert app.source_rate.iloc[-1] == pytest.approx(2 * 250e3)
    assert "demand" in explorer.history[-1].decision.why


def test_stop_keeps_what_was_recorded_and_can_be_pressed_twice(explorer):
    explorer._speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 2)
    explorer.stop()
    explorer.stop()
    assert not explorer.running
    assert 2 <= len(explorer.history) < 40
    assert "Stopped" in explorer._status.value


def test_reset_forgets_the_run_and_the_settings(explorer):
    explorer._scale.value = 2.0
    explorer._sliders["count"].value = 5
    _run(explorer)
    explorer.reset()
    assert explorer.history is None
    assert explorer._scale.value == explorer.settings.scale == 1.0
    assert {s.value for s in explorer._sliders.values()} == {1}
    assert set(explorer.settings.parallelism.values()) == {1}
    assert explorer._chart.outputs == ()


def test_a_second_run_ends_the_first_and_leaves_one_thread():
    first, second = ui.Explorer(windows=10_000, speed=10), ui.Explorer(windows=5, speed=0)
    first.start()
    _until(lambda: first.history)
    second.start()  # as when the cell is run again
    assert second.wait(60)
    assert not first.running
    assert "Stopped" in first._status.value
    assert [t for t in threading.enumerate() if t.name == "dspkit-run"] == []


def test_start_pressed_in_a_run_begins_anew(explorer):
    explorer._speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 3)
    former = explorer.history
    explorer._speed.value = 0
    _run(explorer)
    assert explorer.history is not former
    assert len(explorer.history) == 40


def test_export_writes_a_report_of_the_run(explorer):
    explorer.export()
    assert "press Start first" in explorer.error
    _run(explorer)
    explorer.export()
    assert explorer.error == ""
    text = Path(explorer.report_path).read_text()
    assert "DS2()" in text
    assert str(explorer.report_path) in explorer._status.value


@dataclass(frozen=True)
class Breaks(Knobs):
    """Goes wrong in the third window."""

    name: ClassVar[str] = "breaks"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        if state == 2:
            raise RuntimeError("<b>no</b>")
        from dspkit import Decision

        return state + 1, Decision(snapshot.deployment)


def test_an_error_in_the_run_is_a_readable_line(explorer):
    broken = ui.Explorer(policy=Breaks(), windows=5, speed=0)
    broken.start()
    assert broken.wait(60)
    assert 'class="dspkit-error"' in broken.error
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt;" in broken.error
    assert len(broken.history) == 2


def test_knobs_that_do_not_go_together_are_a_readable_line_and_change_nothing():
    explorer = ui.Explorer(policy=Template(), windows=5, speed=0)
    low = explorer._panel_box.children[0].children[2]
    low.value = 0.9
    assert "expected low &lt; high" in explorer.error
    assert explorer.settings.policy == Template()
    low.value = 0.5
    assert explorer.error == ""
    assert explorer.settings.policy == Template(low=0.5)


def test_an_unknown_name_is_refused():
    with pytest.raises(DspkitError, match="one of diamond, star, word_count"):
        ui.Explorer("typo")
    with pytest.raises(DspkitError, match="did you mean 'ds2'"):
        ui.Explorer(policy="ds")


def test_redraws_are_at_most_four_a_second(explorer, monkeypatch):
    drawn = []
    monkeypatch.setattr(explorer, "_draw", lambda history: drawn.append(time.monotonic()))
    explorer.settings = ui.Settings("word_count", DS2(), windows=400)
    explorer.start()
    assert explorer.wait(60)
    apart = [b - a for a, b in zip(drawn, drawn[1:], strict=False)]
    assert all(gap >= 0.25 for gap in apart[:-1])  # the last is the final picture


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (slider(1, 9, 3, "n", ""), "IntSlider"),
        (slider(0.0, 1.0, 0.5, "n", ""), "FloatSlider"),
        (slider(1e-3, 10.0, 0.18, "n", ""), "FloatLogSlider"),
        (control(Knob("k", "a", "", None, None, ("a", "b"), "", "")), "Dropdown"),
        (control(Knob("k", True, "", None, None, (True, False), "", "")), "Checkbox"),
        (control(Knob("k", 5.0, "", 0.0, float("inf"), (), "", "")), "NoneType"),
    ],
)
def test_each_knob_gets_the_control_that_fits(made, kind):
    assert type(made).__name__ == kind


def test_a_slider_shows_the_value_it_was_given():
    for value in (0.18, 0.5, 0.003):
        assert slider(1e-3, 10.0, value, "n", "").value == pytest.approx(value)


def test_help_and_source_of_a_knob_are_its_tooltip():
    @dataclass(frozen=True)
    class Rule(Knobs):
        """A rule."""

        share: float = knob(0.5, "a share", low=0.0, high=1.0, unit="s", source="its paper")

    changed = []
    panel = Panel(Rule(), changed.append, pytest.fail)
    assert panel["share"].tooltip == "a share (s) its paper"
    panel["share"].value = 0.25
    assert changed == [Rule(0.25)]


def test_background_work_ends_when_told():
    background, done = Background(), []
    background.start(lambda stop: done.append(stop.wait(30)))
    assert background.running
    background.stop()
    assert done == [True]
    assert Background().wait(1)  # nothing runs: nothing to wait for
