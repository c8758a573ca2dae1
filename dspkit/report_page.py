"""The text of a report's page: cards, charts, tables, contents. Everything that comes from data is escaped here."""

from __future__ import annotations

import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from . import __version__
from .references import Entry
from .report_figures import Figures
from .report_html import clean, packaged
from .report_tables import scroll, table, words

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)  # tables cannot be compared with ==
class Section:
    """One card of a report; what is empty is left out, and a section without a title goes on in the card before it.

    `figure` is a plotly Figure, a dict of one, or a `dspkit.plots.Plot`; its own summary stands below it. `table` is
    a pandas DataFrame. `code` is shown folded. `html` is sanitised: prose, not page furniture.
    """

    title: str
    sentence: str = ""
    figure: Any = field(default=None, repr=False)
    table: pd.DataFrame | None = field(default=None, repr=False)
    code: str = field(default="", repr=False)
    html: str = field(default="", repr=False)


def page(sections: Sequence[Section], *, title: str, about: Mapping[str, Any], references: Iterable[Entry]) -> str:
    """The whole HTML page."""
    cards, contents, figures = [], [], Figures()
    for i, group in enumerate(_grouped(sections)):
        name = f"{i + 1}-{slug(group[0].title) or 'part'}"
        if group[0].title:
            contents.append((name, group[0].title))
        cards.append(_card(name, group, figures))
    for name, heading, inner in (
        ("about", "About this run", _facts({**about, **_versions()})),
        ("references", "References", _references(tuple(references))),
    ):
        if inner:
            contents.append((name, heading))
            cards.append(f'<section class="card" id="{name}"><h2>{heading}</h2>{inner}</section>')
    nonce = secrets.token_urlsafe(16)
    links = "".join(f'<li><a href="#{name}">{escape(heading)}</a></li>' for name, heading in contents)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(nonce)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="dspkit {__version__}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{packaged("report.css")}</style>
</head>
<body>
<div class="page">
<header><h1>{escape(title)}</h1><p>Made with dspkit {__version__} on {_now()}</p></header>
<nav aria-labelledby="contents"><h2 id="contents">Contents</h2><ol>{links}</ol></nav>
<main>
{"".join(cards)}
</main>
</div>
{figures.scripts(nonce)}
</body>
</html>
"""


def slug(text: str) -> str:
    """Letters and digits of `text` as a name for files and links."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-")


def _grouped(sections: Iterable[Section]) -> list[list[Section]]:
    groups: list[list[Section]] = []
    for section in sections:
        if section.title or not groups:
            groups.append([])
        groups[-1].append(section)
    return groups


def _card(name: str, group: list[Section], figures: Figures) -> str:
    title = group[0].title
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    parts = [f'<div class="part">{inner}</div>' for s in group if (inner := "".join(_parts(s, title, figures)))]
    return f'<section class="card" id="{name}">{heading}{"".join(parts)}</section>\n'


def _parts(section: Section, title: str, figures: Figures) -> Iterator[str]:
    drawn = "" if section.figure is None else figures.place(section.figure, title, section.sentence)
    if section.sentence and f"<figcaption>{escape(section.sentence)}</figcaption>" not in drawn:
        yield f'<p class="sentence">{escape(section.sentence)}</p>'
    if section.html:
        yield clean(section.html).replace("<table", scroll("Table") + "<table").replace("</table>", "</table></div>")
    if section.code.strip():
        yield f"<details><summary>Code</summary><pre><code>{escape(section.code.strip())}</code></pre></details>"
    yield drawn
    if section.table is not None:
        yield table(section.table, title)


def _facts(facts: Mapping[str, Any]) -> str:
    rows = []
    for key, value in facts.items():
        # Seeds and the like are names, not quantities: no thousands separators.
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else words(value)
        cell = f"<pre>{escape(text)}</pre>" if "\n" in text else escape(text)
        rows.append(f'<tr><th scope="row">{escape(str(key))}</th><td>{cell}</td></tr>')
    return f'<table class="facts"><tbody>{"".join(rows)}</tbody></table>'


def _references(entries: tuple[Entry, ...]) -> str:
    if not entries:
        return ""
    lines = "".join(f"<li>{escape(e.line)}</li>" for e in entries)
    bibtex = escape("\n\n".join(e.bibtex for e in entries))
    return f'<ol class="references">{lines}</ol><details open><summary>BibTeX</summary><pre>{bibtex}</pre></details>'


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("plotly", "numpy", "pandas")}
    return {"dspkit": __version__, "python": python_version(), **packages}


def _policy(nonce: str) -> str:
    """Nothing from the network, no script but ours, even if a hole in the escaping were found."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M %z")
