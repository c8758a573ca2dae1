"""The event loop of the pipelined record-level engine: the next event over sources, delays, nodes and ends of pauses.

Names of parameters are those of `steps.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.jit import allocation_free, inlined
from .state import FROZEN, IDLE, TIMED, settle
from .steps import (
    become_idle,
    clock,
    deliver,
    finish,
    next_record,
    proceed,
    receive,
    route,
    send,
    serve_inbox,
    take,
    wake,
)


@inlined
def served(s: Any, random: Any, x: int, now: float) -> Any:
    """End the present work of x on its record; return False if a slot is missing."""
    me = s.inst[x]
    op = s.ops[me.op]
    if me.state == TIMED:
        me.cpu += me.cpu_left
    else:
        me.work = 0.0
        if me.io > 0.0:
            proceed(s, x, now)
            return True
    if op.call > 0.0 and not me.called:
        op.answered = max(now, op.answered) + op.call
        me.called, me.work, me.io = 1, 0.0, op.answered - now
        proceed(s, x, now)
        return True
    at = now - op.off
    me.busy += at - me.since
    me.since = at
    if op.out_at == op.out_end:
        finish(s, me.rec, now)
        next_record(s, random, x, now)
        return True
    me.edge, me.left, me.woken = op.out_at, -1, 0
    return send(s, random, x, now)


@inlined
def arrive(s: Any, random: Any, i: int, now: float) -> bool:
    """Append a record to the log of source i; return False if a slot is missing."""
    g, op = s.g[0], s.ops[i]
    if g.free < 0:
        return False
    g.offered += 1.0
    op.arrived += 1
    q = route(s, random, i)
    st = s.stations[q]
    if st.n + 1 > st.room:  # never if the log is unbounded
        op.dropped += 1
        g.lost += 1.0
        return True
    c = g.free
    record = s.recs[c]
    g.free = record.next
    record.share, record.weight, record.born, record.since = 1.0, 1.0, now, now
    deliver(s, random, q, c, now)
    return True


@allocation_free
def land(s: Any, random: Any, c: int, now: float) -> None:
    """Let the record c arrive from another node."""
    q = s.recs[c].station
    if s.stations[q].process >= 0:  # records within a process are never in transit
        receive(s, random, c, now)
        return
    s.recs[c].since = now
    s.stations[q].coming -= 1
    if deliver(s, random, q, c, now):
        wake(s, q)


@allocation_free
def send_more(s: Any, random: Any, now: float) -> bool:
    """Let senders, and threads, continue for which there may be room; return False if a slot is missing."""
    g = s.g[0]
    while g.todo > 0:
        g.todo -= 1
        x = s.todo[g.todo]
        if x < 0:
            serve_inbox(s, random, s.stations[-1 - x].process, now)
            wake(s, -1 - x)
            continue
        q = s.inst[x].target
        if not send(s, random, x, now):
            return False
        if q >= 0:
            wake(s, q)
    return True


@allocation_free
def resume(s: Any, random: Any, i: int, now: float) -> None:
    """Continue operator i's work in progress, and begin with waiting records."""
    op = s.ops[i]
    for x in range(op.first, op.first + op.k):
        if s.inst[x].state == FROZEN and s.inst[x].up:
            proceed(s, x, now)
    for q in range(op.station, op.station + (op.k if op.split else 1)):
        st = s.stations[q]
        while st.n > 0 and st.idle >= 0:
            x = st.idle
            st.idle = s.inst[x].next
            take(s, random, x, q, now)
        wake(s, q)


@allocation_free
def resume_due(s: Any, random: Any, now: float) -> None:
    """End the pauses that are over, and set the time of the next end."""
    s.g[0].resume = np.inf
    for i in range(len(s.ops)):
        op = s.ops[i]
        if op.paused and op.until <= now:
            op.paused = 0
            op.off += now - op.stopped_at
            op.answered += now - op.stopped_at  # the external server was paused, too
            resume(s, random, i, now)
        elif op.paused:
            s.g[0].resume = min(s.g[0].resume, op.until)
    for x in range(len(s.inst)):
        me = s.inst[x]
        if 0.0 < me.until <= now:
            release_held(s, random, x, now)
        elif me.until > 0.0:
            s.g[0].resume = min(s.g[0].resume, me.until)


