"""The section of hierarchical control."""

from __future__ import annotations

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import VARIANTS, by_engine_share, markdown, table


def show(found: Found) -> SectionContent:
    policies = frame(found["policies"]).set_index("policy")
    others = frame(found["others"]).set_index("policy")
    shares = [
        (f"{r['cores for the engine']:.1f}", *(f"{r[p]:.1%}" for p in ("accept all", "beta 0.5", "beta 0.75")))
        for r in found["engine"]
    ]
    slack = "R of calm windows is below 150 ms most of the time, so that tokens are rare"
    worst = "R_max as the thesis's agreement defines it, the worst delay of an interval"
    rows = []
    for run, title, down, changes, why, basis in (
        (
            policies.loc["accept all"],
            "all granted",
            6.3,
            56.0,
            "cores that the engine takes are fitted to it",
            "fitted",
        ),
        (policies.loc["beta 0.75"], "tokens, β = 0.75, mean delay", 1.7, 15.0, slack, ""),
        (
            others.loc["beta 0.75, worst delay"],
            "tokens, β = 0.75, worst delay",
            1.7,
            15.0,
            worst,
            "chosen after seeing",
        ),
    ):
        rows.append(
            Row("Hierarchical control", f"downtime, {title}", down, 100 * (1 - run.availability), why, " %", basis)
        )
        counted = f"{why}; the printed number is implied by the downtime, at 6.5 s per change"
        rows.append(
            Row("Hierarchical control", f"reconfigurations, {title}", changes, float(run.reconfigurations), counted,
                "", basis)
        )  # fmt: skip
    rows.append(
        Row("Hierarchical control", "β = 0.5 against granting all: reconfigurations", "not significantly fewer",
            f"{policies.reconfigurations['beta 0.5']:.0f} against {policies.reconfigurations['accept all']:.0f}",
            "one grant per minute makes the migrations to and fro superfluous")
    )  # fmt: skip
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
    basis={
        "others.policy=beta 0.75, worst": "chosen after seeing",
        "policies.policy=accept all.*availability": "fitted",
    },
)
