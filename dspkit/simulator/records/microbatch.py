"""The record-level engine of a micro-batch job: each record arrives by itself, and records are processed in batches.

A batch begins when the last one has ended, at least `trigger_s` after that one began, and as soon as a record waits. It
takes what waits in the logs, oldest first and at most `max_batch_records`, through one operator after the other, and
all its results come out at its end: until then its records count in the log. Choices where the description of a plant
leaves one:

* An operator's records are assigned to its instances in turn, or at random where grouping is "split". The sum of n
  service times is drawn at once, from its own distribution, since the single times have no other effect.
* A stage lasts as long as its slowest instance: as its work takes with a core of its own, or as the node's cores take
  for all of the stage's instances there, shared fairly; and no less than the external server needs.
* A pause freezes the batch. After a change of the placement it is run again, from the logs; so nothing is lost when a
  node dies.
* While an operator has no instance on a node that is up, the job is paused.

| field | meaning |
|---|---|
| end, left | end of the batch; what is left of it while the job is paused |
| ready | earliest beginning of the next batch |
| running, waiting | records of the batch, which are the first in `born`; and those that arrived since |
| count | records of the batch that an operator gets, or an edge carries |
| at, works, computes | of an instance in the batch: beginning of its stage, its working time, core-seconds of that |
| booked | share of `works` that is counted already |
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core import BackendError
from ...core.jit import allocation_free
from ...core.typing import Array
from ..job import WindowSums
from ..layout import IndexedGraph, Layout
from .loop import next_tick
from .state import FEED, OCTAVES, PER_OCTAVE, fields, rise, sink
from .steps import bin_of, histogram_latency

_MOST_BYTES = 2**30
GLOBAL = fields(
    f8="now tick_end trigger overhead most began length end left ready until stopped ended latency event_latency",
    i8="tick head running waiting halted paused",
)
OPERATOR = fields(
    f8="seconds io cv call room waited hottest",
    i8="arrived done dropped begun waiting running count",
    i4="first k law split source drops turn",
    u4="out_at out_end",
)
INSTANCE = fields(f8="at lasts works computes booked busy cpu", u4="op node")
NODE = fields(f8="cores speed")
EDGE = fields(f8="fraction", i8="whole sent count", u4="to")


class RecordsBatchState(NamedTuple):
    """The whole state; the fields of its entries are explained in the module's docstring."""

    g: Array  # one GLOBAL
    ops: Array
    inst: Array  # operator by operator, node by node
    nodes: Array
    edges: Array  # by operator, as in IndexedGraph.out
    feeds: Array
    born: Array  # arrival times of all records inside, oldest first
    of: Array  # and their sources
    due: Array  # scratch: a heap of the instances of a stage on a node
    owners: Array
    histogram: Array  # [2, bin] of latency and event latency


def empty_batch(graph: IndexedGraph, operators: int) -> RecordsBatchState:
    """Return a state without a layout and without records."""
    source = np.diff(graph.into_at) == 0
    batch = RecordsBatchState(
        g=np.zeros(1, GLOBAL),
        ops=np.zeros(operators, OPERATOR),
        inst=np.zeros(0, INSTANCE),
        nodes=np.zeros(0, NODE),
        edges=np.zeros(len(graph.start), EDGE),
        feeds=np.zeros(int(source.sum()), FEED),
        born=np.zeros(1024),
        of=np.zeros(1024, np.uint32),
        due=np.zeros(0),
        owners=np.zeros(0, np.int32),
        histogram=np.zeros((2, OCTAVES * PER_OCTAVE)),
    )
    batch.g["end"] = np.inf
    batch.ops["source"] = source
    batch.ops["out_at"], batch.ops["out_end"] = graph.out_at[:-1], graph.out_at[1:]
    batch.edges["to"] = graph.end[graph.out]
    batch.feeds["op"] = np.flatnonzero(source)
    batch.feeds["next"], batch.feeds["left"] = np.inf, -1.0
    return batch


