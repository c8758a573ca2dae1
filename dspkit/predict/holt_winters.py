"""Holt and Winters' exponential smoothing in its state-space form, fitted by statsmodels' ETS model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import KnobError
from ..knobs import knob
from .base import Forecast, Levelled, Series, ahead, library, needs, positive

ETS = "statsmodels.tsa.exponential_smoothing.ets"


@dataclass(frozen=True)
class HoltWinters(Levelled):
    """Level, damped trend and season, each smoothed exponentially; all additive, so the interval is exact for normal
    errors.
    """

    name: ClassVar[str] = "holt-winters"
    season: int = knob(0, "values in a season; 0 is none", low=0, high=10_080)
    trend: bool = knob(True, "smooth a trend as well", choices=(True, False))
    damped: bool = knob(True, "let the trend fade", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.season == 1:
            raise KnobError("season=1", expected="0, or 2 and more", fix="0 is no season")

    def learn(self, past: Series) -> tuple[float, ...] | None:
        """The smoothing constants; None if there are fewer than 10 values or two seasons, or all are the same."""
        if not self._enough(past):
            return None
        library(ETS)  # the first import sets filters of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a search that ends without converging has still found something
            return tuple(float(p) for p in self._model(past).fit(disp=0).params)

    def forecast(self, memory: tuple[float, ...] | None, past: Series, horizon: int = 1) -> Forecast:
        needs(past)
        n = len(past)
        if memory is None or not self._enough(past):
            last = np.full(ahead(horizon), past.values[-1])
            return self._around(last, [np.diff(past.values)])
        library(ETS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            smoothed = self._model(past).smooth(np.array(memory))
            prediction = smoothed.get_prediction(start=n, end=n + ahead(horizon) - 1)
            bounds = np.asarray(prediction.pred_int(alpha=1 - self.level))
        return positive(np.asarray(prediction.predicted_mean), bounds[:, 0], bounds[:, 1])

    def _enough(self, past: Series) -> bool:
        return past.varies and len(past) >= max(10, 2 * self.season + 2)

    def _model(self, past: Series) -> Any:
        """With starting values from the data, so that constants learned before fit any later past."""
        import pandas as pd

        return library(ETS).ETSModel(
            pd.Series(past.values),  # its predictions need an index
            error="add",
            trend="add" if self.trend else None,
            damped_trend=self.trend and self.damped,
            seasonal="add" if self.season else None,
            seasonal_periods=self.season or None,
            initialization_method="heuristic",
        )
