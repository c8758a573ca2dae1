"""What the README promises: its example prints what it shows, its links and commands exist."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "data" / "README.md"])
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_the_readme_shows():
    code, shown = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", README, re.S).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue() == shown
    assert len(code.strip().splitlines()) <= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith(("http", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target


def test_every_make_target_named_anywhere_is_there():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([\w ]+):", makefile, re.M))
    known = {name for line in targets for name in line.split()}
    named = {word for page in PAGES for word in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert named <= known
    assert {"lab", "test", "report", "bench", "lint", "clean"} <= known
    for name in known - {"help"}:
        assert (
            f" {name} "
            in subprocess.run(
                [sys.executable, "dev.py", "help"], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
        )


def test_the_table_of_data_names_every_file():
    table = (ROOT / "data" / "README.md").read_text()
    for path in (ROOT / "data").iterdir():
        assert path.name == "README.md" or path.name in table
