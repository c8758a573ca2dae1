r"""Scores of a run: throughput degradation, nodes saved, latency, lost events, and the SASO properties [elysium].

    | paper | here |
    |---|---|
    | degradation(t) $= |in(t)-thr(t)|/in(t)$ | `degradation`: its mean over windows; above 1 while a backlog drains |
    | nodes saved $= 1-\sum_i c_i/(N C)$ | `nodes_saved`: N assessments, $c_i$ nodes chosen, C those of the reference |
    | SASO: stability, accuracy, settling time, overshoot | `saso`: of the deployment, after each change of the load |

All are pure functions of a History, of any backend and policy. In a window with in = 0, degradation is 0 if thr is 0,
too; otherwise the window does not count, and `dropped` is the number of such windows. The other reading, the sum of
differences over the sum of inputs, is not taken: the paper's own figure for one restart per minute (0.64) is a mean of
ratios.

`events_lost` counts lost events [fission]. That paper compares processed events with those of an ideal static
deployment: $1 - d/d_{ideal}$. Here the other events are counted as well: those that a full queue refused, and those
that still waited at the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError, History, MetricError, Snapshot, Step
from ..core.validation import number, whole

if TYPE_CHECKING:
    import pandas as pd

TRACE = 1e-9  # records/s that count as 0
Signal = Callable[[Step], float | None]


@dataclass(frozen=True)
class Degradation:
    """Throughput degradation: the mean over windows, that of each window, and the number of windows left out."""

    mean: float
    windows: tuple[float, ...]
    dropped: int = 0


@dataclass(frozen=True)
class Saso:
    """The SASO properties of a run, as means over the levels of the load.

    `stability` is the share of levels without a reversal (a step up after one down, or the reverse); `accuracy` is 1
    less the relative distance from the required value, once settled; `settling_s` is the time from the change of the
    load to the last change of the deployment; `overshoot` the greatest excess over the settled value, relative to it.
    """

    stability: float
    accuracy: float
    settling_s: float
    overshoot: float
    levels: int


def degradation(history: History) -> Degradation:
    r"""Return the mean of $|in - thr|/in$ over windows: arrivals and finished source records.

    With a pause d every T seconds at constant load it is $2d/T$, if the backlog drains in time.
    """
    _must_have_steps(history)
    found, dropped = [], 0
    for step in history:
        came, done = step.snapshot.source_rate, step.snapshot.throughput
        if came > TRACE:
            found.append(abs(came - done) / came)
        elif done <= TRACE:
            found.append(0.0)
        else:
            dropped += 1
    return Degradation(fmean(found) if found else 0.0, tuple(found), dropped)


def nodes(step: Step) -> float | None:
    """Return the number of nodes from this step on; None if unknown."""
    return step.deployment.workers or len(step.snapshot.nodes) or None


def nodes_saved(history: History, available: int, *, every_s: float | None = None) -> float:
    r"""Return $1-\sum c_i/(N C)$, compared with a cluster of `available` nodes that are always in use.

    Each decision is an assessment, or, with `every_s`, the end of each interval of that many seconds.
    """
    _must_have_steps(history)
    whole(available, "available", 1, fix="pass the number of the cluster's nodes, as in 4")
    steps = [s for s in history if s.decision is not None] if every_s is None else _each(history, every_s)
    counts = [c for step in steps if (c := nodes(step)) is not None]
    if not counts:
        raise MetricError("a run without nodes", expected="workers, or metered nodes", fix="choose other scores")
    return 1 - sum(counts) / (len(counts) * available)


def node_seconds(history: History) -> float:
    """Return the nodes in use, summed over time: the cost if nodes are billed."""
    _must_be_history(history)
    return sum((s.snapshot.deployment.workers or len(s.snapshot.nodes)) * s.snapshot.window_s for s in history)


def instance_seconds(history: History) -> float:
    """Return the instances in use, summed over time: the cost if slots are billed."""
    _must_be_history(history)
    return sum(s.snapshot.deployment.instances * s.snapshot.window_s for s in history)


def latency(history: History, kind: str = "latency", part: str = "mean") -> float | None:
    """Return the mean of a window's mean or percentile, weighted by records, in seconds; None without finished records.

    `kind` is "latency", from leaving the source's log, or "event_latency", with the wait in the log.
    """
    _must_have_steps(history)
    if kind not in ("latency", "event_latency") or part not in ("mean", "p50", "p95", "p99"):
        raise ArgumentError(f"{kind!r}, {part!r}", expected="latency or event_latency; mean, p50, …", fix="see Latency")
    rows = [
        (s.snapshot.throughput * s.snapshot.window_s, getattr(known, part))
        for s in history
        if (known := getattr(s.snapshot, kind)) is not None
    ]
    records = sum(n for n, _ in rows)
    return sum(n * x for n, x in rows) / records if records > 0 else None


def rescales(history: History) -> int:
    """Return the number of changes of the deployment, by the policy or from outside."""
    _must_be_history(history)
    after = [s.deployment for s in history]
    return sum(a != b for a, b in pairwise([history[0].snapshot.deployment, *after])) if len(history) else 0


def levels(history: History, by: float = 0.2) -> list[tuple[int, int]]:
    """Return the levels of the load: ranges (first, end) of windows within `by` of the first one's rate."""
    _must_have_steps(history)
    number(by, "by", 0, above=True, infinite=True, fix="pass a share, as in 0.2")
    starts, level = [0], history[0].snapshot.source_rate
    for i, step in enumerate(history):
        if abs(step.snapshot.source_rate - level) > by * max(level, TRACE):
            level = step.snapshot.source_rate
            starts.append(i)
    return list(pairwise([*dict.fromkeys(starts), len(history)]))


