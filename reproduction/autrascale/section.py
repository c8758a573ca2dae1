"""The section of AuTraScale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import (
    METHODS,
    PRINTED,
    iterations_table,
    latency_table,
    overhead,
    plants_table,
    savings,
    throughput_table,
    transfer_table,
)

PAPER = "AuTraScale"
SEEDS = (1, 2, 3)
SETTINGS: dict[str, tuple[Sequence[int], dict[str, Any]]] = {
    "as above": (SEEDS, {}),
    "ten other seeds": (range(4, 14), {}),
    "`xi=0` (0.01)": (SEEDS, {"xi": 0.0}),
    "`xi=0.05`": (SEEDS, {"xi": 0.05}),
    "`xi=0.1`": (SEEDS, {"xi": 0.1}),
    "`noise=1e-3` (1e-4)": (SEEDS, {"noise": 1e-3}),
    '`prior="cost"`': (SEEDS, {"prior": "cost"}),
    '`prior="monotone"`': (SEEDS, {"prior": "monotone"}),
}
JOBS = {"crowded_word_count": "word count", "yahoo": "Yahoo"}
RATES = {
    "crowded_word_count": "word count, 350 k/s", "yahoo": "Yahoo, 60 k/s, store-limited", "query5": "query 5, 30 k/s",
    "query11": "query 11, 100 k/s",
}  # fmt: skip


def show(found: Found) -> SectionContent:
    throughput, rows = [], []
    literal = {r["job"]: _k(r["AuTraScale"]) for r in found["throughput, Eq. 3 as printed"]}
    for r in found["throughput"]:
        k, ds2 = _k(r["AuTraScale"]), _k(r["DS2"])
        limited = r["stopped because"] != "rate is met"
        ours = f"{k} (P_max)" if limited else k
        rounds = f"{r['rounds']}, {r['stopped because']}" if limited else f"{r['rounds']}"
        changes = f"{ds2} after {r['DS2 changes']} changes, same rate" if limited else ds2
        throughput.append((RATES[r["job"]], _k(r["paper"]), ours, literal[r["job"]], rounds, changes))
        why = "only what ran can be chosen, and Eq. 3 requests P_max at once" if limited else (
            f"rates are fitted to it, and Eq. 3 is changed to pass demand on: as printed it ends at {literal[r['job']]}"
        )  # fmt: skip
        rows.append(
            Row(PAPER, f"throughput test, {RATES[r['job']]}: parallelism", _k(r["paper"]), k, why, "", "fitted")
        )
    table = frame(found["word count"] + found["yahoo"])
    latency, met, slots = [], 0, {}
    for (job, start, method), printed in PRINTED.items():
        runs = table[(table.job == job) & (table.start == start) & (table.method == method)]
        said, ours = ("yes" if printed[3] else "no"), ("yes" if runs.QoS.all() else "no")
        title = f"{JOBS[job]} {start}, {method}" if method == METHODS[0] else method
        changed = ours if said == ours else f"**{ours}**"
        latency.append(
            (title, _k(printed[0], ","), _k(runs.k.iloc[0], ","), sum(printed[0]), _range(runs.slots),
             f"{printed[1]:.0f}", _range(runs.ms), printed[2], _each(runs.iterations), said, changed)
        )  # fmt: skip
        slots[job, start, method] = float(runs.slots.mean())
        if method == "AuTraScale":
            met += int(runs.QoS.sum())
            what = f"{JOBS[job]} {start}"
            rows.append(Row(PAPER, f"{what}: slots", float(sum(printed[0])), slots[job, start, method],
                            "stops at the first score of 0.9, which accepts superfluous instances"))  # fmt: skip
            why = "our plant's speeds; delays of hops were chosen with it in view"
            rows.append(Row(PAPER, f"{what}: latency", printed[1], float(runs.ms.mean()), why, " ms", "fitted"))
    saved = savings(table)
    for start, printed_share in (("down", 66.6), ("up", 36.7)):
        what = f"slots fewer than DRS, scale-{start}, mean over jobs"
        rows.append(Row(PAPER, what, printed_share, saved[start], _why_saved(slots, start), " %"))
    searches = table[table.method == "AuTraScale"]
    transfer = _transfer(found["transfer"])
    moved = frame(found["transfer"])
    rows += _transferred(moved)
    head = "latency test | k, paper | k, ours | slots, paper | ours | ms, paper | ours | iterations, paper | ours"
    return SectionContent(
        {
            "throughput": grid(
                (
                    "throughput test",
                    "paper",
                    "ours",
                    "ours, Eq. 3 as printed",
                    "rounds (paper: at most 4)",
                    "DS2 in an hour",
                ),
                throughput,
            ),
            "latency": grid((*head.split(" | "), "QoS, paper", "ours"), latency),
            "transfer": transfer,
            "iterations": _settings(found["iterations"]),
            "met": f"{met} of {len(searches)}",
            "within": f"{(searches.iterations <= 4).sum()} of {len(searches)}",
            "overhead": grid(
                ("operators", "train, ms", "use, ms", "transfer, ms"),
                [
                    (r["operators"], *(f"{1e3 * r[c]:.2g}" for c in ("Alg1_train", "Alg1_use", "Alg2")))
                    for r in found["overhead"]
                ],
            ),
            "plants": _plants(found["plants"]),
            **_from_base(frame(found["from the base"]), searches),
            "down": f"{saved['down']:.0f} %",
            "up": f"{saved['up']:.0f} %",
        },
        rows,
    )


def _why_saved(slots: dict[tuple[str, str, str], float], start: str) -> str:
    """Return what each method takes, which is why the share is what it is."""
    each = [
        f"{JOBS[job]}: DRS {slots[job, start, 'DRS observed']:.0f} and {slots[job, start, 'DRS true']:.0f}, "
        f"AuTraScale {slots[job, start, 'AuTraScale']:.0f}"
        for job in JOBS
    ]
    return "; ".join(each)


def _transferred(table: Any) -> list[Row]:
    """Return the claims of the transfer test: slots and cores against DS2, as they come out."""
    rows, slots, used = [], [], []
    for job, title, printed in (("query5", "query 5", "five fewer"), ("query11", "query 11", "similar")):
        ours, ds2 = (table[(table.job == job) & (table.way == way)] for way in ("transfer", "DS2"))
        more = float(ours.slots.mean() - ds2.slots.mean())
        slots.append(1 - ours.slots.mean() / ds2.slots.mean())
        used.append(1 - ours.cores.mean() / ds2.cores.mean())
        told = "as many" if abs(more) < 0.5 else f"{abs(more):.0f} {'more' if more > 0 else 'fewer'}"
        ran = int(ours.algorithm_2_runs.sum())
        why = f"{ran} runs of Algorithm 2 in {len(ours)} transfers" if ran else (
            "Algorithm 2 is never reached: the throughput base meets the target at once"
        )  # fmt: skip
        if not ds2.QoS.all():
            why += "; DS2's configuration misses the target"
        rows.append(Row(PAPER, f"{title} after a transfer: slots against DS2", printed, told, why))
    why = "DS2's vector is our base, below which no configuration keeps up"
    rows.append(Row(PAPER, "slots fewer than DS2 after a transfer, mean of both queries", 13.5,
                    100 * sum(slots) / len(slots), why, " %"))  # fmt: skip
    why = "cores that the simulated instances use, which follow the records, not the slots"
    rows.append(Row(PAPER, "CPU less than DS2 after a transfer, mean of both queries", 5.2,
                    100 * sum(used) / len(used), why, " %"))  # fmt: skip
    rows.append(Row(PAPER, "memory less than DS2 after a transfer", "6.2 %", "not modelled",
                    "the simulator has no memory of an instance"))  # fmt: skip
    return rows


def _plants(data: Sequence[dict[str, Any]]) -> str:
    lines = [
        (r["plant"], f"{r['down']:.0f} %", f"{r['up']:.0f} %", *(f"{r[f'{m} met']} of 4" for m in METHODS))
        for r in data
    ]
    head = ("plant", "saved, scale-down (66.6 %)", "saved, scale-up (36.7 %)", *(f"{m}: QoS met" for m in METHODS))
    return grid(head, lines)


def _transfer(data: Sequence[dict[str, Any]]) -> str:
    table, lines = frame(data), []
    says = {
        "query5": ("query 5, 20 → 30 k/s: slots (real runs)", "two iterations more than DS2, five slots fewer"),
        "query11": ("query 11, 80 → 100 k/s: slots (real runs)", "like DS2"),
    }
    for job, (title, printed) in says.items():
        cells = []
        for way in ("from scratch", "transfer", "transfer, monotone"):
            runs = table[(table.job == job) & (table.way == way)]
            cells.append(f"{_range(runs.slots)} ({_range(runs.runs)})")
        ds2 = table[(table.job == job) & (table.way == "DS2")]
        late = "" if ds2.QoS.all() else f", misses it ({_range(ds2.ms)} ms)"
        lines.append((title, printed, *cells, f"{_range(ds2.slots)}{late}"))
    return grid(("transfer test", "paper", "from scratch", "transfer", "transfer, monotone", "DS2"), lines)


def _searched() -> list[dict[str, Any]]:
    tables = {name: iterations_table(seeds, **knobs) for name, (seeds, knobs) in SETTINGS.items()}
    return [{"setting": name, **row} for name, table in tables.items() for row in records(table)]


def _settings(data: Sequence[dict[str, Any]]) -> str:
    table, lines = frame(data), []
    for name in SETTINGS:
        runs = table[table.setting == name]
        within = f"{(runs.iterations <= 4).sum()} of {len(runs)}"
        lines.append((name, within, round(float(runs.iterations.max())), round(float(runs.slots.mean()))))
    return grid(("AuTraScale in the latency test", "within 4 iterations", "longest", "slots, mean"), lines)


def _from_base(table: Any, searches: Any) -> dict[str, str]:
    """Return slots and real runs of searches that begin with the base alone, and how many meet the target again."""
    slots = {title: _range(table[table.job == job].slots) for job, title in JOBS.items()}
    return {
        "base word count": slots["word count"], "base Yahoo": slots["Yahoo"], "base runs": _range(table.runs),
        "usual runs": _range(searches.runs), "base met": f"{table.QoS.sum()} of {len(table)}",
    }  # fmt: skip


def _k(values: Sequence[int], between: str = ", ") -> str:
    return between.join(map(str, values))


def _range(values: Any) -> str:
    low, high = round(float(values.min())), round(float(values.max()))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _each(values: Any) -> str:
    found = [round(float(v)) for v in values]
    return str(found[0]) if len(set(found)) == 1 else ", ".join(map(str, found))


SECTION = PageSection(
    {
        "throughput": lambda: records(throughput_table()),
        "throughput, Eq. 3 as printed": lambda: records(throughput_table(mode="printed")),
        "word count": lambda: records(latency_table(SEEDS, ("crowded_word_count",))),
        "yahoo": lambda: records(latency_table(SEEDS, ("yahoo",))),
        "transfer": lambda: records(transfer_table(SEEDS)),
        "iterations": _searched,
        "from the base": lambda: records(iterations_table(SEEDS, again=True, prior="monotone", bootstrap="base")),
        "overhead": lambda: records(overhead()),
        "plants": lambda: records(plants_table()),
    },
    show,
    basis={"^throughput.*#AuTraScale": "fitted", "(word count|yahoo).*#ms": "fitted"},
)
