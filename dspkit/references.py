"""Citations: which work a policy or a formula comes from, as BibTeX.

The entries are in references.bib; a class names its own with a `reference` attribute, a key or several.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files as package_files
from types import MappingProxyType
from typing import Any

from .errors import FileError, NotFoundError

#: What `cite()` without an argument names: this software and the five systems it rebuilds.
MAIN = ("dspkit", "autrascale", "stela", "fission", "elysium", "nardelli")


class Citation(str):
    """BibTeX text that shows itself as it is, so that a notebook or a REPL prints something to copy."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Entry:
    """One work: `fields` are as in the .bib file, with the line breaks inside a value made single spaces."""

    kind: str
    key: str
    fields: Mapping[str, str]

    @property
    def bibtex(self) -> str:
        lines = [f"  {name} = {{{value}}}," for name, value in self.fields.items()]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])

    @property
    def line(self) -> str:
        """The work in one readable line: "Xu, Peng, Gupta (2016). Stela: … IEEE International …"."""
        names = ", ".join(_surname(a) for a in self.fields["author"].split(" and "))
        where = next((self.fields[k] for k in ("booktitle", "journal", "school", "publisher") if k in self.fields), "")
        return _unbrace(f"{names} ({self.fields['year']}). {self.fields['title']}. {where}".strip())


def cite(thing: Any = None) -> Citation:
    """BibTeX of a reference key, of a policy (class or instance), or of dspkit and the five systems.

    >>> cite("stela")
    @inproceedings{stela,
      title = {Stela: Enabling Stream Processing Systems to Scale-in and Scale-out On-demand},
      author = {Xu, Le and Peng, Boyang and Gupta, Indranil},
      booktitle = {IEEE International Conference on Cloud Engineering (IC2E)},
      year = {2016},
    }
    """
    return Citation("\n\n".join(e.bibtex for e in resolve(thing)))


def resolve(thing: Any = None) -> tuple[Entry, ...]:
    """The entries `thing` refers to, each once: a key, something with a `reference`, or several of these."""
    known = entries()
    return tuple(_entry(key, known) for key in dict.fromkeys(_keys(thing)))


@cache
def entries() -> Mapping[str, Entry]:
    """Every work dspkit knows, by key."""
    from . import __version__

    found = parse(package_files("dspkit").joinpath("references.bib").read_text("utf-8"))
    own = found["dspkit"]  # its version is written in one place only
    found["dspkit"] = Entry(own.kind, own.key, {**own.fields, "version": __version__})
    return MappingProxyType(found)


def _keys(thing: Any) -> Iterator[str]:
    if thing is None:
        yield from MAIN
    elif isinstance(thing, str):
        yield thing
    elif hasattr(thing, "reference"):
        yield from _keys(thing.reference or ())
    elif isinstance(thing, Iterable):
        for one in thing:
            yield from _keys(one)
    else:
        raise NotFoundError(
            f"a {type(thing).__name__} without a `reference`",
            expected="a reference key, or a policy or other thing with a `reference`",
            fix="see dspkit.references.entries() for the keys",
        )


def _entry(key: str, known: Mapping[str, Entry]) -> Entry:
    if key not in known:
        near = get_close_matches(key.lower(), known, n=3, cutoff=0.5)
        near += [k for k in known if k not in near and len(key) > 1 and key.lower() in k]
        raise NotFoundError(
            f"reference {key!r}",
            expected=f"one of {', '.join(known)}",
            fix=f"did you mean {' or '.join(map(repr, near))}?" if near else "add it to dspkit/references.bib",
        )
    return known[key]


_HEAD = re.compile(r"@(\w+)\s*\{\s*([^\s,{}=]+)\s*,")
_FIELD = re.compile(r"\s*(\w+)\s*=\s*\{")
_CLOSE = re.compile(r"\s*\}")
_SKIP = re.compile(r"(?:\s|%[^\n]*)*")


def parse(text: str) -> dict[str, Entry]:
    """Read BibTeX of the plain kind used here: every value in braces, nothing between entries but % comments.

    >>> parse("@book{a, title = {On {B}}, author = {C}, year = {1999}}")["a"].fields["title"]
    'On {B}'
    """
    found: dict[str, Entry] = {}
    at = _match(_SKIP, text, 0, "").end()
    while at < len(text):
        head = _match(_HEAD, text, at, "an entry such as @book{key,")
        kind, key, fields, at = head[1].lower(), head[2], {}, head.end()
        while not (close := _CLOSE.match(text, at)):
            name = _match(_FIELD, text, at, "a field such as year = {1977}, or } at the end of the entry")
            value, at = _braced(text, name.end())
            if name[1].lower() in fields:
                raise _wrong(text, name.start(1), f"field {name[1]} once in {key}")
            fields[name[1].lower()] = " ".join(value.split())
            if comma := re.compile(r"\s*,").match(text, at):
                at = comma.end()
            else:
                _match(_CLOSE, text, at, "a comma or } after a field")
        if key in found:
            raise _wrong(text, head.start(), f"key {key} once")
        if missing := [f for f in ("author", "title", "year") if not fields.get(f)]:
            raise _wrong(text, head.start(), f"{' and '.join(missing)} in {key}")
        found[key] = Entry(kind, key, MappingProxyType(fields))
        at = _match(_SKIP, text, close.end(), "").end()
    return found


def _braced(text: str, at: int) -> tuple[str, int]:
    """The text up to the brace that closes the one before `at`, and the place after it."""
    depth = 1
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[at:i], i + 1
    raise _wrong(text, at, "a } that closes this value")


def _match(pattern: re.Pattern[str], text: str, at: int, expected: str) -> re.Match[str]:
    if found := pattern.match(text, at):
        return found
    raise _wrong(text, at, expected)


def _wrong(text: str, at: int, expected: str) -> FileError:
    line = text.count("\n", 0, at) + 1
    came = " ".join(text[at : at + 30].split()) or "the end of the file"
    return FileError(f"{came!r} in line {line} of a .bib file", expected=expected, fix="correct that line")


def _surname(author: str) -> str:
    return author if author.startswith("{") else author.split(",")[0]


def _unbrace(text: str) -> str:
    """Text without TeX's braces, its accents as letters.

    >>> _unbrace('D{\\\\"u}rr, {DRS}')
    'Dürr, DRS'
    """
    marks = {'"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303"}
    text = re.sub(r"\\([\"'`^~])\{?([A-Za-z])\}?", lambda m: unicodedata.normalize("NFC", m[2] + marks[m[1]]), text)
    return re.sub(r"\s+", " ", re.sub(r"[{}$]", "", text)).strip()