def saso(
    history: History,
    quantity: str | Signal = "instances",
    *,
    by: float = 0.2,
    needed: Callable[[Snapshot], float] | None = None,
) -> Saso:
    """Return stability, accuracy, settling time and overshoot of a quantity.

    `quantity` is "instances", "nodes", an operator, or a function of a step. `needed` returns the required value of a
    window; without it, accuracy is that of the throughput: $1-|in-thr|/in$.
    """
    signal = _signal(history, quantity)
    if needed is not None and not callable(needed):
        raise ArgumentError(f"needed={needed!r}", expected="a function of a Snapshot", fix="as in needed=lambda s: 3")
    turned, off, settled, beyond, count = 0, [], [], [], 0
    for first, end in levels(history, by):
        before = signal(history[first - 1]) if first else None
        values = [v for s in history[first:end] if (v := signal(s)) is not None]
        if len(values) < end - first:
            continue
        count += 1
        path = [values[0] if before is None else before, *values]
        moves = [b - a for a, b in pairwise(path) if b != a]
        turned += any(a * b < 0 for a, b in pairwise(moves))
        last = max((i for i, (a, b) in enumerate(pairwise(path)) if a != b), default=-1)
        start = history[first].snapshot.t - history[first].snapshot.window_s
        settled.append(0.0 if last < 0 else history[first + last].snapshot.t - start)
        final = path[-1]
        farthest = max(path[1:]) - final if final > path[0] else final - min(path[1:]) if final < path[0] else 0.0
        farthest = max(abs(v - final) for v in path) if final == path[0] else farthest
        beyond.append(farthest / final if final > 0 else 0.0)
        rest = history.steps[min(first + last + 1, end - 1) : end]
        off.append(fmean(_miss(step, signal, needed) for step in rest))
    if not count:
        raise MetricError(f"a run without {quantity!r}", expected="workers or nodes", fix="choose another quantity")
    return Saso(1 - turned / count, max(0.0, 1 - fmean(off)), fmean(settled), fmean(beyond), count)


def scores(history: History, available: int | None = None, *, every_s: float | None = None) -> dict[str, Any]:
    """Return all scores by name, for tables; `available` is the number of nodes that `nodes_saved` compares with."""
    lost, of = degradation(history), "nodes" if all(nodes(s) for s in history) else "instances"
    values: dict[str, Any] = {"degradation": lost.mean, "degradation_dropped": lost.dropped}
    if available is not None:
        values["nodes_saved"] = nodes_saved(history, available, every_s=every_s)
    values |= {
        "latency_s": latency(history),
        "latency_p95_s": latency(history, part="p95"),
        "event_latency_s": latency(history, "event_latency"),
        "node_seconds": node_seconds(history),
        "instance_seconds": instance_seconds(history),
        "rescales": rescales(history),
        "downtime_s": sum(s.snapshot.downtime_s for s in history),
    }
    return values | {name: value for name, value in asdict(saso(history, of)).items() if name != "levels"}


