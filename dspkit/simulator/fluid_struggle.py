"""A tick in which somebody stands still, is held back, finds no core, or refuses records. Compiled."""

from __future__ import annotations

from .compiled import lean
from .fluid_cores import give, level, squeeze, used, waiting
from .fluid_plan import plan
from .fluid_state import Cluster, State, Sums
from .layout import Array, Graph

ROUNDS = 12  # of sharing cores; where all find a core there is none
LIMITS = 20  # times that abilities are lowered to what cores and links carry; two or three are the rule


@lean
def struggle(
    g: Graph, c: Cluster, live: Array, instances: Array, s: State, sums: Sums, came_before: Array, came: Array,
    left: Array, rates: Array, step: float, kept: Array, full: Array, tight: bool, work: Array,
) -> None:  # fmt: skip
    """One tick. `live[j, i]` and `instances[i]`: those that work in it."""
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
    give(live, live, c.cpu, c.other, c.speed, c.uneven, c.call, time, full, alone, able)
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
            change = give(s.share, live, c.cpu, c.other, c.speed, c.uneven, c.call, time, full, alone, able)
            plan(
                g.start, g.end, g.into, g.into_at, g.out, g.out_at, c.selectivity, there, c.room, offered, able, done,
                ask, work,
            )  # fmt: skip
            if (r > 0 and change < 1e-6) or r == ROUNDS:
                break
            for j in range(nodes):
                part = 2.0 / (r + 2)
                top = level(j, live, c.cpu, c.other, c.cores, c.speed, time, ask, full, alone, work[0])
                for i in range(n):
                    s.share[j, i] += part * (live[j, i] * top - s.share[j, i])
    else:
        for j in range(nodes):
            for i in range(n):
                s.share[j, i] = live[j, i]
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
            each = instances[i] * time[i] / alone[i] + waiting(done[i] / time[i], c.call[i], instances[i])
            sums.busy[i] += min(instances[i] * time[i], done[i] * each)
        if queue[i] > 1e-9 and done[i] < able[i] * (1 - 1e-9):
            sums.blocked[i] += instances[i] * time[i] * (1 - done[i] / able[i])
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
