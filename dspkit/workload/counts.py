"""Counts over time on an even grid, which can be cut, resampled, and replayed as a load at another speed and rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from numbers import Real
from typing import Any

import numpy as np

from ..core import WorkloadError
from ..core.typing import Array
from ..core.validation import number
from .shapes import Trace

Moment = str | float | datetime
MOST_STEPS = 20_000_000  # eight months of seconds; more indicates a wrong unit of time


@dataclass(frozen=True, eq=False)
class Counts:
    """Number of records in each of a sequence of equal time steps.

    Parameters
    ----------
    counts : sequence of float
        Records per step.
    every_s : float
        Length of a step in seconds.
    began_s : float
        Start of the first step, in seconds since 1970 (UTC).
    name : str
        Name of the recording.
    about : str
        Source and licence.

    Examples
    --------
    >>> trace = Counts((6, 12, 0), every_s=60)
    >>> trace.workload(compress=60).rates_per_s, trace.workload(compress=60, peak_per_s=1).rates_per_s
    ((6.0, 12.0, 0.0), (0.5, 1.0, 0.0))
    """

    counts: Array | Sequence[float]
    every_s: float
    began_s: float = 0.0
    name: str = ""
    about: str = ""

    def __post_init__(self) -> None:
        _must_be_above_zero("every_s", self.every_s)
        try:
            counts = np.array(self.counts, dtype=float)
        except (TypeError, ValueError) as error:
            raise WorkloadError(f"counts: {error}", expected="a row of numbers", fix="correct the table") from None
        if counts.ndim != 1 or not len(counts):
            raise WorkloadError(f"counts of shape {counts.shape}", expected="a row of numbers", fix="correct the table")
        if (bad := np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))).size:
            at = int(bad[0])
            raise WorkloadError(f"count {counts[at]:g} in step {at}", expected="numbers >= 0", fix="correct or drop it")
        number(self.began_s, "began_s", error=WorkloadError, fix="pass seconds since 1970, or leave it out")
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @property
    def _counts(self) -> Array:
        assert isinstance(self.counts, np.ndarray)
        return self.counts

    @property
    def duration_s(self) -> float:
        """Seconds from the beginning of the first step to the end of the last."""
        return len(self.counts) * self.every_s

    @property
    def total(self) -> float:
        """Number of records in all steps."""
        return float(self._counts.sum())

    def between(self, begin: Moment | None = None, end: Moment | None = None) -> Counts:
        """Return the whole steps from `begin` up to `end`.

        Parameters
        ----------
        begin, end : str, datetime or float, optional
            ISO dates (UTC unless they name a zone), or seconds from the first step; by default the recording's own
            ends.

        Examples
        --------
        >>> len(Counts((6, 12, 0), every_s=60).between(60))
        2
        """
        first = 0.0 if begin is None else self._at(begin)
        last = self.duration_s if end is None else self._at(end)
        i, j = math.ceil(first / self.every_s - 1e-9), math.floor(last / self.every_s + 1e-9)
        if first < 0 or not i < j <= len(self.counts):
            raise WorkloadError(
                f"from {begin!r} to {end!r}", expected=f"at least one step within {self.span}", fix="choose other ends"
            )
        return replace(self, counts=self._counts[i:j], began_s=self.began_s + i * self.every_s)

    def resampled(self, every_s: float) -> Counts:
        """Return the same records in longer or shorter steps, evenly spread within each step.

        A remainder that does not fill a last step is left out.

        Parameters
        ----------
        every_s : float
            Length of the new steps.

        Examples
        --------
        >>> Counts((6, 12, 0), every_s=60).resampled(30).counts.tolist()
        [3.0, 3.0, 6.0, 6.0, 0.0, 0.0]
        """
        _must_be_above_zero("every_s", every_s)
        steps = math.floor(self.duration_s / every_s + 1e-9)
        if not 1 <= steps <= MOST_STEPS:
            raise WorkloadError(
                f"every_s={every_s:g}, {steps} steps", expected=f"1 to {MOST_STEPS:,}", fix=f"of {self.duration_s:g} s"
            )
        edges = np.arange(steps + 1) * every_s
        so_far = np.concatenate(([0.0], np.cumsum(self._counts)))
        return replace(
            self,
            counts=_within(np.diff(np.interp(edges / self.every_s, np.arange(len(so_far)), so_far))),
            every_s=float(every_s),
        )

    def workload(
        self,
        *,
        compress: float = 1.0,
        mean_per_s: float | None = None,
        peak_per_s: float | None = None,
        peak_over_s: float | None = None,
    ) -> Trace:
        """Return a load that replays the recording from t = 0 on; its last rate holds for ever.

        Recorded rates are multiplied by `compress`, unless `mean_per_s` or `peak_per_s` sets them.

        Parameters
        ----------
        compress : float
            Speed of the replay.
        mean_per_s, peak_per_s : float, optional
            Mean or peak of the replayed rate; at most one of them.
        peak_over_s : float, optional
            Seconds of the replay over which the peak is a mean; by default one step.

        Examples
        --------
        >>> Counts((6, 12, 0), every_s=60).workload(compress=60, peak_per_s=1).rates_per_s
        (0.5, 1.0, 0.0)
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
        """Start and end as text."""
        return f"{_iso(self.began_s)} to {_iso(self.began_s + self.duration_s)}"

    def _at(self, moment: Moment) -> float:
        """Return a moment in seconds from the first step."""
        if not isinstance(moment, str | Real | datetime) or isinstance(moment, bool):
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
        shown = f"{self.total:,.0f} records in {len(self):,} steps of {self.every_s:g} s, {self.span}"
        return f"<{self.name or 'counts'}: {shown}{'; ' if self.about else ''}{self.about}>"


def _peak(rates: Array, every_s: float, over_s: float | None) -> float:
    if over_s is not None:
        _must_be_above_zero("peak_over_s", over_s)
    width = 1 if over_s is None else min(len(rates), max(1, round(over_s / every_s)))
    so_far = np.concatenate(([0.0], np.cumsum(rates)))
    return float((so_far[width:] - so_far[:-width]).max() / width)


def _within(counts: Array) -> Array:
    """Return counts without the negative rounding errors of differences of a sum."""
    return np.maximum(0.0, counts)


def _iso(t: float) -> str:
    try:
        return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").replace(":00Z", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{t:g} s"


def _must_be_above_zero(name: str, value: Any) -> None:
    number(value, name, 0, above=True, error=WorkloadError, fix="as in 60")