def side_by_side(runs: Mapping[str, History], target_latency_s: float) -> pd.DataFrame:
    """Return one row per run: share of the load processed, latency, instances, changes, downtime, with their units.

    Parameters
    ----------
    runs : mapping of str to History
        The runs by name.
    target_latency_s : float
        The latency to meet.

    Examples
    --------
    >>> from dspkit import run
    >>> list(side_by_side({"static": run("static", "star", steps=3)}, 0.5).columns[:2])
    ['done, %', 'latency, ms']
    """
    import pandas as pd

    rows = {}
    for name, history in runs.items():
        frame = history.application
        late = "latency_mean" in frame
        rows[name] = {
            "done, %": 100 * frame.throughput.sum() / max(frame.source_rate.sum(), 1e-9),
            "latency, ms": 1e3 * frame.latency_mean.mean() if late else float("nan"),
            "windows above target, %": 100 * (frame.latency_mean > target_latency_s).mean() if late else 0,
            "instances": frame.instances.mean(),
            "changes": int(frame.rescaled.sum()),
            "downtime, s": frame.downtime_s.sum(),
        }
    return pd.DataFrame(rows).T.rename_axis("policy")


def _miss(step: Step, signal: Signal, needed: Callable[[Snapshot], float] | None) -> float:
    """Return the relative distance of a window from the required value."""
    s = step.snapshot
    if needed is not None:
        want, has = _number(needed(s), needed), signal(step)
        if want is None or has is None:
            raise MetricError(f"no value of {needed!r} at t={s.t:g}", expected="a number", fix="correct `needed`")
        return abs(has - want) / want if want > 0 else float(has > 0)
    return min(1.0, abs(s.source_rate - s.throughput) / s.source_rate) if s.source_rate > TRACE else 0.0


def _number(value: Any, by: Any) -> float | None:
    fix = "return such a number, or None if it is unknown"
    return None if value is None else number(value, f"result of {by!r:.80}", 0, error=MetricError, fix=fix)


def _signal(history: History, of: str | Signal) -> Signal:
    _must_have_steps(history)
    if callable(of):
        return lambda s: _number(of(s), of)
    named: Mapping[str, Signal] = {"instances": lambda s: s.deployment.instances, "nodes": nodes}
    if of in named:
        return named[of]
    operator = history.topology[of].name
    return lambda s: s.deployment.parallelism[operator]


def _each(history: History, every_s: float) -> list[Step]:
    """Return the last step of each interval of `every_s`."""
    number(every_s, "every_s", 0, above=True, infinite=True, fix="pass seconds, as in 60")
    return [
        s for s in history if (s.snapshot.t + 1e-9) // every_s > (s.snapshot.t - s.snapshot.window_s + 1e-9) // every_s
    ]


def _must_be_history(history: History) -> None:
    if not isinstance(history, History):
        raise MetricError(f"history {history!r}"[:100], expected="a History", fix="pass the result of run()")


def _must_have_steps(history: History) -> None:
    _must_be_history(history)
    if not len(history):
        raise MetricError(f"history {history!r}"[:100], expected="a History with steps", fix="pass the result of run()")


@dataclass(frozen=True)
class EventsLost:
    """The events of one run; those dropped or waiting at inner operators are counted there, not as source events."""

    offered: float
    processed: float
    dropped: float
    waiting: float
    replica_seconds: float

    @property
    def share(self) -> float:
        """Share of the offered events that were not processed by the end."""
        return share_lost(self.processed, self.offered)


def share_lost(processed: float, ideal: float) -> float:
    """Return $1 - d/d_{ideal}$: the share of an ideal run's events that this one lost; negative if it processed more.

    >>> round(100 * share_lost(329_574, 382_713), 3)
    13.885
    """
    if not (0 <= processed < inf and 0 <= ideal < inf):
        raise MetricError(f"{processed} of {ideal} events", expected="counts from 0 up", fix="correct the counts")
    return 1 - processed / ideal if ideal > 0 else 0.0


def events_lost(steps: Iterable[Step]) -> EventsLost:
    """Return the events of a run: of the steps of `control_loop`, or of a History."""
    offered = processed = dropped = waiting = replica_seconds = 0.0
    last = None
    for step in steps:
        last = step.snapshot
        offered += last.source_rate * last.window_s
        processed += last.throughput * last.window_s
        dropped += last.dropped * last.window_s
        replica_seconds += last.deployment.instances * last.window_s
    if last is None:
        raise MetricError("a run without steps", expected="at least one", fix="run a policy first")
    waiting = sum(m.backlog for m in last.operators.values())
    return EventsLost(offered, processed, dropped, waiting, replica_seconds)
