"""The schedulers of Distributed Storm: bootstrap at the start, then the adaptive one of each node [nardelli, 3.3, 3.4].

Nodes are points of a cost space: two network coordinates, availability and utilisation. The ideal point of an operator
has the coordinates that its streams pull it to, availability 1 and utilisation 0: $(p_1, p_2, 1, 0)$. An executor
migrates to a node that is closer to its ideal point than the current one by more than a threshold.

The bootstrap scheduler places pools of executors. Executors are in the topology's order, so that a pool contains
neighbours. A pool with a source or a sink is pinned: it takes the next free slot, or one on the requested node. The
other pools are placed by springs of strength 1 between neighbouring pools. Storm's own scheduler is round robin.

| paper | here |
|---|---|
| $P = (P_{l1}, P_{l2}, P_a, P_u)$ | a row of four: two coordinates of latency, availability, utilisation |
| $w_l, w_a, w_u$ | `w_latency`, `w_availability`, `w_utilisation`, together `AxisWeights`; they need not sum to 1 |
| $Lat_{max}$ | `latency_max` |
| $D_{rel}$, $thr_{migr}$ | `relative_distance`, `threshold` |
| #eps_max | `slot_executors` |
| $\\gamma$, $F_t$ | `gamma`, `force_limit` |
| VIRTUAL | `virtual`: "springs" (dQoS) or "median" (dRizou) |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...core import ArgumentError, DeploymentError, Knobs, Topology, assign_in_turn, instances_of, knob
from ...core.typing import Array
from ...core.validation import number
from ..coordinates import median, springs
from .cluster import Executor

TIE = 1e-12
CANDIDATES, PASSES = 7, 50


class AxisWeights(NamedTuple):
    """The weights of the axes of the cost space."""

    latency: float = 1.0
    availability: float = 0.0
    utilisation: float = 0.0


def distances(wish: Any, nodes: Any, weights: AxisWeights, latency_max: float) -> Array:
    """Return the distances from one point of the cost space to each of `nodes`.

    With `latency_max` 0 (no latency is known) the two network coordinates do not count.

    >>> distances([10, 20, 1, 0], [[40, 60, 0.9, 0.5], [22, 29, 0.99, 0.1]], AxisWeights(1, 0, 0), 100).tolist()
    [0.5, 0.15]
    """
    for name, value in (("latency_max", latency_max), *weights._asdict().items()):
        number(value, name, 0)
    try:
        apart = np.asarray(nodes, float).reshape(-1, 4) - np.asarray(wish, float).reshape(4)
    except (TypeError, ValueError):
        apart = np.full(1, np.nan)
    if not np.isfinite(apart).all():
        raise ArgumentError(
            f"a wish {wish!r}, or nodes, not in the cost space"[:120],
            expected="four finite numbers each",
            fix="leave out nodes whose point is unknown",
        )
    scale = [weights.latency / latency_max if latency_max else 0.0] * 2 + [weights.availability, weights.utilisation]
    return np.asarray(np.linalg.norm(apart * scale, axis=1))


def nearest(far: Array) -> Array:
    """Return the indices of nodes by distance, nearest first; ties by index."""
    return np.lexsort((np.arange(len(far)), np.round(far / TIE) * TIE))


def relative_distance(current: float, candidate: float) -> float:
    """Return $D_{rel} = |d_{cur} - d_{cand}| / (d_{cur} + d_{cand})$.

    It is 0 for two zeros, and 1 if the current distance is infinite (unknown).

    >>> round(relative_distance(0.30, 0.22), 6), relative_distance(0, 0), relative_distance(math.inf, 1)
    (0.153846, 0.0, 1.0)
    """
    for name, value in (("current", current), ("candidate", candidate)):
        number(value, name, 0, infinite=True)
    if math.isinf(current):
        return 1.0
    both = current + candidate
    return abs(current - candidate) / both if both > 0 else 0.0


def worth_moving(current: float, candidate: float, threshold: float = 0.15) -> bool:
    """Return whether the candidate is closer by more than the threshold. (As printed, a farther one passes, too.)"""
    number(candidate, "candidate", 0, infinite=True)
    number(current, "current", 0, infinite=True)
    return candidate < current and relative_distance(current, candidate) > threshold + TIE


Slot = tuple[int, int]  # (node, number of the slot on it)
Streams = Mapping[Executor, tuple[tuple[Executor, float], ...]]  # the neighbours of an executor, and tuples/s


@dataclass(frozen=True)
class MigrationRules(Knobs):
    """The rules by which executors migrate. Defaults are the thesis's.

    Examples
    --------
    >>> MigrationRules(w_utilisation=0.0).threshold
    0.15
    """

    w_latency: float = knob(1.0, "weight of latency in the cost space", low=0.0, high=20.0)
    w_availability: float = knob(0.0, "weight of availability (10 in the thesis's test of it)", low=0.0, high=20.0)
    w_utilisation: float = knob(0.5, "weight of CPU utilisation", low=0.0, high=20.0)
    virtual: str = knob(
        "springs",
        "method that finds the ideal coordinates of an operator: springs (Pietzuch) or median (Rizou)",
        choices=("springs", "median"),
    )
    threshold: float = knob(
        0.15, "relative distance above which an executor migrates", low=0.0, high=1.0, source="nardelli"
    )
    slot_executors: int = knob(4, "most executors of a slot", low=1, high=64, source="nardelli")
    candidates: int = knob(5, "nearest nodes that are considered", low=1, high=64, source="the prototype")
    gamma: float = knob(0.1, "step size of the spring relaxation", low=1e-6, high=10.0, source="nardelli")
    force_limit: float = knob(
        1.0, "force below which springs are at rest (tuples/s x ms)", low=1e-9, high=1e6, source="nardelli"
    )
    fixed_latency_max: float = knob(
        0.0,
        "Lat_max as a constant (38 ms in the prototype); 0: the greatest distance between known nodes",
        low=0.0,
        high=1e4,
        unit="ms",
    )
    skip_local: bool = knob(
        False, "neighbours on the same node do not pull, as in the prototype", choices=(False, True)
    )

    @property
    def weights(self) -> AxisWeights:
        """The weights of the axes of the cost space."""
        return AxisWeights(self.w_latency, self.w_availability, self.w_utilisation)


class NodeView(NamedTuple):
    """The information from which one node decides.

    Parameters
    ----------
    node : int
        Index of the deciding node.
    points : array
        The cost space as the node knows it: one row per node, NaN for unknown nodes.
    where : mapping
        The slot of each executor of the application.
    streams : mapping
        The neighbours of each executor, with measured rates, as returned by `streams`.
    pinned : frozenset of str
        Operators that never migrate.
    marked : frozenset of str
        Operators that another node is migrating.
    slots : tuple of int
        Number of slots of each node.

    Examples
    --------
    >>> view = NodeView(0, np.zeros((1, 4)), {("a", 0): (0, 0)}, {}, frozenset(), frozenset(), (2,))
    >>> plan(view, MigrationRules()) is None
    True
    """

    node: int
    points: Array
    where: Mapping[Executor, Slot]
    streams: Streams
    pinned: frozenset[str]
    marked: frozenset[str]
    slots: tuple[int, ...]


class Move(NamedTuple):
    """The migration of one executor.

    Parameters
    ----------
    executor : tuple of str and int
        The executor that migrates.
    start, end : tuple of int
        The slots that it leaves and enters.
    gain : float
        Relative distance between the two nodes, seen from its ideal point.

    Examples
    --------
    >>> Move(("split", 0), (0, 1), (2, 0), 0.25).end
    (2, 0)
    """

    executor: Executor
    start: Slot
    end: Slot
    gain: float


def plan(view: NodeView, rules: MigrationRules) -> Move | None:
    """Return the migration of the first executor of a node, by name and index, that has a better node; None if none.

    Parameters
    ----------
    view : NodeView
        The information of the deciding node.
    rules : MigrationRules
        Weights, threshold and method.

    Examples
    --------
    Executor ("b", 0) runs on node 1; its only neighbour runs on node 0, 20 ms away:

    >>> points = np.array([[0, 0, 1, 0], [20, 0, 1, 0]], float)
    >>> where, streams = {("a", 0): (0, 0), ("b", 0): (1, 0)}, {("b", 0): ((("a", 0), 100.0),)}
    >>> view = NodeView(1, points, where, streams, frozenset(), frozenset(), (2, 2))
    >>> plan(view, MigrationRules()).end
    (0, 0)
    """
    if np.isnan(view.points[view.node]).any():
        return None  # the node does not know its own point yet
    for executor in candidates(view):
        if move := _consider(executor, view, rules):
            return move
    return None


def candidates(view: NodeView) -> list[Executor]:
    """Return the node's executors that may migrate.

    Pinned operators are left out, and those that another node is migrating, or of which it is migrating a neighbour.
    """
    mine = [e for e, (node, _) in view.where.items() if node == view.node and e[0] not in view.pinned | view.marked]
    return sorted(e for e in mine if not any(other[0] in view.marked for other, _ in view.streams.get(e, ())))


def _consider(executor: Executor, view: NodeView, rules: MigrationRules) -> Move | None:
    here = view.node
    far = _wish(executor, here, view, rules)
    if far is None:
        return None
    for c in nearest(far)[: rules.candidates].tolist():
        if c == here or not worth_moving(far[here], far[c], rules.threshold):
            return None  # no better node
        ahead = _wish(executor, c, view, rules)
        if ahead is None or nearest(ahead)[0] == here:
            return None  # from there it would migrate back
        if slot := room(c, view.where, view.slots, rules.slot_executors):
            return Move(executor, view.where[executor], slot, relative_distance(far[here], far[c]))
    return None


def _wish(executor: Executor, at: int, view: NodeView, rules: MigrationRules) -> Array | None:
    """Return the distance of each node from the executor's ideal point, if it ran on node `at`; None without streams.

    Unknown nodes are infinitely far.
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
    """Return the greatest distance in the plane between two known nodes."""
    plane = points[~np.isnan(points).any(axis=1), :2]
    return float(np.linalg.norm(plane[:, None] - plane[None], axis=2).max()) if len(plane) else 0.0


