"""Notebooks as a person uses them: a real JupyterLab, a real kernel, a real browser."""

import re
from pathlib import Path

import nbformat
import pytest

from real_lab import IDLE, ROOT, run_all, save

SHOTS = ROOT / "build" / "screenshots"
# The windows that the Explorer's cockpit has drawn.
POINTS = "() => Number(document.querySelector('.dspkit .ck')?.dataset.windows ?? 0)"


pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(lab):
    """The address of notebook 00."""
    return re.sub(r"/lab/\S*\?", "/lab/tree/notebooks/00_start.ipynb?", lab)


def _button(page, text):
    """By its text: the icon is part of a button's accessible name."""
    return page.locator("button.jupyter-button", has_text=text)


# How tall the Explorer's chart is in each of the next frames; 0 where it is not drawn.
HEIGHTS = """frames => new Promise(done => {
    const seen = [];
    const look = () => {
        const chart = document.querySelector('.dspkit .ck-canvas');
        seen.push(Math.round(chart?.getBoundingClientRect().height ?? 0));
        seen.length < frames ? requestAnimationFrame(look) : done(seen);
    };
    look();
})"""


def _windows(page, count):
    page.wait_for_function(f"count => ({POINTS})() >= count", arg=count, timeout=240_000)


def test_the_cockpit_by_mouse_and_keyboard(url, page, page_errors):
    """A move by keys, a drag, a click; a span; rewind and branch; undo; the page opened again while a run goes."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    _open(page, url)
    acknowledged = page.evaluate(
        """() => new Promise(done => {
            const start = performance.now(), button = document.querySelector('.ck-press[data-name=Start]');
            const look = () => document.querySelector('.ck-status').textContent.startsWith('Starting')
                ? done(performance.now() - start) : requestAnimationFrame(look);
            button.click();
            look();
        })"""
    )
    assert acknowledged < 5_000  # by the browser itself, without the kernel
    _windows(page, 3)
    count = page.locator(".ck-node[data-operator=count]")
    count.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.locator(".ck-hand", has_text="count").first.wait_for(timeout=240_000)
    box = count.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 60, steps=5)
    page.mouse.up()
    page.wait_for_function("() => document.querySelectorAll('.ck-hand').length >= 2", timeout=240_000)
    page.get_by_text("Finished.").wait_for(timeout=240_000)
    count.focus()
    page.keyboard.press("Enter")
    page.locator(".ck-panel", has_text="one instance can do").wait_for(timeout=240_000)
    every = page.locator(".ck-entry:visible").count()
    page.locator(".ck-canvas").scroll_into_view_if_needed()  # the panel has moved it
    chart = page.locator(".ck-canvas").bounding_box()
    page.mouse.move(chart["x"] + chart["width"] * 0.5, chart["y"] + 60)
    page.mouse.down()
    page.mouse.move(chart["x"] + chart["width"] * 0.6, chart["y"] + 60, steps=5)
    page.mouse.up()
    page.locator(".ck-chip", has_text=" to ").wait_for(timeout=240_000)
    assert page.locator(".ck-entry:visible").count() < every  # the list shows the span, too
    page.locator(".ck-time button", has_text="Latest").click()
    page.locator(".ck-scrub").evaluate("e => { e.value = 30; e.dispatchEvent(new Event('input')); }")
    page.locator(".ck-chip", has_text="t = 310 s").wait_for(timeout=240_000)
    page.get_by_label("policy", exact=True).select_option("static")
    page.locator(".ck-outlook", has_text="every change is yours").wait_for(timeout=240_000)
    page.locator(".ck-time button", has_text="Branch here").click()
    page.locator(".ck-hand", has_text="policy Static()").wait_for(timeout=240_000)
    assert page.locator(".ck-with option:checked").inner_text().startswith("1: ds2")
    page.get_by_text("Finished.").wait_for(timeout=240_000)
    _button(page, "Undo").click()
    page.wait_for_function("() => document.querySelector('.dspkit select[title*=policy]')?.value !== 'static'")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "00_branch.png")
    assert page.locator(".dspkit-error").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


def _open(page, url, first="Start"):
    """The same once the button with this text, or the first slider, is there."""
    run_all(page, url)
    waited = _button(page, first) if first else page.locator(".dspkit .widget-slider").first
    waited.wait_for(timeout=240_000)
    waited.scroll_into_view_if_needed()


def _press(page, handle, key, times):
    handle.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_notebook_00_in_the_lab(url, page, page_errors, offline_page):
    page.set_viewport_size({"width": 1500, "height": 1320})
    _open(page, url)

    # Slowly, so that there is time to look. Start: the chart appears, grows during the run, and keeps its
    # height in all redraws.
    speed = page.locator(".widget-slider", has_text="speed").locator(".noUi-handle")
    _press(page, speed, "ArrowLeft", 6)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 3", timeout=240_000)
    seen = page.evaluate(POINTS)
    page.wait_for_function(f"seen => ({POINTS})() > seen", arg=seen, timeout=240_000)
    heights = page.evaluate(HEIGHTS, 120)
    assert min(heights) == max(heights) > 450, heights

    # Pause holds it, and Resume continues it.
    _button(page, "Pause").click()
    page.get_by_text("Paused: t =").wait_for(timeout=240_000)
    held = page.evaluate(POINTS)
    _button(page, "Resume").click()
    page.wait_for_function(f"held => ({POINTS})() > held", arg=held, timeout=240_000)

    # A slider moved by keyboard and another policy, while it runs.
    page.get_by_label("policy", exact=True).select_option("static")
    _press(page, page.locator(".widget-slider", has_text="flat_map").locator(".noUi-handle"), "ArrowRight", 3)
    page.locator(".ck-hand", has_text="by hand").first.wait_for(timeout=240_000)

    _button(page, "Stop").click()
    page.get_by_text("Stopped.").wait_for(timeout=240_000)
    _button(page, "Export report").click()
    link = page.locator(".dspkit a", has_text=".html")
    link.wait_for(timeout=240_000)
    report = Path(page.locator(".dspkit code", has_text=".html").inner_text())
    assert 100_000 < report.stat().st_size < 7_000_000
    offline_page.goto(report.as_uri())  # a page of its own, whose network is off
    offline_page.wait_for_function(
        """() => { const plots = [...document.querySelectorAll('.plot')];
            return plots.length >= 2 && plots.every(p => p.querySelector('.main-svg .trace, .main-svg .points')); }""",
        timeout=240_000,
    )
    assert offline_page.get_by_text("The settings of the view").count()
    SHOTS.mkdir(parents=True, exist_ok=True)
    offline_page.screenshot(path=SHOTS / "00_report.png", full_page=True)

    # The decisions' reasons, in the list and under the mouse; and the picture in the README.
    page.get_by_label("policy", exact=True).select_option("ds2")
    _button(page, "Reset").click()
    _press(page, speed, "Home", 1)
    _button(page, "Start").click()
    page.get_by_text("Finished.").wait_for(timeout=240_000)
    assert "scale=" not in page.locator(".dspkit pre").inner_text()  # an untouched slider says nothing
    page.evaluate("() => document.querySelector('.jp-toast-button[title=No]')?.click()")
    page.locator(".dspkit").first.evaluate("e => e.closest('.jp-Cell').scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "00_start.png")
    page.locator(".ck-entry", has_text="k/s arrive: 3.").first.wait_for(timeout=240_000)
    box = page.locator(".ck-canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    page.locator(".ck-tip", has_text="throughput").wait_for(timeout=240_000)

    for width in (900, 1300, 1500):  # a chart that is not redrawn keeps its height, too
        page.set_viewport_size({"width": width, "height": 1320})
        page.wait_for_timeout(700)
        assert min(page.evaluate(HEIGHTS, 10)) > 450

    assert page.locator(".dspkit-error").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


def test_the_lab_comes_up_with_the_index_and_its_links_lead_to_notebooks(lab, page, page_errors):
    page.goto(lab)
    index = page.locator(".jp-MarkdownViewer")
    index.get_by_role("heading", name="The notebooks").wait_for(timeout=240_000)
    page.wait_for_timeout(500)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "index.png")
    assert index.get_by_role("link").count() >= 10
    index.get_by_role("link", name="The simulator, and why to trust it").click()
    page.locator(".jp-NotebookPanel:visible h1", has_text="why to trust it").wait_for(timeout=240_000)
    assert [e for e in page_errors if not e.startswith("request")] == []


def test_keyboard_reaches_every_control_and_each_has_a_name_in_both_themes(url, page):
    _open(page, url)
    for theme in ("Dark", "Light"):
        page.get_by_role("menuitem", name="Settings", exact=True).click()
        page.get_by_text("Theme", exact=True).hover()
        page.get_by_text(f"JupyterLab {theme}", exact=True).click()
        page.wait_for_function(
            f"() => document.body.dataset.jpThemeLight === '{str(theme == 'Light').lower()}'", timeout=240_000
        )
        assert page.evaluate(CONTRAST) == []
        page.locator(".dspkit").first.evaluate("e => e.scrollIntoView({block: 'start'})")
        page.screenshot(path=SHOTS / f"00_{theme.lower()}.png")
    unreachable, nameless = page.evaluate(CONTROLS)
    assert (unreachable, nameless) == ([], [])


# Controls that Tab does not come to, and those that say nothing of themselves.
CONTROLS = """() => {
    const kinds = 'button, select, input, textarea, .noUi-handle';
    const all = [...document.querySelectorAll(`.dspkit :is(${kinds})`)]
        .filter(e => e.offsetParent && !e.disabled && e.type !== 'hidden');
    const name = e => e.getAttribute('aria-label') || e.title || e.textContent.trim() || e.placeholder
        || (e.labels && [...e.labels].map(l => l.textContent).join('')) || e.closest('[title]')?.title
        || e.closest('.widget-inline-hbox')?.querySelector('label')?.textContent;
    return [all.filter(e => e.tabIndex < 0).map(e => e.outerHTML.slice(0, 120)),
            all.filter(e => !name(e)).map(e => e.outerHTML.slice(0, 120))];
}"""

# Words in a view whose colour is too near to that of what is behind them (WCAG AA asks for 4.5; 3 for what is bold).
CONTRAST = """() => {
    const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = e => { for (; e; e = e.parentElement) {
        const c = rgb(getComputedStyle(e).backgroundColor); if (c.length && (c.length < 4 || c[3] > 0.5)) return c; }
        return [255, 255, 255]; };
    const low = [];
    const kinds = 'label, button, p, li, b, em, pre, .widget-readout, select';
    for (const e of document.querySelectorAll(`.dspkit :is(${kinds})`)) {
        if (!e.offsetParent || e.disabled || !e.textContent.trim() || e.closest('.js-plotly-plot')) continue;
        const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 3) low.push(ratio.toFixed(1) + ' ' + e.outerHTML.slice(0, 80));
    }
    return low;
}"""


def test_what_people_do_to_a_running_view_leaves_nothing_stuck(url, page, page_errors):
    """The cell run again, Stop pressed twice, the tab closed and opened, the kernel restarted: all while a run goes."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    _open(page, url)
    _press(page, page.locator(".widget-slider", has_text="speed").locator(".noUi-handle"), "ArrowLeft", 7)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 2", timeout=240_000)

    # The cell again: its former run ends, and the new view is ready.
    page.locator(".dspkit").first.evaluate("e => e.closest('.jp-Cell').querySelector('.cm-content').focus()")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Press Start.").wait_for(timeout=240_000)
    _press(page, page.locator(".widget-slider", has_text="speed").locator(".noUi-handle"), "ArrowLeft", 7)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 2", timeout=240_000)

    # The tab closed and opened again: the run continues, and the view shows it.
    seen = page.evaluate(POINTS)
    save(page)
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_function(f"seen => ({POINTS})() > seen", arg=seen, timeout=240_000)
    _button(page, "Stop").click()
    stop = page.locator("button.jupyter-button", has_text="Stop").first
    stop.evaluate("e => { e.click(); e.click(); }")
    page.get_by_text("Stopped.").wait_for(timeout=240_000)
    assert page.locator(".dspkit-error").count() == 0

    # The kernel restarted while a run goes: no trace, and all runs again.
    _button(page, "Start").click()
    page.get_by_text("Running: t =").wait_for(timeout=240_000)
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_text("Restart Kernel and Run All Cells…", exact=True).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    page.get_by_text("Press Start.").wait_for(timeout=240_000)
    page.wait_for_function(IDLE, timeout=240_000)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 2", timeout=240_000)
    assert page.locator(".dspkit-error").count() == 0
    assert page.get_by_text("Traceback").count() == 0
    lost = "script: Cannot send"  # JupyterLab's own word for a widget whose kernel has just gone
    assert [e for e in page_errors if e.startswith("script") and e != lost] == []


