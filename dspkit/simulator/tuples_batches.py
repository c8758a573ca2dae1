"""Compiled: when batches begin and end."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import lean
from .tuples_kernel import next_tick
from .tuples_latency import bin_of
from .tuples_stages import book, stages


@lean
def begin(s: Any, random: Any) -> None:
    """Take what waits, the oldest first, up to the most that a batch may have."""
    g = s.g[0]
    g.running = int(min(float(g.waiting), g.most))
    g.waiting -= g.running
    for c in range(g.head, g.head + g.running):
        op = s.ops[s.of[c]]
        op.waiting -= 1
        op.running += 1
        op.begun += 1
        op.waited += g.now - s.born[c]
    g.length = stages(s, random)
    g.began, g.end, g.ready = g.now, g.now + g.length, g.now + g.trigger


@lean
def end(s: Any) -> None:
    """All results of the batch come out."""
    g = s.g[0]
    book(s)
    for i in range(len(s.ops)):
        op = s.ops[i]
        op.done += op.count
        if not op.source:
            op.arrived += op.count
        op.running = 0
    for e in range(len(s.edges)):
        s.edges[e].sent += s.edges[e].count
    s.histogram[0, bin_of(g.now - g.began)] += g.running
    g.latency += g.running * (g.now - g.began)
    for c in range(g.head, g.head + g.running):
        s.histogram[1, bin_of(g.now - s.born[c])] += 1.0
        g.event_latency += g.now - s.born[c]
    g.ended += g.running
    g.head += g.running
    g.running, g.end = 0, np.inf


@lean
def arrive(s: Any, i: int) -> bool:
    """A record reaches the log of source i; False if there is no room for it in memory."""
    g, op = s.g[0], s.ops[i]
    inside = g.running + g.waiting
    if g.head + inside == len(s.born):
        if g.head < inside:
            return False
        for c in range(inside):  # to the front: as many have gone from there since the last time
            s.born[c], s.of[c] = s.born[g.head + c], s.of[g.head + c]
        g.head = 0
    op.arrived += 1
    if op.drops and op.running + op.waiting + 1 > op.room:
        op.dropped += 1
        return True
    s.born[g.head + inside], s.of[g.head + inside] = g.now, i
    g.waiting += 1
    op.waiting += 1
    return True


@lean
def play(s: Any, random: Any, rates: Any, dt: Any, even: bool) -> bool:
    """Go through the ticks; False if memory is missing: to be called again, in the same way, with more of it."""
    g, feeds = s.g[0], s.feeds
    while True:
        if g.running == 0 and g.waiting > 0 and not g.still and g.now >= g.ready:
            begin(s, random)
        now, what, which = g.tick_end, 0, 0
        for f in range(len(feeds)):
            if feeds[f].next < now:
                now, what, which = feeds[f].next, 1, f
        if g.still:
            if g.until < now and not g.halted:
                now, what = g.until, 2
        elif g.running > 0:
            if g.end < now:
                now, what = g.end, 3
        elif g.waiting > 0 and g.ready < now:
            now, what = g.ready, 4
        if g.still:
            g.stopped += now - g.now
        g.now = now
        if what == 1:
            if not arrive(s, feeds[which].op):
                return False
            feeds[which].next = now + (1.0 if even else random.standard_exponential()) * feeds[which].gap
        elif what == 2:
            g.still, g.end = 0, now + g.left
        elif what == 3:
            end(s)
        elif what == 0:
            if g.tick == len(dt):
                return True
            next_tick(s, random, rates, dt, even)
