"""The section of EDRP: Tables 8.3 and 8.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...placement.taxi_query import SETTINGS
from ..edrp import LITERAL, PRINTED, markdown, rows, table_8_3, table_8_4
from ..page import Found, Row, Section, Shown, frame, records

if TYPE_CHECKING:
    import pandas as pd

DELAYS = "delays of ANSNET are not printed: ours are drawn"
WHY = {
    "R_ms": dict.fromkeys(SETTINGS, DELAYS),
    "cost": {"response time": "replicas are free here: w_c = 0"},
    "downtime_s": {
        "baseline": "ours stays where a change gains nothing",
        "balanced": "which replicas move depends on the drawn delays",
        "response time": "scales out once and for all, as replicas cost nothing",
        "cost": "how often R_max forces a replica depends on the delays",
    },
}
UNITS = {"R_ms": ("mean response time", " ms"), "cost": ("mean cost", " $/h"), "downtime_s": ("downtime", " s")}


def show(found: Found) -> Shown:
    hours = frame(found["hours"]).set_index(["objective", "seed"])
    decisions = frame(found["decisions"]).set_index(["nodes", "k"])
    mean = hours.groupby(level="objective", sort=False).mean(numeric_only=True)
    lines = [
        Row("EDRP", f"{what}, {name}", PRINTED[name][column], float(mean[key][name]), WHY[key].get(name, ""), unit)
        for name in SETTINGS
        for column, (key, (what, unit)) in enumerate(UNITS.items())
    ]
    lines += [
        Row("EDRP", f"a decision, {n} nodes, k = {k}", row.printed_s, float(row.seconds), "a search of our own", " s")
        for (n, k), row in decisions.dropna(subset="printed_s").iterrows()
    ]
    return Shown({"lines": markdown(rows(hours, decisions)), **_told(hours, decisions)}, lines)


def _told(hours: pd.DataFrame, decisions: pd.DataFrame) -> dict[str, str]:
    """Numbers within the prose."""
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


SECTION = Section(
    {
        "hours": lambda: records(table_8_3().reset_index()),
        "decisions": lambda: records(table_8_4().reset_index()),
    },
    show,
)
