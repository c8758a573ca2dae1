"""The state of the pipelined record-level engine, as flat arrays that compiled code changes in place, and its heaps.

Every record of the job has a slot in `recs` (48 bytes, and 12 in a heap) from its arrival to its end, whether it waits,
is in service or in transit. A station is a queue with the instances that take from it: one per operator, or one per
instance where grouping is "split". A process has an inbox, whose records its thread puts into the queues of its
instances. Lists (free slots, waiting records, idle instances, blocked senders) are chained by `next`.

A heap holds pairs (time, owner) in two arrays; the earliest is at its base. Removing the earliest leaves a hole, which
the next insertion fills: most events schedule the next one of their kind, so this saves half of the work. A heap with a
hole must be settled (`settle`) before its earliest entry is read.

Indices are unsigned, so that numba need not check each for counting from the end of the array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.jit import inlined
from ...core.typing import Array
from ..layout import IndexedGraph, Layout

IDLE, SHARING, TIMED, FROZEN, SENDING, BLOCKED = range(6)  # states of an instance
OCTAVES, FINEST, PER_OCTAVE = 70, -45, 128  # of the latency histogram: 2^-45 s to 2^25 s in bins of at most 1/128


def fields(**kinds: str) -> np.dtype[Any]:
    """Return the layout of an entry: names of its fields by their kind."""
    return np.dtype([(name, kind) for kind, names in kinds.items() for name in names.split()], align=True)


GLOBAL = fields(
    f8="now ended lost offered resume tick_end latency event_latency weight",
    i8="free todo tick linked fresh sharing",
)
OPERATOR = fields(
    f8="seconds io cv call answered until stopped_at off waited hottest",
    i8="arrived done dropped begun waits",
    i4="first k station split source drops law paused",
    u4="out_at out_end",
)
STATION = fields(
    f8="room thread_since", i8="n coming far", i4="head tail idle idle_last held held_last process", u4="op"
)
PROCESS = fields(i8="n", i4="head tail stuck")
INSTANCE = fields(
    f8="work io cpu_left mark since busy blocked cpu share weight until held_at",
    i8="left",
    i4="station state next target called up woken process",
    u4="op node rec edge",
)
NODE = fields(f8="cores speed pace v at rate next", i4="shared stale running")
HEAP = fields(u8="base n", i4="hole")
RECORD = fields(f8="share weight born taken since", i4="next", u4="station")
EDGE = fields(f8="fraction weight part size", i8="whole sent", u4="to")
FEED = fields(f8="rate gap next left", u4="op")
LINK = fields(f8="delay bandwidth free")


class RecordsState(NamedTuple):
    """The whole state. The fields of its entries that need an explanation:

    | field | meaning |
    |---|---|
    | work, io | of an instance: CPU time at speed 1 and other time still to spend on its record |
    | cpu_left, mark | CPU time that the present delay holds; virtual time of the node when it was last counted |
    | share, weight | of a record: source records it stands for; the same in expectation, for mean latencies |
    | v, at | of a node: virtual time, which advances as fast as each of its instances works; when it was set |
    | off, stopped_at | of an operator: time for which it was paused so far; since when it is paused |
    | until | of an operator, or of one instance: end of its pause; 0 for an instance that works |
    | up | of an instance: its node is up, and it is not paused |
    | coming | of a station: records in transit to it, whose room is reserved |
    | far | of a station: records from other processes without reserved room, in transit or in its process's inbox |
    | stuck | of a process: its thread is blocked by a full station |
    | thread_since | of a station: since when its process's thread waits for it; inf if it does not |
    | process | of an instance, a station: its worker process; -1 if these are not modelled |
    | held_at | of an instance: since when it is back-pressured |
    """

    g: Array  # one GLOBAL
    ops: Array
    stations: Array
    processes: Array
    inst: Array
    nodes: Array
    heaps: Array  # 0: delays and transits, 1 + j: node j in its virtual time
    due: Array  # times of the heaps' entries
    owners: Array  # and their owners: an instance, or -1 - slot of a record in transit
    recs: Array
    edges: Array  # by operator, as in Graph.out
    feeds: Array  # the sources
    links: Array  # [j, j]
    todo: Array  # instances that continue to send, and -1 - station at which a thread continues
    histogram: Array  # [2, bin] of latency and event latency, by weight


def empty_state(graph: IndexedGraph, operators: int, slots: int) -> RecordsState:
    """Return a state without a layout and without records."""
    state = RecordsState(
        g=np.zeros(1, GLOBAL), ops=np.zeros(operators, OPERATOR), stations=np.zeros(0, STATION),
        processes=np.zeros(0, PROCESS), inst=np.zeros(0, INSTANCE), nodes=np.zeros(0, NODE),
        heaps=np.zeros(1, HEAP), due=np.zeros(slots), owners=np.zeros(slots, np.int32),
        recs=np.zeros(slots, RECORD), edges=np.zeros(len(graph.start), EDGE),
        feeds=np.zeros(int(np.sum(np.diff(graph.into_at) == 0)), FEED), links=np.zeros((0, 0), LINK),
        todo=np.zeros(0, np.int32), histogram=np.zeros((2, OCTAVES * PER_OCTAVE)),
    )  # fmt: skip
    state.g["resume"] = np.inf
    state.ops["source"] = np.diff(graph.into_at) == 0
    state.ops["out_at"], state.ops["out_end"] = graph.out_at[:-1], graph.out_at[1:]
    state.edges["to"] = graph.end[graph.out]
    state.edges["part"] = 1 / np.diff(graph.out_at)[graph.start[graph.out]]
    state.feeds["op"] = np.flatnonzero(state.ops["source"])
    state.feeds["next"], state.feeds["left"] = np.inf, -1.0  # the first arrival is not drawn yet
    _free(state, 0)
    return state


def grown_state(state: RecordsState, slots: int) -> RecordsState:
    """Return the state with capacity for this many records; existing ones keep their slots."""
    more = slots - len(state.recs)
    bigger = state._replace(
        due=np.concatenate([state.due, np.zeros(more)]),
        owners=np.concatenate([state.owners, np.zeros(more, np.int32)]),
        recs=np.concatenate([state.recs, np.zeros(more, RECORD)]),
    )
    _free(bigger, len(state.recs))
    return bigger


def _free(state: RecordsState, first: int) -> None:
    """Chain the slots from `first` on, in front of the free ones."""
    following = np.arange(first + 1, len(state.recs) + 1)
    following[-1] = state.g["free"][0] if first else -1
    state.recs["next"][first:] = following
    state.g["free"] = first


def write_layout(state: RecordsState, graph: IndexedGraph, layout: Layout) -> None:
    """Write the numbers of a layout per operator, edge and link."""
    ops = state.ops
    for name in ("io", "cv", "call", "law", "drops", "split", "hottest"):
        ops[name] = getattr(layout, name)
    ops["k"] = layout.instances
    ops["first"] = np.cumsum(layout.instances) - layout.instances
    queues = np.where(layout.split, layout.instances, 1)
    ops["station"] = np.cumsum(queues) - queues
    selectivity = layout.selectivity[graph.out]
    state.edges["whole"] = np.floor(selectivity)
    state.edges["fraction"] = selectivity - np.floor(selectivity)
    # With a selectivity below 1e-6 one record would carry the weight of all others: it counts as zero.
    some = np.where(selectivity > 1e-6, selectivity, 1.0)
    state.edges["weight"] = state.edges["part"] / some
    state.edges["size"] = layout.size[graph.out]
    state.g["linked"] = bool(np.any(layout.delay > 0) or np.any(np.isfinite(layout.bandwidth)))


_0, _1 = np.uint64(0), np.uint64(1)


@inlined
def rise(due: Any, owners: Any, base: Any, at: Any, time: float, owner: int) -> None:
    """Put (time, owner) at index `at` or above it."""
    while at > _0:
        above = (at - _1) >> _1
        if due[base + above] <= time:
            break
        due[base + at] = due[base + above]
        owners[base + at] = owners[base + above]
        at = above
    due[base + at] = time
    owners[base + at] = owner


@inlined
def sink(due: Any, owners: Any, base: Any, n: Any, time: float, owner: int) -> None:
    """Put (time, owner) at the top of a heap of n, or below it."""
    at = _0
    while True:
        below = at + at + _1
        if below >= n:
            break
        if below + _1 < n and due[base + below + _1] < due[base + below]:
            below += _1
        if time <= due[base + below]:
            break
        due[base + at] = due[base + below]
        owners[base + at] = owners[base + below]
        at = below
    due[base + at] = time
    owners[base + at] = owner


@inlined
def put(s: Any, h: int, time: float, owner: int) -> None:
    heap = s.heaps[h]
    if heap.hole:
        heap.hole = 0
        sink(s.due, s.owners, heap.base, heap.n, time, owner)
    else:
        heap.n += _1
        rise(s.due, s.owners, heap.base, heap.n - _1, time, owner)


@inlined
def settle(s: Any, h: int) -> Any:
    """Fill the hole, if there is one, and return the number of entries."""
    heap = s.heaps[h]
    if heap.hole:
        heap.hole = 0
        heap.n -= _1
        end = heap.base + heap.n
        if heap.n > _0:
            sink(s.due, s.owners, heap.base, heap.n, s.due[end], s.owners[end])
    return heap.n
