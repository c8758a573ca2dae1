"""From two sums of the meters to the Snapshot of the window between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core import Deployment, Edge, Latency, OperatorMetrics, Snapshot, Topology
from .collector import Totals
from .meter import middle

_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class Window:
    """What is known about a window but for the meters; times on the job's own clock, seconds."""

    start: float
    end: float
    deployment: Deployment
    law: str
    offered: Mapping[str, float]  # records by source within the window
    lag: Mapping[str, float]  # by source, at its end
    gaps: tuple[tuple[float, float], ...]  # when nothing ran
    nodes: Mapping[str, float]


def snapshot(topology: Topology, names: Sequence[str], window: Window, before: Totals, after: Totals) -> Snapshot:
    """`names` in the order in which the meters number the operators."""
    w = window.end - window.start
    index = {name: i for i, name in enumerate(names)}
    did = {n: _difference(before.operators.get(i), after.operators.get(i)) for n, i in index.items()}
    sent = {(u, v): max(0.0, did[u][f"edge {index[v]}"]) for u, v in topology.edges}
    operators = {}
    for name in topology.order:
        k, d = window.deployment.parallelism[name], did[name]
        busy = min(d["busy"], w * k)
        done, source = max(0.0, d["done"]), name in topology.sources
        children = topology.downstream(name)
        operators[name] = OperatorMetrics(
            input_rate=(window.offered[name] if source else sum(sent[u, name] for u in topology.upstream(name))) / w,
            processing_rate=done / w,
            output_rate=(sum(sent[name, v] for v in children) if children else max(0.0, d["results"])) / w,
            true_rate=done / busy if done > 0 and busy > 0 else None,
            utilisation=busy / (w * k),
            backlog=window.lag[name] if source else _waiting(topology, after, index, name),
            parallelism=k,
            cpu=max(0.0, d["cpu"]) / w,
            blocked=min(1.0, max(0.0, d["blocked"]) / (w * k)),
        )
    latency, event = (_latency(did, topology, kind) for kind in ("latency", "event"))
    return Snapshot(
        t=window.end,
        window_s=w,
        deployment=window.deployment,
        operators=operators,
        source_rates={name: operators[name].input_rate for name in topology.sources},
        throughput=_ended(topology, index, after, did) / w,
        latency=latency,
        event_latency=event,
        lag=sum(window.lag[name] for name in topology.sources),
        edge_rates={edge: count / w for edge, count in sent.items()},
        nodes=window.nodes,
        downtime_s=min(w, sum(max(0.0, min(b, window.end) - max(a, window.start)) for a, b in window.gaps)),
        law=window.law,
    )


def _difference(before: Counter[str] | None, after: Counter[str] | None) -> Counter[str]:
    difference = Counter(after or {})
    difference.subtract(before or {})
    return difference


def _waiting(topology: Topology, after: Totals, index: Mapping[str, int], name: str) -> float:
    """Records between the senders and the end of this operator's work: an epoch begins and ends without any."""
    sent = sum(after.epoch.get(index[u], Counter())[f"edge {index[name]}"] for u in topology.upstream(name))
    return float(max(0, sent - after.epoch.get(index[name], Counter())["done"]))


def _ended(topology: Topology, index: Mapping[str, int], whole: Totals, did: Mapping[str, Counter[str]]) -> float:
    """Source records that came to their end: each record carries its share of one, evenly over the branches.

    Shares are of the whole run: within a window one operator may be at work and the one before it not.
    """
    carried: dict[Edge, float] = {}  # source records in one record on this edge
    ended = 0.0
    for name in topology.order:
        parents, children = topology.upstream(name), topology.downstream(name)
        sent = {u: whole.operators.get(index[u], Counter())[f"edge {index[name]}"] for u in parents}
        came = sum(sent.values())
        share = sum(sent[u] * carried[u, name] for u in parents) / came if came else 0.0 if parents else 1.0
        here = whole.operators.get(index[name], Counter())
        for child in children:
            on = here[f"edge {index[child]}"]
            carried[name, child] = here["done"] * share / len(children) / on if on else 0.0
            ended += 0.0 if on else max(0.0, did[name]["done"]) * share / len(children)  # all of it ends here
        ended += 0.0 if children else max(0.0, did[name]["done"]) * share
    return ended


def _latency(did: Mapping[str, Counter[str]], topology: Topology, kind: str) -> Latency | None:
    histogram: Counter[int] = Counter()
    total = 0.0
    for name in topology.sinks:
        total += did[name][f"{kind} sum"]
        for key, count in did[name].items():
            word, _, rest = key.partition(" ")
            if word == kind and rest != "sum" and count > 0:
                histogram[int(rest)] += count
    records = sum(histogram.values())
    if not records:
        return None
    levels, seen, wanted = [], 0, list(_SHARES)
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        while wanted and seen >= wanted[0] * records:
            levels.append(middle(bucket))
            wanted.pop(0)
    return Latency(max(0.0, total) / records, *levels)
