"""Files that hosts and registries read: one version, valid files, and the machinery of releases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import benchmark_comment
import dspkit
import hatch_build
import links
import picture
import release

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_is_one_version() -> None:
    assert release.version() == dspkit.__version__
    assert release.objections(dspkit.__version__, released=False) == []
    wrong = release.objections("9.9.9", released=False)
    assert [line.partition(":")[0] for line in wrong] == ["CITATION.cff", "codemeta.json", "CHANGELOG.md"]


def test_a_release_needs_a_date() -> None:
    dated = re.search(r"^## \S+ \(\d{4}-", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE) is not None
    first = (ROOT / "CHANGELOG.md").read_text().partition("(unreleased)")[1]
    assert bool(release.objections(dspkit.__version__, released=True)) == (bool(first) or not dated)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_commands_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    targets = set(re.findall(r"^([\w ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            command = step.get("run", "")
            assert set(re.findall(r"\bmake (\w+)", command)) <= known
            for script in re.findall(r"\.ci/\w+(?:\.py)?", command):
                assert (ROOT / script).exists(), script
    assert workflow["permissions"]


def test_the_quick_tests_run_on_every_supported_python() -> None:
    matrix = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["quick"]["strategy"][
        "matrix"
    ]
    project = (ROOT / "pyproject.toml").read_text()
    assert matrix["python"] == re.findall(r"Programming Language :: Python :: (3\.\d+)", project)


def test_files_of_citation_have_all_their_keys() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    wanted = "cff-version message title abstract type version license repository-code url authors contact keywords"
    assert set(wanted.split()) <= set(cff)
    meta = json.loads((ROOT / "codemeta.json").read_text())
    assert meta["license"].endswith(cff["license"])
    assert meta["codeRepository"] == cff["repository-code"]


def test_the_paper_has_a_thousand_words_and_known_references() -> None:
    text = (ROOT / "docs" / "paper.md").read_text()
    body = text.split("---", 2)[2]
    assert 750 <= len(body.split()) <= 1100
    bib = (ROOT / "dspkit" / "core" / "references.bib").read_text()
    for key in re.findall(r"@(\w+)", body):
        assert f"{{{key}," in bib, key


def test_links_of_the_readme_work_on_an_index() -> None:
    """All are addresses of the repository, and what they name is in it."""
    text = links.absolute((ROOT / "README.md").read_text(), ROOT / "README.md")
    assert len(links.relative((ROOT / "README.md").read_text())) > 10
    assert links.relative(text) == []
    named = re.findall(rf"{re.escape(links.repository())}/(blob|tree|raw)/main/([^)#]+)", text)
    assert len(named) > 10
    for kind, path in named:
        assert (ROOT / path).is_dir() == (kind == "tree")
        assert (ROOT / path).exists()
        assert (kind == "raw") == path.endswith(".png")


def test_links_change_outside_blocks_of_code_only() -> None:
    text = "[a](x.md#b) ![p](y.png) [w](https://e.org/) [s](#t)\n```python\nf[0](x.md)\n```\n"
    changed = links.changed(text, lambda target, anchor: f"<{target}{anchor}>" if target == "x.md" else None)
    assert changed == text.replace("x.md#b", "<x.md#b>")


def test_links_of_the_copied_notebooks_lead_to_copied_files() -> None:
    copied = set(hatch_build.files(ROOT))
    notebooks = [path for path in copied if path.suffix == ".ipynb"]
    assert {path.parent for path in notebooks} == {ROOT / "notebooks"}
    assert len(notebooks) == len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    for path in notebooks:
        cells = json.loads(path.read_text())["cells"]
        for target in links.relative("\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")):
            assert (path.parent / target).resolve() in copied, (path.name, target)


def test_what_lies_about_is_not_copied(tmp_path: Path) -> None:
    wanted = ["notebooks/00_a.ipynb", "notebooks/images/00_a_1.png", "reproduction/stela/study.py", "docs/howto/a.md"]
    lying = ["notebooks/Untitled.ipynb", "notebooks/.ipynb_checkpoints/00_a-checkpoint.ipynb", "notebooks/x.parquet"]
    lying += ["notebooks/reports/00_a.html", "reproduction/stela/__pycache__/study.pyc", "data/.secret"]
    for name in wanted + lying:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [path.relative_to(tmp_path).as_posix() for path in hatch_build.files(tmp_path)] == sorted(wanted)


def test_the_hook_takes_nothing_away_from_the_wheel(tmp_path: Path) -> None:
    """Hatchling knows one place per source: the files of data/ are named in pyproject.toml for another."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    hook, data = hatch_build.Lab(str(ROOT), {}, None, None, str(tmp_path), "wheel"), {"force_include": {}}
    hook.initialize("standard", data)
    try:
        assert named["force-include"]
        assert not {ROOT / name for name in named["force-include"]} & set(map(Path, data["force_include"]))
        assert all(Path(source).is_file() for source in data["force_include"])
        assert len(set(data["force_include"].values())) == len(hatch_build.files(ROOT))
    finally:
        hook.finalize("standard", data, "")


def test_the_comment_about_speed_states_intervals(tmp_path: Path) -> None:
    for i, (base, change) in enumerate([(1.0, 2.0), (1.1, 2.1), (0.9, 1.9)]):
        for side, value in (("base", base), ("change", change)):
            claim = {"value": value, "unit": "s", "better": "lower", "target": 1, "ok": True}
            (tmp_path / f"{side}-{i}.json").write_text(
                json.dumps({"a.b": claim, "only.here": claim} if i else {"a.b": claim})
            )
    text = benchmark_comment.comment(sorted(tmp_path.glob("*.json")))
    assert "| `a.b` | 1 s | 2 s | 2.01 (1.77 to 2.27) |" in text  # of 2, 1.909 and 2.111 by hand
    assert "slower or worse" in text
    assert "only.here" not in text


def test_the_moving_picture_is_one() -> None:
    png = (ROOT / "docs" / "images" / "live.png").read_bytes()
    kinds = [kind for kind, _ in picture.chunks(png)]
    assert kinds.count(b"fcTL") >= 10
    assert len(png) < 4e6


@pytest.mark.slow
def test_the_template_of_an_extension_is_found_and_passes(tmp_path: Path) -> None:
    """Installed into a folder beside this environment, as pip would into it."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
    ]
    subprocess.run([*pip, str(ROOT / "examples" / "extension")], check=True, capture_output=True)
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",  # not the settings of this checkout
        "-p",
        "no:cacheprovider",
        str(ROOT / "examples" / "extension" / "tests"),
    ]
    env = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(tests, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert "2 passed" in ran.stdout
