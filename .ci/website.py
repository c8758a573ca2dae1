"""The documentation's site: `make docs` writes its sources to build/site-src, and builds it strictly.

Nothing is written twice: pages come from docs/, tutorials from the notebooks, the reference from the public names of
dspkit, the chart of claims from docs/bench.json. A dead link, an undocumented public name or a failing example of a
how-to page is an error. MkDocs also loads this file as hooks, which turn formulas into MathML without a script.
"""

from __future__ import annotations

import html
import inspect
import json
import math
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import links
import tutorials as outputs

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "site-src"
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing/index.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "data/README.md": "recordings.md",
    "docs/README.md": "howto/index.md",
    "notebooks/README.md": "tutorials/index.md",
}


def on_page_content(page_html: str, **_: object) -> str:
    """Return a page whose formulas are MathML, and whose wide tables can be scrolled by keyboard."""
    from latex2mathml.converter import convert

    def formula(found: re.Match[str]) -> str:
        display = found[1] == "div"
        text = html.unescape(re.sub(r"^\\[(\[]|\\[)\]]$", "", found[2].strip()).strip())
        return convert(text, display="block" if display else "inline")

    return re.sub(r'<(span|div) class="arithmatex">(.*?)</\1>', formula, page_html, flags=re.DOTALL)


def on_post_page(output: str, *, page: Any, **_: object) -> str:
    """Return a page of which screen readers can name all parts, with the shim of the search from the site itself."""
    for old, new in (
        (r'data-md-component="search" role="dialog"', r'\g<0> aria-label="Search the site"'),
        (
            r'class="md-search__options" aria-label="[^"]*"',
            r'class="md-search__options" aria-label="Options of the search"',
        ),
        (
            r'(<nav class="md-nav" data-md-level="\d+") aria-labelledby="__nav_(\d+(?:_\d+)*)_label"',
            r'\1 aria-label="Pages of part \2"',
        ),
        (r"<th([^>]*)></th>", r"<td\1></td>"),
    ):
        output = re.sub(old, new, output)
    return _own_shim(output, "../" * page.url.count("/"))


def on_post_template(output: str, *, template_name: str, **_: object) -> str:
    """Return the same of a page that is no document: that of a missing page."""
    return _own_shim(output, "") if template_name.endswith(".html") else output


def _own_shim(output: str, here: str) -> str:
    return re.sub(r'https?://[^"]+/iframe-worker/shim', f"{here}assets/iframe-worker.js", output)


def place(path: Path) -> str | None:
    """Return the site's page of a file of the repository, or None."""
    name = path.relative_to(ROOT).as_posix()
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if found := re.fullmatch(r"dspkit/(\w+)(?:\.py)?", name):
        return f"reference/{found[1]}.md"
    if name.startswith("docs/"):
        inner = name.removeprefix("docs/")
        return re.sub(r"README\.md$", "index.md", inner)
    if name.startswith("notebooks/"):
        return "tutorials/" + name.removeprefix("notebooks/").replace(".ipynb", ".md")
    return None


def relinked(text: str, source: Path, page: str) -> str:
    """Return Markdown whose links fit the site: to its pages, else to the repository."""

    def new(target: str, anchor: str) -> str | None:
        path = (source.parent / target).resolve()
        if not path.is_relative_to(ROOT):
            return None
        if not path.exists():
            raise SystemExit(f"site: {source.relative_to(ROOT)} has a dead link: {target}")
        if path.is_dir() and (path / "README.md").exists() and place(path / "README.md"):
            path = path / "README.md"
        inner = place(path)
        if inner is None or (path.is_dir() and not inner.startswith("reference/")):
            return links.address(path) + anchor
        return f"{os.path.relpath(inner, Path(page).parent)}{anchor}"

    return links.changed(text, new)


def write(page: str, text: str) -> None:
    path = OUT / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def documents() -> None:
    """The pages of docs/, and those of the repository's root that belong to them."""
    sources = [p for p in (ROOT / "docs").rglob("*.md") if p.name != "README.md" or p.parent.name != "docs"]
    sources += [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "data/README.md")]
    for source in sources:
        page = place(source)
        assert page is not None
        text = source.read_text(encoding="utf-8").replace("<!-- live -->\n", "")
        write(page, relinked(text, source, page))
    for folder in ("images", "site"):
        if (ROOT / "docs" / folder).is_dir():
            shutil.copytree(ROOT / "docs" / folder, OUT / {"site": "assets"}.get(folder, folder), dirs_exist_ok=True)


