"""The two predictors that every other one has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..knobs import knob
from .base import Array, Forecast, Levelled, Series, ahead, needs


class _Flat(Levelled):
    """The mean of the last values goes on; the interval is from the errors that this made before."""

    @property
    def _width(self) -> int:
        return 1

    def learn(self, past: Series) -> None:
        """Nothing to learn: all is in the past itself."""

    def forecast(self, memory: None, past: Series, horizon: int = 1) -> Forecast:
        needs(past)
        width, x = min(self._width, len(past)), past.values
        means = np.convolve(x, np.full(width, 1 / width), "valid")
        errors: list[Array] = []
        for step in range(1, ahead(horizon) + 1):
            if step + width > len(x):
                break
            errors.append(x[width - 1 + step :] - means[:-step])
        return self._around(np.full(horizon, means[-1]), errors)


@dataclass(frozen=True)
class LastValue(_Flat):
    """The last value goes on; the interval is from how far the series moved in as many steps before."""

    name: ClassVar[str] = "last value"


@dataclass(frozen=True)
class MovingAverage(_Flat):
    """The mean of the last `samples` values goes on; the interval is from the errors that this made before."""

    name: ClassVar[str] = "moving average"
    samples: int = knob(5, "values that are averaged", low=1, high=10_000)

    @property
    def _width(self) -> int:
        return self.samples
