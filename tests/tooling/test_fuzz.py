"""The seeds of `make fuzz` pass its checks, and these find unsafe HTML."""

from __future__ import annotations

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