def tutorials() -> list[str]:
    """The notebooks as pages: their prose, their code, and what it showed."""
    index = ROOT / "notebooks" / "README.md"
    write("tutorials/index.md", relinked(index.read_text(encoding="utf-8"), index, "tutorials/index.md"))
    shutil.copytree(ROOT / "notebooks" / "images", OUT / "tutorials" / "images", dirs_exist_ok=True)
    pages = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page, parts = f"tutorials/{path.stem}.md", []
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell, below in outputs.shown_below(path.stem, cells):
            source = "".join(cell["source"]).strip()
            if cell["cell_type"] == "markdown":
                parts.append(relinked(source, path, page))
            elif source:
                parts += [f"```python\n{source}\n```", *below]
        parts.insert(1, f"!!! note\n    To run it: `dspkit lab`, or `make lab` in a checkout, then open `{path.name}`.")
        write(page, "\n\n".join(parts) + "\n")
        pages.append(page)
    return pages


def reference() -> list[str]:
    """A page per public package, with each public object once; an object without a docstring is an error."""
    import dspkit

    sys.path.insert(0, str(ROOT))
    pages, seen, bare = [], set(), []
    first = ("core", "experiment")
    for part in (*first, *(name for name in dspkit._MODULES if name not in first)):
        module = import_module(f"dspkit.{part}")
        lines = [f"# dspkit.{part}", "", (inspect.getdoc(module) or "").replace("\n", "\n"), ""]
        constants = []
        for name in getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not home.startswith("dspkit."):
                constants.append(name)
                continue
            if not (inspect.getdoc(thing) or "").strip():
                bare.append(f"dspkit.{part}.{name}")
            if home not in seen:
                seen.add(home)
                lines += [f"::: {home}", ""]
        if constants:
            lines += ["## Constants and aliases", "", "| name | kind |", "|---|---|"]
            lines += [f"| `{name}` | {type(getattr(module, name)).__name__} |" for name in sorted(constants)]
        write(f"reference/{part}.md", "\n".join(lines) + "\n")
        pages.append(f"reference/{part}.md")
    if bare:
        raise SystemExit(f"site: undocumented public names: {', '.join(bare)}")
    top = [f"| `dspkit.{name}` | [{home}]({home.partition('.')[0]}.md) |" for name, home in dspkit._HOME.items()]
    parts = [f"| [`dspkit.{Path(p).stem}`]({Path(p).name}) | {_sentence(Path(p).stem)} |" for p in pages]
    text = ["# Reference", "", "Every public name, from the code.", "", "| part | |", "|---|---|", *parts, "",
            "## Names at the top", "", "| name | defined in |", "|---|---|", *top]  # fmt: skip
    write("reference/index.md", "\n".join(text) + "\n")
    return pages


def _sentence(part: str) -> str:
    doc = inspect.getdoc(import_module(f"dspkit.{part}")) or ""
    return doc.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def howto() -> list[str]:
    """The index of the questions."""
    pages = (ROOT / "docs" / "howto").glob("*.md")
    titles = {p: p.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for p in pages}
    ordered = sorted(titles, key=lambda p: titles[p])
    lines = "\n".join(f"* [{titles[p]}]({p.name})" for p in ordered)
    said = "One question per page; the tests run every block of code."
    write("howto/index.md", f"# How do I ...?\n\n{said}\n\n{lines}\n")
    return [f"howto/{p.name}" for p in ordered]


