"""Comparison of two runs window by window, such as measured and simulated, and of throughput by parallelism."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from ..core import ArgumentError, History, MetricError, Snapshot
from ..core.typing import Array
from .theme import DASHES, MOST_POINTS, PALETTE, Plot, Spec, axis, plot, si

if TYPE_CHECKING:
    pass


SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
_WIDE = 100  # greatest over least value above which axes are logarithmic
_WHOLE = 0.99  # share of a window that the other run must cover

Pairs = tuple["Array", "Array"]
Value = Callable[[Snapshot], float | None]


def parity(
    history_a: History, history_b: History, *, names: tuple[str, str] = ("measured", "simulated"), title: str = ""
) -> Plot:
    """Plot throughput, mean latency and each operator's rate of run b over those of run a; on the diagonal they agree.

    Windows are matched by time. If their lengths differ, values are averaged over the longer ones: rates by time,
    latencies by records. The summary has the relative error $|b-a|/a$ of windows in which a is above 0.

    Parameters
    ----------
    history_a, history_b : History
        Two runs of one job.
    names : tuple of str
        Names of the two runs.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> a, b = (run(DS2(), apps.word_count().simulator(seed=seed), steps=30) for seed in (1, 2))
    >>> parity(a, b, names=("one", "two")).summary
    'In 30 windows of 10 s, two is off one by ... % in throughput (median; ... % at the 95th percentile) and ...'
    """
    if not isinstance(names, (tuple, list)) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"names={names!r}", expected="two names", fix="as in names=('measured', 'simulated')")
    a, b, window_s = _matched(history_a, history_b)
    operators = history_a.topology.order
    rates = [(name, _both(a, b, _rate(name))) for name in operators]
    throughput, latency = _both(a, b, lambda s: s.throughput), _both(a, b, _latency, lambda s: s.throughput)
    panels: list[tuple[str, list[tuple[str, Pairs]]]] = [
        ("throughput, records/s", [("throughput", throughput)]),
        ("mean latency, s", [("mean latency", latency)]),
        ("rate of each operator, records/s", rates),
    ]
    traces: list[Spec] = []
    layout: Spec = {"annotations": [], "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"}}
    wide = 0.27  # of the figure; the rest is for labels
    for i, (what, series) in enumerate(panels):
        n, left = str(i + 1) if i else "", i * (1 - wide) / (len(panels) - 1)
        drawn, across = _panel(n, series, first=i == len(panels) - 1)
        traces += drawn
        layout[f"xaxis{n}"] = axis(escape(names[0]), domain=[left, left + wide], anchor=f"y{n}", **across)
        layout[f"yaxis{n}"] = axis("" if i else escape(names[1]), domain=[0, 1], anchor=f"x{n}", **across)
        layout["annotations"].append(
            {
                "text": what,
                "x": left + wide / 2,
                "y": 1,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "center",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 13},
            }
        )
    said = (
        f"In {len(a.t)} windows of {window_s:g} s, {names[1]} is off {names[0]} by {_error(throughput)} in throughput"
    )
    said += f" (median; {_error(throughput, 95)} at the 95th percentile)"
    if len(latency[0]):
        said += f" and {_error(latency)} in mean latency ({_error(latency, 95)})"
    return plot(traces, layout, f"{said}.", height=390, title=title)


def _panel(n: str, series: Sequence[tuple[str, Pairs]], *, first: bool) -> tuple[list[Spec], Spec]:
    """Return the traces of one panel with its diagonal, and the common settings of its axes."""
    import numpy as np

    values = np.concatenate([x for _, pair in series for x in pair])
    positive = values[values > 0]
    if not positive.size:
        return [], {"range": [0, 1]}
    top, low = float(positive.max()), float(positive.min())
    logarithmic = top > _WIDE * low
    ends = [low / 1.15, top * 1.15] if logarithmic else [0.0, top * 1.05]
    both: Spec = {"range": np.log10(ends).tolist(), "type": "log", "dtick": 1} if logarithmic else {"range": ends}
    if not logarithmic:
        both["nticks"] = 5
    where = {"xaxis": f"x{n}", "yaxis": f"y{n}"}
    line = {"color": "#777777", "dash": "dash", "width": 1}
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ends,
            "y": ends,
            "line": line,
            "hoverinfo": "skip",
            **where,
            "showlegend": first,
            "name": "agreement",
        }
    ]
    most = max(1, MOST_POINTS // len(series))
    for j, (name, (x, y)) in enumerate(series):
        every = max(1, -(-len(x) // most))
        shown = (x > 0) & (y > 0) if logarithmic else np.ones(len(x), dtype=bool)
        marker = {"color": PALETTE[j % len(PALETTE)], "symbol": SYMBOLS[j % len(SYMBOLS)], "size": 6, "opacity": 0.6}
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escape(name),
                "marker": marker,
                **where,
                "cliponaxis": False,
                "x": x[shown][::every].tolist(),
                "y": y[shown][::every].tolist(),
                "showlegend": len(series) > 1 or first,
                "hovertemplate": f"%{{x:.4g}}, %{{y:.4g}}<extra>{escape(name)}</extra>",
            }
        )
    return traces, both


class _Run:
    """Averages of a run over given windows."""

    def __init__(self, history: History):
        import numpy as np

        self.seen = sorted((step.snapshot for step in history), key=lambda s: s.t)
        self.ends = np.array([s.t for s in self.seen])
        self.starts = self.ends - np.array([s.window_s for s in self.seen])
        self.t, self.since = self.ends, self.starts  # the windows to average over

    def over(self, since: Array, t: Array) -> None:
        """Set the windows to average over."""
        self.since, self.t = since, t

    def mean(self, value: Value, weight: Value | None = None) -> Array:
        """Return $\\int wv / \\int w$ over each window, NaN if less than 99 % of it was measured."""
        import numpy as np

        values = [value(s) for s in self.seen]
        known = np.array([0.0 if v is None else 1.0 for v in values])
        weights = known if weight is None else known * np.array([weight(s) or 0.0 for s in self.seen])
        numbers = np.array([0.0 if v is None else v for v in values])
        total = self._integral(weights)
        covered = self._integral(np.ones(len(known)) if weight else known) >= _WHOLE * (self.t - self.since)
        good = covered & (total > 0)
        return np.where(good, self._integral(weights * numbers) / np.where(good, total, 1.0), np.nan)

    def _integral(self, values: Array) -> Array:
        import numpy as np

        times = np.maximum.accumulate(np.column_stack([self.starts, self.ends]).ravel())
        sums = np.zeros(len(times))
        sums[1::2] = values * (self.ends - self.starts)
        upto = np.cumsum(sums)
        return np.asarray(np.interp(self.t, times, upto) - np.interp(self.since, times, upto))


def _matched(history_a: History, history_b: History) -> tuple[_Run, _Run, float]:
    """Return both runs over the windows of the run with the longer ones, as far as the other covers them."""
    import numpy as np

    for history in (history_a, history_b):
        if not isinstance(history, History):
            raise MetricError(f"{history!r}", expected="a History", fix="pass what run() or History.load() returns")
        if not len(history):
            raise MetricError("an empty history", expected="two runs with windows", fix="run a policy first")
    mine, others = (set(h.topology.order) for h in (history_a, history_b))
    if mine != others:
        raise MetricError(
            f"operators {sorted(mine)} and {sorted(others)}",
            expected="two runs of one job",
            fix="compare runs of the same topology",
        )
    a, b = _Run(history_a), _Run(history_b)
    grid, other = (b, a) if np.median(b.ends - b.starts) > np.median(a.ends - a.starts) * (1 + 1e-9) else (a, b)
    other.over(grid.since, grid.t)
    covered = other._integral(np.ones(len(other.seen))) >= _WHOLE * (grid.t - grid.since)
    if not covered.any():
        spans = " and ".join(f"{run.starts[0]:g} to {run.ends[-1]:g} s" for run in (a, b))
        raise MetricError(
            f"runs from {spans}", expected="runs that overlap in time", fix="compare runs that start at 0"
        )
    since, t = grid.since[covered], grid.t[covered]
    a.over(since, t)
    b.over(since, t)
    return a, b, float(np.median(t - since))


def _both(a: _Run, b: _Run, value: Value, weight: Value | None = None) -> Pairs:
    import numpy as np

    x, y = a.mean(value, weight), b.mean(value, weight)
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def _latency(s: Snapshot) -> float | None:
    return s.latency.mean if s.latency else None


def _rate(name: str) -> Value:
    return lambda s: s.operators[name].processing_rate if name in s.operators else None


def _error(pairs: Pairs, percentile: float = 50) -> str:
    import numpy as np

    x, y = pairs
    if not (x > 0).any():
        return "an unknown part"
    off = 100 * float(np.percentile(np.abs(y[x > 0] / x[x > 0] - 1), percentile))
    return f"{off:.0f} %" if off >= 9.95 else f"{off:.2g} %"


def scaling(curves: Mapping[str, Mapping[int, float]], *, title: str = "") -> Plot:
    """Plot throughput against parallelism, relative to that at the least parallelism.

    Runs of very different speed can be compared so; the dashed line is linear scaling.

    Parameters
    ----------
    curves : mapping
        Records/s by parallelism, by name.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> scaling({"live": {1: 500.0, 2: 900.0, 4: 1000.0}}).summary
    'live: 4 instances have 2 times the throughput of 1 (1,000 records/s).'
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
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": escape(name),
                "x": counts,
                "y": [curve[k] / first for k in counts],
                "customdata": [si(curve[k]) for k in counts],
                "line": {"color": PALETTE[i % len(PALETTE)], "dash": DASHES[i % len(DASHES)]},
                "marker": {"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
                "hovertemplate": "%{x}: %{y:.2f} times, %{customdata} records/s<extra>" + escape(name) + "</extra>",
            }
        )
        best = max(counts, key=lambda k: (round(curve[k] / first, 3), -k))
        does = f"{best} instances have {curve[best] / first:.3g} times the throughput of {counts[0]}"
        said.append(f"{name}: {does} ({curve[best]:,.0f} records/s).")
    ends = [min(min(c) for c in curves.values()), max(max(c) for c in curves.values())]
    top = max(max(trace["y"]) for trace in traces)
    grey = {"color": "#777777", "dash": "dash", "width": 1}
    ideal = {
        "type": "scatter",
        "mode": "lines",
        "name": "linear scaling",
        "x": ends,
        "y": [1, ends[1] / ends[0]],
        "line": grey,
        "hoverinfo": "skip",
    }
    layout = {
        "xaxis": axis("instances of each operator", dtick=1 if ends[1] - ends[0] <= 24 else None),
        "yaxis": axis("throughput, relative to the first", range=[0, 1.15 * top]),
        "legend": {"orientation": "h", "y": -0.22},
    }
    return plot([*traces, ideal], layout, " ".join(said), height=380, title=title)
