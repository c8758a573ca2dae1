"""Another layout: instances, stations and nodes are made anew, and what was there goes on where it belongs now.

Plain Python over operators and instances; only waiting records, which may be many, are moved by compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .layout import Array, Graph, Layout
from .tuples_state import FROZEN, HEAP, IDLE, INSTANCE, LINK, NODE, PROCESS, SENDING, STATION, State, numbers
from .tuples_steps import route
from .tuples_still import deal, redirect, seat, waiting

_NOBODY = np.zeros(0, np.int32)


def changed(old: State, random: Any, graph: Graph, layout: Layout, kept: Array) -> State:
    """The state under another layout. `old` is frozen; work in progress goes on where `kept[i]`.

    Elsewhere it is begun anew, from the head of the queue; what an instance still has to send stays to be sent: by one
    of the new instances, or, where they are fewer, by one of the old that does nothing else any more.
    """
    was, ops = old.ops.copy(), old.ops
    numbers(old, graph, layout)
    links = np.zeros(layout.delay.shape, LINK)
    if old.links.shape == links.shape:
        links["free"] = old.links["free"]
    links["delay"], links["bandwidth"] = layout.delay, layout.bandwidth
    stations = np.zeros(int(np.sum(np.where(layout.split, layout.instances, 1))), STATION)
    for name in ("head", "tail", "idle", "idle_last", "held", "held_last"):
        stations[name] = -1
    stations["knocked"] = np.inf
    stations["op"] = np.repeat(np.arange(len(ops)), np.where(layout.split, layout.instances, 1))
    stations["room"] = np.where(layout.split, layout.room / layout.instances, layout.room)[stations["op"]]
    inst, sending = _instances(old, was, layout, kept)
    processes = np.zeros(layout.inside[:, :, 0].size, PROCESS)  # node j's process p is the one at p * nodes + j
    stations["process"] = inst["process"][: len(stations)] if len(processes) else -1  # there each has its own
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
    s.todo[: len(sending)] = sending[::-1]  # the last is the first to go on
    s.g["todo"] = len(sending)
    s.g["sharing"] = len(s.nodes) if s.nodes["shared"].any() else 0
    return s


def _instances(old: State, was: Array, layout: Layout, kept: Array) -> tuple[Array, list[int]]:
    """The new instances, and which of them have something to send, longest first."""
    ops, k = old.ops, layout.instances
    fresh = np.zeros(int(k.sum()), INSTANCE)
    fresh["op"] = np.repeat(np.arange(len(k)), k)
    fresh["node"] = np.concatenate([np.repeat(np.arange(len(layout.cores)), layout.here[:, i]) for i in range(len(k))])
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
        _still(old, was[i], fresh, ops[i])
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


def _still(old: State, was: Any, fresh: Array, op: Any) -> None:
    """Who stood still by itself and stays in its place, a node or a process, still does."""
    before = old.inst[was["first"] : was["first"] + was["k"]]
    after = fresh[op["first"] : op["first"] + op["k"]]  # a view
    place = "process" if (after["process"] >= 0).all() else "node"
    for one in np.unique(before[place][before["until"] > 0]):
        until = before["until"][(before[place] == one) & (before["until"] > 0)]
        here = np.flatnonzero(after[place] == one)[::-1][: len(until)]
        after["until"][here] = np.sort(until)[::-1][: len(here)]


def _senders(old: State) -> list[int]:
    """Instances that have something to send: those that were to go on already, then the rows before full queues."""
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
    wanted = layout.here[:, layout.io < 1].sum(axis=1)
    nodes["shared"] = wanted > layout.cores  # where there is a core for each, nobody has to share
    return nodes


def _heaps(s: State, old: State) -> State:
    """Room for one entry for each instance in the heap of its node, and for all and each record in the common one."""
    heaps = np.zeros(1 + len(s.nodes), HEAP)
    here = np.bincount(s.inst["node"], minlength=len(s.nodes))
    heaps["base"][1:] = np.cumsum(here) - here
    heaps["base"][0] = len(s.inst)
    heaps["n"][0] = n = old.heaps["n"][0]
    size = 2 * len(s.inst) + len(s.recs)
    due, who = np.zeros(size), np.zeros(size, np.int32)
    a, b = old.heaps["base"][0], heaps["base"][0]
    due[b : b + n], who[b : b + n] = old.due[a : a + n], old.who[a : a + n]
    return s._replace(heaps=heaps, due=due, who=who)


def _queues(s: State, old: State, was: Array, random: Any, kept: Array) -> None:
    """Who waits goes on waiting; who was in service in another layout waits in front; who is on the way still comes."""
    for i, op in enumerate(s.ops):
        queues = range(was["station"][i], was["station"][i] + (was["k"][i] if was["split"][i] else 1))
        queues = queues if len(old.stations) else range(0)
        if kept[i] or not (op["split"] or was["split"][i] or not len(queues)):
            for m, q in enumerate(queues):
                for name in ("head", "tail", "n"):
                    s.stations[name][op["station"] + m] = old.stations[name][q]
        else:
            waits = np.concatenate([waiting(old, old.stations, q) for q in queues] + [_NOBODY])
            if len(waits):
                deal(s, random, i, waits[np.argsort(s.recs["since"][waits], kind="stable")])
        if not kept[i]:
            mine = old.inst["rec"][(old.inst["op"] == i) & (old.inst["state"] == FROZEN)]
            for c in mine[np.argsort(-s.recs["since"][mine], kind="stable")]:
                st = s.stations[route(s, random, i)]
                s.recs["next"][c] = st["head"] if st["n"] else -1
                st["tail"] = st["tail"] if st["n"] else c
                st["head"] = c
                st["n"] += 1
    heap = s.heaps[0]
    inside = np.concatenate([waiting(old, old.processes, p) for p in range(len(old.processes))] + [_NOBODY])
    inside = inside[np.argsort(s.recs["since"][inside], kind="stable")]
    on_the_way = -1 - s.who[heap["base"] : heap["base"] + heap["n"]]
    shift = s.ops["station"].astype(np.int64) - was["station"]
    redirect(s, random, old.stations["op"].astype(np.int64), kept, shift, np.concatenate([on_the_way, inside]))
    np.add.at(s.stations["far" if len(s.processes) else "coming"], s.recs["station"][on_the_way], 1)
    seat(s, inside)
