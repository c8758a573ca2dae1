"""From samples over time to windows: counters are differenced, gauges averaged, instances added up.

Windows lie on a grid of `window_s`. A counter's rate in a window is the difference of its last sample in it and its
last sample in the window before, over the time between these two: nothing is extrapolated. An operator is
dropped from a window in which a counter decreased, an instance appeared or disappeared, some instance did not report,
or two series claim to be the same instance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .base import Limits, LoaderError, Problems
from .files import text
from .names import Names
from .units import BEYOND_S, OPTIONAL, Unit, Unusable, number
from .windows import Window

_MEAN = ("true_rate", "waited_s")  # over the instances; everything else adds up
_COMES_OR_GOES = "a first sample, a gap, or instances that come or go"
_SUMS = {"utilisation": "busy", "blocked": "held"}


@dataclass
class Track:
    """One instance's samples of one quantity, by window."""

    of: Unit
    last: dict[int, tuple[float, float]] = field(default_factory=dict)
    sums: dict[int, tuple[float, int]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)  # windows in which a counter decreased
    whose: dict[int, int] = field(default_factory=dict)  # the series a window's samples are of
    mixed: set[int] = field(default_factory=set)  # windows in which there are several
    newest: dict[int, tuple[float, float]] = field(default_factory=dict)  # by series


