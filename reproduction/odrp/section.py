"""The section of ODRP: chapter 6."""

from __future__ import annotations

from typing import Any

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import AIMS, DRAWN, PAIRS, TABLE_6_4, Q, by_rate, impact, objectives, overloaded, storm_objectives

NAME = "ODRP"
READINGS = {"multiplicity": "every pair of replicas", "support": "(6.7) as printed, every pair of nodes"}


def show(found: Found) -> SectionContent:
    values: dict[str, str] = {"drawn": str(DRAWN)}
    rows: list[Row] = []
    for add in (_impact, _objectives, _rates, _storm):
        more, headlines = add(found)
        values |= more
        rows += headlines
    return SectionContent(values, rows)


def _impact(found: Found) -> tuple[dict[str, str], list[Row]]:
    table = frame(found["impact"])
    lines = []
    for rate, some in table.groupby("tuples_per_s"):
        by = some.set_index(["program", "w_r"])
        cells = [f"{by.R_ms[('ODRP', r)]:.0f} ms, {by.instances[('ODRP', r)]:.0f}" for r, _ in PAIRS]
        lines.append((rate, *cells, f"{by.R_ms[('ODP', 0.8)]:.0f} ms, 10"))
    replicated = table[(table.program == "ODRP") & (table.w_r == 0.8)].set_index("tuples_per_s")
    single = table[(table.program == "ODP") & (table.w_r == 0.8)].set_index("tuples_per_s").R_ms
    first = int(replicated.index[replicated.instances > 10].min())
    alike = table[table.program == "ODP"].groupby("tuples_per_s").R_ms.nunique().max() == 1
    rows = [
        Row(NAME, "figure 6.3: instances of ODRP (0.8, 0.2) at 18 tuples/s", 18.0, float(replicated.instances[18]),
            "", "", "computed"),
        Row(NAME, "figure 6.3: response time of ODP at 18 over 10 tuples/s (medium load)", 4.0, single[18] / single[10],
            "without network delays; the thesis's network adds to both", " x", "computed"),
        Row(NAME, "figure 6.3: greatest over least response time of ODRP (0.8, 0.2)", "<= 1.5",
            replicated.R_ms.max() / replicated.R_ms.min(), "", " x", "computed"),
        Row(NAME, "figure 6.3: first replicas of ODRP (0.8, 0.2) above", "8 tuples/s",
            f"{first - 2} tuples/s", "loads rise by 2", "", "computed"),
        Row(NAME, "figure 6.3: ODP is the same under all weights", "yes", "yes" if alike else "no", "", "", "computed"),
    ]  # fmt: skip
    head = ("tuples/s: R, instances", *(f"ODRP ({r}, {c})" for r, c in PAIRS), "ODP")
    return {"impact": grid(head, lines)}, rows


def _objectives(found: Found) -> tuple[dict[str, str], list[Row]]:
    table = frame(found["objectives"])
    lines = []
    for (traffic, aim), some in table.groupby(["traffic", "aim"], sort=False):
        lines.append((aim, READINGS[traffic], _span(some.instances), _span(some.R_ms), f"{some.availability.min():.1%}",
                      _span(some.traffic_per_s / 1000), _proven(some), f"{some.seconds.median():.1f}"))  # fmt: skip
    counted = table[table.traffic == "multiplicity"].set_index("aim")
    support = table[table.traffic == "support"].set_index("aim")
    double = (counted.R_ms["C"].to_numpy() / counted.R_ms["R"].to_numpy()).mean()
    why = f"heavy operators, ends ({DRAWN} pairs drawn) and delays are not printed"
    rows = [
        Row(NAME, "figure 6.4: instances under R", "18", _span(counted.instances["R"]), why),
        Row(NAME, "figure 6.4: instances under C", "10", _span(counted.instances["C"]), why),
        Row(NAME, "figure 6.4: instances under A, at most", 13.0, float(counted.instances["A"].max()),
            f"{why}; several deployments have the same availability"),
        Row(NAME, "figure 6.4: instances under uniform weights", "12", _span(counted.instances["all"]),
            f"every pair of replicas counts; {why}"),
        Row(NAME, "figure 6.4: the same, (6.7) as printed", "12", _span(support.instances["all"]),
            "two replicas on one node carry half the stream, so that doubling saves traffic"),
        Row(NAME, "figure 6.4: response time under C over R", 2.0, float(double), "almost doubles, in the text", " x"),
    ]  # fmt: skip
    told = {"uniform": _span(counted.instances["all"]), "support": _span(support.instances["all"]),
            "proven": _proven(table)}  # fmt: skip
    head = "objective | traffic counts | instances | R, ms | availability, least | traffic, kB/s | proven | seconds"
    return {"objectives": grid(head.split(" | "), lines), **told}, rows