def grown_batch(batch: RecordsBatchState) -> RecordsBatchState:
    """Return the state with room for twice as many records."""
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


def with_layout(batch: RecordsBatchState, graph: IndexedGraph, layout: Layout, kept: bool) -> RecordsBatchState:
    """Return the state under another layout; `kept` if no instance moves."""
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
        inst["node"] = np.concatenate(
            [np.repeat(np.arange(len(nodes)), layout.node_instances[:, i]) for i in range(len(ops))]
        )
        batch = batch._replace(inst=inst, due=np.zeros(len(inst)), owners=np.zeros(len(inst), np.int32))
    return batch._replace(nodes=nodes)


@allocation_free
def total_service_s(op: Any, n: int, random: Any) -> float:
    """Draw the sum of n service times."""
    if n == 0:
        return 0.0
    if op.law == 0:
        return op.seconds * random.standard_gamma(n)  # type: ignore[no-any-return]
    if op.law == 1 or op.cv == 0.0:
        return op.seconds * n  # type: ignore[no-any-return]
    spread = op.cv * op.cv
    return op.seconds * spread * random.standard_gamma(n / spread)  # type: ignore[no-any-return]


@allocation_free
def distribute_records(s: Any, random: Any, i: int, at: float) -> None:
    """Assign operator i's records of the batch to its instances on nodes that are up."""
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
            else:  # equal parts; the remainder goes to the next instances in turn
                n = op.count // live + ((dealt - op.turn) % live < op.count % live)
            left -= n
            dealt += 1
        work = total_service_s(op, n, random)
        me.computes = work * (1.0 - op.io) / nd.speed
        me.works = me.computes + work * op.io + n * op.call
        me.at, me.booked = at, 0.0
    op.turn = (op.turn + op.count) % live


@allocation_free
def share_cores(s: Any, a: int, b: int) -> None:
    """Stretch the work of instances a to b on one node: with too few cores for all, each gets the same part of them."""
    cores, n = s.nodes[s.inst[a].node].cores, np.uint64(0)
    for x in range(a, b):
        if s.inst[x].computes > 0.0:
            n += np.uint64(1)
            rise(s.due, s.owners, np.uint64(0), n - np.uint64(1), s.inst[x].computes, x)
    now = before = 0.0
    while n > cores:  # the instance with the least work ends first
        x = s.owners[0]
        now += (s.due[0] - before) * (n / cores)
        before = s.due[0]
        s.inst[x].works = max(s.inst[x].works, now)
        n -= np.uint64(1)
        sink(s.due, s.owners, np.uint64(0), n, s.due[n], s.owners[n])
    while n > np.uint64(0):
        n -= np.uint64(1)
        s.inst[s.owners[n]].works = max(s.inst[s.owners[n]].works, now + s.due[n] - before)


@allocation_free
def play_stages(s: Any, random: Any) -> float:
    """Run the batch through all operators; return its length."""
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
        distribute_records(s, random, i, at)
        longest, a = op.count * op.call, op.first
        while a < op.first + op.k:
            b = a
            while b < op.first + op.k and s.inst[b].node == s.inst[a].node:
                b += 1
            if b - a > s.nodes[s.inst[a].node].cores > 0.0:
                share_cores(s, a, b)
            a = b
        for x in range(op.first, op.first + op.k):
            longest = max(longest, s.inst[x].works)
        for x in range(op.first, op.first + op.k):
            s.inst[x].lasts = longest
        at += longest
    return at  # type: ignore[no-any-return]


@allocation_free
def book(s: Any) -> None:
    """Count the work of the instances in the batch so far, spread evenly over their stage.

    An instance that works from the beginning of its stage on would use more than the cores of a node that others share.
    """
    g = s.g[0]
    if g.running == 0:
        return
    past = g.length - (g.left if g.paused else g.end - g.now)
    for x in range(len(s.inst)):
        me = s.inst[x]
        if past > me.at and me.works > 0.0:
            part = min((past - me.at) / me.lasts, 1.0)
            me.busy += me.works * (part - me.booked)
            me.cpu += me.computes * (part - me.booked)
            me.booked = part


