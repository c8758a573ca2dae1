r"""Autoregression, fitted by statsmodels: $x_t = c + \sum_i \varphi_i x_{t-i} + \varepsilon_t$.

The variance of a forecast h steps ahead is $\sigma^2\sum_{j<h}\psi_j^2$, with $\psi$ the weights of past shocks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..knobs import knob
from .base import Array, Forecast, Series, library
from .calibrated import Calibrated


class Fitted(NamedTuple):
    constant: float
    weights: tuple[float, ...]  # of the last value first
    sigma: float


@dataclass(frozen=True)
class AutoRegression(Calibrated):
    """The next value is a weighted sum of the last `lags`; weights by least squares."""

    name: ClassVar[str] = "autoregression"
    lags: int = knob(10, "values that the next one is a sum of", low=1, high=1000)

    def _fit(self, past: Series) -> Fitted | None:
        """None if there are not three times as many values as weights, or all are the same."""
        x, lags = past.values, self.lags
        if len(x) < 3 * (lags + 1) or not past.varies:
            return None
        model = library("statsmodels.tsa.ar_model").AutoReg  # the first import sets filters of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values on a line many weights are right: the shortest are taken
            fit = model(x, lags=lags, trend="c").fit()
        constant, *weights = (float(p) for p in fit.params)
        return Fitted(constant, tuple(weights), float(np.sqrt(fit.sigma2)))

    def _enough(self, model: Fitted, past: Series) -> bool:
        return len(past) >= len(model.weights)

    def _from(self, model: Fitted, past: Series, ends: Array, steps: int) -> Forecast:
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
