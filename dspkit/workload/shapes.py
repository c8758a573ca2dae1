"""Shapes of the input rate: each Workload is a pure function from seconds since the start to records/s.

Random shapes take a seed and are still pure functions of time, so that two runs have the same load whatever their
windows are. `load * 2` scales a load, `load + other` adds two, `load + 5` adds 5 records/s, `sum(loads)` adds them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Real
from pathlib import Path
from typing import Any

from ..core import Knobs, WorkloadError, call, files, knob, untrusted
from ..core.typing import Array


def _rate(default: float, help: str) -> Any:
    return knob(default, help, low=0.0, high=math.inf, unit="records/s")


def _time(default: float, help: str, low: float = 1e-3) -> Any:
    return knob(default, help, low=low, high=math.inf, unit="s")


class Workload(Knobs):
    """Base class of all loads; a subclass defines `rates` for an array of times.

    Examples
    --------
    >>> load = Constant(5) * 2 + 1
    >>> load.rate(0.0)
    11.0
    """

    def rates(self, t: Array) -> Array:
        """Return records/s at each time.

        Parameters
        ----------
        t : array
            Times in seconds.

        Examples
        --------
        >>> import numpy as np
        >>> Jump(1, 2, at_s=10).rates(np.array([0.0, 10.0])).tolist()
        [1.0, 2.0]
        """
        raise NotImplementedError(f"{type(self).__name__} must define rates(t)")

    def rate(self, t: float) -> float:
        """Return records/s at one time.

        Parameters
        ----------
        t : float
            Time in seconds.

        Examples
        --------
        >>> Constant(5).rate(0.0)
        5.0
        """
        import numpy as np

        return float(self.rates(np.array([t], dtype=float))[0])

    def __mul__(self, factor: float) -> Workload:
        return Scaled(self, factor)

    __rmul__ = __mul__

    def __add__(self, other: Workload | float) -> Workload:
        """Return the sum of two loads; a number counts as a Constant, and 0, with which sum() starts, is ignored."""
        if isinstance(other, Real):
            return Sum((self, Constant(float(other)))) if other else self
        return Sum((self, other)) if isinstance(other, Workload) else NotImplemented

    __radd__ = __add__


@dataclass(frozen=True)
class Constant(Workload):
    """The same rate for ever.

    Examples
    --------
    >>> Constant(rate_per_s=5).rate(60)
    5.0
    """

    rate_per_s: float = _rate(1000.0, "the rate")

    def rates(self, t: Array) -> Array:
        return 0 * t + self.rate_per_s


@dataclass(frozen=True)
class Jump(Workload):
    """A step function: one rate until `at_s`, another from then on.

    Examples
    --------
    >>> Jump(before_per_s=1, after_per_s=2, at_s=10).rate(10)
    2.0
    """

    before_per_s: float = _rate(500.0, "rate before the step")
    after_per_s: float = _rate(1000.0, "rate after the step")
    at_s: float = _time(300.0, "when the rate steps", low=0.0)

    def rates(self, t: Array) -> Array:
        import numpy as np

        return np.where(t < self.at_s, self.before_per_s, self.after_per_s)


@dataclass(frozen=True)
class Stair(Workload):
    """Equal steps up or down, followed by a constant rate. The default is the staircase of AuTraScale's case study.

    Examples
    --------
    >>> [Stair().rate(t) for t in (0, 599, 600, 9999)]
    [100000.0, 100000.0, 150000.0, 300000.0]
    """

    start_per_s: float = _rate(100_000.0, "rate of the first stair")
    rise_per_s: float = knob(50_000.0, "rise from stair to stair", low=-math.inf, high=math.inf, unit="records/s")
    every_s: float = _time(600.0, "length of a stair")
    steps: int = knob(4, "number of rises", low=0, high=1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_per_s + self.steps * self.rise_per_s < 0:
            raise WorkloadError(f"{self}", expected="no stair below zero", fix="fewer or lower steps")

    def rates(self, t: Array) -> Array:
        import numpy as np

        return self.start_per_s + self.rise_per_s * np.clip(t // self.every_s, 0, self.steps)


@dataclass(frozen=True)
class Sine(Workload):
    """A wave about its mean: $m + a\\sin(2\\pi t/p)$, never below zero.

    Examples
    --------
    >>> Sine(mean_per_s=10, amplitude_per_s=5, period_s=40).rate(10)
    15.0
    """

    mean_per_s: float = _rate(1000.0, "rate in the middle")
    amplitude_per_s: float = _rate(500.0, "height of the wave above the middle")
    period_s: float = _time(600.0, "time from crest to crest")
    phase_s: float = knob(0.0, "time by which the wave is late", low=-math.inf, high=math.inf, unit="s")

    def rates(self, t: Array) -> Array:
        import numpy as np

        wave = np.sin(2 * np.pi * (t - self.phase_s) / self.period_s)
        return np.maximum(0.0, self.mean_per_s + self.amplitude_per_s * wave)


@dataclass(frozen=True)
class Square(Workload):
    """Alternating high and low rates; each period begins with the high one.

    Examples
    --------
    >>> load = Square(low_per_s=1, high_per_s=2, period_s=10)
    >>> load.rate(0), load.rate(5)
    (2.0, 1.0)
    """

    low_per_s: float = _rate(500.0, "rate in the low part")
    high_per_s: float = _rate(1000.0, "rate in the high part")
    period_s: float = _time(600.0, "length of high and low together")
    duty: float = knob(0.5, "share of the period that is high", low=0.0, high=1.0)

    def rates(self, t: Array) -> Array:
        import numpy as np

        return np.where(t % self.period_s < self.duty * self.period_s, self.high_per_s, self.low_per_s)


@dataclass(frozen=True)
class Bursts(Workload):
    """One burst per period, at a random time such that it ends within the period.

    Examples
    --------
    >>> import numpy as np
    >>> rates = Bursts(base_per_s=1, peak_per_s=9, period_s=100, burst_s=10).rates(np.arange(100.0))
    >>> int((rates == 9).sum())
    10
    """

    base_per_s: float = _rate(500.0, "rate between bursts")
    peak_per_s: float = _rate(2000.0, "rate in a burst")
    period_s: float = _time(600.0, "length of a period")
    burst_s: float = _time(60.0, "length of a burst", low=0.0)
    seed: int = knob(0, "seed of the random times", low=0, high=2**32 - 1)

    def rates(self, t: Array) -> Array:
        import numpy as np

        period = np.floor(t / self.period_s).astype(int)
        slack = max(0.0, self.period_s - self.burst_s)
        first = {k: np.random.default_rng([self.seed, k]).uniform(0, slack) for k in np.unique(period).tolist()}
        since = t - period * self.period_s - np.array([first[k] for k in period.tolist()])
        return np.where((since >= 0) & (since < self.burst_s), self.peak_per_s, self.base_per_s)


@dataclass(frozen=True)
class PoissonModulated(Workload):
    """The rate of a Markov-modulated Poisson process: two levels with exponentially distributed durations.

    Examples
    --------
    >>> PoissonModulated(low_per_s=1, high_per_s=2).rate(0)
    1.0
    """

    low_per_s: float = _rate(500.0, "rate in the quiet state")
    high_per_s: float = _rate(1500.0, "rate in the busy state")
    stay_low_s: float = _time(300.0, "mean duration of the quiet state")
    stay_high_s: float = _time(100.0, "mean duration of the busy state")
    seed: int = knob(0, "seed of the random durations", low=0, high=2**32 - 1)

    def rates(self, t: Array) -> Array:
        import numpy as np

        count, end = 64, -1.0
        while end <= (t.max() if t.size else 0):  # doubling keeps the first half, so that prefixes agree
            count *= 2
            switches = _stays(self.seed, self.stay_low_s, self.stay_high_s, count)
            end = switches[-1]
        busy = np.searchsorted(switches, t, side="right") % 2 == 1
        return np.where(busy, self.high_per_s, self.low_per_s)


@lru_cache(maxsize=64)
def _stays(seed: int, low_s: float, high_s: float, count: int) -> Any:
    import numpy as np

    return np.cumsum(np.random.default_rng(seed).exponential(1.0, count) * np.resize([low_s, high_s], count))


@dataclass(frozen=True)
class Trace(Workload):
    """A recorded load: each rate holds until the next time; the first also before it, and the last for ever.

    Parameters
    ----------
    times_s : sequence of float
        Increasing times in seconds.
    rates_per_s : sequence of float
        Records/s from each time on.

    Examples
    --------
    >>> Trace((0, 60), (5, 7)).rate(59)
    5.0
    """

    times_s: Sequence[float] = (0.0,)
    rates_per_s: Sequence[float] = (0.0,)

    def __post_init__(self) -> None:
        times, values = _numbers(self.times_s, "times_s"), _numbers(self.rates_per_s, "rates_per_s")
        object.__setattr__(self, "times_s", times)
        object.__setattr__(self, "rates_per_s", values)
        if not times or len(times) != len(values):
            raise WorkloadError(
                f"{len(times)} times and {len(values)} rates",
                expected="equal numbers, at least one",
                fix="correct the table",
            )
        for row, (t, rate) in enumerate(zip(times, values, strict=True)):
            if not (math.isfinite(t) and math.isfinite(rate) and rate >= 0):
                raise WorkloadError(
                    f"row {row}: t={t}, rate={rate}",
                    expected="finite numbers, rate >= 0",
                    fix="correct or drop the row",
                )
            if row and t <= times[row - 1]:
                raise WorkloadError(
                    f"row {row}: t={t} after t={times[row - 1]}", expected="increasing times", fix="sort the rows"
                )

    @classmethod
    def load(cls, path: str | Path, *, time: str = "t", rate: str = "rate") -> Trace:
        r"""Read times and rates from a .csv or .parquet file; for counts, see `workload.read`.

        Parameters
        ----------
        path : str or Path
            The file.
        time, rate : str
            Names of the columns, in seconds and records/s.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "load.csv")
        ...     _ = path.write_text("t,rate\n0,5\n60,7\n")
        ...     Trace.load(path).rate(60)
        7.0
        """
        import pandas as pd

        place = files.given_path(path, error=WorkloadError)
        expected = "a readable table"
        if place.suffix == ".parquet":
            table = untrusted.read_table(place, error=WorkloadError, expected=expected).to_pandas()
        elif place.suffix == ".csv":
            table = untrusted.read_csv(place, error=WorkloadError, expected=expected, float_precision="round_trip")
        else:
            raise WorkloadError(f"file {place.name!r}", expected=".csv or .parquet", fix="convert it first")
        for column in (time, rate):
            if column not in table:
                raise WorkloadError(
                    f"columns {list(table)}", expected=f"a column {column!r}", fix="name them with time= and rate="
                )
        numbers = table[[time, rate]].apply(pd.to_numeric, errors="coerce")
        return cls(numbers[time].tolist(), numbers[rate].tolist())

    def rates(self, t: Array) -> Array:
        import numpy as np

        times, rates = self._table
        return rates[np.maximum(np.searchsorted(times, t, side="right") - 1, 0)]

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Both columns as arrays, cached because a recorded year has half a million rows."""
        import numpy as np

        return np.asarray(self.times_s), np.asarray(self.rates_per_s)

    def __repr__(self) -> str:
        return call(self)


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(x) for x in values)
    except (TypeError, ValueError, OverflowError) as error:
        raise WorkloadError(f"{name}: {error}", expected="a sequence of numbers", fix="correct the table") from None


