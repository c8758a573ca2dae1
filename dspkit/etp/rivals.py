"""The strategies that Stela was compared with: which instances move on scale-out, and after a removal [stela].

None of them adds an instance; they move existing ones.

| strategy | instances that move to the new machines |
|---|---|
| rebalance | those of all operators, which are assigned again round robin, Storm's default |
| least link load, most link load | of operators with the least or most traffic, neighbours of moved ones first |
| nearest to source, nearest to sink | by the number of edges to the nearest source or sink |
| descendants | of operators with most descendants |
| centrality | of operators with most edges in and out |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..core import DeploymentError, NotFoundError, assign_in_turn
from ..core.validation import choice
from .graph import Graph, as_graph, count_of, counted, placed_in, rates_fit, require_nonempty
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
    """Return Storm's default placement: all instances over all machines in turn, operator by operator.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    instances : mapping
        Number of instances by operator.
    machines : sequence
        The machines.

    Examples
    --------
    >>> rebalance([("a", "b")], {"a": 1, "b": 2}, ["m1", "m2"])
    {('a', 0): 'm1', ('b', 0): 'm2', ('b', 1): 'm1'}
    """
    require_nonempty(machines, "instances")
    every = [(o, i) for o, k in counted(as_graph(topology), instances).items() for i in range(k)]
    return assign_in_turn(every, machines)


def migrate(
    topology: Any, measured: Any, placement: Places, machines: Sequence[Any], count: int, order: str = ORDERS[0]
) -> dict[tuple[Any, int], Any]:
    """Return the placement after `count` instances of the first operators in `order` moved to the new machines in turn.

    By link load, the next operator is the least (or most) loaded one of those adjacent to an operator already moved.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`; used by the link loads.
    placement : mapping
        Machine by (operator, index).
    machines : sequence
        The new machines.
    count : int
        Number of instances to move.
    order : str
        One of ORDERS.

    Examples
    --------
    >>> migrate([("a", "b")], {}, {("a", 0): "m1", ("b", 0): "m1"}, ["m2"], 1, "nearest to sink")
    {('a', 0): 'm1', ('b', 0): 'm2'}
    """
    choice(order, "order", ORDERS)
    if count_of(count, "instances to move"):
        require_nonempty(machines, f"{count} instances")
    g = as_graph(topology)
    placed_in(g, placement)
    left = {o: sorted(i for name, i in placement if name == o) for o in g.order}
    chosen = _linked(g, rates(measured), left, order) if order.endswith("link load") else _ranked(g, left, order)
    moved = list(chosen)[:count]
    return {**placement, **{instance: machines[j % len(machines)] for j, instance in enumerate(moved)}}


def link_load(topology: Any, measured: Any) -> dict[Any, float]:
    """Return the records/s in and out of each operator.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`.

    Examples
    --------
    >>> link_load([("a", "b")], Rates({"a": 9, "b": 9}, {("a", "b"): 9}))
    {'a': 9.0, 'b': 9.0}
    """
    known, g = rates(measured), as_graph(topology)
    rates_fit(g, *known)
    arriving = inputs(known)
    load = {o: arriving.get(o, 0.0) for o in g.order}
    for (o, _), rate in known.emit.items():
        load[o] += rate
    return load


def structural_score(topology: Any, order: str) -> dict[Any, float]:
    """Return the sort key of a structural order, by operator; the smallest comes first.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    order : str
        One of ORDERS, except for the link loads.

    Examples
    --------
    >>> structural_score([("a", "b")], "nearest to sink")
    {'b': 0.0, 'a': 1.0}
    """
    g = as_graph(topology)
    parents = g.parents
    if order == "nearest to source":
        return _distance(g.sources, g.children)
    if order == "nearest to sink":
        return _distance(g.sinks, parents)
    if order == "centrality":
        return {o: -float(len(g.children[o]) + len(parents[o])) for o in g.order}
    choice(order, "order", ORDERS[2:])
    below: dict[Any, set[Any]] = {}
    for o in reversed(g.order):
        below[o] = set(g.children[o]).union(*(below[c] for c in g.children[o]))
    return {o: -float(len(x)) for o, x in below.items()}


def place_without(
    topology: Any, placement: Places, leaving: Iterable[Any], machines: Sequence[Any], *, deal: str = "all"
) -> dict[tuple[Any, int], Any]:
    """Return the placement after machines were removed.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    placement : mapping
        Machine by (operator, index).
    leaving : iterable
        The machines to remove.
    machines : sequence
        All machines.
    deal : {"all", "moved"}
        Whether all instances are assigned again, or only those of removed machines.

    Examples
    --------
    >>> place_without([("a", "b")], {("a", 0): "m1", ("b", 0): "m2"}, ["m2"], ["m1", "m2"], deal="moved")
    {('a', 0): 'm1', ('b', 0): 'm1'}
    """
    gone, g = set(leaving), as_graph(topology)
    placed_in(g, placement)
    choice(deal, "deal", ("all", "moved"))
    if strange := gone - set(machines):
        raise NotFoundError(
            f"machines {sorted(map(str, strange))}",
            expected=f"some of {', '.join(map(str, machines))}",
            fix="check the names",
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
    scores = structural_score(g, order)
    return ((o, i) for o in sorted(g.order, key=scores.__getitem__) for i in left[o])


def _linked(g: Graph, known: Rates, left: dict[Any, list[int]], order: str) -> Iterable[tuple[Any, int]]:
    load, parents = link_load(g, known), g.parents
    best: Callable[..., Any] = min if order.startswith("least") else max
    near: set[Any] = set()
    while open := [o for o in g.order if left[o]]:
        o = best([o for o in open if o in near] or open, key=load.__getitem__)
        yield o, left[o].pop(0)
        near |= {o, *g.children[o], *parents[o]}
