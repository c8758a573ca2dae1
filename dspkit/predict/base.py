"""What all predictors share: a regular series, a forecast with its interval, the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..errors import MetricError, NotFoundError
from ..knobs import Knobs, knob
from ..workload import Trace, Workload

Array = np.ndarray[Any, np.dtype[Any]]
WEEK_S, DAY_S = 604_800, 86_400


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers at equal distances in time; second 0 is the start of a Monday, for predictors that know the calendar."""

    values: Array
    every_s: float = 60.0
    start_s: float = 0.0  # time of the first value

    def __init__(self, values: Sequence[float] | Array, every_s: float = 60.0, start_s: float = 0.0):
        try:
            numbers, every_s, start_s = np.asarray(values, dtype=float), float(every_s), float(start_s)
        except (TypeError, ValueError) as error:
            came = f"{values!r:.60}, every_s={every_s!r}, start_s={start_s!r}"
            raise MetricError(came, expected="a sequence of numbers, and times", fix="mend the series") from error
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
        """A load as it is in the middle of each of `duration_s / every_s` windows.

        A Trace knows both: its length, and the least distance of its times.
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
                fix="give both for a load that is a formula",
            )
        t = first + every_s * np.arange(round(duration_s / every_s))
        return cls(load.rates(t + every_s / 2), every_s, first)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> Series:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise MetricError(f"a step of {step}", expected="neighbours", fix="leave the step out")
        return Series(self.values[start:stop], self.every_s, self.start_s + start * self.every_s)

    @property
    def times_s(self) -> Array:
        return self.start_s + self.every_s * np.arange(len(self))

    @property
    def varies(self) -> bool:
        """Whether the values differ by more than rounding."""
        x = self.values
        return len(x) > 0 and bool(np.ptp(x) > 1e-9 * max(1.0, float(np.abs(x).max())))

    def forecast(self, predictor: Predictor, horizon: int = 1) -> Forecast:
        """What `predictor` says of the next `horizon` values, after it learned from these."""
        return predictor.forecast(predictor.learn(self), self, horizon)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The next values, and between which bounds they lie with the predictor's `level` of confidence."""

    mean: Array
    low: Array
    high: Array

    @property
    def peak(self) -> float:
        """The greatest expected value: what ELYSIUM prepares for."""
        return float(self.mean.max())


class Learned:
    """Base of frozen dataclasses that hold arrays: equal if all they hold is, so that states can be compared."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _same(tuple(vars(self).values()), tuple(vars(other).values()))

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(np.array_equal(one, other))


@runtime_checkable
class Predictor(Protocol):
    """Learns from a series and says what comes next. Pure: what it learned is handed back to it."""

    @property
    def name(self) -> str: ...
    @property
    def level(self) -> float:
        """Probability that the interval is meant to have."""
        ...

    def learn(self, past: Series) -> Any:
        """What is worth remembering of `past`: small, picklable, None if there is too little of it."""
        ...

    def forecast(self, memory: Any, past: Series, horizon: int = 1) -> Forecast:
        """The `horizon` values that follow `past`; `memory` may come from an earlier, shorter past."""
        ...


@dataclass(frozen=True)
class Levelled(Knobs):
    """Base of predictors: the confidence of the interval."""

    level: float = knob(0.9, "probability that the interval is meant to have", low=0.5, high=0.999)

    def _around(self, mean: Array, errors: Sequence[Array]) -> Forecast:
        """An interval from the errors made before, one array for each step ahead; the last serves all later steps.

        The quantile is the next larger error (as conformal prediction takes it), so few errors give a wide interval.
        """
        low, high = np.empty_like(mean), np.empty_like(mean)
        for step in range(len(mean)):
            seen = errors[min(step, len(errors) - 1)] if len(errors) else np.zeros(1)
            seen = seen if len(seen) else np.zeros(1)
            low[step] = mean[step] + np.quantile(seen, (1 - self.level) / 2, method="lower")
            high[step] = mean[step] + np.quantile(seen, (1 + self.level) / 2, method="higher")
        return positive(mean, np.minimum(low, mean), np.maximum(high, mean))


def positive(mean: Array, low: Array, high: Array) -> Forecast:
    """Rates are never below zero, and a forecast that is not a number helps nobody."""
    return Forecast(*(np.maximum(0.0, np.nan_to_num(values, posinf=1e300)) for values in (mean, low, high)))


def needs(past: Series, count: int = 1) -> None:
    if len(past) < count:
        raise MetricError(f"{len(past)} values to predict from", expected=f"at least {count}", fix="wait for more")


def ahead(horizon: int) -> int:
    return count(horizon, "horizon")


def count(value: Any, name: str) -> int:
    """A whole number from 1 up, numpy's as well."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise MetricError(f"{name}={value!r}", expected="a whole number from 1 up", fix=f"as in {name}=5")
    return int(value)


def library(name: str) -> Any:
    """A module of the extra `predict`, loaded on first use."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise NotFoundError(
            f"a predictor without {package}", expected=f"{package} installed", fix="pip install 'dspkit[predict]'"
        ) from error
