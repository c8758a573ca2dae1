"""Answers of servers that were kept as JSON files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .base import Limits, LoaderError
from .lines import parse
from .units import Unusable


def in_order(paths: Iterable[Path]) -> list[Path]:
    """By name, with numbers as numbers: 10 comes after 9."""
    return sorted(paths, key=lambda p: [(part.zfill(40), part) for part in re.split(r"(\d+)", p.name)])


def read_json(path: Path, limits: Limits) -> Any:
    """What a JSON file holds, up to the limit of one answer."""
    try:
        with path.open("rb") as file:
            data = file.read(limits.answer_bytes + 1)
    except OSError as error:
        raise LoaderError(f"{path}: {error.strerror or error}", expected="a file to read", fix="check it") from error
    limits.check("answer_bytes", len(data))
    try:
        return parse(data)
    except Unusable:
        raise LoaderError(f"{path}, no JSON", expected="a recorded answer", fix="record it again") from None
