r"""Scores of a run: throughput degradation, nodes saved, latency, and the SASO properties of a controller [elysium].

    | paper | here |
    |---|---|
    | degradation(t) $= |in(t)-thr(t)|/in(t)$ | `degradation`: its mean over windows; above 1 while a backlog drains |
    | nodes saved $= 1-\sum_i c_i/(N C)$ | `nodes_saved`: N assessments, $c_i$ nodes chosen, C those of the reference |
    | SASO: stability, accuracy, settling time, overshoot | `saso`: of what runs, after each change of the load |

Pure functions of a History, whatever backend and policy it is of. Where in = 0, degradation is 0 if thr is too; else
the window counts for nothing, and `dropped` tells how many there were. The other reading, the sum of differences over
the sum of inputs, is not taken: the paper's own figure for a restart each minute (0.64) is a mean of ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from numbers import Real
from statistics import fmean
from typing import Any

from .core import Snapshot, Step
from .errors import KnobError, MetricError
from .history import History

TRACE = 1e-9  # records/s that are none
Signal = Callable[[Step], float | None]


@dataclass(frozen=True)
class Degradation:
    """Throughput degradation: the mean over windows, each window's, and how many counted for nothing."""

    mean: float
    windows: tuple[float, ...]
    dropped: int = 0


@dataclass(frozen=True)
class Saso:
    """How what runs follows the load; means over the load's levels.

    `stability` is the share of levels on which it never turned back (a step up after one down, or the reverse);
    `accuracy` is 1 less the relative distance from what is needed, once settled; `settling_s` the time from the change
    of the load to the last change of what runs; `overshoot` how far it went beyond where it settled, relatively.
    """

    stability: float
    accuracy: float
    settling_s: float
    overshoot: float
    levels: int


