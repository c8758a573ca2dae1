r"""The end of a search with a stated error: what it keeps is confirmed by runs that did not choose it.

A search picks the cheapest configuration that seems to meet the target, and so one that was lucky: its own
measurements say too much. It is run again. The runs give $z=\ln l/l_t$; with mean $\bar z$ and standard deviation s of
n of them the latency is confirmed if $\bar z+t_{n-1,1-\delta}\,s/\sqrt n\le0$ with Student's quantile t. The error
$\epsilon$ is divided among all tests, so that the probability that anything is confirmed which misses the target is at
most $\epsilon$ (Bonferroni, for independent normal z): the j-th candidate has $6\epsilon/\pi^2j^2$, half of it where
the rate is tested as well, and each of its looks, after 2, 3, 4, 6, 9 and 13 runs, a sixth of that.

Shares of the rate that runs serve are not normal: most are 1, and a configuration that is too small serves all in
some runs and much less in others. What is confirmed of the rate is therefore that a run serves it at least as often as
not, by a sign test, which assumes independent runs and nothing else: if less than half of all runs served it, so many
of n would with a probability below $P(\mathrm{Bin}(n,\tfrac12)\ge\text{served})$. Its looks are after 9 and 13 runs,
with half of the rate's error each; with an error of 5 % the first candidate needs 9 of 9, or 12 of 13.

A candidate whose mean latency lies beyond the target by as much as chance explains in one of five cases is given up, as
is one that can no longer be confirmed, or is still open at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .space import Config

LOOKS, RATE_LOOKS = (2, 3, 4, 6, 9, 13), (9, 13)
_GIVE_UP = 0.8


@dataclass(frozen=True)
class Confirmation:
    """The test of one candidate.

    Parameters
    ----------
    k : tuple of int
        The configuration.
    error : float
        The error of the whole search.
    number : int
        1 for the first candidate, 2 for the second.
    late : tuple of float
        $\\ln l/l_t$ of its further runs.
    short : tuple of float
        Logarithm of the share of the rate that must be served over the one that was, of those runs: at most 0 if the
        run served it; empty if unknown.

    Examples
    --------
    >>> test = Confirmation((3, 4), error=0.05)
    >>> [test.told(-0.10).verdict, test.told(-0.10).told(-0.11).told(-0.10).verdict]
    [None, True]
    """

    k: Config
    error: float
    number: int = 1
    late: tuple[float, ...] = ()
    short: tuple[float, ...] = ()

    def told(self, late: float, short: float | None = None) -> Confirmation:
        """Return the test with one more run.

        Parameters
        ----------
        late, short : float
            As in the fields of these names; None if unknown.
        """
        more = self.short if short is None else (*self.short, short)
        return Confirmation(self.k, self.error, self.number, (*self.late, late), more)

    @property
    def verdict(self) -> bool | None:
        """True if it is confirmed, False if it is given up; None if it must run again."""
        n, served = len(self.late), [value <= 0 for value in self.short]
        error = 6 * self.error / (math.pi * self.number) ** 2 / (2 if served else 1)
        if n in LOOKS and self._in_time(error) and (not served or _often(served, error)):
            return True
        hopeless = n in LOOKS and below_zero([-v for v in self.late], 1 - _GIVE_UP)
        left = LOOKS[-1] - n
        lost = bool(served) and not _often([*served, *[True] * left], error)
        return False if hopeless or lost or left <= 0 else None

    def _in_time(self, error: float) -> bool:
        """Return whether the latency was confirmed at this look or an earlier one."""
        return any(below_zero(self.late[:look], error / len(LOOKS)) for look in LOOKS if look <= len(self.late))


def _often(served: Sequence[bool], error: float) -> bool:
    """Return whether so many runs served the rate, at one of the looks, that more than half of all do."""
    from scipy.special import bdtrc

    each = error / len(RATE_LOOKS)
    return any(
        bdtrc(sum(served[:look]) - 1, look, 0.5) <= each if sum(served[:look]) else False
        for look in RATE_LOOKS
        if look <= len(served)
    )


def below_zero(values: Sequence[float], error: float) -> bool:
    """Return whether the mean of independent normal values is below zero, wrongly with probability `error` at most."""
    from scipy.special import stdtrit

    x = np.asarray(values, dtype=float)
    if len(x) < 2 or not np.isfinite(x).all():
        return False
    margin = float(stdtrit(len(x) - 1, 1 - error)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return float(x.mean()) + margin <= 0.0
