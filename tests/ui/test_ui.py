"""The Explorer without a browser: buttons are methods, sliders are values, errors are lines in the view."""

import json
import math
import re
import threading
import time
from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import ipywidgets
import pytest

import dspkit
from dspkit import Decision, DspkitError, apps, ui
from dspkit.core import Knobs, knob, knobs_of
from dspkit.policies._template import Template
from dspkit.policies.ds2 import DS2
from dspkit.policies.guards import Cooldown
from dspkit.policies.static import Static
from dspkit.ui import controls, lessons
from dspkit.ui.controls import Panel, control, slider
from dspkit.ui.explorer import DUELS
from reproduction.hierarchical.view import TwoDays


@pytest.fixture
def explorer():
    explorer = ui.Explorer(windows=40, speed=0)
    yield explorer
    explorer.stop()
    assert explorer.wait(120)


def _run(explorer):
    explorer.start()
    assert explorer.wait(300)
    assert explorer.error == ""
    return explorer.history


def _begun(explorer, windows=2):
    """A run that goes slowly, and has done a few windows."""
    explorer.view.speed.value = 30
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= windows)


def _finished(explorer):
    explorer.view.speed.value = 0
    assert explorer.wait(300)
    assert explorer.error == ""
    return explorer.history


class Browser:
    """A browser with a cockpit: it pulls windows, and pulls again once they are drawn."""

    def __init__(self, explorer, monkeypatch, name="a"):
        self.cockpit, self.name, self.rows, self.notes, self.messages = explorer.view.cockpit, name, [], [], []
        others = self.cockpit.send
        monkeypatch.setattr(self.cockpit, "send", lambda message, *_: (others(message), self.take(message)))

    def pull(self, run=None):
        run = self.cockpit.head["run"] if run is None else run
        have = {"rows": len(self.rows), "notes": len(self.notes)}
        self.cockpit.hear({"type": "ready", "client": self.name, "run": run, **have})

    def take(self, message):
        if message["client"] == self.name:
            json.dumps(message)
            self.messages.append(message)
            assert (message["from"], message["noted"]) == (len(self.rows), len(self.notes))
            self.rows += message["rows"]
            self.notes += message["notes"]


def _until(true, timeout_s=600):  # at first the simulator is compiled
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


# A run from start to end


def test_a_run_fills_the_chart_the_graph_and_the_reasons(explorer, monkeypatch):
    browser = Browser(explorer, monkeypatch)
    history = _run(explorer)
    assert len(history) == 40
    browser.pull()
    assert [row["t"] for row in browser.rows] == [step.snapshot.t for step in history]
    assert next(row["act"]["what"] for row in browser.rows if "act" in row) == "count 1 → 3, sink 1 → 3"
    assert re.fullmatch(r"count: one instance can do (29|30)[.\d]* k/s, 80 k/s arrive: 3\.", browser.rows[0]["say"][0])
    assert [node["name"] for node in explorer.view.cockpit.scene["nodes"]] == list(history.topology.order)
    assert browser.rows[-1]["edges"] == pytest.approx(list(history[-1].snapshot.edge_rates.values()), rel=1e-3)
    assert "Finished" in explorer.view.status
    assert explorer.view.cockpit.head["state"] == "finished"
    assert "In 400 s the job processed" in explorer.view.cockpit.summary


# Windows for browsers


def test_a_browser_is_sent_the_next_windows_only_once_it_has_drawn_the_last(explorer, monkeypatch):
    browser = Browser(explorer, monkeypatch)
    _begun(explorer, windows=5)
    browser.pull()
    first = len(browser.rows)
    assert len(browser.messages) == 1
    assert first >= 5
    _until(lambda: len(explorer.history) >= first + 5)
    assert len(browser.messages) == 1  # nothing more for a browser that is still drawing
    _finished(explorer)
    assert len(browser.messages) == 1
    browser.pull()
    assert (len(browser.messages), len(browser.rows)) == (2, 40)
    browser.pull()
    assert len(browser.messages) == 2  # it waits for what does not come


def test_two_browsers_are_sent_the_run_each_at_its_own_pace_and_a_later_one_all_of_it(explorer, monkeypatch):
    slow, fast = Browser(explorer, monkeypatch), Browser(explorer, monkeypatch, "b")
    _begun(explorer)
    for _ in range(3):
        seen = len(fast.rows)
        fast.pull()
        _until(lambda seen=seen: len(fast.rows) > seen)
    slow.pull()
    _finished(explorer)
    fast.pull()
    slow.pull()
    late = Browser(explorer, monkeypatch, "c")
    late.pull()
    assert slow.rows == fast.rows == late.rows
    assert len(late.rows) == 40


