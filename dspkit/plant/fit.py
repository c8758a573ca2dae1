"""The plant behind a recorded run: service times, scalability, selectivities, pause and room, with intervals.

Only what snapshots hold is used, so that a run may be simulated, live, or loaded from a file. What it cannot tell
stays as in `start`, or at its default, and is named in the notes together with the run that would tell it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from numbers import Real
from typing import TYPE_CHECKING

from ..errors import KnobError, MetricError
from .plant import Plant

if TYPE_CHECKING:
    import pandas as pd

    from ..history import History


@dataclass(frozen=True)
class Estimate:
    """One quantity: its value and interval, each None where the run cannot tell."""

    where: str  # an operator, "u → v" for an edge, a node, or "job"
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    windows: int = 0
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """A plant ready for the simulator, and how well each of its numbers is known."""

    plant: Plant
    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...]
    confidence: float = 0.95

    def __getitem__(self, what: tuple[str, str]) -> Estimate:
        """The estimate of a quantity, as in `fit["count", "contention"]`."""
        for estimate in self.estimates:
            if (estimate.where, estimate.quantity) == what:
                return estimate
        raise KeyError(what)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a quantity; NaN is unknown."""
        import pandas as pd

        columns = ["where", "quantity", "value", "low", "high", "windows", "note"]
        frame = pd.DataFrame([[getattr(e, c) for c in columns] for e in self.estimates], columns=columns)
        return frame.astype({"value": float, "low": float, "high": float, "windows": int})

    def __repr__(self) -> str:
        lines = [f"Fit, intervals of {self.confidence:.0%}"]
        wide = max((len(e.where) for e in self.estimates), default=0)
        for e in self.estimates:
            value, between = _said(e)
            told = f"  {e.where:<{wide}}  {e.quantity:<18} {value:<10} {between:<24} {e.note}"
            lines.append(told.rstrip())
        return "\n".join([*lines, *(f"  * {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        cells = [(e.where, e.quantity, *_said(e), str(e.windows), e.note) for e in self.estimates]
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
        heads = ("where", "quantity", "value", f"{self.confidence:.0%} interval", "windows", "note")
        head = "".join(f"<th>{name}</th>" for name in heads)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><ul>{notes}</ul>"


def fit(history: History, *, confidence: float = 0.95, start: Plant | None = None) -> Fit:
    """The plant that would have made this run, by weighted least squares, ratios of sums and stitched pauses.

    An operator's time for a record, $1/$`true_rate`, follows $s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ [gunther2007usl]:
    one parallelism k shows s alone, two show contention as well (coherency as in `start`, else 0), three all. If the
    rate of all instances together stops rising while they are busy, and BIC prefers that, an external ceiling takes the
    place of coherency. Windows in which the job stood still or a node was full tell little of the law and are left out.

    `start` gives what no snapshot tells: nodes and their speeds, links, distributions, kind of pause. Instances that
    no placement names are taken to run where `round_robin` puts them; without `start` all nodes have speed 1.

    >>> from dspkit import run, topologies
    >>> from dspkit.policies.ds2 import DS2
    >>> app = topologies.word_count()
    >>> fitted = fit(run(DS2(), app.simulator(), steps=100), start=app.plant)
    >>> bool(abs(fitted["count", "seconds_per_record"].value * 30e3 - 1) < 0.05)
    True
    """
    from ..history import History
    from .fit_job import job
    from .fit_operators import Reading

    if not isinstance(history, History):
        raise MetricError(f"history {history!r}", expected="a History", fix="pass what run() or History.load() returns")
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise KnobError(f"confidence={confidence!r}", expected="a share between 0 and 1", fix="as in 0.95")
    if start is not None:
        if not isinstance(start, Plant):
            raise KnobError(f"start={start!r}", expected="a Plant, or None", fix="as in start=app.plant")
        start.check(history.topology)
    run = Reading(history, confidence, start)
    run.must_tell()
    services = {name: run.operator(name) for name in history.topology.order}
    plant = replace(start or Plant(services), services=services, **job(run))
    notes = [*_unknown(run.estimates), *run.notes]
    return Fit(plant.check(history.topology), tuple(run.estimates), tuple(notes), confidence)


def _unknown(estimates: Iterable[Estimate]) -> list[str]:
    """What could not be known, with what would tell it; one note for all that lack the same."""
    lacking: dict[str, dict[str, list[str]]] = {}
    for e in estimates:
        if e.value is None:
            lacking.setdefault(e.note, {}).setdefault(e.quantity, []).append(e.where)
    notes = []
    for why, what in lacking.items():
        named = "; ".join(f"{quantity} of {', '.join(places)}" for quantity, places in what.items())
        notes.append(f"Unknown: {named}: {why}.")
    return notes


def _said(e: Estimate) -> tuple[str, str]:
    """Value and interval in words."""
    value = "unknown" if e.value is None else f"{e.value:.4g}"
    ends = ["" if x is None else f"{x:.4g}" for x in (e.low, e.high)]
    return value, f"{ends[0] or '?'} to {ends[1] or '?'}" if any(ends) else ""
