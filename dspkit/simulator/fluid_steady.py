"""The random part of latency: what queueing theory says of a steady queue, operator by operator.

The fluid knows only queues that build up. What a record waits because arrivals and services are random comes from
here: each operator is a G/G/k station whose arrivals vary as the departures of those before it do [whitt1983qna],
with waiting as in M/M/k [erlang_c] scaled by the variation of arrivals and services (Allen and Cunneen), exact for
M/M/k and M/G/1. Cores shared by more instances than there are cores stretch CPU time as processor sharing does.

| paper | here |
|---|---|
| $\\lambda, \\rho$ | `rate`, `load`: records/s, share of its time that an instance works |
| $c_a^2, c_s^2, c_d^2$ | `arrive`, `serve`, `depart`: squared coefficients of variation |
| $v$ | `effective` number of streams that meet |
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..queueing import erlang_c as _erlang_c
from .compiled import compiled
from .fluid_state import Cluster, Sums
from .layout import Array, Graph

BUSIEST = 0.95  # the waiting term takes no higher load than this; beyond it the fluid's own queue speaks
TRACE = 1e-9  # fewer records than this in a window are none
erlang_c = compiled(_erlang_c)


class Stations(NamedTuple):
    """Operators as queueing theory sees them in one window. i is an operator, e an edge, j a node."""

    instances: Array  # [i]
    service: Array  # [i] seconds of an instance for a record, shared cores apart
    cpu: Array  # [i] part of these that is CPU work
    variation: Array  # [i] squared coefficient of variation of service times
    hottest: Array  # [i] share of the records of the hottest instance, 0 where all get the same
    split: Array  # [i] whether each instance has its own queue
    room: Array  # [i]
    rate: Array  # [i] records/s processed
    offered: Array  # [i] of them straight from a source, which are Poisson
    selectivity: Array  # [e]
    live: Array  # [j, i]
    cores: Array  # [j]
    used: Array  # [j] cores in use


class Theory(NamedTuple):
    """What theory has to know beside the fluid's numbers."""

    variation: Array  # [i] squared coefficient of variation of service times
    hottest: Array  # [i] share of the records of the hottest instance, 0 where all get the same
    split: Array  # [i] whether each instance has its own queue
    room: Array  # [i] records
    delay: Array  # [e] mean seconds from instance to instance, bandwidth apart
    crossing: Array  # [l, e] share of e's records that cross the link with a limit
    size: Array  # [e] bytes of a record


@compiled
def latencies(g: Graph, c: Cluster, theory: Theory, sums: Sums, played: float, waited: Array, out: Array) -> None:
    """Source to sink: fill `out` with what queues that build up take, mean and variance of the rest; without and with
    the wait in the logs. `waited[i]` becomes the mean wait in i's queue, NaN where nothing was processed.

    Paths weigh as the source records that take them.
    """
    n, out[:], waited[:] = len(waited), 0.0, np.nan
    service, cpu, rate, offered = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    up = max(1e-9, played - sums.flow[1])
    waits, times, share, total, sources = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n), 0.0, 0
    for i in range(n):
        if sums.done[i] > TRACE:
            rate[i] = sums.done[i] / max(1e-9, played - sums.still[i])  # in the time that it was up itself
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
                    load = min(BUSIEST, carried / c.bandwidth[k])  # one record after the other: M/D/1
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
def sojourns(g: Graph, q: Stations, waits: Array, times: Array) -> None:
    """Fill `waits[i]` and `times[i]`: mean and variance of waiting, and of service with its sharing of cores."""
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
        if most > 1:  # cores are the scarcer: the job is in its node as in one station that all share
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
    """Mean and variance of the wait in i's queue if a record takes an instance s seconds."""
    k = q.instances[i]
    rate, limit = min(q.rate[i], BUSIEST * k / s), q.room[i] / k * s  # room for few holds nobody for long
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
def arrivals(g: Graph, q: Stations, i: int, depart: list[float]) -> tuple[float, float]:
    """Squared variation of what arrives, batches apart; and how many arrive together, as a typical one of them sees it.

    A record that makes m others sends a batch. Streams that meet make each other more random: Whitt's weight w.
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
def wait(
    k: int, rate: float, s: float, arrive: float, serve: float, crowd: float, limit: float
) -> tuple[float, float]:  # fmt: skip
    """Mean and mean square of the wait in G/G/k: nothing, or exponential; and that of a batch for its own members."""
    waits = erlang_c(k, rate * s)
    if waits <= 0:
        return 0.0, 0.0
    load = rate * s / k
    mean = waits / (k / s - rate) * (arrive + serve) / 2
    if arrive < 1 and arrive + serve > 0:  # Kraemer and Langenbach-Belz
        mean *= math.exp(-2 * (1 - load) * (1 - arrive) ** 2 / (3 * load * (arrive + serve)))
    if crowd > 1:
        alone = max(0.0, crowd - k) / (crowd - 1)  # of a batch's wait that is there on idle instances too
        mean += s * (crowd - 1) / (2 * k * (1 - load)) * (load + (1 - load) * alone)
    mean = min(mean, limit)
    return mean, 2 * mean**2 / waits


@compiled
def sharing(q: Stations, i: int) -> tuple[float, float, float]:
    """How many times longer CPU work takes where instances outnumber cores: three readings, averaged over nodes.

    By those of the other instances that happen to work; as if records never had to wait for an instance (M/M/c with
    processor sharing); and as if all instances always worked.
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
                chance, sure, stretched = 1.0, 1.0, 1.0  # of x others at work, up to a factor
                for x in range(1, int(here)):
                    chance *= others / min(x, servers)
                    sure += chance
                    stretched += chance * max(1.0, (x + 1) / servers)
                a = stretched / sure
            few, all_, most = few + n * a, all_ + n * b, most + n * max(1.0, here / max(q.cores[j], 1e-9))
            total += n
    return (few / total, all_ / total, most / total) if total > 0 else (1.0, 1.0, 1.0)
