"""A report in a real browser without a network: every chart drawn, nothing asked for, nothing run that is data."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import dspkit
from dspkit import report
from dspkit.core import Operator, Topology
from dspkit.policies.ds2 import DS2
from dspkit.simulator import Plant, Service, Simulator
from dspkit.workload import Sine

pytestmark = pytest.mark.browser

EVIL = "<script>alert(1)</script>"
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
WIDE, PHONE = {"width": 1300, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def of_history(tmp_path_factory):
    topology = Topology(
        (Operator("read"), Operator(EVIL), Operator("join", stateful=True), Operator("write")),
        (("read", EVIL), ("read", "join"), (EVIL, "join"), ("join", "write")),
    )
    plant = Plant({"read": Service(1e-4), EVIL: Service(1e-3), "join": Service(5e-4), "write": Service(2e-4)})
    sim = Simulator(topology, plant, Sine(2000, 1500, 300), seed=3)
    history = dspkit.run(DS2(), sim, steps=40, settle=1, seed=3)
    return report.from_history(history, tmp_path_factory.mktemp("report") / "run.html", target_latency_s=0.5)


@pytest.fixture(scope="module")
def of_notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    cells = [
        new_markdown_cell(
            f"# A tiny notebook\n\nProse with $x_1$, {EVIL} and ![far](https://x.org/a.png).\n\n## Charts"
        ),
        new_code_cell(
            "import numpy as np, plotly.graph_objects as go\n"
            f"go.Figure(go.Scatter(y=np.arange(9.0), name={EVIL!r}), layout={{'title': 'Line'}}).show()\n"
            "go.Figure(go.Scattergl(y=np.arange(9.0)), layout={'title': 'Drawn by the graphics card'}).show()\n"
            "go.Figure(go.Heatmap(z=np.eye(5)), layout={'title': 'Map', 'width': 1500}).show()"
        ),
        new_code_cell("import pandas as pd\npd.DataFrame(np.random.default_rng(0).random((3, 30)))"),
    ]
    nbformat.write(new_notebook(cells=cells), folder / "tiny.ipynb")
    return report.from_notebook(folder / "tiny.ipynb", folder / "tiny.html")


@pytest.fixture
def visit(offline_page, page_errors):
    """Opens a file, and afterwards holds that it asked for nothing, complained of nothing, and raised no dialog."""
    requests, dialogs = [], []
    offline_page.on("request", lambda r: requests.append(r.url))
    offline_page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    opened = []

    def visit(path, size=WIDE, scheme="light"):
        offline_page.set_viewport_size(size)
        offline_page.emulate_media(color_scheme=scheme)
        offline_page.goto(path.as_uri())
        offline_page.wait_for_function(
            "() => [...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg, .failed'))"
        )
        opened.append(path.as_uri())
        return offline_page

    yield visit
    assert page_errors == []
    assert dialogs == []
    assert [r[:200] for r in requests if not r.startswith("blob:")] == opened


def charts(page):
    """Width and height of what each chart drew, and how many marks are in it."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.js-plotly-plot')].map(p => {
            const box = p.querySelector('.main-svg').getBoundingClientRect();
            const marks = p.querySelectorAll('.trace, .point, .hm, .gl-canvas').length;
            return {width: box.width, height: box.height, marks, right: p.getBoundingClientRect().right};
        })"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_run(visit, of_history, size, scheme):
    page = visit(of_history, size, scheme)
    drawn = charts(page)
    assert len(drawn) == 2
    assert all(c["width"] > 300 and c["height"] > 150 and c["marks"] for c in drawn)
    assert all(c["right"] <= size["width"] for c in drawn)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]  # nothing sticks out
    page.get_by_text(EVIL).locator("visible=true").first.wait_for()
    shot(page, f"report-run-{size['width']}-{scheme}")


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_notebook(visit, of_notebook, size):
    page = visit(of_notebook, size)
    drawn = charts(page)
    assert len(drawn) == 3
    assert all(c["width"] > 300 and c["height"] > 150 and c["marks"] for c in drawn)
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    page.locator("figcaption", has_text="Drawn by the graphics card").wait_for()
    assert not page.get_by_text("default_rng").first.is_visible()  # the code is folded
    page.get_by_text("Code").first.click()
    assert page.get_by_text("import numpy").is_visible()
    shot(page, f"report-notebook-{size['width']}")


