"""Running a notebook headless, so that nothing that went wrong in it stays hidden."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files
from .errors import DspkitError, FileError

if TYPE_CHECKING:
    from nbformat import NotebookNode

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKED = re.compile(r"""class\s*=\s*["'][^"']*\bdspkit-error\b""")


class NotebookError(DspkitError):
    """A notebook with a cell, a callback or a view that failed."""


def execute(
    path: str | Path, *, timeout_s: float = 300, extra: Sequence[str] = (), smoke: bool = False
) -> NotebookNode:
    """Run the notebook at `path` in a fresh kernel of this Python, in its folder; return it with its outputs.

    `timeout_s` bounds each cell. `extra` are sources of cells run after its own, as a reader's clicks would be:
    `button.click()`. `smoke` sets DSPKIT_SMOKE=1, at which notebooks run small. An error in a cell, one caught in an
    Output widget, a traceback on stderr, and a view that shows its own error line each raise a NotebookError.
    """
    try:
        from nbclient.exceptions import CellControlSignal, CellExecutionError, CellTimeoutError, DeadKernelError
        from nbformat.v4 import new_code_cell

        from .kernel import Client
    except ImportError as error:
        raise NotebookError(
            str(error), expected="the packages of the notebooks", fix="pip install 'dspkit[lab]'"
        ) from error
    path, notebook = Path(path).absolute(), read(path)
    own = len(notebook.cells)
    notebook.cells += [new_code_cell(source) for source in extra]  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory(prefix="dspkit-kernel-") as scratch:
        env = {
            "DSPKIT_HOME": str(files.home(".").resolve()),  # what it saves goes where the caller's own things go
            **os.environ,
            # One plain JSON a figure: the renderer that embeds plotly.js would send megabytes for each.
            "PLOTLY_RENDERER": "plotly_mimetype",
            "DSPKIT_HEADLESS": "1",  # views wait for what they would draw later: nobody looks at them then
            "IPYTHONDIR": scratch,  # a fresh kernel: no start-up files of the user's, and none left behind
        }
        if smoke:
            env["DSPKIT_SMOKE"] = "1"
        client = Client(notebook, timeout=timeout_s, resources={"metadata": {"path": str(path.parent)}})
        try:
            client.execute(env=env)
        except CellExecutionError as error:
            at, cell = _failed(notebook)
            raise _error(path, at, own, cell, f"{error.ename}: {error.evalue}") from error
        except (CellTimeoutError, TimeoutError) as error:
            at, cell = _running(notebook)
            raise _error(path, at, own, cell, f"no end within {timeout_s:g} s") from error
        except (DeadKernelError, CellControlSignal, RuntimeError) as error:
            if client.stopped:
                raise KeyboardInterrupt from error
            at, cell = _running(notebook)
            raise _error(path, at, own, cell, f"the kernel's death ({error})") from error
    for at, cell, trouble in _hidden(notebook):
        raise _error(path, at, own, cell, trouble)
    return notebook


def read(path: str | Path) -> NotebookNode:
    """The notebook at `path`, not run."""
    import nbformat

    try:
        notebook: NotebookNode = nbformat.read(str(path), as_version=4)  # type: ignore[no-untyped-call]
    except FileNotFoundError as error:
        raise FileError(f"no file {path}", expected="a notebook (.ipynb)", fix="check the path") from error
    except (OSError, ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise FileError(
            f"{path}, not a notebook ({type(error).__name__})",
            expected="a notebook (.ipynb)",
            fix="open it in JupyterLab to see what is wrong",
        ) from error
    return notebook


def plain_text(text: str) -> str:
    """Text of a terminal without its colours, each line as it was last overwritten."""
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in _ANSI.sub("", text).split("\n"))


def _hidden(notebook: NotebookNode) -> Iterator[tuple[int | None, NotebookNode | None, str]]:
    """Errors that did not stop the run: place and cell where known, and the last line of what was said."""
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
    """The last line of an error or of a traceback on stderr; "" if `output` is neither."""
    if output["output_type"] == "error":
        return f"{output['ename']}: {output['evalue']}"
    text = plain_text(output.get("text", "")) if output.get("name") == "stderr" else ""
    if "Traceback (most recent call last)" in text:
        return text.strip().splitlines()[-1]
    return ""


def _failed(notebook: NotebookNode) -> tuple[int | None, NotebookNode | None]:
    """The cell whose error stopped the run: the last one with an error."""
    for at, cell in reversed(list(enumerate(notebook.cells))):
        if cell.cell_type == "code" and any(o.output_type == "error" for o in cell.outputs):
            return at, cell
    return _running(notebook)


def _running(notebook: NotebookNode) -> tuple[int | None, NotebookNode | None]:
    """The cell that was started last."""
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
