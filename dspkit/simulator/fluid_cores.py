"""Instances that share the cores of their nodes, an external server, a hot key, a link: who gets how much. Compiled.

| here | meaning |
|---|---|
| live[j, i] | i's instances on node j, if it is up |
| share[j, i] | cores of node j that they may use |
| alone[i] | records that i's instances can process in this tick with the cores they have |
| full[j, i] | those of them that are processed on node j |
"""

from __future__ import annotations

import numpy as np

from .compiled import lean
from .layout import Array


@lean
def standing(
    all_live: Array, held: Array, rest: Array, step: float, live: Array, instances: Array, still: Array
) -> None:  # fmt: skip
    """Fill who works in this tick, on average over it, while `held` instances stand still for `rest` more seconds."""
    for i in range(len(rest)):
        part = min(rest[i], step)
        rest[i] -= part
        instances[i], total = 0.0, 0.0
        for j in range(len(live)):
            total += all_live[j, i]
            live[j, i] = max(0.0, all_live[j, i] - held[j, i] * part / step)
            instances[i] += live[j, i]
        if total > 0:
            still[i] += step * (1 - instances[i] / total)  # as much as if all had stood still for part of it


@lean
def whole(live: float, cpu: float, speed: float, other: float, time: float) -> float:
    """Records that `live` instances on a node can process in this time with a core for each."""
    return live * time / (cpu / speed + other) if live > 0 else 0.0


@lean
def capped(alone: float, uneven: float, call: float, time: float) -> float:
    """What remains of an ability if the hottest instance, or the external server, is the slowest."""
    able = alone / uneven
    return min(able, time / call) if call > 0 else able


@lean
def waiting(rate: float, call: float, instances: float) -> float:
    """Time that a record waits for the external server: a random caller finds part of a call going, or all callers."""
    if call <= 0:
        return 0.0
    load, most = rate * call, (instances - 1) * call
    return min(most, call * load / (2 * (1 - load))) if load < 1 else most


@lean
def crowded(live: Array, cpu: Array, other: Array, cores: Array, speed: Array) -> bool:
    """Whether instances could ever want more cores than some node has."""
    for j in range(len(cores)):
        want = 0.0
        for i in range(len(cpu)):
            if cpu[i] > 0:
                want += live[j, i] * cpu[i] / (cpu[i] + other[i] * speed[j])
        if want > cores[j]:
            return True
    return False


@lean
def used(j: int, done: Array, full: Array, alone: Array, cpu: Array, speed: Array) -> float:
    """Core-seconds of node j that this work takes: an operator's work goes where it has its cores."""
    total = 0.0
    for i in range(len(done)):
        if full[j, i] > 0:
            total += done[i] * full[j, i] / alone[i] * cpu[i] / speed[j]
    return total


@lean
def give(
    share: Array, live: Array, cpu: Array, other: Array, speed: Array, uneven: Array, call: Array, time: Array,
    full: Array, alone: Array, able: Array,
) -> float:  # fmt: skip
    """Fill what operators can do with these shares, at most one core an instance; the largest relative change of it."""
    change = 0.0
    for i in range(len(alone)):
        alone[i] = 0.0
        for j in range(len(speed)):
            full[j, i] = whole(live[j, i], cpu[i], speed[j], other[i], time[i])
            if cpu[i] > 0:
                full[j, i] = min(full[j, i], share[j, i] * time[i] * speed[j] / cpu[i])
            alone[i] += full[j, i]
        before, able[i] = able[i], capped(alone[i], uneven[i], call[i], time[i])
        change = max(change, abs(able[i] - before) / max(able[i], before, 1e-300))
    return change


@lean
def level(
    j: int, live: Array, cpu: Array, other: Array, cores: Array, speed: Array, time: Array, ask: Array, full: Array,
    alone: Array, want: Array,
) -> float:  # fmt: skip
    """The level s at which $\\sum_i n_i\\min(d_i, s)$ fills the node's cores, at most 1; $d_i$: what one wants.

    That is all it could use, if its operator can do less than it is asked for; else what it uses now.
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
    while True:  # those who want least first: they get it, and the others share the rest
        i = int(want.argmin())
        if want[i] == np.inf:
            return 1.0
        if want[i] * count >= left:
            return float(left / count)
        left -= want[i] * live[j, i]
        count -= live[j, i]
        want[i] = np.inf


@lean
def squeeze(passing: Array, bandwidth: Array, done: Array, able: Array, step: float) -> bool:
    """Lower what operators may do to what their links carry; whether anything was lowered by more than rounding."""
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
