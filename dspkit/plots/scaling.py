"""Throughput against parallelism: what more instances are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from ..errors import MetricError
from .base import DASHES, PALETTE, Plot, Spec, axis, plot, si
from .parity import SYMBOLS


def scaling(curves: Mapping[str, Mapping[int, float]], *, title: str = "") -> Plot:
    """Each curve is records/s by parallelism, and drawn as a multiple of what it is at the least parallelism.

    So runs of very different speed can be compared; the dashed line is what instances would do that never meet.

    >>> scaling({"live": {1: 500.0, 2: 900.0, 4: 1000.0}}).summary
    'live: 4 instances do 2 times what 1 does (1,000 records/s).'
    """
    if not curves or not all(curves.values()):
        raise MetricError("no curve to draw", expected="records/s by parallelism", fix="as in {'live': {1: 500.0}}")
    traces: list[Spec] = []
    said = []
    for i, (name, curve) in enumerate(curves.items()):
        counts = sorted(curve)
        first = curve[counts[0]]
        if not all(math.isfinite(curve[k]) and curve[k] >= 0 for k in counts) or not (first > 0 and counts[0] >= 1):
            raise MetricError(f"{name!r} with {dict(curve)}", expected="rates above 0", fix="leave idle runs out")
        traces.append(
            {"type": "scatter", "mode": "lines+markers", "name": escape(name), "x": counts,
             "y": [curve[k] / first for k in counts], "customdata": [si(curve[k]) for k in counts],
             "line": {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i % len(DASHES)]},
             "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
             "hovertemplate": "%{x}: %{y:.2f} times, %{customdata} records/s<extra>" + escape(name) + "</extra>"}
        )  # fmt: skip
        best = max(counts, key=lambda k: (round(curve[k] / first, 3), -k))
        does = f"{best} instances do {curve[best] / first:.3g} times what {counts[0]} does"
        said.append(f"{name}: {does} ({curve[best]:,.0f} records/s).")
    ends = [min(min(c) for c in curves.values()), max(max(c) for c in curves.values())]
    top = max(max(trace["y"]) for trace in traces)
    grey = {"color": "#777777", "dash": "dash", "width": 1}
    ideal = {"type": "scatter", "mode": "lines", "name": "if instances never met", "x": ends,
             "y": [1, ends[1] / ends[0]], "line": grey, "hoverinfo": "skip"}  # fmt: skip
    layout = {
        "xaxis": axis("instances of each operator", dtick=1 if ends[1] - ends[0] <= 24 else None),
        "yaxis": axis("throughput, times that of the first", range=[0, 1.15 * top]),
        "legend": {"orientation": "h", "y": -0.22},
    }
    return plot([*traces, ideal], layout, " ".join(said), height=380, title=title)
