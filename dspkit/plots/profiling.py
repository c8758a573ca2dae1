"""Plots of a learned profile beside the measurements, and of the forecasts of a backtest beside the actual load."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from ..core import MetricError, NotFoundError
from .theme import MOST_POINTS, PALETTE, Plot, Spec, axis, plot, si

if TYPE_CHECKING:
    from ..core import History
    from ..forecasting import Backtest
    from ..profiling import Profile


def profile(
    learned: Profile, history: History, of: str = "node", *, metrics_window_s: float = 60.0, title: str = ""
) -> Plot:
    """Plot a learned curve over the measurements of a run: CPU against rate, or a node's share against its cores.

    Parameters
    ----------
    learned : Profile
        The result of `dspkit.profiling.learn`.
    history : History
        The run whose measurements are shown.
    of : str
        Name of an operator, or "node".
    metrics_window_s : float
        As for `dspkit.profiling.learn`.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import apps, profiling, run
    >>> from dspkit.policies.static import Static
    >>> history = run(Static(), apps.tweet_words().simulator(), steps=60)
    >>> learned = profiling.learn(history)
    >>> profile(learned, history, next(iter(learned.cpu))).summary
    '...: learned from ... measurements, ...'
    """
    from ..profiling import samples
    from ..profiling.curves import percentage_error

    told = samples(history, metrics_window_s=metrics_window_s)
    fits = dict(learned.cpu) | ({"node": learned.overhead} if learned.overhead else {})
    if (fitted := fits.get(of)) is None or not (rows := told.nodes if of == "node" else told.cpu.get(of, ())):
        raise NotFoundError(f"a profile of {of!r}", expected=f"one of {', '.join(fits)}", fix="see profile.table")
    x, y = np.array(rows, dtype=float).T
    error = percentage_error(fitted.curve, x, y)
    at = np.linspace(0, 1.15 * max(x.max(), fitted.seen[1]), 80)
    thin = slice(None, None, max(1, -(-len(x) // MOST_POINTS)))
    whole = "the whole node" if of == "node" else "a whole core"
    traces: list[Spec] = [
        {"type": "scatter", "mode": "markers", "name": "measured", "x": x[thin].tolist(), "y": y[thin].tolist(),
         "marker": {"color": PALETTE[1], "size": 5, "symbol": "circle-open"}},
        {"type": "scatter", "mode": "lines", "name": "learned", "x": at.tolist(), "y": fitted.curve(at).tolist(),
         "line": {"color": PALETTE[0], "width": 2}},
        {"type": "scatter", "mode": "lines", "name": whole, "x": [0, float(at[-1])], "y": [1, 1],
         "line": {"color": PALETTE[6], "width": 1, "dash": "dot"}},
    ]  # fmt: skip
    what = "cores that its instances use" if of == "node" else "input rate of an instance, records/s"
    layout = {
        "xaxis": axis(what, rangemode="tozero"),
        "yaxis": axis("share of the node" if of == "node" else "share of a core", rangemode="tozero", tickformat=".0%"),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    }
    wrong = "without an error to compute" if error is None else f"with a mean error of {error:.2%}"
    said = f"{of}: learned from {fitted.count} measurements, {wrong} over the {len(x)} shown."
    return plot(traces, layout, escape(said, quote=False), height=330, title=title)


UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def forecast(result: Backtest, step: int = 1, *, title: str = "") -> Plot:
    """Plot the predictions `step` values ahead, with their interval, over the actual load.

    Parameters
    ----------
    result : Backtest
        The result of `dspkit.forecasting.backtest`.
    step : int
        Number of values ahead.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue, Series, backtest
    >>> forecast(backtest(LastValue(), Series([1, 2, 3, 4, 5, 6]), horizon=1)).summary
    '...: 1.00 times the error of the last value (MASE, all 1 steps), ...'
    """
    horizon = result.actual.shape[1]
    if not 1 <= step <= horizon:
        raise MetricError(f"step={step}", expected=f"1 to {horizon}, the backtest's horizon", fix="predict further")
    at = step - 1
    seconds = result.origins_s + at * result.every_s
    span = float(seconds[-1] - seconds[0])
    unit, length = next((u for u in UNITS if span > 3 * u[1]), UNITS[-1])
    t = (seconds / length).tolist()
    low, high, mean, actual = (getattr(result, part)[:, at].tolist() for part in ("low", "high", "mean", "actual"))
    band: Spec = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    traces: list[Spec] = [
        {**band, "x": t, "y": high, "showlegend": False},
        {**band, "x": t, "y": low, "name": f"{result.level:.0%} interval", "fill": "tonexty",
         "fillcolor": "rgba(86,180,233,0.3)"},
        {"type": "scatter", "mode": "lines", "x": t, "y": actual, "name": "actual",
         "line": {"color": PALETTE[6], "width": 1.5}},
        {"type": "scatter", "mode": "lines", "x": t, "y": mean, "name": f"predicted, {step} ahead",
         "line": {"color": PALETTE[1], "width": 1.5, "dash": "dash"}},
    ]  # fmt: skip
    scores = result.scores
    said = (
        f"{result.name.capitalize()}: {scores['MASE']:.2f} times the error of the last value (MASE, all {horizon} "
        f"steps), sMAPE {scores['sMAPE']:.1%}, pinball loss {si(scores['pinball'])}; {scores['coverage']:.0%} of the "
        f"actual values lie in the {result.level:.0%} interval."
    )
    layout = {
        "xaxis": axis(unit),
        "yaxis": axis("records/s", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    }
    return plot(traces, layout, said, height=300, title=title)
