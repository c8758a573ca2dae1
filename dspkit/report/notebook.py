"""Headless execution of a notebook that reports every error in it, and its outputs as the sections of a report.

Sections are prose, code, figures, tables and text; controls are left out.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import DspkitError, FileError, files
from .html import clean, markdown, picture
from .page import Section

if TYPE_CHECKING:
    from nbformat import NotebookNode


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKED = re.compile(r"""class\s*=\s*["'][^"']*\bdspkit-error\b""")


class NotebookError(DspkitError):
    """A failed cell, callback or view of a notebook."""


def execute(
    path: str | Path, *, timeout_s: float = 300, extra: Sequence[str] = (), smoke: bool = False
) -> NotebookNode:
    """Execute the notebook at `path` in a new kernel of this Python, in its folder; return it with its outputs.

    `timeout_s` bounds each cell. `extra` are the sources of additional cells, such as a reader's clicks:
    `button.click()`. `smoke` runs small examples: it applies the replacements in the metadata of cells, and sets
    DSPKIT_SMOKE=1. An error in a cell, one caught in an Output widget, a traceback on stderr, and a view with an error
    line each raise a NotebookError.
    """
    try:
        from nbclient.exceptions import CellControlSignal, CellExecutionError, CellTimeoutError, DeadKernelError
        from nbformat.v4 import new_code_cell

        from .kernel import Client
    except ImportError as error:
        raise NotebookError(
            str(error), expected="the packages of the notebooks", fix="pip install 'dspkit[notebooks]'"
        ) from error
    path, notebook = Path(path).absolute(), read_notebook(path)
    if smoke:
        for cell in notebook.cells:
            cell.source = smoke_source(cell)
    own = len(notebook.cells)
    notebook.cells += [new_code_cell(source) for source in extra]  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="dspkit-kernel-") as scratch:
        env = {
            "DSPKIT_HOME": str(files.home(".").resolve()),  # the notebook saves files to the caller's folder
            **os.environ,
            # One plain JSON per figure: the renderer that embeds plotly.js would send megabytes for each.
            "PLOTLY_RENDERER": "plotly_mimetype",
            "DSPKIT_HEADLESS": "1",  # views draw at once what they would otherwise draw later
            "IPYTHONDIR": scratch,  # a clean profile: no start-up files of the user, no files left behind
        }
        if smoke:
            env["DSPKIT_SMOKE"] = "1"
        client = Client(notebook, timeout=timeout_s, resources={"metadata": {"path": str(path.parent)}})
        try:
            client.execute(env=env)
        except (CellControlSignal, CellTimeoutError, DeadKernelError, RuntimeError, TimeoutError) as error:
            if client.stopped:  # a kernel that is being ended fails in each of these ways
                raise KeyboardInterrupt from error
            at, cell = (_failed if isinstance(error, CellExecutionError) else _running)(notebook)
            if isinstance(error, CellExecutionError):
                trouble = f"{error.ename}: {error.evalue}"
            elif isinstance(error, (CellTimeoutError, TimeoutError)):
                trouble = f"no end within {timeout_s:g} s"
            else:
                trouble = f"the kernel's death ({error})"
            raise _error(path, at, own, cell, trouble) from error
    for at, cell, trouble in _hidden(notebook):
        raise _error(path, at, own, cell, trouble)
    return notebook


def smoke_source(cell: NotebookNode) -> str:
    """Return a cell's source with the replacements of its metadata, {"dspkit": {"smoke": [[old, new], ...]}}."""
    source = str(cell.source)
    for old, new in cell.metadata.get("dspkit", {}).get("smoke", ()):
        if source.count(old) != 1:
            raise NotebookError(
                f"{old!r} {source.count(old)} times in a cell",
                expected="exactly one place for a smoke replacement",
                fix=f"correct the metadata of this cell:\n{source}",
            )
        source = source.replace(old, new)
    return source


def read_notebook(path: str | Path) -> NotebookNode:
    """Return the notebook at `path`, without executing it."""
    import nbformat

    try:
        with files.open_regular(path, expected="a notebook (.ipynb)") as file:
            text = file.read().decode()
        notebook: NotebookNode = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    except FileError:
        raise
    except Exception as error:  # what nbformat makes of an old or broken notebook has no common class
        raise FileError(
            f"{path}, not a notebook ({type(error).__name__})",
            expected="a notebook (.ipynb)",
            fix="open it in JupyterLab to see what is wrong",
        ) from error
    return notebook


def keep_language(model: Mapping[str, Any], **_: Any) -> None:
    """Save a notebook without the version of this Python, so that opening one from a checkout does not change it.

    `make lab` gives this to JupyterLab as ContentsManager.pre_save_hook.
    """
    if model.get("type") == "notebook" and model.get("content"):
        metadata = model["content"]["metadata"]
        if "name" in metadata.get("language_info", {}):
            metadata["language_info"] = {"name": metadata["language_info"]["name"]}


