"""The fluid engine: rates in ticks, any load, and latency from the queues that build up plus theory for the rest."""

from __future__ import annotations

import math

import numpy as np

from .. import queueing
from ..core import Latency
from .engine import SHARES, Window
from .fluid_curves import curves, extended
from .fluid_kernel import play
from .fluid_state import Cluster, State, Sums
from .fluid_steady import TRACE, Theory, latencies
from .layout import Array, Graph, Layout, busiest_share


class Fluid:
    """A pipeline as a fluid; see `engine.Engine` for what its methods promise."""

    def __init__(self, graph: Graph, layout: Layout):
        n, nodes = len(layout.instances), len(layout.cores)
        self.graph = graph
        self.state = State(
            np.zeros(n), np.zeros(n), np.zeros(n), np.zeros((nodes, n)), np.zeros(n), np.zeros((nodes, n)), np.zeros(n)
        )
        self.curves = curves(64, n)
        self.lost = 0.0  # source records, at once, since what was played last
        self.change(layout)
        self._fresh()

    def change(self, layout: Layout) -> None:
        self.layout = layout
        self.cluster, self.theory = numbers(self.graph, layout)
        self.state.share[:] = self.cluster.live
        np.minimum(self.state.held, layout.here, out=self.state.held)

    def pause(self, seconds: Array) -> None:
        np.maximum(self.state.pause, seconds, out=self.state.pause)

    def hold(self, count: Array, seconds: Array) -> None:
        s = self.state
        s.held[:] = np.minimum(np.where(s.rest > 0, s.held, 0) + count, self.layout.here)
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
        play(self.graph, c, self.state, self._sums, self.curves, rates, dt, kept)
        kept[0, 2] += self.lost
        self.lost = 0.0
        self._played += float(dt.sum())
        self.kept.append(kept)

    def window(self) -> Window:
        s = self._sums
        ended, stopped = float(s.flow[0]), float(s.flow[1])
        waited, out = np.empty(len(s.done)), np.empty(6)
        latencies(self.graph, self.cluster, self.theory, s, self._played, waited, out)
        latency, event = (
            (as_latency(*out[:3].tolist()), as_latency(*out[3:].tolist())) if ended > TRACE else (None, None)
        )
        window = Window(
            s.arrived, s.done, s.dropped, s.busy, s.blocked, s.cpu, waited, s.sent, s.cores, ended, stopped,
            self.state.queue.copy(), latency, event,
        )  # fmt: skip
        self._fresh()
        return window

    def _fresh(self) -> None:
        self._sums, self._played = sums(self.graph, self.layout), 0.0
        self.kept: list[Array] = []  # by tick of this window: source records that ended, those in the logs, those lost


def sums(graph: Graph, layout: Layout) -> Sums:
    """Nothing so far."""
    n, nodes, edges = len(layout.instances), len(layout.cores), len(graph.start)
    a, b, c, d, e, f, g, h, i = np.zeros((9, n))
    return Sums(a, b, c, d, e, f, g, h, i, np.zeros(edges), np.zeros(nodes), np.zeros(3))


def numbers(graph: Graph, layout: Layout) -> tuple[Cluster, Theory]:
    """The layout as the compiled fluid takes it; `cpu` and `other` depend on the noise and are filled in later."""
    a, n = layout, len(layout.instances)
    live = np.where(a.cores[:, None] > 0, a.here, 0).astype(float)
    k = np.maximum(1, a.instances)
    share = a.here / k  # of an operator's records on each node
    delay = np.zeros(len(graph.start))
    if a.delay.any():
        delay = np.einsum("ae,be,ab->e", share[:, graph.start], share[:, graph.end], a.delay)
    uneven = np.ones(n)
    if a.hottest.any():
        uneven = np.where(a.hottest > 0, busiest_share(a.hottest, k) * k, 1.0)
    crossing, passing, bandwidth = _links(graph, a, share)
    cluster = Cluster(
        live=live,
        instances=live.sum(axis=0),
        cpu=np.zeros(n),
        other=np.zeros(n),
        call=a.call,
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
    """What all records take, and the rest as gamma distributed."""
    return Latency(*(built_up + x for x in (mean, *queueing.percentiles(mean, variance, SHARES))))


def _links(graph: Graph, layout: Layout, share: Array) -> tuple[Array, Array, Array]:
    """For each pair of nodes with a limit: share of each edge's records that cross it; bytes that a record of each
    operator sends over it; and the limit."""
    a, b = np.nonzero(np.isfinite(layout.bandwidth))
    crossing = share[a][:, graph.start] * share[b][:, graph.end]
    passing = np.zeros((len(a), len(layout.instances)))
    for e, start in enumerate(graph.start):
        passing[:, start] += layout.selectivity[e] * layout.size[e] * crossing[:, e]
    used = passing.any(axis=1)
    return crossing[used], passing[used], layout.bandwidth[a[used], b[used]]
