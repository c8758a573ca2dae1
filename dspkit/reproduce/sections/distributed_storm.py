"""The section of Distributed Storm."""

from __future__ import annotations

from typing import Any

from ..distributed_storm import availability_table, chapter_3, chapter_4, stress_table
from ..distributed_storm_bounds import log_processing_bound, word_count_table
from ..page import Found, Row, Section, Shown, frame, grid, records

THESIS = "Distributed Storm"
WHY = "medians of draws of nodes; the thesis has one run"
REDIS = (
    "with the printed -63 % of traffic delays alone give -28 % at least: the rest is Redis, of which nothing is printed"
)
PRINTED = {  # latency, traffic
    "tag and count": ("-49 %", ""),
    "heavy, 1000 to 2000 s": ("-35 %", ""),
    "heavy, 4000 s on": ("-43 %", ""),
    "replicated": ("-25 % (Rizou -12.6 %)", ""),
    "log processing": ("-18 %", "-63 %"),
    "word count": ("0", "-31 %"),
}
SCHEDULERS = ("springs", "springs, skip_local", "Rizou")


def percent(x: float) -> str:
    return f"{100 * x:+.0f} %"


def spread(values: Any, form: Any = percent) -> str:
    """The median, and from the least to the greatest."""
    return f"{form(values.median())} ({form(values.min())} to {form(values.max())})"


def show(found: Found) -> Shown:
    three, lines, median = frame(found["chapter 3"]), [], {}
    for app, printed in PRINTED.items():
        for column, told in zip(("median_change", "traffic_change"), printed, strict=True):
            cells = [three[(three.application == app) & (three.scheduler == s)][column] for s in SCHEDULERS]
            median[app, column] = {s: 100 * float(c.median()) for s, c in zip(SCHEDULERS, cells, strict=True)}
            of = "latency" if column == "median_change" else "traffic"
            if told or app in ("tag and count", "replicated"):
                lines.append((f"{app}, {of}", told or "not printed", *map(spread, cells)))
    base = three[(three.scheduler == "round robin") & (three.application == "tag and count")].median_ms
    more = three[(three.scheduler == "round robin") & (three.application == "replicated")].median_ms
    four = frame(found["chapter 4"])
    springs, skips, rizou = (four[four.policy == p] for p in SCHEDULERS)
    room = frame(found["room"])
    well, left = frame(found["availability"]), frame(found["stress"])
    dealt, well, left = (
        well[well.scheduler == "round robin"],
        well[well.scheduler == "springs"],
        left[left.scheduler == "springs"],
    )
    times, whole, part = "{:.2f} x".format, "{:.0f}".format, "{:.2f} %".format
    figures = [
        ("3.5.1a: round robin when a node drops to 85 %", "61.41 %, for good", spread(100 * dealt.at_1800_s, part)),
        ("3.5.1a: springs, at once", "", spread(100 * well.at_600_s, part)),
        ("3.5.1a: springs, 99.993 % again at", "1000 s", spread(well.recovered_s, "{:.0f} s".format)),
        ("3.5.1b: the stressed node is left by", "1500 s", spread(left.left_at_s, "{:.0f} s".format)),
        ("3.5.3: latency of round robin, twelve executors over seven", "lower", percent((more / base.values).median() - 1)
         if len(more) == len(base) else ""),
        ("4.6.2: springs against S-ODP for elastic energy: traffic", "1.84 x", spread(springs.traffic_ratio, times)),
        ("the same: latency", "1.15 x", spread(springs.median_latency_ratio, times)),
        ("the same: what it minimises, elastic energy", "sub-optimal", spread(springs.aim_ratio, times)),
        ("the same: moves in 2000 s", "16", spread(springs.moves, whole)),
        ("4.6.2: skip_local: traffic", "1.84 x", spread(skips.traffic_ratio, times)),
        ("4.6.2: skip_local: latency", "1.15 x", spread(skips.median_latency_ratio, times)),
        ("4.6.2: Rizou against S-ODP for network usage: usage at 2000 s", "1 x",
         spread(rizou.aim_ratio_at_2000_s, times)),
        ("the same with room for six executors in a slot", "", spread(room.aim_ratio_at_2000_s, times)),
        ("the same: moves in 2000 s", "5", spread(rizou.moves, whole)),
        ("4.6.2: Xu against S-ODP for traffic", "1 x at 750 s", spread(four[four.policy == "Xu"].aim_ratio, times)),
    ]  # fmt: skip
    words, bound = frame(found["word count"]), frame(found["log processing"])
    per = [(f"{w.words:g}", percent(w.printed_order), f"{percent(w.least)} to {percent(w.most)}")
           for w in words.itertuples()]  # fmt: skip
    worst = bound.iloc[0]
    values = {
        "changes": grid(("application", "printed", *SCHEDULERS), lines),
        "figures": grid(("figure", "printed", "ours"), figures),
        "words": grid(("words a sentence", "dealt along the chain", "dealt in any order"), per),
        "least_cut": percent(worst.least_cut), "usual_cut": percent(bound.least_cut.median()),
        "outside": f"{bound.outside_ms.min():.0f}", "usual_outside": f"{bound.outside_ms.median():.0f}",
    }  # fmt: skip
    rows = [
        Row(THESIS, f"{app}: latency over round robin", told, median[app, "median_change"]["springs"], why, " %")
        for app, told, why in (
            ("tag and count", -49.0, WHY), ("heavy, 1000 to 2000 s", -35.0, WHY), ("heavy, 4000 s on", -43.0, WHY),
            ("replicated", -25.0, WHY), ("log processing", -18.0, REDIS),
        )
    ]  # fmt: skip
    one = 100 * float(words.iloc[1].printed_order)
    rows += [
        Row(THESIS, "log processing: traffic over round robin", -63.0,
            median["log processing", "traffic_change"]["springs"], WHY, " %"),
        Row(THESIS, "word count: traffic over round robin, first placements, 1.5 words a sentence", -31.0, one,
            "words a sentence are not printed", " %"),
        Row(THESIS, "round robin's availability", 61.41, float(100 * dealt.at_1800_s.median()), "", " %"),
        Row(THESIS, "springs over the optimum: traffic", 1.84, float(springs.traffic_ratio.median()), WHY, " x"),
        Row(THESIS, "springs over the optimum: latency", 1.15, float(springs.median_latency_ratio.median()), WHY, " x"),
        Row(THESIS, "Rizou over the optimum: usage", 1.0, float(rizou.aim_ratio_at_2000_s.median()),
            "full nodes send executors on to their neighbours", " x"),
        Row(THESIS, "moves until settled", 16.0, float(springs.moves.median()), "2000 s; noise in coordinates"),
    ]  # fmt: skip
    return Shown(values, rows)


SECTION = Section(
    {
        "chapter 3": lambda: records(chapter_3()),
        "availability": lambda: records(availability_table()),
        "stress": lambda: records(stress_table()),
        "chapter 4": lambda: records(chapter_4()),
        "room": lambda: records(chapter_4(policies=("Rizou",), slot_executors=6)),
        "word count": lambda: records(word_count_table()),
        "log processing": lambda: records(log_processing_bound()),
    },
    show,
)
