"""What happens to one record: it is routed, waits and is worked on; what comes of it is sent in tuples_send.py.

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
from .tuples_state import IDLE, SENDING, SHARING, TIMED


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
def line_up(s: Any, line: Any, c: int) -> None:
    """c waits in line, of a station or a process, behind the others."""
    s.recs[c].next = -1
    if line.n > 0:
        s.recs[line.tail].next = c
    else:
        line.head = c
    line.tail = c
    line.n += 1


@inlined
def deliver(s: Any, random: Any, q: int, c: int, now: float) -> bool:
    """c comes into the queue of station q; whether it goes into service at once."""
    st = s.stations[q]
    if st.idle >= 0 and not s.ops[st.op].paused:
        x = st.idle
        st.idle = s.inst[x].next
        begin(s, random, x, c, now)
        return True
    line_up(s, st, c)
    return False


@inlined
def wake(s: Any, q: int) -> None:
    """There may be room at q: whoever waits for it longest goes on, a sender or the thread of q's process."""
    st = s.stations[q]
    if st.n + st.coming + 1 > st.room:
        return
    if st.knocked < np.inf and (st.held < 0 or st.knocked <= s.inst[st.held].held_at):
        st.knocked = np.inf
        s.todo[s.g[0].todo] = -1 - q
        s.g[0].todo += 1
    elif st.held >= 0:
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
