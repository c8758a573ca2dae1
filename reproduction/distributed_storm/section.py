"""The section of Distributed Storm."""

from __future__ import annotations

from typing import Any

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .bounds import log_processing_bound, word_count_pairs, word_count_table
from .failures import REPAIRS_S, as_printed, failures
from .study import TWO_NODES, availability_table, chapter_3, chapter_4, stress_table, user_metrics

THESIS = "Distributed Storm"
REDIS = "with the printed traffic, delays alone give at least -29 %; the rest is Redis, whose settings are not printed"
PRINTED = {  # latency, traffic
    "tag and count": ("-49 %", ""),
    "heavy, 1000 to 2000 s": ("-35 %", ""),
    "heavy, 4000 s on": ("-43 %", ""),
    "replicated": ("-25 % (Rizou -12.6 %)", ""),
    "log processing": ("-18 %", "-63 %"),
    "log processing, six processes": ("-18 %", "-63 %"),
    "word count": ("0", "-31 %"),
    "word count, on its two nodes": ("0", "-31 %"),
}
SCHEDULERS = ("springs", "springs, skip_local", "Rizou")


def percent(x: float) -> str:
    return f"{100 * x:+.0f} %"


def spread(values: Any, form: Any = percent) -> str:
    """Return the median with the least and the greatest value."""
    low, high = form(values.min()), form(values.max())
    return low if low == high else f"{form(values.median())} ({low} to {high})"


def show(found: Found) -> SectionContent:
    import pandas as pd

    three, four = frame(found["chapter 3"]), frame(found["chapter 4"])
    more, room = frame(found["chapter 4, seven processes"]), frame(found["room"])
    words, bound = frame(found["word count"]), frame(found["log processing"])
    two = frame(found["two nodes"])
    well, left = frame(found["availability"]), frame(found["stress"])
    values = {
        "changes": _changes(pd.concat([three, two])),
        "calmer": _changes(frame(found["chapter 3, calmer coordinates"])),
        "figures": _figures(well, left, three, four, more, room),
        "words": _words(words, frame(found["pairs"])),
        "least_cut": percent(bound.least_cut.max()), "usual_cut": percent(bound.least_cut.median()),
        "outside": f"{bound.outside_ms.min():.0f}", "usual_outside": f"{bound.outside_ms.median():.0f}",
    }  # fmt: skip

    def draws(values: Any, form: Any = percent) -> str:
        return f"the nodes are not printed; over eight draws {form(values.min())} to {form(values.max())}"

    def spread_of(application: str, column: str = "median_change") -> str:
        return draws(three[(three.application == application) & (three.scheduler == "springs")][column])

    other = three[(three.application == "replicated") & (three.scheduler == "Rizou")]
    user, lost, gone = frame(found["user metrics"]), frame(found["losses"]), frame(found["failures"])
    gone = gone[gone.repair_s == REPAIRS_S[0]].set_index("scheduler")
    values["user"] = grid(
        ("4.6.1", "printed", "ours, median (least to greatest)"),
        [("response time of S-ODP_A over S-ODP_R", "1.8 x", spread(user.ratio, lambda x: f"{x:.2f} x")),
         ("executors of S-ODP_R on nodes of 99 %", "8 of 12", spread(user["R on 99 %"], lambda x: f"{x:.0f}")),
         ("availability under S-ODP_R", "92.27 %", spread(user["R availability"], lambda x: f"{x:.2f} %")),
         ("availability under S-ODP_A", "100 %", spread(user["A availability"], lambda x: f"{x:.2f} %")),
         ("tuples lost with the printed 8 of 12 executors on nodes of 99 %", "3.37 %",
          spread(lost.loss, lambda x: f"{x:.2f} %"))],
    )  # fmt: skip
    values["failures"] = _failures(frame(found["failures"]))

    def changed(application: str, column: str = "median_change") -> float:
        chosen = three[(three.application == application) & (three.scheduler == "springs")]
        return 100 * float(chosen[column].median())

    springs, rizou = four[four.policy == "springs"], four[four.policy == "Rizou"]
    robin = well[well.scheduler == "round robin"]
    rows = [
        Row(THESIS, "round robin's availability", 61.41, float(100 * robin.at_1800_s.median()),
            "three processes were inferred from it", " %", "input"),
        *(
            Row(THESIS, f"{app}: latency over round robin", printed, changed(app), why or spread_of(app), " %")
            for app, printed, why in (
                ("tag and count", -49.0, ""), ("heavy, 1000 to 2000 s", -35.0, ""), ("heavy, 4000 s on", -43.0, ""),
                ("replicated", -25.0, ""), ("log processing", -18.0, REDIS),
            )
        ),
        Row(THESIS, "replicated: Rizou's latency over round robin", -12.6,
            100 * float(other.median_change.median()),
            "all six streams cross under round robin here, and two under Rizou", " %"),
        Row(THESIS, "a node that is up 85 %: median latency of springs over round robin", -72.0,
            100 * float(gone.latency_change["springs"].median()), spread(gone.latency_change["springs"]), " %"),
        *(
            Row(THESIS, f"the same: tuples sent again under {name}", printed, float(gone.again[name].median()),
                "how failures were emulated is not printed; here a node returns after 60 s in the mean", " %")
            for name, printed in (("round robin", 20.23), ("springs", 2.53))
        ),
        Row(THESIS, "response time of S-ODP_A over S-ODP_R", 1.8, float(user.ratio.median()),
            "of equally available placements the solver takes any", " x"),
        Row(THESIS, "log processing: traffic over round robin", -63.0, changed("log processing", "traffic_change"),
            spread_of("log processing", "traffic_change"), " %"),
        Row(THESIS, "word count: traffic over round robin", -31.0, changed("word count", "traffic_change"),
            "executors migrate from the two nodes to others between them", " %"),
        Row(THESIS, "word count: the same, on two nodes, with 1.5 words per sentence", -31.0,
            100 * float(two[two.scheduler == "springs"].traffic_change.median()),
            "in the thesis they stayed there; words per sentence are not printed: 1.5 is chosen", " %",
            "chosen after seeing"),
        Row(THESIS, "springs over the optimum: traffic", 1.84, float(springs.traffic_ratio.median()),
            draws(springs.traffic_ratio, lambda x: f"{x:.2f} x"), " x"),
        Row(THESIS, "springs over the optimum: latency", 1.15, float(springs.median_latency_ratio.median()),
            draws(springs.median_latency_ratio, lambda x: f"{x:.2f} x"), " x"),
        Row(THESIS, "Rizou over the optimum: usage", 1.0, float(rizou.aim_ratio_at_2000_s.median()),
            "with full slots executors have to use other nodes; with room it is 1", " x"),
        Row(THESIS, "springs: moves until settled", 16.0, float(springs.moves.median()), "counted up to 2000 s"),
    ]  # fmt: skip
    return SectionContent(values, rows)