@allocation_free
def take_batch(s: Any, random: Any) -> None:
    """Take what waits into a batch, oldest first, up to the most records of a batch."""
    g = s.g[0]
    g.running = int(min(float(g.waiting), g.most))
    g.waiting -= g.running
    for c in range(g.head, g.head + g.running):
        op = s.ops[s.of[c]]
        op.waiting -= 1
        op.running += 1
        op.begun += 1
        op.waited += g.now - s.born[c]
    g.length = play_stages(s, random)
    g.began, g.end, g.ready = g.now, g.now + g.length, g.now + g.trigger


@allocation_free
def end(s: Any) -> None:
    """End the batch and emit all its results."""
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


@allocation_free
def arrive_at_log(s: Any, i: int) -> bool:
    """Append a record to the log of source i; return False if there is no room for it in memory."""
    g, op = s.g[0], s.ops[i]
    inside = g.running + g.waiting
    if g.head + inside == len(s.born):
        if g.head < inside:
            return False
        for c in range(inside):  # move to the front, where as many have left since the last time
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


@allocation_free
def play_record_batches(s: Any, random: Any, rates: Any, dt: Any, even: bool) -> bool:  # noqa: C901  (compiled: one loop over events)
    """Simulate the ticks; return False if memory is missing: then call it again with more of it."""
    g, feeds = s.g[0], s.feeds
    while True:
        if g.running == 0 and g.waiting > 0 and not g.paused and g.now >= g.ready:
            take_batch(s, random)
        now, what, which = g.tick_end, 0, 0
        for f in range(len(feeds)):
            if feeds[f].next < now:
                now, what, which = feeds[f].next, 1, f
        if g.paused:
            if g.until < now and not g.halted:
                now, what = g.until, 2
        elif g.running > 0:
            if g.end < now:
                now, what = g.end, 3
        elif g.waiting > 0 and g.ready < now:
            now, what = g.ready, 4
        if g.paused:
            g.stopped += now - g.now
        g.now = now
        if what == 1:
            if not arrive_at_log(s, feeds[which].op):
                return False
            feeds[which].next = now + (1.0 if even else random.standard_exponential()) * feeds[which].gap
        elif what == 2:
            g.paused, g.end = 0, now + g.left
        elif what == 3:
            end(s)
        elif what == 0:
            if g.tick == len(dt):
                return True
            next_tick(s, random, rates, dt, even)


