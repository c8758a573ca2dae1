"""Measurements of one window: per operator, of latency, and of the whole job.

All rates are records/s and all times are seconds. A quantity that was not measured is None.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .errors import MetricError
from .topology import Deployment, Edge
from .validation import FrozenMap, choice

EXECUTIONS = ("pipelined", "micro-batch")
_ROUNDING = 1e-6  # a meter that divides may report slightly more than the whole window


@dataclass(frozen=True)
class InstanceMetrics:
    """Measurements of one instance of an operator in one window.

    Parameters
    ----------
    processing_rate : float
        Records/s taken from its queue and finished.
    utilisation : float
        Share of the window in which it was busy, 0 to 1.
    backlog : float, optional
        Records waiting for it; None for an instance of a source, whose log belongs to all.
    cpu : float, optional
        Cores in use.
    memory_bytes : float, optional
        Memory of its process at the end of the window, without files that it maps.

    Examples
    --------
    >>> InstanceMetrics(100, utilisation=0.4, backlog=0).cpu is None
    True
    """

    processing_rate: float
    utilisation: float
    backlog: float | None = None
    cpu: float | None = None
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        optional = [name for name in ("backlog", "cpu", "memory_bytes") if getattr(self, name) is not None]
        _check_numbers(self, "processing_rate", "utilisation", *optional)
        _check_shares(self, "utilisation")


@dataclass(frozen=True)
class OperatorMetrics:
    """Measurements of one operator in one window, summed over its instances.

    Shares of time refer to the whole window, downtime included. A quantity that was not measured is None.

    Parameters
    ----------
    input_rate : float
        Records/s that arrive at the operator's queue.
    processing_rate : float
        Records/s taken from the queue and finished.
    output_rate : float
        Records/s sent over all outgoing edges; for a sink, its results.
    true_rate : float, optional
        Records/s that one instance could process if it never waited: records per useful time (DS2). None if idle.
    utilisation : float
        Share of the time in which an instance was busy, 0 to 1.
    backlog : float
        Records waiting; for a source, those in its log.
    parallelism : int
        Number of instances.
    cpu : float, optional
        Cores in use, over all instances.
    blocked : float, optional
        Share of the time in which an instance was back-pressured, 0 to 1.
    dropped : float
        Records/s rejected or lost.
    waited_s : float, optional
        Mean time of a record in the queue.
    instances : tuple of InstanceMetrics, optional
        Measurements of each instance, in the order of their numbers.
    state_keys : float, optional
        Keys of which the operator keeps state.
    state_bytes : float, optional
        Bytes of that state on disk.
    late_rate : float, optional
        Records/s that came too late for event time, and were dropped or sent to a receiver of their own; None for an
        operator without event time.

    Examples
    --------
    >>> OperatorMetrics(100, 100, 200, true_rate=250, utilisation=0.4, backlog=0, parallelism=1).blocked is None
    True
    """

    input_rate: float
    processing_rate: float
    output_rate: float
    true_rate: float | None
    utilisation: float
    backlog: float
    parallelism: int
    cpu: float | None = None
    blocked: float | None = None
    dropped: float = 0.0
    waited_s: float | None = None
    state_keys: float | None = None
    state_bytes: float | None = None
    instances: tuple[InstanceMetrics, ...] | None = None
    late_rate: float | None = None

    def __post_init__(self) -> None:
        mine = self.__dict__
        for name in _METRICS:
            value = mine[name]
            if type(value) is not float or not 0 <= value < math.inf:  # a fast path, as this runs in every window
                if value is None and name in _UNKNOWN:
                    continue
                _check_value(f"OperatorMetrics.{name}", value)
        try:
            counted = operator.index(self.parallelism) >= 1
        except TypeError:
            counted = False
        if not counted:
            raise MetricError(
                f"parallelism {self.parallelism!r}", expected="a whole number from 1 up", fix="count the instances"
            )
        _check_shares(self, "utilisation", "blocked")
        if self.instances is not None:
            object.__setattr__(self, "instances", tuple(self.instances))
            if len(self.instances) != self.parallelism or not all(type(i) is InstanceMetrics for i in self.instances):
                raise MetricError(
                    f"instances {self.instances!r:.200} beside parallelism {self.parallelism}",
                    expected="one InstanceMetrics for each instance",
                    fix="measure all of them, or pass None",
                )

    @property
    def skew(self) -> float | None:
        """Utilisation of the busiest instance over the mean: 1 if all are equally busy; None if it is not known.

        Examples
        --------
        >>> instances = InstanceMetrics(80, utilisation=0.9), InstanceMetrics(20, utilisation=0.3)
        >>> OperatorMetrics(100, 100, 100, 83, utilisation=0.6, backlog=0, parallelism=2, instances=instances).skew
        1.5
        """
        busy = [instance.utilisation for instance in self.instances or ()]
        return max(busy) * len(busy) / sum(busy) if sum(busy) > 0 else None


_METRICS = tuple(f.name for f in fields(OperatorMetrics) if f.name != "instances")
_UNKNOWN = ("true_rate", "cpu", "blocked", "waited_s", "state_keys", "state_bytes", "late_rate")  # None if not measured


@dataclass(frozen=True)
class Latency:
    """Seconds from source to sink: the mean and three percentiles.

    Parameters
    ----------
    mean, p50, p95, p99 : float
        Mean, median, 95th and 99th percentile.

    Examples
    --------
    >>> Latency(0.2, 0.1, 0.5, 0.9).p95
    0.5
    """

    mean: float
    p50: float
    p95: float
    p99: float

    def __post_init__(self) -> None:
        _check_numbers(self, "mean", "p50", "p95", "p99")


@dataclass(frozen=True)
class Snapshot:
    """Measurements of a backend in the window of `window_s` seconds that ended at `t`.

    Parameters
    ----------
    t : float
        End of the window, in seconds since the start of the run.
    window_s : float
        Length of the window.
    deployment : Deployment
        The deployment that ran in the window.
    operators : mapping
        OperatorMetrics by operator; an operator whose metrics did not arrive is missing.
    source_rates : mapping
        Records/s offered to each source.
    throughput : float
        Source records/s whose processing ended, each counted once.
    latency : Latency, optional
        From leaving the source's log to the sink; None if no record reached a sink.
    event_latency : Latency, optional
        The same, plus the wait in the source's log.
    lag : float
        Records waiting in the sources' logs.
    edge_rates : mapping
        Records/s by edge.
    nodes : mapping
        Share of each node's cores in use.
    downtime_s : float
        Part of the window in which the job did not run because of a change or a failure.
    commit_s : float
        Part of the window in which no task ran because an epoch was committed and the next one planned, as happens at
        the end of every epoch of a live job; it is not part of `downtime_s`.
    last_selectivities : mapping
        Selectivities by edge as they were last measured before this window, for edges along which this window measured
        none; None where there has been no measurement yet. The control loop fills it in.
    delays : mapping
        Delay in seconds by pair of nodes, as half of the least round trip between them in the last seconds; a pair is
        listed once, and those that were not measured are missing.
    last_change_t, last_change_s : float, optional
        When the last change of the deployment began that is over, and what it cost until the former throughput was
        back (`recoveries`): the seconds without processing, or those that the former throughput would have needed for
        what was not processed, if they are more. None before. The control loop fills them in.
    execution : {"pipelined", "micro-batch"}
        Whether operators work at the same time, so that the slowest limits the job, or take turns as stages of a
        micro-batch, so that their times add up.

    Examples
    --------
    >>> count = OperatorMetrics(100, 100, 100, true_rate=250, utilisation=0.4, backlog=0, parallelism=1)
    >>> snapshot = Snapshot(10, 10, Deployment({"read": 1}), {"read": count}, {"read": 100}, 100, None, None, 0, {})
    >>> snapshot.source_rate, snapshot.execution
    (100, 'pipelined')
    """

    t: float
    window_s: float
    deployment: Deployment
    operators: Mapping[str, OperatorMetrics]
    source_rates: Mapping[str, float]
    throughput: float
    latency: Latency | None
    event_latency: Latency | None
    lag: float
    edge_rates: Mapping[Edge, float]
    nodes: Mapping[str, float] = field(default_factory=FrozenMap)
    downtime_s: float = 0.0
    execution: str = "pipelined"
    commit_s: float = 0.0
    last_selectivities: Mapping[Edge, float | None] = field(default_factory=FrozenMap)
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)
    last_change_t: float | None = None
    last_change_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("operators", "source_rates", "edge_rates", "nodes", "last_selectivities", "delays"):
            if type(given := getattr(self, name)) is not FrozenMap:
                object.__setattr__(self, name, FrozenMap(given))
        _check_numbers(self, "t", "window_s", "throughput", "lag", "downtime_s", "commit_s")
        if not (self.window_s > 0 and self.downtime_s + self.commit_s <= self.window_s * (1 + _ROUNDING)):
            raise MetricError(
                f"window_s={self.window_s}, downtime_s={self.downtime_s}, commit_s={self.commit_s}",
                expected="0 <= downtime_s + commit_s <= window_s, and window_s > 0",
                fix="report each window by itself, and each stop as one of the two",
            )
        choice(self.execution, "execution", EXECUTIONS, error=MetricError)
        for name in ("last_change_t", "last_change_s"):
            if getattr(self, name) is not None:
                _check_numbers(self, name)
        for edge, value in self.last_selectivities.items():
            if value is not None and (type(value) is not float or not 0 <= value < math.inf):
                _check_value(f"last_selectivities[{edge!r}]", value)
        for name in ("source_rates", "edge_rates", "nodes", "delays"):
            for key, value in getattr(self, name).items():
                if type(value) is not float or not 0 <= value < math.inf:
                    _check_value(f"{name}[{key!r}]", value)

    @property
    def source_rate(self) -> float:
        """Records/s offered to all sources together."""
        return sum(self.source_rates.values())

    @property
    def dropped(self) -> float:
        """Records/s that the operators rejected or lost."""
        return sum(m.dropped for m in self.operators.values())

    @property
    def demand(self) -> FrozenMap[str, float]:
        """Records/s that would arrive at each operator if no operator upstream were back-pressured.

        The rates offered to the sources, sent down the graph with the selectivities of the window; where the window
        measured none, with the last ones measured before it. Records that already wait are not part of it. An operator
        whose demand cannot be computed is missing.

        Examples
        --------
        >>> read = OperatorMetrics(100, 50, 150, true_rate=250, utilisation=0.2, backlog=50, parallelism=1, blocked=0.8)
        >>> load, rates = {"read": 100}, {("read", "count"): 150}
        >>> Snapshot(10, 10, Deployment({"read": 1}), {"read": read}, load, 50, None, None, 50, rates).demand
        {'read': 100, 'count': 300.0}
        """
        senders: dict[str, list[str]] = {name: [] for name in self.source_rates}
        for start, end in dict.fromkeys((*self.edge_rates, *self.last_selectivities)):
            senders.setdefault(start, [])
            senders.setdefault(end, []).append(start)
        try:
            order = list(TopologicalSorter(senders).static_order())
        except CycleError as error:
            raise MetricError(
                f"edges in a cycle: {' -> '.join(error.args[1])}",
                expected="the edges of an acyclic graph",
                fix="check what the backend reports as edge_rates",
            ) from None
        found = demands({name: senders[name] for name in order}, self.source_rates, self.latest_selectivity)
        return FrozenMap({name: rate for name, rate in found.items() if rate is not None})

    def following(self, before: Snapshot | None, edges: Iterable[Edge]) -> Snapshot:
        """Return this snapshot with the selectivities last measured before it, of edges along which it has none.

        Parameters
        ----------
        before : Snapshot, optional
            The snapshot of the window before, which has the selectivities of earlier ones.
        edges : iterable of (str, str)
            All edges of the topology.

        Examples
        --------
        >>> read = OperatorMetrics(100, 50, 150, true_rate=250, utilisation=0.2, backlog=50, parallelism=1)
        >>> load, rates = {"read": 100}, {("read", "count"): 150}
        >>> first = Snapshot(10, 10, Deployment({"read": 1}), {"read": read}, load, 50, None, None, 50, rates)
        >>> idle = replace(first, t=20, operators={}, edge_rates={}).following(first, rates)
        >>> idle.selectivity(("read", "count")), idle.last_selectivities, idle.demand["count"]
        (None, {('read', 'count'): 3.0}, 300.0)
        """
        missing = [e for e in edges if self.latest_selectivity(e) is None]
        if not missing:
            return self
        known = {e: None if before is None else before.latest_selectivity(e) for e in missing}
        return replace(self, last_selectivities={**self.last_selectivities, **known})

    def selectivity(self, edge: Edge) -> float | None:
        """Return the records sent along `edge` per record processed at its start; None if none was processed.

        Parameters
        ----------
        edge : (str, str)
            Start and end of the edge.

        Examples
        --------
        >>> read = OperatorMetrics(100, 100, 200, true_rate=250, utilisation=0.4, backlog=0, parallelism=1)
        >>> load, rates = {"read": 100}, {("read", "count"): 200}
        >>> snapshot = Snapshot(10, 10, Deployment({"read": 1}), {"read": read}, load, 100, None, None, 0, rates)
        >>> snapshot.selectivity(("read", "count"))
        2.0
        """
        start = self.operators.get(edge[0])
        if start is None or start.processing_rate == 0 or edge not in self.edge_rates:
            return None
        return self.edge_rates[edge] / start.processing_rate

    def latest_selectivity(self, edge: Edge) -> float | None:
        """Return the selectivity of the edge in this window, or else the last one before it; None if there is neither.

        Parameters
        ----------
        edge : (str, str)
            Start and end of the edge.

        Examples
        --------
        >>> last = {("read", "count"): 3.0}
        >>> idle = Snapshot(10, 10, Deployment({"read": 1}), {}, {}, 0, None, None, 0, {}, last_selectivities=last)
        >>> idle.selectivity(("read", "count")), idle.latest_selectivity(("read", "count"))
        (None, 3.0)
        """
        measured = self.selectivity(edge)
        return self.last_selectivities.get(edge) if measured is None else measured


def demands(
    senders: Mapping[str, Iterable[str]],
    offered: Mapping[str, float],
    selectivity: Callable[[Edge], float | None],
) -> dict[str, float | None]:
    """Return the records/s that each operator is sent if all operators keep up; None if unknown.

    One pass in topological order, unrounded: $t_i = \\sum_p s_{p \\to i} t_p$.

    Parameters
    ----------
    senders : mapping
        Upstream operators by operator, in topological order.
    offered : mapping
        Records/s offered to each operator without upstream operators.
    selectivity : callable
        Function from an edge to the records sent along it per record processed at its start, or None.

    Examples
    --------
    >>> demands({"read": (), "split": ("read",)}, {"read": 100}, {("read", "split"): 10.0}.get)
    {'read': 100, 'split': 1000.0}
    """
    demand: dict[str, float | None] = {}
    for name, parents in senders.items():
        if not parents:
            demand[name] = offered.get(name)
            continue
        total: float | None = 0.0
        for parent in parents:
            t, s = demand[parent], selectivity((parent, name))
            if t == 0:
                continue  # no records arrive from there, whatever the selectivity
            total = None if total is None or t is None or s is None else total + s * t
        demand[name] = total
    return demand


def _check_numbers(thing: Any, *names: str) -> None:
    for name in names:
        value = getattr(thing, name)
        if type(value) is not float or not 0 <= value < math.inf:  # a fast path, as this runs in every window
            _check_value(f"{type(thing).__name__}.{name}", value)


def _check_shares(thing: Any, *names: str) -> None:
    for name in names:
        share = getattr(thing, name)
        if share is not None and share > 1:
            if share > 1 + _ROUNDING:
                raise MetricError(f"{name} {share}", expected="a share 0..1", fix="divide by the window")
            object.__setattr__(thing, name, 1.0)


def _check_value(what: str, value: Any) -> None:
    """Raise a MetricError unless the value is finite and not negative; times count from the start of the run."""
    try:
        good = math.isfinite(value) and value >= 0
    except TypeError:
        good = False
    if not good:
        raise MetricError(
            f"{what} = {value!r}", expected="a finite number >= 0", fix="check the meter, or leave the operator out"
        )
