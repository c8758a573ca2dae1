"""Tasks in groups, and who runs them where: Storm's even groups, and places from which fewest tasks move [nardelli].

    | thesis | here |
    |---|---|
    | $T(op)$, $E(op)$ | `tasks`, `executors`: how many there are |
    | $q$, $r$ in $\\lvert T\\rvert = q\\lvert E\\rvert + r$ | the first r executors get q + 1 tasks, the others q |

An executor runs neighbouring tasks. A task is the smallest piece of state: it is never split.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core import Topology
from ..errors import KnobError

Places = Mapping[tuple[str, int], str]


class Relocation(NamedTuple):
    """Where the executors go, and what changes node with them."""

    nodes: tuple[str, ...]  # of each executor
    moved: int  # tasks on another node than before
    weight: float  # the same in bytes, or as `sizes` counts


def groups(tasks: int, executors: int) -> tuple[range, ...]:
    """The tasks of each executor, evenly and in order.

    >>> [len(g) for g in groups(20, 6)]
    [4, 4, 3, 3, 3, 3]
    """
    if not 1 <= executors <= tasks:
        raise KnobError(
            f"{executors} executors for {tasks} tasks", expected="from 1 to as many as there are tasks", fix="clip it"
        )
    q, r = divmod(tasks, executors)
    starts = [e * q + min(e, r) for e in range(executors + 1)]
    return tuple(range(a, b) for a, b in zip(starts, starts[1:], strict=False))


def relocate(
    tasks: int,
    before: Sequence[str],
    executors: int,
    *,
    room: Mapping[str, float] | None = None,
    busy: Mapping[str, int] | None = None,
    sizes: Sequence[float] | None = None,
) -> Relocation:
    """Regroup `tasks`, which ran in executors on the nodes `before`, so that few of them change node.

    Each executor in turn goes where most of its tasks were, among nodes with `room`; ties go to the node with most
    executors of the job already (`busy`), then to the lowest name. An executor that keeps its tasks keeps its place.
    `sizes` weighs tasks by their bytes. Without `room` the nodes of `before` take all.
    """
    sizes = [1.0] * tasks if sizes is None else list(sizes)
    if len(sizes) != tasks or not all(math.isfinite(s) and s >= 0 for s in sizes):
        raise KnobError(f"{len(sizes)} sizes", expected=f"{tasks} finite sizes >= 0", fix="one for each task")
    old = groups(tasks, len(before))
    home = {t: node for g, node in zip(old, before, strict=True) for t in g}
    left = dict(room) if room is not None else dict.fromkeys(before, math.inf)
    there, new = Counter(busy or {}), groups(tasks, executors)
    kept: dict[range, str] = {}
    for g, node in zip(old, before, strict=True):
        if g in new and left.get(node, 0) >= 1:
            kept[g] = node
            left[node], there[node] = left[node] - 1, there[node] + 1
    nodes: list[str] = []
    moved, weight = 0, 0.0
    for g in new:
        if g in kept:
            node = kept[g]
        else:
            here = dict.fromkeys(left, 0.0)
            for t in g:
                here[home[t]] = here.get(home[t], 0.0) + sizes[t]
            free = [n for n, slots in left.items() if slots >= 1]
            if not free:
                raise KnobError(f"no room for executor {len(nodes)}", expected="a free slot", fix="more nodes or slots")
            node = min(free, key=lambda n: (-here[n], -there[n], n))
            left[node], there[node] = left[node] - 1, there[node] + 1
        nodes.append(node)
        away = [t for t in g if home[t] != node]
        moved, weight = moved + len(away), weight + sum(sizes[t] for t in away)
    return Relocation(tuple(nodes), moved, weight)


def executor_traffic(
    topology: Topology, parallelism: Mapping[str, int], rates: Mapping[tuple[str, str], float]
) -> dict[tuple[tuple[str, int], tuple[str, int]], float]:
    """Records/s between each two executors, each stream spread evenly."""
    flow: dict[tuple[tuple[str, int], tuple[str, int]], float] = {}
    for (u, v), rate in rates.items():
        each = rate / (parallelism[u] * parallelism[v])
        flow |= {((u, i), (v, j)): each for i in range(parallelism[u]) for j in range(parallelism[v])}
    return flow


def crossing(flow: Mapping[tuple[Any, Any], float], places: Mapping[Any, str]) -> float:
    """Records/s that go from node to node."""
    return sum(rate for (a, b), rate in flow.items() if places[a] != places[b])


def least_traffic(
    topology: Topology,
    parallelism: Mapping[str, int],
    rates: Mapping[tuple[str, str], float],
    nodes: Sequence[str],
    slots: int | None = None,
) -> dict[tuple[str, int], str]:
    """T-Storm's rule: executors by falling traffic, each to the node that adds least traffic between nodes.

    A node takes `slots` executors, by default an even share, rounded up. Ties go to the fullest node, then the first.
    """
    flow = executor_traffic(topology, parallelism, rates)
    executors = [(name, i) for name in topology.order for i in range(parallelism[name])]
    most = slots or math.ceil(len(executors) / len(nodes))
    total, peers = dict.fromkeys(executors, 0.0), {e: list[tuple[Any, float]]() for e in executors}
    for (a, b), rate in flow.items():
        total[a] += rate
        total[b] += rate
        peers[a].append((b, rate))
        peers[b].append((a, rate))
    places: dict[tuple[str, int], str] = {}
    filled = Counter[str]()
    for e in sorted(executors, key=lambda e: (-total[e], topology.order.index(e[0]), e[1])):
        added = {n: sum(rate for peer, rate in peers[e] if places.get(peer, n) != n) for n in nodes if filled[n] < most}
        if not added:
            raise KnobError(
                f"{most} slots on {len(nodes)} nodes", expected=f"{len(executors)} places", fix="more slots"
            )
        places[e] = min(added, key=lambda n: (added[n], -filled[n], nodes.index(n)))
        filled[places[e]] += 1
    return places
