"""Reports: what happened, as one HTML file that opens anywhere, offline.

report.from_history(history)                    # a run
report.from_notebook("notebooks/00_start.ipynb")  # a notebook, run headless
report.write([Section("Load", figure=plot), ...], title="Mine")
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files
from .errors import DspkitError, FileError
from .history import THEN
from .references import entries, resolve
from .report_page import Section, page, slug

if TYPE_CHECKING:
    import pandas as pd

    from .history import History

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
    """Write `sections` as one HTML file and return its path.

    Without a path it goes to reports/<time>-<title>.html, under a name nobody else has. `about` is shown as a table
    with the versions of what made the report; `references` are reference keys, policies, or several of these.
    """
    sections = list(sections)
    if not sections:
        raise DspkitError("a report of no sections", expected="at least one", fix="pass report.Section(title, ...)")
    _free(path, overwrite)
    text = page(sections, title=title, about=about or {}, references=resolve(references))
    reserved = _reserve(title) if path is None else None
    try:
        return files.write(
            reserved or Path(str(path)),
            lambda p: p.write_text(text, encoding="utf-8"),
            overwrite=overwrite or reserved is not None,
        )
    except BaseException:
        if reserved is not None:
            reserved.unlink(missing_ok=True)
        raise


def from_history(
    history: History,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    target_latency_s: float | None = None,
    overwrite: bool = False,
) -> Path:
    """Report on one run: what ran, what happened, what was decided and why."""
    from . import plots

    if not len(history):
        raise DspkitError("an empty history", expected="at least one step", fix="run a policy first: dspkit.run(...)")
    about = dict(history.about)
    named, code = about.pop("reference", ()), str(about.pop("code", ""))
    cited = [key for key in ((named,) if isinstance(named, str) else named) if key in entries()]
    if target_latency_s is not None:
        about["latency target, s"] = target_latency_s
    settings = str(about.pop("settings", ""))
    sentence, decisions = _decisions(history)
    sections = [
        Section("What ran", figure=plots.topology(history.topology, history[-1].snapshot)),
        Section("What happened", figure=plots.timeline(history, target_latency_s=target_latency_s)),
        Section("What was decided", sentence, table=decisions),
        *_by_hand(history),
        Section("The operators", "Means over all windows; rates in records/s.", table=_operators(history)),
    ]
    if code:
        sections.append(Section("The same run as code", code=code))
    if settings:
        said = "Paste this into the view's settings, or hand it to its use(), to have the controls as they were."
        sections.append(Section("The settings of the view", said, html=f"<pre>{escape(settings)}</pre>"))
    policy = THEN.join(name.partition("(")[0] for name in str(about.get("policy", "")).split(THEN))
    title = title or (f"A run of {policy}" if policy else "A run")
    return write(sections, path, title=title, about=about, references=["dspkit", *cited], overwrite=overwrite)


def from_notebook(
    path: str | Path, out: str | Path | None = None, *, timeout_s: float = 300, overwrite: bool = False
) -> Path:
    """Run a notebook headless and report its prose, figures, tables and text; code is folded, controls are left out.

    It cites the policies that its code names; its metadata may name more: {"dspkit": {"references": ["stela"]}}.
    """
    from .notebook import execute
    from .report_cells import sections

    path = Path(path)
    _free(out, overwrite)  # before minutes of running, not after
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
    """The policies that code cells name, by class or by the name that pickers show."""
    from . import policies

    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    words = set(re.findall(r"\w+|\"[\w-]+\"|'[\w-]+'", code))
    kinds = policies.available().items()
    named = [kind for name, kind in kinds if words & {kind.__name__, f'"{name}"', f"'{name}'"}]
    return [kind for kind in named if getattr(kind, "reference", ())]


def _decisions(history: History) -> tuple[str, pd.DataFrame]:
    """The changes, in words; if nothing ever changed, why not."""
    every = history.decisions
    acted = every[every.rescaled.astype(bool)]
    shown = acted if len(acted) else every
    if not len(every):
        said = "Nothing was decided: every window was one in which a change settles."
    elif len(acted):
        said = f"{len(acted)} of {len(every)} decisions changed something; the others kept what ran."
    else:
        said = f"None of {len(every)} decisions changed anything."
    shown = shown.assign(why=[why.replace("; ", ";\n") for why in shown.why])  # one reason a line
    table = shown.drop(columns="rescaled").rename(columns={"t": "t, s", "instances": "instances after"})
    return said, table.reset_index(drop=True)


def _by_hand(history: History) -> list[Section]:
    import pandas as pd

    if not history.notes:
        return []
    table = pd.DataFrame(history.notes, columns=["t, s", "what"])
    return [Section("What was done by hand", "So no code makes this very run again.", table=table)]


def _operators(history: History) -> pd.DataFrame:
    """Means of what was measured; columns that say nothing are left out."""
    measured = history.operators.drop(columns="t")
    silent = [c for c in measured if measured[c].isna().all() or (c == "dropped" and not measured[c].any())]
    measured = measured.drop(columns=[c for c in silent if c != "operator"])
    means = measured.groupby("operator", sort=False).mean(numeric_only=True)
    order = [name for name in history.topology.order if name in means.index]
    return means.loc[order].rename(columns=lambda name: name.replace("_", " ")).reset_index()


def _free(path: str | Path | None, overwrite: bool) -> None:
    if path is not None and Path(path).exists() and not overwrite:
        raise FileError(f"{path}, which exists", expected="a new name", fix="choose another or pass overwrite")


def _reserve(title: str) -> Path:
    """A new, still empty file under reports/: two that ask in the same moment get two names."""
    folder = files.home("reports")
    stem, n = f"{time.strftime('%Y%m%d-%H%M%S')}-{slug(title) or 'report'}", 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            path = folder / (f"{stem}.html" if n == 1 else f"{stem}-{n}.html")
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                return path
            except FileExistsError:
                n += 1
    except OSError as error:
        raise FileError(str(error), expected="a folder to write in", fix="set DSPKIT_HOME to one") from error
