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

import numpy as np

from .compiled import compiled, lean
from .fluid_cores import capped, crowded, standing, waiting, whole
from .fluid_curves import Curves, age
from .fluid_state import Cluster, State, Sums
from .fluid_struggle import struggle
from .layout import Array, Graph


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
    live, instances, holding = c.live.copy(), c.instances.copy(), s.rest.max() > 0
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
        if easy and s.pause.max() <= 0 and s.rest.max() <= 0:
            first, m = m, glide(
                m, g.start, g.into, g.into_at, g.out_at, c.selectivity, s.queue, s.mass, limits, rate, each, c.call,
                c.instances, core, c.cores, tight, rates, dt, kept, sums.arrived, sums.done, sums.busy,
                sums.cpu, sums.queued, sums.sent, sums.cores, sums.flow, row, t, came, left, work,
            )  # fmt: skip
            if m > first:
                s.share[:] = c.live
        if m < len(dt):
            t[row + m] = t[row + m - 1] + dt[m]
            if holding:
                standing(c.live, s.held, s.rest, dt[m], live, instances, sums.still)
            struggle(
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