@dataclass(frozen=True)
class Scaled(Workload):
    """A load times a factor, as `load * factor` makes it.

    Parameters
    ----------
    load : Workload
        The load.
    factor : float
        The factor.

    Examples
    --------
    >>> Scaled(Constant(5), 2).rate(0)
    10.0
    """

    load: Workload
    factor: float = knob(1.0, "factor of the load", low=0.0, high=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        _must_be_load(self.load)

    def rates(self, t: Array) -> Array:
        return self.factor * self.load.rates(t)


@dataclass(frozen=True)
class Sum(Workload):
    """The sum of several loads, as `load + other` makes it.

    Parameters
    ----------
    loads : tuple of Workload
        The loads.

    Examples
    --------
    >>> Sum((Constant(5), Constant(2))).rate(0)
    7.0
    """

    loads: tuple[Workload, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.loads, Iterable):
            raise WorkloadError(f"loads = {self.loads!r}", expected="a tuple of loads", fix="pass Sum((load, other))")
        object.__setattr__(self, "loads", tuple(self.loads))
        for load in self.loads:
            _must_be_load(load)

    def rates(self, t: Array) -> Array:
        return sum((load.rates(t) for load in self.loads), 0 * t)


def _must_be_load(value: Any) -> None:
    if not isinstance(value, Workload):
        raise WorkloadError(repr(value), expected="a Workload", fix="for a fixed rate pass Constant(rate)")
