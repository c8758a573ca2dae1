"""One run against another, window by window: measured against simulated, say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..core import Snapshot
from ..errors import KnobError, MetricError
from ..history import History
from .base import MOST_POINTS, PALETTE, Plot, Spec, axis, plot

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
_WIDE = 100  # from the least to the greatest value; beyond it, axes are of logarithms
_WHOLE = 0.99  # of a window that the other run must cover

Pairs = tuple["Array", "Array"]
Value = Callable[[Snapshot], float | None]


def parity(
    history_a: History, history_b: History, *, names: tuple[str, str] = ("measured", "simulated"), title: str = ""
) -> Plot:
    """Throughput, mean latency and each operator's rate of run b over those of run a; on the diagonal they agree.

    Windows are matched by time. Where their lengths differ, the longer ones count: rates are averaged over them by
    time, latencies by records. The sentence tells the relative error $|b-a|/a$ of windows in which a is above 0.

    >>> from dspkit import run, topologies
    >>> from dspkit.policies.ds2 import DS2
    >>> a, b = (run(DS2(), topologies.word_count().simulator(seed=seed), steps=30) for seed in (1, 2))
    >>> parity(a, b, names=("one", "two")).summary
    'In 30 windows of 10 s, two is off one by ... % in throughput (median; ... % at the 95th percentile) and ...'
    """
    if not isinstance(names, (tuple, list)) or len(names) != 2 or not all(isinstance(name, str) for name in names):
        raise KnobError(f"names={names!r}", expected="two names", fix="as in names=('measured', 'simulated')")
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
            {"text": what, "x": left + wide / 2, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "center",
             "yanchor": "bottom", "showarrow": False, "font": {"size": 13}}
        )  # fmt: skip
    said = (
        f"In {len(a.t)} windows of {window_s:g} s, {names[1]} is off {names[0]} by {_error(throughput)} in throughput"
    )
    said += f" (median; {_error(throughput, 95)} at the 95th percentile)"
    if len(latency[0]):
        said += f" and {_error(latency)} in mean latency ({_error(latency, 95)})"
    return plot(traces, layout, f"{said}.", height=390, title=title)


def _panel(n: str, series: Sequence[tuple[str, Pairs]], *, first: bool) -> tuple[list[Spec], Spec]:
    """Points of one panel with its diagonal, and what both its axes have in common."""
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
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "line": line, "hoverinfo": "skip", **where,
         "showlegend": first, "name": "agreement"}
    ]  # fmt: skip
    most = max(1, MOST_POINTS // len(series))
    for j, (name, (x, y)) in enumerate(series):
        every = max(1, -(-len(x) // most))
        shown = (x > 0) & (y > 0) if logarithmic else np.ones(len(x), dtype=bool)
        marker = {"color": PALETTE[j % len(PALETTE)], "symbol": SYMBOLS[j % len(SYMBOLS)], "size": 6, "opacity": 0.6}
        traces.append(
            {"type": "scatter", "mode": "markers", "name": escape(name), "marker": marker, **where, "cliponaxis": False,
             "x": x[shown][::every].tolist(), "y": y[shown][::every].tolist(), "showlegend": len(series) > 1 or first,
             "hovertemplate": f"%{{x:.4g}}, %{{y:.4g}}<extra>{escape(name)}</extra>"}
        )  # fmt: skip
    return traces, both


class _Run:
    """Averages of a run over any windows."""

    def __init__(self, history: History):
        import numpy as np

        self.seen = sorted((step.snapshot for step in history), key=lambda s: s.t)
        self.ends = np.array([s.t for s in self.seen])
        self.starts = self.ends - np.array([s.window_s for s in self.seen])
        self.t, self.since = self.ends, self.starts  # the windows to average over

    def over(self, since: Array, t: Array) -> None:
        self.since, self.t = since, t

    def mean(self, value: Value, weight: Value | None = None) -> Array:
        """$\\int wv / \\int w$ over each window, NaN where nothing was measured for most of it."""
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
    """Both runs over the windows of the one whose windows are longer, as far as the other covers them."""
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
