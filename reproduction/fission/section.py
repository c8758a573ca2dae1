"""The section of the self-adaptive graph with fission."""

from __future__ import annotations

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import MISPRINT, PAPER, SCENARIOS, costs, decisions, loads, parameter_study, table_2, under_noise

WHY = {
    "App 1": "the load's curve is fitted to these losses", "App 3": "the load's curve is fitted to these losses",
}  # fmt: skip


def show(found: Found) -> SectionContent:
    lines, rows = [], []
    for r in found["table 2"]:
        cells = []
        for kind in ("paper", "ours"):
            best = r[f"SS2 {kind}"]
            cells.append([f"{r[f'{s} {kind}']:,.0f} ({r[f'{s} {kind}'] / best:.1%})" for s in SCENARIOS])
        if (r["run"], "SS2") in MISPRINT:
            cells[0][-1] += f", printed {PAPER[r['run']][-1]:,}"
        lines.append((r["run"], *(c for pair in zip(*cells, strict=True) for c in pair)))
        why = "60 minutes are the 10-minute curve stretched: smoother than a real stream" if "60" in r["run"] else ""
        for s in ("SS1", "elastic"):
            what = f"{r['run']}, {s}: events processed"
            reason = why or WHY.get(r["run"][:5], "fitted")
            rows.append(Row("Fission", what, r[f"{s} paper"], r[f"{s} ours"], reason, "", "fitted"))
        lost = [100 * (1 - r[f"elastic {kind}"] / r[f"SS2 {kind}"]) for kind in ("paper", "ours")]
        rows.append(
            Row(
                "Fission",
                f"{r['run']}, elastic: events lost against SS2",
                lost[0],
                lost[1],
                why or "fitted",
                " %",
                "fitted",
            )
        )
        why = "half of SS2's replicas, rounded down; the curve is fitted"
        rows.append(
            Row("Fission", f"{r['run']}, SS3: events processed", r["SS3 paper"], r["SS3 ours"], why, "", "fitted")
        )
    losses = []
    for r in found["losses"]:
        numbers = (f"{r['paper']}", f"{r['ours']:.1f}", f"{r['least']:.1f} to {r['most']:.1f}")
        where = (f"{r['dropped']:.1f}", f"{r['waiting']:.1f}", f"{r['replica_seconds']:,.0f}")
        losses.append((f"{r['app']}, {r['variant']}", *numbers, *where))
        rows.append(
            Row(
                "Fission",
                f"{r['app']}, {r['variant']}: events lost",
                r["paper"],
                r["ours"],
                WHY[r["app"]],
                " %",
                "fitted",
            )
        )
    cost, used = [], {}
    for r in found["costs"]:
        used[r["run"], r["scenario"]] = r
        cost.append((f"{r['run']}, {r['scenario']}", f"{r['cores']:.2f}", f"{r['core_ms_per_event']:.2f}",
                     f"{r['waiting']:,.0f} ({r['most_waiting']:,.0f})", f"{r['replicas']:.1f}",
                     f"{r['controller']:.3f} %", f"{r['state_kb']:.0f} kB"))  # fmt: skip
    for title in dict.fromkeys(r["run"] for r in found["costs"]):
        elastic, full = used[title, "elastic"], used[title, "SS2"]
        more = elastic["core_ms_per_event"] / full["core_ms_per_event"]
        what, own = f"abstract: {title}, CPU per event, elastic over static", elastic["controller"]
        why = f"the policy itself takes {own:.3f} % of a core"
        rows.append(Row("Fission", what, "similar", f"{more:.2f} times", why))
        rows.append(Row("Fission", f"abstract: {title}, memory", "similar, more where events queue",
                        f"{elastic['waiting']:,.0f} events wait on average, static SS2 {full['waiting']:,.0f}",
                        "the simulator has no memory of an instance; the policy keeps "
                        f"{elastic['state_kb']:.0f} kB"))  # fmt: skip
    noise = frame(found["noise"])
    heads = [f"{s} {kind}" for s in SCENARIOS for kind in ("paper", "ours")]
    head = "paper | ours | on 12 shaken loads | dropped | waiting at the end | replica-seconds".split(" | ")
    levels = [c for c in noise if c != "run"]
    noisy = [(r["run"], *(f"{r[c]:.2f}" for c in levels)) for r in found["noise"]]
    return SectionContent(
        {
            "table 2": grid(("events processed", *heads), lines),
            "losses": grid(("events lost, %", *head), losses),
            "costs": grid(
                (
                    "scenario",
                    "cores used",
                    "core-ms per event",
                    "events waiting, mean (most)",
                    "replicas, mean",
                    "CPU of the policy, of one core",
                    "its state",
                ),
                cost,
            ),
            "noise": grid(("events lost, %, by deviation of the noise", *map(str, levels)), noisy),
        },
        rows,
    )


SECTION = PageSection(
    {
        "table 2": lambda: records(table_2().reset_index()),
        "losses": lambda: records(parameter_study().reset_index()),
        "noise": lambda: records(under_noise().reset_index()),
        "decisions": lambda: records(decisions()),
        "costs": lambda: records(costs()),
        "loads": loads,
    },
    show,
    basis={
        "table 2": "fitted",
        "losses": "fitted",
        "scenario=SS2.#replicas": "fitted",
        "loads.app=App 3": "input",
        "costs.*core_ms": "input",  # a simulated instance uses its cores per event, by construction
    },
)
