"""Worker processes, as in Storm: which process of its node each instance runs in.

What reaches a process from another one goes through its one receiving thread, in the order of its arrival, into the own
queues of the process's instances. The thread waits at a full one, and all that came later waits behind it, for whomever
it is; nobody upstream is held back by that. What stays in its process goes straight into the queue, and whoever sends
it is held back if that is full.

| `joining` | those that come to a node go |
|---|---|
| spread | one by one to the process that has the fewest instances |
| together | all to the one in which the fewest stay: what Stela's published scheduler does where no slot is free |
| apart | all to an empty one, a new one if need be: the same where a slot is free |

On a node where nobody stays they are spread, whatever it says.
"""

from __future__ import annotations

from collections.abc import Mapping

from .cluster import Places
from .plant import Plant

Seats = Mapping[tuple[str, int], tuple[str, int]]  # (operator, index of the instance) -> (node, its process there)


def seats(plant: Plant, places: Places, before: Seats) -> dict[tuple[str, int], tuple[str, int]]:
    """Where all instances sit when they go from `before` to these places. Who stays on its node stays in its process.

    Nobody sits anywhere if the plant tells no processes apart.

    >>> two = Plant({}, processes=2, joining="together")
    >>> first = seats(two, {("a", 0): "n", ("a", 1): "n", ("a", 2): "n"}, {})
    >>> sorted(first.values())
    [('n', 0), ('n', 0), ('n', 1)]
    >>> later = seats(two, {("a", 0): "n", ("a", 1): "n", ("a", 2): "n", ("b", 0): "n", ("b", 1): "n"}, first)
    >>> later["b", 0], later["b", 1]
    (('n', 1), ('n', 1))
    """
    if not plant.processes:
        return {}
    found = {who: seat for who, seat in before.items() if places.get(who) == seat[0]}
    crowd = {node: [0] * plant.processes for node in set(places.values())}
    for node, process in found.values():
        crowd[node] += [0] * (process + 1 - len(crowd[node]))
        crowd[node][process] += 1
    joined = {}
    for node, each in crowd.items():
        if any(each) and plant.joining != "spread":
            empty = each.index(0) if 0 in each else len(each)
            joined[node] = each.index(min(each)) if plant.joining == "together" else empty
    for who, node in places.items():
        if who not in found:
            process = joined.get(node, crowd[node].index(min(crowd[node])))
            found[who] = node, process
            if node not in joined:
                crowd[node][process] += 1
    return found
