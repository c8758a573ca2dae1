"""What Stela was compared with: who moves where on scale-out, and which machines go on scale-in [stela].

None of these makes an instance more; they move those that there are.

    | strategy | whose instances move to the new machines |
    |---|---|
    | rebalance | everybody's: all are dealt out again in turn, as Storm does by default |
    | least link load, most link load | those with the least or most traffic, neighbours of moved ones first |
    | nearest to source, nearest to sink | by the number of edges to the nearest source, or sink |
    | descendants | most operators below |
    | centrality | most edges in and out |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..errors import DeploymentError, KnobError, NotFoundError
from .checks import counted, placed_in, rates_fit, some, whole
from .graph import Graph, graph
from .rates import Rates, inputs, rates
from .scaling import Places

ORDERS = (
    "least link load",
    "most link load",
    "nearest to source",
    "nearest to sink",
    "descendants",
    "centrality",
)


def rebalance(topology: Any, instances: Mapping[Any, int], machines: Sequence[Any]) -> dict[tuple[Any, int], Any]:
    """Storm's default: forget all places, and deal all instances over all machines in turn, operator by operator.

    >>> rebalance([("a", "b")], {"a": 1, "b": 2}, ["m1", "m2"])
    {('a', 0): 'm1', ('b', 0): 'm2', ('b', 1): 'm1'}
    """
    some(machines, "instances")
    every = [(o, i) for o, k in counted(graph(topology), instances).items() for i in range(k)]
    return {instance: machines[j % len(machines)] for j, instance in enumerate(every)}


def migrate(
    topology: Any, measured: Any, placement: Places, machines: Sequence[Any], count: int, order: str = ORDERS[0]
) -> dict[tuple[Any, int], Any]:
    """Move `count` instances of the operators that come first in `order` to the new `machines`, in turn.

    By link load the next one is, among operators adjacent to one already moved, the least (or most) loaded.
    """
    if order not in ORDERS:
        raise KnobError(f"order {order!r}", expected=f"one of {', '.join(ORDERS)}", fix="see etp.ORDERS")
    if whole("instances to move", count):
        some(machines, f"{count} instances")
    g = graph(topology)
    placed_in(g, placement)
    left = {o: sorted(i for name, i in placement if name == o) for o in g.order}
    chosen = _linked(g, rates(measured), left, order) if order.endswith("link load") else _ranked(g, left, order)
    moved = list(chosen)[:count]
    return {**placement, **{instance: machines[j % len(machines)] for j, instance in enumerate(moved)}}


def link_load(topology: Any, measured: Any) -> dict[Any, float]:
    """Records/s that go in and out of each operator."""
    known, g = rates(measured), graph(topology)
    rates_fit(g, *known)
    came = inputs(known)
    load = {o: came.get(o, 0.0) for o in g.order}
    for (o, _), rate in known.emit.items():
        load[o] += rate
    return load


def score(topology: Any, order: str) -> dict[Any, float]:
    """What the orders by structure sort by; the least comes first."""
    g = graph(topology)
    parents = g.parents
    if order == "nearest to source":
        return _distance(g.sources, g.children)
    if order == "nearest to sink":
        return _distance(g.sinks, parents)
    if order == "centrality":
        return {o: -float(len(g.children[o]) + len(parents[o])) for o in g.order}
    if order != "descendants":
        raise KnobError(f"order {order!r}", expected=f"one of {', '.join(ORDERS[2:])}", fix="see etp.ORDERS")
    below: dict[Any, set[Any]] = {}
    for o in reversed(g.order):
        below[o] = set(g.children[o]).union(*(below[c] for c in g.children[o]))
    return {o: -float(len(x)) for o, x in below.items()}


def without(
    topology: Any, placement: Places, leaving: Iterable[Any], machines: Sequence[Any], *, deal: str = "all"
) -> dict[tuple[Any, int], Any]:
    """The placement after these machines left: everybody is dealt anew ("all"), or only who ran there ("moved")."""
    gone, g = set(leaving), graph(topology)
    placed_in(g, placement)
    if deal not in ("all", "moved"):
        raise KnobError(f"deal={deal!r}", expected="'all' or 'moved'", fix="see without")
    if strange := gone - set(machines):
        raise NotFoundError(
            f"machines {sorted(map(str, strange))}", expected="some of those there are", fix="check the names"
        )
    stay = [m for m in machines if m not in gone]
    if not stay:
        raise DeploymentError(f"all {len(machines)} machines to remove", expected="one that stays", fix="keep one")
    order = {o: i for i, o in enumerate(g.order)}
    every = sorted(placement, key=lambda i: (order[i[0]], i[1]))
    homeless = every if deal == "all" else [i for i in every if placement[i] in gone]
    return {**placement, **{instance: stay[j % len(stay)] for j, instance in enumerate(homeless)}}


def _distance(starts: Iterable[Any], onward: Mapping[Any, Iterable[Any]]) -> dict[Any, float]:
    far = dict.fromkeys(starts, 0.0)
    queue = deque(far)
    while queue:
        o = queue.popleft()
        for c in onward[o]:
            if c not in far:
                far[c] = far[o] + 1
                queue.append(c)
    return far


def _ranked(g: Graph, left: Mapping[Any, list[int]], order: str) -> Iterable[tuple[Any, int]]:
    scores = score(g, order)
    return ((o, i) for o in sorted(g.order, key=scores.__getitem__) for i in left[o])


def _linked(g: Graph, known: Rates, left: dict[Any, list[int]], order: str) -> Iterable[tuple[Any, int]]:
    load, parents = link_load(g, known), g.parents
    best: Callable[..., Any] = min if order.startswith("least") else max
    near: set[Any] = set()
    while open := [o for o in g.order if left[o]]:
        o = best([o for o in open if o in near] or open, key=load.__getitem__)
        yield o, left[o].pop(0)
        near |= {o, *g.children[o], *parents[o]}
