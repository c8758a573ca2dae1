"""The section of numbers that follow from printed ones."""

from __future__ import annotations

from ..page import Found, PageSection, SectionContent, grid
from .study import values


def show(found: Found) -> SectionContent:
    lines = [
        (r["name"], ", ".join(map(str, r["value"])) if isinstance(r["value"], list) else f"{r['value']:,.6g}")
        for r in found["values"]
    ]
    return SectionContent({"values": grid(("value", "ours"), lines)})


SECTION = PageSection(
    {"values": values},
    show,
    basis={"ETP of|order of scale": "fitted", "values": "computed"},  # the figure is rebuilt from its printed results
)
