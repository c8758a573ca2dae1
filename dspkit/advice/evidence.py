"""The windows of a recording that describe the job as it runs now, and their combination into one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median
from typing import Any, cast

from ..core import FrozenMap, History, Latency, MetricError, OperatorMetrics, Snapshot

NEAR = 0.2  # relative distance of a load that still counts as the same
_SMOOTH = 5  # windows whose median is compared: single ones fluctuate
_OPTIONAL = ("cpu", "blocked", "waited_s")


@dataclass(frozen=True)
class Evidence:
    """The windows that count: the last deployment under the last load; `left_out` counts the others by reason."""

    windows: tuple[Snapshot, ...]
    left_out: FrozenMap[str, int]

    @property
    def pooled(self) -> Snapshot:
        """The windows combined into one."""
        return pool(self.windows)

    @property
    def sentence(self) -> str:
        first, last = self.windows[0], self.windows[-1]
        seconds = math.fsum(s.window_s for s in self.windows)
        count = len(self.windows)
        said = f"{count} window{'s' * (count > 1)}, {seconds:,.0f} s together"
        if count > 1:
            said += f", from t = {first.t - first.window_s:,.0f} to {last.t:,.0f} s"
        out = ", ".join(f"{n} {why}" for why, n in self.left_out.items())
        return f"{said}{f'; left out: {out}' if out else ''}."


def evidence(history: History) -> Evidence:
    """Return the windows that count; raise a MetricError with the reasons if there are none."""
    seen = [step.snapshot for step in history]
    if not seen:
        raise MetricError("an empty history", expected="at least one window", fix="record the job, or load more of it")
    left: dict[str, int] = {}
    usable = []
    for s in seen:
        if not s.operators:
            left["without metrics"] = left.get("without metrics", 0) + 1
        elif s.downtime_s > 0:
            left["paused"] = left.get("paused", 0) + 1
        else:
            usable.append(s)
    if not usable:
        told = ", ".join(f"{n} {why}" for why, n in left.items())
        raise MetricError(f"{len(seen)} windows, {told}", expected="a window of a job that ran", fix="record longer")
    same = _tail(usable, lambda s, last: s.deployment == last.deployment and s.execution == last.execution)
    if len(same) < len(usable):
        left["at another deployment"] = len(usable) - len(same)
    level = _level(same)
    if len(level) < len(same):
        left["at another load"] = len(same) - len(level)
    return Evidence(tuple(level), FrozenMap(left))


def _tail(windows: Sequence[Snapshot], alike: Callable[[Snapshot, Snapshot], bool]) -> list[Snapshot]:
    start = len(windows)
    while start and alike(windows[start - 1], windows[-1]):
        start -= 1
    return list(windows[start:])


def _level(windows: Sequence[Snapshot]) -> list[Snapshot]:
    """Return the last windows, back to where the median load of a few windows leaves that of the end."""
    rates = [s.source_rate for s in windows]
    last = median(rates[-_SMOOTH:])
    start = len(rates)
    while start and abs(median(rates[max(0, start - _SMOOTH) : start]) - last) <= NEAR * last:
        start -= 1
    # a median follows after half its windows: single windows correct the start by those it includes or lacks
    while start and abs(rates[start - 1] - last) <= NEAR * last:
        start -= 1
    while start < len(rates) - 1 and abs(rates[start] - last) > NEAR * last:
        start += 1
    return list(windows[min(start, len(rates) - 1) :])


def consecutive_parts(windows: Sequence[Snapshot], max_parts: int = 5, min_windows: int = 3) -> list[Snapshot]:
    """Return consecutive parts of at least three windows each, combined; none if there are too few windows."""
    count = min(max_parts, len(windows) // min_windows)
    if count < 2:
        return []
    ends = [round(i * len(windows) / count) for i in range(count + 1)]
    return [pool(windows[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


def pool(windows: Sequence[Snapshot]) -> Snapshot:
    """Combine windows of one deployment: rates by time, true rates by busy time, latency by records, last queues."""
    last = windows[-1]
    names = dict.fromkeys(n for s in windows for n in s.operators)
    return Snapshot(
        t=last.t,
        window_s=math.fsum(s.window_s for s in windows),
        deployment=last.deployment,
        operators={n: _operator([(s.operators[n], s.window_s) for s in windows if n in s.operators]) for n in names},
        source_rates=_means(windows, "source_rates"),
        throughput=_mean((s.throughput, s.window_s) for s in windows),
        latency=_latency([(s.latency, s.throughput * s.window_s) for s in windows if s.latency]),
        event_latency=_latency([(s.event_latency, s.throughput * s.window_s) for s in windows if s.event_latency]),
        lag=last.lag,
        edge_rates=_means(windows, "edge_rates"),
        nodes=_means(windows, "nodes"),
        execution=last.execution,
        last_selectivities=last.last_selectivities,
    )


def _means(windows: Sequence[Snapshot], what: str) -> dict[Any, float]:
    """Return the mean of each entry over the windows that have it."""
    found: dict[Any, list[tuple[float, float]]] = {}
    for s in windows:
        for key, value in getattr(s, what).items():
            found.setdefault(key, []).append((value, s.window_s))
    return {key: _mean(pairs) for key, pairs in found.items()}


def _operator(seen: Sequence[tuple[OperatorMetrics, float]]) -> OperatorMetrics:
    last = seen[-1][0]
    always = {f.name for f in fields(OperatorMetrics) if f.default is not None}  # others may not have been measured
    given = always - {"true_rate", "backlog", "parallelism"}
    means: dict[str, float | None] = {name: _mean((getattr(m, name), w) for m, w in seen) for name in given}
    for name in _OPTIONAL:
        known = [(value, w) for m, w in seen if (value := getattr(m, name)) is not None]
        means[name] = _mean(known) if known else None
    done = [(m.processing_rate * w, m.processing_rate * w / m.true_rate) for m, w in seen if m.true_rate]
    busy = math.fsum(b for _, b in done)
    true_rate = math.fsum(n for n, _ in done) / busy if 0 < busy < math.inf else None
    return OperatorMetrics(
        **cast("Any", means), true_rate=true_rate, backlog=last.backlog, parallelism=last.parallelism
    )


def _mean(pairs: Iterable[tuple[float, float]]) -> float:
    pairs = list(pairs)
    whole = math.fsum(w for _, w in pairs)
    return math.fsum(x * w for x, w in pairs) / whole if whole > 0 else math.fsum(x for x, _ in pairs) / len(pairs)


def _latency(pairs: Sequence[tuple[Latency, float]]) -> Latency | None:
    if not pairs:
        return None
    return Latency(*(_mean((getattr(late, name), n) for late, n in pairs) for name in ("mean", "p50", "p95", "p99")))
