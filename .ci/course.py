"""The notebooks as one course: `python .ci/course.py` writes the index and, below each title, links to the neighbours.

The description of a notebook is in its metadata: {"dspkit": {"learn": "one line", "minutes": 15, "after": ["00"]}}. A
picture notebooks/images/NAME_N.png is shown below the N-th view, for readers without a kernel (on a code host, say).
This script needs only the standard library.
"""

import json
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
INDEX = NOTEBOOKS / "README.md"
NAV = "course"  # the id of the cell, and the tag that keeps it out of reports
PICTURE = "code-host"  # the tag of cells with a picture of a view
VIEWS = ("Compare(", "EtpPicker(", "Explorer(", "Lesson(", "Live(", "Sensitivity(", "TopologyView(", "TwoDays(")

HEAD = """# The notebooks

{count} notebooks, from a first run to metrics of your own. **Start with [00](00_start.ipynb)**: it takes five minutes, and
all the others build on it. Then work through them in order, or open the one you need: each is self-contained (*Run All
Cells*) and names the notebooks to read first.

| | notebook | what you will learn | minutes | read first |
|---|---|---|---|---|
"""  # noqa: E501
TAIL = """
Every view with sliders shows its own code and the settings that reproduce it. *Export report* saves a run as one HTML file;
`python -m dspkit report notebooks/00_start.ipynb` does the same for a whole notebook. `make app` serves the notebooks as
pages of sliders without code. Only 02, 14 and the live sections at the end of some others need Spark, which brings its own Java; on Binder everything is
installed already.

Without a kernel, the pictures below the views show how they look.
"""  # noqa: E501


def title(notebook: dict) -> str:
    source = "".join(notebook["cells"][0]["source"])
    return source.splitlines()[0].lstrip("# ").strip()


def first_sentence(notebook: dict) -> str:
    prose = "".join(notebook["cells"][0]["source"]).split("\n\n", 2)
    return " ".join(prose[1].split()).partition(". ")[0] if len(prose) > 1 else ""


def about(notebook: dict) -> dict:
    told = notebook["metadata"].get("dspkit", {})
    return {"learn": first_sentence(notebook), "minutes": 15, "after": ["00"], **told}


def index(notebooks: dict[str, dict]) -> str:
    rows = []
    for name, notebook in notebooks.items():
        told = about(notebook)
        after = ", ".join(told["after"]) if name[:2] != "00" else ""
        rows.append(
            f"| {name[:2]} | [{title(notebook)}]({name}.ipynb) | {told['learn']} | {told['minutes']} | {after} |\n"
        )
    return HEAD.replace("{count}", str(len(notebooks))) + "".join(rows) + TAIL


def navigation(name: str, notebooks: dict[str, dict]) -> list[str]:
    names, told = list(notebooks), about(notebooks[name])
    at = names.index(name)
    parts = [f"[All notebooks](README.md) · {told['minutes']} minutes"]
    if name[:2] != "00":
        parts.append(f"self-contained; read first: {', '.join(told['after'])}")
    for word, other in (("previous", at - 1), ("next", at + 1)):
        if 0 <= other < len(names):
            parts.append(f"{word}: [{title(notebooks[names[other]])}]({names[other]}.ipynb)")
    return [" · ".join(parts)]


def cell(name: str, source: list[str], tag: str) -> dict:
    return {"cell_type": "markdown", "id": name, "metadata": {"tags": [tag]}, "source": source}


def written(name: str, notebooks: dict[str, dict]) -> dict:
    """Return the notebook with its navigation, and a picture below each view that has one."""
    notebook = notebooks[name]
    tags = {NAV, PICTURE}
    bare = [c for c in notebook["cells"] if not tags & set(c["metadata"].get("tags", ()))]
    cells, views = [bare[0], cell(NAV, navigation(name, notebooks), NAV)], 0
    for each in bare[1:]:
        cells.append(each)
        source = "".join(each["source"])
        if each["cell_type"] == "code" and any(view in source for view in VIEWS):
            views += 1
            picture = f"images/{name}_{views}.png"
            if (NOTEBOOKS / picture).exists():
                words = f"![The view above after it has started, without its controls]({picture})"
                cells.append(cell(f"picture-{views}", [words], PICTURE))
    return {**notebook, "cells": cells}


def main(check: bool = False) -> int:
    """Write every stale file, or only name it with `check`; return the number of stale files."""
    found = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if path.name[:2].isdigit())
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    notebooks = {path.stem: json.loads(text) for path, text in texts.items()}
    wanted = {INDEX: index(notebooks)}
    for path in found:
        wanted[path] = json.dumps(written(path.stem, notebooks), indent=1, ensure_ascii=False) + "\n"
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(NOTEBOOKS.parent)}")
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
    return len(stale)


if __name__ == "__main__":
    sys.exit(bool(main(check=True)) if "--check" in sys.argv else bool(main() and False))
