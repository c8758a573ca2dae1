"""What Stela's paper prints of its evaluation beside ours: `rows()` as data, `markdown` as tables for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .stela import PRINTED, PRINTED_CONVERGENCE, scale_in_table, scale_out_table

if TYPE_CHECKING:
    import pandas as pd


def rows(seeds: Sequence[int] = (1, 2, 3), *, draws: int = 70) -> pd.DataFrame:
    """What the paper prints beside ours, a row each; `ratio` is ours over `printed`, of throughputs if these are gains.

    `printed` is the number in the words of `paper`, NaN where these have none.
    """
    import pandas as pd

    out = scale_out_table(seeds, only=("stela", "default", "least link load")).set_index(["topology", "strategy"])
    into = scale_in_table(draws=draws)
    told = [*_gains(out), *_convergences(out), *_leaving(into)]
    frame = pd.DataFrame(told, columns=["part", "what", "unit", "paper", "printed", "ours", "why"])
    gain = 1.0 * (frame.unit == "gain")
    frame.insert(6, "ratio", (frame.ours + gain) / (frame.printed + gain))
    return frame


Told = tuple[str, str, str, str, float | None, float, str]


def _gains(out: pd.DataFrame) -> list[Told]:
    own, over = out.own_gain, out.over_default
    found: list[Told] = []
    for name, gain in PRINTED.items():
        paper, ours = f"+{gain:.0%}", float(over[name, "stela"])
        found.append(("scale-out", f"{name}: Stela over default", "gain", paper, gain, ours, _WHY[name]))
    for name in ("page_load", "processing"):
        ours = float(own[name, "stela"])
        found.append(("scale-out", f"{name}: Stela over its own before", "gain", "+80%", 0.8, ours, _WHY["own"]))
    for name, paper in _DEFAULT.items():
        ours = float(own[name, "default"])
        found.append(("scale-out", f"{name}: default over its own before", "gain", paper, None, ours, ""))
    for name, paper in _LINKS.items():
        ours = float(own[name, "least link load"])
        found.append(("scale-out", f"{name}: least link load over its own", "gain", paper, None, ours, _LINKED[name]))
    return found


def _convergences(out: pd.DataFrame) -> list[Told]:
    less = {"equal": 1.0, "92 % less": 0.08, "88 % less": 0.12, "75 % less": 0.25}
    took = out.convergence_s
    return [
        ("convergence", f"{name}: time, Stela over default", "x", paper, less.get(paper),
         float(took[name, "stela"] / took[name, "default"]), _WHY["convergence"])
        for name, paper in PRINTED_CONVERGENCE.items()
    ]  # fmt: skip


def _leaving(into: pd.DataFrame) -> list[Told]:
    stela, lot = (into[into.strategy == name] for name in ("stela", "random, deal moved"))
    kept, down = float(stela.kept.iloc[0]), float(stela.downtime_s.iloc[0])
    return [
        ("scale-in", "Stela: throughput kept", "x", "all", 1.0, kept, ""),
        ("scale-in", "Stela over the worst choice by lot", "x", "5 times", 5.0, kept / lot.kept.min(), _WHY["in"]),
        ("scale-in", "Stela over the middle choice by lot", "x", "2 times", 2.0, kept / lot.kept.median(), _WHY["in"]),
        ("scale-in", "down time, Stela over by lot", "x", "87.5 % and 75 % less", 0.25,
         down / float(lot.downtime_s.mean()), _WHY["down"]),
    ]  # fmt: skip


_DEFAULT = {"linear": "no gain", "diamond": "no gain", "page_load": "falls", "processing": "falls"}
_DEFAULT |= {"network_monitoring": "no gain"}
_LINKS = {"page_load": "barely gains", "processing": "barely gains", "network_monitoring": "falls"}
_LINKED = {"page_load": "", "processing": "service times are ours"}
_LINKED |= {"network_monitoring": "machines of four cores are never short, and links are free"}
_WHY = {
    "star": "service times are ours",
    "linear": "service times are ours, the share of a core fitted",
    "diamond": "an operator can at most double its instances, and the default does not fall",
    "page_load": "the default falls by less than in the paper",
    "processing": "the default falls by less than in the paper",
    "network_monitoring": "service times are ours, the bottlenecks fitted",
    "own": "four new executors share the one core of the new machine",
    "convergence": "the definition alone takes 40 s and more; in ours nothing is left of a restart after 20 s",
    "in": "instances share cores fairly: whoever chooses, an operator keeps half a core or more",
    "down": "each machine has one operator at first, so that all of it moves, whoever chooses",
}


def markdown(frame: pd.DataFrame) -> str:
    """The rows as Markdown, one table for each part."""
    lines = []
    for part, group in frame.groupby("part", sort=False):
        lines += [f"| {part} | paper | ours | ratio | why it differs |", "|---|---|---|---|---|"]
        for r in group.to_dict("records"):
            ours = f"{round(r['ours'], 2) + 0.0:+.0%}" if r["unit"] == "gain" else f"{r['ours']:.2f}"
            ratio = "" if math.isnan(r["ratio"]) else f"{r['ratio']:.2f}"
            lines.append(f"| {r['what']} | {r['paper']} | {ours} | {ratio} | {r['why']} |")
        lines.append("")
    return "\n".join(lines)
