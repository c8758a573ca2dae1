"""What a rescale stops, and for how long: each engine's way, from the places of instances before and after.

| kind | stops | for |
|---|---|---|
| rebalance (Storm) | the job | the pause |
| restart (Storm, whose workers die with their queues) | the job; what it had taken in is lost | the pause |
| savepoint (Flink) | the job | the pause + all state, written and read again |
| in-place | operators whose parallelism changes, or that had an instance on a node that dies | the pause |
| migration | operators with an instance that comes, goes or moves | the pause + their state that changes nodes |
| instances | of these operators only the instances that come or move: the others go on | the same |

Where all of an operator's instances come or move, it stands still as a whole. Micro-batches wait for all instances.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from .cluster import Places
from .plant import Plant

Instance = tuple[str, int]
Place = TypeVar("Place", bound=Hashable)  # a node, or a seat


def pauses(plant: Plant, before: Places, after: Places, dead: Collection[str] = ()) -> dict[str, float]:
    """Seconds for which each operator stands still when instances go from these places to those.

    `dead` are nodes that die at this moment.
    """
    if plant.pause_kind in ("rebalance", "restart", "savepoint"):
        state = sum(service.state_bytes for service in plant.services.values())
        twice = 2 * state / plant.state_bytes_per_s if plant.pause_kind == "savepoint" else 0.0
        return dict.fromkeys(plant.services, plant.pause_s + twice)
    old, new = _by_operator(before), _by_operator(after)
    moves = Counter(name for (name, i), node in after.items() if before.get((name, i), node) != node)
    each = plant.pause_kind == "instances"  # where two that change places move; their counts do not show it
    stopped = dict.fromkeys(plant.services, 0.0)
    for name in plant.services:
        if plant.pause_kind == "in-place":
            struck = any(old[name][node] for node in dead)
            stopped[name] = plant.pause_s if struck or old[name].total() != new[name].total() else 0.0
        elif old[name] != new[name] or (each and moves[name]):
            share = max(moved_share(old[name], new[name]), each * moves[name] / new[name].total())
            stopped[name] = plant.pause_s + plant.services[name].state_bytes * share / plant.state_bytes_per_s
    return stopped


def coming(before: Mapping[Instance, Place], after: Mapping[Instance, Place]) -> dict[str, Counter[Place]]:
    """How many instances of each operator come to each node, or seat, from another one or as new.

    >>> coming({("a", 0): "n1", ("a", 1): "n2"}, {("a", 0): "n2", ("a", 1): "n2", ("a", 2): "n1"})
    {'a': Counter({'n2': 1, 'n1': 1})}
    """
    return dict(_by_operator({instance: node for instance, node in after.items() if before.get(instance) != node}))


def moved_share(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Share of an operator's state that changes nodes, spread evenly over its instances before and after.

    >>> moved_share({"a": 1}, {"a": 1, "b": 1}), moved_share({"a": 2}, {"a": 3})
    (0.5, 0.0)
    """
    old, new = sum(before.values()), sum(after.values())
    return sum(max(0.0, n / new - before.get(node, 0) / old) for node, n in after.items())


def _by_operator(places: Mapping[Instance, Place]) -> dict[str, Counter[Place]]:
    counted: dict[str, Counter[Place]] = defaultdict(Counter)
    for (name, _), place in places.items():
        counted[name][place] += 1
    return counted