def room(node: int, where: Mapping[Executor, Slot], slots: tuple[int, ...], most: int) -> Slot | None:
    """Return a slot of the node with room for one more executor: the emptiest in use, else a free one; None if full."""
    used = load(where.values())
    running = sorted((used[node, s], s) for s in range(slots[node]) if (node, s) in used)
    if running and running[0][0] + 1 <= most:
        return node, running[0][1]
    free = [s for s in range(slots[node]) if (node, s) not in used]
    return (node, free[0]) if free else None


def load(slots: Iterable[Slot]) -> dict[Slot, int]:
    """Return the number of executors of each slot in use."""
    counted: dict[Slot, int] = {}
    for slot in slots:
        counted[slot] = counted.get(slot, 0) + 1
    return counted


def slots_in_turn(slots: Sequence[int]) -> list[Slot]:
    """Return all slots in an order in which successive ones lie on different nodes: by port, then by node.

    Parameters
    ----------
    slots : sequence of int
        Number of slots of each node.

    Examples
    --------
    >>> slots_in_turn([2, 1])
    [(0, 0), (1, 0), (0, 1)]
    """
    return [(node, s) for s in range(max(slots, default=0)) for node in range(len(slots)) if s < slots[node]]


def round_robin(
    topology: Topology, parallelism: Mapping[str, int], slots: Sequence[int], processes: int
) -> dict[Executor, Slot]:
    """Return the placement of Storm's EvenScheduler: executors in turn over one slot per worker process.

    Parameters
    ----------
    topology : Topology
        The application.
    parallelism : mapping
        Number of executors of each operator.
    slots : sequence of int
        Number of slots of each node.
    processes : int
        Number of worker processes.

    Examples
    --------
    >>> round_robin(Topology.chain("a", "b"), {"a": 1, "b": 2}, slots=[1, 1], processes=2)
    {('a', 0): (0, 0), ('b', 0): (1, 0), ('b', 1): (0, 0)}
    """
    chosen = slots_in_turn(slots)[: max(1, processes)]
    if not chosen:
        raise DeploymentError("no slots", expected="at least one", fix="add nodes, or slots to them")
    return assign_in_turn(instances_of(topology, parallelism), chosen)


