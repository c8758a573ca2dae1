"""The section of optimal placement: resolution times."""

from __future__ import annotations

from functools import partial
from typing import Any

from dspkit.placement import scenario, solve

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import resolution_table, sampling_table, scaling_table

THESIS = "Optimal placement"
WHY = "CPLEX on 4 virtual CPUs against our solver, which uses the structure, on one core"


def _seconds(x: float) -> str:
    return f"{x:,.1f}" if x >= 10 else f"{x:.2g}"


def times(size: int) -> list[dict[str, Any]]:
    solve(scenario("sequential", 16), "response_s")  # compiles
    solve(scenario("replicated", 16, operators=11), "response_s")
    return records(resolution_table(sizes=(size,)))


def show(found: Found) -> SectionContent:
    lines, rows, proven = [], [], 0
    for r in found["36 nodes"] + found["100 nodes"]:
        name = f"{r['application']}, {r['nodes']}, {r['weights']}"
        stopped = " (stopped)" if r["stopped"] else ""
        lines.append(
            (
                name,
                f"{r['printed_s']:,.1f}{stopped}",
                _seconds(r["ours_s"]),
                _seconds(r["slowest_s"]),
                f"{r['faster']:,.3g}",
            )
        )
        proven += int(r["proven"].split("/")[0])
        if r["weights"] == "all":
            rows.append(Row(THESIS, f"{name}: seconds to the optimum{stopped}", r["printed_s"], r["ours_s"], WHY, " s"))
    hard = frame(found["scaling"]).set_index(["application", "setting"])
    part = frame(found["sampling"]).set_index(["application", "share"])
    chain = [hard.ours_s[("sequential", s)] for s in ("Sc2: 50 nodes", "Sc1: 50 operators")]
    diamond = [hard.ours_s[("diamond", s)] for s in ("Sc2: 50 nodes", "Sc1: 50 operators")]
    labels = [hard.effort[("sequential", f"capacity {c}")] for c in (2, 6, 10)]
    labels.insert(1, hard.effort[("sequential", "20 operators, 20 nodes")])
    shares = {f"{a} {s}": f"{part.response[(a, s)]:.2f}" for a in ("sequential", "diamond") for s in (0.2, 0.4)}
    rows.append(Row(THESIS, "chain on 20 % of the nodes: response time over the best", 3.0,
                    float(part.response[("sequential", 0.2)]),
                    "R_i is 1 ms, as only then it can be three", " x", "chosen after seeing"))  # fmt: skip
    rows.append(Row(THESIS, "diamond on 20 % of the nodes: response time over the best", 1.02,
                    float(part.response[("diamond", 0.2)]),
                    "not all optima proven within 20 s; R_i is 1 ms", " x", "chosen after seeing"))  # fmt: skip
    return SectionContent(
        {
            "times": grid(("application, nodes, weights", "CPLEX, s", "ours, s", "slowest", "ratio"), lines),
            "proven": f"{proven} of {3 * len(lines)}",
            "chain nodes": _seconds(chain[0]),
            "chain operators": _seconds(chain[1]),
            "diamond nodes": _seconds(diamond[0]),
            "diamond operators": _seconds(diamond[1]),
            "labels": ", ".join(f"{x:,.0f}" for x in labels),
            **shares,
        },
        rows,
    )


SECTION = PageSection(
    {
        "36 nodes": partial(times, 36),
        "100 nodes": partial(times, 100),
        "scaling": lambda: records(scaling_table()),
        "sampling": lambda: records(sampling_table()),
    },
    show,
    basis={"sampling": "chosen after seeing"},
)
