"""Ticks of a pipelined job as a fluid, compiled: rates instead of records.

| here | meaning |
|---|---|
| queue[i] | records waiting for operator i; a source's queue is its log |
| mass[i] | source records that these stem from; a record's mass is shared equally by the branches it takes |
| done[i], able[i] | records that i processes in this tick, and could process |

Records may pass several operators in one tick: the fluid takes no time for that. Service and random waiting are added
by `latency.latencies`, from theory.

`unconstrained_ticks` does the ticks in which all operators work, no queue is full and there are cores for all
instances; `constrained_tick` does the others. There instances share the cores of their nodes, an external server, a hot
key, a link:

| here | meaning |
|---|---|
| live[j, i] | i's instances on node j, if it is up |
| share[j, i] | cores of node j that they may use |
| alone[i] | records that i's instances can process in this tick with the cores they have |
| full[j, i] | those of them that are processed on node j |

and full queues block the operators that feed them (`apply_backpressure`):

| here | meaning |
|---|---|
| queued[i] | records that wait for i, and those that a source is offered in this tick |
| wish[i] | records that it would process in addition, were there room downstream |
| limit[i] | additional records that the room downstream lets it process |
| ask[i] | records that it would process if it alone were infinitely fast: its demand for cores |

Arrays are passed one by one: numba counts references to all members of a tuple at each call, which takes longer than
the arithmetic of a tick.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.jit import allocation_free, compiled
from ...core.queueing import finite_source_rate as _finite_source_rate
from ...core.typing import Array
from ..layout import IndexedGraph
from .latency import Curves, record_waits
from .state import FluidParameters, FluidState, FluidSums

finite_source_rate = allocation_free(_finite_source_rate)


@allocation_free
def active_instances(
    all_live: Array, held: Array, rest: Array, step: float, live: Array, instances: Array, paused: Array
) -> None:
    """Fill in the instances that work in this tick, on average, while `held` ones are paused for `rest` seconds."""
    for i in range(len(rest)):
        part = min(rest[i], step)
        rest[i] -= part
        instances[i], total = 0.0, 0.0
        for j in range(len(live)):
            total += all_live[j, i]
            live[j, i] = max(0.0, all_live[j, i] - held[j, i] * part / step)
            instances[i] += live[j, i]
        if total > 0:
            paused[i] += step * (1 - instances[i] / total)  # as much as if all were paused for part of it


@allocation_free
def uncontended_capacity(live: float, cpu: float, speed: float, other: float, time: float) -> float:
    """Return the records that `live` instances on a node can process in this time with a core each."""
    return live * time / (cpu / speed + other) if live > 0 else 0.0


@allocation_free
def answered(callers: float, own: float, call: float, variation: float) -> float:
    """Return the records/s of instances that always have work and share one external server.

    `own` is their time per record besides the call. The two known cases are interpolated: an exponential one, and a
    constant one, in which callers never meet unless the server is never idle.
    """
    whole = int(callers)
    if callers <= 1:
        return callers / (own + call)
    part = callers - whole
    chance = (1 - part) * finite_source_rate(whole, own, call)
    if part > 1e-9:
        chance += part * finite_source_rate(whole + 1, own, call)
    return (1 - variation) * min(callers / (own + call), 1 / call) + variation * chance  # type: ignore[no-any-return]


@allocation_free
def own_time(alone: float, call: float, instances: float, time: float) -> float:
    """Return the seconds of an instance per record besides the call, if these instances can process `alone` records."""
    return max(1e-12, instances * time / alone - call) if alone > 0 else 1e-12


@allocation_free
def capped(alone: float, uneven: float, call: float, time: float, instances: float, variation: float) -> float:
    """Return the capacity that remains if the hottest instance or the external server is the bottleneck."""
    able = alone / uneven
    if call <= 0 or able <= 0:
        return able
    return min(able, time * answered(instances, own_time(alone, call, instances, time), call, variation))  # type: ignore[no-any-return]


SHAPE = 17  # loads of the external server at which waits for it are known


@compiled
def wait_shapes(call: Array, own: Array, instances: Array) -> Array:
    """Return waits for the external server at loads from 0 to the most it gets, as shares of that at most.

    How many others are at work when an instance begins its call is binomial with the share of time for which an
    instance works, and so many callers wait as in `answered`; but no longer than at random calls from outside (M/D/1).
    """
    shapes = np.zeros((len(call), SHAPE))
    for i in range(len(call)):
        k = round(instances[i])
        if call[i] <= 0 or k < 2:
            continue
        c, z, most = call[i], own[i], finite_source_rate(k, own[i], call[i])
        longest = k / most - z - c
        if longest <= 1e-12 * c:
            continue
        few = np.zeros(min(k, FEW) + 1)
        for n in range(1, len(few)):
            few[n] = n / finite_source_rate(n, z, c) - z - c
        load, waits = np.zeros(SHAPE), np.zeros(SHAPE)
        for x in range(1, SHAPE):
            a = x / (SHAPE - 1)
            wait, others = 0.0, (k - 1) * a
            if x == SHAPE - 1:
                wait = longest
            elif k <= FEW:
                chance = (1 - a) ** (k - 1)
                for n in range(1, k + 1):
                    wait += chance * few[n]
                    chance *= (k - n) / n * a / (1 - a)
            else:
                n = 1 + int(others)
                below, above = n / finite_source_rate(n, z, c), (n + 1) / finite_source_rate(n + 1, z, c)
                wait = below + (others + 1 - n) * (above - below) - z - c
            busy = min(1 - 1e-12, k * a / (z + c + wait) * c)
            wait = min(wait, (k - 1) * c, c * busy / (2 * (1 - busy)))
            load[x], waits[x] = min(most, k * a / (z + c + wait)), wait
        for x in range(SHAPE):
            shapes[i, x] = min(1.0, np.interp(x / (SHAPE - 1) * most, load, waits) / longest)
    return shapes


FEW = 64  # callers above which their number is taken as its mean


@allocation_free
def external_wait(rate: float, call: float, able: float, own: float, instances: float, shape: Array) -> float:
    """Return the wait of a record for the external server, which answers at most `able` records/s."""
    if call <= 0 or able <= 0 or instances <= 1:
        return 0.0
    at = min(1.0, rate / able) * (SHAPE - 1)
    x = min(int(at), SHAPE - 2)
    part = shape[x] + (at - x) * (shape[x + 1] - shape[x])
    return max(0.0, instances / able - own - call) * part  # type: ignore[no-any-return]


@allocation_free
def may_contend(live: Array, cpu: Array, other: Array, cores: Array, speed: Array) -> bool:
    """Return whether instances can ever need more cores than some node has."""
    for j in range(len(cores)):
        want = 0.0
        for i in range(len(cpu)):
            if cpu[i] > 0:
                want += live[j, i] * cpu[i] / (cpu[i] + other[i] * speed[j])
        if want > cores[j]:
            return True
    return False


@allocation_free
def used_cores(j: int, done: Array, full: Array, alone: Array, cpu: Array, speed: Array) -> float:
    """Return the core-seconds of node j that this work takes; an operator's work is spread like its cores."""
    total = 0.0
    for i in range(len(done)):
        if full[j, i] > 0:
            total += done[i] * full[j, i] / alone[i] * cpu[i] / speed[j]
    return total


