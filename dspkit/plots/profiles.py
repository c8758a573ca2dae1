"""A learned profile beside what was measured: CPU against rate, or a node's share against its instances' cores."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ..errors import NotFoundError
from .base import MOST_POINTS, PALETTE, Plot, Spec, axis, plot

if TYPE_CHECKING:
    from ..history import History
    from ..profile import Profile


def profile(learned: Profile, history: History, of: str = "node", *, title: str = "") -> Plot:
    """The curve learned for an operator, or for the nodes, over the measurements of any run."""
    from ..profile.curves import percentage_error
    from ..profile.samples import samples

    told = samples(history)
    fits = dict(learned.cpu) | ({"node": learned.overhead} if learned.overhead else {})
    if (fitted := fits.get(of)) is None or not (rows := told.nodes if of == "node" else told.cpu.get(of, ())):
        raise NotFoundError(f"a profile of {of!r}", expected=f"one of {', '.join(fits)}", fix="see profile.table")
    x, y = np.array(rows, dtype=float).T
    error = percentage_error(fitted.curve, x, y)
    at = np.linspace(0, 1.15 * max(x.max(), fitted.seen[1]), 80)
    thin = slice(None, None, max(1, -(-len(x) // MOST_POINTS)))
    whole = "all of the node" if of == "node" else "all of a core"
    traces: list[Spec] = [
        {"type": "scatter", "mode": "markers", "name": "measured", "x": x[thin].tolist(), "y": y[thin].tolist(),
         "marker": {"color": PALETTE[1], "size": 5, "symbol": "circle-open"}},
        {"type": "scatter", "mode": "lines", "name": "learned", "x": at.tolist(), "y": fitted.curve(at).tolist(),
         "line": {"color": PALETTE[0], "width": 2}},
        {"type": "scatter", "mode": "lines", "name": whole, "x": [0, float(at[-1])], "y": [1, 1],
         "line": {"color": PALETTE[6], "width": 1, "dash": "dot"}},
    ]  # fmt: skip
    what = "cores that its instances use" if of == "node" else "records/s that an instance takes in"
    layout = {
        "xaxis": axis(what, rangemode="tozero"),
        "yaxis": axis("share of the node" if of == "node" else "share of a core", rangemode="tozero", tickformat=".0%"),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    }
    wrong = "nothing to compare with" if error is None else f"off by {error:.2%} on average"
    said = f"{of}: learned from {fitted.count} measurements, {wrong} over the {len(x)} shown."
    return plot(traces, layout, escape(said, quote=False), height=330, title=title)
