"""The section of live Spark beside the simulator: a long study, which needs an otherwise idle machine."""

from __future__ import annotations

from typing import Any

from ..page import Found, PageSection, SectionContent, grid, plain


def parity() -> list[dict[str, Any]]:
    from . import study as parity_live

    return [plain(row._asdict()) for row in parity_live.main()]


def show(found: Found) -> SectionContent:
    lines = [
        (f"{r['k']}, {r['offered']:,.0f} lines/s", f"{r['throughput']:,.0f}", f"{r['predicted_throughput']:,.0f}",
         _off(r["throughput"], r["predicted_throughput"]), f"{1e3 * r['latency_s']:.0f} ms",
         f"{1e3 * r['predicted_latency_s']:.0f} ms", _off(r["latency_s"], r["predicted_latency_s"]))
        for r in found["parity"]
    ]  # fmt: skip
    head = "instances, offered | throughput, live | fitted plant | off | mean latency, live | fitted plant | off"
    return SectionContent({"parity": grid(head.split(" | "), lines)})


def _off(live: float, said: float) -> str:
    return f"{abs(said / live - 1):.0%}".replace("%", " %")


SECTION = PageSection({"parity": parity}, show, long=frozenset({"parity"}))
