"""The seeds of `make fuzz` pass its checks, and these find unsafe HTML."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuzz


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_the_inputs_to_begin_with_pass(name: str) -> None:
    seeds = list(fuzz.TARGETS[name].seeds())
    assert seeds
    for seed in seeds:
        fuzz.TARGETS[name].check(seed)  # which refuses none of them


@pytest.mark.parametrize(
    "html",
    [
        "<script>x</script>",
        "<a href='javascript:x'>a</a>",
        "<a href='java\tscript:x'>a</a>",
        "<p onclick=x>",
        "<img src='https://a/b'>",
        "<p style='background:url(https://a)'>",
    ],
)
def test_unsafe_html_is_found(html: str) -> None:
    with pytest.raises(AssertionError):
        fuzz.SafeHTML().feed(html)


@pytest.mark.parametrize(
    ("name", "check", "fine"),
    [
        ("json-slow-unit-1", "pass", True),
        ("json-timeout-1", "pass", True),
        ("json-crash-1", "pass", False),
        ("json-timeout-2", "while True: pass", False),
        ("json-timeout-3", "raise ValueError", False),
    ],
)
def test_an_input_is_slow_if_it_takes_the_time_of_a_core(
    name: str, check: str, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time by the clock does not count, as other programs run beside it."""
    program = tmp_path / "fuzz.py"
    program.write_text(check)
    monkeypatch.setattr(fuzz, "__file__", str(program))
    monkeypatch.setattr(fuzz, "ONE_S", 1)
    (tmp_path / name).touch()
    assert fuzz.slow_by_the_clock_only(tmp_path / name) == fine
