"""Changes of the pipelined record-level engine between two plays: another layout, pauses, lost records.

For another layout instances, stations and nodes are rebuilt, and records and work in progress move to them (`changed`):
plain Python over operators and instances; only waiting records, which may be many, are moved by compiled code. Before
that, work in progress is counted (`book_progress`) and suspended (`freeze`); `loop.resume` continues it at the start of
the next play.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.jit import allocation_free
from ...core.typing import Array
from ..layout import IndexedGraph, Layout
from .state import (
    BLOCKED,
    FROZEN,
    HEAP,
    IDLE,
    INSTANCE,
    LINK,
    NODE,
    PROCESS,
    SENDING,
    SHARING,
    STATION,
    TIMED,
    RecordsState,
    rise,
    settle,
    write_layout,
)
from .steps import advance, clock, line_up, release, route


@allocation_free
def book_progress(s: Any) -> None:
    """Count the work in progress up to now, as if it were two pieces of work."""
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
        if s.owners[k] >= 0:  # CPU time comes first in a delay: what exceeds the rest is CPU time
            me = s.inst[s.owners[k]]
            left = max(0.0, s.due[k] - now - me.io)
            me.cpu += me.cpu_left - left
            me.cpu_left = left


@allocation_free
def freeze(s: Any) -> None:
    """Take all work in progress out of the heaps; the instances keep the amount that is left."""
    book_progress(s)
    now, heap = s.g[0].now, s.heaps[0]
    n, heap.n = settle(s, 0), np.uint64(0)
    for k in range(heap.base, heap.base + n):
        due, owner = s.due[k], s.owners[k]
        if owner < 0:
            rise(s.due, s.owners, heap.base, heap.n, due, owner)
            heap.n += np.uint64(1)
        else:
            me = s.inst[owner]
            me.work = me.cpu_left * s.nodes[me.node].speed
            me.io = min(me.io, due - now)
            me.state = FROZEN
    for j in range(len(s.nodes)):
        nd, heap = s.nodes[j], s.heaps[1 + j]
        advance(nd, now)
        for k in range(heap.base, heap.base + settle(s, 1 + j)):
            me = s.inst[s.owners[k]]
            me.work = max(0.0, s.due[k] - nd.v)
            me.state = FROZEN
        heap.n = np.uint64(0)
        nd.running = nd.stale = 0
        nd.next = np.inf


@allocation_free
def suspend_instances(s: Any, i: int, place: int, n: int, until: float) -> None:
    """Pause n more of operator i's instances in this place, the last ones first, and remove them from the idle lists.

    A place is a node, or a process if these are modelled. Instances that are paused already wait for the longer time.
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


@allocation_free
def listed(s: Any, lines: Any, at: int, slots: Any) -> None:
    """Write the slots that wait in this station or process, in order, into `slots`."""
    c = lines[at].head
    for k in range(lines[at].n):
        slots[k] = c
        c = s.recs[c].next


@allocation_free
def redistribute(s: Any, random: Any, i: int, slots: Any) -> None:
    """Distribute these records over the new stations of operator i."""
    for c in slots:
        line_up(s, s.stations[route(s, random, i)], c)


@allocation_free
def redirect(s: Any, random: Any, op: Any, kept: Any, shift: Any, slots: Any) -> None:
    """Assign records for stations of another layout, whose operators were `op`, to stations of this one."""
    for c in slots:
        record = s.recs[c]
        i = op[record.station]
        record.station = record.station + shift[i] if kept[i] else route(s, random, i)


@allocation_free
def enqueue_in_processes(s: Any, slots: Any) -> None:
    """Put these records into the inboxes of the processes of their stations."""
    for c in slots:
        st = s.stations[s.recs[c].station]
        st.far += 1
        line_up(s, s.processes[st.process], c)


@allocation_free
def lose(s: Any, random: Any, q: int, n: int) -> None:
    """Lose n of the records that wait at q, all equally likely."""
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


def waiting(s: RecordsState, lines: Array, at: int) -> Array:
    """Return the slots of the records that wait in this station or process."""
    slots = np.empty(int(lines["n"][at]), np.int32)
    listed(s, lines, at, slots)
    return slots


_NO_RECORDS = np.zeros(0, np.int32)


