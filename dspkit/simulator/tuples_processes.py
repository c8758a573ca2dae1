"""Worker processes: one thread each, which puts what comes from other processes into the queues of its instances."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import lean
from .tuples_steps import deliver, line_up, release


@lean
def receive(s: Any, random: Any, c: int, now: float) -> None:
    """c reaches the process of its station, behind all that came there before."""
    p = s.stations[s.recs[c].station].process
    pr = s.processes[p]
    s.recs[c].since = now
    line_up(s, pr, c)
    if not pr.stuck:
        hand_out(s, random, p, now)


@lean
def hand_out(s: Any, random: Any, p: int, now: float) -> None:
    """The thread of process p puts what came into the queues of its instances, until it stands before a full one."""
    g, pr = s.g[0], s.processes[p]
    pr.stuck = 0
    while pr.n > 0:
        c = pr.head
        q = s.recs[c].station
        st = s.stations[q]
        op, full = s.ops[st.op], st.n + st.coming + 1 > st.room
        if full and not op.drops:
            pr.stuck, st.knocked = 1, now
            return
        pr.head = s.recs[c].next
        pr.n -= 1
        st.far -= 1
        st.knocked = np.inf
        if full:
            op.dropped += 1
            g.lost += s.recs[c].share
            release(s, c)
        else:
            deliver(s, random, q, c, now)


@lean
def lose_inside(s: Any, random: Any, p: int, share: Any) -> None:
    """Of what waits for the thread of process p each record is lost with its operator's share as probability."""
    pr = s.processes[p]
    left, c, pr.n = pr.n, pr.head, 0
    while left > 0:
        following, record = s.recs[c].next, s.recs[c]
        st = s.stations[record.station]
        if random.random() < share[st.op]:
            st.far -= 1
            st.knocked = np.inf
            s.ops[st.op].dropped += 1
            s.g[0].lost += record.share
            release(s, c)
        else:
            line_up(s, pr, c)
        c = following
        left -= 1
