"""The common types of all predictors: a regular series, a forecast with its interval, and the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..core import Knobs, MetricError, NotFoundError, knob
from ..core.typing import Array
from ..core.validation import whole
from ..workload import Trace, Workload

WEEK_S, DAY_S = 604_800, 86_400


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers at equal distances in time.

    Second 0 is the start of a Monday, for predictors that use the calendar.

    Parameters
    ----------
    values : sequence of float
        The numbers.
    every_s : float
        Their distance in seconds.
    start_s : float
        Time of the first value.

    Examples
    --------
    >>> Series([3, 4, 6], every_s=60).times_s.tolist()
    [0.0, 60.0, 120.0]
    """

    values: Array
    every_s: float = 60.0
    start_s: float = 0.0

    def __init__(self, values: Sequence[float] | Array, every_s: float = 60.0, start_s: float = 0.0):
        try:
            numbers, every_s, start_s = np.asarray(values, dtype=float), float(every_s), float(start_s)
        except (TypeError, ValueError) as error:
            got = f"{values!r:.60}, every_s={every_s!r}, start_s={start_s!r}"
            raise MetricError(got, expected="a sequence of numbers, and times", fix="correct the series") from error
        if numbers.ndim != 1 or not np.isfinite(numbers).all() or not (0 < every_s < np.inf and np.isfinite(start_s)):
            raise MetricError(
                f"a series of shape {numbers.shape}, every_s={every_s}, start_s={start_s}",
                expected="one row of finite numbers and every_s > 0",
                fix="fill gaps first",
            )
        for name, value in (("values", numbers), ("every_s", every_s), ("start_s", start_s)):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, load: Workload, duration_s: float | None = None, every_s: float | None = None) -> Series:
        """Return the values of a load in the middle of each of `duration_s / every_s` windows.

        Parameters
        ----------
        load : Workload
            The load.
        duration_s, every_s : float, optional
            Length and distance in seconds; by default those of a Trace, which has both.

        Examples
        --------
        >>> from dspkit.workload import Constant
        >>> Series.of(Constant(5), duration_s=120, every_s=60).values.tolist()
        [5.0, 5.0]
        """
        if isinstance(load, Trace) and len(load.times_s) > 1:
            steps = np.diff(load.times_s)
            every_s = float(steps.min()) if every_s is None else every_s
            last = float(load.times_s[-1]) + every_s - float(load.times_s[0])
            duration_s = last if duration_s is None else duration_s
            first = float(load.times_s[0])
        else:
            first = 0.0
        if duration_s is None or every_s is None or not 0 < every_s <= duration_s:
            raise MetricError(
                f"duration_s={duration_s}, every_s={every_s} for {load!r}",
                expected="0 < every_s <= duration_s",
                fix="pass both, unless the load is a Trace",
            )
        t = first + every_s * np.arange(round(duration_s / every_s))
        return cls(load.rates(t + every_s / 2), every_s, first)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Series:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise MetricError(f"a step of {step}", expected="a contiguous slice", fix="leave the step out")
        return Series(self.values[start:stop], self.every_s, self.start_s + start * self.every_s)

    @property
    def times_s(self) -> Array:
        """Time of each value."""
        return self.start_s + self.every_s * np.arange(len(self))

    @property
    def varies(self) -> bool:
        """True if the values differ by more than rounding errors."""
        x = self.values
        return len(x) > 0 and bool(np.ptp(x) > 1e-9 * max(1.0, float(np.abs(x).max())))

    def forecast(self, predictor: Predictor, horizon: int = 1) -> Forecast:
        """Return the predictor's forecast of the next `horizon` values, after it learned from these.

        Parameters
        ----------
        predictor : Predictor
            The predictor.
        horizon : int
            Steps ahead.

        Examples
        --------
        >>> from dspkit.forecasting import LastValue
        >>> Series([3, 4, 6]).forecast(LastValue()).mean.tolist()
        [6.0]
        """
        return predictor.forecast(predictor.learn(self), self, horizon)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The next values, with an interval of the predictor's nominal probability `level`.

    Parameters
    ----------
    mean, low, high : array
        Expected values, and the ends of their intervals.

    Examples
    --------
    >>> Forecast(np.array([5.0, 7.0]), np.array([4.0, 5.0]), np.array([6.0, 9.0])).peak
    7.0
    """

    mean: Array
    low: Array
    high: Array

    @property
    def peak(self) -> float:
        """The greatest expected value, for which ELYSIUM provisions."""
        return float(self.mean.max())


class LearnedModel:
    """Base class of frozen dataclasses that contain arrays; they are equal if all their values are."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _same(tuple(vars(self).values()), tuple(vars(other).values()))

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(np.array_equal(one, other))


