"""Notebooks as a person uses them: a real JupyterLab, a real kernel, a real browser."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tiny import listens, wait_for

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build" / "screenshots"
# The Explorer's chart, its only one with four rows: its points so far.
POINTS = """() => [...document.querySelectorAll('.dspkit .js-plotly-plot')]
    .filter(p => p.layout && p.layout.yaxis4).map(p => p.data[0].x.length)[0] || 0"""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def _command():
    """The README's own `make lab`, if these tests run in its environment."""
    if Path(sys.prefix) == ROOT / ".venv":
        return [sys.executable, str(ROOT / "dev.py"), "lab", "--no-browser"]
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={ROOT}"]
    return [sys.executable, "-m", "jupyterlab", *options, "--LabApp.default_url=/lab/tree/notebooks/00_start.ipynb"]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The address that `make lab` prints."""
    home = tmp_path_factory.mktemp("lab")
    env = {**os.environ, "DSPKIT_HOME": str(home)}
    env |= {f"JUPYTER{part}_DIR": str(home / part) for part in ("LAB_SETTINGS", "LAB_WORKSPACES", "_CONFIG")}
    server = subprocess.Popen(
        _command(),
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    said = []
    try:
        for line in server.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+", line):
                threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would stop it
                wait_for(lambda: listens(found[0].split("/lab")[0]))  # it says so a moment before it does
                yield found[0]
                break
        else:
            pytest.fail("no address printed:\n" + "".join(said))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        server.stdout.close()


def _button(page, text):
    """By its text: the icon is part of a button's accessible name."""
    return page.locator("button.jupyter-button", has_text=text)


# How tall the Explorer's chart is in each of the next frames; 0 where it is not drawn.
HEIGHTS = """frames => new Promise(done => {
    const seen = [];
    const look = () => {
        const chart = [...document.querySelectorAll('.dspkit .js-plotly-plot')].find(p => p.layout?.yaxis4);
        seen.push(Math.round(chart?.getBoundingClientRect().height ?? 0));
        seen.length < frames ? requestAnimationFrame(look) : done(seen);
    };
    look();
})"""


