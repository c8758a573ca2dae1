r"""Holt and Winters' exponential smoothing in its state-space form, fitted by statsmodels' ETS model.

From level $l$, trend $b$ and seasons $s$ at the end, what comes h steps later is
$l + b\sum_{i\le h}\phi^i + s_{-m+1+(h-1) \bmod m}$.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..errors import KnobError
from ..knobs import knob
from .base import Array, Forecast, Series, library
from .calibrated import Calibrated

ETS = "statsmodels.tsa.exponential_smoothing.ets"


@dataclass(frozen=True)
class HoltWinters(Calibrated):
    """Level, damped trend and season, each smoothed exponentially; all additive, so the model's own interval is exact
    for normal errors.
    """

    name: ClassVar[str] = "holt-winters"
    season: int = knob(0, "values in a season; 0 is none", low=0, high=10_080)
    trend: bool = knob(True, "smooth a trend as well", choices=(True, False))
    damped: bool = knob(True, "let the trend fade", choices=(True, False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.season == 1:
            raise KnobError("season=1", expected="0, or 2 and more", fix="0 is no season")

    def _fit(self, past: Series) -> tuple[float, ...] | None:
        """The smoothing constants; None if there are fewer than 10 values or two seasons, or all are the same."""
        if not self._enough(None, past):
            return None
        library(ETS)  # the first import sets filters of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a search that ends without converging has still found something
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
            told = smoothed.get_prediction(start=n, end=n + steps - 1)
            bounds = np.asarray(told.pred_int(alpha=1 - self.level))
        after = np.arange(1, steps + 1)
        mean = np.repeat(np.asarray(smoothed.level)[ends][:, None], steps, axis=1)
        if self.trend:
            fade = dict(zip(ets.param_names, model, strict=True)).get("damping_trend", 1.0)
            mean += np.asarray(smoothed.slope)[ends][:, None] * np.cumsum(fade**after)
        if self.season:
            last_year = ends[:, None] - self.season + 1 + (after - 1) % self.season
            mean += np.asarray(smoothed.season)[np.maximum(last_year, 0)]
        now = np.asarray(told.predicted_mean)  # constants are the same everywhere, and so is the interval's width
        return Forecast(mean, mean + (bounds[:, 0] - now), mean + (bounds[:, 1] - now))

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
