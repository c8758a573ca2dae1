"""The plant behind a live run: the estimates of `fit`, and the overheads of the engine rather than of an operator."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median
from typing import TYPE_CHECKING

from ...core import History, Snapshot
from ..system import Link, Node, Plant
from .fit import fit

if TYPE_CHECKING:
    from ...core import Deployment


FULL = 0.9  # utilisation beyond which an operator is full
_SLOTS = 64  # fewest nodes of the plant: each instance runs on its own
_CLOSE = 0.05  # relative difference up to which throughput and offered rate are the same


def fit_live(history: History) -> Plant:
    """Estimate the plant of a job whose operators wait for others more than they compute.

    Service times, selectivities and contention are those of `fit`. The utilisation of the machine is left out, as
    operators that wait do not depend on what else uses its cores. Two quantities come from the windows themselves: the
    time of records in transit from operator to operator (in windows that keep up, the part of the latency that the
    operators do not explain), and the queue of an operator that is full (the records that wait there, while the rest
    stays in the log).

    Parameters
    ----------
    history
        The recorded run.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> app = apps.word_count()
    >>> plant = fit_live(run("ds2", app, steps=60))
    >>> bool(abs(plant.services["count"].seconds_per_record * 30e3 - 1) < 0.1)
    True
    """
    topology = history.topology
    found = fit(History(topology, [replace(s, snapshot=replace(s.snapshot, nodes={})) for s in history])).plant
    seen = [step.snapshot for step in history]
    services = dict(found.services)
    for name in topology.order:
        full = [s.operators[name] for s in seen if name in s.operators and s.operators[name].utilisation > FULL]
        if full and topology.upstream(name):
            room = max(1.0, median(m.backlog / m.parallelism for m in full))
            services[name] = replace(services[name], queue_records=room)
    most = max((s.deployment.instances for s in seen), default=0)
    apart = {f"slot {i}": Node() for i in range(max(_SLOTS, most))}  # so that links lie between all instances
    made = replace(found, services=services, nodes=apart, noise=0.0)
    ages = {(s.deployment, round(s.source_rate)): s.latency.mean for s in seen if s.latency and keeps_up(s)}
    left = [age - predict(history, made, deployment, rate)[1] for (deployment, rate), age in ages.items()]
    delay = max(0.0, mean(left)) / max(1, _depth(history)) if left else 0.0
    return replace(made, network=Link(delay_s=delay))


def keeps_up(s: Snapshot) -> bool:
    """Return whether the job processed the load, with no backlog from before, and capacity to spare.

    Parameters
    ----------
    s
        The snapshot of a window.

    Examples
    --------
    >>> from dspkit import apps
    >>> app = apps.word_count()
    >>> [keeps_up(app.simulator(parallelism=k).observe()) for k in (1, 16)]
    [False, True]
    """
    calm = all(m.utilisation <= FULL for m in s.operators.values())
    return calm and not s.downtime_s and s.source_rate > 0 and abs(s.throughput / s.source_rate - 1) < _CLOSE


def predict(history: History, plant: Plant, deployment: Deployment, rate: float) -> tuple[float, float]:
    """Return the throughput and mean latency of a plant for the job of a run at a steady rate.

    Parameters
    ----------
    history
        The run, which has the topology.
    plant
        The simulated cluster.
    deployment
        The deployment to simulate.
    rate
        The load over all sources, in records/s.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> app = apps.word_count()
    >>> history = run("static", app, steps=2)
    >>> throughput, latency_s = predict(history, app.plant, history[0].snapshot.deployment, 1000.0)
    >>> round(throughput), latency_s < 0.1
    (1000, True)
    """
    from ...workload import Constant
    from ..simulator import Simulator

    sources = history.topology.sources
    load = {name: Constant(rate / len(sources)) for name in sources}
    simulator = Simulator(history.topology, plant, load, deployment=deployment, window_s=10)
    seen = [simulator.observe() for _ in range(4)][2:]
    return mean(s.throughput for s in seen), mean(s.latency.mean if s.latency else 0.0 for s in seen)


def _depth(history: History) -> int:
    """Return the number of edges on the longest path through the graph."""
    topology, depth = history.topology, dict[str, int]()
    for name in topology.order:
        depth[name] = max((depth[u] + 1 for u in topology.upstream(name)), default=0)
    return max(depth.values())
