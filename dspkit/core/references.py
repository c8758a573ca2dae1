"""Citations as BibTeX: the works on which policies and formulas are based.

The entries are in references.bib; a class names its own with a `reference` attribute, a key or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files as package_files
from types import MappingProxyType
from typing import Any

from .errors import FileError, NotFoundError

#: The works that `cite()` prints without an argument: this software and the five systems that it rebuilds.
MAIN = ("dspkit", "autrascale", "stela", "fission", "elysium", "nardelli")


class Citation(str):
    """BibTeX text whose repr is the text itself, so that a notebook or a REPL prints something to copy."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Entry:
    """One work; `fields` are those of the .bib file, with line breaks inside values replaced by spaces."""

    kind: str
    key: str
    fields: Mapping[str, str]

    @property
    def bibtex(self) -> str:
        """The entry in BibTeX."""
        lines = [f"  {name} = {{{value}}}," for name, value in self.fields.items()]
        return "\n".join([f"@{self.kind}{{{self.key},", *lines, "}"])

    @property
    def line(self) -> str:
        """One readable line: "Xu, Peng, Gupta (2016). Stela: … IEEE International …"."""
        from pybtex.bibtex.utils import split_name_list
        from pybtex.database import Person

        people = map(Person, split_name_list(self.fields["author"]))
        names = ", ".join(" ".join([*p.prelast_names, *p.last_names]) for p in people)
        where = next((self.fields[k] for k in ("booktitle", "journal", "school", "publisher") if k in self.fields), "")
        return _plain(f"{names} ({self.fields['year']}). {self.fields['title']}. {where}".strip())


def cite(thing: Any = None) -> Citation:
    """Return the BibTeX of a work, or of the works that a policy or another object is based on.

    Parameters
    ----------
    thing : str, object or iterable, optional
        A reference key, an object with a `reference` (such as a policy, class or instance), or several of these; by
        default dspkit and the five systems.

    Examples
    --------
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
    """Return the entries that `thing` refers to, each once.

    Examples
    --------
    >>> [entry.key for entry in resolve(["stela", "fission", "stela"])]
    ['stela', 'fission']
    """
    known = entries()
    return tuple(_entry(key, known) for key in dict.fromkeys(_keys(thing)))


@cache
def entries() -> Mapping[str, Entry]:
    """Return all known works by key.

    Examples
    --------
    >>> entries()["stela"].fields["year"]
    '2016'
    """
    from .. import __version__

    found = parse_bibtex(package_files("dspkit.core").joinpath("references.bib").read_text("utf-8"))
    own = found["dspkit"]  # the version number is kept in one place only
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
            fix="see dspkit.core.references.entries() for the keys",
        )


def _entry(key: str, known: Mapping[str, Entry]) -> Entry:
    if key not in known:
        near = get_close_matches(key.lower(), known, n=3, cutoff=0.5)
        near += [k for k in known if k not in near and len(key) > 1 and key.lower() in k]
        raise NotFoundError(
            f"reference {key!r}",
            expected=f"one of {', '.join(known)}",
            fix=f"did you mean {' or '.join(map(repr, near))}?" if near else "add it to dspkit/core/references.bib",
        )
    return known[key]


def parse_bibtex(text: str) -> dict[str, Entry]:
    """Parse BibTeX, and require an author, a title and a year of each entry.

    Examples
    --------
    >>> parse_bibtex("@book{a, title = {On {B}}, author = {C}, year = {1999}}")["a"].fields["title"]
    'On {B}'
    """
    from pybtex.database.input.bibtex import Parser
    from pybtex.exceptions import PybtexError

    found: dict[str, Entry] = {}
    try:
        read = Parser(person_fields=()).parse_string(text)  # keep names in their written form
    except PybtexError as error:
        raise FileError(f"a .bib file with {error}", expected="BibTeX", fix="correct that entry") from error
    for key, entry in read.entries.items():
        fields = {name.lower(): value for name, value in entry.fields.items()}
        if missing := [name for name in ("author", "title", "year") if not fields.get(name)]:
            got = f"a .bib file without {' and '.join(missing)} in {key}"
            raise FileError(got, expected="author, title and year in every entry", fix=f"complete the entry {key}")
        found[key] = Entry(entry.type.lower(), key, MappingProxyType(fields))
    return found


def _plain(text: str) -> str:
    """Return text without TeX's braces and dollar signs, with accented letters in place of TeX accents.

    >>> _plain('D{\\\\"u}rr, {DRS}')
    'Dürr, DRS'
    """
    from pybtex.richtext import Text

    return str(Text.from_latex(text.replace("$", "")))
