r"""Backtest with a rolling origin: forecast, compare, advance; three losses and the coverage of the interval.

sMAPE $= \frac2n\sum\frac{|f-x|}{|f|+|x|}$. MASE is the mean error relative to that of the last value on the past before
the first origin (below 1 beats it). The pinball loss of quantile q is $\max(q(x-f), (q-1)(x-f))$, here the mean over
both ends of the interval and the middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core import MetricError, call
from ..core.typing import Array
from ..workload import Workload
from .base import Predictor, Series, ahead, count

if TYPE_CHECKING:
    import pandas as pd


def smape(actual: Array, forecast: Array) -> float:
    """Return the symmetric mean absolute percentage error, 0 to 2; a zero forecast of zero is correct."""
    size = np.abs(actual) + np.abs(forecast)
    return float(np.mean(np.where(size > 0, 2 * np.abs(forecast - actual) / np.where(size > 0, size, 1), 0.0)))


def mase(actual: Array, forecast: Array, past: Array, season: int = 1) -> float:
    """Return the mean absolute error relative to that of the value one season before, within `past`."""
    scale = np.abs(past[season:] - past[:-season]).mean()
    error = np.abs(forecast - actual).mean()
    return float(error / scale) if scale > 0 else (0.0 if error == 0 else float("inf"))


def pinball(actual: Array, forecast: Array, quantile: float) -> float:
    """Return the loss that is smallest when `forecast` is that quantile of the actual values."""
    over = actual - forecast
    return float(np.mean(np.maximum(quantile * over, (quantile - 1) * over)))


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts beside actual values, as arrays of (origins, steps ahead), and the losses over all of them.

    Parameters
    ----------
    name : str
        Name of the predictor.
    level : float
        Nominal probability of the interval.
    origins_s : array
        Times of the first predicted values.
    every_s : float
        Distance of the values in time.
    actual, mean, low, high : array
        Actual values, forecasts and their intervals.
    past : array
        Values before the first origin, which scale MASE.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue, Series
    >>> isinstance(backtest(LastValue(), Series([1, 2, 3, 4, 5, 6]), horizon=1), Backtest)
    True
    """

    name: str
    level: float
    origins_s: Array
    every_s: float
    actual: Array
    mean: Array
    low: Array
    high: Array
    past: Array

    @property
    def scores(self) -> dict[str, float]:
        """sMAPE, MASE, pinball loss, and coverage of the interval."""
        tails = {(1 - self.level) / 2: self.low, 0.5: self.mean, (1 + self.level) / 2: self.high}
        return {
            "sMAPE": smape(self.actual, self.mean),
            "MASE": mase(self.actual, self.mean, self.past),
            "pinball": float(np.mean([pinball(self.actual, f, q) for q, f in tails.items()])),
            "coverage": float(np.mean((self.low <= self.actual) & (self.actual <= self.high))),
        }

    @property
    def frame(self) -> pd.DataFrame:
        """One row per forecast: origin and time in seconds, step ahead, actual value, mean, low, high."""
        import pandas as pd

        count, horizon = self.actual.shape
        step = np.tile(np.arange(1, horizon + 1), count)
        origin = np.repeat(self.origins_s, horizon)
        parts = {name: getattr(self, name).ravel() for name in ("actual", "mean", "low", "high")}
        return pd.DataFrame({"origin": origin, "t": origin + (step - 1) * self.every_s, "step": step, **parts})

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {value:.3g}" for name, value in self.scores.items())
        return f"Backtest({self.name}: {said}; {self.actual.shape[0]} origins x {self.actual.shape[1]} steps)"


def backtest(
    predictor: Predictor,
    trace: Series | Workload,
    *,
    horizon: int = 5,
    first: int | None = None,
    stride: int = 1,
    relearn: int = 10,
    memory: int | None = None,
) -> Backtest:
    """Forecast `horizon` values from each origin, with the values before it alone.

    Parameters
    ----------
    predictor : Predictor
        The predictor.
    trace : Series or Workload
        The values.
    horizon : int
        Steps ahead.
    first : int, optional
        Values before the first origin; by default half of them.
    stride : int
        Values from one origin to the next.
    relearn : int
        Origins from one learning to the next.
    memory : int, optional
        Number of last values to learn from; by default all.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue, Series
    >>> backtest(LastValue(), Series([1, 2, 3, 4, 5, 6]), horizon=1).scores["MASE"]
    1.0
    """
    series = _series(trace)
    if isinstance(predictor, type) or not isinstance(predictor, Predictor):
        raise MetricError(f"predictor {predictor!r}", expected="an instance of a predictor", fix="as in LastValue()")
    horizon, stride, relearn = ahead(horizon), count(stride, "stride"), count(relearn, "relearn")
    memory = None if memory is None else count(memory, "memory")
    first = len(series) // 2 if first is None else count(first, "first")
    ends = range(first, len(series) - horizon + 1, stride)
    if first < 2 or not len(ends):
        raise MetricError(
            f"{len(series)} values, first={first}, horizon={horizon}",
            expected="at least two values before the first origin, and `horizon` after it",
            fix="a longer trace, or a shorter horizon",
        )
    learned, forecasts, actual = None, [], []
    for turn, end in enumerate(ends):
        past = series[0 if memory is None else max(0, end - memory) : end]
        if turn % relearn == 0:
            learned = predictor.learn(past)
        forecasts.append(predictor.forecast(learned, past, horizon))
        actual.append(series.values[end : end + horizon])
    return Backtest(
        name=predictor.name,
        level=predictor.level,
        origins_s=series.times_s[list(ends)],
        every_s=series.every_s,
        actual=np.array(actual),
        mean=np.array([f.mean for f in forecasts]),
        low=np.array([f.low for f in forecasts]),
        high=np.array([f.high for f in forecasts]),
        past=series.values[:first],
    )


def compare_predictors(
    predictors: Iterable[Predictor], trace: Series | Workload, **options: int | None
) -> pd.DataFrame:
    """Return the scores of several predictors on the same origins, best MASE first.

    Parameters
    ----------
    predictors : iterable of Predictor
        The predictors; a second one of the same kind is labelled with its knobs.
    trace : Series or Workload
        The values.
    **options
        Options of `backtest`.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue, MovingAverage, Series
    >>> compare_predictors([MovingAverage(), LastValue()], Series([1, 2, 3, 4, 5, 6]), horizon=1).index.tolist()
    ['last value', 'moving average']
    """
    import pandas as pd

    rows: dict[str, dict[str, float]] = {}
    for p in predictors:
        name = call(p) if p.name in rows and is_dataclass(p) else p.name
        rows[name] = backtest(p, trace, **options).scores  # type: ignore[arg-type]
    if not rows:
        raise MetricError(
            "no predictors", expected="at least one", fix="as in compare_predictors([LastValue()], series)"
        )
    return pd.DataFrame.from_dict(rows, orient="index").sort_values("MASE")


def _series(trace: Series | Workload) -> Series:
    if isinstance(trace, Series):
        return trace
    if not isinstance(trace, Workload):
        raise MetricError(f"{trace!r:.60}", expected="a Series, or a load", fix="as in Series([3, 4, 6], every_s=60)")
    return Series.of(trace)