def bootstrap(
    topology: Topology,
    parallelism: Mapping[str, int],
    slots: Sequence[int],
    points: Array,
    *,
    processes: int,
    pinned: Mapping[str, int] | None = None,
    kept: Mapping[Executor, Slot] | None = None,
    avoid: Sequence[Slot] = (),
) -> dict[Executor, Slot]:
    """Return the initial slot of every executor.

    Parameters
    ----------
    topology : Topology
        The application.
    parallelism : mapping
        Number of executors of each operator.
    slots : sequence of int
        Number of slots of each node.
    points : array
        The nodes in the cost space, one row per node; NaN if unknown.
    processes : int
        Number of worker processes, and so of pools.
    pinned : mapping, optional
        Index of the node on which an operator has to run.
    kept : mapping, optional
        Executors that are placed already, with their slots.
    avoid : sequence, optional
        Slots that must not be used.

    Examples
    --------
    >>> points = np.array([[0, 0, 1, 0], [10, 0, 1, 0]], float)
    >>> bootstrap(Topology.chain("a", "b"), {"a": 1, "b": 1}, [1, 1], points, processes=2, pinned={"a": 1})
    {('a', 0): (1, 0), ('b', 0): (0, 0)}
    """
    kept, pinned = dict(kept or {}), dict(pinned or {})
    new = [e for e in instances_of(topology, parallelism) if e not in kept]
    taken = set(kept.values()) | set(avoid)
    free = [(node, s) for node in range(len(slots)) for s in range(slots[node]) if (node, s) not in taken]
    if not new:
        return kept
    if not free:
        raise DeploymentError(
            f"{len(new)} executors and no free slot", expected="a free slot", fix="add nodes, or slots to them"
        )
    pools = _pools(new, min(max(1, processes), len(free)))
    ends = set(topology.sources) | set(topology.sinks) | set(pinned)
    places: dict[int, Slot] = {}
    for n, pool in enumerate(pools):
        if any(name in ends for name, _ in pool):
            asked = next((pinned[name] for name, _ in pool if name in pinned), None)
            slot = next((s for s in free if s[0] == asked), free[0])
            free.remove(slot)
            places[n] = slot
    rest = [n for n in range(len(pools)) if n not in places]
    settled = {e: places[n] for n in places for e in pools[n]} | kept
    for _ in range(PASSES):
        before, left = dict(places), list(free)
        for n in rest:
            places[n] = _nearest_free(topology, pools[n], {**settled, **_of(pools, places)}, left, points)
            left.remove(places[n])
        if places == before:
            break
    return kept | _of(pools, places)


