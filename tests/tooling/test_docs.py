"""The documentation: every example of a how-to page runs, and the site's sources are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

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
