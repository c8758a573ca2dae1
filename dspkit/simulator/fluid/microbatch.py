"""The fluid engine of a micro-batch job, whose stages run one after the other.

A batch begins `trigger_s` after the previous one began, or when that has ended, whichever is later, if records wait. It
takes them through one operator after the other; each stage lasts as long as its slowest part. So a job that cannot keep
up processes $1/\\sum_i t_i$ records/s, where $t_i$ is the time of all instances of operator i together per source
record: the capacity law of Spark's micro-batches, instead of the minimum over operators.

Records count as processed evenly over the time of their batch; until then they are in the log of their source.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core import Latency, queueing
from ...core.jit import compiled
from ...core.typing import Array
from ..job import SHARES, WindowSums
from ..layout import IndexedGraph, Layout, busiest_share

PAUSE, LEFT, LENGTH, SINCE, WAIT, SPREAD, AREA = range(7)  # of `clock`: see FluidBatchState


class FluidBatchState(NamedTuple):
    """State that is kept from tick to tick. i is an operator, j a node."""

    queue: Array  # [i] in the logs of sources, the running batch included
    mass: Array  # [i]
    batch: Array  # [i] records of the running batch that reach each operator
    each: Array  # [i] seconds of an instance per record of it
    cores: Array  # [j, i] core-seconds of each node per record of it
    # Remaining pause; time left of the batch, its length; time since its start; mean wait of its records before it, and
    # the variance of that; record-seconds waited in the logs by the records of the next batch.
    clock: Array


class FluidBatchSums(NamedTuple):
    """Sums over a window; see `job.WindowSums`."""

    arrived: Array
    done: Array
    dropped: Array
    busy: Array
    cpu: Array
    sent: Array
    cores: Array
    flow: Array  # ended, stopped, lost; ended times: length, its square, wait + length, its second moment


@compiled
def play_fluid_batches(  # noqa: C901, PLR0913  (compiled: one loop over ticks)
    g: IndexedGraph,
    job: FluidBatchState,
    sums: FluidBatchSums,
    source: Array,
    stage: Array,
    call: Array,
    refuse: Array,
    selectivity: Array,
    each: Array,
    cores: Array,
    trigger: float,
    overhead: float,
    most: float,
    rates: Array,
    dt: Array,
    kept: Array,
) -> None:
    """Simulate all ticks; `stage[i]` is the time of operator i per record with all its instances."""
    n, clock = len(stage), job.clock
    for m in range(len(dt)):
        left = dt[m]
        ended, lost = sums.flow[0], sums.flow[2]
        while left > 1e-12:
            total = fresh = 0.0
            for i in range(n):
                if source[i]:
                    total += job.queue[i]
                    fresh += job.queue[i] - (job.batch[i] * clock[LEFT] / clock[LENGTH] if clock[LEFT] > 0 else 0.0)
            step, part = left, 0.0
            if clock[PAUSE] > 0:
                step = min(left, clock[PAUSE])
                clock[PAUSE] -= step
                sums.flow[1] += step
            elif clock[LEFT] > 0:
                step = min(left, clock[LEFT])
                part = step / clock[LENGTH]
            elif clock[SINCE] < trigger - 1e-12:
                step = min(left, trigger - clock[SINCE])
            elif total > 1e-9:
                begin_batch(g, job, source, stage, call, selectivity, overhead, most)
                for i in range(n):
                    job.each[i] = each[i]
                    for j in range(len(cores)):
                        job.cores[j, i] = cores[j, i]
                continue
            else:
                step = min(left, trigger)
                clock[SINCE] -= step
            came = 0.0
            for i in range(n):
                if source[i]:
                    more = rates[m, i] * step
                    job.queue[i] += more
                    job.mass[i] += more
                    sums.arrived[i] += more
                    came += more
                    if job.queue[i] > refuse[i]:
                        over = job.queue[i] - max(refuse[i], job.batch[i])
                        if over > 0:
                            sums.dropped[i] += over
                            sums.flow[2] += over
                            job.queue[i] -= over
                            job.mass[i] -= over
                            came -= over
            clock[AREA] += (fresh + came / 2) * step
            clock[SINCE] += step
            if part > 0:
                advance(g, job, sums, source, selectivity, part)
                clock[LEFT] -= step
                if clock[LEFT] <= 1e-12:
                    clock[LEFT] = 0.0
                    job.batch[:] = 0.0
            left -= step
        lag = 0.0
        for i in range(n):
            lag += job.queue[i] if source[i] else 0.0
        kept[m, 0], kept[m, 1], kept[m, 2] = sums.flow[0] - ended, lag, sums.flow[2] - lost


@compiled
def begin_batch(
    g: IndexedGraph,
    job: FluidBatchState,
    source: Array,
    stage: Array,
    call: Array,
    selectivity: Array,
    overhead: float,
    most: float,
) -> None:
    """Take what waits into a batch, oldest first and at most `most` records, and compute how long it takes."""
    clock, waiting = job.clock, 0.0
    for i in range(len(stage)):
        waiting += job.queue[i] if source[i] else 0.0
    part, span = min(1.0, most / waiting), 2 * clock[AREA] / waiting  # what waits arrived evenly over this time
    clock[LENGTH] = overhead
    for i in range(len(stage)):
        job.batch[i] = part * job.queue[i] if source[i] else 0.0
        for x in range(g.into_at[i], g.into_at[i + 1]):
            job.batch[i] += selectivity[g.into[x]] * job.batch[g.start[g.into[x]]]
        clock[LENGTH] += job.batch[i] * max(stage[i], call[i])
    clock[LENGTH] = max(clock[LENGTH], 1e-6)
    clock[LEFT], clock[WAIT], clock[SPREAD] = clock[LENGTH], span * (1 - part / 2), (span * part) ** 2 / 12
    clock[SINCE], clock[AREA] = 0.0, waiting * (1 - part) * span * (1 - part) / 2


@compiled
def advance(
    g: IndexedGraph, job: FluidBatchState, sums: FluidBatchSums, source: Array, selectivity: Array, part: float
) -> None:
    """Process this fraction of the batch."""
    moved = 0.0
    for i in range(len(job.queue)):
        done = job.batch[i] * part
        sums.done[i] += done
        sums.busy[i] += done * job.each[i]
        for j in range(len(job.cores)):
            sums.cpu[i] += done * job.cores[j, i]
            sums.cores[j] += done * job.cores[j, i]
        if source[i]:
            mass = job.mass[i] * min(1.0, done / job.queue[i]) if job.queue[i] > 0 else 0.0
            job.mass[i] -= mass
            job.queue[i] = max(0.0, job.queue[i] - done)
            moved += mass
        else:
            sums.arrived[i] += done
    for e in range(len(g.start)):
        sums.sent[e] += selectivity[e] * job.batch[g.start[e]] * part
    length, wait = job.clock[LENGTH], job.clock[WAIT]
    sums.flow[0] += moved
    sums.flow[3] += moved * length
    sums.flow[4] += moved * length**2
    sums.flow[5] += moved * (wait + length)
    sums.flow[6] += moved * ((wait + length) ** 2 + job.clock[SPREAD])


class Batches:
    """A micro-batch job as a fluid; `job.Engine` documents its methods."""

    def __init__(
        self, graph: IndexedGraph, layout: Layout, trigger_s: float, overhead_s: float, max_batch_records: float
    ):
        n = len(layout.instances)
        self.graph = graph
        self._trigger, self._overhead, self._most = trigger_s, overhead_s, max_batch_records
        nodes = len(layout.cores)
        queue, mass, batch, each = np.zeros((4, n))
        self._job = FluidBatchState(queue, mass, batch, each, np.zeros((nodes, n)), np.zeros(7))
        self._job.clock[SINCE] = trigger_s
        self._source = np.diff(graph.into_at) == 0
        self.change(layout)
        self._fresh()

    def change(self, layout: Layout) -> None:
        self._layout = layout
        self._live = np.where(layout.cores[:, None] > 0, layout.node_instances, 0)
        self._refuse = np.where(layout.drops, layout.room, math.inf)

    def retime(self, trigger_s: float) -> None:
        """Begin batches this long after each other at least."""
        self._trigger = trigger_s

    def pause(self, seconds: Array) -> None:
        self._job.clock[PAUSE] = max(self._job.clock[PAUSE], float(seconds.max()))

    def hold(self, count: Array, seconds: Array) -> None:
        """Pause the whole job: a stage ends with its slowest instance, so a batch waits for all of them."""
        self.pause(np.where(count.any(axis=0), seconds, 0.0))

    def lose(self, share: Array) -> None:
        """Lose nothing: a batch lost on a dead node is run again from the logs."""

    @property
    def mass(self) -> float:
        return float(self._job.mass.sum())

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        stage, each, node = _stages(self._layout, self._live, noise)
        kept = np.empty((len(dt), 3))
        still, works = self._job.clock[PAUSE], bool(np.isfinite(stage).all())
        if not works:  # a stage has no instance left, so the job is paused
            self._job.clock[PAUSE] = math.inf
        play_fluid_batches(
            self.graph, self._job, self._sums, self._source, stage, self._layout.call, self._refuse,
            self._layout.selectivity, each, node, self._trigger, self._overhead, self._most, rates, dt, kept,
        )  # fmt: skip
        if not works:
            self._job.clock[PAUSE] = max(0.0, still - float(dt.sum()))
        self.kept.append(kept)

    def window(self) -> WindowSums:
        s, n = self._sums, len(self._source)
        ended = float(s.flow[0])
        latency = event = None
        waited = np.full(n, math.nan)
        if ended > 0:
            length, wait = s.flow[3] / ended, (s.flow[5] - s.flow[3]) / ended
            latency = _latency(length, s.flow[4] / ended - length**2)
            event = _latency(length + wait, s.flow[6] / ended - (length + wait) ** 2)
            waited[self._source] = wait
        window = WindowSums(
            s.arrived, s.done, s.dropped, s.busy, np.zeros(n), s.cpu, waited, s.sent, s.cores, ended,
            float(s.flow[1]), self._job.queue.copy(), self._job.queue.copy(), latency, event,
        )  # fmt: skip
        self._fresh()
        return window

    def _fresh(self) -> None:
        n = len(self._source)
        nodes, edges = len(self._layout.cores), len(self.graph.start)
        arrived, done, dropped, busy, cpu = np.zeros((5, n))
        self._sums = FluidBatchSums(arrived, done, dropped, busy, cpu, np.zeros(edges), np.zeros(nodes), np.zeros(7))
        self.kept: list[Array] = []  # by tick of this window: source records ended, in the logs, lost


def _latency(mean: float, variance: float) -> Latency:
    shares = queueing.percentiles(mean, variance, SHARES) if variance > 1e-9 * mean**2 else [mean] * 3
    return Latency(mean, *shares)


def _stages(a: Layout, live: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Return the time of a stage per record with all instances at work, that of one instance, and core-seconds by node.

    Each instance gets an equal part, or the hottest more; the stage ends with its slowest instance.
    """
    cpu, other = a.seconds * noise * (1 - a.io), a.seconds * noise * a.io + a.call
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = cpu / a.speed[:, None] + other
        shared = np.where(live > 0, cpu * live / (a.cores * a.speed)[:, None], 0.0)
        record = np.where(live > 0, np.maximum(alone, shared), 0.0)  # [j, i] seconds of an instance there
        k = live.sum(axis=0)
        stage = np.where(k > 0, record.max(axis=0) * busiest_share(a.hottest, k), math.inf)
        each = (record * live).sum(axis=0) / np.maximum(1, k)
        node = live / np.maximum(1, k) * cpu / a.speed[:, None]
    return stage, each, node