@pytest.mark.spark
def test_the_switch_between_the_simulator_and_live_spark(url, page, page_errors):
    """One view: simulated first, then the same policy on a real job, which is started, held and stopped."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    _open(page, url)
    code = page.locator(".dspkit pre")
    assert "app.spark(" not in code.inner_text()
    _press(page, page.locator(".widget-slider", has_text="activation").locator(".noUi-handle"), "ArrowRight", 1)
    page.wait_for_function("() => document.querySelector('.dspkit pre').innerText.includes('activation=')")
    label, button = page.locator(".dspkit label", has_text="runs on"), page.get_by_role("button", name="simulated")
    assert abs(label.bounding_box()["y"] - button.bounding_box()["y"]) < 5  # in one row
    _shoot(page, "00_switch_simulated")
    page.get_by_role("button", name="live Spark").click()
    page.wait_for_function("() => document.querySelector('.dspkit pre').innerText.includes('app.spark(')")
    assert "activation=" in code.inner_text()
    assert not page.locator(".widget-slider", has_text="speed, windows/s").is_visible()
    _shoot(page, "00_switch_live")
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 4", timeout=240_000)
    _shoot(page, "00_switch_running")
    _button(page, "Pause").click()
    page.get_by_text("Paused: t =").wait_for(timeout=240_000)
    _button(page, "Resume").click()
    page.get_by_text("Running: t =").wait_for(timeout=240_000)
    _button(page, "Stop").click()
    page.get_by_text("Stopped.").wait_for(timeout=240_000)
    assert page.evaluate(CUT_OFF) == []
    page.get_by_role("button", name="simulated").click()
    page.get_by_text("Press Start.").wait_for(timeout=240_000)
    _button(page, "Start").click()
    page.wait_for_function(f"() => ({POINTS})() >= 4", timeout=240_000)
    assert page.locator(".dspkit-error").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


# Words of the controls on the left that are wider than their box.
CUT_OFF = """() => [...document.querySelectorAll('.dspkit :is(button, label, .widget-html-content, .widget-label)')]
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 120))"""


def _shoot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate("() => document.querySelector('.jp-toast-button[title=No]')?.click()")
    page.locator(".dspkit").first.evaluate("e => e.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)
    page.screenshot(path=SHOTS / f"{name}.png")


def test_notebook_01_in_the_lab(url, page, page_errors):
    """Each lesson's picture follows its slider; what they say changes with it."""
    page.set_viewport_size({"width": 1500, "height": 1200})
    _open(page, url.replace("00_start", "01_simulator"), first="")
    page.locator(".dspkit").nth(2).wait_for(timeout=240_000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    for n, (knob, key) in enumerate((("utilisation", "End"), ("cores", "Home"), ("cores", "End"))):
        lesson = page.locator(".jp-OutputArea .dspkit").nth(n)
        lesson.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=240_000)
        before = lesson.locator("em").first.inner_text()
        _press(page, lesson.locator(".widget-slider", has_text=knob).first.locator(".noUi-handle"), key, 1)
        changed = "([e, before]) => e.querySelector('em').innerText !== before"
        page.wait_for_function(changed, arg=[lesson.element_handle(), before], timeout=240_000)
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
    idle = run_all(page, url.replace("00_start", "06_markov"))
    _button(page, "Sweep").wait_for(timeout=240_000)
    page.wait_for_function(idle, timeout=240_000)
    view = page.locator(".dspkit").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    lost = view.get_by_text("events lost:")
    before = lost.inner_text()
    _press(page, page.locator(".widget-slider", has_text="upper").locator(".noUi-handle"), "ArrowLeft", 5)
    page.wait_for_function(
        "before => ![...document.querySelectorAll('.dspkit p')].some(p => p.innerText === before)",
        arg=before,
        timeout=240_000,
    )
    view.get_by_text("The map is of the knobs before").wait_for(timeout=240_000)
    page.wait_for_function("[...document.querySelectorAll('.jp-RenderedMarkdown img')].every(i => i.naturalWidth > 0)")
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / "06_markov.png")
    assert page.locator(".dspkit-error").count() == 0
    assert page_errors == []


