"""Between two plays: what is in progress is counted or set aside, and records are lost.

Work that is set aside (`freeze`) goes on with `resume`, at the start of the next play.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import lean
from .layout import Array
from .tuples_heap import rise, settle
from .tuples_state import BLOCKED, FROZEN, SENDING, SHARING, TIMED, State
from .tuples_steps import advance, clock, line_up, release, route


@lean
def count(s: Any) -> None:
    """Book what is in progress up to now, as if it were two pieces of work."""
    now, heap = s.g[0].now, s.heaps[0]
    for x in range(len(s.inst)):
        me = s.inst[x]
        op, nd = s.ops[me.op], s.nodes[me.node]
        at = clock(op, now)
        if me.state == SHARING:
            v = nd.v + (now - nd.at) * nd.rate
            me.cpu += (v - me.mark) / nd.speed
            me.mark = v
        if me.state in (SHARING, TIMED, FROZEN) and me.until <= 0.0:
            me.busy += at - me.since
        elif me.state in (SENDING, BLOCKED):
            me.blocked += at - me.since
        me.since = at
    for k in range(heap.base, heap.base + settle(s, 0)):
        if s.who[k] >= 0:  # CPU time comes first in a delay, so what is left of it is what the rest does not fill
            me = s.inst[s.who[k]]
            left = max(0.0, s.due[k] - now - me.io)
            me.cpu += me.cpu_left - left
            me.cpu_left = left


@lean
def freeze(s: Any) -> None:
    """Take all work in progress out of the heaps; how much of it is left stays with the instances."""
    count(s)
    now, heap = s.g[0].now, s.heaps[0]
    n, heap.n = settle(s, 0), np.uint64(0)
    for k in range(heap.base, heap.base + n):
        due, who = s.due[k], s.who[k]
        if who < 0:
            rise(s.due, s.who, heap.base, heap.n, due, who)
            heap.n += np.uint64(1)
        else:
            me = s.inst[who]
            me.work = me.cpu_left * s.nodes[me.node].speed
            me.io = min(me.io, due - now)
            me.state = FROZEN
    for j in range(len(s.nodes)):
        nd, heap = s.nodes[j], s.heaps[1 + j]
        advance(nd, now)
        for k in range(heap.base, heap.base + settle(s, 1 + j)):
            me = s.inst[s.who[k]]
            me.work = max(0.0, s.due[k] - nd.v)
            me.state = FROZEN
        heap.n = np.uint64(0)
        nd.running = nd.stale = 0
        nd.next = np.inf


@lean
def hold(s: Any, i: int, place: int, n: int, until: float) -> None:
    """n more of operator i's instances in this place stand still, the last ones first; they are idle for nobody.

    A place is a node, or a process where these are told apart. Those that stand still already wait as long.
    """
    op = s.ops[i]
    for x in range(op.first + op.k - 1, op.first - 1, -1):
        me = s.inst[x]
        here = place == (me.process if me.process >= 0 else me.node)
        if here and me.until > 0.0:
            me.until = max(me.until, until)
        elif here and n > 0:
            me.until, me.up, n = until, 0, n - 1
    for q in range(op.station, op.station + (op.k if op.split else 1)):
        st = s.stations[q]
        x, st.idle = st.idle, -1
        while x >= 0:
            following = s.inst[x].next
            s.inst[x].next = -1
            if s.inst[x].up and st.idle < 0:
                st.idle = st.idle_last = x
            elif s.inst[x].up:
                s.inst[st.idle_last].next = x
                st.idle_last = x
            x = following


@lean
def listed(s: Any, lines: Any, at: int, slots: Any) -> None:
    """Write the slots that wait in this one of stations or processes, in order, into `slots`."""
    c = lines[at].head
    for k in range(lines[at].n):
        slots[k] = c
        c = s.recs[c].next


@lean
def deal(s: Any, random: Any, i: int, slots: Any) -> None:
    """These wait at operator i, spread anew over its stations."""
    for c in slots:
        line_up(s, s.stations[route(s, random, i)], c)


@lean
def redirect(s: Any, random: Any, op: Any, kept: Any, shift: Any, slots: Any) -> None:
    """These were to come to stations of another layout, whose operators were `op`: say where they go now."""
    for c in slots:
        record = s.recs[c]
        i = op[record.station]
        record.station = record.station + shift[i] if kept[i] else route(s, random, i)


@lean
def seat(s: Any, slots: Any) -> None:
    """These wait for the threads of the processes that their stations are in."""
    for c in slots:
        st = s.stations[s.recs[c].station]
        st.far += 1
        line_up(s, s.processes[st.process], c)


@lean
def lose(s: Any, random: Any, q: int, n: int) -> None:
    """n of those that wait at q, each as likely as the others, are lost."""
    st, op = s.stations[q], s.ops[s.stations[q].op]
    left, c, st.n = st.n, st.head, 0
    while left > 0:
        following = s.recs[c].next
        if random.random() * left < n:
            n -= 1
            op.dropped += 1
            s.g[0].lost += s.recs[c].share
            release(s, c)
        else:
            line_up(s, st, c)
        c = following
        left -= 1


def waiting(s: State, lines: Array, at: int) -> Array:
    slots = np.empty(int(lines["n"][at]), np.int32)
    listed(s, lines, at, slots)
    return slots
