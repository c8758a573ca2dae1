r"""The instances that each operator needs at the current load, with confidence from a bootstrap over windows.

| symbol | here |
|---|---|
| $t_i$ | `demand`: records/s that the sources demand of operator i |
| $v_i$ | `true_rate`: records/s of one instance that never waits |
| $\rho_i = t_i/(v_i k_i)$ | `load`: 1 is its full capacity |

In a pipeline the operator with the highest load is the bottleneck, and the job keeps up while that is below 1. Stages
of a micro-batch take turns: there loads are shares of the time, and their sum must stay below 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Snapshot, Topology
from ..core.lazy import load
from ..core.typing import Array

DRAWS = 1000
CONFIDENCE = 0.95
_FEWEST = 5  # the number of windows from which resampling them is meaningful
_ABSURD = 1e9  # busy instances: no real job reports as many


class IntervalEstimate(NamedTuple):
    """A value and its confidence interval.

    Parameters
    ----------
    value : float or None
        The value; None if unknown.
    low, high : float, optional
        Ends of the interval; None with too few windows.

    Examples
    --------
    >>> IntervalEstimate(0.5, 0.4, 0.6).text
    '0.5 (0.4 to 0.6)'
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The value with its interval."""
        if self.value is None:
            return "unknown"
        between = "" if self.low is None or self.high is None else f" ({short(self.low)} to {short(self.high)})"
        return f"{short(self.value)}{between}"


def seconds(value: float) -> str:
    """Format a time with its unit.

    >>> seconds(0.0123), seconds(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def short(value: float) -> str:
    """Format a number with four digits, or all before the point.

    >>> short(0.12345), short(120345.6)
    ('0.1235', '120,346')
    """
    return f"{value:,.4g}" if value < 9999.5 else f"{value:,.0f}"


@dataclass(frozen=True)
class Needs:
    """The needs of all operators.

    Parameters
    ----------
    topology : Topology
        The job.
    parallelism : mapping
        Instances of each operator.
    execution : {"pipelined", "micro-batch"}
        Whether operators work at the same time or take turns.
    windows : int
        Number of windows.
    blocks : float
        Number of independent blocks of the recording.
    true_rate : mapping
        Records/s of one instance that never waits, by operator.
    demand : mapping
        Records/s that the sources demand of each operator.
    draws : mapping
        Unrounded instances that each operator needs, per resampled recording; the original is the first.
    unmetered : tuple of str
        Sources without metrics, which are assumed to keep up.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> app = apps.word_count()
    >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> advise(history, policies=["ds2"]).needs.bottleneck[0]
    'count'
    """

    topology: Topology
    parallelism: Mapping[str, int]
    execution: str
    windows: int
    blocks: float
    true_rate: Mapping[str, IntervalEstimate]
    demand: Mapping[str, IntervalEstimate]
    draws: Mapping[str, Array]
    unmetered: tuple[str, ...] = ()

    def load(self, name: str, instances: float | None = None, speed: float = 1.0) -> IntervalEstimate:
        """Return the load of an operator.

        Parameters
        ----------
        name : str
            The operator.
        instances : float, optional
            Its number of instances, by default the current one.
        speed : float
            The rate of one instance relative to now.

        Examples
        --------
        >>> from dspkit import advise, apps, run, workload
        >>> from dspkit.policies.static import Static
        >>> app = apps.word_count()
        >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
        >>> advise(history, policies=["ds2"]).needs.load("count", instances=10).value < 1
        True
        """
        k = (instances or self.parallelism[name]) * speed
        return estimate(self.draws[name] / k, self.blocks)

    def whole(
        self, parallelism: Mapping[str, int] | None = None, speed: Mapping[str, float] | None = None
    ) -> IntervalEstimate:
        """Return the load of the job: the highest in a pipeline, the sum where operators take turns.

        Parameters
        ----------
        parallelism : mapping of str to int, optional
            The instances of each operator, by default the current ones.
        speed : mapping of str to float, optional
            The rate of one instance relative to now, by default 1.

        Examples
        --------
        >>> from dspkit import advise, apps, run, workload
        >>> from dspkit.policies.static import Static
        >>> app = apps.word_count()
        >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
        >>> advise(history, policies=["ds2"]).needs.whole().value > 1
        True
        """
        k = parallelism or self.parallelism
        names = [n for n in self.topology.order if n not in self.unmetered]
        if not names:
            return IntervalEstimate(None)
        each = np.array([self.draws[n] / (k[n] * (speed or {}).get(n, 1.0)) for n in names])
        return estimate(each.sum(axis=0) if self.execution == "micro-batch" else each.max(axis=0), self.blocks)

    @property
    def unknown(self) -> list[str]:
        """Operators whose needs are unknown."""
        return [n for n in self.topology.order if n not in self.unmetered and math.isnan(self.draws[n][0])]

    @property
    def bottleneck(self) -> tuple[str, float | None] | None:
        """The operator with the highest load, and the share of resampled recordings in which it is the bottleneck."""
        told = [n for n in self.topology.order if not math.isnan(self.draws[n][0])]
        each = np.array([self.draws[n] / self.parallelism[n] for n in told])
        if not told or not each[:, 0].max() > 0:
            return None
        first = int(each[:, 0].argmax())
        often = (np.nan_to_num(each[:, 1:]).argmax(axis=0) == first).mean()
        return told[first], float(often) if self.blocks >= 2 else None


def needs(topology: Topology, windows: Sequence[Snapshot], seed: int = 0) -> Needs:
    """Return the needs that `windows`, all of one deployment, show."""
    count = len(windows)
    length = max(1, min(round(math.sqrt(count)), count // 3))
    times = np.vstack([np.ones(count), _redrawn(count, length, seed)])
    w = np.array([s.window_s for s in windows])
    v, demand, draws = {}, {}, {}
    rates = {n: _rates(windows, n) for n in topology.order}
    asked: dict[str, Array] = {}
    speeds: dict[str, Array] = {}
    for name in topology.order:
        done, busy = rates[name]
        speeds[name] = _over(times @ (done * w), times @ (busy * w))
        if not topology.upstream(name):
            offered = np.array([s.source_rates.get(name, math.nan) for s in windows])
            seen = ~np.isnan(offered)
            asked[name] = _over(times @ np.where(seen, offered * w, 0.0), times @ np.where(seen, w, 0.0))
            continue
        asked[name] = np.zeros(len(times))
        for parent in topology.upstream(name):
            sent, taken = _edge(windows, parent, name)
            share = _over(times @ (sent * w), times @ (taken * w))
            asked[name] = asked[name] + np.where(asked[parent] == 0, 0.0, asked[parent] * share)
    blocks = count / length if count >= _FEWEST else 1.0
    for name in topology.order:
        needed = np.where(asked[name] == 0, 0.0, _over(asked[name], speeds[name]))
        if _instant(windows, name):
            needed = np.where(np.isnan(asked[name]), math.nan, 0.0)
        v[name], demand[name], draws[name] = estimate(speeds[name], blocks), estimate(asked[name], blocks), needed
    last = windows[-1]
    silent = unmetered(topology, windows)
    return Needs(topology, last.deployment.parallelism, last.execution, count, blocks, v, demand, draws, silent)


def unmetered(topology: Topology, windows: Sequence[Snapshot]) -> tuple[str, ...]:
    """Return the sources with a rate but no utilisation, such as Storm's spouts."""
    return tuple(
        n
        for n in topology.sources
        if not any(n in s.operators for s in windows) and any(n in s.source_rates for s in windows)
    )


def estimate(draws: Array, blocks: float) -> IntervalEstimate:
    """Return the first draw with an interval from the others: percentiles, widened by Student's t for few blocks."""
    value = float(draws[0])
    if not math.isfinite(value):
        return IntervalEstimate(None)
    spread = draws[1:][np.isfinite(draws[1:])]
    if blocks < 2 or not len(spread):
        return IntervalEstimate(value)
    stats = load("scipy.stats", "standard")
    low, high = np.quantile(spread, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    end = (1 + CONFIDENCE) / 2
    wide = float(stats.t.ppf(end, blocks - 1) / stats.norm.ppf(end)) * math.sqrt(blocks / (blocks - 1))
    return IntervalEstimate(value, max(0.0, value - (value - float(low)) * wide), value + (float(high) - value) * wide)


def _redrawn(count: int, length: int, seed: int) -> Array:
    """Return the count of each window in each resampled recording: blocks of `length`, as neighbours are correlated."""
    draw = np.random.default_rng(seed)
    starts = draw.integers(0, count, (DRAWS, math.ceil(count / length)))
    chosen = ((starts[:, :, None] + np.arange(length)) % count).reshape(DRAWS, -1)[:, :count]
    return np.array([np.bincount(row, minlength=count) for row in chosen], dtype=float)


def _rates(windows: Sequence[Snapshot], name: str) -> tuple[Array, Array]:
    """Return records/s and the instances they kept busy; 0 and 0 where the true rate is unknown."""
    done, busy = np.zeros(len(windows)), np.zeros(len(windows))
    for i, s in enumerate(windows):
        m = s.operators.get(name)
        if m is not None and m.true_rate and m.processing_rate / m.true_rate < _ABSURD:
            done[i], busy[i] = m.processing_rate, m.processing_rate / m.true_rate
    return done, busy


def _edge(windows: Sequence[Snapshot], start: str, end: str) -> tuple[Array, Array]:
    """Return records/s along an edge and processed at its start, where known; for unmetered sources the input."""
    sent, taken = np.zeros(len(windows)), np.zeros(len(windows))
    for i, s in enumerate(windows):
        if start in s.operators and (start, end) in s.edge_rates:
            sent[i], taken[i] = s.edge_rates[start, end], s.operators[start].processing_rate
        elif start in s.source_rates and (start, end) in s.edge_rates:
            sent[i], taken[i] = s.edge_rates[start, end], s.source_rates[start]
    return sent, taken


def _instant(windows: Sequence[Snapshot], name: str) -> bool:
    """Return True if the operator processed records, always in less time than its clock resolves."""
    seen = [m for s in windows if (m := s.operators.get(name))]
    return any(m.processing_rate > 0 for m in seen) and not any(m.true_rate or m.utilisation for m in seen)


def _over(above: Array, below: Array) -> Array:
    """Return the quotient; NaN where the divisor is not positive."""
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow is as unknown as no value
        found: Array = np.divide(above, below, out=np.full(len(above), math.nan), where=below > 0)
    return found