def plain_text(text: str) -> str:
    """Return the text of a terminal without colours, each line as it was last overwritten."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in _ANSI.sub("", text).split("\n"))


def _hidden(notebook: NotebookNode) -> Iterator[tuple[int | None, NotebookNode | None, str]]:
    """Yield errors that did not stop the run: index and cell if known, and the last line of the message."""
    for at, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and "raises-exception" not in cell.metadata.get("tags", ()):
            for output in cell.outputs:
                if trouble := _trouble(output):
                    yield at, cell, trouble
    widgets = notebook.metadata.get("widgets", {}).get("application/vnd.jupyter.widget-state+json", {})
    for model in widgets.get("state", {}).values():
        state = model.get("state", {})
        for output in state.get("outputs", ()):
            if trouble := _trouble(output):
                yield None, None, f"{trouble} (inside a widget's output)"
        value = state.get("value")
        if isinstance(value, str) and _MARKED.search(value):
            words = " ".join(unescape(re.sub(r"<[^>]*>", " ", value)).split())
            yield None, None, f"{words} (shown by a view)"


def _trouble(output: Mapping[str, Any]) -> str:
    """Return the last line of an error or of a traceback on stderr; "" if `output` is neither."""
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    text = plain_text(output.get("text", "")) if output.get("name") == "stderr" else ""
    if "Traceback (most recent call last)" in text:
        return text.strip().splitlines()[-1]
    return ""


def _failed(notebook: NotebookNode) -> tuple[int | None, NotebookNode | None]:
    """Return the cell whose error stopped the run: the last one with an error."""
    for at, cell in reversed(list(enumerate(notebook.cells))):
        if cell.cell_type == "code" and any(o.output_type == "error" for o in cell.outputs):
            return at, cell
    return _running(notebook)


def _running(notebook: NotebookNode) -> tuple[int | None, NotebookNode | None]:
    """Return the cell that was started last."""
    for at, cell in reversed(list(enumerate(notebook.cells))):
        if cell.cell_type == "code" and "execution" in cell.metadata:
            return at, cell
    return None, None


def _error(path: Path, at: int | None, own: int, cell: NotebookNode | None, trouble: str) -> NotebookError:
    trouble = plain_text(trouble)
    if at is None or cell is None:
        return NotebookError(
            f"{trouble} in {path.name}",
            expected="a notebook that runs without errors",
            fix="run it in JupyterLab and look at its views",
        )
    where = f"cell {at + 1}" if at < own else f"extra cell {at - own + 1}"
    source = "".join(f"\n    {line}" for line in cell.source.splitlines())
    return NotebookError(
        f"{trouble} in {where} of {path.name}",
        expected="a notebook that runs without errors",
        fix=f"correct this cell:{source}",
    )


PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
_PICTURES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp")
_LEFT_OUT = {"course"}  # tags of cells for notebooks only: navigation
_HEADING = re.compile(r"<h([12])>(.*?)</h\1>", re.DOTALL)


def sections(notebook: NotebookNode, folder: Path) -> tuple[str, list[Section]]:
    """Return the notebook's title ("" without one) and its sections; headings of the two upper levels begin cards."""
    title, found = "", list[Section]()
    for cell in notebook.cells:
        if _LEFT_OUT & set(cell.metadata.get("tags", ())):
            continue
        if cell.cell_type == "markdown":
            for level, heading, html in _split(markdown(cell.source, folder, cell.get("attachments"))):
                if level == 1 and not title and not any(s.title for s in found):
                    title, heading = heading, ""  # the title of the page, which is not repeated
                if heading or html:
                    found.append(Section(heading, html=html))
        elif cell.cell_type == "code":
            if cell.source.strip():
                found.append(Section("", code=cell.source))
            found += [s for output in cell.outputs for s in _output(output, folder)]
    return title, found


def _split(html: str) -> Iterator[tuple[int, str, str]]:
    """Yield level, heading and text of each part; the text before the first heading has level 0."""
    before, *rest = _HEADING.split(html)
    if before.strip():
        yield 0, "", before.strip()
    for level, heading, after in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        yield int(level), unescape(re.sub(r"<[^>]*>", "", heading)).strip(), after.strip()


def _output(output: NotebookNode, folder: Path) -> Iterator[Section]:
    if output.output_type == "stream":
        yield from _text(output.text)
    elif output.output_type == "error":  # an expected error: any other has ended the run
        yield from _text(f"{output.ename}: {output.evalue}")
    elif output.get("metadata", {}).get("dspkit") != "summary":  # the summary is already shown below its figure
        yield from _bundle(output.data, folder)


def _bundle(data: NotebookNode, folder: Path) -> Iterator[Section]:
    """Yield the richest form of an output that a page without a kernel can show."""
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
