"""A report is one safe, self-contained file that says what happened."""

import base64
import json
import math
import os
import re
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import nbformat
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from plotly.offline import get_plotlyjs

import dspkit
from dspkit import apps, plots, report
from dspkit.core import DspkitError, FileError, History, NotFoundError, Operator, Topology
from dspkit.core.html import html_table, packaged, words
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.report import Section
from dspkit.report.html import clean, markdown
from dspkit.report.notebook import NotebookError
from dspkit.report.page import slug
from dspkit.simulator import Plant, Service, Simulator
from dspkit.workload import Constant

EVIL = "<script>alert(1)</script>"


class Seen(HTMLParser):
    """What a browser would see: text, scripts that run, figures, attributes."""

    def __init__(self, text):
        super().__init__()
        self.text, self.run, self.json, self.tags, self._open = "", [], {}, [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._open = dict(attributes) | {"tag": tag}

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._open = None

    def handle_data(self, data):
        if self._open is None:
            self.text += data
        elif self._open.get("type") == "application/json":
            self.json[self._open["id"]] = json.loads(data)
        elif self._open["tag"] == "script":
            self.run.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def seen(path):
    return Seen(path.read_text("utf-8"))


@pytest.fixture
def history():
    app = apps.word_count()
    return dspkit.run(DS2(), app.simulator(Constant(200e3)), steps=6, seed=7)


@pytest.fixture
def chart():
    return go.Figure(go.Scatter(x=np.arange(5.0), y=[1, 2, None, 4, 5]), layout={"meta": {"summary": "It rises."}})


def write(tmp_path, *sections, **options):
    return seen(report.write(sections, tmp_path / "r.html", **{"title": "T", **options}))


def test_plotly_once_and_only_when_there_is_a_chart(tmp_path, chart):
    without = write(tmp_path, Section("A", "words"))
    assert without.run == []
    assert not without.json
    many = write(tmp_path, *[Section(f"C{i}", figure=chart) for i in range(3)], overwrite=True)
    assert sum("plotly.js v" in script for script in many.run) == 1
    assert len(many.run) == 2  # plotly and the few lines that draw
    assert sorted(many.json) == ["figure-1", "figure-2", "figure-3"]


def test_nothing_is_fetched(tmp_path, chart):
    page = write(tmp_path, Section("A", figure=chart, html="<img src='https://x.org/a.png'><img src='//x.org/a.png'>"))
    assert [a for tag, a in page.tags if tag in ("img", "iframe", "object", "embed", "source") and "src" in a] == []
    assert [a.get("src") for a in page.all("script")] == [None] * 3
    assert [a["href"] for a in page.all("link")] == ["data:,"]
    assert not re.search(r"url\(|@import", (packaged("report/assets/report.css")))
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_text_from_data_is_shown_and_not_run(tmp_path):
    page = write(
        tmp_path,
        Section(EVIL, EVIL, table=pd.DataFrame({EVIL: [EVIL]}), code=EVIL),
        Section("B", figure={"data": [{"type": "bar", "name": EVIL}], "layout": {"meta": {"summary": f'" {EVIL}'}}}),
        title=EVIL,
        about={EVIL: EVIL},
    )
    assert len(page.run) == 2
    assert not any("alert" in script for script in page.run)
    assert page.text.count(EVIL) == 11  # two titles, contents, heading, sentence, code, head, cell, caption, about x 2
    assert page.json["figure-1"]["data"][0]["name"] == EVIL
    plot = next(a for a in page.all("div") if a.get("class") == "plot")
    assert plot["aria-label"] == f'" {EVIL}'
    label = next(a["aria-label"] for a in page.all("div") if a.get("class") == "scroll")
    assert label == f"Table: {EVIL}"


def test_html_is_sanitised(tmp_path):
    html = (
        f"<p onclick='x()'>kept</p>{EVIL}<style>p{{}}</style><iframe src='x'></iframe><form action='/x'></form>"
        "<a href='javascript:x()'>a</a><a href='data:text/html,x'>b</a><svg onload='x()'></svg><img src='x.png'>"
    )
    page = write(tmp_path, Section("A", html=html))
    assert page.run == []
    assert not {"iframe", "form", "svg"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert all(a.get("href", "#")[0] == "#" for a in page.all("a"))
    assert "kept" in page.text
    assert "x()" not in page.text


def test_a_figure_comes_back_as_it_was(tmp_path, chart):
    trace = write(tmp_path, Section("A", figure=chart)).json["figure-1"]["data"][0]
    assert np.frombuffer(base64.b64decode(trace["x"]["bdata"]), trace["x"]["dtype"]).tolist() == [0, 1, 2, 3, 4]
    assert trace["y"] == [1, 2, None, 4, 5]
    spec = {"data": [{"y": [1.5, math.nan]}], "layout": {}}
    assert write(tmp_path, Section("A", figure=spec), overwrite=True).json["figure-1"]["data"] == [{"y": [1.5, None]}]


def test_a_figure_cannot_end_its_script(tmp_path, monkeypatch):
    """Plotly escapes as well; the page does not rely on it."""
    monkeypatch.setattr("plotly.io.json.to_json_plotly", json.dumps)
    page = write(tmp_path, Section("A", figure={"data": [{"name": f"</script>{EVIL}<!--"}]}))
    assert page.json["figure-1"]["data"][0]["name"] == f"</script>{EVIL}<!--"
    assert len(page.run) == 2


def test_long_lists_of_numbers_are_packed_without_loss(tmp_path):
    lists = {"whole": [1234.0 + i for i in range(100)], "gap": [math.sqrt(i) if i % 7 else None for i in range(100)]}
    kept = {"text": ["a"] * 100, "short": [1.0] * 63, "mixed": [1, "a"] * 50, "none": [None] * 100, "zeros": [0] * 100}
    spec = {"data": [{"y": values} for values in (lists | kept).values()]}
    page = write(tmp_path, Section("A", figure=spec))
    shown = [trace["y"] for trace in page.json["figure-1"]["data"]]
    for packed, values in zip(shown, lists.values(), strict=False):
        array = np.frombuffer(base64.b64decode(packed["bdata"]), f"<{packed['dtype']}")
        np.testing.assert_array_equal(array, np.array(values, dtype=float))
    assert [p["dtype"] for p in shown[:2]] == ["f4", "f8"]
    assert shown[2:] == list(kept.values())


@pytest.mark.parametrize(
    ("layout", "sentence", "said"),
    [
        ({"meta": {"summary": "It <rises>."}}, "It <rises>.", "It <rises>."),
        ({}, "From the section.", "From the section."),
        ({"title": {"text": "The <b>title</b> &amp; more"}}, "", "The  title  & more"),
        ({"title": "Plain"}, "", "Plain"),
        ({}, "", "Card"),
    ],
)
def test_every_chart_says_what_it_shows(tmp_path, layout, sentence, said):
    page = write(tmp_path, Section("Card", sentence, figure={"data": [], "layout": layout}))
    assert next(a for a in page.all("div") if a.get("class") == "plot")["aria-label"] == said
    assert len(page.all("figcaption")) == 1
    if sentence:
        assert page.text.count(said) == 1  # not above and below


def test_a_sentence_of_its_own_stands_beside_the_summary(tmp_path, chart):
    text = write(tmp_path, Section("Card", "My view.", figure=chart)).text
    assert text.index("My view.") < text.index("It rises.")


def test_a_plot_is_taken_as_it_is(tmp_path, history):
    plot = plots.timeline(history)
    page = write(tmp_path, Section("A", figure=plot))
    assert page.json["figure-1"]["layout"]["meta"]["summary"] == plot.summary
    assert page.text.count(plot.summary) == 1


def test_contents_link_to_every_card(tmp_path):
    page = write(tmp_path, Section("One"), Section("", "goes on"), Section("Two"), Section("Two"), references="stela")
    links = [a["href"][1:] for a in page.all("a") if a.get("href", "").startswith("#")]
    cards = [a["id"] for a in page.all("section")]
    assert links == cards
    assert len(set(cards)) == len(cards) == 5  # One, Two, Two, about, references
    assert page.text.index("One") < page.text.index("goes on") < page.text.index("Two", page.text.index("goes on"))


def test_about_names_settings_and_versions(tmp_path):
    page = write(tmp_path, Section("A"), about={"seed": 1234567, "on": True, "none": None, "code": "f(\n  x\n)"})
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', (tmp_path / "r.html").read_text(), re.DOTALL))
    assert rows["seed"] == "1234567"
    assert rows["on"] == "yes"
    assert rows["code"] == "<pre>f(\n  x\n)</pre>"
    assert rows["dspkit"] == dspkit.__version__
    assert {"python", "plotly", "numpy", "pandas"} <= set(rows)
    assert page.all("meta")[0] == {"charset": "utf-8"}


def test_references_are_there_as_text_and_bibtex(tmp_path):
    text = write(tmp_path, Section("A"), references=["stela", DS2]).text
    assert "Xu, Peng, Gupta (2016). Stela: Enabling" in text
    assert "@inproceedings{stela," in text
    assert "kalavri2018ds2" in text
    with pytest.raises(NotFoundError):
        report.write([Section("A")], tmp_path / "x.html", title="T", references="stella")


def test_a_long_table_is_cut_and_says_so():
    html = html_table(pd.DataFrame({"n": range(1234)}))
    assert html.count("<tr>") == 201
    assert "The first 200 of 1,234 rows." in html
    assert "first" not in html_table(pd.DataFrame({"n": range(200)}))


def test_cells_are_words():
    stamp = pd.Timestamp("2026-01-02 03:04")
    row = [
        None,
        math.nan,
        pd.NaT,
        True,
        np.bool_(False),
        0.123456,
        9999.99,
        123456.7,
        1234567,
        {"a": 1.0},
        ("x", 2),
        stamp,
    ]
    want = ["", "", "", "yes", "no", "0.1235", "10,000", "123,457", "1,234,567", "a 1", "x, 2", "2026-01-02 03:04:00"]
    assert [words(v) for v in row] == want
    gaps = pd.DataFrame({"whole": pd.array([1, None], "Int64"), "list": [np.arange(2), None]})
    assert re.findall("<td[^>]*>(.*?)</td>", html_table(gaps)) == ["1", "0, 1", "", ""]
    frame = pd.DataFrame({("a", "b"): [1.5], ("a", "c"): ["x"]}, index=["row"])
    assert [*re.findall(r"<th[^>]*>(.*?)</th>", html_table(frame))][1:] == ["a, b", "a, c"]
    assert '<td data-label="index">row</td>' in html_table(frame)
    assert html_table(pd.DataFrame({"a": []})) == '<p class="note">No rows.</p>'


def test_without_a_path_no_two_reports_share_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101-000000")
    with ThreadPoolExecutor(8) as pool:
        one = [pool.submit(report.write, [Section(f"card {i}")], title="Same: ünïcode/..") for i in range(24)]
        paths = [f.result() for f in one]
    assert len(set(paths)) == 24
    assert {p.parent for p in paths} == {tmp_path / "reports"}
    assert paths[0].name.startswith("20260101-000000-same-unicode")
    for i, path in enumerate(paths):
        assert f"card {i}<" in path.read_text()
    assert len(list((tmp_path / "reports").iterdir())) == 24  # nothing half done beside them


def test_an_existing_file_is_kept_unless_told(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("mine")
    with pytest.raises(FileError, match="exists"):
        report.write([Section("A")], path, title="T")
    assert path.read_text() == "mine"
    assert report.write([Section("A")], path, title="T", overwrite=True) == path
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert stat.S_IMODE(path.stat().st_mode) & 0o444


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    monkeypatch.setattr(dspkit.core.files, "write_atomically", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.write([Section("A")], title="T")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (Section("A", figure=3), "a figure that is a int"),
        (Section("A", figure={"layout": {}}), "a dict with data and layout"),
        (Section("A", table=[1, 2]), "a table that is a list"),
    ],
)
def test_wrong_parts_are_refused(tmp_path, section, message):
    with pytest.raises(DspkitError, match=message):
        report.write([section], tmp_path / "r.html", title="T")
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_report_is_refused(tmp_path, history):
    with pytest.raises(DspkitError, match="without sections"):
        report.write([], tmp_path / "r.html", title="T")
    with pytest.raises(DspkitError, match="empty history"):
        report.from_history(History(history.topology), tmp_path / "r.html")


def test_ten_charts_stay_under_seven_megabytes(tmp_path, history):
    drawn = [
        go.Figure([go.Scatter(x=np.arange(600.0), y=np.random.default_rng(i).random(600)) for _ in range(8)])
        for i in range(10)
    ]
    path = report.write([Section(f"C{i}", figure=f) for i, f in enumerate(drawn)], tmp_path / "r.html", title="T")
    assert path.stat().st_size < 7e6


def test_a_run_is_reported_whole(tmp_path, history):
    page = seen(report.from_history(history, tmp_path / "r.html", target_latency_s=0.5))
    assert [h for h in ("What ran", "What happened", "What was decided", "The operators") if h not in page.text] == []
    assert len(page.json) == 3  # the recording that is replayed, and two charts
    assert plots.timeline(history, target_latency_s=0.5).summary in page.text
    assert page.text.count("A run of DS2") == 2  # of the window and of the page
    change = history.decisions[history.decisions.rescaled].iloc[0]
    assert change.changes in page.text
    assert change.why in page.text.replace(";\n", "; ")
    mean = history.operators.query("operator == 'count'").utilisation.mean()
    assert f'data-label="utilisation">{words(mean)}</td>' in (tmp_path / "r.html").read_text()
    assert history.about["policy"] in page.text


def test_a_run_whose_meters_were_all_silent_has_a_report(tmp_path, history):
    mute = [replace(step, snapshot=replace(step.snapshot, operators={}, latency=None)) for step in history]
    text = report.from_history(History(history.topology, mute), tmp_path / "mute.html").read_text()
    assert "What happened" in text


def test_a_run_that_was_saved_gives_the_same_report(tmp_path, history):
    saved = History.load(history.save(tmp_path / "h.parquet"))
    one = report.from_history(history, tmp_path / "1.html", title="Mine")
    two = report.from_history(saved, tmp_path / "2.html", title="Mine")
    bare = [re.sub(r"nonce[-=]\S+|on \d{4}-\d\d-\d\d \d\d:\d\d", "", p.read_text()) for p in (one, two)]
    assert bare[0] == bare[1]


def test_a_run_in_which_nothing_changed_says_so(tmp_path):
    app = apps.word_count()
    history = dspkit.run(Static(), app.simulator(Constant(1e3)), steps=2)
    text = seen(report.from_history(history, tmp_path / "r.html")).text
    assert "None of 2 decisions changed the deployment." in text
    settling = History(history.topology, [type(s)(s.index, s.snapshot, None) for s in history])
    assert "No decision was made" in seen(report.from_history(settling, tmp_path / "s.html")).text


def test_a_run_names_the_work_it_follows(tmp_path, history):
    cited = History(history.topology, history.steps, {**history.about, "reference": ["kalavri2018ds2", "unheard-of"]})
    text = seen(report.from_history(cited, tmp_path / "r.html")).text
    assert "@inproceedings{kalavri2018ds2," in text
    assert "@software{dspkit," in text


def test_an_operator_named_like_a_script(tmp_path):
    topology = Topology((Operator("read"), Operator(EVIL)), (("read", EVIL),))
    sim = Simulator(topology, Plant({"read": Service(1e-4), EVIL: Service(1e-3)}), Constant(100))
    page = seen(report.from_history(dspkit.run(Static(), sim, steps=3), tmp_path / "r.html"))
    assert EVIL in page.text
    assert not any("alert(1)" in script for script in page.run)


def test_slugs():
    assert slug("  Größe / <b>x</b> ") == "gro-e-b-x-b" or slug("A b") == "a-b"
    assert slug("A run of DS2") == "a-run-of-ds2"
    assert slug("日本") == ""
    assert len(slug("x" * 200)) <= 48


# Notebooks

CELLS = [
    new_markdown_cell(f"# On *streams*\n\nProse, $a_1^2 < b$, {EVIL}.\n\n![here](dot.png) ![gone](gone.png)"),
    new_code_cell("x = 'the code'"),
    new_markdown_cell("Intro\n\n## A chart\n\nIt moves."),
    new_code_cell(
        "from IPython.display import display\n"
        "import plotly.graph_objects as go\n"
        "go.Figure(go.Bar(y=[3, 1]), layout={'meta': {'summary': 'Bars fall.'}}).show()\n"
        "display({'text/plain': 'Bars fall.'}, raw=True, metadata={'dspkit': 'summary'})"
    ),
    new_code_cell("import ipywidgets as w\nw.VBox([w.IntSlider(), w.Output()])"),
    new_code_cell(f"import pandas as pd\npd.DataFrame({{'name': ['{EVIL}']}})"),
    new_code_cell("print('\\x1b[1mplain\\x1b[0m <text>')"),
    new_code_cell("from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"),
    new_code_cell("from IPython.display import Markdown\nMarkdown('**bold**')"),
    new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
]


@pytest.fixture(scope="module")
def from_notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "dot.png").write_bytes(b"\x89PNG")
    node = new_notebook(cells=CELLS, metadata={"dspkit": {"references": ["stela"]}})
    nbformat.write(node, folder / "n.ipynb")
    before = (folder / "n.ipynb").read_bytes()
    path = report.from_notebook(folder / "n.ipynb", folder / "n.html")
    assert (folder / "n.ipynb").read_bytes() == before  # run, not changed
    return path


def test_a_notebook_keeps_prose_figures_tables_text(from_notebook):
    page = seen(from_notebook)
    html = from_notebook.read_text()
    assert "<title>On streams</title>" in html
    assert page.text.count("On streams") == 2  # of the page and of its heading
    assert "<msubsup><mi>a</mi><mn>1</mn><mn>2</mn></msubsup><mo>&lt;</mo><mi>b</mi>" in html
    assert "<h2>A chart</h2>" in html
    assert page.text.index("Intro") < page.text.index("It moves.")
    assert list(page.json) == ["figure-1"]
    assert page.json["figure-1"]["data"][0]["type"] == "bar"
    assert page.text.count("Bars fall.") == 3  # below the chart, and twice in the folded code
    assert f"<td>{EVIL.replace('<', '&lt;').replace('>', '&gt;')}</td>" in html
    assert '<pre class="output">plain &lt;text&gt;</pre>' in html
    assert "<strong>bold</strong>" in html
    assert "ZeroDivisionError: division by zero" in page.text
    assert "Xu, Peng, Gupta (2016)" in page.text
    pictures = {a["alt"]: a.get("src", "")[:22] for a in page.all("img")}
    assert pictures["here"] == "data:image/png;base64,"
    assert "gone" not in pictures
    assert "<em>gone</em>" in html
    assert any(src.startswith("data:image/svg+xml") for src in pictures.values())


def test_a_notebook_folds_code_and_leaves_controls_out(from_notebook):
    html = from_notebook.read_text()
    assert re.search(r"<details><summary>Code</summary><pre><code>x = &#39;the code&#39;</code></pre></details>", html)
    assert html.count("<details><summary>Code") == sum(c.cell_type == "code" for c in CELLS)
    assert "IntSlider(value" not in html
    assert "VBox(children" not in html
    assert len(seen(from_notebook).run) == 2


def test_a_notebook_that_fails_gives_no_report(tmp_path):
    nbformat.write(new_notebook(cells=[new_code_cell("a = {}\na['key']")]), tmp_path / "bad.ipynb")
    with pytest.raises(NotebookError) as caught:
        report.from_notebook(tmp_path / "bad.ipynb", tmp_path / "bad.html")
    assert "KeyError: 'key' in cell 1" in str(caught.value)
    assert "a['key']" in str(caught.value)
    assert not (tmp_path / "bad.html").exists()


def test_a_report_in_the_way_is_found_before_the_notebook_runs(tmp_path):
    (tmp_path / "n.html").write_text("mine")
    with pytest.raises(FileError, match="exists"):
        report.from_notebook(tmp_path / "there is none.ipynb", tmp_path / "n.html")


def test_pictures_come_only_from_the_notebooks_side(tmp_path):
    (tmp_path / "a b.png").write_bytes(b"x")
    (tmp_path / "t.txt").write_text("secret")
    assert 'src="data:image/png;base64,eA=="' in markdown("![p](<a b.png>)", tmp_path)
    assert 'src="data:image/png;base64,eA=="' in clean('<img src="a%20b.png">', tmp_path)
    for address in ("t.txt", "https://x.org/a.png", "//x.org/a.png", f"{tmp_path}/a%20b.png", "javascript:x.png"):
        assert clean(f'<img alt="p" src="{address}">', tmp_path) == "<em>p</em>", address
    assert clean(f'<img alt="a > {EVIL} &quot;>" src="x">') == f"<em>a &gt; {escape(EVIL)} &quot;&gt;</em>"
    attached = markdown("![p](attachment:z.png)", attachments={"z.png": {"image/png": "eA=="}})
    assert 'src="data:image/png;base64,eA=="' in attached


@pytest.mark.parametrize("part", ["<details>", "<div></b>", "<b><div></b>", "<DIV/>", "<section\n>"])
def test_elements_in_elements_without_end_are_shown_as_text(part):
    """Cleaning took a time that grew with the square of their number: minutes for a megabyte."""
    began = time.process_time()
    shown = clean(part * 100_000)
    assert time.process_time() - began < 5
    assert shown.startswith("<pre>&lt;")


def test_many_elements_side_by_side_and_some_levels_are_cleaned():
    rows = "<tr><td><b>1</b><td>2" * 5_000
    for html in (
        "<div>" * 400 + "deep" + "</div>" * 400,
        f"<table>{rows}</table>",
        "<p>a<br>" * 5_000,
        "<li>a" * 5_000,
    ):
        shown = clean(html)
        assert "&lt;" not in shown
        assert not shown.startswith("<pre>")


def test_markdown_tables_keep_their_alignment():
    assert '<td style="text-align:right">1</td>' in markdown("| a | b |\n|---|--:|\n| x | 1 |")
    assert "position" not in clean('<table><tr><td style="position:fixed;text-align:left">x</td></tr></table>')


def test_pictures_come_only_from_the_notebook_s_folder(tmp_path):
    """Neither "..", nor its escape, a symbolic link or an absolute path leads out of it."""
    png = b"\x89PNG"
    (tmp_path / "secret.png").write_bytes(png)
    folder = tmp_path / "book"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "own.png").write_bytes(png)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "near.png").symlink_to(folder / "images" / "own.png")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    os.mkfifo(folder / "pipe.png")
    outside = ["../secret.png", "%2e%2e/secret.png", "..%2Fsecret.png", "images/../../secret.png", "link.png"]
    outside += [f"{tmp_path}/secret.png", f"%2F{tmp_path}/secret.png", "pipe.png", "circle.png", "a%00.png"]
    for url in outside:
        assert "data:" not in markdown(f"![words]({url})", folder), url
    for url in ("images/own.png", "near.png", "./images/../images/own.png"):
        assert "data:image/png" in markdown(f"![words]({url})", folder), url


