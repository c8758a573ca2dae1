"""The section of Stela."""

from __future__ import annotations

from typing import Any

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .memory import scale_in_heaps, scale_out_heaps
from .settings import cores_table, scale_in_by_cores
from .study import PRINTED, PRINTED_CONVERGENCE, scale_in_table, scale_out_table
from .workers import RATIO, workers_table

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
    "diamond": "our default does not fall, and tasks limit a bolt to twice its executors",
    "page_load": "four new executors share one core", "processing": "four new executors share one core",
}  # fmt: skip
RULES = {"together": "one that is there (published)", "apart": "a new one", "spread": "all that are there, in turn"}


def show(found: Found) -> SectionContent:
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
        why = f"fitted: {WHY.get(name, 'layouts and service times are ours')}"
        rows.append(Row("Stela", what, printed, got, why, " %", "fitted"))
        told = PRINTED_CONVERGENCE[name]
        share = 100 * (1 - ours.convergence_s / default.convergence_s)
        said = "equal" if abs(share) < 10 else f"{share:.0f} % less" if share > 0 else "longer"
        why = "by the paper's definition it is 40 s at least, and our default settles in 60 to 90 s"
        rows.append(Row("Stela", f"{title.partition(',')[0]}: convergence against the default", told, said, why))
    kept = frame(found["scale in"])
    stela = kept[kept.strategy == "stela"].iloc[0]
    moved, dealt = (kept[kept.strategy == f"random, deal {kind}"].kept for kind in ("moved", "all"))
    ratio = f"{stela.kept / moved.max():.2g} to {stela.kept / moved.min():.2g} times"
    lot = f"{moved.min():.0%} to {moved.max():.0%}, median {moved.median():.0%} (all {len(moved)} choices)"
    other = kept[kept.strategy == "random, deal moved"].downtime_s.mean()
    down = f"{stela.downtime_s:.0f} s against {other:.0f} s: each machine has one operator at first, all of which moves"
    scaled = [
        ("Stela", "all", f"{stela.kept:.0%}"),
        ("random choice, only the instances of leaving machines move", "20 % and 60 % (two groups)", lot),
        ("random choice, all instances reassigned", "", f"{dealt.min():.0%} to {dealt.max():.0%}, whatever the choice"),
        ("Stela over a random choice", "2 to 5 times", ratio),
        ("down time", "87.5 % and 75 % less", down),
    ]
    shared = frame(found["workers"]).query("ratio == @RATIO and rule == 'together'")
    blocked = f"{_times(shared.stela / shared.worst)} the worst, {_times(shared.stela / shared.middle)} the median one"
    why = "executors share workers, and a full one blocks the others of its worker; over six initial placements"
    rows.append(Row("Stela", "scale-in 8 to 4 machines: Stela over a random choice", "2 to 5 times", blocked,
                    f"{why}; the load was searched for a large difference"))  # fmt: skip
    best = min(out.loc[(name, "stela")].convergence_s / out.loc[(name, "default")].convergence_s for name in TITLES)
    rows.append(Row("Stela", "abstract: interruption of scale-out, as a share of the default's", "as low as 12.5 %",
                    f"{100 * best:.0f} %", "by convergence time; in down time it is 0 of 20 s"))  # fmt: skip
    rows.append(Row("Stela", "down time of scale-in against random machines", "87.5 % and 75 % less",
                    f"{100 * (1 - stela.downtime_s / other):.0f} % less",
                    "each machine has one operator at first, all of which moves"))  # fmt: skip
    why = "with fair shares of cores alone no placement starves an operator"
    rows.append(Row("Stela", "the same, each executor a worker of its own", "2 to 5 times", ratio, why))
    heaps = frame(found["memory out"]).query("topology == 'diamond' and heap_s <= 100")
    spread = f"{_gain(heaps.over_default.min())} to {_gain(heaps.over_default.max())}"
    why = "smaller heaps also reduce the throughput before; their size is not known"
    rows.append(
        Row(
            "Stela",
            "diamond, where heaps of 100 to 10 s of the load overflow",
            "+120 %",
            spread,
            f"{why}; sizes were tried",
        )
    )
    head = "Stela over default: paper | ours | Stela over its own before: paper | ours"
    head += " | default over its own before: paper | ours | least link load: paper | ours"
    convergence = "paper: Stela against default | ours: Stela | ours: default | no output: Stela | default"
    convergence += " | operators paused, on average: Stela | default"
    return SectionContent(
        {
            "gains": grid(("scale-out", *head.split(" | ")), gains),
            "convergence": grid(("convergence", *convergence.split(" | ")), converges),
            **_by_cores(found),
            **_workers(found),
            **_memory(found),
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
            ("cores of a busy instance", "Stela", "worst random", "median random", "best random"), into
        ),
    }


