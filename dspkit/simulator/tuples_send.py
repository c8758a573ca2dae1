"""What comes of a record is sent on, or waits for room; names of parameters are those of tuples_steps.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inlined
from .tuples_heap import put
from .tuples_processes import receive
from .tuples_state import BLOCKED, SENDING
from .tuples_steps import clock, deliver, go_on, release, route


@inlined
def transit(s: Any, random: Any, x: int, q: int, e: int, now: float) -> float:
    """When a record that x sends along e now is at station q."""
    st, a = s.stations[q], s.inst[x].node
    op = s.ops[st.op]
    b = s.inst[op.first + (q - op.station if op.split else int(random.random() * op.k))].node
    if a == b:
        return now
    link = s.links[a, b]
    if link.bandwidth == np.inf:
        return now + link.delay  # type: ignore[no-any-return]
    link.free = max(now, link.free) + s.edges[e].size / link.bandwidth
    return link.free + link.delay  # type: ignore[no-any-return]


@inlined
def hold(s: Any, x: int, q: int, now: float) -> None:
    """x waits for room at q: at the end of the row, or in front if it was its turn."""
    st, me = s.stations[q], s.inst[x]
    me.state = BLOCKED
    if not me.woken:
        me.held_at = now
    if st.held < 0 or me.woken:
        me.next = st.held
        if st.held < 0:
            st.held_last = x
        st.held = x
    else:
        me.next = -1
        s.inst[st.held_last].next = x
        st.held_last = x
    me.woken = 0


@inlined
def send(s: Any, random: Any, x: int, now: float) -> bool:
    """x sends what comes of its record, as far as there is room; False if a slot is missing (and x goes on later)."""
    g, me = s.g[0], s.inst[x]
    op, parent = s.ops[me.op], s.recs[me.rec]
    share, weight = me.share, me.weight
    while True:
        if me.left <= 0:
            if me.left == 0:
                me.edge += 1
            if me.edge >= op.out_end:
                release(s, me.rec)
                break
            edge = s.edges[me.edge]
            me.left = edge.whole
            if edge.fraction > 0.0 and random.random() < edge.fraction:
                me.left += 1
            me.target = -1
            if me.left == 0:  # what it stands for ends here, as far as this branch goes
                g.ended += parent.share * edge.part
                continue
            share, weight = parent.share * edge.part, parent.weight * edge.weight
            if me.left > 1:
                share /= me.left
        edge = s.edges[me.edge]
        to = s.ops[edge.to]
        if me.target < 0:
            me.target = route(s, random, edge.to)
        st = s.stations[me.target]
        far = st.process >= 0 and st.process != me.process  # there its thread waits for room, and nobody here
        if st.n + st.coming + 1 > st.room and not far:
            if not to.drops:
                me.share, me.weight = share, weight
                hold(s, x, me.target, now)
                return True
            to.dropped += 1
            to.arrived += 1
            edge.sent += 1
            g.lost += share
            me.left -= 1
            me.target = -1
            continue
        last = me.left == 1 and me.edge + 1 == op.out_end
        c = me.rec if last else g.free
        if c < 0:
            s.todo[g.todo] = x
            g.todo += 1
            me.state, me.share, me.weight = SENDING, share, weight
            return False
        child = s.recs[c]
        if not last:
            g.free = child.next
            child.born, child.taken = parent.born, parent.taken
        child.share, child.weight = share, weight
        edge.sent += 1
        to.arrived += 1
        arrives = transit(s, random, x, me.target, me.edge, now) if g.linked else now
        child.station, child.since = me.target, now
        if arrives > now:
            if far:
                st.far += 1
            else:
                st.coming += 1
            put(s, 0, arrives, -1 - c)
        elif far:
            st.far += 1
            receive(s, random, c, now)
        else:
            deliver(s, random, me.target, c, now)
        if st.process >= 0:
            me.woken = 0  # it had its turn: with threads about, each record is one
        me.left -= 1
        me.target = -1
        if last:
            break
    at = clock(op, now)
    me.blocked += at - me.since
    me.since, me.woken = at, 0
    go_on(s, random, x, now)
    return True
