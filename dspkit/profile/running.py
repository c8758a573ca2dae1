"""A profile learned while a job runs: sums that grow window by window, small enough for a policy's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..core import Edge, Snapshot, Topology
from ..frozen import FrozenMap
from .curves import Line
from .profile import Fitted, Profile, Ratio
from .samples import FULL, TRACE, cores, node_samples

Pair = tuple[float, float]


class Running(NamedTuple):
    """What was seen so far: CPU is taken to be in proportion to the rate, a node's share to be a line."""

    cpu: Mapping[str, Pair] = FrozenMap()  # records taken in, core-seconds
    streams: Mapping[Edge, Pair] = FrozenMap()  # records taken in by its start, sent along it
    nodes: tuple[float, float, float, float, float] = (0.0,) * 5  # 1, u, y, uu, uy: cores of instances, share of node
    full: Pair = (0.0, 0.0)  # u and y where a node was full, which tells little
    sources: Mapping[str, float] = FrozenMap()  # records emitted

    def see(self, topology: Topology, snapshot: Snapshot) -> Running:
        """One window more; one in which the job stood still tells nothing."""
        if snapshot.downtime_s > 0 or not snapshot.operators:
            return self
        s, seconds = snapshot, snapshot.window_s
        cpu = dict(self.cpu)
        for name, m in s.operators.items():
            if m.processing_rate > TRACE:
                cpu[name] = _add(cpu.get(name), m.processing_rate * seconds, cores(m) * seconds)
        streams = dict(self.streams)
        for (u, v), rate in s.edge_rates.items():
            if u in s.operators and s.operators[u].processing_rate > TRACE:
                streams[u, v] = _add(streams.get((u, v)), s.operators[u].processing_rate * seconds, rate * seconds)
        nodes, full = self.nodes, self.full
        for used, share in node_samples(topology, [s]):
            if share >= FULL:
                full = _add(full, used, share)
                continue
            row = (1.0, used, share, used * used, used * share)
            nodes = tuple(a + b for a, b in zip(nodes, row, strict=True))  # type: ignore[assignment]
        emitted = {
            n: self.sources.get(n, 0.0) + (s.operators[n].processing_rate * seconds if n in s.operators else 0.0)
            for n in topology.sources
        }
        return Running(FrozenMap(cpu), FrozenMap(streams), nodes, full, FrozenMap(emitted))

    def missing(self, topology: Topology) -> list[str]:
        """Operators and streams that were never seen at work."""
        return [n for n in topology.order if n not in self.cpu] + [
            f"{u} → {v}" for u, v in topology.edges if (u, v) not in self.streams
        ]

    def profile(self) -> Profile:
        """What is known by now."""
        total = sum(self.sources.values())
        return Profile(
            {edge: Ratio(sent / took) for edge, (took, sent) in self.streams.items()},
            {name: Fitted(Line(0.0, used / took)) for name, (took, used) in self.cpu.items()},
            self._overhead(),
            {n: x / total for n, x in self.sources.items()} if total > 0 else {},
        )

    def _overhead(self) -> Fitted | None:
        n, u, y, uu, uy = self.nodes
        if u <= 0 or y <= 0:
            return Fitted(Line(0.0, self.full[1] / self.full[0])) if self.full[0] > 0 else None
        spread = n * uu - u * u
        slope = (n * uy - u * y) / spread if spread > 1e-9 * n * uu else y / u
        slope = min(slope, uy / uu) if slope > 0 else y / u  # the intercept is not below zero
        return Fitted(Line(max(0.0, (y - slope * u) / n), slope), None, round(n))


def _add(pair: Pair | None, a: float, b: float) -> Pair:
    return (a, b) if pair is None else (pair[0] + a, pair[1] + b)
