"""The quantities by which policies judge a job: the use of instances, the load of an operator, the run of a deployment.

The papers measure CPU and arrivals, on engines whose queues drop or grow. On an engine with back-pressure both can hide
an overload: work that waits for a server uses no CPU, and full queues stop those who would send, until all arrivals
look bearable. So each signal has a choice that sees the overload anyway, which is the default, and the paper's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import NamedTuple, Self

from ..core import Deployment, FrozenMap, Latency, OperatorMetrics, PolicyKnobs, Snapshot, knob
from ..etp import held_back

SIGNALS = ("auto", "cpu", "busy")
LOADS = ("demand", "arrivals")
COMMITS = ("measured", "ignored")
_LEAST = 0.5  # least share that commits explain: below it something else, such as a sink, holds the job up
CHANGES = 9  # that the cost of a change is learned from


def signal_knob() -> str:
    """Return the knob for the measure of use."""
    made: str = knob("auto", "measure of use: CPU, busy time, or the larger of both (auto)", choices=SIGNALS)
    return made


def load_knob() -> str:
    """Return the knob for the load of an operator."""
    made: str = knob(
        "demand",
        "load: arrivals, or under back-pressure those that there would be without it (demand)",
        choices=LOADS,
        source="arrivals, on engines without back-pressure",
    )
    return made


def uses(metrics: OperatorMetrics | None, signal: str = "auto") -> tuple[float, ...] | None:
    """Return the share of a core, or of its time, that each instance uses; None if it was not measured.

    Without metrics of instances each has the mean.
    """
    if metrics is None or (signal == "cpu" and metrics.cpu is None):
        return None
    each, k = metrics.instances or (), metrics.parallelism
    busy = tuple(i.utilisation for i in each) or (metrics.utilisation,) * k
    if signal == "busy" or metrics.cpu is None:
        return busy
    mean = metrics.cpu / k
    cpu = tuple(mean if i.cpu is None else i.cpu for i in each) or (mean,) * k
    return cpu if signal == "cpu" else tuple(map(max, cpu, busy))


def mean_use(metrics: OperatorMetrics | None, signal: str = "auto") -> float | None:
    """Return the mean of `uses`."""
    found = uses(metrics, signal)
    return None if found is None else fmean(found)


def fullest(metrics: OperatorMetrics | None, signal: str = "auto") -> float | None:
    """Return the greatest of `uses`."""
    found = uses(metrics, signal)
    return None if found is None else max(found)


def shares(metrics: OperatorMetrics) -> tuple[float, ...]:
    """Return the share of the operator's records that each instance processes; equal shares if it is not known."""
    done = [i.processing_rate for i in metrics.instances or ()]
    total = sum(done)
    return tuple(d / total for d in done) if total > 0 else (1 / metrics.parallelism,) * metrics.parallelism


def arrivals(snapshot: Snapshot, load: str = "demand") -> dict[str, float]:
    """Return the records/s that arrive at each operator, or would arrive without back-pressure."""
    measured = {name: m.input_rate for name, m in snapshot.operators.items()}
    if load == "demand" and held_back(snapshot):
        measured |= {name: rate for name, rate in snapshot.demand.items() if name in measured}
    return measured


def commits_knob() -> str:
    """Return the knob for the time that instances lose at commits."""
    made: str = knob(
        "measured",
        "time that instances lose where an engine ends an epoch, drains and commits: measured, or ignored",
        choices=COMMITS,
        source="ignored, on engines whose records never stop",
    )
    return made


