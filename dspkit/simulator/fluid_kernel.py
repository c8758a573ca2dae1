"""Rates instead of records: ticks of a job as a fluid. Compiled.

    | here | meaning |
    |---|---|
    | queue[i] | records waiting for operator i; a source's queue is its log |
    | mass[i] | source records that these stem from; a record's mass is shared equally by the branches it takes |
    | done[i], able[i] | records that i processes in this tick, and could process |

Records may pass several operators in one tick: the fluid takes no time for that. Service and random waiting are added
by `steady`, from theory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .compiled import compiled, lean
from .fluid_cores import capped, crowded, give, level, squeeze, used, waiting, whole
from .fluid_curves import Curves, age
from .fluid_plan import plan
from .layout import Array, Graph

ROUNDS = 12  # of sharing cores; where all find a core there is none
LIMITS = 20  # times that abilities are lowered to what cores and links carry; two or three are the rule


class Cluster(NamedTuple):
    """What the ticks of a window have in common. i is an operator, e an edge, j a node, l a link that has a limit."""

    live: Array  # [j, i] instances on nodes that are up
    instances: Array  # [i] of them in all
    cpu: Array  # [i] core-seconds a record takes at speed 1
    other: Array  # [i] seconds it takes beside that, the call included
    call: Array  # [i] seconds of the external server that a record takes
    uneven: Array  # [i] records of the hottest instance over those of the average one
    room: Array  # [i] records; inf where nobody is held back
    refuse: Array  # [i] records beyond which the queue refuses; inf where it does not
    cores: Array  # [j]
    speed: Array  # [j]
    selectivity: Array  # [e]
    passing: Array  # [l, i] bytes that a record of i sends over the link
    bandwidth: Array  # [l] bytes/s


class State(NamedTuple):
    """What goes from tick to tick."""

    queue: Array
    mass: Array
    pause: Array  # [i] seconds that it stands still from now on
    share: Array  # [j, i] cores of node j that i's instances may use
    head: Array  # [i] records that have left the queue since the start, lost ones included


class Sums(NamedTuple):
    """What a window adds up; see `engine.Window`. `queued`, `waits`: record-seconds in the queue, and of those who left
    it; `flow`: ended, stopped, lost mass.
    """

    arrived: Array
    done: Array
    still: Array  # [i] seconds that it stood still
    dropped: Array
    busy: Array
    blocked: Array
    cpu: Array
    queued: Array
    waits: Array
    sent: Array
    cores: Array
    flow: Array


@compiled
def play(
    g: Graph, c: Cluster, s: State, sums: Sums, curves: Curves, rates: Array, dt: Array, kept: Array
) -> None:  # fmt: skip
    """Play all ticks. `rates[m, i]` is what source i is offered in tick m; `kept[m]` gets ended, lag and lost mass.

    Most ticks are easy: nobody stands still or is held back, and there are cores for all. `glide` does these; each of
    the others goes through `struggle`.
    """
    n, nodes = len(s.queue), len(c.cores)
    work, full = np.zeros((12, n)), np.zeros((nodes, n))
    rate, each, core = np.zeros(n), np.zeros(n), np.zeros((nodes, n))  # with a core for each instance
    for i in range(n):
        for j in range(nodes):
            core[j, i] = whole(c.live[j, i], c.cpu[i], c.speed[j], c.other[i], 1.0)
            rate[i] += core[j, i]
        if rate[i] > 0:
            each[i] = c.instances[i] / rate[i]
            core[:, i] *= c.cpu[i] / c.speed / rate[i]
        rate[i] = capped(rate[i], c.uneven[i], c.call[i], 1.0)
    limits, tight = np.minimum(c.room, c.refuse), crowded(c.live, c.cpu, c.other, c.cores, c.speed)
    easy = len(c.bandwidth) == 0 and c.instances.min() > 0
    m, row, t, came, left = 0, curves.rows[0], curves.t, curves.came, curves.left
    while m < len(dt):
        if easy and s.pause.max() <= 0:
            first, m = m, glide(
                m, g.start, g.into, g.into_at, g.out_at, c.selectivity, s.queue, s.mass, limits, rate, each, c.call,
                c.instances, core, c.cores, tight, rates, dt, kept, sums.arrived, sums.done, sums.busy,
                sums.cpu, sums.queued, sums.sent, sums.cores, sums.flow, row, t, came, left, work,
            )  # fmt: skip
            if m > first:
                s.share[:] = c.live
        if m < len(dt):
            t[row + m] = t[row + m - 1] + dt[m]
            struggle(
                g,
                c,
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
                work,
            )
            m += 1
    curves.rows[0] += len(dt)
    age(curves.t, came, left, curves.at, s.head, sums.queued, sums.waits, row, curves.rows[0])


@lean
def glide(
    m: int, start: Array, into: Array, into_at: Array, out_at: Array, selectivity: Array, queue: Array, mass: Array,
    limits: Array, rate: Array, each: Array, call: Array, instances: Array, core: Array, cores: Array,
    tight: bool, rates: Array, dt: Array, kept: Array, s_arrived: Array, s_done: Array, s_busy: Array, s_cpu: Array,
    s_queued: Array, s_sent: Array, s_cores: Array, s_flow: Array, row: int, t: Array, came: Array, left: Array,
    work: Array,
) -> int:  # fmt: skip
    """Play easy ticks from `m` on; the number of the first that is not, of which nothing is done yet."""
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
        if tight:
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
                s_sent[e] += sent
                arrived += sent
                flowing += flow[start[e]]
            there, behind = queue[i] + arrived, mass[i] + flowing
            done[i] = min(done[i], there)  # the same sum in another order may differ in its last bit
            moved = behind * (done[i] / there) if there > 0 else behind
            s_queued[i] += (queue[i] + there - done[i]) / 2 * step
            queue[i], mass[i] = there - done[i], behind - moved
            s_arrived[i] += arrived
            came[row + m, i], left[row + m, i] = came[row + m - 1, i] + arrived, done[i]
            all_done[i] += done[i]
            if done[i] > 0:
                s_busy[i] += min(
                    instances[i] * step, done[i] * (each[i] + waiting(done[i] / step, call[i], instances[i]))
                )
            branches = out_at[i + 1] - out_at[i]
            flow[i] = moved / max(1, branches)
            ended += moved if branches == 0 else 0.0
            lag += queue[i] if into_at[i] == into_at[i + 1] else 0.0
        s_flow[0] += ended
        t[row + m] = t[row + m - 1] + step
        kept[m, 0], kept[m, 1], kept[m, 2] = ended, lag, 0.0
        m += 1
    for i in range(n):
        s_done[i] += all_done[i]
        for j in range(len(cores)):
            s_cpu[i] += all_done[i] * core[j, i]
            s_cores[j] += all_done[i] * core[j, i]
    return m


@lean
def struggle(
    g: Graph, c: Cluster, s: State, sums: Sums, came_before: Array, came: Array, left: Array, rates: Array, step: float,
    kept: Array, full: Array, tight: bool, work: Array,
) -> None:  # fmt: skip
    """One tick in which somebody stands still, is held back, finds no core, or refuses records."""
    n, nodes = len(s.queue), len(c.cores)
    done, able, ask, time, alone, offered, there, most = (
        work[4], work[5], work[6], work[7], work[8], work[9], work[10], work[11],
    )  # fmt: skip
    queue, mass, stopped = s.queue, s.mass, 0.0
    for i in range(n):
        lost = min(s.pause[i], step)
        s.pause[i] -= lost
        sums.still[i] += lost
        stopped = max(stopped, lost)
        time[i] = step - lost
        offered[i] = rates[i] * step
        there[i] = queue[i] + offered[i]
    give(c.live, c.live, c.cpu, c.other, c.speed, c.uneven, c.call, time, full, alone, able)
    plan(
        g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, able, done, ask, work
    )
    worst = 0.0
    for j in range(nodes):
        taken = used(j, done, full, alone, c.cpu, c.speed) if tight else 0.0
        worst = max(worst, taken / (c.cores[j] * step) if taken > 0 else 0.0)
    if worst > 1 + 1e-9:
        # What one may use depends on what the others ask for, and that on what all get: a source that is held back
        # asks for little. So shares are worked out again, in smaller and smaller steps from those of the tick before,
        # until they agree; and if they do not quite, nobody does more than the cores can.
        for r in range(ROUNDS + 1):
            change = give(s.share, c.live, c.cpu, c.other, c.speed, c.uneven, c.call, time, full, alone, able)
            plan(
                g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, able, done,
                ask, work,
            )  # fmt: skip
            if (r > 0 and change < 1e-6) or r == ROUNDS:
                break
            for j in range(nodes):
                part = 2.0 / (r + 2)
                top = level(j, c.live, c.cpu, c.other, c.cores, c.speed, time, ask, full, alone, work[0])
                for i in range(n):
                    s.share[j, i] += part * (c.live[j, i] * top - s.share[j, i])
    else:
        for j in range(nodes):
            for i in range(n):
                s.share[j, i] = c.live[j, i]
    for i in range(n):
        most[i] = able[i]
    if worst > 1 + 1e-9 or len(c.bandwidth):
        for _ in range(LIMITS):  # who is held to what cores and links carry leaves room that others may then use
            lowered = squeeze(c.passing, c.bandwidth, done, most, step)
            for j in range(nodes if tight else 0):
                load = used(j, done, full, alone, c.cpu, c.speed) / (c.cores[j] * step) if c.cores[j] > 0 else 0.0
                for i in range(n if load > 1 + 1e-9 else 0):
                    if full[j, i] > 0 and done[i] / load < most[i]:
                        lowered, most[i] = True, done[i] / load
            if not lowered:
                break
            plan(
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
            excess = min(queue[i] - c.refuse[i], arrived)  # what waits already stays, as after a scale-in
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
        if done[i] > 0:
            each = c.instances[i] * time[i] / alone[i] + waiting(done[i] / time[i], c.call[i], c.instances[i])
            sums.busy[i] += min(c.instances[i] * time[i], done[i] * each)
        if queue[i] > 1e-9 and done[i] < able[i] * (1 - 1e-9):
            sums.blocked[i] += c.instances[i] * time[i] * (1 - done[i] / able[i])
        branches = g.out_at[i + 1] - g.out_at[i]
        flow[i] = moved / max(1, branches)
        ended += moved if branches == 0 else 0.0
        lag += queue[i] if g.into_at[i] == g.into_at[i + 1] else 0.0
    for j in range(nodes):
        sums.cores[j] += used(j, done, full, alone, c.cpu, c.speed)
    sums.flow[0] += ended
    sums.flow[1] += stopped
    sums.flow[2] += gone
    kept[0], kept[1], kept[2] = ended, lag, gone
