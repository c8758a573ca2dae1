"""The three kinds of reports: of sections, of a run, and of a notebook that is executed headless."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import THEN, ArgumentError, files
from ..core.parameters import is_printed_code
from ..core.references import entries, resolve
from .page import Section, page, slug

if TYPE_CHECKING:
    import pandas as pd

    from ..core import History


__all__ = ["Section", "from_history", "from_notebook", "write"]


def write(
    sections: Sequence[Section],
    path: str | Path | None = None,
    *,
    title: str,
    about: Mapping[str, Any] | None = None,
    references: Any = (),
    overwrite: bool = False,
) -> Path:
    """Write sections as one HTML file and return its path.

    Parameters
    ----------
    sections : sequence of Section
        The cards of the page, at least one.
    path : str or Path, optional
        The file; by default a new one, reports/<time>-<title>.html.
    title : str
        Title of the page.
    about : mapping, optional
        Facts to show as a table, with the versions of the packages.
    references : object
        Sources to cite: reference keys, policies, or several of these.
    overwrite : bool
        Whether to replace an existing file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write([Section("Load", "It rises.")], f"{folder}/r.html", title="Mine", references="stela").name
    'r.html'
    """
    sections = list(sections)
    if not sections:
        raise ArgumentError("a report without sections", expected="at least one", fix="pass report.Section(title, ...)")
    files.check_free(path, overwrite=overwrite)
    text = page(sections, title=title, about=about or {}, references=resolve(references))
    if path is not None:
        return _save(text, path, overwrite)
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(title) or 'report'}"
    for n in itertools.count(1):  # concurrent calls get different names
        with contextlib.suppress(files.ExistingFileError):
            return _save(text, files.home("reports") / (f"{stem}.html" if n == 1 else f"{stem}-{n}.html"))
    raise AssertionError("unreachable")


def _save(text: str, path: str | Path, overwrite: bool = False) -> Path:
    # Half a character, as in a broken name of an operator, cannot be encoded; it is shown as its number.
    return files.write_atomically(
        path, lambda p: p.write_text(text, encoding="utf-8", errors="backslashreplace"), overwrite=overwrite
    )


def from_history(
    history: History,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    target_latency_s: float | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a report of one run: the job, its metrics, and the decisions with their reasons.

    Parameters
    ----------
    history : History
        The run.
    path : str or Path, optional
        As of `write`.
    title : str, optional
        Title of the page; by default it names the policy.
    target_latency_s : float, optional
        The latency to meet, in seconds, drawn as a line.
    overwrite : bool
        As of `write`.

    Examples
    --------
    >>> import tempfile
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> history = run(DS2(), apps.word_count().simulator(), steps=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     from_history(history, f"{folder}/r.html").stat().st_size > 1000
    True
    """
    from .. import plots
    from ..plots import playback

    if not len(history):
        raise ArgumentError("an empty history", expected="at least one step", fix="run a policy first: dspkit.run(...)")
    about = dict(history.about)
    named, code = about.pop("reference", ()), str(about.pop("code", ""))
    named = named if isinstance(named, tuple) else (named,)
    cited = [key for key in named if isinstance(key, str) and key in entries()]
    if target_latency_s is not None:
        about["latency target, s"] = target_latency_s
    settings = str(about.pop("settings", ""))
    sentence, decisions = _decisions(history)
    sections = [
        Section("The run, window by window", figure=playback.Recording.of(history, target_latency_s)),
        Section("What ran", figure=plots.topology(history.topology, history[-1].snapshot)),
        Section("What happened", figure=plots.timeline(history, target_latency_s=target_latency_s)),
        Section("What was decided", sentence, table=decisions),
        *_by_hand(history),
        Section("The operators", "Means over all windows; rates in records/s.", table=_operators(history)),
    ]
    if code:
        said = "" if is_printed_code(code) else "It has more in it than calls of dspkit: read it before you run it."
        sections.append(Section("The same run as code", said, code=code))
    if settings:
        said = "Paste this into the view's settings, or pass it to its use(), to restore the controls."
        sections.append(Section("The settings of the view", said, html=f"<pre>{escape(settings)}</pre>"))
    policy = THEN.join(name.partition("(")[0] for name in str(about.get("policy", "")).split(THEN))
    title = title or (f"A run of {policy}" if policy else "A run")
    return write(sections, path, title=title, about=about, references=["dspkit", *cited], overwrite=overwrite)


