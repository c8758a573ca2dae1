"""Lessons: what they say is what they show, and their controls turn them."""

import pkgutil
from dataclasses import replace
from importlib import import_module

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from dspkit import report, ui
from dspkit.core import Knobs, call, knobs_of
from dspkit.plots import PLOTLY_MIME
from dspkit.ui import lessons

ALL = [lessons.Waiting(records=1000), lessons.Contention(), lessons.Fault()]
ALL += [lessons.Scorer(), lessons.Transfer(), lessons.Symbiosis(), lessons.Placement(nodes=16), lessons.Elasticity()]


def test_each_lesson_of_the_package_is_exported():
    modules = [import_module(f"{lessons.__name__}.{m.name}") for m in pkgutil.iter_modules(lessons.__path__)]
    found = {name for module in modules for name, thing in vars(module).items() if _is_lesson(thing, module)}
    assert found == set(lessons.__all__)


def _is_lesson(thing, module):
    return isinstance(thing, type) and issubclass(thing, Knobs) and thing.__module__ == module.__name__


@pytest.mark.parametrize("lesson", ALL, ids=lambda lesson: type(lesson).__name__)
def test_a_lesson_plots_the_same_each_time_and_at_the_ends_of_each_knob(lesson):
    assert lesson.plot().spec == lesson.plot().spec
    for knob in knobs_of(lesson):
        for value in knob.choices or (knob.low, knob.high):
            picture = replace(lesson, **{knob.name: value}).plot()
            assert picture.summary.endswith(".")
            assert len(picture.spec["data"]) >= 3


def test_waiting_agrees_with_itself():
    """Theory, the fluid, and 95 % intervals of records one by one: of 8 points 3 may miss (chance: 1 in 3,000)."""
    theory, fluid, tuples, _ = lessons.Waiting(instances=3, records=20000).plot().spec["data"]
    lesson = lessons.Waiting(instances=3)
    truth = [1e3 * lesson.theory(x) for x in tuples["x"]]
    assert fluid["y"] == pytest.approx(truth)
    near = [abs(m - t) <= e for m, t, e in zip(tuples["y"], truth, tuples["error_y"]["array"], strict=True)]
    assert sum(near) >= 5
    assert theory["y"] == sorted(theory["y"])


def test_contention_is_the_universal_scalability_law():
    lesson = lessons.Contention(load=2000, contention=0.05, coherency=0.01, cores=32)
    rates = lesson.plot().spec["data"][0]["y"]
    law = [100 * k / (1 + 0.05 * (k - 1) + 0.01 * k * (k - 1)) for k in range(1, 25)]
    assert rates == pytest.approx(law, rel=0.01)
    assert f"with {law.index(max(law)) + 1} instances" in lesson.plot().summary


def test_a_fault_costs_what_it_must():
    """Static, cores enough: 20 s of nothing at 250 k/s wait, and drain at what is left of the capacity."""
    lesson = lessons.Fault(policy="static", cores=32, pause_s=20)
    waiting = lesson.plot().spec["data"]
    assert "at most 5 M records wait" in lesson.plot().summary
    assert waiting


def test_controls_turn_a_lesson_and_show_it_as_code():
    view = ui.Lesson(lessons.Contention())
    before = view._chart.outputs
    assert PLOTLY_MIME in before[0]["data"]
    view["cores"].value = 4
    assert view.thing == lessons.Contention(cores=4)
    assert view._chart.outputs != before
    assert "lessons.Contention(cores=4).plot()" in view._code.value
    assert "with 4 instances" in view._said.value


def test_what_a_lesson_cannot_do_is_said_beside_it():
    class Broken(lessons.Contention):
        def plot(self):
            if self.cores == 1:
                raise ValueError("<no>")
            return super().plot()

    view = ui.Lesson(Broken())
    view["cores"].value = 1
    assert "ValueError: &lt;no&gt;" in view.error
    view["cores"].value = 2
    assert view.error == ""
    assert call(view.thing) == "Broken(cores=2)"


def test_a_report_shows_the_picture_that_controls_turn(tmp_path):
    path = tmp_path / "lesson.ipynb"
    nbformat.write(
        new_notebook(
            cells=[
                new_code_cell("from dspkit import ui\nfrom dspkit.ui import lessons\nui.Lesson(lessons.Contention())")
            ]
        ),
        path,
    )
    page = report.from_notebook(path, tmp_path / "lesson.html").read_text()
    assert "if instances never met" in page
    assert lessons.Contention().plot().summary in page


def test_placement_moves_with_its_weights_and_says_what_is_lost(monkeypatch):
    """The optimum for one metric alone is the best of that metric, and a heuristic is no better than the optimum."""
    monkeypatch.setattr("dspkit.ui.lessons.placement._PATIENCE_S", 600.0)  # a busy machine needs longer for an optimum
    best = [lessons.Placement(*(float(i == k) for k in range(3)), nodes=16) for i in range(3)]
    found = [lesson.answer().metrics for lesson in best]
    assert found[0].response_s == pytest.approx(min(m.response_s for m in found))
    assert found[1].log_availability == pytest.approx(max(m.log_availability for m in found))
    assert found[2].usage == pytest.approx(min(m.usage for m in found))
    assert all(lesson.answer().loss == pytest.approx(0, abs=1e-9) for lesson in best)
    greedy = lessons.Placement(method="greedy", nodes=16)
    assert greedy.answer().loss >= greedy.answer("optimum").loss
    assert "of what could be achieved is lost." in greedy.plot().summary
    assert [trace["name"] for trace in greedy.plot().spec["data"] if trace["type"] == "bar"] == ["optimum", "greedy"]
