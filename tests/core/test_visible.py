"""Text that hides or reorders is escaped; text that people write is not."""

from __future__ import annotations

import json
import unicodedata

import pytest

from dspkit.core.errors import visible, visible_json

ENGLAND = "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in "gbeng") + "\U000e007f"


@pytest.mark.parametrize("text", ["a\r\nb\tc\n", f"a {ENGLAND} b", "👩‍🔬 mit Umlauten: äß", "नमस्ते", "שלום", "🏴"])
def test_what_people_write_stays(text: str) -> None:
    assert visible(text) == text
    assert json.loads(visible_json(json.dumps(text, ensure_ascii=False))) == text.replace("\r", "\\r")


HIDING = ["a\rb", "\r", "\U000e0067", "\U0001f3f4\U000e0067", "\U0001f3f4\U000e007f", "a\x1b[0m"]


@pytest.mark.parametrize("text", HIDING)
def test_what_hides_is_seen(text: str) -> None:
    shown = visible(text)
    assert shown != text
    assert all(unicodedata.category(c) not in ("Cc", "Cf") for c in shown)


def test_every_control_and_format_character_is_an_escape_but_for_those_that_scripts_need() -> None:
    kept = {c for i in range(0x110000) if unicodedata.category(c := chr(i)) in ("Cc", "Cf", "Cs") and visible(c) == c}
    assert {"\t", "\n", "\u200c", "\u200d"} <= kept
    assert not kept & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u200e\u200f\x00\x1b\x7f\xad")
