"""The pipelined fluid engine: rates in ticks, for any load; latency from queues that build up, and from theory."""

from __future__ import annotations

import math

import numpy as np

from ...core import Latency, queueing
from ...core.typing import Array
from ..job import SHARES, WindowSums
from ..layout import IndexedGraph, Layout, busiest_share
from .kernel import play_fluid
from .latency import TRACE, Theory, curves, extended, latencies
from .state import FluidParameters, FluidState, FluidSums


class Fluid:
    """A pipelined job as a fluid; `job.Engine` documents its methods."""

    def __init__(self, graph: IndexedGraph, layout: Layout):
        n, nodes = len(layout.instances), len(layout.cores)
        self.graph = graph
        self.state = FluidState(
            np.zeros(n), np.zeros(n), np.zeros(n), np.zeros((nodes, n)), np.zeros(n), np.zeros((nodes, n)), np.zeros(n)
        )
        self.curves = curves(64, n)
        self.lost = 0.0  # source records lost at once since the last `play`
        self.change(layout)
        self._fresh()

    def change(self, layout: Layout) -> None:
        self.layout = layout
        self.cluster, self.theory = fluid_parameters(self.graph, layout)
        self.state.share[:] = self.cluster.live
        np.minimum(self.state.held, layout.node_instances, out=self.state.held)

    def pause(self, seconds: Array) -> None:
        np.maximum(self.state.pause, seconds, out=self.state.pause)

    def hold(self, count: Array, seconds: Array) -> None:
        s = self.state
        s.held[:] = np.minimum(np.where(s.rest > 0, s.held, 0) + count, self.layout.node_instances)
        np.maximum(s.rest, np.where(count.any(axis=0), seconds, 0.0), out=s.rest)

    def lose(self, share: Array) -> None:
        self._sums.dropped[:] += self.state.queue * share
        self.lost += float(self.state.mass @ share)
        self.state.head[:] += self.state.queue * share
        self.state.queue[:] *= 1 - share
        self.state.mass[:] *= 1 - share

    @property
    def mass(self) -> float:
        return float(self.state.mass.sum())

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        a, c = self.layout, self.cluster
        c.cpu[:] = a.seconds * noise * (1 - a.io)
        c.other[:] = a.seconds * noise * a.io + a.call
        kept = np.empty((len(dt), 3))
        self.curves = extended(self.curves, len(dt))
        self._sums.flow[2] += self.lost
        play_fluid(self.graph, c, self.state, self._sums, self.curves, rates, dt, kept)
        kept[0, 2] += self.lost
        self.lost = 0.0
        self._played += float(dt.sum())
        self.kept.append(kept)

    def window(self) -> WindowSums:
        s = self._sums
        ended, stopped = float(s.flow[0]), float(s.flow[1])
        waited, out = np.empty(len(s.done)), np.empty(6)
        latencies(self.graph, self.cluster, self.theory, s, self._played, waited, out)
        latency, event = (
            (as_latency(*out[:3].tolist()), as_latency(*out[3:].tolist())) if ended > TRACE else (None, None)
        )
        window = WindowSums(
            s.arrived, s.done, s.dropped, s.busy, s.blocked, s.cpu, waited, s.sent, s.cores, ended, stopped,
            self.state.queue.copy(), self.state.queue.copy(), latency, event,
        )  # fmt: skip
        self._fresh()
        return window

    def _fresh(self) -> None:
        self._sums, self._played = sums(self.graph, self.layout), 0.0
        self.kept: list[Array] = []  # by tick of this window: source records ended, in the logs, lost


def sums(graph: IndexedGraph, layout: Layout) -> FluidSums:
    """Return sums of zero."""
    n, nodes, edges = len(layout.instances), len(layout.cores), len(graph.start)
    a, b, c, d, e, f, g, h, i = np.zeros((9, n))
    return FluidSums(a, b, c, d, e, f, g, h, i, np.zeros(edges), np.zeros(nodes), np.zeros(3))


def fluid_parameters(graph: IndexedGraph, layout: Layout) -> tuple[FluidParameters, Theory]:
    """Return a layout as parameters of the compiled engine; `play` fills in `cpu` and `other`."""
    a, n = layout, len(layout.instances)
    live = np.where(a.cores[:, None] > 0, a.node_instances, 0).astype(float)
    k = np.maximum(1, a.instances)
    share = a.node_instances / k  # of an operator's records on each node
    delay = np.zeros(len(graph.start))
    if a.delay.any():
        delay = np.einsum("ae,be,ab->e", share[:, graph.start], share[:, graph.end], a.delay)
    uneven = np.ones(n)
    if a.hottest.any():
        uneven = np.where(a.hottest > 0, busiest_share(a.hottest, k) * k, 1.0)
    crossing, passing, bandwidth = _links(graph, a, share)
    cluster = FluidParameters(
        live=live,
        instances=live.sum(axis=0),
        cpu=np.zeros(n),
        other=np.zeros(n),
        call=a.call,
        variation=np.minimum(1.0, a.cv**2),
        uneven=uneven,
        room=np.where(a.drops, math.inf, a.room),
        refuse=np.where(a.drops, a.room, math.inf),
        cores=a.cores,
        speed=a.speed,
        selectivity=a.selectivity,
        passing=passing,
        bandwidth=bandwidth,
    )
    return cluster, Theory(a.cv**2, a.hottest, a.split, a.room, delay, crossing, a.size)


def as_latency(built_up: float, mean: float, variance: float) -> Latency:
    """Return the latency of a constant part, common to all records, plus a gamma-distributed part."""
    return Latency(*(built_up + x for x in (mean, *queueing.percentiles(mean, variance, SHARES))))


def _links(graph: IndexedGraph, layout: Layout, share: Array) -> tuple[Array, Array, Array]:
    """Return the links with a limit: shares of edges that cross them, bytes per record that pass them, and the limits.

    The shares are by link and edge, the bytes by link and operator.
    """
    a, b = np.nonzero(np.isfinite(layout.bandwidth))
    crossing = share[a][:, graph.start] * share[b][:, graph.end]
    passing = np.zeros((len(a), len(layout.instances)))
    for e, start in enumerate(graph.start):
        passing[:, start] += layout.selectivity[e] * layout.size[e] * crossing[:, e]
    used = passing.any(axis=1)
    return crossing[used], passing[used], layout.bandwidth[a[used], b[used]]
