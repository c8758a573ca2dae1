"""The outputs of the notebooks, for the tutorials of the site: `make docs ARGS="--run 05_stela"`, or --run for all.

A notebook is run at full size, without its live sections. docs/tutorials/NAME.json keeps what each cell printed, and
docs/images/tutorials the charts, drawn by headless Chromium. Below a cell that has changed since, there is nothing.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import course

ROOT = Path(__file__).resolve().parent.parent
KEPT, PICTURES = ROOT / "docs" / "tutorials", ROOT / "docs" / "images" / "tutorials"
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
OBJECT = re.compile(r"<[\w.]+ object(?: at 0x[0-9a-f]+)?>")  # says nothing to a reader
WIDE, LINES = 760, 40  # pixels of a chart, lines of an output


def run(names: Sequence[str]) -> None:
    """Run notebooks, and keep what they show."""
    KEPT.mkdir(parents=True, exist_ok=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    paths = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if unknown := set(names) - {path.stem for path in paths}:
        raise SystemExit(f"tutorials: no notebook {sorted(unknown)[0]}; there are {', '.join(p.stem for p in paths)}")
    for path in paths:
        if not names or path.stem in names:
            began = time.monotonic()
            shown = keep(path.stem, executed(path))
            print(f"{path.stem}: {shown} outputs, {time.monotonic() - began:.0f} s", flush=True)


def executed(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook, run, its live sections left out."""
    from dspkit.report.notebook import execute

    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["cells"] = [cell for cell in notebook["cells"] if "live" not in cell["metadata"].get("tags", ())]
    with tempfile.TemporaryDirectory(prefix="dspkit-tutorial-") as scratch:
        for part in ("data", "reproduction", "docs"):
            Path(scratch, part).symlink_to(ROOT / part)
        copy = Path(scratch, "notebooks", path.name)
        copy.parent.mkdir()
        copy.write_text(json.dumps(notebook), encoding="utf-8")
        os.environ["PYTHONPATH"] = str(ROOT)
        home, os.environ["DSPKIT_HOME"] = os.environ.get("DSPKIT_HOME"), scratch
        try:
            return list(execute(copy, timeout_s=1800).cells)
        finally:
            if home is not None:
                os.environ["DSPKIT_HOME"] = home


def keep(name: str, cells: Sequence[Any]) -> int:
    """Write the outputs of a notebook; return their number."""
    for former in PICTURES.glob(f"{name}_*"):
        former.unlink()
    found: dict[str, Any] = {}
    with drawing() as draw:
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            shown = []
            for kind, content in outputs(cell.get("outputs", ())):
                if kind == "chart":
                    file = PICTURES / f"{name}_{cell['id']}_{len(shown)}.webp"
                    file.write_bytes(draw(content))
                    shown.append({"picture": file.name, "text": content["layout"].get("meta", {}).get("summary", "")})
                else:
                    shown.append({kind: content})
            if shown:
                found[cell["id"]] = {"source": digest(cell["source"]), "shown": shown}
    about = {"date": time.strftime("%Y-%m-%d"), "cells": found}
    text = json.dumps(about, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (KEPT / f"{name}.json").write_text(text, encoding="utf-8")
    return sum(len(cell["shown"]) for cell in found.values())


def digest(source: str) -> str:
    return hashlib.sha256(source.strip().encode()).hexdigest()[:16]


def outputs(raw: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the outputs of a cell that a page can show, as kind and content: chart, html or text."""
    for output in raw:
        if output["output_type"] == "stream":
            if output["name"] == "stdout":
                yield "text", plain(output["text"])
            continue
        data = output.get("data", {})
        if output.get("metadata", {}).get("dspkit") == "summary":
            continue  # the text below its chart
        if PLOTLY in data:
            yield "chart", data[PLOTLY]
        elif WIDGET in data:
            continue  # controls without a chart
        elif "text/html" in data:
            yield "html", markup(data["text/html"])
        elif "text/markdown" in data:
            yield "html", markup(rendered(data["text/markdown"]))
        elif "text/plain" in data and not OBJECT.fullmatch(data["text/plain"].strip()):
            yield "text", plain(data["text/plain"])


def plain(text: str) -> str:
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip().splitlines()
    return "\n".join(lines[:LINES] + [f"... {len(lines) - LINES} more lines"] * (len(lines) > LINES))


def rendered(text: str) -> str:
    """Return Markdown as HTML, without its pictures, whose addresses are those of another page."""
    import markdown

    return re.sub(r"<img\b[^>]*>", "", markdown.markdown(text, extensions=["tables", "sane_lists"]))


def markup(text: str) -> str:
    """Return a table or a summary without styles of its own, in one line, as Markdown needs it."""
    import nh3

    return " ".join(nh3.clean(text, attributes={}).split())


class drawing:
    """Charts as pictures: within this context, a function from a figure's JSON to the bytes of a WebP."""

    def __enter__(self) -> Callable[[dict[str, Any]], bytes]:
        import plotly
        from playwright.sync_api import sync_playwright

        browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        self.playing = sync_playwright().start()
        self.browser = self.playing.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = self.browser.new_page(viewport={"width": 1000, "height": 1200}, device_scale_factor=1)
        page.set_default_timeout(180_000)
        page.set_content("<div id='chart'></div>")
        page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")

        def draw(figure: dict[str, Any]) -> bytes:
            size = {"format": "webp", "width": WIDE, "height": figure["layout"].get("height", 400), "scale": 1.5}
            program = """async ([f, size]) => { const g = await Plotly.newPlot('chart', f.data, f.layout,
                {staticPlot: true}); return await Plotly.toImage(g, size); }"""
            return base64.b64decode(page.evaluate(program, [figure, size]).partition(",")[2])

        return draw

    def __exit__(self, *_: object) -> None:
        self.browser.close()
        self.playing.stop()


def shown_below(name: str, cells: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the cells of a notebook, each with what a page of the site shows below it.

    That is the stored picture of its view, or what the cell showed when it ran.
    """
    path, views = KEPT / f"{name}.json", 0
    kept = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else {}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and any(view in source for view in course.VIEWS):
            views += 1
            if (picture := course.NOTEBOOKS / "images" / f"{name}_{views}.png").exists():
                said = "The view of this cell after a run, without its controls"
                yield cell, [_picture(f"images/{picture.name}", said, course.CAPTION)]
                continue
        ran = kept.get(cell.get("id"), {})
        shown = ran["shown"] if ran.get("source") == digest(source) else []
        yield cell, [_below(each) for each in shown]


def _below(shown: dict[str, str]) -> str:
    if "picture" in shown:
        return _picture(f"../images/tutorials/{shown['picture']}", shown["text"], shown["text"])
    if "html" in shown:
        return f'<div class="output wide" markdown="0">{shown["html"]}</div>'
    return f"``` {{ .text .output }}\n{shown['text'].replace('```', '` ` `')}\n```"


def _picture(address: str, said: str, caption: str) -> str:
    alt = html.escape(said or "A chart", quote=True)
    image = f'<img src="{address}" alt="{alt}" loading="lazy">'
    return f'<figure class="output" markdown="0">{image}<figcaption>{html.escape(caption)}</figcaption></figure>'


if __name__ == "__main__":
    run(sys.argv[1:])