@allocation_free
def fill_capacity(  # noqa: PLR0913
    share: Array, live: Array, cpu: Array, other: Array, speed: Array, uneven: Array, call: Array, variation: Array,
    instances: Array, time: Array, full: Array, alone: Array, able: Array,
) -> float:  # fmt: skip
    """Fill the capacities with these shares, at most one core per instance; return their largest relative change."""
    change = 0.0
    for i in range(len(alone)):
        alone[i] = 0.0
        for j in range(len(speed)):
            full[j, i] = uncontended_capacity(live[j, i], cpu[i], speed[j], other[i], time[i])
            if cpu[i] > 0:
                full[j, i] = min(full[j, i], share[j, i] * time[i] * speed[j] / cpu[i])
            alone[i] += full[j, i]
        before, able[i] = able[i], capped(alone[i], uneven[i], call[i], time[i], instances[i], variation[i])
        change = max(change, abs(able[i] - before) / max(able[i], before, 1e-300))
    return change


@allocation_free
def fair_share(
    j: int, live: Array, cpu: Array, other: Array, cores: Array, speed: Array, time: Array, ask: Array, full: Array,
    alone: Array, want: Array,
) -> float:  # fmt: skip
    """Return the level s at which $\\sum_i n_i\\min(d_i, s)$ fills the node's cores, at most 1.

    $d_i$ is the demand of an instance: all that it can use, if its operator can do less than is asked of it; otherwise
    its present use.

    The demand is all that an instance can use, if its operator can do less than is asked of it; otherwise its present
    use.
    """
    left, count = cores[j], 0.0
    for i in range(len(ask)):
        want[i] = np.inf
        if live[j, i] > 0 and cpu[i] > 0 and time[i] > 0:
            want[i] = cpu[i] / (cpu[i] + other[i] * speed[j])
            if ask[i] < alone[i]:
                now = ask[i] * full[j, i] / alone[i] * cpu[i] / speed[j] / (live[j, i] * time[i])
                want[i] = min(want[i], now)
            count += live[j, i]
    while True:  # smallest demands first: they are met, and the others share the rest
        i = int(want.argmin())
        if want[i] == np.inf:
            return 1.0
        if want[i] * count >= left:
            return float(left / count)
        left -= want[i] * live[j, i]
        count -= live[j, i]
        want[i] = np.inf


