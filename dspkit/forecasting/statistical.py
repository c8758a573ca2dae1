r"""Autoregression and Holt-Winters' exponential smoothing, fitted by statsmodels.

Autoregression: $x_t = c + \sum_i \varphi_i x_{t-i} + \varepsilon_t$. The variance of a forecast h steps ahead is
$\sigma^2\sum_{j<h}\psi_j^2$, with $\psi$ the weights of past shocks.

Exponential smoothing is in its state-space form (statsmodels' ETS). From the final level $l$, trend $b$ and seasons
$s$, the forecast h steps ahead is $l + b\sum_{i\le h}\phi^i + s_{-m+1+(h-1) \bmod m}$.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import KnobError, knob
from ..core.typing import Array
from .base import Forecast, Series, library
from .calibrated import Calibrated


class FittedRegression(NamedTuple):
    """The parameters of a fitted autoregression."""

    constant: float
    weights: tuple[float, ...]  # that of the last value first
    sigma: float


@dataclass(frozen=True)
class AutoRegression(Calibrated):
    """A weighted sum of the last `lags` values, with weights by least squares.

    Examples
    --------
    >>> AutoRegression(lags=3).name
    'autoregression'
    """

    name: ClassVar[str] = "autoregression"
    lags: int = knob(10, "number of last values in the weighted sum", low=1, high=1000)

    def _fit(self, past: Series) -> FittedRegression | None:
        """Return the model; None if there are fewer than three times as many values as weights, or all are equal."""
        x, lags = past.values, self.lags
        if len(x) < 3 * (lags + 1) or not past.varies:
            return None
        model = library("statsmodels.tsa.ar_model").AutoReg  # its first import sets warning filters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # collinear values have many solutions; the smallest weights are taken
            fit = model(x, lags=lags, trend="c").fit()
        constant, *weights = (float(p) for p in fit.params)
        return FittedRegression(constant, tuple(weights), float(np.sqrt(fit.sigma2)))

    def _enough(self, model: FittedRegression, past: Series) -> bool:
        return len(past) >= len(model.weights)

    def _from(self, model: FittedRegression, past: Series, ends: Array, steps: int) -> Forecast:
        from scipy.special import ndtri

        lags, weights = len(model.weights), np.array(model.weights)
        values = np.empty((len(ends), lags + steps))
        values[:, :lags] = past.values[np.maximum(ends[:, None] + np.arange(1 - lags, 1), 0)]
        psi = [1.0]
        for step in range(steps):
            values[:, lags + step] = model.constant + values[:, step : lags + step] @ weights[::-1]
            psi.append(float(sum(weights[i] * psi[step - i] for i in range(min(lags, step + 1)))))
        mean = values[:, lags:]
        spread = model.sigma * np.sqrt(np.cumsum(np.square(psi[:steps]))) * ndtri((1 + self.level) / 2)
        return Forecast(mean, mean - spread, mean + spread)


ETS = "statsmodels.tsa.exponential_smoothing.ets"


@dataclass(frozen=True)
class HoltWinters(Calibrated):
    """Exponential smoothing of level, damped trend and season, all additive.

    The model's own interval is exact for normally distributed errors.

    Examples
    --------
    >>> HoltWinters(season=24).name
    'holt-winters'
    """

    name: ClassVar[str] = "holt-winters"
    season: int = knob(0, "number of values in a season; 0 for no season", low=0, high=10_080)
    trend: bool = knob(True, "smooth a trend as well", choices=(True, False))
    damped: bool = knob(True, "let the trend fade", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.season == 1:
            raise KnobError("season=1", expected="0, or 2 and more", fix="0 is no season")

    def _fit(self, past: Series) -> tuple[float, ...] | None:
        """Return the smoothing constants; None for fewer than 10 values or two seasons, or if all values are equal."""
        if not self._enough(None, past):
            return None
        library(ETS)  # its first import sets warning filters
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an optimisation without convergence still gives a usable result
            return tuple(float(p) for p in self._model(past).fit(disp=0).params)

    def _enough(self, model: Any, past: Series) -> bool:
        return past.varies and len(past) >= max(10, 2 * self.season + 2)

    def _from(self, model: tuple[float, ...], past: Series, ends: Array, steps: int) -> Forecast:
        library(ETS)
        n = len(past)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ets = self._model(past)
            smoothed = ets.smooth(np.array(model))
            predicted = smoothed.get_prediction(start=n, end=n + steps - 1)
            bounds = np.asarray(predicted.pred_int(alpha=1 - self.level))
        after = np.arange(1, steps + 1)
        mean = np.repeat(np.asarray(smoothed.level)[ends][:, None], steps, axis=1)
        if self.trend:
            fade = dict(zip(ets.param_names, model, strict=True)).get("damping_trend", 1.0)
            mean += np.asarray(smoothed.slope)[ends][:, None] * np.cumsum(fade**after)
        if self.season:
            last_year = ends[:, None] - self.season + 1 + (after - 1) % self.season
            mean += np.asarray(smoothed.season)[np.maximum(last_year, 0)]
        now = np.asarray(predicted.predicted_mean)  # the interval is equally wide at all places
        return Forecast(mean, mean + (bounds[:, 0] - now), mean + (bounds[:, 1] - now))

    def _model(self, past: Series) -> Any:
        """Return the ETS model with initial values from the data, so that learned constants fit any later past."""
        import pandas as pd

        return library(ETS).ETSModel(
            pd.Series(past.values),  # predictions need an index
            error="add",
            trend="add" if self.trend else None,
            damped_trend=self.trend and self.damped,
            seasonal="add" if self.season else None,
            seasonal_periods=self.season or None,
            initialization_method="heuristic",
        )
