"""Initial placements in Storm: round robin over slots, and the bootstrap scheduler, which places pools of executors.

Executors are in the topology's order, so that a pool contains neighbours. A pool with a source or a sink is pinned: it
takes the next free slot, or one on the requested node. The other pools are placed by springs of strength 1 between
neighbouring pools.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...core import DeploymentError, Topology, assign_in_turn, instances_of
from ...core.typing import Array
from ..coordinates import springs
from .adaptive import AxisWeights, Slot, distances, latency_max, nearest
from .cluster import Executor

CANDIDATES, PASSES = 7, 50


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
    for number, pool in enumerate(pools):
        if any(name in ends for name, _ in pool):
            asked = next((pinned[name] for name, _ in pool if name in pinned), None)
            slot = next((s for s in free if s[0] == asked), free[0])
            free.remove(slot)
            places[number] = slot
    rest = [number for number in range(len(pools)) if number not in places]
    settled = {e: places[number] for number in places for e in pools[number]} | kept
    for _ in range(PASSES):
        before, left = dict(places), list(free)
        for number in rest:
            places[number] = _nearest_free(topology, pools[number], {**settled, **_of(pools, places)}, left, points)
            left.remove(places[number])
        if places == before:
            break
    return kept | _of(pools, places)


def _pools(new: list[Executor], count: int) -> list[list[Executor]]:
    size = math.ceil(len(new) / count)
    return [new[i : i + size] for i in range(0, len(new), size)]


def _of(pools: list[list[Executor]], places: Mapping[int, Slot]) -> dict[Executor, Slot]:
    return {e: slot for number, slot in places.items() for e in pools[number]}


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