@allocation_free
def release_held(s: Any, random: Any, x: int, now: float) -> None:
    """End the pause of the single instance x."""
    me = s.inst[x]
    op = s.ops[me.op]
    me.until, me.up = 0.0, s.nodes[me.node].cores > 0.0
    if not me.up or me.station < 0:
        return
    if me.state == FROZEN:
        me.since = clock(op, now)
        if not op.paused:
            proceed(s, x, now)
    elif me.state == IDLE:
        if s.stations[me.station].n > 0 and not op.paused:
            take(s, random, x, me.station, now)
        else:
            become_idle(s, x)


@allocation_free
def next_tick(s: Any, random: Any, rates: Any, dt: Any, even: bool) -> None:
    """Set the rates of the next tick; the remaining way to the next arrival continues at the new rate."""
    g = s.g[0]
    for f in range(len(s.feeds)):
        feed, rate = s.feeds[f], rates[g.tick, s.feeds[f].op]
        if rate != feed.rate:
            if feed.rate > 0.0:
                feed.left = max(0.0, (feed.next - g.now) * feed.rate)
            elif feed.left < 0.0:
                feed.left = 1.0 if even else random.standard_exponential()
            feed.rate, feed.gap = rate, 1.0 / rate
            feed.next = g.now + feed.left * feed.gap if rate > 0.0 else np.inf
    g.tick_end = g.now + dt[g.tick]
    g.tick += 1


@inlined
def settle_node(s: Any, j: int, now: float) -> None:
    """Compute when node j finishes the first of its works."""
    nd = s.nodes[j]
    nd.stale = 0
    n = settle(s, 1 + j)
    nd.next = np.inf
    if n > 0 and nd.rate > 0.0:
        nd.next = max(now, nd.at + (s.due[s.heaps[1 + j].base] - nd.v) / nd.rate)


@inlined
def first(s: Any, j: int, now: float) -> int:
    """Remove and return the instance whose work on node j ends now."""
    nd, heap = s.nodes[j], s.heaps[1 + j]
    x = s.owners[heap.base]
    me = s.inst[x]
    nd.v, nd.at = s.due[heap.base], now
    me.cpu += (nd.v - me.mark) / nd.speed
    heap.hole = 1
    nd.running -= 1
    nd.rate = nd.speed * min(1.0, nd.cores / max(1, nd.running))
    nd.stale = 1
    return x  # type: ignore[no-any-return]


@allocation_free
def play_records(s: Any, random: Any, rates: Any, dt: Any, even: bool) -> bool:  # noqa: C901  (compiled: one loop over events)
    """Simulate the ticks; return False if a slot is missing: then call it again with more slots."""
    g, nodes, feeds, heap = s.g[0], s.nodes, s.feeds, s.heaps[0]
    if g.fresh:
        g.fresh = 0
        for i in range(len(s.ops)):
            if not s.ops[i].paused:
                resume(s, random, i, g.now)
        for p in range(len(s.processes)):
            serve_inbox(s, random, p, g.now)
    while True:
        if g.todo > 0 and not send_more(s, random, g.now):
            return False
        now, what, which = g.tick_end, 0, 0
        if settle(s, 0) > 0 and s.due[heap.base] < now:
            now, what = s.due[heap.base], 1
        for f in range(len(feeds)):
            if feeds[f].next < now:
                now, what, which = feeds[f].next, 2, f
        for j in range(g.sharing):
            if nodes[j].stale:
                settle_node(s, j, g.now)
            if nodes[j].next < now:
                now, what, which = nodes[j].next, 3, j
        if g.resume < now:
            now, what = g.resume, 4
        if what == 2:
            g.now = now
            if not arrive(s, random, feeds[which].op, now):
                return False
            feeds[which].next = now + (1.0 if even else random.standard_exponential()) * feeds[which].gap
            continue
        g.now = now
        if what == 1 or what == 3:
            x = first(s, which, now) if what == 3 else s.owners[heap.base]
            if what == 1:
                heap.hole = 1
            if x < 0:
                land(s, random, -1 - x, now)
            elif not served(s, random, x, now):
                return False
        elif what == 4:
            resume_due(s, random, now)
        elif g.tick == len(dt):
            return True
        else:
            next_tick(s, random, rates, dt, even)
