"""Latency of the pipelined fluid engine: the wait in queues that build up, and the random part from queueing theory.

**Queues that build up** (`Curves`, `record_waits`): first in, first out, the record that leaves now arrived when the
curve of arrivals was where that of departures is now, so its wait is the horizontal distance between the two. (Mean
queue over throughput equals it only for a queue that does not grow; for a queue that grows by half of what it serves it
is half as large again.)

**Random waiting** (`latencies`, `sojourns`), which a fluid does not have: each operator is a G/G/k station whose
arrivals vary as the departures of the operators before it do [whitt1983qna], with waiting as in M/M/k [erlang_c] scaled
by the variation of arrivals and services (Allen and Cunneen), exact for M/M/k and M/G/1. Cores shared by more instances
than there are cores stretch CPU time as processor sharing does.

| paper | here |
|---|---|
| $\\lambda, \\rho$ | `rate`, `load`: records/s, utilisation of an instance |
| $c_a^2, c_s^2, c_d^2$ | `arrive`, `serve`, `depart`: squared coefficients of variation |
| $v$ | `effective` number of streams that merge |
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.jit import allocation_free, compiled
from ...core.queueing import erlang_c as _erlang_c
from ...core.typing import Array
from ..layout import IndexedGraph
from .state import FluidParameters, FluidSums


class Curves(NamedTuple):
    """Cumulative arrivals at each queue; row 0 is the start of the oldest tick from which records still wait."""

    t: Array  # [m] seconds
    arrived: Array  # [m, i] records since the start, without dropped ones
    departed: Array  # [m, i] records that left in the tick that ends at t[m]
    at: Array  # [i] row before the arrival of the record that leaves next
    rows: Array  # [1] number of rows in use


def curves(rows: int, operators: int) -> Curves:
    """Return empty curves with this capacity, of which the first row, with no arrivals, is in use."""
    came, left = np.zeros((2, rows, operators))
    return Curves(np.zeros(rows), came, left, np.zeros(operators, dtype=np.int64), np.ones(1, dtype=np.int64))


def extended(old: Curves, ticks: int) -> Curves:
    """Return curves with capacity for more ticks; rows from which no record waits are removed."""
    used, first = int(old.rows[0]), int(old.at.min())
    if used + ticks <= len(old.t):
        return old
    kept = used - first
    new = curves(2 * (kept + ticks), old.arrived.shape[1])
    new.t[:kept], new.arrived[:kept], new.departed[:kept] = (
        old.t[first:used],
        old.arrived[first:used],
        old.departed[first:used],
    )
    new.at[:], new.rows[0] = old.at - first, kept
    return new


@allocation_free
def record_waits(
    t: Array, arrived: Array, departed: Array, at: Array, head: Array, queued: Array, waits: Array, first: int, end: int
) -> None:
    """Add the waits of the records that left in rows `first` to `end`, and advance to the record that leaves next."""
    for i in range(len(head)):
        p = at[i]
        if queued[i] <= 0 or arrived[p, i] >= arrived[end - 1, i]:
            at[i], head[i] = end - 1, arrived[end - 1, i]
            continue
        for m in range(first, end):
            rest, middle = departed[m, i], (t[m] + t[m - 1]) / 2
            while rest > 0 and p + 1 < end:
                piece = min(rest, arrived[p + 1, i] - head[i])
                if piece > 0:
                    whole = arrived[p + 1, i] - arrived[p, i]
                    part = (head[i] + piece / 2 - arrived[p, i]) / whole
                    waits[i] += piece * max(0.0, middle - (t[p] + part * (t[p + 1] - t[p])))
                    head[i] += piece
                    rest -= piece
                if rest > 0 or head[i] >= arrived[p + 1, i]:
                    p += 1
        at[i] = min(p, end - 1)


BUSIEST = 0.95  # highest load in the theory of waiting; beyond it the fluid's own queue grows
TRACE = 1e-9  # fewer records than this in a window count as zero
erlang_c = compiled(_erlang_c)


class Stations(NamedTuple):
    """Operators as stations of queueing theory in one window. i is an operator, e an edge, j a node."""

    instances: Array  # [i]
    service: Array  # [i] seconds of an instance per record, without the sharing of cores
    cpu: Array  # [i] share of these that is CPU work
    variation: Array  # [i] squared coefficient of variation of service times
    hottest: Array  # [i] share of the records of the hottest instance, 0 without skew
    split: Array  # [i] whether each instance has a queue of its own
    room: Array  # [i]
    rate: Array  # [i] records/s processed
    offered: Array  # [i] of these, records of a source, which arrive as a Poisson process
    selectivity: Array  # [e]
    live: Array  # [j, i]
    cores: Array  # [j]
    used: Array  # [j] cores in use


class Theory(NamedTuple):
    """Parameters of the theory that the fluid itself does not need."""

    variation: Array  # [i] squared coefficient of variation of service times
    hottest: Array  # [i] share of the records of the hottest instance, 0 without skew
    split: Array  # [i] whether each instance has a queue of its own
    room: Array  # [i] records
    delay: Array  # [e] mean seconds from instance to instance, without the limits of bandwidth
    crossing: Array  # [l, e] share of e's records that cross link l, which has a limit
    size: Array  # [e] bytes of a record


@compiled
def latencies(  # noqa: C901  (compiled: one pass over the graph)
    g: IndexedGraph, c: FluidParameters, theory: Theory, sums: FluidSums, played: float, waited: Array, out: Array
) -> None:
    """Compute latencies from source to sink.

    Fill `out[:3]` with the time in queues that build up, and the mean and variance of the rest, without the wait in the
    logs; `out[3:]` with it. Fill `waited[i]` with the mean wait in i's queue, NaN if it processed no record. Paths are
    weighted by the source records that take them.
    """
    n, out[:], waited[:] = len(waited), 0.0, np.nan
    service, cpu, rate, offered = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    up = max(1e-9, played - sums.flow[1])
    waits, times, share, total, sources = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), 0.0, 0
    for i in range(n):
        if sums.done[i] > TRACE:
            rate[i] = sums.done[i] / max(1e-9, played - sums.paused[i])  # in the time in which it was not paused
            service[i] = sums.busy[i] / sums.done[i]
            cpu[i] = sums.cpu[i] / sums.busy[i]
        if g.into_at[i] == g.into_at[i + 1]:
            offered[i] = rate[i]
            total += sums.arrived[i]
            sources += 1
    q = Stations(
        c.instances.astype(np.int64), service, cpu, theory.variation, theory.hottest, theory.split, theory.room, rate,
        offered, c.selectivity, c.live, c.cores, sums.cores / up,
    )  # fmt: skip
    sojourns(g, q, waits, times)
    for i in range(n):
        logged = g.into_at[i] == g.into_at[i + 1]
        if logged:
            share[i] = sums.arrived[i] / total if total > 0 else 1 / sources
        for x in range(g.out_at[i], g.out_at[i + 1]):
            e, part = g.out[x], share[i] / (g.out_at[i + 1] - g.out_at[i])
            share[g.end[e]] += part
            moving = theory.delay[e]
            for k in range(len(c.bandwidth)):
                if theory.crossing[k, e] > 0:
                    carried = 0.0
                    for o in range(n):
                        carried += rate[o] * c.passing[k, o]
                    load = min(BUSIEST, carried / c.bandwidth[k])  # records cross one after the other: M/D/1
                    moving += theory.crossing[k, e] * theory.size[e] / c.bandwidth[k] * (1 + load / (2 * (1 - load)))
            out[1] += part * moving
            out[4] += part * moving
        built = sums.waits[i] / sums.done[i] if sums.done[i] > TRACE else 0.0
        if sums.done[i] > TRACE:
            waited[i] = built + waits[i, 0]
        for first in (0, 3):
            out[first + 1] += share[i] * times[i, 0]
            out[first + 2] += share[i] * times[i, 1]
            if first == 3 or not logged:
                out[first] += share[i] * built
                out[first + 1] += share[i] * waits[i, 0]
                out[first + 2] += share[i] * waits[i, 1]


@compiled
def sojourns(g: IndexedGraph, q: Stations, waits: Array, times: Array) -> None:
    """Fill `waits[i]` and `times[i]`: mean and variance of waiting, and of service with shared cores."""
    n = len(q.rate)
    depart = [1.0] * n
    for i in range(n):
        k, s = q.instances[i], q.service[i]
        waits[i, 0] = waits[i, 1] = times[i, 0] = times[i, 1] = 0.0
        arrive, crowd = arrivals(g, q, i, depart)
        depart[i] = arrive
        if s <= 0 or k <= 0:
            continue
        load = min(BUSIEST, q.rate[i] * s / k)
        depart[i] = 1 + (1 - load**2) * (arrive - 1) + load**2 * (max(q.variation[i], 0.2) - 1) / math.sqrt(k)
        few, all_, most = sharing(q, i)
        stretched = s + q.cpu[i] * s * (few - 1)
        waits[i, 0], waits[i, 1] = queue(q, i, stretched, arrive, crowd)
        if most > 1:  # fewer cores than instances: the node is one station that all its instances share
            slowest = s + q.cpu[i] * s * (most - 1)
            upper = slowest + queue(q, i, slowest, arrive, crowd)[0]
            extra = min(upper, s + q.cpu[i] * s * (all_ - 1)) - stretched - waits[i, 0]
            if extra > 0:
                waits[i, 0] += extra
                load = 1 - 1 / all_  # of one shared core that would stretch as much: variance of M/M/1-PS
                spread = (q.variation[i] + 2 * load / (2 - load)) * (stretched + waits[i, 0]) ** 2
                waits[i, 1] = max(waits[i, 1], spread - q.variation[i] * stretched**2)
        times[i, 0], times[i, 1] = stretched, q.variation[i] * stretched**2


@compiled
def queue(q: Stations, i: int, s: float, arrive: float, crowd: float) -> tuple[float, float]:
    """Return mean and variance of the wait in i's queue if one record takes an instance s seconds."""
    k = q.instances[i]
    rate, limit = min(q.rate[i], BUSIEST * k / s), q.room[i] / k * s  # a short queue bounds the wait
    if not q.split[i] or k == 1:
        mean, square = wait(k, rate, s, arrive, q.variation[i], crowd, limit)
        return mean, square - mean**2
    mean = square = 0.0
    hot = max(q.hottest[i], 1 / k)
    for share, many in ((hot, 1), ((1 - hot) / (k - 1), k - 1)):
        own = min(share * rate, BUSIEST / s)
        first, second = wait(1, own, s, 1 + share * (arrive - 1), q.variation[i], 1.0, limit)
        mean += share * many * first
        square += share * many * second
    return mean, square - mean**2


