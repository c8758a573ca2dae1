"""The recorded loads of `data/`, each with a row in its README, which states source, licence and checksum."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..core import FileError, NotFoundError
from .counts import Counts
from .formats import read

CHECKOUT = Path(__file__).resolve().parents[2] / "data"  # in the repository, from which make and Binder run
PACKAGED = Path(__file__).resolve().parent / "data"  # in an installed wheel, which contains the same files


class Dataset(NamedTuple):
    """One row of the README's table."""

    file: str
    description: str
    source: str
    licence: str
    sha256: str
    how: str


def folder() -> Path:
    """Return the folder of the recorded loads: $DSPKIT_DATA if it is set, otherwise the checkout's or the wheel's.

    Examples
    --------
    >>> (folder() / "README.md").is_file()
    True
    """
    named = os.environ.get("DSPKIT_DATA")
    places = (Path(named),) if named else (CHECKOUT, PACKAGED)
    for place in places:
        if (place / "README.md").is_file():
            return place
    raise FileError(
        f"{places[0]}, without traces",
        expected="the folder data/ of dspkit's repository",
        fix="reinstall dspkit, or set DSPKIT_DATA to a copy of that folder",
    )


def entries(place: Path | None = None) -> Mapping[str, Dataset]:
    """Return the rows of the README's table of recorded loads, by name.

    Examples
    --------
    >>> "flights_2013" in entries()
    True
    """
    text = ((place or folder()) / "README.md").read_text(encoding="utf-8")
    text = text.partition("## Traces\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:3] == "| `"]
    found = [Dataset(r[0].strip("`"), r[1], r[2], r[3], r[4].strip("`"), r[5]) for r in rows if len(r) == 6]
    return {Path(entry.file).stem: entry for entry in found}


def names() -> tuple[str, ...]:
    """Return the names of the recorded loads that `load` reads.

    Examples
    --------
    >>> "flights_2013" in names()
    True
    """
    return tuple(sorted(entries()))


def load(name: str) -> Counts:
    """Return a recorded load by its name, after a check of its checksum; its repr states source and licence.

    Parameters
    ----------
    name : str
        One of `names()`.

    Examples
    --------
    >>> len(load("flights_2013").between("2013-03-04", "2013-03-05"))
    1440
    """
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
