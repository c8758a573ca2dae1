"""Input rate over time: a Workload is a pure function from seconds since the start to records/s.

Random shapes take a seed and are still pure functions of time, so that two runs see the same load whatever their
windows are. `load * 2` scales one, `load + other` adds two, `load + 5` adds 5 records/s, `sum(loads)` adds them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import WorkloadError
from .knobs import Knobs, call, knob

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def _rate(default: float, help: str) -> Any:
    return knob(default, help, low=0.0, high=math.inf, unit="records/s")


def _time(default: float, help: str, low: float = 1e-3) -> Any:
    return knob(default, help, low=low, high=math.inf, unit="s")


class Workload(Knobs):
    """Base of all loads; a subclass gives `rates` for an array of times."""

    def rates(self, t: Array) -> Array:
        raise NotImplementedError(f"{type(self).__name__} must give rates(t)")

    def rate(self, t: float) -> float:
        """Records/s at `t` seconds."""
        import numpy as np

        return float(self.rates(np.array([t], dtype=float))[0])

    def __mul__(self, factor: float) -> Workload:
        return Scaled(self, factor)

    __rmul__ = __mul__

    def __add__(self, other: Workload | float) -> Workload:
        """Both on top of each other; a number is a Constant, and 0, from which sum() starts, nothing at all."""
        if isinstance(other, Real):
            return Sum((self, Constant(float(other)))) if other else self
        return Sum((self, other)) if isinstance(other, Workload) else NotImplemented

    __radd__ = __add__


@dataclass(frozen=True)
class Constant(Workload):
    """The same rate for ever."""

    rate_per_s: float = _rate(1000.0, "the rate")

    def rates(self, t: Array) -> Array:
        return 0 * t + self.rate_per_s


@dataclass(frozen=True)
class Jump(Workload):
    """A step function: one rate until `at_s`, another from then on."""

    before_per_s: float = _rate(500.0, "rate before the step")
    after_per_s: float = _rate(1000.0, "rate after the step")
    at_s: float = _time(300.0, "when the rate steps", low=0.0)

    def rates(self, t: Array) -> Array:
        import numpy as np

        return np.where(t < self.at_s, self.before_per_s, self.after_per_s)


@dataclass(frozen=True)
class Stair(Workload):
    """Equal steps, up or down, then level. The default is the staircase of AuTraScale's case study.

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
    """A wave about its mean: $m + a\\sin(2\\pi t/p)$, never below zero."""

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
    """High and low in turn; each period begins high."""

    low_per_s: float = _rate(500.0, "rate in the low part")
    high_per_s: float = _rate(1000.0, "rate in the high part")
    period_s: float = _time(600.0, "length of high and low together")
    duty: float = knob(0.5, "share of the period that is high", low=0.0, high=1.0)

    def rates(self, t: Array) -> Array:
        import numpy as np

        return np.where(t % self.period_s < self.duty * self.period_s, self.high_per_s, self.low_per_s)


@dataclass(frozen=True)
class Bursts(Workload):
    """One burst in each period, at a random moment that fits into it."""

    base_per_s: float = _rate(500.0, "rate between bursts")
    peak_per_s: float = _rate(2000.0, "rate in a burst")
    every_s: float = _time(600.0, "length of a period")
    length_s: float = _time(60.0, "length of a burst", low=0.0)
    seed: int = knob(0, "which random moments", low=0, high=2**32 - 1)

    def rates(self, t: Array) -> Array:
        import numpy as np

        period = np.floor(t / self.every_s).astype(int)
        slack = max(0.0, self.every_s - self.length_s)
        first = {k: np.random.default_rng([self.seed, k]).uniform(0, slack) for k in np.unique(period).tolist()}
        since = t - period * self.every_s - np.array([first[k] for k in period.tolist()])
        return np.where((since >= 0) & (since < self.length_s), self.peak_per_s, self.base_per_s)


@dataclass(frozen=True)
class PoissonModulated(Workload):
    """The rate of a Markov-modulated Poisson process: two levels, each kept for an exponentially long time."""

    low_per_s: float = _rate(500.0, "rate in the quiet state")
    high_per_s: float = _rate(1500.0, "rate in the busy state")
    stay_low_s: float = _time(300.0, "mean stay in the quiet state")
    stay_high_s: float = _time(100.0, "mean stay in the busy state")
    seed: int = knob(0, "which random stays", low=0, high=2**32 - 1)

    def rates(self, t: Array) -> Array:
        import numpy as np

        count, end = 64, -1.0
        while end <= (t.max() if t.size else 0):  # twice as many stays keep the first half: prefixes agree
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
    """A recorded load: each rate holds from its time to the next; before the first and after the last they hold on."""

    times_s: Sequence[float] = (0.0,)
    rates_per_s: Sequence[float] = (0.0,)

    def __post_init__(self) -> None:
        times, values = _numbers(self.times_s, "times_s"), _numbers(self.rates_per_s, "rates_per_s")
        object.__setattr__(self, "times_s", times)
        object.__setattr__(self, "rates_per_s", values)
        if not times or len(times) != len(values):
            raise WorkloadError(
                f"{len(times)} times and {len(values)} rates", expected="as many, at least one", fix="mend the table"
            )
        for row, (t, rate) in enumerate(zip(times, values, strict=True)):
            if not (math.isfinite(t) and math.isfinite(rate) and rate >= 0):
                raise WorkloadError(
                    f"row {row}: t={t}, rate={rate}", expected="finite numbers, rate >= 0", fix="mend or drop the row"
                )
            if row and t <= times[row - 1]:
                raise WorkloadError(
                    f"row {row}: t={t} after t={times[row - 1]}", expected="times that rise", fix="sort the rows"
                )

    @classmethod
    def load(cls, path: str | Path, *, time: str = "t", rate: str = "rate") -> Trace:
        """Read columns `time` (s) and `rate` (records/s) of a .csv or .parquet file; `data.read` is for counts."""
        import pandas as pd

        path = Path(path)
        readers: dict[str, Any] = {
            ".csv": partial(pd.read_csv, float_precision="round_trip"),
            ".parquet": pd.read_parquet,
        }
        if path.suffix not in readers:
            raise WorkloadError(f"file {path.name!r}", expected=" or ".join(readers), fix="convert it first")
        try:
            table: pd.DataFrame = readers[path.suffix](path)
        except (OSError, ValueError) as error:
            raise WorkloadError(f"{path}: {error}", expected="a readable table", fix="check the file") from error
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
        """Both columns as arrays: a recorded year has half a million rows."""
        import numpy as np

        return np.asarray(self.times_s), np.asarray(self.rates_per_s)

    def __repr__(self) -> str:
        return call(self)


def _numbers(values: Any, name: str) -> tuple[float, ...]:
    try:
        return tuple(float(x) for x in values)
    except (TypeError, ValueError, OverflowError) as error:
        raise WorkloadError(f"{name}: {error}", expected="a sequence of numbers", fix="mend the table") from None


@dataclass(frozen=True)
class Scaled(Workload):
    """A load times a factor."""

    load: Workload
    factor: float = knob(1.0, "how many times the load", low=0.0, high=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        _must_be_load(self.load)

    def rates(self, t: Array) -> Array:
        return self.factor * self.load.rates(t)


@dataclass(frozen=True)
class Sum(Workload):
    """Several loads on top of each other."""

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