def _run_all(page, url):
    """The notebook in the lab, told to run all its cells; the condition under which its kernel is idle."""
    page.goto(url + "&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    idle = "() => document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"
    page.wait_for_function(idle, timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    return idle


def _open(page, url, first="Start"):
    """The same once the button with this text, or the first slider, is there."""
    _run_all(page, url)
    waited = _button(page, first) if first else page.locator(".dspkit .widget-slider").first
    waited.wait_for(timeout=60_000)
    waited.scroll_into_view_if_needed()


def _press(page, handle, key, times):
    handle.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_notebook_00_in_the_lab(url, page, page_errors):
    page.set_viewport_size({"width": 1500, "height": 1320})
    assert "/lab/tree/notebooks/00_start.ipynb" in url
    _open(page, url)

    # Slowly, so that there is time to look. Start: the chart appears, grows while the run goes on, and keeps its
    # height in all redraws.
    speed = page.locator(".widget-slider", has_text="speed").locator(".noUi-handle")
    _press(page, speed, "ArrowLeft", 6)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 3", timeout=30_000)
    seen = page.evaluate(POINTS)
    page.wait_for_function(f"seen => ({POINTS})() > seen", arg=seen, timeout=30_000)
    heights = page.evaluate(HEIGHTS, 120)
    assert sorted(heights)[len(heights) // 20] > 600, heights  # a frame or two between two pictures may be bare

    # A slider moved by keyboard and another policy, while it runs.
    page.get_by_label("policy", exact=True).select_option("static")
    _press(page, page.locator(".widget-slider", has_text="flat_map").locator(".noUi-handle"), "ArrowRight", 3)
    page.get_by_text("by hand").first.wait_for(timeout=30_000)

    _button(page, "Stop").click()
    page.get_by_text("Stopped.").wait_for(timeout=30_000)
    _button(page, "Export report").click()
    link = page.locator(".dspkit a", has_text=".html")
    link.wait_for(timeout=30_000)
    report = Path(page.locator(".dspkit code", has_text=".html").inner_text())
    assert report.stat().st_size > 100_000

    # A decision's reason under the mouse, once the run is over; and the picture in the README.
    page.get_by_label("policy", exact=True).select_option("ds2")
    _button(page, "Reset").click()
    _press(page, speed, "Home", 1)
    _button(page, "Start").click()
    page.get_by_text("Finished.").wait_for(timeout=60_000)
    assert "scale=" not in page.locator(".dspkit pre").inner_text()  # an untouched slider says nothing
    page.evaluate("() => document.querySelector('.jp-toast-button[title=No]')?.click()")
    page.locator(".dspkit").first.evaluate("e => e.closest('.jp-Cell').scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "00_start.png")
    diamond = page.locator(".dspkit .js-plotly-plot .subplot.x3y5 path.point, .dspkit .x3y5 .points path").nth(1)
    box = diamond.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".hoverlayer", has_text="true rate").wait_for(timeout=5_000)

    for width in (900, 1300, 1500):  # a chart that nobody draws anew keeps its height too
        page.set_viewport_size({"width": width, "height": 1320})
        page.wait_for_timeout(700)
        assert min(page.evaluate(HEIGHTS, 10)) > 600

    assert page.locator(".dspkit-error").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


def test_notebook_01_in_the_lab(url, page, page_errors):
    """Each lesson's picture follows its slider; what they say changes with it."""
    page.set_viewport_size({"width": 1500, "height": 1200})
    _open(page, url.replace("00_start", "01_simulator"), first="")
    page.locator(".dspkit").nth(2).wait_for(timeout=60_000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for n, (knob, key) in enumerate((("utilisation", "End"), ("cores", "Home"), ("cores", "End"))):
        lesson = page.locator(".jp-OutputArea .dspkit").nth(n)
        lesson.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=30_000)
        before = lesson.locator("em").first.inner_text()
        _press(page, lesson.locator(".widget-slider", has_text=knob).first.locator(".noUi-handle"), key, 1)
        changed = "([e, before]) => e.querySelector('em').innerText !== before"
        page.wait_for_function(changed, arg=[lesson.element_handle(), before], timeout=30_000)
        assert f"{knob}=" in lesson.locator("pre").inner_text()
        lesson.evaluate("e => e.closest('.jp-Cell').scrollIntoView({block: 'start'})")
        page.evaluate("() => document.querySelector('.jp-toast-button[title=No]')?.click()")
        page.wait_for_timeout(700)
        page.screenshot(path=SHOTS / f"01_simulator_{n}.png")
    assert page.locator(".dspkit-error").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


def test_notebook_06_in_the_lab(url, page, page_errors):
    """The sensitivity page: a slider moved by keyboard is another run, and the map marks it."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    idle = _run_all(page, url.replace("00_start", "06_markov"))
    _button(page, "Sweep").wait_for(timeout=90_000)
    page.wait_for_function(idle, timeout=120_000)
    view = page.locator(".dspkit").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    lost = view.get_by_text("events lost:")
    before = lost.inner_text()
    _press(page, page.locator(".widget-slider", has_text="upper").locator(".noUi-handle"), "ArrowLeft", 5)
    page.wait_for_function(
        "before => ![...document.querySelectorAll('.dspkit p')].some(p => p.innerText === before)",
        arg=before,
        timeout=30_000,
    )
    view.get_by_text("The map is of the knobs before").wait_for(timeout=10_000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "06_markov.png")
    assert page.locator(".dspkit-error").count() == 0
    assert page_errors == []


def test_notebook_07_in_the_lab(url, page, page_errors):
    """A slider of the first lesson changes the answer; the Explorer runs ELYSIUM, which changes nodes as well."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    idle = _run_all(page, url.replace("00_start", "07_elysium"))
    page.wait_for_timeout(5_000)
    page.wait_for_function(idle, timeout=240_000)
    view = page.locator(".dspkit").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    view.get_by_text("200 records/s take 8 instances on 2 nodes.").wait_for(timeout=90_000)
    _press(page, page.locator(".widget-slider", has_text="load").first.locator(".noUi-handle"), "ArrowRight", 20)
    view.get_by_text("220 records/s take 9 instances on 2 nodes.").wait_for(timeout=90_000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "07_elysium_lesson.png")
    start = _button(page, "Start")
    for _ in range(40):  # the notebook draws its cells as they come into view
        if start.count():
            break
        page.mouse.move(750, 700)
        page.mouse.wheel(0, 900)
        page.wait_for_timeout(300)
    start.scroll_into_view_if_needed()
    start.click()
    page.get_by_text("workers 4 → 1").first.wait_for(timeout=90_000)
    page.get_by_text("Finished.").wait_for(timeout=90_000)
    assert page.locator(".widget-slider", has_text="assess s").locator(".widget-readout").inner_text() == "60.0"
    page.locator(".dspkit").last.evaluate("e => e.scrollIntoView({block: 'start'})")
    page.screenshot(path=SHOTS / "07_elysium.png")
    assert page.locator(".dspkit-error").count() == 0
    assert page_errors == []