def test_dark_is_dark_and_charts_too(visit, of_history):
    page = visit(of_history, scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
    assert "invert" in page.evaluate("getComputedStyle(document.querySelector('.plot')).filter")


def test_contents_lead_to_the_cards(visit, of_history):
    page = visit(of_history)
    page.get_by_role("link", name="The operators").click()
    assert page.get_by_role("heading", name="The operators").is_visible()
    assert page.url.endswith("-the-operators")
    page.go_back()


def test_a_decision_tells_why_when_pointed_at(visit, of_history):
    page = visit(of_history)
    page.locator(".js-plotly-plot").nth(1).locator(".point").first.hover(force=True)
    page.locator(".hoverlayer .hovertext").first.wait_for()
    assert EVIL in page.content().replace("&lt;", "<").replace("&gt;", ">")


def test_printed_charts_fit_the_paper_and_come_back(visit, of_history):
    page = visit(of_history)
    before = charts(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_function("() => document.querySelector('.main-svg').getBoundingClientRect().width == 680")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(
        f"() => document.querySelector('.main-svg').getBoundingClientRect().width == {before[0]['width']}"
    )
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_script_that_gets_in_all_the_same_is_not_run(visit, of_history, page_errors):
    """The page's own policy: only scripts it was written with run."""
    page = visit(of_history)
    page.evaluate(
        "() => { const s = document.createElement('img'); s.setAttribute('onerror', 'window.ran = 1');"
        " s.src = 'data:image/png;base64,'; document.body.append(s); }"
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in e for e in page_errors)
    page_errors.clear()


def test_a_chart_that_cannot_be_drawn_says_so_and_the_others_are_drawn(visit, tmp_path):
    figures = {"Bad": {"data": [None]}, "Good": {"data": [{"y": [1, 2]}]}}
    sections = [report.Section(title, figure=figure) for title, figure in figures.items()]
    page = visit(report.write(sections, tmp_path / "r.html", title="T"))
    assert page.get_by_text("This chart could not be drawn: ").is_visible()
    assert len(charts(page)) == 1


def shot(page, name):
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def test_charts_side_by_side_are_scrolled_on_a_phone_and_it_says_so(visit, tmp_path):
    axes = {"xaxis": {"domain": [0, 0.45]}, "xaxis2": {"domain": [0.55, 1], "anchor": "y2"}, "yaxis2": {"anchor": "x2"}}
    figure = {"data": [{"y": [1, 2]}, {"y": [2, 1], "xaxis": "x2", "yaxis": "y2"}], "layout": axes}
    path = report.write([report.Section("Two", figure=figure)], tmp_path / "r.html", title="T")
    page = visit(path, PHONE)
    page.get_by_text("scroll it sideways").wait_for()
    assert [round(c["width"]) for c in charts(page)] == [640]
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert visit(path, WIDE).get_by_text("scroll it sideways").count() == 0


def test_formulas_are_set_without_a_network(visit, of_notebook):
    page = visit(of_notebook)
    formula = page.locator("math").first
    assert formula.text_content() == "x1"
    places = (
        "e => ['mi', 'mn'].map(name => e.querySelector(name).getBoundingClientRect()).map(r => [r.width, r.bottom])"
    )
    (letter, letter_ends), (number, number_ends) = formula.evaluate(places)
    assert 0 < number <= letter < 60
    assert number_ends > letter_ends  # an index stands lower than its letter