def test_hidden_characters_are_visible_in_reports_and_summaries(tmp_path):
    hidden = "\x1b[2J \u202eevil\u2066 \x07\u200b\ud800"
    history = dspkit.run("static", apps.word_count(), steps=2)
    history.notes.append((1.0, hidden))
    history.set_metadata({**history.about, hidden: hidden})
    section = report.Section(
        hidden, hidden, html=f"<p>{hidden[:-1]}</p>", code=hidden, table=pd.DataFrame({hidden: [hidden]})
    )
    figure = report.Section(
        "Graph", figure={"data": [{"name": hidden[:-1]}], "layout": {"title": {"text": hidden[:-1]}}}
    )
    text = report.write([section, figure], tmp_path / "r.html", title=hidden, about=history.about).read_text()
    own = text.replace(get_plotlyjs().replace("</script", "<\\/script"), "")
    assert not set(hidden) & set(own) - set(" [2Jevil")
    assert "\\u001b" not in own.replace("\\\\u001b", "")
    for shown in (repr(history), history._repr_html_()):
        assert "\\x1b[2J \\u202eevil" in shown
        assert not set("\x1b\u202e\x07") & set(shown)
    with pytest.raises(DspkitError) as caught:
        history.topology[hidden]
    assert not set("\x1b\u202e\x07\ud800") & set(str(caught.value))
