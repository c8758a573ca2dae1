r"""The end of a search with a stated error: what it keeps is confirmed by runs that did not choose it.

A search picks the cheapest configuration that seems to meet the target, and so one that was lucky: its own
measurements say too much. It is run again. The runs give $z=\ln l/l_t$; with mean $\bar z$ and standard deviation s of
n of them it is confirmed if $\bar z+t_{n-1,1-\delta}\,s/\sqrt n\le0$ with Student's quantile t. The error $\epsilon$
is divided among all tests, so that the probability that anything is confirmed which misses the target is at most
$\epsilon$ (Bonferroni, for independent normal z): the j-th candidate has $6\epsilon/\pi^2j^2$, each of its looks,
after 2, 3, 4, 6, 9 and 13 runs, a sixth of that, and half of it where the rate is tested as well. A candidate whose
mean lies beyond the target by as much as chance explains in one of five cases is given up, as is one that is still
open at the end.

Shares of the rate are cut at 1 and therefore not normal: where a configuration serves all of the rate in most runs and
much less in some, it may be confirmed more often than the stated error says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .space import Config

LOOKS = (2, 3, 4, 6, 9, 13)
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
        Logarithm of the share of the rate that must be served over the one that was, of those runs; empty if unknown.

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
        n = len(self.late)
        if n not in LOOKS:
            return None
        each = 6 * self.error / (math.pi * self.number) ** 2 / len(LOOKS)
        tests = [self.late, self.short] if self.short else [self.late]
        if all(below_zero(values, each / len(tests)) for values in tests):
            return True
        hopeless = any(below_zero([-v for v in values], 1 - _GIVE_UP) for values in tests)
        return False if hopeless or n == LOOKS[-1] else None


def below_zero(values: Sequence[float], error: float) -> bool:
    """Return whether the mean of independent normal values is below zero, wrongly with probability `error` at most."""
    from scipy.special import stdtrit

    x = np.asarray(values, dtype=float)
    if len(x) < 2 or not np.isfinite(x).all():
        return False
    margin = float(stdtrit(len(x) - 1, 1 - error)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return float(x.mean()) + margin <= 0.0
