"""The loads of ELYSIUM's evaluation: the paper's shapes, between levels of our own, as the paper prints none.

Recorded flights replace the paper's tweets, and are replayed like these, sixty times as fast. The rule was fixed before
the first run: two days from the first Monday of a month, New York's time; March, April and May as in the paper;
recorded minutes; the greatest mean over a minute of the replay is the level that needs four nodes. Flights are fewer
than tweets, so that their minutes are noisy: `laid_over` has as many as the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from dspkit import workload
from dspkit.core import WorkloadError
from dspkit.workload import Counts, Sine, Square, Trace, Workload

MINUTES = {"stair": 30, "step": 12, "square": 25, "sine": 25, "recorded": 48, "dense": 48}
MONTHS = (3, 4, 5)  # of the paper's tweets; by seed
# Loads that need one, two, three and four nodes (`levels_need` computes that).
WEEK_MINUTES = 7 * 24 * 60.0
LEAST = 5.0  # records/s, almost no load
LEVELS = {"T1": (100.0, 240.0, 360.0, 480.0), "T2": (100.0, 200.0, 300.0, 400.0)}


def load(name: str, shape: str, seed: int = 0, *, before: int = 0) -> Workload:
    """Return one of the paper's shapes between our levels; `seed` selects the month of the recorded one.

    "recorded" are the recorded flights, "dense" as many as the paper's tweets; `before` as in `recorded`.
    """
    low, mid, high, top = LEVELS[name]
    if shape == "stair":  # six steps of five minutes, up or down by one to three levels
        return Trace(tuple(300.0 * i for i in range(6)), (LEAST, high, top, high, mid, LEAST))
    if shape == "step":  # up after two minutes, down after six
        return Trace((0.0, 120.0, 360.0), (low, high, low))
    if shape == "square":
        return Square(low, high, 360.0)
    if shape == "sine":  # three waves
        return Sine((LEAST + top) / 2, (top - LEAST) / 2, 500.0, phase_s=125.0)
    if shape == "dense":
        return laid_over(top, before=before)
    return recorded(top, MONTHS[seed % len(MONTHS)], before=before)


@lru_cache(maxsize=1)
def flights() -> Counts:
    return workload.load("flights_2013")


def monday(month: int) -> datetime:
    """Return the first Monday of a month of 2013, at New York's midnight."""
    first = datetime(2013, month, 1, tzinfo=ZoneInfo("America/New_York"))
    return first + timedelta(days=(7 - first.weekday()) % 7)


def recorded(
    top: float, month: int, *, compress: float = 60.0, minutes: float = MINUTES["recorded"], before: int = 0
) -> Trace:
    """Return flights from the first Monday on, for `minutes` of a replay whose greatest minute has `top` records/s.

    With `before`, the stretch of time that came that many times as long before, at the same scale.
    """
    return _replayed([monday(month).astimezone(UTC)], top, compress, minutes, before)


def laid_over(
    top: float, weekday: int = 0, *, compress: float = 60.0, minutes: float = MINUTES["dense"], before: int = 0
) -> Trace:
    """Return the sum of the same two days of 49 weeks, from `weekday` (0: Monday) on; otherwise as `recorded`.

    Flights are 38 an hour. The settings of the authors' prototype hold ten hours of tweets of 2014, 274 to 3,785 an
    hour, and ten minutes, 75 to 96 a minute. 49 weeks of flights are about 1,900 an hour.
    Days before that are played too, a week earlier, are refused: a predictor would learn what it is to foretell.
    """
    if (1 + before) * minutes * compress > WEEK_MINUTES:
        raise WorkloadError(
            f"{before} stretches before each week's", expected="none that is played", fix="learn from fewer"
        )
    first = monday(1) + timedelta(weeks=2, days=weekday)
    return _replayed([(first + timedelta(weeks=w)).astimezone(UTC) for w in range(49)], top, compress, minutes, before)


