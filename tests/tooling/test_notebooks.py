"""Notebooks are committed bare and run headless; an error in one is found wherever it hides."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from dspkit.core import FileError
from dspkit.report.notebook import NotebookError, execute, plain_text, smoke_source

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(p for p in (ROOT / "notebooks").glob("**/*.ipynb") if ".ipynb_checkpoints" not in p.parts)


@pytest.fixture
def run(tmp_path):
    def run(*sources, **options):
        path = tmp_path / "folder" / "some.ipynb"
        path.parent.mkdir(exist_ok=True)
        cells = [s if isinstance(s, dict) else new_code_cell(s) for s in sources]
        nbformat.write(new_notebook(cells=cells), path)
        return execute(path, **{"timeout_s": 60, **options})

    return run


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_committed_without_outputs_but_pictures_of_views(path):
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["execution_count"] is None
            assert cell["outputs"] in ([], pictures(cell["outputs"])), "".join(cell["source"])[:80]
    assert "widgets" not in json.loads(path.read_text("utf-8"))["metadata"]


def pictures(outputs):
    """The outputs that the course's tool makes of the pictures in notebooks/images."""
    import course

    data = [o["data"].get("image/png") for o in outputs]
    made = [course.stored(path) for path in sorted((ROOT / "notebooks" / "images").glob("*.png"))]
    return next((each for each in made if each[0]["data"]["image/png"] in data), None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_stored_exactly_as_jupyter_writes_it(path):
    """Else JupyterLab changes the file when it saves, and a checkout is dirty after looking at a notebook."""
    text = path.read_text("utf-8")
    assert nbformat.writes(nbformat.reads(text, 4), 4) + "\n" == text
    assert "language_info" in json.loads(text)["metadata"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_readers_see_no_switch_of_the_tests(path):
    for cell in nbformat.read(path, 4).cells:
        assert "smoke" not in cell.source.lower()
        if cell.cell_type == "code":
            compile(smoke_source(cell), path.name, "exec")  # each replacement fits its cell


SPARK = [pytest.mark.spark, pytest.mark.slow]  # of the notebooks, and sections, that start one
SECTIONS = {p for p in NOTEBOOKS if '"live"' in p.read_text("utf-8")}


def cells(path, folder, *, live):
    """Write a copy with the cells that are tagged `live`, or with the others, and return its path."""
    notebook = nbformat.read(path, 4)
    notebook.cells = [c for c in notebook.cells if ("live" in c.metadata.get("tags", ())) is live]
    assert notebook.cells
    copy = folder / path.name
    nbformat.write(notebook, copy)
    return copy


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=SPARK if "spark" in p.stem else (), id=p.stem) for p in NOTEBOOKS]
)
def test_runs_at_smoke_size(path, tmp_path, monkeypatch):
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))  # what it saves stays out of the checkout
    execute(cells(path, tmp_path, live=False) if path in SECTIONS else path, smoke=True, timeout_s=300)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(SECTIONS), ids=lambda p: p.stem)
def test_the_live_section_runs_by_itself_at_smoke_size(path, tmp_path, monkeypatch):
    """Cells that are tagged `live` start Spark, and need no other cell of their notebook."""
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    execute(cells(path, tmp_path, live=True), smoke=True, timeout_s=300)


def test_runs_in_its_own_folder_with_this_python(run, tmp_path, monkeypatch):
    monkeypatch.delenv("DSPKIT_SMOKE", raising=False)
    source = "import os, sys; print(os.getcwd(), sys.executable, os.environ.get('DSPKIT_SMOKE'), sep='\\n')"
    folder = str(tmp_path / "folder")
    assert run(source).cells[0].outputs[0].text.split("\n")[:3] == [folder, sys.executable, "None"]
    assert run(source, smoke=True).cells[0].outputs[0].text.split("\n")[2] == "1"


def test_what_it_saves_goes_where_the_callers_things_go(run, tmp_path, monkeypatch):
    source = "from dspkit.core import files; print(files.home('runs'))"
    monkeypatch.setenv("DSPKIT_HOME", "/elsewhere")
    assert run(source).cells[0].outputs[0].text == "/elsewhere/runs\n"
    monkeypatch.delenv("DSPKIT_HOME")
    monkeypatch.chdir(tmp_path)
    assert run(source).cells[0].outputs[0].text == f"{tmp_path}/runs\n"


def test_a_kernelspec_of_the_users_does_not_shadow_ours(run, tmp_path, monkeypatch):
    spec = tmp_path / "data" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "wrong", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    assert run("print('here')").cells[0].outputs[0].text == "here\n"


def test_an_error_in_a_cell_shows_its_source_and_the_last_line(run):
    with pytest.raises(NotebookError) as caught:
        run(new_markdown_cell("# Words"), "x = 3", "y = 0\nprint(x / y)")
    assert "got ZeroDivisionError: division by zero in cell 3 of some.ipynb" in str(caught.value)
    assert "\n    y = 0\n    print(x / y)" in str(caught.value)


def test_an_error_that_is_meant_is_let_through(run):
    cell = new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]})
    assert run(cell, "print('on')").cells[1].outputs[0].text == "on\n"


