"""Continuous integration tries again what failed, counts it, and says what really was the matter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tested

ONCE = """
from pathlib import Path
def test_once():
    mark = Path(__file__).with_name("mark")
    seen = mark.exists()
    mark.touch()
    assert seen
"""
MANY = "import pytest\n@pytest.mark.parametrize('n', range({}))\ndef test_fine(n): pass\n"
TWICE = "def test_never(): assert 0\n"
SKIPPED = "import pytest\ndef test_absent(): pytest.skip('no redis')\n"
STRICT = """
import os, pytest
@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session, exitstatus):
    skipped = session.config.pluginmanager.get_plugin("terminalreporter").stats.get("skipped")
    if os.environ.get("DSPKIT_REQUIRE_ALL") and exitstatus == 0 and skipped: session.exitstatus = 1
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Why a suite of these files does not pass; its slow half is empty."""
    monkeypatch.setenv("DSPKIT_REQUIRE_ALL", "1")
    monkeypatch.setattr(tested, "HALVES", ([],))

    def run(arguments: list[str]) -> int:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            f"cache_dir={tmp_path}/cache",
            "--rootdir",
            str(tmp_path),
        ]
        return 2 if subprocess.call([*command, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL) else 0  # as make

    def made(*files: str) -> str:
        (tmp_path / "conftest.py").write_text(STRICT)
        (tmp_path / "pytest.ini").write_text("[pytest]\n")  # or a file further up counts: TMPDIR may be in a checkout
        for i, text in enumerate(files):
            (tmp_path / f"test_{i}.py").write_text(text)
        return tested.main(run, tmp_path / "build")

    return made


def test_a_whole_suite_passes_without_a_word(said: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(MANY.format(3)) == ""
    assert capsys.readouterr().out == ""


def test_one_in_many_may_need_a_second_try_and_is_named(
    said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(MANY.format(499), ONCE) == ""
    assert "1 of 500 tests needed a second try: test_1::test_once" in capsys.readouterr().out


def test_more_than_that_is_a_failure(said: Callable[..., str]) -> None:
    assert said(MANY.format(498), ONCE) == "1 of 499 tests needed a second try, which is more than 1 in 500"


def test_what_fails_twice_is_a_failure(said: Callable[..., str]) -> None:
    assert said(MANY.format(999), TWICE) == "failed twice: test_1::test_never"


def test_what_was_skipped_is_called_so_and_not_tried_again(
    said: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(MANY.format(3), SKIPPED) == "1 tests did not run: test_1::test_absent; install what they ask for"
    assert "AGAIN" not in capsys.readouterr().out


def test_a_failure_beside_a_skip_is_tried_again_and_both_are_told(said: Callable[..., str]) -> None:
    why = said(MANY.format(998), ONCE, SKIPPED)
    assert why == "1 tests did not run: test_2::test_absent; install what they ask for"


def test_a_suite_that_does_not_even_begin_is_no_suite(said: Callable[..., str], tmp_path: Path) -> None:
    assert said("import nothing_of_that_name\n").startswith("failed twice: ::test_0")
    (tmp_path / "test_0.py").unlink()
    assert said() == "pytest ended with exit code 2 before its tests did"
