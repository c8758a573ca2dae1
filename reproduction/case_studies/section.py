"""The section of AuTraScale's case studies, and of the theoretical cost of a change."""

from __future__ import annotations

from typing import Any

from dspkit import apps
from dspkit.core import run
from dspkit.policies.static import Static
from dspkit.workload import Constant

from ..page import Found, PageSection, Row, SectionContent, grid, plain

PRINTED = {1: 150.0, 2: 250.0, 3: 275.0}  # k records/s at an input of 300
PRINTED_MS = {5: 100.0, 6: 125.0}


def figures() -> list[dict[str, Any]]:
    """Return the last window of five minutes at 300 k records/s for each parallelism, and figure 1's staircase."""
    app, rows = apps.case_study(), []
    for p in range(1, 7):
        last = run(Static(), app.simulator(Constant(300e3), parallelism=p), steps=30)[-1].snapshot
        assert last.latency is not None
        assert last.event_latency is not None
        row = {"p": p, "k_per_s": last.throughput / 1e3, "ms": 1e3 * last.latency.mean}
        rows.append({**row, "event_ms": 1e3 * last.event_latency.mean})
    stairs = run(Static(), apps.case_study().simulator(parallelism=2), steps=300).application
    late = stairs[stairs.t > 2410]
    grows = float(late.lag.diff().iloc[1:].mean()) / 10 / 1e3
    return list(plain([*rows, {"p": 0, "k_per_s": late.throughput.mean() / 1e3, "lag_k_per_s": grows}]))


def show(found: Found) -> SectionContent:
    by = {r["p"]: r for r in found["figures"]}
    waits = [by[p]["event_ms"] for p in range(1, 7)]
    falls = all(a > b for a, b in zip(waits[:3], waits[1:3], strict=False)) and waits[4] < waits[5]
    lines = [
        ("1: parallelism 2, input 100 k to 300 k records/s in steps",
         "throughput stays at about 250 k/s; lag and latency grow",
         f"{by[0]['k_per_s']:.0f} k/s; lag grows by {by[0]['lag_k_per_s']:.0f} k per second"),
        ("2 (a): input 300 k/s, parallelism 1, 2, 3", "about 150, 250, 275 k/s",
         f"{', '.join(f'''{by[p]['k_per_s']:.0f}''' for p in PRINTED)} k/s"),
        ("2 (b): the same, latency with the wait in Kafka", "falls, then rises",
         "falls up to 3, rises from 5 on" if falls else f"{[round(w) for w in waits]} ms"),
        ("2 (b): parallelism 5, 6", "100, 125 ms", f"{by[5]['ms']:.0f}, {by[6]['ms']:.0f} ms"),
    ]  # fmt: skip
    why = dict.fromkeys(PRINTED, "its law is fitted to them")
    why[3] = "fitted, but a law of two numbers cannot give 150, 250, 275"
    rows = [
        Row(
            "AuTraScale",
            f"case study, parallelism {p}: records/s",
            1e3 * printed,
            1e3 * by[p]["k_per_s"],
            why[p],
            "",
            "fitted",
        )
        for p, printed in PRINTED.items()
    ]
    buffers = "buffers are fitted to 100 ms"
    rows += [
        Row("AuTraScale", f"case study, parallelism {p}: latency", ms, by[p]["ms"], buffers, " ms", "fitted")
        for p, ms in PRINTED_MS.items()
    ]
    return SectionContent({"figures": grid(("figure", "paper", "ours"), lines)}, rows)


SECTION = PageSection({"figures": figures}, show, basis={"figures": "fitted"})
