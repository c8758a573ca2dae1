"""What the micro-batches of `tuples_batch` keep, and compiled: how long a batch takes, stage by stage.

| field | meaning |
|---|---|
| end, left | when the batch is done; what is left of it while the job stands still |
| ready | earliest beginning of the next batch |
| running, waiting | records of the batch, which are the first in `born`; and those that came since |
| count | records of the batch that an operator gets, or an edge carries |
| at, works, computes | of an instance in the batch: when its stage begins, how long it works, core-seconds of it |
| booked | how much of `works` is counted already |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import BackendError
from .compiled import lean
from .layout import Array, Graph, Layout
from .tuples_heap import rise, sink
from .tuples_state import FEED, OCTAVES, PER_OCTAVE, fields

_MOST_BYTES = 2**30
GLOBAL = fields(
    f8="now tick_end trigger overhead most began length end left ready until stopped ended latency event_latency",
    i8="tick head running waiting halted still",
)
OPERATOR = fields(
    f8="seconds io cv call room waited hottest",
    i8="arrived done dropped begun waiting running count",
    i4="first k law split source drops turn",
    u4="out_at out_end",
)
INSTANCE = fields(f8="at lasts works computes booked shown busy cpu", u4="op node")
NODE = fields(f8="cores speed")
EDGE = fields(f8="fraction", i8="whole sent count", u4="to")


class Batch(NamedTuple):
    g: Array  # one GLOBAL
    ops: Array
    inst: Array  # operator by operator, node by node
    nodes: Array
    edges: Array  # by operator, as in Graph.out
    feeds: Array
    born: Array  # arrival times of all records inside, oldest first
    of: Array  # and their sources
    due: Array  # scratch: a heap of the instances of a stage on a node
    who: Array
    histogram: Array  # [2, bin] of latency and event latency


def empty(graph: Graph, operators: int) -> Batch:
    """No layout yet, nothing inside."""
    source = np.diff(graph.into_at) == 0
    batch = Batch(
        g=np.zeros(1, GLOBAL), ops=np.zeros(operators, OPERATOR), inst=np.zeros(0, INSTANCE), nodes=np.zeros(0, NODE),
        edges=np.zeros(len(graph.start), EDGE), feeds=np.zeros(int(source.sum()), FEED), born=np.zeros(1024),
        of=np.zeros(1024, np.uint32), due=np.zeros(0), who=np.zeros(0, np.int32),
        histogram=np.zeros((2, OCTAVES * PER_OCTAVE)),
    )  # fmt: skip
    batch.g["end"] = np.inf
    batch.ops["source"] = source
    batch.ops["out_at"], batch.ops["out_end"] = graph.out_at[:-1], graph.out_at[1:]
    batch.edges["to"] = graph.end[graph.out]
    batch.feeds["op"] = np.flatnonzero(source)
    batch.feeds["next"], batch.feeds["left"] = np.inf, -1.0
    return batch


def grown(batch: Batch) -> Batch:
    """Room for twice as many records."""
    if 2 * (batch.born.nbytes + batch.of.nbytes) > _MOST_BYTES:
        raise BackendError(
            f"{len(batch.born)} records waiting at {batch.g['now'][0]:.0f} s",
            expected=f"at most {_MOST_BYTES / 2**30:.0f} GiB of them",
            fix='bound the queues, lower the load, or use engine="fluid"',
        )
    return batch._replace(
        born=np.concatenate([batch.born, np.zeros(len(batch.born))]),
        of=np.concatenate([batch.of, np.zeros(len(batch.of), np.uint32)]),
    )


def numbers(batch: Batch, graph: Graph, layout: Layout, kept: bool) -> Batch:
    """The same under another layout; `kept` if the instances are where they were."""
    ops = batch.ops
    for name in ("io", "cv", "call", "law", "drops", "split", "hottest", "room"):
        ops[name] = getattr(layout, name)
    selectivity = layout.selectivity[graph.out]
    batch.edges["whole"] = np.floor(selectivity)
    batch.edges["fraction"] = selectivity - np.floor(selectivity)
    nodes = np.zeros(len(layout.cores), NODE)
    nodes["cores"], nodes["speed"] = layout.cores, layout.speed
    ops["k"], ops["first"] = layout.instances, np.cumsum(layout.instances) - layout.instances
    if not kept:
        inst = np.zeros(int(layout.instances.sum()), INSTANCE)
        inst["op"] = np.repeat(np.arange(len(ops)), layout.instances)
        inst["node"] = np.concatenate([np.repeat(np.arange(len(nodes)), layout.here[:, i]) for i in range(len(ops))])
        batch = batch._replace(inst=inst, due=np.zeros(len(inst)), who=np.zeros(len(inst), np.int32))
    return batch._replace(nodes=nodes)


@lean
def total(op: Any, n: int, random: Any) -> float:
    """The sum of n service times."""
    if n == 0:
        return 0.0
    if op.law == 0:
        return op.seconds * random.standard_gamma(n)  # type: ignore[no-any-return]
    if op.law == 1 or op.cv == 0.0:
        return op.seconds * n  # type: ignore[no-any-return]
    spread = op.cv * op.cv
    return op.seconds * spread * random.standard_gamma(n / spread)  # type: ignore[no-any-return]


@lean
def deal(s: Any, random: Any, i: int, at: float) -> None:
    """Give operator i's records of the batch to its instances, those on nodes that are down apart."""
    op, live = s.ops[i], 0
    for x in range(op.first, op.first + op.k):
        live += s.nodes[s.inst[x].node].cores > 0.0
    left, dealt = op.count, 0
    for x in range(op.first, op.first + op.k):
        me, nd = s.inst[x], s.nodes[s.inst[x].node]
        n = 0
        if nd.cores > 0.0:
            if dealt == live - 1:
                n = left
            elif op.hottest > 0.0 and dealt == 0:
                n = random.binomial(left, op.hottest)
            elif op.split:
                n = random.binomial(left, 1.0 / (live - dealt))
            else:  # as long as each has the same, who has one more is who comes next in turn
                n = op.count // live + ((dealt - op.turn) % live < op.count % live)
            left -= n
            dealt += 1
        work = total(op, n, random)
        me.computes = work * (1.0 - op.io) / nd.speed
        me.works = me.computes + work * op.io + n * op.call
        me.at, me.booked, me.shown = at, 0.0, 0.0
    op.turn = (op.turn + op.count) % live