def _pools(new: list[Executor], count: int) -> list[list[Executor]]:
    size = math.ceil(len(new) / count)
    return [new[i : i + size] for i in range(0, len(new), size)]


def _of(pools: list[list[Executor]], places: Mapping[int, Slot]) -> dict[Executor, Slot]:
    return {e: slot for n, slot in places.items() for e in pools[n]}


def _nearest_free(
    topology: Topology, pool: list[Executor], where: Mapping[Executor, Slot], free: list[Slot], points: Array
) -> Slot:
    """Return the first free slot on the nodes nearest to the rest position of unit springs to neighbouring pools."""
    names = {name for name, _ in pool}
    near = {b if a in names else a for a, b in topology.edges if (a in names) != (b in names)}
    related = sorted({slot for e, slot in where.items() if e[0] in near and e not in pool})
    at = [points[node, :2] for node, _ in related if not np.isnan(points[node]).any()]
    known = np.flatnonzero(~np.isnan(points).any(axis=1))
    place = springs(at, [1.0] * len(at), (0.0, 0.0)) if at else np.zeros(2)
    far = distances((*place, 1, 0), points[known], AxisWeights(), latency_max(points))
    order = known[nearest(far)][:CANDIDATES].tolist()
    return next((slot for node in order for slot in free if slot[0] == node), free[0])
