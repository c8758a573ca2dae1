"""The section of hierarchical control."""

from __future__ import annotations

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import VARIANTS, by_engine_share, markdown, table

WHY = "cores that the engine takes and delays are fitted; the requests of managers and the grants are as printed"


def show(found: Found) -> SectionContent:
    policies = frame(found["policies"]).set_index("policy")
    others = frame(found["others"]).set_index("policy")
    shares = [
        (f"{r['cores for the engine']:.1f}", *(f"{r[p]:.1%}" for p in ("accept all", "beta 0.5", "beta 0.75")))
        for r in found["engine"]
    ]
    rows = [
        Row("Hierarchical control", f"availability, {title}", printed, 100 * policies.availability[name], why, " %")
        for name, title, printed, why in (
            ("accept all", "all granted", 93.7, WHY),
            ("beta 0.75", "tokens, β = 0.75", 98.3, WHY),
        )
    ]
    rows += [
        Row("Hierarchical control", f"reconfigurations, {title}", printed, float(policies.reconfigurations[name]),
            "the printed value is read off a figure; ours are means over six loads")
        for name, title, printed in (("accept all", "all granted", 56.0), ("beta 0.75", "tokens, β = 0.75", 15.0))
    ]  # fmt: skip
    all_, half, most = (policies.loc[n] for n in ("accept all", "beta 0.5", "beta 0.75"))
    return SectionContent(
        {
            "policies": markdown(policies),
            "others": markdown(others),
            "engine": grid(("cores for the engine, of 8", "all granted", "β = 0.5", "β = 0.75"), shares),
            "all": f"{all_.availability:.1%}",
            "half": f"{half.availability:.1%}",
            "most": f"{most.availability:.1%}",
            "all changes": f"{all_.reconfigurations:.0f}",
            "most changes": f"{most.reconfigurations:.0f}",
        },
        rows,
    )


SECTION = PageSection(
    {
        "policies": lambda: records(table().reset_index()),
        "others": lambda: records(table(VARIANTS).reset_index()),
        "engine": lambda: records(by_engine_share().reset_index()),
    },
    show,
)