def _workers(found: Found) -> dict[str, str]:
    """Return ranges over the initial placements: by the rule for arriving executors, and by congestion of the bolt."""
    known = frame(found["workers"])
    by_rule = [(RULES[r], *_ranges(known[(known.ratio == RATIO) & (known.rule == r)])) for r in RULES]
    by_ratio = [(f"{x:g}", *_ranges(g)) for x, g in known[known.rule == "together"].groupby("ratio")]
    words = "Stela keeps | worst random | median random | best random | choices that lose 40 % or more | 80 % or more"
    words += " | that keep half of Stela's or less"
    head = (*words.split(" | "), "Stela over the worst", "Stela over the median")
    return {
        "workers": grid(("executors that arrive at a machine join", *head), by_rule),
        "workers by ratio": grid(("input of the congested bolt over its capacity", *head), by_ratio),
    }


def _ranges(x: Any) -> list[str]:
    shares = [
        f"{x[c].min():.0%} to {x[c].max():.0%}"
        for c in ("stela", "worst", "middle", "best", "lose_40", "lose_80", "twice")
    ]
    return [*shares, _times(x.stela / x.worst), _times(x.stela / x.middle)]


def _times(ratios: Any) -> str:
    return f"{ratios.min():.2g} to {ratios.max():.2g} times"


def _memory(found: Found) -> dict[str, str]:
    known, into = frame(found["memory out"]), frame(found["memory in"])
    heaps = sorted(known.heap_s.unique(), reverse=True)
    at = known.set_index(["topology", "heap_s"])
    out = []
    for name in PRINTED:
        here = [at.loc[(name, h)] for h in heaps]
        cells = [f"{_gain(x.over_default)} ({x.stela_before / here[0].stela_before:.0%})" for x in here]
        out.append((TITLES[name].partition(",")[0], *cells, _gain(PRINTED[name])))
    names = ("before", "stela", "worst by lot", "middle by lot", "best by lot")
    most = into.before.max()
    rows = [(f"{r.heap_s:g} s", *(f"{r[n] / most:.0%}" for n in names)) for _, r in into.iterrows()]
    title = "heaps of a machine, in seconds of the whole load"
    return {
        "memory out": grid((title, *(f"{h:g} s" for h in heaps), "paper"), out),
        "memory in": grid((title, "before", "Stela", "worst random", "median random", "best random"), rows),
    }


def _gain(share: float) -> str:
    percent = round(100 * share)
    return f"{percent:+d} %" if percent else "0 %"


SECTION = PageSection(
    {
        "scale out": lambda: records(scale_out_table()),
        "scale in": lambda: records(scale_in_table()),
        "by cores": lambda: records(cores_table()),
        "scale in by cores": lambda: records(scale_in_by_cores()),
        "workers": lambda: records(workers_table()),
        "memory out": lambda: records(scale_out_heaps()),
        "memory in": lambda: records(scale_in_heaps()),
    },
    show,
    basis={
        "scale out.*#(convergence|downtime|stopped)": "",
        "scale out": "fitted",
        "workers": "chosen after seeing",
        "memory": "chosen after seeing",
    },
)