HIDDEN = {
    "caught by an Output": "import ipywidgets as w\nout = w.Output()\nwith out:\n    1 / 0",
    "assigned to an Output": (
        "import ipywidgets as w\nw.Output(outputs=("
        "{'output_type': 'error', 'ename': 'ZeroDivisionError', 'evalue': 'z', 'traceback': []},))"
    ),
    "a traceback printed into an Output": (
        "import ipywidgets as w, traceback\nout = w.Output()\nwith out:\n"
        "    try: 1 / 0\n    except ZeroDivisionError: traceback.print_exc()"
    ),
    "in a thread": "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
    "shown by a view": "import ipywidgets as w\nw.HTML('<p class=\"dspkit-error\">ZeroDivisionError: <b>z</b></p>')",
}


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_error_is_found(run, source):
    with pytest.raises(NotebookError, match=r"got ZeroDivisionError: .*some.ipynb"):
        run(source, "print('the run went on')")


def test_an_error_behind_a_click_is_found_by_clicking(run):
    source = "import ipywidgets as w\nbutton = w.Button()\nbutton.on_click(lambda _: 1 / 0)\nbutton"
    assert run(source)
    with pytest.raises(NotebookError, match=r"ZeroDivisionError.* extra cell 1 of"):
        run(source, extra=["button.click()"])


def test_views_and_warnings_without_errors_pass(run):
    run(
        "import ipywidgets as w, warnings\nout = w.Output()\nwith out:\n    print('fine')\n    warnings.warn('mind')\n"
        "w.VBox([out, w.HTML('<p class=\"dspkit-status\">no dspkit-error here</p>')])"
    )


def test_a_big_output_widget_does_not_hang(run):
    """nbclient #312: without our channel this waits until the timeout."""
    started = time.monotonic()
    source = "import ipywidgets as w\nout = w.Output()\nwith out:\n    print('x' * 3_000_000)\nout"
    node = run(source, "print('after')", timeout_s=60)
    assert node.cells[1].outputs[0].text == "after\n"
    assert time.monotonic() - started < 150


@pytest.mark.slow
def test_a_cell_without_end_is_ended_and_so_is_its_kernel(run):
    with pytest.raises(NotebookError, match="no end within 10 s in cell 2"):
        run(
            "import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))",
            "import time\ntime.sleep(600)",
            timeout_s=10,
        )


ENDLESS = pytest.param("import time; time.sleep(600)", marks=pytest.mark.slow)


@pytest.mark.parametrize("last", ["'fine'", "1 / 0", "import os; os._exit(1)", ENDLESS])
def test_the_kernel_always_ends(run, tmp_path, last):
    try:
        run("import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))", last, timeout_s=10)
    except NotebookError:
        assert last != "'fine'"
    pid = int((tmp_path / "folder" / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_dead_kernel_says_so(run):
    with pytest.raises(NotebookError, match=r"the kernel's death.*cell 1"):
        run("import os; os._exit(1)")


def test_what_is_not_a_notebook_is_refused(tmp_path):
    with pytest.raises(FileError, match="no file"):
        execute(tmp_path / "none.ipynb")
    old = '{"nbformat": 2, "worksheets": [{"cells": [{"cell_type": "x"}]}]}'
    for name, text in {"text": "words", "list": "[]", "other": '{"a": 1}', "old": old}.items():
        path = tmp_path / f"{name}.ipynb"
        path.write_text(text)
        with pytest.raises(FileError, match="not a notebook"):
            execute(path)


def test_works_inside_a_running_event_loop(run):
    """As in a notebook that reports on another: the caller's thread already runs a loop."""
    import asyncio

    async def inside():
        return run("print('here')")

    assert asyncio.run(inside()).cells[0].outputs[0].text == "here\n"


def test_plain_text_is_what_a_terminal_shows():
    assert plain_text("\x1b[31mred\x1b[0m\n10%\r90%\r\nend") == "red\n90%\nend"


def test_importing_the_module_loads_no_jupyter():
    code = "import sys, dspkit.report.notebook; print([m for m in ('nbclient', 'nbformat', 'zmq') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_index_and_the_ways_between_notebooks_are_as_written():
    """After a change of a title or of a notebook's metadata: python .ci/course.py"""
    import course

    assert course.main(check=True) == 0
    listed = (ROOT / "notebooks" / "README.md").read_text()
    for path in NOTEBOOKS:
        assert f"]({path.name})" in listed
        told = json.loads(path.read_text("utf-8"))["metadata"].get("dspkit", {})
        assert {"learn", "minutes", "after"} <= set(told), path.name
        first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"]).lower()
        words = {"five": 5, "ten": 10, "fifteen": 15, "twenty": 20}
        for word in re.findall(r"(?:takes|[.]) (\w+) minutes", first.replace("\n", " ")):
            assert words[word] == told["minutes"], f"{path.name} says {word}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_each_view_is_followed_by_a_picture_that_needs_no_kernel(path):
    """Views that publish their own picture, or a plain call that draws one in the next code cell."""
    cells = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    sources = ["".join(c["source"]) for c in cells]
    for at, source in enumerate(sources):
        if "Explorer(" in source or "ui.Live(" in source:
            assert "plots." in sources[at + 1], source
