"""The cost of changes and failures: the time until a job does again what it did before, or is steady [stela]."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, pstdev
from typing import NamedTuple

from .errors import ArgumentError
from .metrics import Snapshot
from .topology import Deployment

BACK_AT = 0.9  # share of the former throughput, or of a smaller load, that counts as recovered


class Recovery(NamedTuple):
    """One change or failure, and its cost; times in seconds.

    Parameters
    ----------
    t : float
        Beginning of the window in which it happened.
    changed : bool
        Whether the deployment changed; otherwise the job had downtime by itself.
    downtime_s : float
        Time without any processing, until the job had recovered.
    recovery_s : float, optional
        Time until the end of the first window in which throughput was back; None if it was not before the next change
        or the end of the run.
    lost_s : float
        Time that the former throughput would have needed for what was not processed meanwhile.

    Examples
    --------
    >>> Recovery(60, True, 10, 20, 10).lost_s
    10
    """

    t: float
    changed: bool
    downtime_s: float
    recovery_s: float | None
    lost_s: float


class RecoveryWatch(NamedTuple):
    """The changes and failures so far, of which the last one may still be in progress.

    Parameters
    ----------
    found : tuple of Recovery
        The changes and failures.
    under_way : bool
        Whether throughput is not yet back after the last one.
    former : float
        Throughput of the last window before it.
    deployment : Deployment, optional
        The deployment of the last window.
    stopped : bool
        Whether there was downtime in the last window.

    last : Recovery, optional
        The last change that is over.

    Examples
    --------
    >>> from dspkit import apps
    >>> RecoveryWatch().after(apps.star().simulator().observe()).found
    ()
    """

    found: tuple[Recovery, ...] = ()
    under_way: bool = False
    former: float = 0.0
    deployment: Deployment | None = None
    stopped: bool = False
    last: Recovery | None = None

    def after(self, s: Snapshot) -> RecoveryWatch:
        """Return the same with one more window.

        Parameters
        ----------
        s : Snapshot
            The window.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.word_count().simulator()
        >>> watch = RecoveryWatch().after(job.observe())
        >>> job.deploy(job.deployment.scaled({"count": 2}))
        >>> [r.changed for r in watch.after(job.observe()).found]
        [True]
        """
        found, under_way = list(self.found), self.under_way
        changed = self.deployment is not None and s.deployment != self.deployment
        if changed and under_way and not found[-1].changed and self.stopped:
            found[-1] = found[-1]._replace(changed=True)  # its records took windows to drain
        elif changed or (s.downtime_s > 0 and not under_way):
            found.append(Recovery(s.t - s.window_s, changed, 0.0, None, 0.0))
            under_way = True
        if under_way:
            goal, now = min(self.former, s.source_rate), found[-1]
            back = s.throughput >= BACK_AT * goal
            missed = max(0.0, 1 - s.throughput / goal) * s.window_s if goal > 0 else 0.0
            found[-1] = now._replace(
                downtime_s=now.downtime_s + s.downtime_s,
                recovery_s=s.t - now.t if back else None,
                lost_s=now.lost_s + missed,
            )
            under_way = not back
        former = self.former if under_way else s.throughput
        last = found[-1] if found and found[-1].changed and not under_way else self.last
        return RecoveryWatch(tuple(found), under_way, former, s.deployment, s.downtime_s > 0, last)


def recoveries(snapshots: Iterable[Snapshot]) -> list[Recovery]:
    """Return the changes and failures of a run, each with the time until the former throughput was back.

    Throughput is back when it reaches 90 % of that of the last window before, or of the offered load if that is less
    by then. Routine commits are neither changes nor failures.

    Parameters
    ----------
    snapshots : iterable of Snapshot
        The windows of a run, in their order.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> steps = run("ds2", apps.word_count(), steps=12)
    >>> [(r.t, r.changed) for r in recoveries(step.snapshot for step in steps)]
    [(10.0, True)]
    """
    watch = RecoveryWatch()
    for snapshot in snapshots:
        watch = watch.after(snapshot)
    return list(watch.found)


def convergence_s(
    throughput: Sequence[float], *, window_s: float = 10.0, crossings: int = 2, spread: float = 0.05
) -> float:
    """Return the time from the start of scaling until throughput oscillates closely about its new mean; inf if never.

    With m the mean of the second half, it is the end of the earliest stretch of windows in which throughput was at
    least twice above m and twice below, with a standard deviation of at most 5 % of m.

    Parameters
    ----------
    throughput : sequence of float
        Records/s of each window from the start of scaling on.
    window_s : float
        Length of a window.
    crossings : int
        Windows required above and below the mean.
    spread : float
        Greatest standard deviation, relative to the mean.

    Examples
    --------
    >>> convergence_s([0, 0, 20, 60, 110, 95, 103, 98, 101, 99, 102, 98])
    90.0
    """
    values = _windows(throughput, window_s)
    if not values:
        raise ArgumentError("throughput of no window", expected="one finite number per window", fix="check the meter")
    m = fmean(values[len(values) // 2 :])
    found = math.inf
    for s in range(len(values)):
        above = below = 0
        for e in range(s, len(values)):
            above, below = above + (values[e] > m), below + (values[e] < m)
            if above >= crossings and below >= crossings:
                if pstdev(values[s : e + 1]) <= spread * m:
                    found = min(found, (e + 1) * window_s)
                break  # the first such end for this start
    return found


def downtime_s(throughput: Sequence[float], *, window_s: float = 10.0) -> float:
    """Return the total time of windows without output.

    Parameters
    ----------
    throughput : sequence of float
        Records/s of each window.
    window_s : float
        Length of a window.

    Examples
    --------
    >>> downtime_s([0, 0, 20, 60])
    20.0
    """
    return window_s * sum(1 for x in _windows(throughput, window_s) if x <= 0)


def _windows(throughput: Sequence[float], window_s: float) -> list[float]:
    """Return one finite, non-negative number per window."""
    try:
        values = [float(x) for x in throughput]
    except (TypeError, ValueError):
        values = [math.nan]
    if not all(0 <= x < math.inf for x in values):
        raise ArgumentError(
            f"throughput {throughput!r}"[:80], expected="one finite number >= 0 per window", fix="check the meter"
        )
    if not 0 < window_s < math.inf:
        raise ArgumentError(f"window_s={window_s!r}", expected="seconds above 0", fix="as in window_s=10")
    return values