def changed(old: RecordsState, random: Any, graph: IndexedGraph, layout: Layout, kept: Array) -> RecordsState:
    """Return the state under another layout. `old` is frozen; work in progress continues where `kept[i]`.

    Elsewhere it is restarted, from the head of the queue. Outputs that an instance still has to send are sent by one of
    the new instances, or, if these are fewer, by one of the old ones that does nothing else.
    """
    was, ops = old.ops.copy(), old.ops
    write_layout(old, graph, layout)
    links = np.zeros(layout.delay.shape, LINK)
    if old.links.shape == links.shape:
        links["free"] = old.links["free"]
    links["delay"], links["bandwidth"] = layout.delay, layout.bandwidth
    stations = np.zeros(int(np.sum(np.where(layout.split, layout.instances, 1))), STATION)
    for name in ("head", "tail", "idle", "idle_last", "held", "held_last"):
        stations[name] = -1
    stations["thread_since"] = np.inf
    stations["op"] = np.repeat(np.arange(len(ops)), np.where(layout.split, layout.instances, 1))
    stations["room"] = np.where(layout.split, layout.room / layout.instances, layout.room)[stations["op"]]
    inst, sending = _instances(old, was, layout, kept)
    processes = np.zeros(layout.inside[:, :, 0].size, PROCESS)  # node j's process p is the one at p * nodes + j
    stations["process"] = inst["process"][: len(stations)] if len(processes) else -1  # then one per instance
    todo = np.zeros(len(inst) + len(processes), np.int32)
    s = old._replace(stations=stations, processes=processes, inst=inst, nodes=_nodes(layout), links=links, todo=todo)
    s = _heaps(s, old)
    _queues(s, old, was, random, kept)
    for x in np.flatnonzero((inst["state"] == IDLE) & (inst["up"] == 1) & (inst["station"] >= 0)):
        st = stations[inst["station"][x]]
        if st["idle"] < 0:
            st["idle"] = x
        else:
            inst["next"][st["idle_last"]] = x
        st["idle_last"] = x
    s.todo[: len(sending)] = sending[::-1]  # the last is the first to continue
    s.g["todo"] = len(sending)
    s.g["sharing"] = len(s.nodes) if s.nodes["shared"].any() else 0
    return s


def _instances(old: RecordsState, was: Array, layout: Layout, kept: Array) -> tuple[Array, list[int]]:
    """Return the new instances, and the indices of those with outputs to send, longest waiting first."""
    ops, k = old.ops, layout.instances
    fresh = np.zeros(int(k.sum()), INSTANCE)
    fresh["op"] = np.repeat(np.arange(len(k)), k)
    fresh["node"] = np.concatenate(
        [np.repeat(np.arange(len(layout.cores)), layout.node_instances[:, i]) for i in range(len(k))]
    )
    fresh["process"] = -1
    if layout.inside.size:  # node by node, as the instances are counted
        numbered = np.arange(layout.inside[:, :, 0].size).reshape(layout.inside.shape[:2]).T.ravel()
        of = [np.repeat(numbered, layout.inside[:, :, i].T.ravel()) for i in range(len(k))]
        fresh["process"] = np.concatenate(of)
    number = np.arange(len(fresh)) - ops["first"][fresh["op"]]
    fresh["station"] = ops["station"][fresh["op"]] + np.where(ops["split"][fresh["op"]], number, 0)
    fresh["up"] = layout.cores[fresh["node"]] > 0
    fresh["next"] = -1
    extra: list[Array] = []
    place: dict[int, int] = {}
    for i in map(int, np.flatnonzero(kept)):
        a, b = was["first"][i], ops["first"][i]
        for name in ("work", "io", "since", "share", "weight", "left", "state", "rec", "edge", "called", "until"):
            fresh[name][b : b + k[i]] = old.inst[name][a : a + k[i]]
        place.update({int(a + m): int(b + m) for m in range(k[i])})
    for i in map(int, np.flatnonzero(~kept)):
        _keep_suspended(old, was[i], fresh, ops[i])
        mine = np.flatnonzero((old.inst["op"] == i) & (old.inst["state"] > FROZEN))
        place.update({int(x): int(ops["first"][i] + m) for m, x in enumerate(mine[: k[i]])})
    for x in map(int, np.flatnonzero(old.inst["state"] > FROZEN)):
        if x not in place:
            place[x] = len(fresh) + len(extra)
            extra.append(old.inst[x : x + 1].copy())
            extra[-1]["station"] = -1
        elif not kept[old.inst["op"][x]]:
            for name in ("since", "share", "weight", "left", "rec", "edge"):
                fresh[name][place[x]] = old.inst[name][x]
    fresh["up"] &= fresh["until"] == 0
    inst = np.concatenate([fresh, *extra])
    sending = [place[x] for x in _senders(old)]
    inst["state"][sending], inst["target"][sending], inst["woken"][sending] = SENDING, -1, 0
    return inst, sending