def chart() -> None:
    """Append the chart of claims to the page of performance: how far each is from its target."""
    claims = json.loads((ROOT / "docs" / "bench.json").read_text(encoding="utf-8"))
    rows = []
    for name, claim in sorted(claims.items()):
        value, target = float(claim["value"]), float(claim["target"])
        good = claim["better"] == "higher"
        if value <= 0 or target <= 0:
            continue
        factor = value / target if good else target / value
        rows.append((name, value, claim["unit"], target, "≥" if good else "≤", factor))
    step, left, wide = 22, 330, 360
    scale = wide / 2 / 3  # three powers of ten to either side
    said = f"Each claim over its target, logarithmic: {sum(r[5] >= 1 for r in rows)} of {len(rows)} hold"
    box = f"0 0 {left + wide + 120} {step * len(rows) + 40}"
    out = [f'<svg class="claims" viewBox="{box}" role="img" aria-label="{said}">']
    zero = left + wide / 2
    for i, (name, value, unit, target, sign, factor) in enumerate(rows):
        y, reach = 30 + i * step, scale * max(-3.0, min(3.0, math.log10(factor)))
        x, kind = (zero, "holds") if reach >= 0 else (zero + reach, "short")
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect class="{kind}" x="{x:.1f}" y="{y + 3}" width="{max(1.5, abs(reach)):.1f}" height="12"/>')
        out.append(f'<text x="{left + wide + 6}" y="{y + 13}">{value:g} {html.escape(unit)} ({sign} {target:g})</text>')
    out.append(f'<line x1="{zero}" y1="24" x2="{zero}" y2="{step * len(rows) + 36}"/>')
    out.append(f'<text x="{zero}" y="16" text-anchor="middle">target</text></svg>')
    page = OUT / "performance.md"
    head = "## How far from the target"
    said = "One bar per claim: to the right of the line it holds. A third of either half is a factor of ten."
    drawn = f"<div class='wide'>{''.join(out)}</div>"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n\n{head}\n\n{said}\n\n{drawn}\n", encoding="utf-8")


def navigation(lessons: list[str], questions: list[str], parts: list[str]) -> list[Any]:
    explanation = sorted(p.relative_to(OUT).as_posix() for p in (OUT / "explanation").glob("*.md"))
    decisions = sorted(p.relative_to(OUT).as_posix() for p in (OUT / "decisions").glob("*.md") if p.name != "index.md")
    joining = sorted(p.relative_to(OUT).as_posix() for p in (OUT / "contributing").glob("*.md") if p.name != "index.md")
    guides = "advice loaders data recordings attach spark spark-streaming-shuffle environment".split()
    rest = ["changelog.md", "releasing.md", "paper.md"]
    return [
        {"Home": "index.md"},
        {"Tutorials": ["tutorials/index.md", *lessons]},
        {"How-to": ["howto/index.md", *questions]},
        {"Guides": [f"{name}.md" for name in guides]},
        {"Explanation": [*explanation, "glossary.md", {"Decisions": ["decisions/index.md", *decisions]}]},
        {"Reference": ["reference/index.md", *parts]},
        {"Evidence": ["ledger.md", "reproduction.md", "recordings.md", "performance.md", "live_policies.md"]},
        {"Joining": ["contributing/index.md", *joining, *rest]},
    ]


def build() -> None:
    import yaml

    shutil.rmtree(OUT, ignore_errors=True)
    documents()
    nav = navigation(tutorials(), howto(), reference())
    chart()
    config: dict[str, Any] = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(OUT),
        "site_dir": str(ROOT / "build" / "site"),
        "nav": nav,
    }
    config["hooks"] = [str(Path(__file__).resolve())]
    path = ROOT / "build" / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--quiet", "--config-file", str(path)]
    if code := subprocess.run(mkdocs, cwd=ROOT, check=False).returncode:
        raise SystemExit(code)
    pages = list((ROOT / "build" / "site").rglob("*.html"))
    if outside := {f"{p.name}: {url}" for p in pages for url in requests(p.read_text(encoding="utf-8"))}:
        raise SystemExit(f"site: pages request from elsewhere: {sorted(outside)[:5]}")
    print(f"build/site/index.html: {len(pages)} pages, opens without a server")


def requests(text: str) -> list[str]:
    """Return the addresses of other hosts that a browser loads with a page, which links to click are not."""
    found = re.findall(r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"' >]+)", text)
    kinds = r"<link\b(?=[^>]*rel=[\"']?(?:stylesheet|icon|preload|preconnect))[^>]*href=[\"']?((?:https?:)?//[^\"' >]+)"
    return found + re.findall(kinds, text)


if __name__ == "__main__":
    if "--run" in sys.argv:
        outputs.run([word for word in sys.argv[1:] if not word.startswith("-")])
    if "--sources" not in sys.argv:
        examples = [sys.executable, "-m", "pytest", "-n0", "-q", "tests/tooling/test_docs.py"]
        if "--no-examples" not in sys.argv and subprocess.run(examples, cwd=ROOT, check=False).returncode:
            raise SystemExit("site: an example of a how-to page fails")
    build()
