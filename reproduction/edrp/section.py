"""The section of EDRP: Tables 8.3 and 8.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspkit.placement.datasets import SETTINGS

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .ansnet import FACTS, TOLD, elsewhere, facts, holds, shown
from .study import LITERAL, PRINTED, PRINTED_8_5, markdown, rows, table_8_3, table_8_4, table_8_5

if TYPE_CHECKING:
    import pandas as pd


SEARCHED = "source and sink are not printed: ours were searched for, looking at these results"
WHY = {
    "R_ms": {},
    "cost": {},
    "downtime_s": {
        "baseline": "a solver without the current deployment; each wanders differently among equal deployments",
        "balanced": "its scale-in moves no operator here",
        "cost": "how often R_max forces a change depends on the delays",
    },
}
UNITS = {"R_ms": ("mean response time", " ms"), "cost": ("mean cost", " $/h"), "downtime_s": ("downtime", " s")}
SHORT = {
    "parser": "parser", "filter_by_coordinates": "filterByCoordinates", "compute_route_id": "computeRouteID",
    "count_by_window": "countByWindow", "partial_rank": "partialRank",
}  # fmt: skip


def show(found: Found) -> SectionContent:
    hours = frame(found["hours"]).set_index(["objective", "seed"])
    decisions = frame(found["decisions"]).set_index(["nodes", "k"])
    here = {row["objective"]: row for row in found["ansnet"]}
    ends = facts(frame(found["elsewhere"]).set_index(["objective", "ends"]))
    lines = [
        Row("EDRP", f"{what}, {name}", PRINTED[name][column], here[_row(name, key)][key],
            "; ".join(filter(None, (WHY[key].get(name, ""), SEARCHED))), unit, "chosen after seeing")
        for name in SETTINGS
        for column, (key, (what, unit)) in enumerate(UNITS.items())
    ]  # fmt: skip
    lines += [
        Row("EDRP", f"a decision, {n} nodes, k = {k}", row.printed_s, float(row.seconds), "a search of our own", " s")
        for (n, k), row in decisions.dropna(subset="printed_s").iterrows()
    ]
    cluster = []
    for r in found["cluster"]:
        printed = PRINTED_8_5[r["objective"].partition(",")[0]]
        cells = (f"{r['R_ms']:.0f} ms", f"{r['cost']:.2f}", f"{r['downtime']:.2f} %")
        cluster.append((r["objective"], *(c for pair in zip(map(str, printed), cells, strict=True) for c in pair)))
        for (what, unit), value, ours in zip(
            (("mean response time", " ms"), ("mean cost", " $/h"), ("downtime", " %")), printed,
            (r["R_ms"], r["cost"], r["downtime"]), strict=True,
        ):  # fmt: skip
            why = "M/M/1 instead of fitted curves"
            lines.append(Row("EDRP", f"S-EDRP on the cluster, {what}, {r['objective']}", value, ours, why, unit))
    head = ("Table 8.5", "ms, paper", "ours", "$/h, paper", "ours", "downtime %, paper", "ours")
    values = {
        "cluster": grid(head, cluster),
        "lines": markdown(rows(hours, decisions)),
        "means": _means(here),
        "told": _timeline(here),
        "facts": _facts(here, ends, facts(hours)),
        "ways": _ways(ends, facts(hours)),
        **_of_ends(ends),
        **_told(hours, decisions),
    }
    return SectionContent(values, lines)


def _row(name: str, key: str) -> str:
    """Return the row of a value: the printed downtime of the baseline is that of the literal one."""
    return LITERAL if (name, key) == ("baseline", "downtime_s") else name


def _means(here: dict[str, Any]) -> str:
    """Return Table 8.3, printed values beside ours."""
    made = []
    for name in (LITERAL, *SETTINGS):
        r_ms, cost, downtime = PRINTED[name.partition(",")[0]]
        row = here[name]
        ours = (f"{row['R_ms']:.1f}", f"{row['cost']:.2f}", f"{row['downtime_s']:.1f}", row["reconfigurations"])
        made.append((name, r_ms, ours[0], cost, ours[1], downtime, ours[2], ours[3]))
    return grid(("", "ms, paper", "ours", "$/h, paper", "ours", "downtime s, paper", "ours", "changes"), made)


def _timeline(here: dict[str, Any]) -> str:
    """Return the timeline of scale-outs and their reversals."""
    made = []
    for name, (out, back) in TOLD.items():
        ours = [
            "; ".join(f"{e['minute']} {', '.join(SHORT[o] for o in e[way])}" for e in here[name]["events"] if e[way])
            for way in ("out", "in")
        ]
        made.append((name, out, ours[0], back, ours[1]))
    return grid(("", "doubled (minute), paper", "ours", "undone, paper", "ours"), made)


def _facts(here: dict[str, Any], ends: pd.DataFrame, drawn: pd.DataFrame) -> str:
    made = [
        (name, "yes" if mine else "no", int(ends[name].sum()), int(drawn[name].sum()))
        for name, mine in holds(here).items()
    ]
    return grid(("printed", "these ends", f"of {len(ends)} other ends", f"of {len(drawn)} drawn networks"), made)


def _ways(ends: pd.DataFrame, drawn: pd.DataFrame) -> str:
    """Return how often the printed facts hold, by the number of nodes on the shortest paths."""
    phases, order = list(FACTS)[3], list(FACTS)[5]
    made = []
    for way in sorted({*ends.way, *drawn.way}):
        cells = []
        for some in (ends[ends.way == way], drawn[drawn.way == way]):
            cells += [f"{int(some[fact].sum())} of {len(some)}" if len(some) else "" for fact in (phases, order)]
        made.append((int(way), *cells))
    head = ("nodes on the way", "ANSNET: two out, one in", "order", "drawn: two out, one in", "order")
    return grid(head, made)


def _of_ends(ends: pd.DataFrame) -> dict[str, str]:
    """Return the number of drawn pairs of ends for which facts hold."""
    names = list(FACTS)
    asked = {"all": "all but the last", "order": names[5], "ratio": names[6]}
    return {what: f"{int(ends[fact].sum())} of {len(ends)}" for what, fact in asked.items()}


def _told(hours: pd.DataFrame, decisions: pd.DataFrame) -> dict[str, str]:
    """Return the numbers within the prose."""
    downtime, response = hours.downtime_s.unstack(0), hours.R_ms.unstack(0)
    others, last = ("balanced", "response time", "cost"), hours.last_in_min["balanced"]
    ratios = {name: downtime[[name]].to_numpy() / downtime[[*others]] for name in (LITERAL, "baseline")}
    means = downtime["baseline"].mean() / downtime[[*others]].mean()
    return {
        "last in": f"{last.median():.0f} ({last.min():.0f} to {last.max():.0f})",
        "literal": ", ".join(f"{x:.1f}" for x in ratios[LITERAL].min()),
        "ours": ", ".join(f"{x:.1f}" for x in ratios["baseline"].min()),
        "ours mean": ", ".join(f"{x:.1f}" for x in means),
        "least on": str(int((response[[*SETTINGS]].idxmin(axis=1) == "response time").sum())),
        "kept cost": f"{hours.cost['response time'].mean():.1f}",
        "above": str(int((hours.above_R_max["balanced"] > 0).sum())),
        "restricted": f"{100 * decisions.restricted_worse.max():.0f} %",
    }


SECTION = PageSection(
    {
        "ansnet": shown,
        "elsewhere": lambda: records(elsewhere().reset_index()),
        "hours": lambda: records(table_8_3().reset_index()),
        "decisions": lambda: records(table_8_4().reset_index()),
        "cluster": lambda: records(table_8_5()),
    },
    show,
    basis={"first_out_min": "input", "ansnet": "chosen after seeing"},
)