@compiled
def arrivals(g: IndexedGraph, q: Stations, i: int, depart: list[float]) -> tuple[float, float]:
    """Return the squared variation of arrivals, without batches, and the size of a batch as a record of it sees it.

    A record with m outputs sends a batch. Merging streams makes the arrivals more random: Whitt's weight w.
    """
    total = q.offered[i]
    for x in range(g.into_at[i], g.into_at[i + 1]):
        total += q.selectivity[g.into[x]] * q.rate[g.start[g.into[x]]]
    if total <= 0:
        return 1.0, 1.0
    squares, mixed = (q.offered[i] / total) ** 2, q.offered[i] / total
    crowd = q.offered[i] / total
    for x in range(g.into_at[i], g.into_at[i + 1]):
        m, p = q.selectivity[g.into[x]], g.start[g.into[x]]
        share = m * q.rate[p] / total
        if share > 0:
            part = m - math.floor(m)
            squares += share**2
            mixed += share * (m * depart[p] + 1 - m if m < 1 else depart[p])
            crowd += share * max(1.0, m + part * (1 - part) / m)
    load = min(BUSIEST, q.rate[i] * q.service[i] / q.instances[i]) if q.instances[i] > 0 else BUSIEST
    effective = 1 / squares
    w = 1 / (1 + 4 * (1 - load) ** 2 * (effective - 1))
    return w * mixed + 1 - w, crowd


