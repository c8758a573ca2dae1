"""A notebook that was run, as the sections of a report: prose, code, figures, tables, text; controls are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .notebook import plain_text
from .report_html import clean, markdown, picture
from .report_page import Section

if TYPE_CHECKING:
    from nbformat import NotebookNode

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
_PICTURES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
_LEFT_OUT = {"course", "code-host"}  # tags of cells that are for notebooks: where to go, pictures of views
_HEADING = re.compile(r"<h([12])>(.*?)</h\1>", re.DOTALL)


def sections(notebook: NotebookNode, folder: Path) -> tuple[str, list[Section]]:
    """The notebook's title, "" if it has none, and its sections; each heading of the two upper levels begins a card."""
    title, found = "", list[Section]()
    for cell in notebook.cells:
        if _LEFT_OUT & set(cell.metadata.get("tags", ())):
            continue
        if cell.cell_type == "markdown":
            for level, heading, html in _split(markdown(cell.source, folder, cell.get("attachments"))):
                if level == 1 and not title and not any(s.title for s in found):
                    title, heading = heading, ""  # the page's own title; not said twice
                if heading or html:
                    found.append(Section(heading, html=html))
        elif cell.cell_type == "code":
            if cell.source.strip():
                found.append(Section("", code=cell.source))
            found += [s for output in cell.outputs for s in _output(output, folder)]
    return title, found


def _split(html: str) -> Iterator[tuple[int, str, str]]:
    """Level, heading and what follows it, for each heading; level 0 for what comes before the first."""
    before, *rest = _HEADING.split(html)
    if before.strip():
        yield 0, "", before.strip()
    for level, heading, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        yield int(level), unescape(re.sub(r"<[^>]*>", "", heading)).strip(), after.strip()


def _output(output: NotebookNode, folder: Path) -> Iterator[Section]:
    if output.output_type == "stream":
        yield from _text(output.text)
    elif output.output_type == "error":  # one the notebook says it wants: any other ended the run
        yield from _text(f"{output.ename}: {output.evalue}")
    elif output.get("metadata", {}).get("dspkit") != "summary":  # the sentence stands below its figure already
        yield from _bundle(output.data, folder)


def _bundle(data: NotebookNode, folder: Path) -> Iterator[Section]:
    """The richest form of an output that a page without a kernel can show."""
    if PLOTLY in data:
        yield Section("", figure=data[PLOTLY])
    elif WIDGET in data:
        return
    elif mime := next((m for m in _PICTURES if m in data), None):
        yield Section("", html=picture(mime, _joined(data[mime]), _joined(data.get("text/plain", "a picture"))))
    elif "text/html" in data and (html := clean(_joined(data["text/html"]), folder)).strip():
        yield Section("", html=f"<div>{html}</div>")
    elif "text/markdown" in data:
        yield Section("", html=markdown(_joined(data["text/markdown"]), folder))
    else:
        yield from _text(_joined(data.get("text/latex", data.get("text/plain", ""))))


def _text(text: str) -> Iterator[Section]:
    if text.strip():
        yield Section("", html=f'<pre class="output">{escape(plain_text(text).rstrip())}</pre>')


def _joined(text: Any) -> str:
    return "".join(text) if isinstance(text, (list, tuple)) else str(text)
