"""Chart of the reproduction page: each printed number beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from dspkit.core import MetricError
from dspkit.plots import Plot, si
from dspkit.plots.parity import SYMBOLS
from dspkit.plots.theme import PALETTE, Spec, axis, plot

NEAR = 0.1  # a tenth to either side counts as the same
ENDS = (1 / 32, 32.0)  # greater differences are drawn at the end; their tooltip has the ratio


def printed(rows: Iterable[Any], *, title: str = "") -> Plot:
    """Plot ours over printed for each headline with numbers (`reproduction.page.rows`), one line of dots per paper.

    Within the grey band they agree to a tenth.

    >>> from reproduction.page import Row
    >>> printed([Row("A", "x", 2.0, 2.1), Row("A", "y", 10, 40.0, "why"), Row("B", "z", "few", "many")]).summary
    '1 of 2 numbers are within a tenth of what is printed. A: 1 of 2.'
    """
    kept = [r for r in rows if r.ratio is not None and r.ratio > 0]
    if not kept:
        raise MetricError("no headline with numbers", expected="rows with a ratio", fix="pass reproduction.page.rows()")
    papers = list(dict.fromkeys(r.paper for r in kept))
    traces: list[Spec] = []
    said = []
    for i, paper in enumerate(papers):
        some = [r for r in kept if r.paper == paper]
        near = sum(abs(r.ratio - 1) <= NEAR for r in some)
        said.append(f"{paper}: {near} of {len(some)}")
        traces.append(
            {"type": "scatter", "mode": "markers", "name": escape(paper), "showlegend": False,
             "x": [min(max(r.ratio, ENDS[0]), ENDS[1]) for r in some], "y": _spread([r.ratio for r in some], i),
             "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 9, "opacity": 0.75,
                        "color": PALETTE[i % len(PALETTE)]},
             "customdata": [_told(r) for r in some], "hovertemplate": "%{customdata}<extra></extra>"}
        )  # fmt: skip
    inside = sum(abs(r.ratio - 1) <= NEAR for r in kept)
    layout = {
        "xaxis": axis("ours over printed", type="log", range=[math.log10(ENDS[0] / 1.3), math.log10(ENDS[1] * 1.3)],
                      tickvals=[1 / 32, 1 / 8, 0.5, 1, 2, 8, 32], ticktext=["1/32", "1/8", "1/2", "1", "2", "8", "32"]),
        "yaxis": axis("", tickvals=list(range(len(papers))), ticktext=[escape(p) for p in papers],
                      range=[len(papers) - 0.4, -0.6], zeroline=False),
        "shapes": [{"type": "rect", "xref": "x", "yref": "paper", "x0": 1 - NEAR, "x1": 1 + NEAR, "y0": 0, "y1": 1,
                    "fillcolor": "#777777", "opacity": 0.18, "line": {"width": 0}, "layer": "below"}],
    }  # fmt: skip
    summary = f"{inside} of {len(kept)} numbers are within a tenth of what is printed. {'; '.join(said)}."
    return plot(traces, layout, summary, height=90 + 48 * len(papers), title=title)


def _spread(ratios: list[float], line: int) -> list[float]:
    """Return vertical positions that separate overlapping dots."""
    taken: dict[int, int] = {}
    at = []
    for ratio in ratios:
        place = round(8 * math.log2(min(max(ratio, ENDS[0]), ENDS[1])))
        n = taken[place] = taken.get(place, -1) + 1
        at.append(line + 0.36 * ((n + 1) // 2 % 6) / 6 * (-1) ** n)
    return at


def _told(row: Any) -> str:
    unit = escape(row.unit)
    numbers = f"printed {si(row.printed)}{unit}, ours {si(row.ours)}{unit}: {row.ratio:.3g} times"
    return "<br>".join(filter(None, (f"<b>{escape(row.what)}</b>", numbers, escape(row.why))))
