r"""Intervals that hold as often as they say: the model's own, widened by what it missed on values it had not seen.

Conformalised quantile regression, for each step ahead by itself. A second model learns from the first part of the
past; from each place in the rest it forecasts, and the miss is $E = \max(low - x, x - high)$. Of n misses the
$\lceil (n+1)\,level\rceil$-th smallest is added on both sides; it may be negative, where the model was too careful.
Were the misses exchangeable, the chance to hold would be between level and level + 1/(n+1).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ..knobs import knob
from .base import Array, Forecast, Learned, Levelled, Series, ahead, needs, positive
from .simple import LastValue

FURTHEST = 60  # steps ahead that are calibrated; the last one serves all later ones


@dataclass(frozen=True, eq=False)
class Calibration(Learned):
    """What was learned, and by how much its interval is too narrow at each step ahead."""

    model: Any
    missing: Array


@dataclass(frozen=True)
class Calibrated(Levelled):
    """Base of predictors that learn a model. A subclass says how to learn it, and what it forecasts from any place."""

    interval: str = knob(
        "calibrated", "the model's own interval, or as wide as it had to be lately", choices=("calibrated", "model")
    )
    held_out: float = knob(
        0.3, "last part of the past that a second model forecasts, to calibrate the interval", low=0.05, high=0.9
    )

    @abstractmethod
    def _fit(self, past: Series) -> Any:
        """The model; None if there is too little to learn from."""

    @abstractmethod
    def _from(self, model: Any, past: Series, ends: Array, steps: int) -> Forecast:
        """What follows after each place in `ends`, with the model's own interval: arrays of (places, steps).

        Places too early for the model may be forecast by anything: none but the latest are asked for.
        """

    def learn(self, past: Series) -> Calibration | None:
        model = self._fit(past)
        return None if model is None else Calibration(model, self._misses(past))

    def forecast(self, memory: Calibration | None, past: Series, horizon: int = 1) -> Forecast:
        needs(past)
        steps = ahead(horizon)
        if memory is None or not self._enough(memory.model, past):  # nothing learned: what there is goes on
            return LastValue(level=self.level).forecast(None, past, steps)
        f = self._from(memory.model, past, np.array([len(past) - 1]), steps)
        more = memory.missing[np.minimum(np.arange(steps), len(memory.missing) - 1)] if len(memory.missing) else 0.0
        mean, low, high = f.mean[0], f.low[0] - more, f.high[0] + more
        return positive(mean, np.minimum(low, mean), np.maximum(high, mean))

    def _enough(self, model: Any, past: Series) -> bool:
        """Whether `past` is long enough for what was learned from another one."""
        return True

    def _misses(self, past: Series) -> Array:
        """By step ahead; for as many steps as leave enough misses to tell the level by."""
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
            came = past.values[ends[: held - s] + s + 1]
            missed = np.sort(np.maximum(f.low[: held - s, s] - came, came - f.high[: held - s, s]))
            missing[s] = missed[min(ceil((len(missed) + 1) * self.level), len(missed)) - 1]
        return np.nan_to_num(missing)
