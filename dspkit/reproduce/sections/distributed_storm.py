"""The section of Distributed Storm."""

from __future__ import annotations

from typing import Any

from ..distributed_storm import availability_table, chapter_3, chapter_4, stress_table
from ..page import Found, Row, Section, Shown, frame, grid, records

THESIS = "Distributed Storm"
WHY = "medians leave out the pauses of moves, which the thesis's means contain; six seeds spread widely"


def show(found: Found) -> Shown:
    table = frame(found["chapter 3"]).set_index(["application", "scheduler"])

    def cell(app: str, scheduler: str, column: str) -> str:
        return f"{table.loc[(app, scheduler), column]:+.0%}".replace("%", " %")

    latency = {
        "tag and count": ("tag_and_count", "-49 %"),
        "log processing": ("log_processing", "-18 %"),
        "word count": ("storm_word_count", "0"),
        "heavy": ("tag_and_count, heavy", "-35 to -43 %"),
        "replicated": ("tag_and_count, replicated", "-25 % (Rizou: -12.6 %)"),
    }
    traffic = {"log processing": "-63 %", "word count": "-31 %"}
    lines = []
    for title, (app, printed) in latency.items():
        medians = [cell(app, s, "median_change") for s in ("springs", "springs, skip_local")]
        mean, rizou = cell(app, "springs, skip_local", "mean_change"), cell(app, "Rizou", "median_change")
        lines.append((f"{title}, latency", printed, *medians, mean, rizou))
        if title in traffic:
            column = "traffic_per_change"
            crossing = [cell(app, s, column) for s in ("springs", "springs, skip_local", "Rizou")]
            lines.append((f"{title}, traffic between nodes (means)", traffic[title], crossing[0], "", *crossing[1:]))
    four = frame(found["chapter 4"]).set_index("policy")
    springs, skips, rizou = (four.loc[p] for p in ("springs", "springs, skip_local", "Rizou"))
    well, left = frame(found["availability"]), frame(found["stress"])
    well, left = well[well.scheduler == "springs"], left[left.scheduler == "springs"]
    first = f"{100 * well.at_660_s.min():.1f} to {100 * well.at_660_s.max():.0f} % at 660 s, 99.993 % again at "
    first += f"{well.recovered_s.min():.0f} to {well.recovered_s.max():.0f} s"
    gone = f"{left.left_at_s.min():.0f} to {left.left_at_s.max():.0f} s, median {left.left_at_s.median():.0f} s"
    figures = [
        ("3.5.1a: availability when a node drops to 85 %", "61.41 %, then 99.993 % again at 1000 s", first),
        ("3.5.1a: round robin", "stays low", "stays at 85 % (one executor there)"),
        ("3.5.1b: the stressed node is left by", "1500 s", f"{gone}; round robin never"),
        ("4.6.2: springs against S-ODP for elastic energy: traffic", "1.84 x",
         f"{springs.traffic_ratio:.2f} x (skip_local: {skips.traffic_ratio:.2f} x)"),
        ("the same: latency", "1.15 x", f"{springs.median_latency_ratio:.2f} x ({skips.median_latency_ratio:.2f} x)"),
        ("the same: moves until settled", "16", f"{springs.moves:.0f} ({skips.moves:.0f})"),
        ("4.6.2: Rizou against S-ODP for network usage", "optimal after 5 moves",
         f"{rizou.traffic_ratio:.2f} x traffic on average, {rizou.moves:.0f} moves"),
        ("4.6.2: Xu against S-ODP for traffic", "optimal at 750 s", "optimal at 60 s"),
    ]  # fmt: skip
    said: dict[str, Any] = {"tag_and_count": -49.0, "log_processing": -18.0, "tag_and_count, replicated": -25.0}
    rows = [
        Row(THESIS, f"{app.replace('_', ' ')}: latency over round robin", value,
            100 * float(table.loc[(app, "springs, skip_local"), "median_change"]), WHY, " %")
        for app, value in said.items()
    ]  # fmt: skip
    rows += [
        Row(THESIS, "log processing: traffic over round robin", -63.0,
            100 * float(table.loc[("log_processing", "springs, skip_local"), "traffic_per_change"]), "", " %"),
        Row(THESIS, "springs over the optimum: traffic", 1.84, float(springs.traffic_ratio), "", " x"),
        Row(THESIS, "springs over the optimum: latency", 1.15, float(springs.median_latency_ratio), WHY, " x"),
        Row(THESIS, "moves until settled", 16.0, float(springs.moves), "moves go on where coordinates are noisy"),
    ]  # fmt: skip
    head = "application | printed | springs, median | skip_local, median | skip_local, mean | Rizou, median"
    return Shown(
        {"changes": grid(head.split(" | "), lines), "figures": grid(("figure", "printed", "ours"), figures)}, rows
    )


SECTION = Section(
    {
        "chapter 3": lambda: records(chapter_3()),
        "availability": lambda: records(availability_table()),
        "stress": lambda: records(stress_table()),
        "chapter 4": lambda: records(chapter_4()),
    },
    show,
)
