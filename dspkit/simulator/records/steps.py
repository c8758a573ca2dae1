"""The steps of one record in the pipelined record-level engine: routing, waiting, service, sending, worker processes.

| letter | meaning |
|---|---|
| s | the RecordsState |
| x, c, q, j, p | an instance, a record's slot, a station, a node, a worker process |
| me, op, st, nd, pr | the entries of x's instance, its operator, its station, its node, its process |

The outputs of a record are sent on, or wait for room (`send`, `hold`). A worker process has one thread, which puts
records from other processes into the queues of its instances (`receive`, `serve_inbox`). At a sink a record ends
(`finish`): means of latencies are exact, percentiles are from histograms with bins of at most 1/128 of their value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import Latency
from ...core.jit import allocation_free, inlined
from ...core.typing import Array
from ..job import SHARES
from .state import BLOCKED, FINEST, IDLE, OCTAVES, PER_OCTAVE, SENDING, SHARING, TIMED, put


@inlined
def clock(op: Any, now: float) -> float:
    """Time for which the operator was not paused."""
    return (op.stopped_at if op.paused else now) - op.off  # type: ignore[no-any-return]


@allocation_free
def drawn(op: Any, random: Any) -> float:
    """Draw a service time."""
    if op.law == 0:
        return op.seconds * random.standard_exponential()  # type: ignore[no-any-return]
    if op.law == 1 or op.cv == 0.0:
        return op.seconds  # type: ignore[no-any-return]
    spread = op.cv * op.cv
    return op.seconds * spread * random.standard_gamma(1.0 / spread)  # type: ignore[no-any-return]


@inlined
def advance(nd: Any, now: float) -> None:
    """Advance the node's virtual time to now."""
    nd.v += (now - nd.at) * nd.rate
    nd.at = now


@inlined
def proceed(s: Any, x: int, now: float) -> None:
    """Start or resume the remaining work on x's record: CPU time first, then the rest."""
    me = s.inst[x]
    nd = s.nodes[me.node]
    if nd.shared and me.work > 0.0:
        advance(nd, now)
        me.state, me.mark = SHARING, nd.v
        put(s, 1 + me.node, nd.v + me.work, x)
        nd.running += 1
        nd.rate = nd.speed * min(1.0, nd.cores / nd.running)
        nd.stale = 1
    else:  # a core for each of the node's instances: one plain delay
        me.state, me.cpu_left = TIMED, me.work * nd.pace
        put(s, 0, now + me.cpu_left + me.io, x)


@inlined
def begin_service(s: Any, random: Any, x: int, c: int, now: float) -> None:
    """Take the record c into service at x."""
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
    """Append c to the queue `line` of a station or process."""
    s.recs[c].next = -1
    if line.n > 0:
        s.recs[line.tail].next = c
    else:
        line.head = c
    line.tail = c
    line.n += 1


@inlined
def deliver(s: Any, random: Any, q: int, c: int, now: float) -> bool:
    """Put c into the queue of station q; return whether it goes into service at once."""
    st = s.stations[q]
    if st.idle >= 0 and not s.ops[st.op].paused:
        x = st.idle
        st.idle = s.inst[x].next
        begin_service(s, random, x, c, now)
        return True
    line_up(s, st, c)
    return False


@inlined
def wake(s: Any, q: int) -> None:
    """Let the longest waiting continue if q has room: a blocked sender, or the thread of q's process."""
    st = s.stations[q]
    if st.n + st.coming + 1 > st.room:
        return
    if st.thread_since < np.inf and (st.held < 0 or st.thread_since <= s.inst[st.held].held_at):
        st.thread_since = np.inf
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
    """Let x take the first record that waits at q."""
    st = s.stations[q]
    c = st.head
    st.head = s.recs[c].next
    st.n -= 1
    s.ops[st.op].waits += 1
    begin_service(s, random, x, c, now)
    wake(s, q)


@inlined
def become_idle(s: Any, x: int) -> None:
    """Make x idle; the instance that is idle longest takes the next record."""
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
def next_record(s: Any, random: Any, x: int, now: float) -> None:
    """Finish x's record, outputs included, and take the next one."""
    me = s.inst[x]
    op = s.ops[me.op]
    op.done += 1
    if me.station < 0:  # a removed instance, which only had outputs left to send
        me.state = IDLE
    elif s.stations[me.station].n > 0 and me.up and not op.paused:
        take(s, random, x, me.station, now)
    else:
        become_idle(s, x)


