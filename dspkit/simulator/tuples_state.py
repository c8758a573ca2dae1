"""What the tuples engine keeps, as flat arrays of records that compiled code changes in place.

Every record of the job has a slot in `recs` (48 bytes, and 12 in a heap) from its arrival to its end, whether it
waits, is in service or on its way. A station is a queue with the instances that take from it: one for each operator,
or one for each instance where grouping is "split". A process has an inbox, whose records its thread puts into the
queues of its instances. Lists (free slots, waiting records, idle instances, held-back senders) are chained by `next`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .layout import Array, Graph, Layout

IDLE, SHARING, TIMED, FROZEN, SENDING, BLOCKED = range(6)  # what an instance is at
OCTAVES, FINEST, PER_OCTAVE = 70, -45, 128  # of the latency histogram: 2^-45 s to 2^25 s in bins of at most 1/128


def fields(**kinds: str) -> np.dtype[Any]:
    """The layout of an entry: names of its fields by their kind."""
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
STATION = fields(f8="room knocked", i8="n coming far", i4="head tail idle idle_last held held_last process", u4="op")
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


class State(NamedTuple):
    """All of it; the names of the fields are said where they are used, in tuples_kernel.py.

    | field | meaning |
    |---|---|
    | work, io | of an instance: CPU time at speed 1 and other time still to spend on its record |
    | cpu_left, mark | CPU time that the present delay holds; virtual time of the node when it was last counted |
    | share, weight | of a record: source records it stands for; the same in expectation, for mean latencies |
    | v, at | of a node: virtual time, which runs as fast as each of its instances works; when it was set |
    | off, stopped_at | of an operator: time it stood still so far; since when it does |
    | until | of an operator, or of one instance: when it goes on; 0 for an instance that works |
    | up | of an instance: its node is up, and it does not stand still |
    | coming | of a station: records on their way to it, which have their room already |
    | far | of a station: records from other processes that have no room yet, on their way or in its process's inbox |
    | stuck | of a process: its thread waits at a full station |
    | knocked | of a station: since when its process's thread waits there; inf if it does not |
    | process | of an instance, a station: where it is; -1 where processes are not told apart |
    | held_at | of an instance: since when it is held back |
    """

    g: Array  # one GLOBAL
    ops: Array
    stations: Array
    processes: Array
    inst: Array
    nodes: Array
    heaps: Array  # 0 is that of delays and transits, 1 + j that of node j in its virtual time
    due: Array  # the heaps' times
    who: Array  # and whose they are: an instance, or -1 - slot of a record on its way
    recs: Array
    edges: Array  # by operator, as in Graph.out
    feeds: Array  # the sources
    links: Array  # [j, j]
    todo: Array  # instances that shall go on sending, and -1 - station where a thread shall go on
    histogram: Array  # [2, bin] of latency and event latency, by weight


def empty(graph: Graph, operators: int, slots: int) -> State:
    """No layout yet, nothing inside."""
    state = State(
        g=np.zeros(1, GLOBAL), ops=np.zeros(operators, OPERATOR), stations=np.zeros(0, STATION),
        processes=np.zeros(0, PROCESS), inst=np.zeros(0, INSTANCE), nodes=np.zeros(0, NODE),
        heaps=np.zeros(1, HEAP), due=np.zeros(slots), who=np.zeros(slots, np.int32),
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


def grown(state: State, slots: int) -> State:
    """The same with room for this many records; those that are there keep their slots."""
    more = slots - len(state.recs)
    bigger = state._replace(
        due=np.concatenate([state.due, np.zeros(more)]),
        who=np.concatenate([state.who, np.zeros(more, np.int32)]),
        recs=np.concatenate([state.recs, np.zeros(more, RECORD)]),
    )
    _free(bigger, len(state.recs))
    return bigger


def _free(state: State, first: int) -> None:
    """Chain the slots from `first` on, in front of those that are free."""
    following = np.arange(first + 1, len(state.recs) + 1)
    following[-1] = state.g["free"][0] if first else -1
    state.recs["next"][first:] = following
    state.g["free"] = first


def numbers(state: State, graph: Graph, layout: Layout) -> None:
    """Write down what of a layout is a plain number for each operator, edge, link."""
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
    # A record in a million or fewer would carry the weight of all others: it counts as none at all.
    some = np.where(selectivity > 1e-6, selectivity, 1.0)
    state.edges["weight"] = state.edges["part"] / some
    state.edges["size"] = layout.size[graph.out]
    state.g["linked"] = bool(np.any(layout.delay > 0) or np.any(np.isfinite(layout.bandwidth)))
