"""The notebooks as one course: `python .ci/course.py` writes the index and, below each title, links to the neighbours.

The description of a notebook is in its metadata: {"dspkit": {"learn": "one line", "minutes": 15, "after": ["00"]}}. A
picture notebooks/images/NAME_N.png becomes the stored output of the cell with the N-th view, for readers without a
kernel (on a code host, say): a run of the cell replaces it. Notebooks are written exactly as Jupyter saves them: then
opening one changes nothing. This script needs only the standard library.
"""

import base64
import json
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
INDEX = NOTEBOOKS / "README.md"
NAV = "course"  # the id of the cell, and the tag that keeps it out of reports
CAPTION = "The view as it looks after a run, without its controls. Run the cell for the live one."
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
pages of sliders without code. Only 02, 14, 15 and the live sections at the end of some others need Spark, which brings its own Java; on Binder everything is
installed already.

Without a kernel, pictures stand in the place of the views.
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


def stored(picture: Path) -> list[dict]:
    """Return a picture of a view, with its caption, as the output of a cell that has not run in this file."""
    image = base64.b64encode(picture.read_bytes()).decode()
    shown = {"image/png": image, "text/plain": [CAPTION]}
    caption = {"text/markdown": [f"*{CAPTION}*"], "text/plain": [CAPTION]}
    return [{"data": data, "metadata": {}, "output_type": "display_data"} for data in (shown, caption)]


def written(name: str, notebooks: dict[str, dict]) -> dict:
    """Return the notebook with its navigation, and no output but a picture in the cell of each view that has one."""
    notebook = notebooks[name]
    bare = [c for c in notebook["cells"] if NAV not in c["metadata"].get("tags", ())]
    cells, views = [bare[0], cell(NAV, navigation(name, notebooks), NAV)], 0
    for each in bare[1:]:
        if each["cell_type"] == "code":
            each = {**each, "execution_count": None, "outputs": []}
            if any(view in "".join(each["source"]) for view in VIEWS):
                views += 1
                if (picture := NOTEBOOKS / "images" / f"{name}_{views}.png").exists():
                    each["outputs"] = stored(picture)
        cells.append(each)
    return {**notebook, "cells": cells}


def text_of(notebook: dict) -> str:
    """Return the file as Jupyter writes it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(check: bool = False) -> int:
    """Write every stale file, or only name it with `check`; return the number of stale files."""
    found = sorted(path for path in NOTEBOOKS.glob("*.ipynb") if path.name[:2].isdigit())
    texts = {path: path.read_text(encoding="utf-8") for path in found}
    notebooks = {path.stem: json.loads(text) for path, text in texts.items()}
    wanted = {INDEX: index(notebooks)}
    for path in found:
        wanted[path] = text_of(written(path.stem, notebooks))
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(NOTEBOOKS.parent)}")
        if not check:
            path.write_text(wanted[path], encoding="utf-8")
    return len(stale)


if __name__ == "__main__":
    sys.exit(bool(main(check=True)) if "--check" in sys.argv else bool(main() and False))
