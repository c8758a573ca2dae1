"""The section of load predictors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..page import Found, PageSection, SectionContent, grid, records
from .study import LOADS, table


def show(found: Found) -> SectionContent:
    columns = [f"{kind}: {what}" for kind in LOADS for what in ("MASE", "held", "model's own")]
    lines = [(r["index"], *(f"{r[c]:.2f}" if "MASE" in c else f"{r[c]:.0%}" for c in columns)) for r in found["errors"]]
    head = [h for kind in LOADS for h in (f"{kind}: MASE", "90 % interval held", "model's own")]
    calm = [
        (r[f"{kind}: held"], r[f"{kind}: model's own"]) for r in found["errors"] if _widened(r) for kind in LOADS[:2]
    ]
    held, own = (_span(values) for values in zip(*calm, strict=True))
    return SectionContent({"errors": grid(("predictor", *head), lines), "calm": held, "calm own": own})


def _widened(row: Mapping[str, Any]) -> bool:
    """Return whether the intervals are calibrated; those of ELYSIUM as printed are the model's own."""
    return any(row[f"{kind}: held"] != row[f"{kind}: model's own"] for kind in LOADS)


def _span(shares: Iterable[float]) -> str:
    percent = sorted(round(100 * share) for share in shares)
    return f"{percent[0]} to {percent[-1]} %"


SECTION = PageSection({"errors": lambda: records(table().reset_index())}, show)
