"""Eight shapes of load and the recorded ones, as high as a job's own: functions of (app, seed) for `compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import FileError, KnobError
from ..topologies import App
from ..workload import Bursts, Constant, Jump, PoissonModulated, Sine, Square, Stair, Trace, Workload

LEAST = 0.2  # of the peak, where a shape is lowest
EARLIER = 100_000  # seeds from here on are those of earlier replays, which policies may learn from
DAYS = 2  # of a trace that a run replays: in an hour some fifty times as fast
QUARTER = 900.0  # s: by single minutes chance alone, a flight or two, would be many times the mean
SHAPES = ("constant", "stair", "step", "sine", "square", "bursts", "poisson", "day")


@dataclass(frozen=True)
class Shape:
    """A shape stretched over `duration_s` and, in height, to `peak`; without one, to the peak of the job's own load."""

    shape: str
    duration_s: float = 3600.0
    peak: float | None = None

    def __call__(self, app: App, seed: int) -> Workload:
        top = peak_rate(app) if self.peak is None else self.peak
        return _MAKERS[self.shape](top, self.duration_s, seed)


@dataclass(frozen=True)
class Recorded:
    """Two days of a trace of `data/` in `duration_s`, by quarters of an hour, the greatest of which is the peak.

    Each seed has days of its own, of the trace's second half; earlier replays are of its first half.
    """

    trace: str
    duration_s: float = 3600.0
    peak: float | None = None

    def __call__(self, app: App, seed: int) -> Workload:
        return _recorded(self.trace, self.duration_s, peak_rate(app) if self.peak is None else self.peak, seed)


@lru_cache(maxsize=128)
def _recorded(name: str, duration_s: float, top: float, seed: int) -> Workload:
    counts = _trace(name)
    length = min(DAYS * 86_400.0, counts.duration_s)
    stretches = int(counts.duration_s // length)
    first = stretches // 2
    at = seed % max(1, first) if seed >= EARLIER else first + seed % (stretches - first)
    days = counts.between(length * at, length * (at + 1))
    days = days.resampled(QUARTER) if days.every_s < QUARTER <= days.duration_s else days
    made: Workload = days.workload(compress=length / duration_s, peak_per_s=top)
    return made


@lru_cache(maxsize=4)
def _trace(name: str) -> Any:
    from ..data import load

    return load(name)


def standard_loads(
    duration_s: float = 3600.0, *, peak: float | None = None, only: Any = SHAPES
) -> dict[str, Shape | Recorded]:
    """The shapes by name: constant, stair, step, sine, square; and, other for each seed, bursts, poisson and day.

    `only` may also name traces of `data/`, see `dspkit.data.names`: `only=["sine", "flights_2013"]`.

    >>> from dspkit import topologies
    >>> standard_loads()["square"](topologies.linear(), 0)
    Square(low_per_s=600.0, high_per_s=3000.0, period_s=1200.0, duty=0.5)
    """
    names = [only] if isinstance(only, str) or not isinstance(only, Iterable) else list(only)
    traces = _traces() if any(n not in SHAPES for n in names) else ()
    if unknown := [n for n in names if n not in (*SHAPES, *traces)]:
        known = ", ".join((*SHAPES, *traces))
        raise KnobError(f"load {unknown[0]!r}", expected=f"some of {known}", fix="correct the name")
    numbers = (duration_s,) if peak is None else (duration_s, peak)
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) and 0 < x < float("inf") for x in numbers):
        raise KnobError(f"duration_s={duration_s!r}, peak={peak!r}", expected="numbers above 0", fix="as in 3600, 500")
    return {n: (Recorded if n in traces else Shape)(n, float(duration_s), peak) for n in names}


def _traces() -> tuple[str, ...]:
    """Of the checkout; a wheel has none."""
    from ..data import names

    try:
        return names()
    except FileError:
        return ()


def peak_rate(app: App) -> float:
    """The greatest rate of the job's own load within its first hours."""
    import numpy as np

    return float(app.load.rates(np.arange(0.0, 7200.0, 5.0)).max())


@lru_cache(maxsize=128)
def day(top: float, duration_s: float, seed: int) -> Trace:
    """A day in `duration_s`: low at night, two humps, and noise that lasts for some minutes of that day."""
    import numpy as np

    steps = 480
    t, random = np.arange(steps) / steps, np.random.default_rng(seed)
    noise, drift = random.normal(0.0, 0.03, steps), np.zeros(steps)
    for i in range(1, steps):
        drift[i] = 0.95 * drift[i - 1] + noise[i]
    shape = 0.5 - 0.4 * np.cos(2 * np.pi * (t - 0.15)) - 0.1 * np.cos(4 * np.pi * (t - 0.05))
    rates = top * np.clip(LEAST + (1 - LEAST) * (0.9 * shape + drift), 0.02, 1.0)
    return Trace(tuple((duration_s * t).tolist()), tuple(rates.tolist()))


_MAKERS: dict[str, Callable[[float, float, int], Workload]] = {
    "constant": lambda top, s, seed: Constant(0.6 * top),
    "stair": lambda top, s, seed: Stair(LEAST * top, (1 - LEAST) / 4 * top, s / 5, 4),
    "step": lambda top, s, seed: Jump(2 * LEAST * top, top, s / 3),
    "sine": lambda top, s, seed: Sine((1 + LEAST) / 2 * top, (1 - LEAST) / 2 * top, s / 3),
    "square": lambda top, s, seed: Square(LEAST * top, top, s / 3),
    "bursts": lambda top, s, seed: Bursts(2 * LEAST * top, top, s / 6, s / 24, seed),
    "poisson": lambda top, s, seed: PoissonModulated(2 * LEAST * top, top, s / 12, s / 24, seed),
    "day": day,
}
