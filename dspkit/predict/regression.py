r"""Autoregression, fitted by statsmodels: $x_t = c + \sum_i \varphi_i x_{t-i} + \varepsilon_t$.

The variance of a forecast h steps ahead is $\sigma^2\sum_{j<h}\psi_j^2$, with $\psi$ the weights of past shocks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..knobs import knob
from .base import Forecast, Levelled, Series, ahead, library, needs, positive


class Fitted(NamedTuple):
    constant: float
    weights: tuple[float, ...]  # of the last value first
    sigma: float


@dataclass(frozen=True)
class AutoRegression(Levelled):
    """The next value is a weighted sum of the last `lags`; weights by least squares, interval by theory."""

    name: ClassVar[str] = "autoregression"
    lags: int = knob(10, "values that the next one is a sum of", low=1, high=1000)

    def learn(self, past: Series) -> Fitted | None:
        """None if there are not three times as many values as weights, or all are the same."""
        x, lags = past.values, self.lags
        if len(x) < 3 * (lags + 1) or not past.varies:
            return None
        models = library("statsmodels.tsa.ar_model")  # its first import sets filters of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values on a line many weights are right: the shortest are taken
            fit = models.AutoReg(x, lags=lags, trend="c").fit()
        constant, *weights = (float(p) for p in fit.params)
        return Fitted(constant, tuple(weights), float(np.sqrt(fit.sigma2)))

    def forecast(self, memory: Fitted | None, past: Series, horizon: int = 1) -> Forecast:
        from scipy.special import ndtri

        needs(past)
        if memory is None or len(past) < len(memory.weights):  # nothing learned: what there is goes on
            last = np.full(ahead(horizon), past.values[-1])
            return self._around(last, [np.diff(past.values)])
        lags, weights = len(memory.weights), np.array(memory.weights)
        values = [*past.values[-lags:].tolist()]
        psi = [1.0]
        for step in range(ahead(horizon)):
            values.append(memory.constant + float(weights @ values[: -lags - 1 : -1]))
            psi.append(float(sum(weights[i] * psi[step - i] for i in range(min(lags, step + 1)))))
        mean = np.array(values[lags:])
        spread = memory.sigma * np.sqrt(np.cumsum(np.square(psi[:horizon]))) * ndtri((1 + self.level) / 2)
        return positive(mean, mean - spread, mean + spread)
