"""What a window of an engine looks like to a policy: sums become rates and shares."""

from __future__ import annotations

from ..core import Deployment, OperatorMetrics, Snapshot, Topology
from ..plant import Plant, Silence
from .engine import Window
from .fluid_steady import TRACE
from .layout import Array, Layout


def snapshot(
    w: Window,
    topology: Topology,
    plant: Plant,
    layout: Layout,
    deployment: Deployment,
    *,
    t: float,
    window_s: float,
    dead_s: float,
) -> Snapshot:
    """The window of `window_s` seconds that ended at `t`; in `dead_s` of them an operator had no node."""
    silent = {f.operator for f in plant.faults if isinstance(f, Silence) and f.at_s < t and f.until_s > t - window_s}
    columns = (w.arrived, w.done, w.dropped, w.busy, w.blocked, w.cpu, w.waited_s, w.queue, layout.instances)
    rows = dict(zip(topology.order, zip(*(c.tolist() for c in columns), strict=True), strict=True))
    sent = dict(zip(topology.edges, (w.sent / window_s).tolist(), strict=True))
    operators = {}
    for name, (arrived, done, dropped, busy, blocked, cpu, waited, queue, k) in rows.items():
        if children := topology.downstream(name):
            out = sum(sent[name, child] for child in children)
        else:
            out = done * plant.services[name].results / window_s
        if name not in silent:
            operators[name] = OperatorMetrics(
                input_rate=arrived / window_s,
                processing_rate=done / window_s,
                output_rate=out,
                true_rate=done / busy if busy > 0 and done > TRACE else None,
                utilisation=min(1.0, busy / (window_s * k)),
                backlog=max(0.0, queue),
                parallelism=k,
                cpu=cpu / window_s,
                blocked=min(1.0, blocked / (window_s * k)),
                dropped=dropped / window_s,
                waited_s=waited if waited >= 0 else None,
            )
    return Snapshot(
        t=t,
        window_s=window_s,
        deployment=deployment,
        operators=operators,
        source_rates={name: rows[name][0] / window_s for name in topology.sources},
        throughput=w.ended / window_s,
        latency=w.latency,
        event_latency=w.event_latency,
        lag=sum(rows[name][7] for name in topology.sources),
        edge_rates=sent,
        nodes=node_shares(w.cores / window_s, plant, layout, deployment.workers),
        downtime_s=min(float(max(w.stopped, dead_s)), window_s),
        law=plant.law,
    )


def node_shares(cores: Array, plant: Plant, layout: Layout, workers: int | None) -> dict[str, float]:
    """Share of each node's cores in use, the engine's own included, on nodes that the job may use or does."""
    usable, shares = workers or len(cores), {}
    for j, (name, node) in enumerate(plant.nodes.items()):
        if j < usable or layout.here[j].any():
            engine = node.overhead_cores if layout.cores[j] else 0.0
            shares[name] = min(1.0, (float(cores[j]) * (1 + node.overhead_share) + engine) / node.cores)
    return shares
