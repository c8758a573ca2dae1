"""Stela's section."""

from __future__ import annotations

from typing import Any

from ..page import Found, Row, Section, Shown, frame, grid, records
from ..stela import PRINTED, PRINTED_CONVERGENCE, scale_in_table, scale_out_table
from ..stela_settings import cores_table, scale_in_by_cores

TITLES = {
    "star": "star, 4 → 5 machines", "linear": "linear, 6 → 7", "diamond": "diamond, 6 → 7",
    "page_load": "Page Load, 7 → 8", "processing": "Processing, 8 → 9",
    "network_monitoring": "network monitoring, 8 → 9",
}  # fmt: skip
OWN = {"page_load": "+80 %", "processing": "+80 %"}  # Stela over its own before
DEFAULT = {"linear": "unchanged", "diamond": "unchanged", "page_load": "falls", "processing": "falls"}
DEFAULT |= {"network_monitoring": "unchanged"}
LEAST = {"page_load": "barely gains", "processing": "barely gains", "network_monitoring": "falls"}
WHY = {
    "diamond": "our default does not fall, and tasks let a bolt double at most",
    "page_load": "four new executors share one core", "processing": "four new executors share one core",
}  # fmt: skip


def show(found: Found) -> Shown:
    out = frame(found["scale out"]).set_index(["topology", "strategy"])
    least = "least link load"
    gains, converges, rows = [], [], []
    for name, title in TITLES.items():
        ours, default, other = (out.loc[name, s] for s in ("stela", "default", least))
        cells: list[Any] = [_gain(PRINTED[name]), _gain(ours.over_default)]
        cells += [OWN.get(name, ""), _gain(ours.own_gain), DEFAULT.get(name, ""), _gain(default.own_gain)]
        gains.append((title, *cells, LEAST.get(name, ""), _gain(other.own_gain)))
        times = [
            f"{x:.0f} s" for pair in ("convergence_s", "downtime_s", "stopped_s") for x in (ours[pair], default[pair])
        ]
        converges.append((title.partition(",")[0], PRINTED_CONVERGENCE[name].replace("equal", "about equal"), *times))
        what = f"{title.partition(',')[0]}: Stela's gain over the default after scale-out"
        printed, got = 100 * PRINTED[name], 100 * ours.over_default
        rows.append(Row("Stela", what, printed, got, WHY.get(name, "layouts and service times are ours"), " %"))
    kept = frame(found["scale in"])
    stela = kept[kept.strategy == "stela"].iloc[0]
    moved, dealt = (kept[kept.strategy == f"random, deal {kind}"].kept for kind in ("moved", "all"))
    ratio = f"{stela.kept / moved.max():.2g} to {stela.kept / moved.min():.2g} times"
    lot = f"{moved.min():.0%} to {moved.max():.0%}, median {moved.median():.0%} (all {len(moved)} choices)"
    other = kept[kept.strategy == "random, deal moved"].downtime_s.mean()
    down = f"{stela.downtime_s:.0f} s against {other:.0f} s: a machine has one operator at first: all of it moves"
    scaled = [
        ("Stela", "all", f"{stela.kept:.0%}"),
        ("chosen by lot, only homeless instances move", "20 % and 60 % (two groups)", lot),
        ("chosen by lot, all instances dealt anew", "", f"{dealt.min():.0%} to {dealt.max():.0%}, whatever the choice"),
        ("Stela over choice by lot", "2 to 5 times", ratio),
        ("down time", "87.5 % and 75 % less", down),
    ]
    why = "our nodes share cores fairly: no placement starves an operator"
    rows.append(Row("Stela", "scale-in 8 to 4 machines: Stela over choice by lot", "2 to 5 times", ratio, why))
    head = "Stela over default: paper | ours | Stela over its own before: paper | ours"
    head += " | default over its own before: paper | ours | least link load: paper | ours"
    convergence = "paper: Stela against default | ours: Stela | ours: default | nothing came out: Stela | default"
    convergence += " | operators stood still, on average: Stela | default"
    return Shown(
        {
            "gains": grid(("scale-out", *head.split(" | ")), gains),
            "convergence": grid(("convergence", *convergence.split(" | ")), converges),
            **_by_cores(found),
            "scale in": grid(("scale-in, Page Load, 8 → 4 machines: throughput kept", "paper", "ours"), scaled),
        },
        rows,
    )


def _by_cores(found: Found) -> dict[str, str]:
    swept = frame(found["by cores"]).pivot(index="topology", columns="cores", values="over_default").loc[list(PRINTED)]
    out = [(TITLES[n].partition(",")[0], *(_gain(x) for x in swept.loc[n]), _gain(PRINTED[n])) for n in PRINTED]
    kept = frame(found["scale in by cores"]).to_numpy().tolist()
    into = [(f"{cores:g}", *(f"{x:.0%}" for x in shares)) for cores, *shares in kept]
    return {
        "by cores": grid(("cores of a busy executor", *(f"{c:g}" for c in swept.columns), "paper"), out),
        "scale in by cores": grid(
            ("cores of a busy instance", "Stela", "worst by lot", "middle by lot", "best by lot"), into
        ),
    }


def _gain(share: float) -> str:
    percent = round(100 * share)
    return f"{percent:+d} %" if percent else "0 %"


SECTION = Section(
    {
        "scale out": lambda: records(scale_out_table()),
        "scale in": lambda: records(scale_in_table()),
        "by cores": lambda: records(cores_table()),
        "scale in by cores": lambda: records(scale_in_by_cores()),
    },
    show,
)