def test_messages_of_a_browser_that_make_no_sense_do_nothing(explorer):
    _run(explorer)
    before = explorer.settings, explorer.history
    for message in (
        *(None, "x", {}, {"type": "ready"}),
        {"type": "ready", "client": "a", "run": "9", "rows": 0, "notes": 0},
        {"type": "ready", "client": "a", "run": "1", "rows": -5, "notes": 10**9},
        {"type": "press", "button": "__init__"},
        {"type": "move", "operator": "nobody", "parallelism": 3},
        {"type": "move", "operator": "count", "parallelism": "3"},
        {"type": "how", "client": "a", "run": "1", "window": 10**9},
        {"type": "how", "client": "a", "run": "x", "window": 0},
    ):
        explorer.view.cockpit.hear(message)
    assert (explorer.settings, explorer.history) == before
    assert explorer.error == ""
    explorer.view.cockpit.hear({"type": "branch", "run": "7", "windows": 3})
    assert "window 3 of run &#x27;7&#x27;" in explorer.error


def test_browsers_that_never_draw_are_forgotten_and_so_are_old_runs(explorer):
    for i in range(100):
        explorer.view.cockpit.hear({"type": "ready", "client": str(i), "run": "1", "rows": 0, "notes": 0})
    assert len(explorer.view.cockpit._asked) == 0  # of no run
    explorer.view.windows.value = 10
    for _ in range(12):
        _run(explorer)
    for i in range(100):
        explorer.view.cockpit.hear({"type": "ready", "client": str(i), "run": "12", "rows": 10, "notes": 0})
    assert len(explorer.view.cockpit._asked) <= 16
    assert [run["id"] for run in explorer.view.cockpit.head["runs"]] == [str(n) for n in range(5, 13)]
    assert len(explorer.view.cockpit._shown) == 8