@compiled
def wait(k: int, rate: float, s: float, arrive: float, serve: float, crowd: float, limit: float) -> tuple[float, float]:
    """Return mean and mean square of the wait in G/G/k, which is zero or exponential; with the wait within a batch."""
    waits = erlang_c(k, rate * s)
    if waits <= 0:
        return 0.0, 0.0
    load = rate * s / k
    mean = waits / (k / s - rate) * (arrive + serve) / 2
    if arrive < 1 and arrive + serve > 0:  # Kraemer and Langenbach-Belz
        mean *= math.exp(-2 * (1 - load) * (1 - arrive) ** 2 / (3 * load * (arrive + serve)))
    if crowd > 1:
        alone = max(0.0, crowd - k) / (crowd - 1)  # share of a batch's wait that idle instances do not avoid
        mean += s * (crowd - 1) / (2 * k * (1 - load)) * (load + (1 - load) * alone)
    mean = min(mean, limit)
    return mean, 2 * mean**2 / waits


@compiled
def sharing(q: Stations, i: int) -> tuple[float, float, float]:
    """Return the factors by which shared cores stretch CPU work, in three models, averaged over nodes.

    The first counts the other instances that happen to work; the second assumes that records never wait for an instance
    (M/M/c with processor sharing); the third that all instances always work.
    """
    few = all_ = most = total = 0.0
    own = q.rate[i] * q.service[i] * q.cpu[i] / q.instances[i]  # cores that one instance of i uses
    for j in range(len(q.cores)):
        here = 0.0
        for o in range(len(q.rate)):
            here += q.live[j, o]
        if q.live[j, i] > 0:
            n, a, b = q.live[j, i], 1.0, 1.0
            if here > q.cores[j] > 0:
                servers = max(1, round(q.cores[j]))
                busy = min(BUSIEST, q.used[j] / q.cores[j]) * servers
                b = 1 + erlang_c(servers, busy) / (servers - busy)
                others = max(0.0, busy - own)
                chance, sure, stretched = 1.0, 1.0, 1.0  # probabilities of x others at work, up to a factor
                for x in range(1, int(here)):
                    chance *= others / min(x, servers)
                    sure += chance
                    stretched += chance * max(1.0, (x + 1) / servers)
                a = stretched / sure
            few, all_, most = few + n * a, all_ + n * b, most + n * max(1.0, here / max(q.cores[j], 1e-9))
            total += n
    return (few / total, all_ / total, most / total) if total > 0 else (1.0, 1.0, 1.0)