@allocation_free
def squeeze(passing: Array, bandwidth: Array, done: Array, able: Array, step: float) -> bool:
    """Lower capacities to what the links carry; return whether any was lowered by more than rounding."""
    lowered = False
    for link in range(len(bandwidth)):
        sent = 0.0
        for i in range(len(done)):
            sent += done[i] * passing[link, i]
        part = bandwidth[link] * step / sent if sent > 0 else 1.0
        if part < 1 - 1e-9:
            lowered = True
            for i in range(len(done)):
                if passing[link, i] > 0:
                    able[i] = min(able[i], done[i] * part)
    return lowered


FILLINGS, SETTLED = 20, 1e-3  # most passes over the room; growth, as a share of capacity, at which to stop


@allocation_free
def apply_backpressure(  # noqa: C901, PLR0913  (compiled: three passes over the graph; arrays, as it is called in every tick)
    start: Array, end: Array, into: Array, into_at: Array, out: Array, out_at: Array, selectivity: Array,
    queued: Array, room: Array, offered: Array, able: Array, done: Array, ask: Array, work: Array,
) -> None:  # fmt: skip
    """Fill `done` and `ask`. Operators that feed the same queue share its room in proportion to their wishes.

    Room that one of them cannot use, because another of its receivers is full, goes to the others in the next pass,
    until nothing changes.
    """
    n = len(done)
    wish, limit, free, more = work[0], work[1], work[2], work[3]
    done[:] = 0.0
    for _ in range(FILLINGS):
        held = cut = False
        for i in range(n):
            came = inflow = 0.0
            for x in range(into_at[i], into_at[i + 1]):
                e = into[x]
                came += selectivity[e] * done[start[e]]
                inflow += selectivity[e] * (done[start[e]] + wish[start[e]])
            free[i] = room[i] - queued[i] + offered[i] - came + done[i]
            wish[i] = max(0.0, min(able[i], queued[i] + inflow) - done[i])
            limit[i] = np.inf
        for i in range(n - 1, -1, -1):  # at most what fits if no other operator sends
            for x in range(out_at[i], out_at[i + 1]):
                e = out[x]
                if selectivity[e] > 0:
                    fits = max(0.0, free[end[e]] + wish[end[e]]) / selectivity[e]
                    if fits < wish[i]:
                        held, wish[i] = True, fits
        for i in range(n - 1, -1, -1):  # room includes what the queue's own operator will remove
            for x in range(out_at[i], out_at[i + 1]):
                e = out[x]
                if selectivity[e] > 0:
                    child, wished = end[e], 0.0
                    for y in range(into_at[child], into_at[child + 1]):
                        wished += selectivity[into[y]] * wish[start[into[y]]]
                    space = max(0.0, free[child] + more[child])
                    if wished > space:
                        cut = True
                        limit[i] = min(limit[i], wish[i] * (space / wished))
                    else:
                        limit[i] = min(limit[i], wish[i] + (space - wished) / selectivity[e])
            more[i] = min(wish[i], limit[i])
        grown = 0.0
        for i in range(n):
            inflow = 0.0
            for x in range(into_at[i], into_at[i + 1]):
                inflow += selectivity[into[x]] * done[start[into[x]]]
            was = done[i]
            done[i] = max(was, min(was + min(wish[i], limit[i]), queued[i] + inflow))
            ask[i] = min(queued[i] + inflow, was + limit[i])
            if able[i] > 0:
                grown = max(grown, (done[i] - was) / able[i])
        if not (held or cut) or grown < SETTLED:
            break