def test_a_move_in_the_graph_is_that_of_the_slider(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer.view.cockpit.hear({"type": "move", "operator": "count", "parallelism": 7})
    _until(lambda: explorer.history[-1].snapshot.deployment.parallelism["count"] == 7)
    explorer.view.cockpit.hear({"type": "move", "operator": "count", "parallelism": 10**6})
    history = _finished(explorer)
    most = explorer._now.topology["count"].max_parallelism
    assert [what for _, what in history.notes] == ["count 1 → 7, by hand", f"count 7 → {most}, by hand"]
    assert explorer._sliders["count"].value == explorer.settings.parallelism["count"] == most


# Time in hand


@pytest.mark.parametrize("policy", ["ds2", "dhalion", "hpa", "drs"])
def test_a_branch_without_a_change_is_the_run_itself_bit_for_bit(policy):
    explorer = ui.Explorer(policy=policy, windows=40, speed=0)
    original = _run(explorer)
    for windows in (1, 17, 40):
        explorer.branch(windows, "1")
        assert explorer.wait(120)
        assert explorer.error == ""
        assert explorer.history.steps == original.steps
        assert explorer.history is not original


def test_a_branch_of_a_run_that_was_changed_by_hand_repeats_that_too(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer._sliders["count"].value = 4
    _until(lambda: explorer.history.notes)
    explorer.view.scale.value = 1.5
    _until(lambda: len(explorer.history.notes) == 2)
    explorer.view.policy.value = "ds2"
    _until(lambda: len(explorer.history.notes) == 3)
    original = _finished(explorer)
    explorer.branch(40)
    assert explorer.wait(120)
    assert explorer.history.steps == original.steps
    assert explorer.history.notes == original.notes
    explorer.branch(35)  # and a branch of a branch
    assert explorer.wait(120)
    assert explorer.history.steps == original.steps


def test_a_branch_with_another_policy_shares_the_past_and_has_its_own_future(explorer):
    original = _run(explorer)
    explorer.view.policy.value = "static"
    explorer.view.cockpit.hear({"type": "branch", "run": "1", "windows": 31})
    assert explorer.wait(120)
    assert explorer.error == ""
    assert explorer.history.steps[:31] == original.steps[:31]
    assert [step.rescaled for step in explorer.history[31:]] == [False] * 9
    assert any(step.rescaled for step in original[31:])
    assert explorer.history.notes == [(310.0, "policy Static()")]
    assert [run["label"] for run in explorer.view.cockpit.head["runs"]] == [
        "1: ds2 on word_count", "2: static on word_count, from t = 310 s of 1",
    ]  # fmt: skip


def test_a_backend_that_does_not_repeat_itself_ends_the_branch_with_a_readable_line(explorer, monkeypatch):
    _run(explorer)
    step = explorer.history[5]
    explorer.history.steps[5] = replace(step, snapshot=replace(step.snapshot, lag=step.snapshot.lag + 1))
    explorer.branch(20)
    assert explorer.wait(120)
    assert "another window 5 (t = 60 s) than the run had that is repeated" in explorer.error


def test_a_branch_of_nothing_and_of_a_live_run_are_refused(explorer):
    with pytest.raises(DspkitError, match="press Start first"):
        explorer.branch(3)
    _run(explorer)
    explorer._live.settings = replace(explorer._live.settings, backend="spark")
    with pytest.raises(DspkitError, match="cannot be repeated"):
        explorer.branch(3)


def test_step_runs_one_window_at_a_time(explorer):
    explorer.step()
    _until(lambda: "Paused" in explorer.view.status)
    assert len(explorer.history) == 1
    for n in (2, 3):
        explorer.view.buttons["Step"].click()
        _until(lambda n=n: len(explorer.history) == n and explorer._live.paused)
    time.sleep(0.2)
    assert len(explorer.history) == 3
    explorer.view.buttons["Pause"].click()
    assert len(_finished(explorer)) == 40


def test_undo_takes_changes_back_one_by_one(explorer):
    assert explorer.view.buttons["Undo"].disabled
    first = explorer.settings
    explorer.view.scale.value = 2.0
    explorer._sliders["count"].value = 5
    explorer.view.policy.value = "static"
    explorer.view.buttons["Undo"].click()
    assert explorer.settings.policy == first.policy
    assert explorer.view.policy.value == "ds2"
    explorer.view.buttons["Undo"].click()
    assert explorer._sliders["count"].value == explorer.settings.parallelism["count"] == 1
    assert explorer.settings.scale == 2.0
    explorer.view.buttons["Undo"].click()
    assert explorer.settings == first
    assert explorer.view.scale.value == 1.0
    assert explorer.view.buttons["Undo"].disabled
    explorer.undo()
    assert explorer.settings == first


def test_undo_of_a_move_in_a_run_moves_it_back(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer._sliders["count"].value = 7
    _until(lambda: explorer.history[-1].snapshot.deployment.parallelism["count"] == 7)
    explorer.undo()
    history = _finished(explorer)
    assert [what for _, what in history.notes] == ["count 1 → 7, by hand", "count 7 → 1, by hand"]


def test_a_policy_that_cannot_or_will_not_act_says_so_before_the_start(explorer):
    explorer.view.policy.value = "flink_autoscaler"
    assert "this run is over at 400 s" in explorer.view.cockpit.head["outlook"]
    explorer.view.policy.value = "stela"
    assert "press Scale out" in explorer.view.cockpit.head["outlook"]
    explorer.view.policy.value = "ds2"
    assert explorer.view.cockpit.head["outlook"] == ""


def test_the_code_it_shows_is_the_run_it_makes(explorer):
    explorer.view.scale.value = 1.5
    explorer._sliders["flat_map"].value = 2
    explorer._panel["activation"].value = 3
    code = explorer.settings.code()
    assert "activation=3" in code
    history = _run(explorer)
    assert history.about["code"] == code
    names: dict = {}
    exec(code.rsplit("\n", 1)[0], names)  # ours, and the point of the test
    same = names["history"]
    assert same.application.throughput.tolist() == history.application.throughput.tolist()
    assert [s.decision for s in same] == [s.decision for s in history]


def test_values_that_a_browser_sends_back_are_taken_as_they_were_meant(explorer):
    explorer.view.scale.value = 0.9999999999999999
    explorer.view.target.value = 0.18000000000000002
    assert (explorer.settings.scale, explorer.settings.target_latency_s) == (1.0, 0.18)


def test_the_code_of_a_wrapped_policy_imports_all_of_it():
    explorer = ui.Explorer(policy=Cooldown(DS2(activation=2), cooldown_s=20.0), windows=10, speed=0)
    names: dict = {}
    exec(explorer.settings.code().rsplit("\n", 1)[0], names)
    assert [s.decision for s in names["history"]] == [s.decision for s in _run(explorer)]


def test_a_target_moved_in_the_last_moment_is_drawn():
    explorer = ui.Explorer(windows=2, speed=2)
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) == 1)
    explorer.view.target.value = 1.5
    assert explorer.wait(120)
    assert explorer.view.cockpit.head["target"] == 1.5


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(explorer, monkeypatch):
    def fail(*_):
        raise ValueError("no ink")

    monkeypatch.setattr(explorer.view.cockpit, "publish", fail)
    explorer.start()
    assert explorer.wait(300)
    assert "no ink" in explorer.error
    assert "Finished" in explorer.view.status
    assert len(explorer.history) == 40


def test_every_policy_can_be_picked_and_shows_its_knobs(explorer):
    assert {"ds2", "static"} <= set(explorer.view.policy.options)
    for name in explorer.view.policy.options:
        explorer.view.policy.value = name
        assert explorer.settings.policy.name == name
        drawn = [k.name.replace("_", " ") for k in knobs_of(explorer.settings.policy) if control(k) is not None]
        assert [c.description for c in explorer._panel] == drawn
    assert explorer.error == ""


def test_every_application_can_be_picked_and_has_a_slider_an_operator(explorer):
    for name in explorer.view.app.options:
        explorer.view.app.value = name
        assert list(explorer._sliders) == [o.name for o in explorer._now.topology.operators]
        assert len(_run(explorer)) == 40


# Hands on a run


def test_sliders_moved_in_a_run_are_deployed_noted_and_kept_for_the_next(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer._sliders["count"].value = 7
    _until(lambda: explorer.history[-1].snapshot.deployment.parallelism["count"] == 7)
    history = _finished(explorer)
    assert history.application.downtime_s.sum() == 10
    assert [what for _, what in history.notes] == ["count 1 → 7, by hand"]
    assert "code" not in history.about  # no code makes this run again
    assert history.about["settle"] == 0
    assert "1 change by hand" in explorer.view.cockpit.summary
    assert explorer.settings.parallelism["count"] == explorer._sliders["count"].value == 7
    assert _run(explorer)[0].snapshot.deployment.parallelism["count"] == 7


def test_policy_and_load_turned_in_a_run_take_effect_and_are_told(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer.view.scale.value = 2.0
    explorer.view.policy.value = "ds2"
    history = _finished(explorer)
    assert history.application.rescaled.any()
    assert history.application.source_rate.iloc[-1] == pytest.approx(2 * 250e3)
    assert [what for _, what in history.notes] == ["load × 2", "policy DS2()"]
    assert history.about["policy"] == "Static(), then DS2()"
    assert history.about["reference"] == ("kalavri2018ds2",)
    assert "* 1}" in history.about["backend"]  # as it began


def test_sliders_follow_the_policy_and_go_back_when_the_run_is_over(explorer):
    _begun(explorer)
    _until(lambda: explorer._sliders["count"].value > 1)
    history = _finished(explorer)
    assert history[-1].snapshot.deployment.parallelism["count"] > 1
    assert {s.value for s in explorer._sliders.values()} == {1}
    assert _run(explorer)[0].snapshot.deployment == history[0].snapshot.deployment


def test_a_turned_knob_keeps_what_the_policy_knows(explorer):
    explorer._panel["activation"].value = 30
    _begun(explorer, windows=4)
    known = len(explorer.history[-1].state.recommendations)
    assert known >= 3
    explorer._panel["combine"].value = "max"
    _until(lambda: explorer.history.notes and len(explorer.history) > known + 1)
    turned_at = explorer.history.notes[0][0]
    first_after = next(s for s in explorer.history if s.snapshot.t > turned_at)
    assert len(first_after.state.recommendations) > known
    explorer.stop()


def test_stop_keeps_what_was_recorded_and_can_be_pressed_twice(explorer):
    _begun(explorer)
    explorer.stop()
    explorer.stop()
    assert explorer.wait(120)
    assert 2 <= len(explorer.history) < 40
    assert "Stopped" in explorer.view.status
    assert explorer.view.buttons["Stop"].disabled


def test_pause_holds_the_run_and_lets_it_go_on(explorer):
    _begun(explorer)
    explorer.view.buttons["Pause"].click()
    _until(lambda: "Paused" in explorer.view.status)
    held = len(explorer.history)
    explorer.view.speed.value = 0
    assert not explorer.wait(0.3)
    assert len(explorer.history) == held < 40
    assert explorer.view.buttons["Pause"].description == "Resume"
    explorer.view.buttons["Pause"].click()
    assert len(_finished(explorer)) == 40
    assert explorer.view.buttons["Pause"].disabled


def test_a_held_run_can_be_stopped_reset_and_replaced(explorer):
    for act in (explorer.stop, explorer.reset, explorer.start):
        _begun(explorer)
        former = explorer._live
        explorer.pause()
        act()
        assert former.wait(300)
    explorer.pause()
    explorer.pause()
    assert len(_finished(explorer)) == 40


def test_progress_tells_how_much_is_left(explorer):
    _begun(explorer)
    _until(lambda: explorer.view.cockpit.head["left_s"])
    assert explorer.view.cockpit.head["going"]
    _finished(explorer)
    assert explorer.view.cockpit.head["left_s"] is None
    assert not explorer.view.cockpit.head["going"]


@dataclass(frozen=True)
class Slow(Knobs):
    """Thinks for a second."""

    name: ClassVar[str] = "slow"

    def init(self, topology, seed=0):
        return None

    def step(self, state, snapshot):
        time.sleep(1)
        return state, Decision(snapshot.deployment)


def test_stop_returns_at_once_and_a_new_run_waits_for_the_former():
    explorer = ui.Explorer(policy=Slow(), windows=1000, speed=0)
    explorer.start()
    _until(lambda: explorer.history is not None)
    former = explorer._live
    explorer.stop()
    assert explorer.running
    assert "Stopping" in explorer.view.status
    explorer.view.policy.value = "static"
    explorer.start()
    assert explorer.history is not former.history
    explorer.stop()
    assert explorer.wait(120)
    assert not former.running


def test_the_second_of_two_runs_begins_only_after_the_first_of_its_own_pair():
    explorer = ui.Explorer(windows=12, speed=0)
    explorer.duel(DUELS[0])
    assert explorer.wait(60)
    assert [run.settings.policy.name for run, _ in explorer._runs.values()] == ["hpa", "ds2"]
    assert explorer._overlay == "1"
    explorer.view.speed.value = 1
    explorer.duel(DUELS[0])
    explorer.view.buttons["Stop"].click()
    assert explorer.wait(60)
    explorer.view.policy.value, explorer.view.speed.value = "static", 0
    explorer.view.buttons["Step"].click()
    _until(lambda: explorer._live.paused)
    explorer.view.buttons["Pause"].click()  # which resumes it
    assert explorer.wait(60)
    assert explorer.settings.policy.name == "static"
    assert explorer._runs["4"][0].settings.policy.name == "static"
    assert "5" not in explorer._runs
    assert explorer._overlay == ""  # nor is a finished run laid under one that has nothing to do with it


def test_a_move_made_just_before_stop_is_not_carried_into_another_application(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer.stop()
    explorer._sliders["count"].value = 9
    explorer.view.app.value = "star"
    assert _run(explorer).notes == []
    explorer.reset()
    assert set(_run(explorer)[0].snapshot.deployment.parallelism.values()) == {1}


def test_reset_in_a_run_forgets_it_and_restores_what_was_asked_for_at_first():
    explorer = ui.Explorer("star", Cooldown(DS2(activation=2), cooldown_s=30), windows=40, speed=0)
    _begun(explorer)
    explorer.view.scale.value = 2.0
    explorer.view.settle.value = 3
    explorer._sliders["bolt"].value = 5
    explorer.view.app.value = "word_count"
    explorer.view.policy.value = "static"
    explorer.view.buttons["Export report"].click()
    explorer.view.speed.value = 3
    explorer.view.buttons["Reset"].click()
    assert explorer.error == ""
    assert explorer.view.speed.value == 0
    assert explorer.history is None
    assert explorer.settings.policy == Cooldown(DS2(activation=2), cooldown_s=30)
    assert (explorer.settings.app, explorer.settings.scale, explorer.settings.settle) == ("star", 1.0, 0)
    assert {s.value for s in explorer._sliders.values()} == {1}
    assert (explorer.view.cockpit.head["run"], explorer.view.cockpit.head["runs"]) == ("", [])
    assert _run(explorer).about["policy"].startswith("Cooldown(policy=DS2(activation=2), cooldown_s=30")


def test_a_new_view_ends_the_run_of_the_former_one():
    """As when the cell is run again: the former view and its Stop button are gone."""
    first = ui.Explorer(windows=10_000, speed=10)
    first.start()
    _until(lambda: first.history)
    second = ui.Explorer(windows=5, speed=0)
    assert first.wait(300)
    assert "Stopped" in first.view.status
    second.start()
    assert second.wait(300)
    assert [t for t in threading.enumerate() if t.name == "dspkit-run"] == []


def test_start_pressed_in_a_run_begins_anew(explorer):
    _begun(explorer, windows=3)
    former = explorer._live
    explorer.view.speed.value = 0
    assert len(_run(explorer)) == 40
    assert not former.running
    assert len(former.history) < 40


def test_after_a_run_the_target_moves_in_what_was_recorded(explorer):
    _run(explorer)
    explorer.view.target.value = 0.5
    assert explorer.view.cockpit.head["target"] == 0.5
    assert explorer.view.cockpit.head["run"] == "1"


def test_export_writes_a_report_of_the_run_and_links_to_it(explorer):
    explorer.view.buttons["Export report"].click()
    assert "press Start first" in explorer.error
    with pytest.raises(DspkitError, match="press Start first"):
        explorer.export()  # code gets the error itself
    _run(explorer)
    explorer.view.buttons["Export report"].click()
    assert explorer.error == ""
    assert "DS2()" in explorer.report_path.read_text()
    assert explorer.report_path.name in explorer.view.link.outputs[0]["data"]["text/html"]


def test_the_report_of_a_turned_run_says_so(explorer):
    explorer.view.policy.value = "static"
    _begun(explorer)
    explorer._sliders["count"].value = 4
    _until(lambda: explorer.history.notes)
    explorer.view.policy.value = "ds2"
    _finished(explorer)
    text = explorer.export().read_text()
    for words in ("A run of Static, then DS2", "count 1 → 4, by hand", "policy DS2()", "Three steps is all you need"):
        assert words in text
    assert "steps=40" not in text


# Errors


@dataclass(frozen=True)
class Breaks(Knobs):
    """Goes wrong in the third window."""

    name: ClassVar[str] = "breaks"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        if state == 2:
            raise RuntimeError("<b>no</b>")
        return state + 1, Decision(snapshot.deployment)


def test_an_error_in_the_run_is_a_readable_line_until_the_next_start():
    broken = ui.Explorer(policy=Breaks(), windows=5, speed=0)
    broken.start()
    assert broken.wait(300)
    assert 'class="dspkit-error"' in broken.error
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt;" in broken.error
    assert len(broken.history) == 2
    broken.view.scale.value = 2.0
    assert "RuntimeError" in broken.error
    broken.view.policy.value = "static"
    _run(broken)


def test_knobs_that_do_not_go_together_are_a_readable_line_until_they_do():
    explorer = ui.Explorer(policy=Template(), windows=5, speed=0)
    explorer._panel["scale_in_below"].value = 0.85
    assert "expected scale_in_below &lt; scale_out_above" in explorer.error
    assert explorer.settings.policy == Template()
    explorer._panel["scale_out_above"].value = 0.95
    assert explorer.error == ""
    assert explorer.settings.policy == Template(scale_out_above=0.95, scale_in_below=0.85)


@dataclass(frozen=True)
class Strict(Knobs):
    name: ClassVar[str] = "strict"
    share: float = knob(0.5, "a share", low=0.0, high=1.0)

    def __post_init__(self):
        if self.share > 0.8:
            raise ZeroDivisionError("too much")

    init = Slow.init
    step = Breaks.step


def test_a_policy_without_words_or_with_errors_of_its_own_does_no_harm():
    explorer = ui.Explorer(policy=Strict(), windows=5, speed=0)
    explorer._panel["share"].value = 0.9
    assert "ZeroDivisionError: too much" in explorer.error


def test_an_unknown_name_is_refused():
    with pytest.raises(DspkitError, match=f"one of {', '.join(apps.available())}"):
        ui.Explorer("typo")
    with pytest.raises(DspkitError, match="did you mean 'ds2'"):
        ui.Explorer(policy="ds")


# Costs


def test_sliders_and_words_follow_a_run_at_most_four_times_a_second(explorer, monkeypatch):
    shown = []
    monkeypatch.setattr(explorer, "_follow", lambda *_: shown.append(time.monotonic()))
    explorer.settings = replace(explorer.settings, windows=400)
    _run(explorer)
    apart = [b - a for a, b in zip(shown, shown[1:], strict=False)]
    assert len(shown) >= 2
    assert all(gap >= 0.25 for gap in apart[:-1])  # the last is the final picture


def test_widgets_that_are_replaced_are_closed(explorer):
    explorer.view.app.value = "star"
    explorer.view.app.value = "word_count"
    explorer.view.policy.value = "static"
    explorer.view.policy.value = "ds2"
    controls.remove_closed(math.inf)
    before = len(ipywidgets.widgets.widget._instances)
    for _ in range(3):
        explorer.view.app.value = "star"
        explorer.view.policy.value = "static"
        explorer.view.app.value = "word_count"
        explorer.view.policy.value = "ds2"
        explorer.view.switch.value = "spark"
        explorer.view.switch.value = "simulated"
    controls.remove_closed(math.inf)
    assert len(ipywidgets.widgets.widget._instances) == before


def test_views_of_former_runs_of_a_cell_are_closed(monkeypatch):
    """Of all but the last two runs, unless another cell shows them or a variable names them; and `Out` forgets them."""

    def show(cell, run, view):
        names["_oh"][run] = names[f"_{run}"] = hidden[f"_{run}"] = view
        parent = {"metadata": {"cellId": cell}, "header": {"msg_id": run}}
        shell = SimpleNamespace(get_parent=lambda: parent, user_ns=names, user_ns_hidden=hidden)
        monkeypatch.setattr("IPython.get_ipython", lambda: shell)
        view._ipython_display_()

    def there():
        controls.remove_closed(math.inf)
        return [view.view.box in ipywidgets.widgets.widget._instances.values() for view in views]

    monkeypatch.setattr("IPython.display.display", lambda *_, **__: None)
    views = [ui.Live(lambda: None, "static") for _ in range(6)]
    names, hidden = {"_oh": {}, "mine": views[3]}, {}
    show("a", "1", views[0])
    show("a", "1", views[1])  # a second one in the same run
    show("b", "2", views[1])
    show("a", "3", views[2])
    assert there() == [True] * 6
    show("a", "4", views[2])  # the same again
    assert there() == [False, True, True, True, True, True]
    assert not any(held is views[0] for held in (*names.values(), *names["_oh"].values(), *hidden.values()))
    show("a", "5", views[3])
    for run in "678":
        show("a", run, views[4])
    assert there() == [False, True, False, True, True, True]
    assert names["_5"] is names["_oh"]["5"] is views[3]
    show(None, "9", views[5])
    show(None, "10", views[5])
    assert there() == [False, True, False, True, True, True]
    show("b", "11", views[5])
    show("b", "12", views[5])
    assert there() == [False, False, False, True, True, True]


def test_a_view_that_was_replaced_stays_until_a_slow_browser_has_drawn_it_and_is_not_heard(explorer):
    """A browser draws the first of two quick changes after it heard that its view was closed."""
    heard, now = [], time.monotonic()
    first = ipywidgets.VBox([slider := ipywidgets.IntSlider()])
    slider.observe(heard.append, "value")
    controls.close(first)
    slider.value = 7
    assert heard == []
    assert {first, slider} <= set(ipywidgets.widgets.widget._instances.values())
    controls.remove_closed(now + 0.5 * controls.CLOSE_AFTER_S)
    assert first in ipywidgets.widgets.widget._instances.values()
    controls.remove_closed(now + 2 * controls.CLOSE_AFTER_S)
    assert not {first, slider, slider.layout, slider.style} & set(ipywidgets.widgets.widget._instances.values())


def test_a_long_run_comes_in_messages_of_bounded_size(monkeypatch):
    explorer = ui.Explorer(policy=Static(), windows=3000, speed=0)
    explorer.settings = replace(explorer.settings, window_s=1.0)
    browser = Browser(explorer, monkeypatch)
    assert len(_run(explorer)) == 3000
    while len(browser.rows) < 3000:
        browser.pull()
    assert max(len(json.dumps(message)) for message in browser.messages) < 500_000
    assert len(browser.messages) == 15


# Controls


def _control(value, **limits):
    made = make_dataclass("Made", [("k", object, knob(value, "help", **limits))], bases=(Knobs,), frozen=True)
    return control(next(knobs_of(made)))


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (slider(1, 9, 3, "n", ""), "IntSlider"),
        (slider(0.0, 1.0, 0.5, "n", ""), "FloatSlider"),
        (slider(1e-3, 10.0, 0.18, "n", ""), "FloatLogSlider"),
        (_control("a", choices=("a", "b")), "Dropdown"),
        (_control(True, choices=(True, False)), "Checkbox"),
        (_control(5.0, low=0.0, high=float("inf")), "NoneType"),
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


@pytest.mark.parametrize("value", [1.0, 60.0, 777.0, 3600.0])
def test_a_logarithmic_sliders_value_is_on_one_of_its_steps(value):
    """A browser moves what lies between two steps to the next one, and turns the knob by that."""
    made = slider(1.0, 3600.0, value, "n", "")
    steps = (math.log10(value) - made.min) / made.step
    assert steps == pytest.approx(round(steps), abs=1e-6)
    assert made.step == pytest.approx(0.01, rel=0.5)


def test_machines_that_are_not_there_are_refused_in_words_and_the_run_goes_on():
    explorer = ui.Explorer("word_count", "stela", windows=400, speed=0)
    machines, out, _ = explorer._panel.asking
    out.click()
    assert "1 more for word_count, which has 4 machines and uses 4; expected at most 0 more" in explorer.error
    assert "diamond" in explorer.error
    assert explorer.settings.policy.requests == ()
    explorer.view.app.value = "linear"  # four of six machines run
    machines.value = 3
    _begun(explorer)
    out.click()
    assert "at most 2 more" in explorer.error
    machines.value = 1
    for _ in range(3):
        out.click()
    assert "uses 6; expected at most 0 more" in explorer.error
    assert [r.machines for r in explorer.settings.policy.requests] == [1, 1]
    explorer.view.speed.value = 0
    assert explorer.wait(300)
    assert explorer.history[-1].deployment.workers == 6


def _inside(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from _inside(child)


def test_every_control_of_every_view_has_a_label_and_a_tooltip():
    history = dspkit.run(Static(), apps.word_count().simulator(), steps=2)
    compare = ui.Compare("star", ("ds2", "static"), windows=2)
    sweep = ui.Sensitivity(duration_s=20.0)
    last = history[-1].snapshot
    views = [
        ui.Explorer(windows=2).view.box, ui.Live(apps.star().simulator, windows=2).view.box, compare.view,
        ui.TopologyView(history).view, sweep.view, TwoDays(days=0.02).view, ui.EtpPicker(history.topology, last).box,
        ui.Lesson(lessons.Contention()).box,
    ]  # fmt: skip
    sweep._sweeping.stop()
    assert compare.wait(300)
    assert sweep._sweeping.wait(300)
    labelled = (
        ipywidgets.Button, ipywidgets.Checkbox, ipywidgets.Dropdown, ipywidgets.ToggleButtons, ipywidgets.Textarea,
        ipywidgets.IntSlider, ipywidgets.FloatSlider, ipywidgets.FloatLogSlider, ipywidgets.IntProgress,
    )  # fmt: skip
    for view in views:
        controls = [c for c in _inside(view) if isinstance(c, labelled)]
        assert controls
        assert [c for c in controls if not ((c.description or getattr(c, "icon", "")) and c.tooltip)] == []


def test_the_sliders_of_a_large_graph_are_in_their_fold() -> None:
    """A browser draws them only while it is open, and none is left when the graph is another one."""
    view = ui.Explorer("star", windows=5).view
    large = SimpleNamespace(topology=dspkit.Topology.chain(*(f"o{i}" for i in range(13))))
    made = view.sliders(large, large.topology.uniform())
    (fold,) = view.operators.children
    assert fold.children[0].children == ()
    fold.selected_index = 0
    assert fold.children[0].children == tuple(made.values())
    fold.selected_index = None
    assert fold.children[0].children == ()
    few = view.sliders(apps.star(), apps.star().topology.uniform())
    assert view.operators.children == tuple(few.values())
    controls.remove_closed(math.inf)
    assert not {fold, *made.values()} & set(ipywidgets.widgets.widget._instances.values())