def _keep_suspended(old: RecordsState, was: Any, fresh: Array, op: Any) -> None:
    """Keep instances paused that were paused by themselves and stay in their place, a node or a process."""
    before = old.inst[was["first"] : was["first"] + was["k"]]
    after = fresh[op["first"] : op["first"] + op["k"]]  # a view
    place = "process" if (after["process"] >= 0).all() else "node"
    for one in np.unique(before[place][before["until"] > 0]):
        until = before["until"][(before[place] == one) & (before["until"] > 0)]
        here = np.flatnonzero(after[place] == one)[::-1][: len(until)]
        after["until"][here] = np.sort(until)[::-1][: len(here)]


def _senders(old: RecordsState) -> list[int]:
    """Return the instances with outputs to send: those that may continue already, then those blocked by full queues."""
    row = [int(x) for x in old.todo[: int(old.g["todo"][0])][::-1] if x >= 0]
    for x in old.stations["held"]:
        while x >= 0:
            row.append(int(x))
            x = old.inst["next"][x]
    return row


def _nodes(layout: Layout) -> Array:
    nodes = np.zeros(len(layout.cores), NODE)
    nodes["cores"], nodes["speed"], nodes["rate"] = layout.cores, layout.speed, layout.speed
    nodes["pace"], nodes["next"] = 1 / layout.speed, np.inf
    wanted = layout.node_instances[:, layout.io < 1].sum(axis=1)
    nodes["shared"] = wanted > layout.cores  # with a core per instance nothing is shared
    return nodes


def _heaps(s: RecordsState, old: RecordsState) -> RecordsState:
    """Allocate one entry per instance in the heap of its node, and per instance and record in the common heap."""
    heaps = np.zeros(1 + len(s.nodes), HEAP)
    here = np.bincount(s.inst["node"], minlength=len(s.nodes))
    heaps["base"][1:] = np.cumsum(here) - here
    heaps["base"][0] = len(s.inst)
    heaps["n"][0] = n = old.heaps["n"][0]
    size = 2 * len(s.inst) + len(s.recs)
    due, owners = np.zeros(size), np.zeros(size, np.int32)
    a, b = old.heaps["base"][0], heaps["base"][0]
    due[b : b + n], owners[b : b + n] = old.due[a : a + n], old.owners[a : a + n]
    return s._replace(heaps=heaps, due=due, owners=owners)


def _queues(s: RecordsState, old: RecordsState, was: Array, random: Any, kept: Array) -> None:
    """Move waiting records to the new queues, records in restarted service to their front; redirect those in
    transit.
    """
    for i, op in enumerate(s.ops):
        queues = range(was["station"][i], was["station"][i] + (was["k"][i] if was["split"][i] else 1))
        queues = queues if len(old.stations) else range(0)
        if kept[i] or not (op["split"] or was["split"][i] or not len(queues)):
            for m, q in enumerate(queues):
                for name in ("head", "tail", "n"):
                    s.stations[name][op["station"] + m] = old.stations[name][q]
        else:
            waits = np.concatenate([waiting(old, old.stations, q) for q in queues] + [_NO_RECORDS])
            if len(waits):
                redistribute(s, random, i, waits[np.argsort(s.recs["since"][waits], kind="stable")])
        if not kept[i]:
            mine = old.inst["rec"][(old.inst["op"] == i) & (old.inst["state"] == FROZEN)]
            for c in mine[np.argsort(-s.recs["since"][mine], kind="stable")]:
                st = s.stations[route(s, random, i)]
                s.recs["next"][c] = st["head"] if st["n"] else -1
                st["tail"] = st["tail"] if st["n"] else c
                st["head"] = c
                st["n"] += 1
    heap = s.heaps[0]
    inside = np.concatenate([waiting(old, old.processes, p) for p in range(len(old.processes))] + [_NO_RECORDS])
    inside = inside[np.argsort(s.recs["since"][inside], kind="stable")]
    on_the_way = -1 - s.owners[heap["base"] : heap["base"] + heap["n"]]
    shift = s.ops["station"].astype(np.int64) - was["station"]
    redirect(s, random, old.stations["op"].astype(np.int64), kept, shift, np.concatenate([on_the_way, inside]))
    np.add.at(s.stations["far" if len(s.processes) else "coming"], s.recs["station"][on_the_way], 1)
    enqueue_in_processes(s, inside)