def _rates(found: Found) -> tuple[dict[str, str], list[Row]]:
    table, lines, rows = frame(found["rates"]), [], []
    for title in Q:
        some = table[table.q == title].set_index("tuples_per_s")
        lines.append((f"q {title}: {Q[title]:g}", *(f"{some.instances[r]:.0f}" for r in TABLE_6_4)))
    lines.append(("printed", *map(str, TABLE_6_4.values())))
    printed = table[table.q == "6.6.3, printed"].set_index("tuples_per_s")
    for rate, number in TABLE_6_4.items():
        why = "" if rate <= 60 else "delays are drawn, and a second node costs more than a replica saves"
        rows.append(
            Row(NAME, f"table 6.4: instances at {rate} tuples/s", float(number), float(printed.instances[rate]), why)
        )
    late = frame(found["overloaded"]).set_index(["scheduler", "tuples_per_s"])
    waits = [(s, *(f"{late.mean_s[(s, r)]:.3g} s ({late.most_s[(s, r)]:.3g} s)" for r in (60, 80, 100, 120)))
             for s in ("S-ODP", "S-ODRP")]  # fmt: skip
    for rate, longest in ((100, 106.0), (120, 300.0)):
        why = (
            "greatest of 900 s; 30 % too many records for 900 s are 200 s of them, by arithmetic" if rate == 100 else ""
        )
        rows.append(Row(NAME, f"figure 6.7: response time of S-ODP at {rate} tuples/s", longest,
                        float(late.most_s[("S-ODP", rate)]), why, " s"))  # fmt: skip
    level = late.most_s[("S-ODRP", 120)] / late.most_s[("S-ODRP", 80)]
    rows.append(Row(NAME, "figure 6.7: response time of S-ODRP at 120 over 80 tuples/s", 1.0, float(level), "", " x"))
    head = ("response time, mean (greatest)", *(f"{r} tuples/s" for r in (60, 80, 100, 120)))
    return {
        "rates": grid(("instances (table 6.4)", *(f"{r} tuples/s" for r in TABLE_6_4)), lines),
        "overloaded": grid(head, waits),
    }, rows


def _storm(found: Found) -> tuple[dict[str, str], list[Row]]:
    table = frame(found["storm objectives"])
    lines = []
    for aim, some in table.groupby("aim", sort=False):
        lines.append((aim, _span(some.instances), _span(some.R_ms), f"{some.availability.min():.1%}",
                      _span(some.traffic_per_s), _proven(some), f"{some.seconds.median():.2g}"))  # fmt: skip
    by = table.set_index(["aim", "seed"])
    mean = table.groupby("aim")[["R_ms", "traffic_per_s", "availability", "seconds"]].mean()
    why = "the delays and the node of source and sink are drawn"
    rows = [
        Row(NAME, "figure 6.8: response time under A over the least", 1.6, mean.R_ms["A"] / mean.R_ms["R"],
            f"{why}; many deployments have the availability", " x"),
        Row(NAME, "figure 6.8: instances under C", 9.0, float(by.instances["C"].max()), why),
        Row(NAME, "figure 6.8: instances under R, up to", 16.0, float(by.instances["R"].max()),
            "the thesis contradicts itself: 10 in table 6.4 for the same run"),
        Row(NAME, "figure 6.8: instances under uniform weights", 9.0, float(by.instances["all"].max()), why),
        Row(NAME, "figure 6.8: availability under A", 100.0, 100 * mean.availability["A"], why, " %"),
        Row(NAME, "figure 6.8: availability under uniform weights", 99.6, 100 * mean.availability["all"], why, " %"),
        Row(NAME, "figure 6.9: mean resolution time", 10.84, float(table.seconds.mean()),
            "CPLEX on the thesis's program against our search", " s"),
        Row(NAME, "figure 6.9: resolution time of R over C", 2.0, mean.seconds["R"] / mean.seconds["C"],
            "our search is quickest under R", " x"),
    ]  # fmt: skip
    head = "objective, 100 tuples/s | instances | R, ms | availability, least | traffic, records/s | proven | seconds"
    return {"storm": grid(head.split(" | "), lines), "aims": ", ".join(AIMS)}, rows


def _proven(some: Any) -> str:
    return f"{some.proven.sum()} of {len(some)}"


def _span(some: Any) -> str:
    low, high = float(some.min()), float(some.max())
    return f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"


SECTION = PageSection(
    {
        "impact": lambda: records(impact()),
        "objectives": lambda: records(objectives()),
        "rates": lambda: records(by_rate()),
        "overloaded": lambda: records(overloaded()),
        "storm objectives": lambda: records(storm_objectives()),
    },
    show,
    basis={"impact": "computed"},
)