class MicrobatchRecords:
    """A micro-batch job record by record; `arrivals` as for `RecordEngine`."""

    def __init__(
        self,
        graph: IndexedGraph,
        layout: Layout,
        random: np.random.Generator,
        trigger_s: float,
        overhead_s: float,
        arrivals: str = "poisson",
        max_batch_records: float = np.inf,
    ):
        self._graph, self._random, self._even = graph, random, arrivals == "even"
        self._batch: RecordsBatchState = empty_batch(graph, len(layout.instances))
        for name, value in (("trigger", trigger_s), ("overhead", overhead_s), ("most", max_batch_records)):
            self._batch.g[name] = value
        self._edges = np.argsort(graph.out)  # from the order by operator to that of the topology
        self._layout: Layout | None = None
        self._zero(len(layout.cores))
        self.change(layout)

    def change(self, layout: Layout) -> None:
        """Use another layout. A batch continues unchanged if no instance moves."""
        old, b = self._layout, self._batch
        self._layout = layout
        if old is not None:
            book(b)
            self._book()
        kept = old is not None and bool(np.all(old.node_instances == layout.node_instances))
        self._batch = with_layout(b, self._graph, layout, kept)
        if not kept:
            g = b.g[0]
            b.ops["waiting"] += b.ops["running"]
            b.ops["running"] = 0
            g["waiting"] += g["running"]
            g["running"], g["left"], g["end"] = 0, np.inf, np.inf
        b.g["halted"] = bool(np.any(layout.node_instances[layout.cores > 0].sum(axis=0) == 0))
        self._hold()

    def retime(self, trigger_s: float) -> None:
        """Begin batches this long after each other at least."""
        self._batch.g["trigger"] = trigger_s

    def pause(self, seconds: Array) -> None:
        """Pause the job for the longest of these times, as its stages take turns."""
        g = self._batch.g[0]
        g["until"] = max(g["until"], g["now"] + float(np.max(seconds)))
        self._hold()

    def hold(self, count: Array, seconds: Array) -> None:
        """Pause the whole job: a stage ends with its slowest instance, so a batch waits for all of them."""
        self.pause(np.where(count.any(axis=0), seconds, 0.0))

    def lose(self, share: Array) -> None:
        """Lose nothing: the batch is run again from the logs."""

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        assert self._layout is not None
        rates, dt = np.ascontiguousarray(rates, dtype=float), np.ascontiguousarray(dt, dtype=float)
        self._batch.ops["seconds"] = self._layout.seconds * noise
        self._batch.g["tick"], self._batch.g["tick_end"] = 0, self._batch.g["now"]
        while not play_record_batches(self._batch, self._random, rates, dt, self._even):
            self._batch = grown_batch(self._batch)

    def window(self) -> WindowSums:
        b, ops, g = self._batch, self._batch.ops, self._batch.g[0]
        book(b)
        self._book()
        with np.errstate(invalid="ignore"):
            waited = ops["waited"] / np.where(ops["begun"] > 0, ops["begun"], np.nan)
        out = WindowSums(
            arrived=ops["arrived"].astype(float),
            done=ops["done"].astype(float),
            dropped=ops["dropped"].astype(float),
            busy=self._busy,
            blocked=np.zeros(len(ops)),
            cpu=self._cpu.sum(axis=0),
            waited_s=waited,
            sent=b.edges["sent"][self._edges].astype(float),
            cores=self._cpu.sum(axis=1),
            ended=float(g["ended"]),
            stopped=float(g["stopped"]),
            queue=(ops["waiting"] + ops["running"]).astype(float),
            waiting=(ops["waiting"] + ops["running"]).astype(float),  # until its batch ends, a record is in the log
            latency=histogram_latency(g["latency"], g["ended"], b.histogram[0]),
            event_latency=histogram_latency(g["event_latency"], g["ended"], b.histogram[1]),
        )
        for name in ("ended", "stopped", "latency", "event_latency"):
            g[name] = 0.0
        for name in ("arrived", "done", "dropped", "begun", "waited"):
            ops[name] = 0
        b.edges["sent"], b.histogram[:] = 0, 0.0
        self._zero(len(b.nodes))
        return out

    @property
    def mass(self) -> float:
        return float(self._batch.ops["waiting"].sum() + self._batch.ops["running"].sum())

    def _hold(self) -> None:
        """Pause or resume the job, as pauses and nodes demand."""
        g = self._batch.g[0]
        paused = g["halted"] or g["until"] > g["now"]
        if paused and not g["paused"]:
            g["left"] = g["end"] - g["now"]
        if g["paused"] and not paused:
            g["end"] = g["now"] + g["left"]
        g["paused"] = paused

    def _zero(self, nodes: int) -> None:
        self._busy = np.zeros(len(self._batch.ops))
        self._cpu = np.zeros((nodes, len(self._batch.ops)))

    def _book(self) -> None:
        inst = self._batch.inst
        self._busy += np.bincount(inst["op"], inst["busy"], minlength=len(self._busy))
        np.add.at(self._cpu, (inst["node"], inst["op"]), inst["cpu"])
        inst["busy"] = inst["cpu"] = 0.0