def _changes(three: Any) -> str:
    """Return medians of windows by scheduler, and means for the springs."""
    lines = []
    for app, printed in PRINTED.items():
        if app not in set(three.application):
            continue
        runs = {s: three[(three.application == app) & (three.scheduler == s)] for s in SCHEDULERS}
        for of, column, told in zip(("latency", "traffic"), ("median_change", "traffic_change"), printed, strict=True):
            if told:
                mean, moved = "", ""
                if of == "latency":
                    mean, moved = spread(runs["springs"].mean_change), f"{runs['springs'].moves.median():.0f}"
                lines.append((f"{app}, {of}", told, *(spread(r[column]) for r in runs.values()), mean, moved))
    return grid(("application", "printed", *SCHEDULERS, "springs, means", "their moves"), lines)


def _failures(table: Any) -> str:
    """Return tuples sent again and latency by the mean time to repair."""
    lines = []
    for repair_s, some in table.groupby("repair_s"):
        by = dict(list(some.groupby("scheduler")))
        again = (spread(by[name].again, lambda x: f"{x:.1f} %") for name in ("round robin", "springs"))
        lines.append((f"{repair_s:g} s", *again, spread(by["springs"].latency_change)))
    lines.append(("printed", "20.23 %", "2.53 %", "-72 %"))
    head = ("mean time to repair", "sent again, round robin", "springs", "median latency, springs over round robin")
    return grid(head, lines)


