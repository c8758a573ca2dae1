"""Forecasts of a backtest beside what came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MetricError
from .base import PALETTE, Plot, Spec, axis, plot, si

if TYPE_CHECKING:
    from ..predict import Backtest

UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def forecast(result: Backtest, step: int = 1, *, title: str = "") -> Plot:
    """What a predictor said `step` values ahead, with its interval, over what came."""
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
        {"type": "scatter", "mode": "lines", "x": t, "y": actual, "name": "came",
         "line": {"color": PALETTE[6], "width": 1.5}},
        {"type": "scatter", "mode": "lines", "x": t, "y": mean, "name": f"predicted, {step} ahead",
         "line": {"color": PALETTE[1], "width": 1.5, "dash": "dash"}},
    ]  # fmt: skip
    scores = result.scores
    said = (
        f"{result.name.capitalize()}: {scores['MASE']:.2f} times the error of the last value (MASE, all {horizon} "
        f"steps), sMAPE {scores['sMAPE']:.1%}, pinball loss {si(scores['pinball'])}; {scores['coverage']:.0%} of what "
        f"came lay in the {result.level:.0%} interval."
    )
    layout = {
        "xaxis": axis(unit),
        "yaxis": axis("records/s", rangemode="tozero"),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
    }
    return plot(traces, layout, said, height=300, title=title)
