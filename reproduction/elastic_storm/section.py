"""The section of Elastic Storm."""

from __future__ import annotations

from typing import Any

from ..page import Found, PageSection, Row, SectionContent, frame, grid, records
from .study import RUNS, SEQUENCE, detectors, moved, overhead, phases, play

STORM = "Elastic Storm"


def runs() -> dict[str, Any]:
    """Return the phases, Detectors and moved tasks of all three runs."""
    histories = {name: play(name) for name in RUNS}
    return {
        "detectors": detectors(histories["elastic"]),
        **{name: records(phases(h).reset_index()) for name, h in histories.items()},
        "moved": records(moved(histories["elastic, reassigns"]).reset_index()),
    }


def show(found: Found) -> SectionContent:
    static, elastic = (
        frame(found["runs"][name]).set_index("tweets_per_s", drop=False) for name in ("static", "elastic")
    )
    share = frame(found["runs"]["moved"]).set_index("kind")["mean"]
    cost = frame(found["overhead"]).set_index("MB")
    peak, last = elastic[elastic.phase == 3].iloc[0], elastic[elastic.phase == 5].iloc[0]
    calm, worst, quiet = (static[static.phase == n].iloc[0] for n in (2, 3, 5))
    same = tuple(found["runs"]["detectors"]) == SEQUENCE
    saved = ("scale in", "scale out", "reassigned")
    number = frame(found["runs"]["moved"]).set_index("kind")["count"]
    again, scaled = int(number.get("reassigned", 0)), int(number.get("scale in", 0) + number.get("scale out", 0))
    begun = ", ".join(map(str, found["from five"]["detectors"]))
    waits = f"not by 4500 s ({quiet.waiting / 1000:.0f} k tweets wait)" if quiet.waiting > 1000 else "by 4500 s"
    shares = ", ".join(f"{share[k]:.0%}".replace("%", " %") for k in saved)
    sequence, ours = (", ".join(map(str, counts)) for counts in (SEQUENCE, found["runs"]["detectors"]))
    asks = (
        f"{cost.prototype[2.0]:.1f} to {cost.prototype[16.0]:.1f} s if its prototype's polling and waits are simulated"
    )
    told = f"{cost.told[2.0]:.1f} to {cost.told[16.0]:.1f} s if barriers are sent as messages"
    after = f"{peak.latency_ms:.0f} ms; {peak.worst_ms:.0f} ms in the window after the change"
    lines = [
        ("sequence of numbers of Detectors", sequence, "the same, in both engines" if same else ours),
        ("executors at the peak and at the end", "23, 8", f"{peak.executors:.0f}, {last.executors:.0f}"),
        ("static at 900 tweets/s", "up to 1500 ms", f"{worst.latency_ms:.0f} ms (queues are fitted to it)"),
        ("elastic at 900 tweets/s", "below 900 ms", after),
        ("static at 350 tweets/s", "rises continuously", f"steady, {calm.latency_ms:.0f} ms"),
        ("static, backlog drained", "at 3300 s", waits),
        ("migrations", "6 after scaling, 3 after rescheduling", f"{scaled}, and {again} with `reschedule=True`"),
        ("the same from Table 7.1's five Detectors", "not printed; the table has five, the run twenty", begun),
        ("saved state that changes node: scale-in, scale-out, rescheduling", "37.5 %, 0 %, 65 %", shares),
        ("overhead of a move, 2 to 16 MB", "about 10 s, almost independent of size", f"{asks}; {told}"),
    ]
    out, fair = f"{share['scale out']:.0%}".replace("%", " %"), "no node takes more than an even share of executors"
    rows = [
        Row(STORM, "Detectors through five phases", sequence, ours,
            "any service time of 10 to 15.5 ms per tweet; ours 12.5. Begins with 20, where Table 7.1 has 5", "",
            "fitted"),
        Row(STORM, "static at 900 tweets/s: latency", 1500.0, float(worst.latency_ms), "queues are fitted", " ms",
            "fitted"),
        Row(STORM, "static at 350 tweets/s: latency", "rises continuously", f"steady, {calm.latency_ms:.0f} ms",
            "five Detectors of 12.5 ms process 400 tweets/s"),
        Row(STORM, "static: backlog drained at", "3300 s", "later" if quiet.waiting > 1000 else "by 4500 s",
            "no constant service time is short at 350 and drained at 3300 s"),
        Row(STORM, "migrations after scaling", 6.0, float(scaled), "follows from the sequence", "", "fitted"),
        Row(STORM, "migrations after rescheduling", 3.0, float(again), "T-Storm's rule finds one better placement"),
        Row(STORM, "state that changes node in scale-in", 37.5, 100 * float(share["scale in"]), "", " %"),
        Row(STORM, "state that changes node in scale-out", "0 %", out, fair),
        Row(STORM, "state that changes node in rescheduling", 65.0, 100 * float(share["reassigned"]),
            "we find one better placement, the thesis three", " %"),
        Row(STORM, "overhead of a move, 16 MB", 10.0, float(cost.prototype[16.0]),
            "its prototype's wait of ten seconds is an input", " s", "input"),
    ]  # fmt: skip
    return SectionContent({"tables": grid(("", "paper", "ours"), lines)}, rows)


SECTION = PageSection(
    {
        "runs": runs,
        "overhead": lambda: records(overhead().rename_axis("MB").reset_index()),
        "from five": lambda: {"detectors": detectors(play("elastic, from five"))},
    },
    show,
    basis={
        "detectors|#executors|kind=scale.*#count": "fitted",
        "static.phase=3.*latency": "fitted",
        "overhead.*prototype": "input",  # its ten seconds are one
    },
)
