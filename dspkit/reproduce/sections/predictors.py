"""The section of load predictors."""

from __future__ import annotations

from ..page import Found, Section, Shown, grid, records
from ..predictors import LOADS, table


def show(found: Found) -> Shown:
    columns = [f"{kind}: {what}" for kind in LOADS for what in ("MASE", "held", "model's own")]
    lines = [(r["index"], *(f"{r[c]:.2f}" if "MASE" in c else f"{r[c]:.0%}" for c in columns)) for r in found["errors"]]
    head = [h for kind in LOADS for h in (f"{kind}: MASE", "90 % interval held", "model's own")]
    return Shown({"errors": grid(("predictor", *head), lines)})


SECTION = Section({"errors": lambda: records(table().reset_index())}, show)