@runtime_checkable
class Predictor(Protocol):
    """A forecasting method, which is pure: what it learned is returned, and passed back to it.

    Examples
    --------
    >>> from dspkit.forecasting import LastValue
    >>> isinstance(LastValue(), Predictor)
    True
    """

    @property
    def name(self) -> str:
        """Name of the method."""
        ...

    @property
    def level(self) -> float:
        """Nominal probability of the interval."""
        ...

    def learn(self, past: Series) -> Any:
        """Return what is learned from `past`: small, picklable, and None if it is too short.

        Parameters
        ----------
        past : Series
            The values to learn from.

        Examples
        --------
        >>> from dspkit.forecasting import MovingAverage
        >>> MovingAverage().learn(Series([3, 4])) is None
        True
        """
        ...

    def forecast(self, memory: Any, past: Series, horizon: int = 1) -> Forecast:
        """Return the `horizon` values after `past`.

        Parameters
        ----------
        memory : object
            The result of `learn`, which may have been called with an earlier, shorter past.
        past : Series
            The values so far.
        horizon : int
            Steps ahead.

        Examples
        --------
        >>> from dspkit.forecasting import MovingAverage
        >>> MovingAverage().forecast(None, Series([3, 5])).mean.tolist()
        [4.0]
        """
        ...


@dataclass(frozen=True)
class Levelled(Knobs):
    """Base class of predictors, with the nominal probability of the interval."""

    level: float = knob(0.9, "nominal probability of the interval", low=0.5, high=0.999)

    def _around(self, mean: Array, errors: Sequence[Array]) -> Forecast:
        """Return an interval from past errors, one array per step ahead; the last one serves all later steps.

        The quantile is the next larger error, as in conformal prediction, so that few errors give a wide interval.
        """
        low, high = np.empty_like(mean), np.empty_like(mean)
        for step in range(len(mean)):
            seen = errors[min(step, len(errors) - 1)] if len(errors) else np.zeros(1)
            seen = seen if len(seen) else np.zeros(1)
            low[step] = mean[step] + np.quantile(seen, (1 - self.level) / 2, method="lower")
            high[step] = mean[step] + np.quantile(seen, (1 + self.level) / 2, method="higher")
        return positive(mean, np.minimum(low, mean), np.maximum(high, mean))


def positive(mean: Array, low: Array, high: Array) -> Forecast:
    """Return a forecast without negative or undefined values."""
    return Forecast(*(np.maximum(0.0, np.nan_to_num(values, posinf=1e300)) for values in (mean, low, high)))


def require_length(past: Series, count: int = 1) -> None:
    """Raise a MetricError if the past is shorter than `count` values."""
    if len(past) < count:
        raise MetricError(f"{len(past)} values to predict from", expected=f"at least {count}", fix="wait for more")


def ahead(horizon: int) -> int:
    """Return a number of steps ahead, from 1 up."""
    return count(horizon, "horizon")


def count(value: Any, name: str) -> int:
    """Return a whole number from 1 up as an int."""
    return whole(value, name, 1, error=MetricError, fix=f"as in {name}=5")


def library(name: str) -> Any:
    """Import a module of the extra `forecasting` on first use."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise NotFoundError(
            f"a predictor without {package}", expected=f"{package} installed", fix="pip install 'dspkit[forecasting]'"
        ) from error
