"""Nothing that a person did not move is ever sent: all policies, applications, loads and lessons in a real browser.

A browser draws a slider on a grid of steps and sends the rounded value back as it draws. Here a kernel notes each value
that comes from the browser, and the control's value before and after it.
"""

import json
from collections import Counter

import nbformat
import pytest
from playwright.sync_api import expect

from dspkit import apps, policies, ui
from dspkit.ui import lessons
from dspkit.ui.controls import SHAPES
from real_lab import IDLE, run_all, save

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NOTE = """
import json
from dspkit import ui
from dspkit.ui import controls, lessons

def note(widget, told, own):
    before = getattr(widget, "value", None)
    own(widget, told)
    if "value" in told:
        row = type(widget).__name__, getattr(widget, "description", ""), told["value"], before, widget.value
        with open({path!r}, "a") as file:
            file.write(json.dumps(row, default=str) + chr(10))

controls._Exact.set_state = (lambda own: lambda widget, told: note(widget, told, own))(controls._Exact.set_state)
"""
SLIDERS = {"FloatSlider", "FloatLogSlider"}
VIEW = "explorer = ui.Explorer('star', 'static', windows=30); explorer"
LESSONS = "for name in {names}: display(ui.Lesson(getattr(lessons, name)()))"
COMPARE = "compare = ui.Compare('star', ('hpa', 'flink_autoscaler', 'autrascale'), windows=2); compare"


@pytest.fixture
def book(lab_folder, tmp_path):
    """A notebook of views, and the file in which their kernel notes what the browser sends."""
    path, notes = lab_folder / "untouched.ipynb", tmp_path / "notes.jsonl"
    names = list(lessons.__all__)
    cells = [NOTE.format(path=str(notes)), VIEW, COMPARE, LESSONS.format(names=names)]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)
    return path, notes


def _pick(page, view, label, option):
    view.get_by_label(label, exact=True).first.select_option(option)


def _settled(page, view, expected):
    """Wait until the view shows these settings; unfold all knobs, and let the browser draw them."""
    box = view.locator("textarea").first
    expect(box).to_have_value(expected, timeout=120_000)
    for fold in view.locator(".jupyter-widget-Collapse-header").all():
        if fold.is_visible() and fold.locator("xpath=following-sibling::*").first.is_hidden():
            fold.click()
    page.wait_for_timeout(120)
    assert box.input_value() == expected


def test_what_nobody_moved_is_not_sent(lab, page, book):
    path, notes = book
    page.set_viewport_size({"width": 1400, "height": 1300})
    url = lab.split("/lab")[0] + "/lab/tree/" + path.name + "?" + lab.split("?")[1]
    idle = run_all(page, url)
    page.locator("button.jupyter-button", has_text="Start").wait_for(timeout=240_000)
    page.wait_for_function(idle, timeout=240_000)
    view = page.locator(".dspkit").first
    twin = ui.Explorer("star", "static", windows=30)  # the same picks without a browser
    walked = Counter()
    for name in sorted(policies.available()):
        twin.view.policy.value = name
        _pick(page, view, "policy", name)
        _settled(page, view, repr(twin.settings))
        walked["policies"] += 1
    for name, shape in zip(sorted(apps.available()), [*SHAPES] * 9, strict=False):
        for label, widget, value in (("application", twin.view.app, name), ("load", twin.loads.pick, shape)):
            widget.value = value
            _pick(page, view, label, value)
            _settled(page, view, repr(twin.settings))
        walked["apps"] += 1
    page.locator(".dspkit").nth(1).scroll_into_view_if_needed()
    compare = page.locator(".dspkit").nth(1)
    rivals = "policies=(HPA(), FlinkAutoscaler(), AuTraScale())"
    _settled(page, compare, f"CompareSettings(app='star', target_latency_s=0.5, windows=2, {rivals})")
    for lesson in page.locator(".dspkit").all()[2:]:
        lesson.scroll_into_view_if_needed()
        page.wait_for_timeout(150)
        assert "()" in lesson.locator("pre").inner_text()
    page.wait_for_function(IDLE, timeout=240_000)
    rows = [json.loads(line) for line in notes.read_text().splitlines()]
    assert [row for row in rows if row[3] != row[4]] == []
    assert {row[0] for row in rows} >= SLIDERS  # the browser does send what it rounded: else this were no test
    assert walked["policies"] >= 20
    assert walked["apps"] >= 20


def test_opening_and_saving_a_notebook_does_not_change_its_file(lab, lab_folder, page):
    """The version of this Python, which JupyterLab adds as soon as a kernel answers, stays out of the file."""
    for name in ("00_start", "12_reproduction"):
        path = lab_folder / "notebooks" / f"{name}.ipynb"
        before, saved = path.read_bytes(), path.stat().st_mtime_ns
        page.goto(f"{lab.split('/lab')[0]}/lab/tree/notebooks/{name}.ipynb?{lab.split('?')[1]}&reset")
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=240_000)
        page.wait_for_function(IDLE, timeout=240_000)
        save(page)
        assert path.stat().st_mtime_ns != saved
        assert path.read_bytes() == before