class SampleSeries:
    """The samples of all series, and the windows made of them."""

    def __init__(
        self,
        names: Names,
        window_s: float,
        problems: Problems,
        limits: Limits,
        *,
        origin_s: float = 0.0,
        rename: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ):
        if not isinstance(window_s, (int, float)) or not 0.001 <= window_s <= 1e8:
            raise LoaderError(f"window_s={window_s!r}", expected="seconds, from 0.001 up", fix="as long as 3 samples")
        self._names, self._w, self._zero = names, float(window_s), origin_s
        self._problems, self._limits = problems, limits
        self._rename, self._labels = dict(rename or {}), dict(labels or {})
        self._tracks: dict[str, dict[str, dict[str, Track]]] = {}  # operator, quantity, instance
        self._samples = self._kept = 0  # taken, and what is kept of them: one an instance, quantity and window
        self._jobs: set[str] = set()

    @property
    def operators(self) -> list[str]:
        return list(self._tracks)

    def take(
        self, metric: str, operator: str | None, labels: Mapping[str, Any], samples: Iterable[Any], *, words: bool
    ) -> None:
        """Samples (time, value) of the metric with that key in `names`; `words`: the format writes numbers as text."""
        if any(labels.get(name) != value for name, value in self._labels.items()):
            return
        quantity, of = self._names.units[metric]
        try:
            whose = text(labels.get(self._names.operator) if operator is None else operator)
            instance = text(labels.get(self._names.instance)) if self._names.instance else ""
            if self._names.job and self._names.job in labels:
                self._jobs.add(text(labels[self._names.job]))
        except Unusable:
            self._problems.count("series without the labels that say whose it is", metric)
            return
        if len(self._jobs) > 1:
            raise LoaderError(
                f"several of {self._names.job}: {', '.join(sorted(self._jobs))!s:.300}",
                expected="one",
                fix=f"choose it with labels={{{self._names.job!r}: ...}}",
            )
        whose = self._rename.get(whose, whose)
        track = self._tracks.setdefault(whose, {}).setdefault(quantity, {}).setdefault(instance, Track(of))
        self._limits.check("names", len(self._tracks))
        if track.of != of:
            self._problems.count(f"{quantity}: in two units", f"{whose!r:.80}: {metric!r:.80}")
            return
        told = frozenset(pair for pair in labels.items() if isinstance(pair[1], str))
        series = hash((metric, told))  # not the labels themselves: there may be many
        for sample in samples:
            self._samples += 1
            self._limits.check("samples", self._samples)
            try:
                self._add(track, series, sample, words)
            except Unusable as reason:
                self._problems.count(f"{quantity}: {reason}", f"{whose!r:.80}: {sample!r:.80}")

    def _add(self, track: Track, series: int, sample: Any, words: bool) -> None:
        if not isinstance(sample, (list, tuple)) or len(sample) < 2:
            raise Unusable("not a sample")
        try:
            t = number(sample[0], signed=True)
        except Unusable as reason:
            raise Unusable(f"time {reason}") from None
        if not abs(t) < BEYOND_S:
            raise Unusable("not a time")
        value = number(sample[1], text=words)
        newest = track.newest.get(series)
        if newest is not None and t <= newest[0]:
            if newest == (t, value):
                return  # the same sample again, where two answers meet
            raise Unusable("clock stepped back")
        window = math.ceil((t - self._zero) / self._w - 1e-9) - 1
        if track.whose.setdefault(window, series) != series:
            track.mixed.add(window)  # counted once, with its window
            return
        if track.of.how == "total" and newest is not None and value < newest[1]:
            track.broken.add(window)
        if window not in track.sums:
            self._kept += 1
            self._limits.check("readings", self._kept)
        total, count = track.sums.get(window, (0.0, 0))
        track.sums[window] = (total + value, count + 1)
        track.last[window] = track.newest[series] = (t, value)

    def windows(self, parallelism: Mapping[str, int]) -> Iterator[Window]:
        """Yield the windows from the first sample to the last; `parallelism` is the expected number of instances."""
        places: dict[int, list[tuple[str, str, str]]] = {}  # the instances that report in a window
        for operator, of in self._tracks.items():
            for quantity, tracks in of.items():
                for instance, track in tracks.items():
                    for index in track.last:
                        places.setdefault(index, []).append((operator, quantity, instance))
        now: dict[str, dict[str, dict[str, Track]]] = {}
        for index in sorted(places):
            earlier, now = now if index - 1 in places else {}, self._at(places[index])
            end = self._zero + (index + 1) * self._w
            made = Window(end - self._w, end, f"window that ends at {end:.3f}")
            readings: dict[str, dict[str, float]] = {}
            counts: dict[str, int] = {}
            for operator, of in now.items():
                where = f"{made.where}: {operator!r}"
                count = len(_heard(of))
                try:
                    reading, k = self._reading(of, earlier.get(operator, {}), index, where)
                    k = k or parallelism.get(operator)
                    if self._names.instance and count != (k or count):
                        raise Unusable("instances that are not heard")
                except Unusable as reason:
                    self._problems.count(str(reason), where)
                    made.absence_counted.add(operator)
                    continue
                if reading:
                    readings[operator] = reading
                    counts[operator] = k or (count if self._names.instance else 1)
            if readings:
                made.readings, made.parallelism = readings, counts
                yield made

    def _at(self, heard: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, dict[str, Track]]]:
        """Return these tracks."""
        found: dict[str, dict[str, dict[str, Track]]] = {}
        for operator, quantity, instance in heard:
            track = self._tracks[operator][quantity][instance]
            found.setdefault(operator, {}).setdefault(quantity, {})[instance] = track
        return found

    def _reading(
        self,
        of: Mapping[str, Mapping[str, Track]],
        earlier: Mapping[str, Mapping[str, Track]],
        index: int,
        where: str,
    ) -> tuple[dict[str, float], int | None]:
        """Return the reading of an operator in this window, and its instances if a metric reports them."""
        reading: dict[str, float] = {}
        k: int | None = None
        everyone = _heard(of)
        for quantity, tracks in of.items():
            try:
                if {*tracks} != everyone and quantity != "parallelism":
                    raise Unusable("instances that report only a part")
                if any(index in track.mixed for track in tracks.values()):
                    raise Unusable("several series of one instance (Names: the label instance= distinguishes them)")
                counted = any(track.of.how != "now" for track in tracks.values())
                if counted and {*tracks} != {*earlier.get(quantity, ())}:
                    raise Unusable(_COMES_OR_GOES)
                values = [_value(quantity, tracks[name], index) * tracks[name].of.factor for name in sorted(tracks)]
            except Unusable as reason:
                if quantity not in OPTIONAL:
                    raise Unusable(f"{quantity}: {reason}") from None
                self._problems.count(f"{quantity}: {reason}", f"{where}: taken as not measured")
                continue
            total = sum(values)
            if quantity == "parallelism":
                k = round(max(values))
                if not 1 <= k <= 1_000_000:
                    raise Unusable("parallelism: not a number of instances")
            elif quantity in _MEAN:
                reading[quantity] = total / len(values)
            elif quantity in _SUMS and (self._names.instance or counted):
                reading[_SUMS[quantity]] = total
            else:
                reading[quantity] = total
        return reading, k


def _heard(of: Mapping[str, Mapping[str, Track]]) -> set[str]:
    """Return the instances with any known quantity."""
    return {name for quantity, tracks in of.items() if quantity != "parallelism" for name in tracks}


def _value(quantity: str, track: Track, index: int) -> float:
    """Return the value in the track's own unit."""
    if track.of.how != "now":
        return _rate(track, index)
    if quantity in ("backlog", "parallelism"):
        return track.last[index][1]
    total, count = track.sums[index]
    return total / count


def _rate(track: Track, index: int) -> float:
    if index in track.broken:
        raise Unusable("counter was reset")
    if track.whose[index] != track.whose[index - 1]:
        raise Unusable(_COMES_OR_GOES)
    (t0, before), (t1, after) = track.last[index - 1], track.last[index]
    return (after - before) / (t1 - t0)