ROUNDS = 12  # most iterations of sharing cores
LIMITS = 20  # most iterations of lowering capacities to cores and links; two or three are typical


@allocation_free
def constrained_tick(  # noqa: C901, PLR0913, PLR0915  (compiled: one tick, whose parts share their arrays)
    g: IndexedGraph,
    c: FluidParameters,
    live: Array,
    instances: Array,
    s: FluidState,
    sums: FluidSums,
    came_before: Array,
    came: Array,
    left: Array,
    rates: Array,
    step: float,
    kept: Array,
    full: Array,
    tight: bool,
    shapes: Array,
    work: Array,
) -> None:
    """Simulate one tick in which operators are paused or blocked, share cores, or drop records.

    `live[j, i]` and `instances[i]` are the instances that work in it.
    """
    n, nodes = len(s.queue), len(c.cores)
    done, able, ask, time, alone, offered, there, most = (
        work[4],
        work[5],
        work[6],
        work[7],
        work[8],
        work[9],
        work[10],
        work[11],
    )
    queue, mass, stopped = s.queue, s.mass, 0.0
    for i in range(n):
        lost = min(s.pause[i], step)
        s.pause[i] -= lost
        sums.paused[i] += lost
        stopped = max(stopped, lost)
        time[i] = step - lost
        offered[i] = rates[i] * step
        there[i] = queue[i] + offered[i]
    fill_capacity(
        live, live, c.cpu, c.other, c.speed, c.uneven, c.call, c.variation, instances, time, full, alone, able
    )
    apply_backpressure(
        g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, able, done, ask, work
    )
    worst = 0.0
    for j in range(nodes):
        taken = used_cores(j, done, full, alone, c.cpu, c.speed) if tight else 0.0
        worst = max(worst, taken / (c.cores[j] * step) if taken > 0 else 0.0)
    if worst > 1 + 1e-9:
        # The share of one operator depends on the demand of the others, and that on all shares: a blocked source
        # has little demand. So shares are computed repeatedly, in smaller and smaller steps from those of the tick
        # before, until they agree; if they do not quite, the limits below keep the work within the cores.
        for r in range(ROUNDS + 1):
            change = fill_capacity(
                s.share,
                live,
                c.cpu,
                c.other,
                c.speed,
                c.uneven,
                c.call,
                c.variation,
                instances,
                time,
                full,
                alone,
                able,
            )
            apply_backpressure(
                g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, able, done,
                ask, work,
            )  # fmt: skip
            if (r > 0 and change < 1e-6) or r == ROUNDS:
                break
            for j in range(nodes):
                part = 2.0 / (r + 2)
                top = fair_share(j, live, c.cpu, c.other, c.cores, c.speed, time, ask, full, alone, work[0])
                for i in range(n):
                    s.share[j, i] += part * (live[j, i] * top - s.share[j, i])
    else:
        for j in range(nodes):
            for i in range(n):
                s.share[j, i] = live[j, i]
    for i in range(n):
        most[i] = able[i]
    if worst > 1 + 1e-9 or len(c.bandwidth):
        for _ in range(LIMITS):  # an operator that is limited leaves room that others may then use
            lowered = squeeze(c.passing, c.bandwidth, done, most, step)
            for j in range(nodes if tight else 0):
                load = used_cores(j, done, full, alone, c.cpu, c.speed) / (c.cores[j] * step) if c.cores[j] > 0 else 0.0
                for i in range(n if load > 1 + 1e-9 else 0):
                    if full[j, i] > 0 and done[i] / load < most[i]:
                        lowered, most[i] = True, done[i] / load
            if not lowered:
                break
            apply_backpressure(
                g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, most, done,
                ask, work,
            )  # fmt: skip
    flow, ended, gone, lag = work[0], 0.0, 0.0, 0.0
    for i in range(n):
        arrived = flowing = offered[i]
        for x in range(g.into_at[i], g.into_at[i + 1]):
            e = g.into[x]
            sent = c.selectivity[e] * done[g.start[e]]
            sums.sent[e] += sent
            arrived += sent
            flowing += flow[g.start[e]]
        here, behind, before = queue[i] + arrived, mass[i] + flowing, queue[i]
        done[i] = min(done[i], here)
        moved = behind * (done[i] / here) if here > 0 else behind
        queue[i], mass[i] = here - done[i], behind - moved
        came[i], left[i] = came_before[i] + arrived, done[i]
        if queue[i] > c.refuse[i]:
            excess = min(queue[i] - c.refuse[i], arrived)  # records that wait already are kept, as after a scale-in
            part = excess / queue[i]
            sums.dropped[i] += excess
            came[i] -= excess
            gone += mass[i] * part
            queue[i], mass[i] = queue[i] - excess, mass[i] * (1 - part)
        sums.queued[i] += (before + queue[i]) / 2 * step
        sums.arrived[i] += arrived
        sums.done[i] += done[i]
        for j in range(nodes):
            if full[j, i] > 0:
                sums.cpu[i] += done[i] * full[j, i] / alone[i] * c.cpu[i] / c.speed[j]
        held = queue[i] > 1e-9 and done[i] < able[i] * (1 - 1e-9)
        if c.call[i] > 0:
            busy = 0.0
            if done[i] > 0:
                own = own_time(alone[i], c.call[i], instances[i], time[i])
                wait = external_wait(done[i] / time[i], c.call[i], able[i] / time[i], own, instances[i], shapes[i])
                busy = min(instances[i] * time[i], done[i] * (own + c.call[i] + wait))
            sums.busy[i] += busy
            if held:  # an instance that does not work waits for room, unless a hot one is the bottleneck
                waiting = instances[i] * time[i] * (1.0 if c.uneven[i] == 1 else 1 - done[i] / able[i])
                sums.blocked[i] += min(waiting, instances[i] * time[i] - busy)
        else:
            if done[i] > 0:
                sums.busy[i] += min(instances[i] * time[i], done[i] * (instances[i] * time[i] / alone[i]))
            if held:
                sums.blocked[i] += instances[i] * time[i] * (1 - done[i] / able[i])
        branches = g.out_at[i + 1] - g.out_at[i]
        flow[i] = moved / max(1, branches)
        ended += moved if branches == 0 else 0.0
        lag += queue[i] if g.into_at[i] == g.into_at[i + 1] else 0.0
    for j in range(nodes):
        sums.cores[j] += used_cores(j, done, full, alone, c.cpu, c.speed)
    sums.flow[0] += ended
    sums.flow[1] += stopped
    sums.flow[2] += gone
    kept[0], kept[1], kept[2] = ended, lag, gone