def degradation(history: History) -> Degradation:
    r"""Mean of $|in - thr|/in$ over windows: what came in, and the source records whose processing ended.

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
    """Nodes that run from this step on; None where nothing tells."""
    return step.deployment.workers or len(step.snapshot.nodes) or None


def nodes_saved(history: History, available: int, *, every_s: float | None = None) -> float:
    r"""$1-\sum c_i/(N C)$ against a cluster of `available` nodes that is always used whole.

    An assessment is each decision, or with `every_s` the end of each stretch of so many seconds.
    """
    _must_have_steps(history)
    if isinstance(available, bool) or not isinstance(available, int) or available < 1:
        raise KnobError(f"available={available!r}", expected="a number of nodes", fix="those of the cluster, as in 4")
    steps = [s for s in history if s.decision is not None] if every_s is None else _each(history, every_s)
    counts = [c for step in steps if (c := nodes(step)) is not None]
    if not counts:
        raise MetricError("a run that tells no nodes", expected="workers, or metered nodes", fix="choose other scores")
    return 1 - sum(counts) / (len(counts) * available)


def node_seconds(history: History) -> float:
    """Nodes in use, summed over time: what is paid for."""
    _must_be_history(history)
    return sum((s.snapshot.deployment.workers or len(s.snapshot.nodes)) * s.snapshot.window_s for s in history)


def instance_seconds(history: History) -> float:
    """Instances in use, summed over time: what is paid for where slots are."""
    _must_be_history(history)
    return sum(s.snapshot.deployment.instances * s.snapshot.window_s for s in history)


def latency(history: History, kind: str = "latency", part: str = "mean") -> float | None:
    """Seconds: the mean over records of a window's mean, or of a percentile; None if nothing came out.

    `kind` is "latency", from leaving the source's log, or "event_latency", the wait in the log included.
    """
    _must_have_steps(history)
    if kind not in ("latency", "event_latency") or part not in ("mean", "p50", "p95", "p99"):
        raise KnobError(f"{kind!r}, {part!r}", expected="latency or event_latency; mean, p50, …", fix="see Latency")
    rows = [
        (s.snapshot.throughput * s.snapshot.window_s, getattr(known, part))
        for s in history
        if (known := getattr(s.snapshot, kind)) is not None
    ]
    records = sum(n for n, _ in rows)
    return sum(n * x for n, x in rows) / records if records > 0 else None


def rescales(history: History) -> int:
    """How often what runs changed, whoever changed it."""
    _must_be_history(history)
    after = [s.deployment for s in history]
    return sum(a != b for a, b in pairwise([history[0].snapshot.deployment, *after])) if len(history) else 0


def levels(history: History, by: float = 0.2) -> list[tuple[int, int]]:
    """Stretches of windows (first, end) in which the load stays within `by` of what it was at their start."""
    _must_have_steps(history)
    if isinstance(by, bool) or not isinstance(by, (int, float)) or not by > 0:
        raise KnobError(f"by={by!r}", expected="a share above 0", fix="as in 0.2")
    starts, level = [0], history[0].snapshot.source_rate
    for i, step in enumerate(history):
        if abs(step.snapshot.source_rate - level) > by * max(level, TRACE):
            level = step.snapshot.source_rate
            starts.append(i)
    return list(pairwise([*dict.fromkeys(starts), len(history)]))


def saso(
    history: History,
    of: str | Signal = "instances",
    *,
    by: float = 0.2,
    needed: Callable[[Snapshot], float] | None = None,
) -> Saso:
    """Stability, accuracy, settling time and overshoot of `of`: "instances", "nodes", an operator, or any function.

    `needed` tells what a window needs of it; without it accuracy is that of the throughput: $1-|in-thr|/in$.
    """
    signal = _signal(history, of)
    if needed is not None and not callable(needed):
        raise KnobError(f"needed={needed!r}", expected="a function of a Snapshot", fix="as in needed=lambda s: 3")
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
        raise MetricError(f"a run that tells nothing of {of!r}", expected="workers or nodes", fix="choose another")
    return Saso(1 - turned / count, max(0.0, 1 - fmean(off)), fmean(settled), fmean(beyond), count)


def scores(history: History, available: int | None = None, *, every_s: float | None = None) -> dict[str, Any]:
    """All of these by name, for tables; `available` nodes are the reference of what was saved, where there are any."""
    lost, of = degradation(history), "nodes" if all(nodes(s) for s in history) else "instances"
    told: dict[str, Any] = {"degradation": lost.mean, "degradation_dropped": lost.dropped}
    if available is not None:
        told["nodes_saved"] = nodes_saved(history, available, every_s=every_s)
    told |= {
        "latency_s": latency(history),
        "latency_p95_s": latency(history, part="p95"),
        "event_latency_s": latency(history, "event_latency"),
        "node_seconds": node_seconds(history),
        "instance_seconds": instance_seconds(history),
        "rescales": rescales(history),
        "downtime_s": sum(s.snapshot.downtime_s for s in history),
    }
    return told | {name: value for name, value in asdict(saso(history, of)).items() if name != "levels"}


def _miss(step: Step, signal: Signal, needed: Callable[[Snapshot], float] | None) -> float:
    """How far this window is from what it should be, relatively."""
    s = step.snapshot
    if needed is not None:
        want, has = _number(needed(s), needed), signal(step)
        if want is None or has is None:
            raise MetricError(f"{needed!r} told nothing at t={s.t:g}", expected="what is needed", fix="mend it")
        return abs(has - want) / want if want > 0 else float(has > 0)
    return min(1.0, abs(s.source_rate - s.throughput) / s.source_rate) if s.source_rate > TRACE else 0.0


def _number(value: Any, by: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < math.inf:
        raise MetricError(f"{value!r} of {by!r}"[:120], expected="a number >= 0, or None", fix="mend the function")
    return float(value)


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
    """The last step of each stretch of `every_s`."""
    if isinstance(every_s, bool) or not isinstance(every_s, (int, float)) or not every_s > 0:
        raise KnobError(f"every_s={every_s!r}", expected="seconds above 0", fix="as in 60")
    return [
        s for s in history if (s.snapshot.t + 1e-9) // every_s > (s.snapshot.t - s.snapshot.window_s + 1e-9) // every_s
    ]


def _must_be_history(history: History) -> None:
    if not isinstance(history, History):
        raise MetricError(f"history {history!r}"[:100], expected="a History", fix="pass what run() returns")


def _must_have_steps(history: History) -> None:
    _must_be_history(history)
    if not len(history):
        raise MetricError(f"history {history!r}"[:100], expected="a History with steps", fix="pass what run() returns")
