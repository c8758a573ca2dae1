"""The types every part of dspkit speaks: what runs, what was measured, what was decided.

All rates are records/s and all times seconds. What can run (Operator, Topology, Deployment) is in structure.py.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from .errors import MetricError
from .frozen import FrozenMap, plain
from .structure import Deployment, Edge, Operator, Topology

LAWS = ("pipeline", "sequential")
_ROUNDING = 1e-6  # meters that divide may end up a little above a whole share

__all__ = [
    "Backend", "Decision", "Deployment", "Edge", "Latency", "Operator", "OperatorMetrics", "Policy", "Snapshot",
    "Step", "Topology",
]  # fmt: skip


@dataclass(frozen=True)
class OperatorMetrics:
    """What one operator did during a window; rates in records/s, summed over its instances.

    What was not measured is None. Shares of the time are of the whole window, downtime included.
    """

    input_rate: float  # arriving at its queue
    processing_rate: float  # taken from the queue and finished
    output_rate: float  # sent on, over all outgoing edges; a sink's results
    true_rate: float | None  # of ONE instance that never waits: records / useful time; None if it did nothing
    utilisation: float  # share of its time that an instance was busy, 0..1
    backlog: float  # records waiting; for a source those in its log
    parallelism: int
    cpu: float | None = None  # cores in use, over all instances
    blocked: float | None = None  # share of its time that an instance was held back by what it feeds, 0..1
    dropped: float = 0.0  # records/s refused or lost
    waited_s: float | None = None  # mean time of a record in the queue

    def __post_init__(self) -> None:
        mine = self.__dict__
        _check_numbers(self, *[name for name in _METRICS if name not in _UNKNOWN or mine[name] is not None])
        try:
            counted = operator.index(self.parallelism) >= 1
        except TypeError:
            counted = False
        if not counted:
            raise MetricError(
                f"parallelism {self.parallelism!r}", expected="a whole number from 1 up", fix="count the instances"
            )
        for name in ("utilisation", "blocked"):
            share = getattr(self, name)
            if share is not None and share > 1:
                if share > 1 + _ROUNDING:
                    raise MetricError(f"{name} {share}", expected="a share 0..1", fix="divide by the window")
                object.__setattr__(self, name, 1.0)


_METRICS = tuple(f.name for f in fields(OperatorMetrics))
_UNKNOWN = ("true_rate", "cpu", "blocked", "waited_s")  # None where they were not measured


@dataclass(frozen=True)
class Latency:
    """Seconds from source to sink: the mean and three percentiles."""

    mean: float
    p50: float
    p95: float
    p99: float

    def __post_init__(self) -> None:
        _check_numbers(self, "mean", "p50", "p95", "p99")


@dataclass(frozen=True)
class Snapshot:
    """What a backend saw during the window of `window_s` seconds that ended at `t`.

    `law` says how operators share the job's capacity: in a "pipeline" they work at the same time and the slowest
    limits all; in "sequential" stages of a micro-batch they take turns, and their times add up.
    """

    t: float
    window_s: float
    deployment: Deployment
    operators: Mapping[str, OperatorMetrics]  # an operator whose meters fell silent is missing
    source_rates: Mapping[str, float]  # records/s offered to each source
    throughput: float  # source records/s whose processing ended, each counted once
    latency: Latency | None  # from leaving the source's log to the sink; None if nothing came out
    event_latency: Latency | None  # the same, and the wait in the source's log
    lag: float  # records waiting in the sources' logs
    edge_rates: Mapping[Edge, float]
    nodes: Mapping[str, float] = field(default_factory=FrozenMap)  # share of each node's cores in use
    downtime_s: float = 0.0  # part of the window in which the job stood still
    law: str = "pipeline"

    def __post_init__(self) -> None:
        for name in ("operators", "source_rates", "edge_rates", "nodes"):
            object.__setattr__(self, name, FrozenMap(getattr(self, name)))
        _check_numbers(self, "t", "window_s", "throughput", "lag", "downtime_s")
        if not (self.window_s > 0 and self.downtime_s <= self.window_s * (1 + _ROUNDING)):
            raise MetricError(
                f"window_s={self.window_s}, downtime_s={self.downtime_s}",
                expected="0 <= downtime_s <= window_s, and window_s > 0",
                fix="report each window by itself",
            )
        if self.law not in LAWS:
            raise MetricError(f"law {self.law!r}", expected=f"one of {', '.join(LAWS)}", fix="see Snapshot")
        for name in ("source_rates", "edge_rates", "nodes"):
            for key, value in getattr(self, name).items():
                _check_value(f"{name}[{key!r}]", value)

    @property
    def source_rate(self) -> float:
        """Records/s offered to all sources together."""
        return sum(self.source_rates.values())

    @property
    def dropped(self) -> float:
        """Records/s that the operators refused or lost."""
        return sum(m.dropped for m in self.operators.values())

    def selectivity(self, edge: Edge) -> float | None:
        """Records sent along `edge` for each record its start processed; None if it processed none."""
        start = self.operators.get(edge[0])
        if start is None or start.processing_rate == 0 or edge not in self.edge_rates:
            return None
        return self.edge_rates[edge] / start.processing_rate


@dataclass(frozen=True)
class Decision:
    """What shall run from now on; `why` is for readers (plots, reports), never for the next step."""

    deployment: Deployment
    why: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", plain(self.why))


@dataclass(frozen=True)
class Step:
    """One round of the loop; `decision` is None in the windows in which a change settles."""

    index: int
    snapshot: Snapshot
    decision: Decision | None
    rescaled: bool = False  # whether the decision was deployed and changed what runs
    settling: int = 0  # windows after this one that are observed and not decided on
    state: Any = field(default=None, repr=False, compare=False)  # the policy's, to resume from; not saved

    @property
    def deployment(self) -> Deployment:
        """What runs from this step on, unless somebody else changes it."""
        return self.decision.deployment if self.rescaled and self.decision else self.snapshot.deployment


@runtime_checkable
class Policy(Protocol):
    """Decides from snapshots alone. Pure: the same state and snapshot give the same answer."""

    @property
    def name(self) -> str: ...
    def init(self, topology: Topology, seed: int = 0) -> Any: ...
    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]: ...


@runtime_checkable
class Backend(Protocol):
    """A job that can be watched and rescaled: simulated, live, or recorded. A context manager."""

    @property
    def topology(self) -> Topology: ...
    @property
    def knobs(self) -> frozenset[str]:
        """The Deployment fields that deploy() can really change here."""
        ...

    @property
    def deployment(self) -> Deployment:
        """What runs, or will from the next window on."""
        ...

    def observe(self) -> Snapshot | None:
        """The next window; None when there is none, as at the end of a recording."""
        ...

    def deploy(self, deployment: Deployment) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: Any) -> None: ...


def _check_numbers(thing: Any, *names: str) -> None:
    for name in names:
        value = getattr(thing, name)
        if type(value) is not float or not 0 <= value < math.inf:  # the quick way out: this runs at every window
            _check_value(f"{type(thing).__name__}.{name}", value)


def _check_value(what: str, value: Any) -> None:
    """Times before zero are as impossible as rates below it: a run starts at 0."""
    try:
        good = math.isfinite(value) and value >= 0
    except TypeError:
        good = False
    if not good:
        raise MetricError(
            f"{what} = {value!r}", expected="a finite number >= 0", fix="check the meter, or leave the operator out"
        )