class Uncontended(NamedTuple):
    """Rates of operators while each instance has a core."""

    limits: Array  # [i] records that may wait
    rate: Array  # [i] records/s
    each: Array  # [i] seconds of an instance for each record
    core: Array  # [j, i] core-seconds of node j for each record
    shapes: Array  # [i] see `wait_shapes`
    tight: bool  # whether instances could ever want more cores than there are


@compiled
def play_fluid(
    g: IndexedGraph,
    c: FluidParameters,
    s: FluidState,
    sums: FluidSums,
    curves: Curves,
    rates: Array,
    dt: Array,
    kept: Array,
) -> None:
    """Simulate all ticks. `rates[m, i]` is the load of source i in tick m.

    Fill `kept[m]` with ended, lag and lost mass.
    """
    n, nodes = len(s.queue), len(c.cores)
    work, full = np.zeros((12, n)), np.zeros((nodes, n))
    live, instances, holding = c.live.copy(), c.instances.copy(), s.rest.max() > 0
    rate, each, core = np.zeros(n), np.zeros(n), np.zeros((nodes, n))  # with a core for each instance
    for i in range(n):
        for j in range(nodes):
            core[j, i] = uncontended_capacity(c.live[j, i], c.cpu[i], c.speed[j], c.other[i], 1.0)
            rate[i] += core[j, i]
        if rate[i] > 0:
            each[i] = c.instances[i] / rate[i]
            core[:, i] *= c.cpu[i] / c.speed / rate[i]
        rate[i] = capped(rate[i], c.uneven[i], c.call[i], 1.0, c.instances[i], c.variation[i])
    shapes = wait_shapes(c.call, each - c.call, c.instances)
    limits, tight = np.minimum(c.room, c.refuse), may_contend(c.live, c.cpu, c.other, c.cores, c.speed)
    easy = len(c.bandwidth) == 0 and c.instances.min() > 0
    alone = Uncontended(limits, rate, each, core, shapes, tight)
    m, row, t, came, left = 0, curves.rows[0], curves.t, curves.arrived, curves.departed
    while m < len(dt):
        if easy and s.pause.max() <= 0 and s.rest.max() <= 0:
            first, m = m, unconstrained_ticks(m, g, c, s, sums, curves, alone, rates, dt, kept, work)
            if m > first:
                s.share[:] = c.live
        if m < len(dt):
            t[row + m] = t[row + m - 1] + dt[m]
            if holding:
                active_instances(c.live, s.held, s.rest, dt[m], live, instances, sums.paused)
            constrained_tick(
                g,
                c,
                live,
                instances,
                s,
                sums,
                came[row + m - 1],
                came[row + m],
                left[row + m],
                rates[m],
                dt[m],
                kept[m],
                full,
                tight,
                shapes,
                work,
            )
            m += 1
    curves.rows[0] += len(dt)
    record_waits(curves.t, came, left, curves.at, s.head, sums.queued, sums.waits, row, curves.rows[0])


