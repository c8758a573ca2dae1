"""What ELYSIUM and its rival share: decisions each minute from means over the last one, and which nodes there are."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from statistics import fmean
from typing import NamedTuple

from ..core import Snapshot


class Minute(NamedTuple):
    """The last windows, when it was last decided, and the nodes that were ever seen."""

    windows: tuple[Snapshot, ...] = ()
    tick: int = 0
    nodes: tuple[str, ...] = ()
    whole: bool = False  # the job ran without a number of workers: the nodes seen are all there are

    def see(self, snapshot: Snapshot, mean_over_s: float) -> Minute:
        """One window more, and the oldest ones fewer."""
        since = snapshot.t - mean_over_s + 1e-9
        kept = (*(s for s in self.windows if s.t - s.window_s >= since - snapshot.window_s / 2), snapshot)
        nodes = tuple(dict.fromkeys([*self.nodes, *snapshot.nodes]))
        return Minute(kept, self.tick, nodes, self.whole or snapshot.deployment.workers is None)

    def due(self, assess_s: float) -> Minute | None:
        """The same after a decision, if it is time for one."""
        tick = floor(self.windows[-1].t / assess_s + 1e-9)
        return self._replace(tick=tick) if tick != self.tick else None

    def mean(self, value: Callable[[Snapshot], float | None]) -> float | None:
        """The mean of what was measured of a quantity; None if nothing was."""
        known = [v for s in self.windows if (v := value(s)) is not None]
        return fmean(known) if known else None

    def available(self, nodes: int) -> list[str]:
        """Names of the nodes there are, those in use first; of a job that has no number of workers, those it has."""
        if self.whole:
            return list(self.nodes)
        names = list(self.nodes[:nodes])
        i = 0
        while len(names) < nodes:
            i += 1
            if f"node-{i}" not in names:
                names.append(f"node-{i}")
        return names