@inlined
def release(s: Any, c: int) -> None:
    """Free the slot of c."""
    s.recs[c].next = s.g[0].free
    s.g[0].free = c


@inlined
def route(s: Any, random: Any, i: int) -> int:
    """Return the station of operator i for the next record."""
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
    """Return the time at which a record that x sends along e now arrives at station q."""
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
    """Block x until q has room: at the end of the list, or at its front if it was x's turn."""
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
def send(s: Any, random: Any, x: int, now: float) -> bool:  # noqa: C901, PLR0915  (compiled: all ways that records can go)
    """Send the outputs of x's record, as far as there is room; return False if a slot is missing."""
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
            if me.left == 0:  # on this branch the part of the source record ends here
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
        far = st.process >= 0 and st.process != me.process  # its process's thread waits for room, not x
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
            me.woken = 0  # with threads each record is a turn of its own
        me.left -= 1
        me.target = -1
        if last:
            break
    at = clock(op, now)
    me.blocked += at - me.since
    me.since, me.woken = at, 0
    next_record(s, random, x, now)
    return True


@allocation_free
def receive(s: Any, random: Any, c: int, now: float) -> None:
    """Append c to the inbox of its station's process."""
    p = s.stations[s.recs[c].station].process
    pr = s.processes[p]
    s.recs[c].since = now
    line_up(s, pr, c)
    if not pr.stuck:
        serve_inbox(s, random, p, now)


@allocation_free
def serve_inbox(s: Any, random: Any, p: int, now: float) -> None:
    """Let the thread of process p put the records of its inbox into the queues of its instances, up to a full one."""
    g, pr = s.g[0], s.processes[p]
    pr.stuck = 0
    while pr.n > 0:
        c = pr.head
        q = s.recs[c].station
        st = s.stations[q]
        op, full = s.ops[st.op], st.n + st.coming + 1 > st.room
        if full and not op.drops:
            pr.stuck, st.thread_since = 1, now
            return
        pr.head = s.recs[c].next
        pr.n -= 1
        st.far -= 1
        st.thread_since = np.inf
        if full:
            op.dropped += 1
            g.lost += s.recs[c].share
            release(s, c)
        else:
            deliver(s, random, q, c, now)


@allocation_free
def lose_inside(s: Any, random: Any, p: int, share: Any) -> None:
    """Lose each record in the inbox of process p with the share of its operator as probability."""
    pr = s.processes[p]
    left, c, pr.n = pr.n, pr.head, 0
    while left > 0:
        following, record = s.recs[c].next, s.recs[c]
        st = s.stations[record.station]
        if random.random() < share[st.op]:
            st.far -= 1
            st.thread_since = np.inf
            s.ops[st.op].dropped += 1
            s.g[0].lost += record.share
            release(s, c)
        else:
            line_up(s, pr, c)
        c = following
        left -= 1


_SHIFT = 52 - 7  # leaves the exponent and 7 bits of a double's fraction: 128 bins per octave
_LOWEST = (1023 + FINEST) * PER_OCTAVE


@inlined
def bin_of(seconds: float) -> int:
    """Return the bin of a latency."""
    place: Any = (np.float64(seconds).view(np.int64) >> _SHIFT) - _LOWEST
    return max(0, min(place, OCTAVES * PER_OCTAVE - 1))  # type: ignore[no-any-return]


@inlined
def finish(s: Any, c: int, now: float) -> None:
    """Count the record c, which leaves the job at a sink."""
    g, record = s.g[0], s.recs[c]
    w, inside, whole = record.weight, now - record.taken, now - record.born
    g.ended += record.share
    g.weight += w
    g.latency += w * inside
    g.event_latency += w * whole
    s.histogram[0, bin_of(inside)] += w
    s.histogram[1, bin_of(whole)] += w
    release(s, c)


def histogram_latency(total: float, weight: float, histogram: Array) -> Latency | None:
    """Return the exact mean, and percentiles to within a bin; None if no record was counted."""
    if not weight > 0:
        return None
    used = np.flatnonzero(histogram)
    bins = slice(used[0], used[-1] + 1)
    below = np.concatenate([[0.0], np.cumsum(histogram[bins])])
    edges = np.arange(bins.start, bins.stop + 1)
    octave, part = np.divmod(edges, PER_OCTAVE)
    seconds = np.ldexp(1 + part / PER_OCTAVE, octave + FINEST)
    return Latency(
        float(total / weight), *(float(x) for x in np.interp(np.multiply(SHARES, below[-1]), below, seconds))
    )
