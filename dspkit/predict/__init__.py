"""Predict a load, or the state that an operator will be in: one Predictor protocol, and a backtest that compares them.

>>> from dspkit.predict import LastValue, Series
>>> Series([3, 4, 6]).forecast(LastValue(), horizon=2).mean.tolist()
[6.0, 6.0]
"""

from __future__ import annotations

from typing import Any

from .base import Forecast, Predictor, Series
from .holt_winters import HoltWinters
from .levels import MarkovLevels
from .network import SeasonalNetwork
from .regression import AutoRegression
from .rolling import Backtest, backtest, compare
from .simple import LastValue, MovingAverage

__all__ = [
    "AutoRegression", "Backtest", "Forecast", "HoltWinters", "LastValue", "MarkovLevels", "MovingAverage", "Predictor",
    "SeasonalNetwork", "Series", "available", "backtest", "compare",
]  # fmt: skip


def available() -> dict[str, Any]:
    """Every predictor by its name; calling one makes it."""
    kinds: tuple[Any, ...] = (LastValue, MovingAverage, AutoRegression, HoltWinters, SeasonalNetwork, MarkovLevels)
    return {kind.name: kind for kind in kinds}
