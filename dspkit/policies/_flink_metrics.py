"""What the Flink autoscaler makes of the windows it collected: means, true rates, rates that go down the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..core import Edge, OperatorMetrics, Snapshot, Topology


def mean_rate(windows: Sequence[Snapshot], value: Callable[[Snapshot], float | None]) -> float | None:
    """Mean by time over the windows in which it was measured."""
    known = [(x, s.window_s) for s in windows if (x := value(s)) is not None]
    whole = math.fsum(w for _, w in known)
    return math.fsum(x * w for x, w in known) / whole if known else None


def of(name: str, field: str) -> Callable[[Snapshot], float | None]:
    """Reads one metric of one operator."""

    def read(snapshot: Snapshot) -> float | None:
        metrics = snapshot.operators.get(name)
        return None if metrics is None else getattr(metrics, field)

    return read


def output_ratio(windows: Sequence[Snapshot], edge: Edge) -> float | None:
    """Records sent along an edge for each that its start processed; 0 if it processed none, as in the operator."""
    both = [s for s in windows if edge[0] in s.operators and edge in s.edge_rates]
    if not both:
        return None
    taken = mean_rate(both, of(edge[0], "processing_rate")) or 0.0
    return (mean_rate(both, lambda s: s.edge_rates[edge]) or 0.0) / taken if taken > 0 else 0.0


def true_rate(windows: Sequence[Snapshot], name: str) -> float | None:
    """Records/s of all instances if they were always busy, from busy time; infinite where nothing came."""
    rate, busy = mean_rate(windows, of(name, "processing_rate")), mean_rate(windows, of(name, "utilisation"))
    if rate is None or busy is None:
        return None
    return rate / busy if rate > 0 and busy > 0 else math.inf


def observed_rate(windows: Sequence[Snapshot], name: str, lag_s: float, least: int) -> float | None:
    """What a source really did while it worked off a lag of `lag_s` or more, over the time nobody held it back.

    None where fewer than `least` windows show it; without a meter of being held back none does.
    """

    def one(m: OperatorMetrics) -> float | None:
        if m.blocked is None:
            return None
        free = 1 - m.blocked
        behind = m.backlog >= lag_s * m.processing_rate
        return m.processing_rate / free if behind and m.processing_rate > 0 and free > 0 else None

    found = [x for s in windows if (m := s.operators.get(name)) and (x := one(m)) is not None]
    return math.fsum(found) / len(found) if len(found) >= max(1, least) else None


def behind(topology: Topology, windows: Sequence[Snapshot], backlog_s: float) -> list[str]:
    """Sources whose lag is worth more than `backlog_s` seconds of what they do."""
    found = []
    for name in topology.sources:
        m, rate = windows[-1].operators.get(name), mean_rate(windows, of(name, "processing_rate"))
        if m is not None and rate is not None and m.backlog > backlog_s * rate:
            found.append(name)
    return found


def target_rates(
    topology: Topology, windows: Sequence[Snapshot], catch_up_s: float
) -> dict[str, tuple[float | None, float]]:
    """Of each operator what comes in, and what it must do beside to work the lag off in time.

    Both go down the graph by output ratios; where one is not known, nothing below is.
    """
    found: dict[str, tuple[float | None, float]] = {}
    for name in topology.order:
        if not topology.upstream(name):
            found[name] = _source(windows, name, catch_up_s)
            continue
        rate: float | None = 0.0
        lag_rate = 0.0
        for parent in topology.upstream(name):
            above, ratio = found[parent], output_ratio(windows, (parent, name))
            if above[0] is None or ratio is None:
                rate = None
            elif rate is not None:
                rate, lag_rate = rate + above[0] * ratio, lag_rate + above[1] * ratio
        found[name] = rate, lag_rate
    return found


def _source(windows: Sequence[Snapshot], name: str, catch_up_s: float) -> tuple[float | None, float]:
    """The rate offered; where nobody measured that, what was done and by how much the lag grew."""
    known = [s for s in windows if name in s.operators]
    lag = known[-1].operators[name].backlog if known else 0.0
    rate = mean_rate(windows, lambda s: s.source_rates.get(name))
    if rate is None and len(known) > 1:
        first, last = known[0], known[-1]
        grows = (lag - first.operators[name].backlog) / max(1e-3, last.t - first.t)
        rate = max(0.0, (mean_rate(known[1:], of(name, "processing_rate")) or 0.0) + grows)
    return rate, lag / catch_up_s if catch_up_s > 0 else 0.0