class Attained(NamedTuple):
    """The share of its time that an operator can be busy on an engine that works in epochs.

    At the end of an epoch sources stop, records in flight are processed, and the result is committed: instances wait,
    although records wait in the log. A true rate, R / T_u, does not know of this time. A job that falls further behind
    over a whole epoch does all that it can: its busiest operator then attains the share. An epoch in which an operator
    was busier shows that more is possible.
    """

    share: float = 1.0
    deployment: Deployment | None = None
    lag: float = math.inf  # at the end of the last epoch
    least: float = math.inf  # in the present epoch; at its end, after the stop, more waits in any job
    seconds: float = 0.0  # in the present epoch
    busy: Mapping[str, float] = FrozenMap()  # seconds of the fullest instance of each operator in it

    def after(self, snapshot: Snapshot) -> Attained:
        """Return the share with one more window; an epoch ends where a window has a commit.

        In micro-batches operators take turns, so that none is busy all the time anyway: they say nothing.
        """
        if snapshot.execution != "pipelined":
            return self
        if self.deployment != snapshot.deployment or snapshot.downtime_s > 0:
            return Attained(self.share, snapshot.deployment)  # the epoch is not whole
        busy = {n: self.busy.get(n, 0.0) + snapshot.window_s * _busiest(m) for n, m in snapshot.operators.items()}
        least = min(self.least, snapshot.lag)
        seen = self._replace(least=least, seconds=self.seconds + snapshot.window_s, busy=FrozenMap(busy))
        if not snapshot.commit_s or not self.seconds:  # a commit may reach into a second window
            return seen
        behind = snapshot.lag > self.lag and least > snapshot.source_rate
        full = max(busy.values(), default=0.0) / seen.seconds
        share = full if behind and full >= _LEAST else max(self.share, full)
        return Attained(min(1.0, share), snapshot.deployment, snapshot.lag)


def _busiest(metrics: OperatorMetrics) -> float:
    return fullest(metrics, "busy") or 0.0


def whole_epochs(windows: Sequence[Snapshot], seconds: float) -> tuple[Snapshot, ...]:
    """Return the last windows, of `seconds` or more: as many as make whole epochs, if two ends of an epoch are known.

    The windows at the end of an epoch differ from the others, so that those of a part of one mislead.
    """
    ends = [s.t for i, s in enumerate(windows) if s.commit_s > 0 and not (i and windows[i - 1].commit_s > 0)]
    epoch_s = ends[-1] - ends[-2] if len(ends) > 1 else 0.0
    wanted = math.ceil(seconds / epoch_s - 1e-9) * epoch_s if epoch_s else seconds
    return tuple(s for s in windows if s.t > windows[-1].t - wanted + 1e-6)


class ChangeCost(NamedTuple):
    """The cost of the changes that a policy decided, beside its model: the time lost until the former rate was back.

    `error_s` is the median difference over the last changes, by which the model's time for any change is off.
    """

    counted_t: float | None = None  # begin of the last change that is over
    predicted_s: float | None = None  # of the change that was decided last
    errors: tuple[float, ...] = ()

    def after(self, snapshot: Snapshot) -> ChangeCost:
        """Return the costs with one more window."""
        t, seconds = snapshot.last_change_t, snapshot.last_change_s
        if t is None or seconds is None or t == self.counted_t:
            return self
        if self.predicted_s is None:  # a change by hand
            return self._replace(counted_t=t)
        return ChangeCost(t, None, (*self.errors, seconds - self.predicted_s)[-CHANGES:])

    @property
    def error_s(self) -> float:
        """Seconds to add to the model's."""
        return median(self.errors) if self.errors else 0.0


def change_cost_knob() -> str:
    """Return the knob for the source of a change's cost."""
    made: str = knob(
        "model",
        "seconds that any change takes: given, or corrected by those that were lost in the changes so far (measured)",
        choices=("model", "measured"),
        source="model, nardelli",
    )
    return made


class LearnsChangeCost(PolicyKnobs):
    """Base class of policies with a knob `change_cost`: in their live preset the cost of a change is measured."""

    def live(self, seconds: float = 120.0) -> Self:
        # The cost of a change is measured: Storm's six seconds are not Spark's.
        return replace(super().live(seconds), change_cost="measured")  # type: ignore[call-arg]


