"""The quantities by which policies judge an operator: the use of its instances, and the load that arrives at it.

The papers measure CPU and arrivals, on engines whose queues drop or grow. On an engine with back-pressure both can hide
an overload: work that waits for a server uses no CPU, and full queues stop those who would send, until all arrivals
look bearable. So each signal has a choice that sees the overload anyway, which is the default, and the paper's own.
"""

from __future__ import annotations

from statistics import fmean

from ..core import OperatorMetrics, Snapshot, knob
from ..etp import held_back

SIGNALS = ("auto", "cpu", "busy")
LOADS = ("demand", "arrivals")


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
