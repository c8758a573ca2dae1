"""Eight shapes of load, as high as a job's own: functions of (app, seed) for `compare`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..errors import KnobError
from ..topologies import App
from ..workload import Bursts, Constant, Jump, PoissonModulated, Sine, Square, Stair, Trace, Workload

LEAST = 0.2  # of the peak, where a shape is lowest
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


def standard_loads(duration_s: float = 3600.0, *, peak: float | None = None, only: Any = SHAPES) -> dict[str, Shape]:
    """The shapes by name: constant, stair, step, sine, square; and, other for each seed, bursts, poisson and day.

    >>> from dspkit import topologies
    >>> standard_loads()["square"](topologies.linear(), 0)
    Square(low_per_s=600.0, high_per_s=3000.0, period_s=1200.0, duty=0.5)
    """
    names = [only] if isinstance(only, str) else list(only)
    if unknown := [n for n in names if n not in SHAPES]:
        raise KnobError(f"load {unknown[0]!r}", expected=f"some of {', '.join(SHAPES)}", fix="correct the name")
    numbers = (duration_s,) if peak is None else (duration_s, peak)
    if not all(isinstance(x, (int, float)) and 0 < x < float("inf") for x in numbers):
        raise KnobError(f"duration_s={duration_s!r}, peak={peak!r}", expected="numbers above 0", fix="as in 3600, 500")
    return {name: Shape(name, float(duration_s), peak) for name in names}


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