FORMS = (
    "from dspkit import ui",
    "data = ui.OwnData(); data",
    "mine = ui.OwnApp('read > parse > store'); mine",
)


def test_an_uploaded_table_and_an_application_of_a_form(lab, lab_folder, page, page_errors):
    """A table is sent, its guessed unit changed and confirmed by keyboard; an application is made, and runs twice."""
    page.set_viewport_size({"width": 1500, "height": 1320})
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in FORMS])
    book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(book, lab_folder / "forms.ipynb")
    run_all(page, re.sub(r"/lab/\S*\?", "/lab/tree/forms.ipynb?", lab))
    view = page.locator(".dspkit").first
    view.get_by_placeholder("metrics.csv").wait_for(timeout=240_000)
    with page.expect_file_chooser() as chooser:
        _button(page, "Upload a table").click()
    chooser.value.set_files(ROOT / "data" / "recorded_job.csv")
    view.get_by_text("values up to 2100").wait_for(timeout=240_000)  # the reason of a guess
    graph = view.get_by_placeholder("read > parse > store")
    graph.fill("read > parse > enrich > score > store\nparse > sessions > store")
    graph.press("Tab")
    button = _button(page, "The columns and units are right")
    button.focus()
    page.keyboard.press("Enter")
    view.get_by_text("77 windows of 6 operators").wait_for(timeout=240_000)
    view.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=240_000)
    assert "loaders.Table('" in view.locator("pre").inner_text()
    _shoot(page, "form_data")
    mine = page.locator(".dspkit").nth(1)
    mine.evaluate("e => e.scrollIntoView({block: 'start'})")
    service = mine.get_by_label("parse, ms", exact=True)
    service.fill("4")
    service.press("Tab")
    mine.locator("pre", has_text="'parse': Service(0.004)").wait_for(timeout=240_000)
    _button(page, "Open in the Explorer").click()
    duel = _button(page, "load step × 3")
    duel.wait_for(timeout=240_000)
    page.screenshot(path=SHOTS / "form_app.png")
    duel.click()
    page.locator(".ck-with option:checked", has_text="1: hpa on my_job").wait_for(state="attached", timeout=240_000)
    page.get_by_text("Finished.").wait_for(timeout=240_000)
    page.locator(".ck-summary", has_text="ds2: In 900 s").wait_for(timeout=240_000)
    page.locator(".ck").evaluate("e => e.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(500)
    page.screenshot(path=SHOTS / "two_runs.png")
    assert page.locator(".dspkit-error").count() == 0
    assert [e for e in page_errors if not e.startswith("request")] == []


def test_notebook_07_in_the_lab(url, lab_folder, page, page_errors):
    """A slider of the first lesson changes the answer; the Explorer runs ELYSIUM, which changes nodes as well.

    Without its live section, which needs no other cell: test_notebooks.py runs that by itself.
    """
    page.set_viewport_size({"width": 1500, "height": 1320})
    path = lab_folder / "notebooks" / "07_elysium.ipynb"
    notebook = nbformat.read(path, 4)
    notebook.cells = [cell for cell in notebook.cells if "live" not in cell.metadata.get("tags", ())]
    nbformat.write(notebook, path)
    idle = run_all(page, url.replace("00_start", "07_elysium"))
    page.wait_for_timeout(5_000)
    page.wait_for_function(idle, timeout=240_000)
    view = page.locator(".dspkit").first
    view.evaluate("e => e.scrollIntoView({block: 'start'})")
    view.get_by_text("200 records/s take 8 instances on 2 nodes.").wait_for(timeout=240_000)
    _press(page, page.locator(".widget-slider", has_text="load").first.locator(".noUi-handle"), "ArrowRight", 20)
    view.get_by_text("220 records/s take 9 instances on 2 nodes.").wait_for(timeout=240_000)
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
    page.get_by_text("workers 4 → 1").first.wait_for(timeout=240_000)
    page.get_by_text("Finished.").wait_for(timeout=240_000)
    assert page.locator(".widget-slider", has_text="decision interval s").first.locator(
        ".widget-readout"
    ).text_content() in ("60", "60.0")
    page.locator(".dspkit").last.evaluate("e => e.scrollIntoView({block: 'start'})")
    page.screenshot(path=SHOTS / "07_elysium.png")
    assert page.locator(".dspkit-error").count() == 0
    assert page_errors == []