@allocation_free
def unconstrained_ticks(  # noqa: C901  (compiled: all operators of a tick in one loop)
    m: int,
    g: IndexedGraph,
    c: FluidParameters,
    s: FluidState,
    sums: FluidSums,
    curves: Curves,
    alone: Uncontended,
    rates: Array,
    dt: Array,
    kept: Array,
    work: Array,
) -> int:
    """Simulate unconstrained ticks from `m` on; return the index of the first constrained one, not simulated yet."""
    start, into, into_at, out_at, selectivity = g.start, g.into, g.into_at, g.out_at, c.selectivity
    queue, mass, call, instances, cores = s.queue, s.mass, c.call, c.instances, c.cores
    limits, rate, each, core, shapes = alone.limits, alone.rate, alone.each, alone.core, alone.shapes
    row, t, came, left = curves.rows[0], curves.t, curves.arrived, curves.departed
    n = len(queue)
    done, flow, all_done = work[0], work[1], work[2]
    all_done[:] = 0.0
    while m < len(dt):
        step, easy = dt[m], True
        for i in range(n):
            there = queue[i] + rates[m, i] * step
            for x in range(into_at[i], into_at[i + 1]):
                there += selectivity[into[x]] * done[start[into[x]]]
            done[i] = min(rate[i] * step, there)
            easy = easy and there - done[i] <= limits[i]
        if alone.tight:
            for j in range(len(cores)):
                taken = 0.0
                for i in range(n):
                    taken += done[i] * core[j, i]
                easy = easy and taken <= cores[j] * step
        if not easy:
            break
        ended = lag = 0.0
        for i in range(n):
            arrived = flowing = rates[m, i] * step
            for x in range(into_at[i], into_at[i + 1]):
                e = into[x]
                sent = selectivity[e] * done[start[e]]
                sums.sent[e] += sent
                arrived += sent
                flowing += flow[start[e]]
            there, behind = queue[i] + arrived, mass[i] + flowing
            done[i] = min(done[i], there)  # the same sum in another order may differ in its last bit
            moved = behind * (done[i] / there) if there > 0 else behind
            sums.queued[i] += (queue[i] + there - done[i]) / 2 * step
            queue[i], mass[i] = there - done[i], behind - moved
            sums.arrived[i] += arrived
            came[row + m, i], left[row + m, i] = came[row + m - 1, i] + arrived, done[i]
            all_done[i] += done[i]
            if done[i] > 0:
                wait = external_wait(done[i] / step, call[i], rate[i], each[i] - call[i], instances[i], shapes[i])
                sums.busy[i] += min(instances[i] * step, done[i] * (each[i] + wait))
            branches = out_at[i + 1] - out_at[i]
            flow[i] = moved / max(1, branches)
            ended += moved if branches == 0 else 0.0
            lag += queue[i] if into_at[i] == into_at[i + 1] else 0.0
        sums.flow[0] += ended
        t[row + m] = t[row + m - 1] + step
        kept[m, 0], kept[m, 1], kept[m, 2] = ended, lag, 0.0
        m += 1
    for i in range(n):
        sums.done[i] += all_done[i]
        for j in range(len(cores)):
            sums.cpu[i] += all_done[i] * core[j, i]
            sums.cores[j] += all_done[i] * core[j, i]
    return m
