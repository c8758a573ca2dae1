"""Analyse and plan on one node: which of my executors shall move, and where to [nardelli, 3.4].

| paper | here |
|---|---|
| #eps_max | `slot_executors` |
| $thr_{migr}$ | `threshold` |
| $w_l, w_a, w_u$ | `w_latency`, `w_availability`, `w_utilisation` |
| $\\gamma$, $F_t$ | `gamma`, `force_limit` |
| VIRTUAL | `virtual.springs` (dQoS), `virtual.median` (dRizou) |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...knobs import Knobs, knob
from ..cost_space import Weights, distances, nearest, relative_distance, worth_moving
from ..virtual import median, springs
from .cluster import Executor

Array = np.ndarray[Any, np.dtype[Any]]
Slot = tuple[int, int]  # (node, number of the slot on it)
Streams = Mapping[Executor, tuple[tuple[Executor, float], ...]]  # who an executor talks to, and tuples/s


@dataclass(frozen=True)
class Rules(Knobs):
    """When an executor moves, and where to. Defaults are the thesis's."""

    w_latency: float = knob(1.0, "weight of latency in the cost space", low=0.0, high=20.0)
    w_availability: float = knob(0.0, "weight of availability (10 in the thesis's test of it)", low=0.0, high=20.0)
    w_utilisation: float = knob(0.5, "weight of CPU utilisation", low=0.0, high=20.0)
    virtual: str = knob(
        "springs", "where an operator wishes to be: springs (Pietzuch) or median (Rizou)", choices=("springs", "median")
    )
    threshold: float = knob(0.15, "relative distance that is worth a move", low=0.0, high=1.0, source="nardelli")
    slot_executors: int = knob(4, "executors that a slot holds at most", low=1, high=64, source="nardelli")
    candidates: int = knob(5, "nearest nodes that are looked at", low=1, high=64, source="the prototype")
    gamma: float = knob(0.1, "part of the force that a step follows", low=1e-6, high=10.0, source="nardelli")
    force_limit: float = knob(1.0, "force at which springs rest (tuples/s x ms)", low=1e-9, high=1e6, source="nardelli")
    fixed_latency_max: float = knob(
        0.0,
        "Lat_max as a constant (38 ms in the prototype); 0: the greatest known distance",
        low=0.0,
        high=1e4,
        unit="ms",
    )
    skip_local: bool = knob(
        False, "neighbours on the same node do not pull, as in the prototype", choices=(False, True)
    )

    @property
    def weights(self) -> Weights:
        return Weights(self.w_latency, self.w_availability, self.w_utilisation)


class View(NamedTuple):
    """What one node decides from: its cost space (NaN: unknown nodes), all assignments, measured streams, markers."""

    here: int
    points: Array
    where: Mapping[Executor, Slot]
    streams: Streams
    pinned: frozenset[str]  # operators that never move
    marked: frozenset[str]  # operators that another node is moving
    slots: tuple[int, ...]


class Move(NamedTuple):
    executor: Executor
    start: Slot
    end: Slot
    gain: float  # relative distance


def plan(view: View, rules: Rules) -> Move | None:
    """The first of my executors, by name and number, that had better run elsewhere."""
    if np.isnan(view.points[view.here]).any():
        return None  # I do not know yet where I am
    for executor in candidates(view):
        if move := _consider(executor, view, rules):
            return move
    return None


def candidates(view: View) -> list[Executor]:
    """My executors that may move: not pinned, and no other node is moving them or an operator they talk to."""
    mine = [e for e, (node, _) in view.where.items() if node == view.here and e[0] not in view.pinned | view.marked]
    return sorted(e for e in mine if not any(other[0] in view.marked for other, _ in view.streams.get(e, ())))


def _consider(executor: Executor, view: View, rules: Rules) -> Move | None:
    here = view.here
    far = _wish(executor, here, view, rules)
    if far is None:
        return None
    for c in nearest(far)[: rules.candidates].tolist():
        if c == here or not worth_moving(far[here], far[c], rules.threshold):
            return None  # staying is best, or as good
        ahead = _wish(executor, c, view, rules)
        if ahead is None or nearest(ahead)[0] == here:
            return None  # once there it would wish itself back
        if slot := room(c, view.where, view.slots, rules.slot_executors):
            return Move(executor, view.where[executor], slot, relative_distance(far[here], far[c]))
    return None


def _wish(executor: Executor, at: int, view: View, rules: Rules) -> Array | None:
    """Distance of each node from where the executor wishes to be, if it ran on node `at`; None if nothing pulls.

    A node nobody has told about is infinitely far.
    """
    pulls = [
        (view.points[view.where[other][0], :2], rate)
        for other, rate in view.streams.get(executor, ())
        if rate > 0 and not (rules.skip_local and view.where[other][0] == at)
    ]
    pulls = [(point, rate) for point, rate in pulls if not np.isnan(point).any()]
    if not pulls:
        return None
    points, rates = zip(*pulls, strict=True)
    origin = view.points[at, :2]
    if rules.virtual == "springs":
        place = springs(points, rates, origin, gamma=rules.gamma, force_limit=rules.force_limit)
    else:
        place = median(points, rates, origin)
    known: Array = np.logical_not(np.isnan(view.points).any(axis=1))
    far = np.full(len(known), np.inf)
    longest = rules.fixed_latency_max or latency_max(view.points)
    far[known] = distances((*place, 1, 0), view.points[known], rules.weights, longest)
    return far


def latency_max(points: Array) -> float:
    """The greatest distance between two nodes that are known."""
    plane = points[~np.isnan(points).any(axis=1), :2]
    return float(np.linalg.norm(plane[:, None] - plane[None], axis=2).max()) if len(plane) else 0.0


def room(node: int, where: Mapping[Executor, Slot], slots: tuple[int, ...], most: int) -> Slot | None:
    """A slot of the node that takes one more: the emptiest that runs the application, else a free one."""
    used = load(where.values())
    running = sorted((used[node, s], s) for s in range(slots[node]) if (node, s) in used)
    if running and running[0][0] + 1 <= most:
        return node, running[0][1]
    free = [s for s in range(slots[node]) if (node, s) not in used]
    return (node, free[0]) if free else None


def load(slots: Iterable[Slot]) -> dict[Slot, int]:
    """How many executors each slot in use runs."""
    counted: dict[Slot, int] = {}
    for slot in slots:
        counted[slot] = counted.get(slot, 0) + 1
    return counted
