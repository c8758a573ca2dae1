"""The text of a report's page: cards, charts, tables, contents. Everything that comes from data is escaped here."""

from __future__ import annotations

import json
import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from importlib.metadata import version
from importlib.resources import files as package_files
from platform import python_version
from typing import TYPE_CHECKING, Any

from . import __version__
from .errors import DspkitError
from .references import Entry
from .report_html import clean

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 200  # of a table: more is to be read by a program
MOST_LETTERS = 40  # of a table cell that still counts as a word or two


@dataclass(frozen=True)
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
<style>{_packaged("report.css")}</style>
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


class Figures:
    """The charts of one page; plotly.js comes once, and only if there is a chart."""

    def __init__(self) -> None:
        self._json: list[str] = []

    def place(self, figure: Any, title: str, sentence: str) -> str:
        """The chart's place on the page, with the sentence that says what it shows."""
        spec = _spec(figure)
        layout = spec.get("layout") or {}
        meta, heading = layout.get("meta"), layout.get("title")
        heading = heading.get("text") if isinstance(heading, Mapping) else heading
        heading = unescape(re.sub(r"<[^>]*>", " ", str(heading or ""))).strip()  # plotly's own little HTML
        summary = (
            (meta.get("summary") if isinstance(meta, Mapping) else "") or sentence or heading or title or "A chart"
        )
        name = f"figure-{len(self._json) + 1}"
        self._json.append(_figure_json(spec))
        said = escape(str(summary))
        return (
            f'<figure><div class="plot" role="img" aria-label="{said}" data-figure="{name}">'
            "<noscript>This chart needs JavaScript.</noscript></div>"
            f"<figcaption>{said}</figcaption></figure>"
        )

    def scripts(self, nonce: str) -> str:
        if not self._json:
            return ""
        from plotly.offline import get_plotlyjs

        data = "\n".join(
            f'<script type="application/json" id="figure-{i}">{text}</script>' for i, text in enumerate(self._json, 1)
        )
        library, own = (text.replace("</script", "<\\/script") for text in (get_plotlyjs(), _packaged("report.js")))
        return f'{data}\n<script nonce="{nonce}">{library}</script>\n<script nonce="{nonce}">{own}</script>'


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
        yield clean(section.html).replace("<table", _scroll("Table") + "<table").replace("</table>", "</table></div>")
    if section.code.strip():
        yield f"<details><summary>Code</summary><pre><code>{escape(section.code.strip())}</code></pre></details>"
    yield drawn
    if section.table is not None:
        yield table(section.table, title)


def table(frame: pd.DataFrame, title: str = "") -> str:
    """The first rows of a data frame as HTML."""
    if not hasattr(frame, "columns") or not hasattr(frame, "itertuples"):
        raise DspkitError(
            f"a table that is a {type(frame).__name__}", expected="a pandas DataFrame", fix="pass pandas.DataFrame(...)"
        )
    import pandas as pd

    shown = frame.head(MOST_ROWS)
    if not isinstance(frame.index, pd.RangeIndex):
        shown = shown.reset_index()
    if not len(shown):
        return '<p class="note">No rows.</p>'
    numbers = [pd.api.types.is_numeric_dtype(t) and not pd.api.types.is_bool_dtype(t) for t in shown.dtypes]
    kinds = [' class="number"' if number else "" for number in numbers]
    labels = [", ".join(filter(None, map(str, c))) if isinstance(c, tuple) else str(c) for c in shown.columns]
    head = "".join(f'<th scope="col"{k}>{escape(c)}</th>' for c, k in zip(labels, kinds, strict=True))
    rows = "".join(
        f"<tr>{''.join(_cell(words(v), k, c) for v, k, c in zip(row, kinds, labels, strict=True))}</tr>"
        for row in shown.astype(object).where(shown.notna(), "").itertuples(index=False, name=None)
    )
    more = ""
    if len(frame) > MOST_ROWS:
        more = f'<p class="note">The first {MOST_ROWS} of {len(frame):,} rows.</p>'
    stacked = ' class="stacked"' if 'class="long"' in rows else ""
    inner = f"<table{stacked}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"{_scroll(f'Table: {title}' if title else 'Table')}{inner}</div>{more}"


def _scroll(label: str) -> str:
    """The start of a box that a wide table scrolls in, with the keyboard too."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'


def _cell(text: str, kind: str, label: str) -> str:
    """`label` heads the cell where a phone has no room for columns."""
    kind = kind or (' class="long"' if len(text) > MOST_LETTERS else "")
    return f'<td{kind} data-label="{escape(label)}">{escape(text)}</td>'


def words(value: Any) -> str:
    """A value as a reader wants it: four digits, no "nan", nested things in a line."""
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if value is None or (not isinstance(value, (list, tuple, Mapping)) and value != value):  # NaN, NaT
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {words(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(words, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


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


def _spec(figure: Any) -> Mapping[str, Any]:
    """A figure as plotly's plain data."""
    if hasattr(figure, "spec"):  # a dspkit.plots.Plot
        figure = figure.spec
    elif hasattr(figure, "to_dict"):  # a plotly Figure: number arrays come as base64
        figure = figure.to_dict()
    if not isinstance(figure, Mapping) or "data" not in figure:
        raise DspkitError(
            f"a figure that is a {type(figure).__name__}",
            expected="a plotly Figure, a dict with data and layout, or a Plot",
            fix="pass what dspkit.plots or plotly makes",
        )
    return figure


def _figure_json(spec: Mapping[str, Any]) -> str:
    from plotly.io.json import to_json_plotly

    kept = {key: spec[key] for key in ("data", "layout", "frames") if spec.get(key)}
    text = str(to_json_plotly(kept))
    json.loads(text)  # what cannot be read back must fail here, not in the reader's browser
    # "</script>" in a name would end the element; in JSON these signs can all be written as escapes.
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(nonce: str) -> str:
    """Nothing from the network, no script but ours, even if a hole in the escaping were found."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def _packaged(name: str) -> str:
    return package_files("dspkit").joinpath(name).read_text("utf-8")


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M %z")
