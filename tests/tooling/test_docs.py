"""The documentation: every example of a how-to page runs, and the site's sources are complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tutorials

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "howto").glob("*.md"))


def blocks(page: Path, *, live: bool) -> list[str]:
    """The Python blocks of a page; those that start Spark follow the comment `live`."""
    found = re.findall(r"(<!-- live -->\n)?```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [code for marked, code in found if live or not marked]


def has_live(page: Path) -> bool:
    return "<!-- live -->" in page.read_text(encoding="utf-8")


def test_there_is_a_page_per_question() -> None:
    assert len(PAGES) >= 25
    for page in PAGES:
        assert re.match(r"# How do I .*\?\n", page.read_text(encoding="utf-8")), page.name


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, live=False)], ids=lambda page: page.stem)
def test_every_example_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block after the other in one namespace, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("page")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, "page", module)
    for code in blocks(page, live=False):
        exec(compile(code, page.name, "exec"), vars(module))


def test_a_tutorial_shows_what_its_cells_showed_and_nothing_below_a_changed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tutorials, "KEPT", tmp_path)
    shown = [{"text": "1 ``` 2"}, {"html": "<table></table>"}, {"picture": "a.webp", "text": 'It "rises" < 3'}]
    kept = {"cells": {"a": {"source": tutorials.digest("f(1)"), "shown": shown}}}
    (tmp_path / "99_x.json").write_text(json.dumps(kept))
    cells = [{"cell_type": "code", "id": "a", "source": ["f(1)"]}, {"cell_type": "markdown", "id": "b", "source": "b"}]
    (_, below), (_, none) = tutorials.shown_below("99_x", cells)
    assert none == []
    assert below[0].count("```") == 2  # what is printed cannot end its block
    assert "<table>" in below[1]
    assert 'alt="It &quot;rises&quot; &lt; 3"' in below[2]
    ((_, below),) = tutorials.shown_below("99_x", [{**cells[0], "source": ["f(2)"]}])
    assert below == []


def test_outputs_of_a_tutorial_bring_no_script_and_no_endless_text() -> None:
    chart = {"data": [], "layout": {}}
    told = [
        {"output_type": "stream", "name": "stderr", "text": "50 %"},
        {"output_type": "stream", "name": "stdout", "text": "\n".join(map(str, range(100)))},
        {"output_type": "display_data", "data": {tutorials.PLOTLY: chart, "text/plain": "It rises."}},
        {"output_type": "display_data", "metadata": {"dspkit": "summary"}, "data": {"text/plain": "It rises."}},
        {"output_type": "display_data", "data": {tutorials.WIDGET: {}, "text/plain": "VBox()"}},
        {"output_type": "execute_result", "data": {"text/html": "<b onclick=a()>x</b>\n\n<script>a()</script>"}},
        {"output_type": "execute_result", "data": {"text/plain": "<pkg.Thing object at 0x7f00>"}},
        {
            "output_type": "display_data",
            "data": {
                "text/markdown": "| a |\n|---|\n| **1** |\n\n![x](y.png)<script>a()</script>",
                "text/plain": "<IPython.core.display.Markdown object>",
            },
        },
    ]
    (one, text), (two, figure), (three, markup), (four, table) = tutorials.outputs(told)
    assert (one, two, three, four) == ("text", "chart", "html", "html")
    assert "<th>a</th>" in table
    assert "<td><strong>1</strong></td>" in table
    assert "script" not in table
    assert "img" not in table
    assert text.endswith("39\n... 60 more lines")
    assert figure is chart
    assert markup == "<b>x</b>"


def test_pictures_of_tutorials_are_those_that_pages_show() -> None:
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in tutorials.KEPT.glob("*.json")]
    shown = [each for one in kept for cell in one["cells"].values() for each in cell["shown"]]
    assert {each["picture"] for each in shown if "picture" in each} == {p.name for p in tutorials.PICTURES.iterdir()}
    assert not [each["text"] for each in shown if "text" in each and tutorials.OBJECT.search(each["text"])]
    notebooks = {path.stem for path in tutorials.course.NOTEBOOKS.glob("*.ipynb")}
    assert {path.stem for path in tutorials.KEPT.glob("*.json")} <= notebooks


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if has_live(page)], ids=lambda page: page.stem)
def test_every_live_example_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """In a process of its own, which then is the only one of this Spark."""
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page, live=True)))
    command = [sys.executable, str(program)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
