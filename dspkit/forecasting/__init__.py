"""Forecasts of a load, or of an operator's state: one Predictor protocol, and a backtest that compares predictors.

>>> from dspkit.forecasting import LastValue, Series
>>> Series([3, 4, 6]).forecast(LastValue(), horizon=2).mean.tolist()
[6.0, 6.0]
"""

from __future__ import annotations

from typing import Any

from .backtest import Backtest, backtest, compare_predictors
from .base import Forecast, Predictor, Series
from .markov import MarkovLevels
from .network import SeasonalNetwork
from .simple import LastValue, MovingAverage
from .statistical import AutoRegression, HoltWinters

__all__ = [
    "AutoRegression", "Backtest", "Forecast", "HoltWinters", "LastValue", "MarkovLevels", "MovingAverage", "Predictor",
    "SeasonalNetwork", "Series", "available", "backtest", "compare_predictors",
]  # fmt: skip


def available() -> dict[str, Any]:
    """Return the predictor classes by name.

    Examples
    --------
    >>> available()["last value"]()
    LastValue(level=0.9)
    """
    kinds: tuple[Any, ...] = (LastValue, MovingAverage, AutoRegression, HoltWinters, SeasonalNetwork, MarkovLevels)
    return {kind.name: kind for kind in kinds}
