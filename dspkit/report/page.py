"""The page of a report: cards, charts, tables and contents, rendered by page.html, which escapes them.

The data of charts is made safe and compact.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from importlib.metadata import version
from platform import python_version
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from .. import __version__
from ..core import ArgumentError
from ..core.errors import visible, visible_json
from ..core.html import html_table, packaged, scroll, templates, words
from ..core.references import Entry
from .html import clean

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Chart:
    """The name of a chart on the page, and its summary."""

    name: str
    summary: str
    replay: bool = False  # drawn by the cockpit, which replays a run


class Figures:
    """The charts of one page; plotly.js is included once, and only if there is a chart."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.recordings: list[str] = []

    def place(self, figure: Any, title: str, sentence: str) -> Chart:
        """Add a chart; its summary is its own, or else the sentence, its heading, or the card's title."""
        if isinstance(recording := getattr(figure, "data", None), Mapping) and "scene" in recording:
            self.recordings.append(_safe_json(json.dumps(recording, allow_nan=False)))
            return Chart(f"recording-{len(self.recordings)}", figure.summary, replay=True)
        spec = _spec(figure)
        layout = spec.get("layout") or {}
        meta, heading = layout.get("meta"), layout.get("title")
        heading = heading.get("text") if isinstance(heading, Mapping) else heading
        heading = unescape(re.sub(r"<[^>]*>", " ", str(heading or ""))).strip()  # plotly's subset of HTML
        summary = (
            (meta.get("summary") if isinstance(meta, Mapping) else "") or sentence or heading or title or "A chart"
        )
        self.texts.append(_figure_json(spec))
        return Chart(f"figure-{len(self.texts)}", str(summary))

    def scripts(self) -> list[str]:
        """Return the scripts that draw the charts: plotly.js and ours."""
        if not self.texts:
            return []
        from plotly.offline import get_plotlyjs

        return [
            text.replace("</script", "<\\/script") for text in (get_plotlyjs(), packaged("report/assets/report.js"))
        ]


def _spec(figure: Any) -> Mapping[str, Any]:
    """Return a figure as plain plotly data."""
    if hasattr(figure, "spec"):  # a dspkit.plots.Plot
        figure = figure.spec
    elif hasattr(figure, "to_dict"):  # a plotly Figure: arrays of numbers are base64
        figure = figure.to_dict()
    if not isinstance(figure, Mapping) or "data" not in figure:
        raise ArgumentError(
            f"a figure that is a {type(figure).__name__}",
            expected="a plotly Figure, a dict with data and layout, or a Plot",
            fix="pass a figure of dspkit.plots or plotly",
        )
    return figure


def _figure_json(spec: Mapping[str, Any]) -> str:
    from plotly.io.json import to_json_plotly

    kept = {key: spec[key] for key in ("data", "layout", "frames") if spec.get(key)}
    if isinstance(kept.get("data"), (list, tuple)):
        kept["data"] = [_packed(t) if isinstance(t, Mapping) else t for t in kept["data"]]
    text = str(to_json_plotly(kept))
    json.loads(text)  # invalid JSON must fail here, not in the reader's browser
    return _safe_json(text)


