"""InfluxDB's line protocol: `measurement,tag=value field=1.0,other=2i 1795034648805000000`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ..history import History
from .base import LoaderError
from .units import QUANTITIES, Unusable

_WORD = re.compile(r"(?:[^\\, =]|\\.)+|\\")  # up to a comma, space or equals sign that is not escaped
_FIELD = re.compile(r'((?:[^\\, =]|\\.)+)=("(?:[^"\\]|\\.)*"|[^", ]+)')


def point(line: bytes) -> tuple[str, dict[str, str], dict[str, Any], float]:
    """Measurement, tags, fields and time of one line, or Unusable.

    >>> point(b'dspkit,operator=work rate=12.5,busy=3i 1000')
    ('dspkit', {'operator': 'work'}, {'rate': 12.5, 'busy': 3}, 1000.0)
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Unusable("not UTF-8") from None
    head, at_ = _word(text, 0)
    tags: dict[str, str] = {}
    while text[at_ : at_ + 1] == ",":
        name, at_ = _word(text, at_ + 1)
        if text[at_ : at_ + 1] != "=":
            raise Unusable("not line protocol")
        value, at_ = _word(text, at_ + 1)
        tags[_plain(name)] = _plain(value)
    fields: dict[str, Any] = {}
    separator = " "
    while text[at_ : at_ + 1] == separator:
        match = _FIELD.match(text, at_ + 1)
        if match is None:
            break
        fields[_plain(match[1])] = _value(match[2])
        at_, separator = match.end(), ","
    stamp = text[at_:].strip()
    if not fields or not re.fullmatch(r"-?\d{1,20}", stamp, re.ASCII):
        raise Unusable("not line protocol with a time")
    return _plain(head), tags, fields, float(stamp)


def _word(text: str, start: int) -> tuple[str, int]:
    match = _WORD.match(text, start)
    if match is None:
        raise Unusable("not line protocol")
    return match[0], match.end()


def _plain(word: str) -> str:
    return re.sub(r"\\([, =])", r"\1", word)


def _value(text: str) -> Any:
    """A field's value: numbers as numbers, and what is none as it is, to be counted as that."""
    if text.startswith('"'):
        return text[1:-1]
    if text in ("t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE"):
        return text[0] in "tT"
    try:
        return int(text[:-1]) if re.fullmatch(r"-?\d{1,20}[iu]", text, re.ASCII) else float(text.replace("_", "no"))
    except ValueError:
        return text


def lines(history: History, *, run: str = "run") -> Iterator[str]:
    """A run as line protocol, one line a window and operator, as DSPKIT reads it: to write one to InfluxDB."""
    zero = float(history.about.get("began_unix_s", 0.0))
    for step in history:
        stamp = round((zero + step.snapshot.t) * 1e9)
        for name, metrics in step.snapshot.operators.items():
            told = {key: value for key, value in asdict(metrics).items() if key in QUANTITIES and value is not None}
            fields = ",".join(f"{key}={float(value)!r}" for key, value in told.items())
            yield f"dspkit,operator={_escaped(name)},run={_escaped(run)} {fields} {stamp}"


def _escaped(word: str) -> str:
    if "\n" in word or word.endswith("\\"):
        raise LoaderError(f"the name {word!r:.100}", expected="one line that ends in no backslash", fix="rename it")
    return re.sub(r"([, =])", r"\\\1", word)
