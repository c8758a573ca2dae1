"""Counts over time, on an even grid: cut, resampled, and turned into a load that plays faster and higher or lower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np

from ..errors import WorkloadError
from ..workload import Trace

Array = np.ndarray[Any, np.dtype[Any]]
Moment = str | float | datetime
MOST_STEPS = 20_000_000  # eight months of seconds: more is surely a wrong unit of time


@dataclass(frozen=True, eq=False)
class Counts:
    """How many records came in each `every_s` seconds from `began_s` (seconds since 1970, UTC) on.

    >>> trace = Counts((6, 12, 0), every_s=60)
    >>> trace.workload(compress=60).rates_per_s, trace.workload(compress=60, peak_per_s=1).rates_per_s
    ((6.0, 12.0, 0.0), (0.5, 1.0, 0.0))
    """

    counts: Array | Sequence[float]
    every_s: float
    began_s: float = 0.0
    name: str = ""
    about: str = ""  # source and licence

    def __post_init__(self) -> None:
        _must_be_above_zero("every_s", self.every_s)
        try:
            counts = np.array(self.counts, dtype=float)
        except (TypeError, ValueError) as error:
            raise WorkloadError(f"counts: {error}", expected="a row of numbers", fix="mend the table") from None
        if counts.ndim != 1 or not len(counts):
            raise WorkloadError(f"counts of shape {counts.shape}", expected="a row of numbers", fix="mend the table")
        if (bad := np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))).size:
            at = int(bad[0])
            raise WorkloadError(f"count {counts[at]:g} in step {at}", expected="numbers >= 0", fix="mend or drop it")
        if isinstance(self.began_s, bool) or not isinstance(self.began_s, Real) or not math.isfinite(self.began_s):
            raise WorkloadError(f"began_s={self.began_s!r}", expected="seconds since 1970", fix="leave it out")
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @property
    def _counts(self) -> Array:
        assert isinstance(self.counts, np.ndarray)
        return self.counts

    @property
    def duration_s(self) -> float:
        """From the beginning of the first step to the end of the last."""
        return len(self.counts) * self.every_s

    @property
    def total(self) -> float:
        return float(self._counts.sum())

    def between(self, begin: Moment | None = None, end: Moment | None = None) -> Counts:
        """The whole steps from `begin` up to `end`: ISO dates (UTC unless they say), or seconds from the first step."""
        first = 0.0 if begin is None else self._at(begin)
        last = self.duration_s if end is None else self._at(end)
        i, j = math.ceil(first / self.every_s - 1e-9), math.floor(last / self.every_s + 1e-9)
        if first < 0 or not i < j <= len(self.counts):
            raise WorkloadError(
                f"from {begin!r} to {end!r}", expected=f"at least one step within {self.span}", fix="choose other ends"
            )
        return replace(self, counts=self._counts[i:j], began_s=self.began_s + i * self.every_s)

    def resampled(self, every_s: float) -> Counts:
        """The same records in longer or shorter steps; within a step they are taken to come evenly.

        What does not fill a last step is left out.
        """
        _must_be_above_zero("every_s", every_s)
        steps = math.floor(self.duration_s / every_s + 1e-9)
        if not 1 <= steps <= MOST_STEPS:
            raise WorkloadError(
                f"every_s={every_s:g}, {steps} steps", expected=f"1 to {MOST_STEPS:,}", fix=f"of {self.duration_s:g} s"
            )
        edges = np.arange(steps + 1) * every_s
        come = np.concatenate(([0.0], np.cumsum(self._counts)))
        return replace(self, counts=_within(np.diff(np.interp(edges / self.every_s, np.arange(len(come)), come))),
                       every_s=float(every_s))  # fmt: skip

    def workload(
        self,
        *,
        compress: float = 1.0,
        mean_per_s: float | None = None,
        peak_per_s: float | None = None,
        peak_over_s: float | None = None,
    ) -> Trace:
        """A load that plays it `compress` times as fast, from t = 0 on; the last rate stays.

        As recorded, rates are then `compress` times as high. `mean_per_s` or `peak_per_s` sets them instead; the peak
        is the greatest mean over `peak_over_s` seconds of the replay, or over one step.
        """
        _must_be_above_zero("compress", compress)
        every_s = self.every_s / compress
        rates = self._counts / every_s
        if mean_per_s is not None and peak_per_s is not None:
            raise WorkloadError(
                f"mean_per_s={mean_per_s} and peak_per_s={peak_per_s}", expected="one of them", fix="leave one out"
            )
        for name, wanted in (("mean_per_s", mean_per_s), ("peak_per_s", peak_per_s)):
            if wanted is not None:
                _must_be_above_zero(name, wanted)
                now = rates.mean() if name == "mean_per_s" else _peak(rates, every_s, peak_over_s)
                if now <= 0:
                    raise WorkloadError(f"{self!r}, without a record", expected="some", fix="choose another stretch")
                rates = rates / now * wanted
        return Trace(tuple((np.arange(len(rates)) * every_s).tolist()), tuple(rates.tolist()))

    @property
    def span(self) -> str:
        """From when to when, in words."""
        return f"{_iso(self.began_s)} to {_iso(self.began_s + self.duration_s)}"

    def _at(self, moment: Moment) -> float:
        """Seconds from the first step."""
        if isinstance(moment, bool) or not isinstance(moment, str | Real | datetime):
            raise WorkloadError(f"{moment!r}", expected="a date or seconds", fix="as in '2013-03-04T00:00'")
        if isinstance(moment, Real):
            return float(moment) if math.isfinite(moment) else -1.0
        try:
            when = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        except ValueError as error:
            raise WorkloadError(str(error), expected="an ISO date", fix="as in '2013-03-04T00:00'") from None
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - self.began_s

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        told = f"{self.total:,.0f} records in {len(self):,} steps of {self.every_s:g} s, {self.span}"
        return f"<{self.name or 'counts'}: {told}{'; ' if self.about else ''}{self.about}>"


def _peak(rates: Array, every_s: float, over_s: float | None) -> float:
    if over_s is not None:
        _must_be_above_zero("peak_over_s", over_s)
    width = 1 if over_s is None else min(len(rates), max(1, round(over_s / every_s)))
    come = np.concatenate(([0.0], np.cumsum(rates)))
    return float((come[width:] - come[:-width]).max() / width)


def _within(counts: Array) -> Array:
    """Differences of a sum may fall below zero by a rounding."""
    return np.maximum(0.0, counts)


def _iso(t: float) -> str:
    try:
        return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").replace(":00Z", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{t:g} s"


def _must_be_above_zero(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise WorkloadError(f"{name}={value!r}", expected="a number above 0", fix="as in 60")
