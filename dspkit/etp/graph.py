"""A graph of operators, from whatever a user has at hand: a Topology, edges, a mapping of children, a data frame."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import TopologyError
from ..structure import Topology

Name = Hashable
Link = tuple[Any, Any]


class Graph(NamedTuple):
    """Operators in topological order, and what each feeds."""

    order: tuple[Any, ...]
    children: Mapping[Any, tuple[Any, ...]]

    @property
    def sinks(self) -> tuple[Any, ...]:
        return tuple(o for o in self.order if not self.children[o])

    @property
    def sources(self) -> tuple[Any, ...]:
        fed = {c for children in self.children.values() for c in children}
        return tuple(o for o in self.order if o not in fed)

    @property
    def parents(self) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = {o: [] for o in self.order}
        for o in self.order:
            for c in self.children[o]:
                found[c].append(o)
        return found


def graph(topology: Any) -> Graph:
    """The graph of a Topology, of (start, end) pairs, of {operator: children}, or of a frame with `start` and `end`.

    Names are anything hashable. Plain edges may number hundreds of thousands: one pass over operators and edges.

    >>> graph([(1, 2), (1, 3), (2, 4)]).order, graph({"a": ["b"]}).sinks
    ((1, 2, 3, 4), ('b',))
    """
    if isinstance(topology, Graph):
        return topology
    if isinstance(topology, Topology):
        return Graph(topology.order, {o: topology.downstream(o) for o in topology.order})
    children: dict[Any, dict[Any, None]] = {}
    try:
        for start, end in _pairs(topology):
            children.setdefault(start, {})
            if end is not None:
                children[start][end] = None
                children.setdefault(end, {})
    except TypeError:
        raise TopologyError(
            repr(topology)[:80], expected="names that can be keys", fix="use words or numbers as names"
        ) from None
    if not children:
        raise TopologyError("no operator", expected="at least one", fix="pass edges such as [('a', 'b')]")
    return Graph(_sorted(children), {o: tuple(c) for o, c in children.items()})


def _pairs(topology: Any) -> Iterable[tuple[Any, Any]]:
    if hasattr(topology, "columns"):
        if missing := {"start", "end"} - set(topology.columns):
            raise TopologyError(
                f"a frame without {sorted(missing)}", expected="columns start and end", fix="rename the columns"
            )
        return list(dict.fromkeys(zip(topology["start"], topology["end"], strict=True)))
    if isinstance(topology, Mapping):
        return [(o, c) for o, children in topology.items() for c in (children or (None,))]
    try:
        pairs = [(start, end) for start, end in topology]
    except (TypeError, ValueError):
        raise TopologyError(
            repr(topology)[:80], expected="a Topology, (start, end) pairs, or {operator: children}", fix="pass edges"
        ) from None
    return pairs


def _sorted(children: Mapping[Any, Iterable[Any]]) -> tuple[Any, ...]:
    """Operators level by level, each after all that feed it, otherwise in the order in which they were named."""
    waits = dict.fromkeys(children, 0)
    for kids in children.values():
        for c in kids:
            waits[c] += 1
    order = [o for o, n in waits.items() if not n]
    for o in order:  # it grows while we walk
        for c in children[o]:
            waits[c] -= 1
            if not waits[c]:
                order.append(c)
    if len(order) < len(children):
        left = [o for o, n in waits.items() if n][:5]
        raise TopologyError(f"a cycle near {left}", expected="no cycle", fix="remove an edge of it")
    return tuple(order)