def from_notebook(
    path: str | Path, out: str | Path | None = None, *, timeout_s: float = 300, overwrite: bool = False
) -> Path:
    """Execute a notebook headless, and write a report of its prose, figures, tables and text.

    Code is folded, controls are left out. The report cites the policies that the code names, and the references of the
    notebook's metadata: {"dspkit": {"references": ["stela"]}}.

    Parameters
    ----------
    path : str or Path
        The notebook, which is not changed.
    out : str or Path, optional
        As `path` of `write`.
    timeout_s : float
        Most seconds of one cell.
    overwrite : bool
        As of `write`.

    Examples
    --------
    >>> import nbformat, tempfile
    >>> book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Mine\\nIt works.")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nbformat.write(book, f"{folder}/mine.ipynb")
    ...     "<h1>Mine</h1>" in from_notebook(f"{folder}/mine.ipynb", f"{folder}/mine.html").read_text()
    True
    """
    from .notebook import execute, sections

    path = files.given_path(path)
    files.check_free(out, overwrite=overwrite)  # before a run of minutes, not after it
    started = time.monotonic()
    notebook = execute(path, timeout_s=timeout_s)
    about = {"notebook": path.name, "ran for": f"{time.monotonic() - started:.1f} s"}
    title, found = sections(notebook, path.absolute().parent)
    references = [*notebook.metadata.get("dspkit", {}).get("references", []), *_used(notebook)]
    return write(
        found,
        out,
        title=title or path.stem,
        about=about,
        references=["dspkit", *references],
        overwrite=overwrite,
    )


def _used(notebook: Any) -> list[Any]:
    """Return the policies that code cells name, by class or by registered name."""
    from .. import policies

    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    words = set(re.findall(r"\w+|\"[\w-]+\"|'[\w-]+'", code))
    kinds = policies.available().items()
    named = [kind for name, kind in kinds if words & {kind.__name__, f'"{name}"', f"'{name}'"}]
    return [kind for kind in named if getattr(kind, "reference", ())]


def _decisions(history: History) -> tuple[str, pd.DataFrame]:
    """Return the changes as a sentence and a table; without changes, all decisions with their reasons."""
    every = history.decisions
    acted = every[every.rescaled.astype(bool)]
    shown = acted if len(acted) else every
    if not len(every):
        said = "No decision was made: every window was within the settling time of a change."
    elif len(acted):
        said = f"{len(acted)} of {len(every)} decisions changed the deployment; the others kept it."
    else:
        said = f"None of {len(every)} decisions changed the deployment."
    shown = shown.assign(why=[why.replace("; ", ";\n") for why in shown.why])  # one reason per line
    table = shown.drop(columns="rescaled").rename(columns={"t": "t, s", "instances": "instances after"})
    return said, table.reset_index(drop=True)


def _by_hand(history: History) -> list[Section]:
    import pandas as pd

    if not history.notes:
        return []
    table = pd.DataFrame(history.notes, columns=["t, s", "what"])
    return [Section("What was done by hand", "No code reproduces this run, therefore.", table=table)]


def _operators(history: History) -> pd.DataFrame:
    """Return the means of the metrics; columns without values are left out."""
    measured = history.operators.drop(columns="t")
    silent = [c for c in measured if measured[c].isna().all() or (c == "dropped" and not measured[c].any())]
    measured = measured.drop(columns=[c for c in silent if c != "operator"])
    means = measured.groupby("operator", sort=False).mean(numeric_only=True)
    order = [name for name in history.topology.order if name in means.index]
    return means.loc[order].rename(columns=lambda name: name.replace("_", " ")).reset_index()
