"""The two baselines that other predictors have to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core import knob
from ..core.typing import Array
from .base import Forecast, Levelled, Series, ahead, require_length


class _Flat(Levelled):
    """Repeat the mean of the last values; the interval is from the past errors of this forecast."""

    @property
    def _width(self) -> int:
        return 1

    def learn(self, past: Series) -> None:
        """Return None: the forecast needs only the past itself.

        Examples
        --------
        >>> LastValue().learn(Series([3, 4])) is None
        True
        """

    def forecast(self, memory: None, past: Series, horizon: int = 1) -> Forecast:
        """Return the `horizon` values after `past`.

        Examples
        --------
        >>> MovingAverage(samples=2).forecast(None, Series([3, 4]), 2).mean.tolist()
        [3.5, 3.5]
        """
        require_length(past)
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
    """Repeat the last value; the interval is from the past changes over as many steps.

    Examples
    --------
    >>> LastValue().forecast(None, Series([3, 4])).mean.tolist()
    [4.0]
    """

    name: ClassVar[str] = "last value"


@dataclass(frozen=True)
class MovingAverage(_Flat):
    """Repeat the mean of the last `samples` values; the interval is from the past errors of this forecast.

    Examples
    --------
    >>> MovingAverage(samples=2).forecast(None, Series([3, 4])).mean.tolist()
    [3.5]
    """

    name: ClassVar[str] = "moving average"
    samples: int = knob(5, "values that are averaged", low=1, high=10_000)

    @property
    def _width(self) -> int:
        return self.samples