@lean
def share(s: Any, a: int, b: int) -> None:
    """Instances a to b compute on one node: with too few cores for all, each gets the same part of them."""
    cores, n = s.nodes[s.inst[a].node].cores, np.uint64(0)
    for x in range(a, b):
        if s.inst[x].computes > 0.0:
            n += np.uint64(1)
            rise(s.due, s.who, np.uint64(0), n - np.uint64(1), s.inst[x].computes, x)
    now = before = 0.0
    while n > cores:  # the one with least to compute is done first
        x = s.who[0]
        now += (s.due[0] - before) * (n / cores)
        before = s.due[0]
        s.inst[x].works = max(s.inst[x].works, now)
        n -= np.uint64(1)
        sink(s.due, s.who, np.uint64(0), n, s.due[n], s.who[n])
    while n > np.uint64(0):
        n -= np.uint64(1)
        s.inst[s.who[n]].works = max(s.inst[s.who[n]].works, now + s.due[n] - before)


@lean
def stages(s: Any, random: Any) -> float:
    """Put what waits through all operators; how long it takes."""
    at = s.g[0].overhead
    for i in range(len(s.ops)):
        s.ops[i].count = s.ops[i].running
    for i in range(len(s.ops)):
        op = s.ops[i]
        for e in range(op.out_at, op.out_end):
            edge = s.edges[e]
            edge.count = op.count * edge.whole
            if edge.fraction > 0.0 and op.count > 0:
                edge.count += random.binomial(op.count, edge.fraction)
            s.ops[edge.to].count += edge.count
        deal(s, random, i, at)
        longest, a = op.count * op.call, op.first
        while a < op.first + op.k:
            b = a
            while b < op.first + op.k and s.inst[b].node == s.inst[a].node:
                b += 1
            if b - a > s.nodes[s.inst[a].node].cores > 0.0:
                share(s, a, b)
            a = b
        for x in range(op.first, op.first + op.k):
            longest = max(longest, s.inst[x].works)
        for x in range(op.first, op.first + op.k):
            s.inst[x].lasts = longest
        at += longest
    return at  # type: ignore[no-any-return]


@lean
def book(s: Any) -> None:
    """Count what the instances did so far in the batch."""
    g = s.g[0]
    if g.running == 0:
        return
    past = g.length - (g.left if g.still else g.end - g.now)
    for x in range(len(s.inst)):
        me = s.inst[x]
        if past > me.at and me.works > 0.0:
            works, shown = min(past - me.at, me.works), min((past - me.at) / me.lasts, 1.0)
            me.busy += works - me.booked
            me.cpu += me.computes * (shown - me.shown)
            me.booked, me.shown = works, shown
