"""What happens to one record: it is routed, waits, is worked on, and what comes of it is sent on.

| letter | meaning |
|---|---|
| s | the State |
| x, c, q, j | an instance, a record's slot, a station, a node |
| me, op, st, nd | the entries of x's instance, its operator, its station, its node |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inlined, lean
from .tuples_heap import put
from .tuples_state import BLOCKED, IDLE, SENDING, SHARING, TIMED


@inlined
def clock(op: Any, now: float) -> float:
    """Time that the operator did not stand still."""
    return (op.stopped_at if op.paused else now) - op.off  # type: ignore[no-any-return]


@lean
def drawn(op: Any, random: Any) -> float:
    """A service time."""
    if op.law == 0:
        return op.seconds * random.standard_exponential()  # type: ignore[no-any-return]
    if op.law == 1 or op.cv == 0.0:
        return op.seconds  # type: ignore[no-any-return]
    spread = op.cv * op.cv
    return op.seconds * spread * random.standard_gamma(1.0 / spread)  # type: ignore[no-any-return]


@inlined
def advance(nd: Any, now: float) -> None:
    """Let the node's virtual time catch up."""
    nd.v += (now - nd.at) * nd.rate
    nd.at = now


@inlined
def proceed(s: Any, x: int, now: float) -> None:
    """Start or resume what is left to do on x's record: CPU time first, then the rest."""
    me = s.inst[x]
    nd = s.nodes[me.node]
    if nd.shared and me.work > 0.0:
        advance(nd, now)
        me.state, me.mark = SHARING, nd.v
        put(s, 1 + me.node, nd.v + me.work, x)
        nd.running += 1
        nd.rate = nd.speed * min(1.0, nd.cores / nd.running)
        nd.stale = 1
    else:  # a core for each of the node's instances: nobody waits, and it is one plain delay
        me.state, me.cpu_left = TIMED, me.work * nd.pace
        put(s, 0, now + me.cpu_left + me.io, x)


@inlined
def begin(s: Any, random: Any, x: int, c: int, now: float) -> None:
    """x takes the record c into service."""
    me = s.inst[x]
    op, record = s.ops[me.op], s.recs[c]
    op.begun += 1
    op.waited += now - record.since
    if op.source:
        record.taken = now
    work = drawn(op, random)
    me.rec, me.called, me.since = c, 0, now - op.off
    me.io = work * op.io
    me.work = work - me.io
    proceed(s, x, now)


@inlined
def deliver(s: Any, random: Any, q: int, c: int, now: float) -> bool:
    """c arrives at station q; whether it goes into service at once."""
    st, record = s.stations[q], s.recs[c]
    record.since = now
    if st.idle >= 0 and not s.ops[st.op].paused:
        x = st.idle
        st.idle = s.inst[x].next
        begin(s, random, x, c, now)
        return True
    record.next = -1
    if st.n > 0:
        s.recs[st.tail].next = c
    else:
        st.head = c
    st.tail = c
    st.n += 1
    return False


@inlined
def wake(s: Any, q: int) -> None:
    """There may be room at q: whoever was held back first goes on sending."""
    st = s.stations[q]
    if st.held >= 0 and st.n + st.coming + 1 <= st.room:
        me = s.inst[st.held]
        s.todo[s.g[0].todo] = st.held
        s.g[0].todo += 1
        st.held = me.next
        me.state, me.woken = SENDING, 1


@inlined
def take(s: Any, random: Any, x: int, q: int, now: float) -> None:
    """x takes the first that waits at q."""
    st = s.stations[q]
    c = st.head
    st.head = s.recs[c].next
    st.n -= 1
    s.ops[st.op].waits += 1
    begin(s, random, x, c, now)
    wake(s, q)


@inlined
def rest(s: Any, x: int) -> None:
    """x has nothing to do; the one that is idle longest takes the next record."""
    me = s.inst[x]
    me.state, me.next = IDLE, -1
    if me.up:
        st = s.stations[me.station]
        if st.idle < 0:
            st.idle = x
        else:
            s.inst[st.idle_last].next = x
        st.idle_last = x


@inlined
def go_on(s: Any, random: Any, x: int, now: float) -> None:
    """x is done with its record, sending included."""
    me = s.inst[x]
    op = s.ops[me.op]
    op.done += 1
    if me.station < 0:  # of an instance that is no more: this was all it had left to do
        me.state = IDLE
    elif s.stations[me.station].n > 0 and me.up and not op.paused:
        take(s, random, x, me.station, now)
    else:
        rest(s, x)


@inlined
def release(s: Any, c: int) -> None:
    s.recs[c].next = s.g[0].free
    s.g[0].free = c


@inlined
def route(s: Any, random: Any, i: int) -> int:
    """The station of operator i that the next record goes to."""
    op = s.ops[i]
    if not op.split or op.k == 1:
        return op.station  # type: ignore[no-any-return]
    u, hot = random.random(), op.hottest
    if hot <= 0.0:
        return op.station + int(u * op.k)  # type: ignore[no-any-return]
    if u < hot:
        return op.station  # type: ignore[no-any-return]
    return op.station + 1 + min(op.k - 2, int((u - hot) / (1.0 - hot) * (op.k - 1)))  # type: ignore[no-any-return]


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
def hold(s: Any, x: int, q: int) -> None:
    """x waits for room at q: at the end of the row, or in front if it was its turn."""
    st, me = s.stations[q], s.inst[x]
    me.state = BLOCKED
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
        if st.n + st.coming + 1 > st.room:
            if not to.drops:
                me.share, me.weight = share, weight
                hold(s, x, me.target)
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
        if arrives > now:
            st.coming += 1
            child.station = me.target
            put(s, 0, arrives, -1 - c)
        else:
            deliver(s, random, me.target, c, now)
        me.left -= 1
        me.target = -1
        if last:
            break
    at = clock(op, now)
    me.blocked += at - me.since
    me.since, me.woken = at, 0
    go_on(s, random, x, now)
    return True