def _replayed(begins: Sequence[datetime], top: float, compress: float, minutes: float, before: int) -> Trace:
    """Return the sum of the flights from each of these moments on, or before it."""
    length = timedelta(minutes=minutes * compress)
    now = _summed([(begin, begin + length) for begin in begins])
    wave = now.workload(compress=compress, peak_per_s=top, peak_over_s=60.0)
    if not before:
        return wave
    scale = sum(wave.rates_per_s) * wave.times_s[1] / now.total  # records per flight
    past = _summed([(begin - before * length, begin) for begin in begins]).workload(compress=compress)
    return Trace(past.times_s, tuple(scale * rate for rate in past.rates_per_s))


def _summed(stretches: Sequence[tuple[datetime, datetime]]) -> Counts:
    import numpy as np

    each = [flights().between(begin, end) for begin, end in stretches]
    return replace(each[0], counts=np.sum([np.asarray(some.counts) for some in each], axis=0))


def bursty(
    low: float, top: float, seed: int = 0, days: int = 2, *, bursts: int = 5, hold_s: float = 0.0, fade_s: float = 150.0
) -> Trace:
    """Return a load shaped like tweets, replayed sixty times as fast: days of 24 minutes, noise, and daily `bursts`.

    A burst stays for `hold_s`, then fades.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    t = np.arange(0.0, days * 1440.0, 5.0)
    day = 0.5 - 0.4 * np.cos(2 * np.pi * (t - 240) / 1440) + 0.1 * np.sin(4 * np.pi * t / 1440)
    noise, drift = random.normal(0, 0.05, len(t)), np.zeros(len(t))
    for i in range(1, len(t)):
        drift[i] = 0.9 * drift[i - 1] + noise[i]
    burst = np.zeros(len(t))
    for at in random.uniform(0, t[-1], bursts * days):
        burst += np.where(t >= at, 0.8 * np.exp(-np.maximum(t - at - hold_s, 0) / fade_s), 0)
    rates = low + (top - low) * np.clip(day / 2 + drift / 2 + burst, 0, 1)
    return Trace(tuple(t.tolist()), tuple(rates.tolist()))


def earlier(name: str, shape: str, seed: int = 0) -> tuple[float, ...]:
    """Return the mean loads of the minutes of four earlier replays; of the recorded load those of the days before.

    Of weeks laid over one another only two, Thursday to Sunday: the Monday before is played itself.
    """
    import numpy as np

    length, replays = 60.0 * MINUTES[shape], 2 if shape == "dense" else 4
    if shape in ("recorded", "dense"):
        past = load(name, shape, seed, before=replays)
        t = np.arange(0.0, replays * length) + 0.5
    else:
        past, t = load(name, shape, seed), np.tile(np.arange(0.0, length) + 0.5, replays)
    return tuple(past.rates(t).reshape(-1, 60).mean(axis=1).tolist())


def other_days(name: str, shape: str, seed: int = 0) -> tuple[float, ...]:
    """Return the mean loads of the minutes of earlier days that differ from the judged one.

    Recorded loads have other days, those of `earlier`. Of the synthetic shapes, four replays come before: each between
    levels 0.8 to 1.2 times as high, up to a minute later, with a noise of 5 % from minute to minute. The rule was fixed
    before the first run; the paper does not say what its net had seen.
    """
    import numpy as np

    if shape in ("recorded", "dense"):
        return earlier(name, shape, seed)
    random = np.random.default_rng(seed)
    t = np.arange(0.0, 60.0 * MINUTES[shape]) + 0.5
    minutes: list[float] = []
    for _ in range(4):
        late, height = random.uniform(0.0, 60.0), random.uniform(0.8, 1.2)
        rates = load(name, shape, seed).rates(np.maximum(t - late, 0.0)).reshape(-1, 60).mean(axis=1)
        minutes += (height * rates * np.maximum(random.normal(1.0, 0.05, len(rates)), 0.0)).tolist()
    return tuple(minutes)
