"""The plant behind a live run: what `fit` finds, and what is no operator's but the engine's."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean, median
from typing import TYPE_CHECKING

from ..core import Snapshot
from ..history import History
from .cluster import Link, Node
from .fit import fit
from .plant import Plant

if TYPE_CHECKING:
    from ..core import Deployment

FULL = 0.9  # utilisation beyond which an operator is full
_SLOTS = 64  # at least: each instance runs in its own
_CLOSE = 0.05  # throughput and offered rate are the same up to this share


def fit_live(history: History) -> Plant:
    """The plant of a job whose operators wait for others more than they compute.

    Service times, selectivities and contention are `fit`'s. The busy share of the machine is left out: operators that
    wait do not care who else keeps its cores busy. Two things come from the windows themselves: the time that records
    spend on their way from operator to operator (in windows that keep up, what the operators do not explain), and the
    room before an operator that is full (what waits there, while the rest stays in the log).
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
    """Whether the job did what came, with nothing left from before, and room to spare."""
    calm = all(m.utilisation <= FULL for m in s.operators.values())
    return calm and not s.downtime_s and s.source_rate > 0 and abs(s.throughput / s.source_rate - 1) < _CLOSE


def predict(history: History, plant: Plant, deployment: Deployment, rate: float) -> tuple[float, float]:
    """Throughput and mean latency that a plant has for the run's job at a steady rate."""
    from ..simulator import Simulator
    from ..workload import Constant

    sources = history.topology.sources
    load = {name: Constant(rate / len(sources)) for name in sources}
    simulator = Simulator(history.topology, plant, load, deployment=deployment, window_s=10)
    seen = [simulator.observe() for _ in range(4)][2:]
    return mean(s.throughput for s in seen), mean(s.latency.mean if s.latency else 0.0 for s in seen)


def _depth(history: History) -> int:
    """Links on the longest way through the graph."""
    topology, depth = history.topology, dict[str, int]()
    for name in topology.order:
        depth[name] = max((depth[u] + 1 for u in topology.upstream(name)), default=0)
    return max(depth.values())
