"""What a live view costs: a picture as plain data beside the same picture built with plotly's own methods."""

from __future__ import annotations

from benchmarks import Claim, side_by_side
from dspkit import History, plots, run, topologies
from dspkit.policies.ds2 import DS2


def redraw_over_plotly_methods() -> Claim:
    """How many times faster the timeline of a run of 90 windows is as plain data; frames are built in both."""
    app = topologies.diamond()
    history = run(DS2(), app.simulator(seed=1), steps=90)
    rivals = {"plain": lambda: _plain(history), "plotly": lambda: _plotly(history)}
    times = side_by_side(rivals, repeats=15)
    return Claim(times["plotly"] / times["plain"], "x", target=3, detail=times)


def _plain(history: History) -> object:
    return plots.timeline(history, target_latency_s=0.18).bundle


def _plotly(history: History) -> object:
    from plotly.subplots import make_subplots

    spec = plots.timeline(history, target_latency_s=0.18).spec
    figure = make_subplots(rows=4, cols=1, shared_xaxes=True)
    for trace in spec["data"]:  # marks of decisions lie over the third row
        row = min(4, int(trace["yaxis"][1:] or 1))
        figure.add_scatter(**{k: v for k, v in trace.items() if k not in ("type", "xaxis", "yaxis")}, row=row, col=1)
    for shape in spec["layout"]["shapes"]:
        figure.add_vline(x=shape["x0"], line=shape["line"])
    return figure.to_json()
