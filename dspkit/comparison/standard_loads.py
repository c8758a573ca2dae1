"""Standard loads for `compare`: eight shapes and recorded traces, with the peak of the job's own load."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..apps import App
from ..core import ArgumentError, FileError
from ..core.validation import number
from ..workload import Bursts, Constant, Jump, PoissonModulated, Sine, Square, Stair, Trace, Workload

LEAST = 0.2  # least rate of a shape, as a share of the peak
EARLIER = 100_000  # least seed of earlier replays, from which policies may learn
DAYS = 2  # days of a trace that a run replays: within an hour, about fifty times as fast
QUARTER = 900.0  # s: in single minutes chance, a flight or two, would dominate
SHAPES = ("constant", "stair", "step", "sine", "square", "bursts", "poisson", "day")


@dataclass(frozen=True)
class Shape:
    """A shape scaled to `duration_s` and to `peak`, by default the peak of the job's own load."""

    shape: str
    duration_s: float = 3600.0
    peak: float | None = None

    def __call__(self, app: App, seed: int) -> Workload:
        top = peak_rate(app) if self.peak is None else self.peak
        return _MAKERS[self.shape](top, self.duration_s, seed)


@dataclass(frozen=True)
class Recorded:
    """Two days of a recorded trace within `duration_s`, by quarters of an hour, scaled to the peak.

    Each seed has its own days of the trace's second half; earlier replays use its first half.
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
    from ..workload import load

    return load(name)


def standard_loads(
    duration_s: float = 3600.0, *, peak: float | None = None, only: Any = SHAPES
) -> dict[str, Shape | Recorded]:
    """Return the standard loads by name, as functions of (app, seed).

    Constant, stair, step, sine and square are the same for every seed; bursts, poisson and day are random.

    Parameters
    ----------
    duration_s : float
        Seconds of a run, to which the loads are scaled.
    peak : float, optional
        Greatest rate in records/s, by default that of the job's own load.
    only : str or iterable of str
        Names of the loads; recorded traces (`dspkit.workload.names`) may be named, too.

    Examples
    --------
    >>> from dspkit import apps
    >>> standard_loads()["square"](apps.linear(), 0)
    Square(low_per_s=600.0, high_per_s=3000.0, period_s=1200.0, duty=0.5)
    """
    names = [only] if isinstance(only, str) or not isinstance(only, Iterable) else list(only)
    traces = _traces() if any(n not in SHAPES for n in names) else ()
    if unknown := [n for n in names if n not in (*SHAPES, *traces)]:
        known = ", ".join((*SHAPES, *traces))
        raise ArgumentError(f"load {unknown[0]!r}", expected=f"some of {known}", fix="choose among these")
    number(duration_s, "duration_s", 0, above=True)
    if peak is not None:
        number(peak, "peak", 0, above=True)
    return {n: (Recorded if n in traces else Shape)(n, float(duration_s), peak) for n in names}


def _traces() -> tuple[str, ...]:
    """Return the names of the recorded traces; empty without data files."""
    from ..workload import names

    try:
        return names()
    except FileError:
        return ()


def peak_rate(app: App) -> float:
    """Return the greatest rate of the job's own load within its first two hours."""
    import numpy as np

    return float(app.load.rates(np.arange(0.0, 7200.0, 5.0)).max())


@lru_cache(maxsize=128)
def day(top: float, duration_s: float, seed: int) -> Trace:
    """Return a day within `duration_s`: low at night, two peaks, and noise correlated over some minutes of the day."""
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
