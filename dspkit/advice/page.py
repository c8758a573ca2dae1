"""The advice as a report page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from .. import plots
from ..references import entries
from ..report import Section
from ..report import write as written
from . import tables

if TYPE_CHECKING:
    from .advice import Advice

_NOT_SHOWN = ("reference", "code", "dropped", "vertices", "backlog_unmeasured")  # or elsewhere on the page


def write(advice: Advice, path: str | Path | None, *, title: str, overwrite: bool) -> Path:
    """One HTML file: the answer, the operators, the policies with their reasons, what to change."""
    import pandas as pd

    loads, recommended = advice.figures
    topology, seen = advice.history.topology, advice.evidence.pooled
    answer = [Section("The answer" if i == 0 else "", sentence) for i, sentence in enumerate(advice.sentences)]
    sections = [
        *answer,
        Section("What runs", figure=plots.topology(topology, seen)),
        Section("The operators", figure=loads),
        Section("", table=tables.read_operators(advice)),
        Section("What each policy recommends", figure=recommended),
        Section("", table=tables.read_policies(advice)),
        Section("", table=tables.read_parallelism(advice)),
        Section("Why", "Each policy's own reasons.", table=tables.read_reasons(advice)),
    ]
    sections += _settings(advice)
    if advice.problems:
        dropped = pd.DataFrame(list(advice.problems.items()), columns=["dropped while loading", "times"])
        sections.append(Section("What was dropped", table=dropped))
    about = {k: v for k, v in advice.history.about.items() if k not in _NOT_SHOWN}
    about |= {"engine": advice.engine}
    if advice.target_latency is not None:
        about["latency target, s"] = advice.target_latency
    keys = [key for r in advice.recommendations for key in _keys(r.reference) if key in entries()]
    source = str(about.get("source", "")) or "a job"
    return written(
        sections, path, title=title or f"Advice for {source}", about=about, references=["dspkit", *keys],
        overwrite=overwrite,
    )  # fmt: skip


def _settings(advice: Advice) -> list[Section]:
    """What to change, open for the choice and folded for the others."""
    made: list[Section] = []
    changing = [r for r in advice.recommendations if r.deployment is not None and r.deployment != r.now]
    for r in sorted(changing, key=lambda r: r.policy != advice.choice):
        text, said = str(advice.settings(r.policy)), f"{r.policy}: {r.says}."
        title, chosen = "" if made else "What to change", r.policy == advice.choice
        shown = f"<pre>{escape(text)}</pre>" if chosen else ""
        made.append(Section(title, said, html=shown, code="" if chosen else text))
    return made


def _keys(reference: object) -> tuple[str, ...]:
    return (reference,) if isinstance(reference, str) else tuple(reference) if isinstance(reference, tuple) else ()