class DeploymentRun(NamedTuple):
    """The measurements of a deployment so far; windows within the warm-up are not in `snapshot`."""

    deployment: Deployment | None = None
    began: float = 0.0
    warm: bool = False
    snapshot: Snapshot | None = None
    latencies: tuple[float, ...] = ()  # mean of each window in seconds

    def watch(self, snapshot: Snapshot, warm_up_s: float, longest_s: float) -> DeploymentRun:
        """Return the run with one more window, or a new run if the deployment was changed from outside.

        While the job drains a second's worth of log or more, its metrics are not typical: measuring begins again
        afterwards, or after `longest_s`.
        """
        run = self
        if run.deployment != snapshot.deployment:
            run = DeploymentRun(snapshot.deployment, snapshot.t - snapshot.window_s)
        if not run.warm and snapshot.t - snapshot.window_s - run.began < warm_up_s - 1e-6:
            return run
        drains = snapshot.lag > snapshot.source_rate and snapshot.throughput > snapshot.source_rate
        if drains and snapshot.t - run.began < longest_s - 1e-6:
            return run._replace(snapshot=None, latencies=())
        seen = snapshot if run.snapshot is None else merge_stretches(run.snapshot, snapshot)
        late = () if snapshot.latency is None else (snapshot.latency.mean,)
        return run._replace(snapshot=seen, latencies=run.latencies + late)

    def again(self, t: float) -> DeploymentRun:
        """Return a new measurement of the same deployment from now on."""
        return DeploymentRun(self.deployment, t, warm=True)

    @property
    def measured_s(self) -> float:
        """Length of the merged windows."""
        return self.snapshot.window_s if self.snapshot is not None else 0.0


def merge_stretches(a: Snapshot, b: Snapshot) -> Snapshot:
    """Merge two stretches of one deployment: rates weighted by time, true rates by busy time, latencies by records."""
    wa, wb = a.window_s, b.window_s

    def mean(x: float, y: float) -> float:
        return (x * wa + y * wb) / (wa + wb)

    operators = {}
    for name in {**a.operators, **b.operators}:
        x, y = a.operators.get(name), b.operators.get(name)
        if x is None or y is None:
            operators[name] = x or y
            continue
        operators[name] = OperatorMetrics(
            mean(x.input_rate, y.input_rate),
            mean(x.processing_rate, y.processing_rate),
            mean(x.output_rate, y.output_rate),
            _true_rate(x, y, wa, wb),
            mean(x.utilisation, y.utilisation),
            y.backlog,
            y.parallelism,
        )
    return Snapshot(
        t=b.t,
        window_s=wa + wb,
        deployment=b.deployment,
        operators={n: m for n, m in operators.items() if m is not None},
        source_rates={n: mean(a.source_rates.get(n, r), r) for n, r in b.source_rates.items()},
        throughput=mean(a.throughput, b.throughput),
        latency=_latency(a, b),
        event_latency=None,
        lag=b.lag,
        edge_rates={e: mean(a.edge_rates.get(e, r), r) for e, r in b.edge_rates.items()},
        execution=b.execution,
        last_selectivities=b.last_selectivities,
    )


def _true_rate(x: OperatorMetrics, y: OperatorMetrics, wa: float, wb: float) -> float | None:
    """Return R / T_u over both stretches."""
    if not x.true_rate or not y.true_rate:
        return x.true_rate or y.true_rate
    done = x.processing_rate * wa, y.processing_rate * wb
    busy = done[0] / x.true_rate + done[1] / y.true_rate
    return sum(done) / busy if busy > 0 else y.true_rate


def _latency(a: Snapshot, b: Snapshot) -> Latency | None:
    x, y = a.latency, b.latency
    if x is None or y is None:
        return x or y
    ended = a.throughput * a.window_s, b.throughput * b.window_s
    share = ended[0] / sum(ended) if sum(ended) > 0 else 0.5
    parts = (share * getattr(x, f) + (1 - share) * getattr(y, f) for f in ("mean", "p50", "p95", "p99"))
    return Latency(*parts)
