r"""Calibrated intervals: the model's own interval, widened by its misses on held-out values.

This is conformalised quantile regression, separately for each step ahead. A second model learns from the first part of
the past and forecasts from each place in the rest; the miss is $E = \max(low - x, x - high)$. Of n misses the
$\lceil (n+1)\,level\rceil$-th smallest is added on both sides; it is negative if the model was too cautious. If the
misses were exchangeable, the coverage would be between level and level + 1/(n+1).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ..core import knob
from ..core.typing import Array
from .base import Forecast, LearnedModel, Levelled, Series, ahead, positive, require_length
from .simple import LastValue

FURTHEST = 60  # number of calibrated steps ahead; the last one serves all later ones


@dataclass(frozen=True, eq=False)
class Calibration(LearnedModel):
    """A learned model, and the correction of its interval at each step ahead."""

    model: Any
    missing: Array


@dataclass(frozen=True)
class Calibrated(Levelled):
    """Base class of predictors that learn a model; a subclass defines its learning and its forecasts from any place."""

    interval: str = knob(
        "calibrated", "calibrated on held-out values, or the model's own interval", choices=("calibrated", "model")
    )
    held_out: float = knob(
        0.3, "last part of the past that a second model forecasts, to calibrate the interval", low=0.05, high=0.9
    )

    @abstractmethod
    def _fit(self, past: Series) -> Any:
        """Return the model; None if the past is too short."""

    @abstractmethod
    def _from(self, model: Any, past: Series, ends: Array, steps: int) -> Forecast:
        """Return the values after each place in `ends`, with the model's own interval: arrays of (places, steps).

        Forecasts from places too early for the model are arbitrary, as only the latest are used.
        """

    def learn(self, past: Series) -> Calibration | None:
        """Return the model and the correction of its interval; None if the past is too short.

        Examples
        --------
        >>> from dspkit.forecasting import MarkovLevels
        >>> MarkovLevels().learn(Series([3])) is None
        True
        """
        model = self._fit(past)
        return None if model is None else Calibration(model, self._misses(past))

    def forecast(self, memory: Calibration | None, past: Series, horizon: int = 1) -> Forecast:
        """Return the `horizon` values after `past`; the last value repeated if nothing was learned.

        Examples
        --------
        >>> from dspkit.forecasting import MarkovLevels
        >>> MarkovLevels().forecast(None, Series([3, 4]), 2).mean.tolist()
        [4.0, 4.0]
        """
        require_length(past)
        steps = ahead(horizon)
        if memory is None or not self._enough(memory.model, past):  # without a model, the last value is repeated
            return LastValue(level=self.level).forecast(None, past, steps)
        f = self._from(memory.model, past, np.array([len(past) - 1]), steps)
        more = memory.missing[np.minimum(np.arange(steps), len(memory.missing) - 1)] if len(memory.missing) else 0.0
        mean, low, high = f.mean[0], f.low[0] - more, f.high[0] + more
        return positive(mean, np.minimum(low, mean), np.maximum(high, mean))

    def _enough(self, model: Any, past: Series) -> bool:
        """Return whether `past` is long enough for a model learned from another past."""
        return True

    def _misses(self, past: Series) -> Array:
        """Return the correction per step ahead, for as many steps as leave enough misses to estimate the level."""
        held = round(self.held_out * len(past))
        least = ceil(self.level / (1 - self.level))  # misses of which one is beyond the level
        steps = min(FURTHEST, held - least + 1)
        if self.interval == "model" or steps < 1:
            return np.empty(0)
        model = self._fit(past[: len(past) - held])
        if model is None:
            return np.empty(0)
        ends = np.arange(len(past) - held - 1, len(past) - 1)
        f = self._from(model, past, ends, steps)
        missing = np.empty(steps)
        for s in range(steps):
            actual = past.values[ends[: held - s] + s + 1]
            missed = np.sort(np.maximum(f.low[: held - s, s] - actual, actual - f.high[: held - s, s]))
            missing[s] = missed[min(ceil((len(missed) + 1) * self.level), len(missed)) - 1]
        return np.nan_to_num(missing)