def _safe_json(text: str) -> str:
    """Return JSON that stands in a page; "</script>" in a name would end its element, JSON can escape all of that."""
    text = visible_json(text)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _packed(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace with long lists of numbers as plotly's base64 arrays, losslessly, if that is shorter."""
    import numpy as np

    packed = dict(trace)
    for key in ("x", "y"):
        values = trace.get(key)
        if not isinstance(values, (list, tuple)) or len(values) < 64:
            continue
        if all(v is None or type(v) in (int, float) for v in values) and any(v is not None for v in values):
            array = np.array([np.nan if v is None else v for v in values], dtype="<f8")
            if np.array_equal(short := array.astype("<f4"), array, equal_nan=True):
                array = short
            encoded = base64.b64encode(array.tobytes()).decode()
            if len(encoded) < len(json.dumps(values, separators=(",", ":"))):  # "0," is shorter than any float
                packed[key] = {"dtype": "f4" if array.itemsize == 4 else "f8", "bdata": encoded}
    return packed


@dataclass(frozen=True, eq=False)  # tables cannot be compared with ==
class Section:
    """One card of a report, or a part of one; empty fields are left out.

    Parameters
    ----------
    title : str
        Heading of the card; a section without one continues the previous card.
    sentence : str
        The message of the section.
    figure : object, optional
        A plotly Figure, a dict of one, or a `dspkit.plots.Plot`; its own summary is shown below it.
    table : pandas.DataFrame, optional
        A table, of which the first 200 rows are shown.
    code : str
        Code, shown folded.
    html : str
        Prose, which is sanitised.

    Examples
    --------
    >>> Section("Load", "It rises.").title
    'Load'
    """

    title: str
    sentence: str = ""
    figure: Any = field(default=None, repr=False)
    table: pd.DataFrame | None = field(default=None, repr=False)
    code: str = field(default="", repr=False)
    html: str = field(default="", repr=False)


def page(sections: Sequence[Section], *, title: str, about: Mapping[str, Any], references: Iterable[Entry]) -> str:
    """Return the whole HTML page, rendered by page.html."""
    figures = Figures()
    cards = [_card(i, group, figures) for i, group in enumerate(_grouped(sections), start=1)]
    nonce = secrets.token_urlsafe(16)
    return (
        templates()
        .get_template("report/assets/page.html")
        .render(
            title=title,
            version=__version__,
            now=time.strftime("%Y-%m-%d %H:%M %z"),
            policy=_policy(nonce),
            nonce=nonce,
            style=packaged("report/assets/report.css"),
            cards=cards,
            about=_facts({**about, **_versions()}),
            references=tuple(references),
            charts=figures.texts,
            recordings=figures.recordings,
            cockpit=(
                packaged("ui/cockpit/cockpit.css"),
                packaged("ui/cockpit/cockpit.js").replace("</script", "<\\/script"),
            )
            if figures.recordings
            else (),
            scripts=figures.scripts(),
        )
    )


def slug(text: str) -> str:
    """Return the letters and digits of `text` as a name for files and links."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-")


def _grouped(sections: Iterable[Section]) -> list[list[Section]]:
    groups: list[list[Section]] = []
    for section in sections:
        if section.title or not groups:
            groups.append([])
        groups[-1].append(section)
    return groups


def _card(number: int, group: list[Section], figures: Figures) -> dict[str, Any]:
    title = group[0].title
    parts = [part for section in group if any((part := _part(section, title, figures)).values())]
    return {"name": f"{number}-{slug(title) or 'part'}", "title": title, "parts": parts}


def _part(section: Section, title: str, figures: Figures) -> dict[str, Any]:
    """Return the content of a section; its sentence only if it differs from the figure's summary."""
    chart = None if section.figure is None else figures.place(section.figure, title, section.sentence)
    said = chart is not None and chart.summary == section.sentence
    return {
        "sentence": "" if said else section.sentence,
        "html": Markup(_scrolling(clean(visible(section.html))) if section.html else ""),  # sanitised by nh3
        "code": section.code.strip(),
        "chart": chart,
        "table": Markup("" if section.table is None else html_table(section.table, title)),
    }


def _scrolling(html: str) -> str:
    return html.replace("<table", scroll("Table") + "<table").replace("</table>", "</table></div>")


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts as names and texts; integers such as seeds have no thousands separators."""
    return [
        (str(key), str(value) if isinstance(value, int) and not isinstance(value, bool) else words(value))
        for key, value in facts.items()
    ]


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("plotly", "numpy", "pandas")}
    return {"dspkit": __version__, "python": python_version(), **packages}


def _policy(nonce: str) -> str:
    """Return the content security policy: no network, only our scripts, even if escaping failed."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
