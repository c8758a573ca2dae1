"""The traces of `data/`: each has a row in its README, and is what that row's checksum says."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import FileError, NotFoundError
from .counts import Counts
from .formats import read

CHECKOUT = Path(__file__).resolve().parents[2] / "data"  # of the repository, from which make and Binder run


class Entry(NamedTuple):
    """A row of the README."""

    file: str
    what: str
    source: str
    licence: str
    sha256: str
    how: str


def folder() -> Path:
    """Where traces lie: $DSPKIT_DATA if that is set, else `data/` of the checkout that dspkit runs from."""
    place = Path(os.environ.get("DSPKIT_DATA") or CHECKOUT)
    if not (place / "README.md").is_file():
        raise FileError(
            f"{place}, without traces",
            expected="the folder data/ of dspkit's repository, which a wheel does not bring",
            fix="install from a checkout (pip install -e .), or set DSPKIT_DATA to a copy of that folder",
        )
    return place


def entries(place: Path | None = None) -> Mapping[str, Entry]:
    """The rows of the README's table of traces, by name."""
    text = ((place or folder()) / "README.md").read_text(encoding="utf-8")
    text = text.partition("## Traces\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:3] == "| `"]
    found = [Entry(r[0].strip("`"), r[1], r[2], r[3], r[4].strip("`"), r[5]) for r in rows if len(r) == 6]
    return {Path(entry.file).stem: entry for entry in found}


def names() -> tuple[str, ...]:
    """Traces that `load` knows."""
    return tuple(sorted(entries()))


def load(name: str) -> Counts:
    """A trace of `data/` by its name, after its checksum; its repr tells source and licence."""
    place = folder()
    known = entries(place)
    if not isinstance(name, str) or name not in known:
        raise NotFoundError(f"trace {name!r}", expected=f"one of {', '.join(known)}", fix="or read('your.csv')")
    entry = known[name]
    path = place / entry.file
    if not path.is_file():
        raise FileError(f"{path}, which is not there", expected="the file its row names", fix=f"git checkout {path}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != entry.sha256:
        raise FileError(
            f"{path} with sha256 {found[:12]}…", expected=f"{entry.sha256[:12]}…", fix=f"git checkout {path}"
        )
    plain = re.sub(r"[`*]", "", f"{entry.source}; licence: {entry.licence}")
    return read(path, name=name, about=plain)