def _words(words: Any, pairs: Any) -> str:
    """Return, by words per sentence, the savings of first placements and the pairs of nodes on which executors stay."""
    stay = pairs.pivot_table("stay", "words", "skip_local").reindex(words.words)
    share = [[f"{100 * x:.0f} %" if x == x else "" for x in stay[column]] for column in (False, True)]
    lines = [
        (f"{w.words:g}", percent(w.printed_order), f"{percent(w.least)} to {percent(w.most)}", *shares)
        for w, *shares in zip(words.itertuples(), *share, strict=True)
    ]
    return grid(
        (
            "words per sentence",
            "saved, assigned along the chain",
            "assigned in any order",
            "all stay: springs",
            "skip_local",
        ),
        lines,
    )


def _figures(well: Any, left: Any, three: Any, four: Any, more: Any, room: Any) -> str:
    dealt, well = well[well.scheduler == "round robin"], well[well.scheduler == "springs"]
    left = left[left.scheduler == "springs"]
    robin = three[three.scheduler == "round robin"].pivot_table("median_ms", "draw", "application")
    times, whole, part, at = "{:.2f} x".format, "{:.0f}".format, "{:.2f} %".format, "{:.0f} s".format
    lines = [
        ("3.5.1a: round robin when a node drops to 85 %", "61.41 %, permanently", spread(100 * dealt.at_1800_s, part)),
        ("3.5.1a: springs, at once", "", spread(100 * well.at_600_s, part)),
        ("3.5.1a: springs, 99.993 % again at", "1000 s", spread(well.recovered_s, at)),
        ("3.5.1b: time at which the last executor has left the stressed node", "1500 s",
         f"{spread(left.left_at_s, at)}; round robin never"),
        ("3.5.3: round robin's latency, twelve executors over seven", "lower",
         spread(robin["replicated"] / robin["tag and count"] - 1)),
    ]  # fmt: skip
    for of, frame_ in (("", four), (", seven processes", more)):
        runs = {s: frame_[frame_.policy == s] for s in SCHEDULERS}
        springs, skips, rizou = runs.values()
        lines += [
            (f"4.6.2: springs over S-ODP for elastic energy: traffic{of}", "1.84 x",
             f"{spread(springs.traffic_ratio, times)}; skip_local {spread(skips.traffic_ratio, times)}"),
            (f"the same: latency{of}", "1.15 x",
             f"{spread(springs.median_latency_ratio, times)}; skip_local {spread(skips.median_latency_ratio, times)}"),
            (f"the same: moves in 2000 s{of}", "16", f"{spread(springs.moves, whole)}; {spread(skips.moves, whole)}"),
            (f"4.6.2: Rizou over S-ODP for network usage: usage at 2000 s{of}", "1 x",
             spread(rizou.aim_ratio_at_2000_s, times)),
            (f"the same: moves in 2000 s{of}", "5", spread(rizou.moves, whole)),
        ]  # fmt: skip
    lines += [
        ("4.6.2: Rizou's usage with room for six executors in a slot", "1 x", spread(room.aim_ratio_at_2000_s, times)),
        ("4.6.2: Xu over S-ODP for traffic", "1 x, from 750 s", spread(four[four.policy == "Xu"].aim_ratio, times)),
    ]
    return grid(("figure", "printed", "ours"), lines)


SECTION = PageSection(
    {
        "chapter 3": lambda: records(chapter_3()),
        "chapter 3, calmer coordinates": lambda: records(chapter_3(gain=0.25)),
        "two nodes": lambda: records(chapter_3(trials=(TWO_NODES,))),
        "availability": lambda: records(availability_table()),
        "stress": lambda: records(stress_table()),
        "chapter 4": lambda: records(chapter_4()),
        "chapter 4, seven processes": lambda: records(chapter_4(policies=SCHEDULERS, processes=7)),
        "user metrics": lambda: records(user_metrics()),
        "failures": lambda: records(failures()),
        "losses": lambda: [{"loss": loss} for loss in as_printed()],
        "room": lambda: records(chapter_4(policies=("Rizou",), slot_executors=6)),
        "word count": lambda: records(word_count_table()),
        "pairs": lambda: records(word_count_pairs()),
        "log processing": lambda: records(log_processing_bound()),
    },
    show,
    basis={
        "availability.scheduler=round robin": "input",
        "two nodes": "chosen after seeing",
        "^failures.*#latency_change": "input",  # by the delays of the nodes alone: the failures do not change it
    },
)
