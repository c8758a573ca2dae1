"""A graph of operators from a Topology, edges, a mapping of children or a data frame, and checks against it.

The checks reject operators that the graph does not contain, and values that are not finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core import DeploymentError, MetricError, Topology, TopologyError
from ..core.validation import whole

Name = Hashable
Link = tuple[Any, Any]


class Graph(NamedTuple):
    """Operators in topological order, with their children.

    Parameters
    ----------
    order : tuple
        The operators.
    children : mapping
        The operators that each one feeds.

    Examples
    --------
    >>> Graph(("a", "b"), {"a": ("b",), "b": ()}).sinks
    ('b',)
    """

    order: tuple[Any, ...]
    children: Mapping[Any, tuple[Any, ...]]

    @property
    def sinks(self) -> tuple[Any, ...]:
        """Operators without children."""
        return tuple(o for o in self.order if not self.children[o])

    @property
    def sources(self) -> tuple[Any, ...]:
        """Operators without parents."""
        fed = {c for children in self.children.values() for c in children}
        return tuple(o for o in self.order if o not in fed)

    @property
    def parents(self) -> dict[Any, list[Any]]:
        """The operators that feed each one."""
        found: dict[Any, list[Any]] = {o: [] for o in self.order}
        for o in self.order:
            for c in self.children[o]:
                found[c].append(o)
        return found


def as_graph(topology: Any) -> Graph:
    """Return the graph of a Topology, of (start, end) pairs, of {operator: children}, or of a frame of edges.

    Names are any hashable values. It takes one pass over operators and edges, of which there may be hundreds of
    thousands.

    Parameters
    ----------
    topology : Topology, Graph, edges, mapping or data frame
        The operators and their edges.

    Examples
    --------
    >>> as_graph([(1, 2), (1, 3), (2, 4)]).order, as_graph({"a": ["b"]}).sinks
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
            repr(topology)[:80], expected="hashable names", fix="use words or numbers as names"
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
    """Return operators level by level, each after all that feed it, otherwise in the order of their first mention."""
    waits = dict.fromkeys(children, 0)
    for kids in children.values():
        for c in kids:
            waits[c] += 1
    order = [o for o, n in waits.items() if not n]
    for o in order:  # the list grows during the loop
        for c in children[o]:
            waits[c] -= 1
            if not waits[c]:
                order.append(c)
    if len(order) < len(children):
        left = [o for o, n in waits.items() if n][:5]
        raise TopologyError(f"a cycle near {left}", expected="no cycle", fix="remove an edge of it")
    return tuple(order)


def rates_fit(
    g: Graph, processing: Mapping[Any, float], emit: Mapping[Any, float], outside: Mapping[Any, float]
) -> None:
    """Check that rates are of operators and edges of the graph, finite, and not negative."""
    strange = [repr(o) for o in dict.fromkeys((*processing, *outside)) if o not in g.children]
    strange += [repr(edge) for edge in emit if edge[1] not in g.children.get(edge[0], ())]
    if strange:
        raise MetricError(
            f"rates of {', '.join(strange[:3])}",
            expected=f"operators and edges of the graph: {_shown(g)}",
            fix="name those of the graph",
        )
    for column in (processing, emit, outside):
        if not all(0 <= x < math.inf for x in column.values()):
            of, value = next((o, x) for o, x in column.items() if not 0 <= x < math.inf)
            raise MetricError(
                f"rate {value!r} of {of!r}", expected="a finite number >= 0", fix="leave out what was not measured"
            )


def count_of(value: Any, what: str, low: int = 0) -> int:
    """Return a non-negative whole number, or raise a DeploymentError."""
    return whole(value, what, low, error=DeploymentError, fix="pass the number that run")


def counted(g: Graph, instances: Mapping[Any, int]) -> dict[Any, int]:
    """Return the number of instances of each operator, at least one."""
    if missing := [repr(o) for o in g.order if o not in instances]:
        raise DeploymentError(
            f"no number of instances of {', '.join(missing[:3])}", expected="one for each operator", fix="count all"
        )
    return {o: count_of(instances[o], f"instances of {o!r}", 1) for o in g.order}


def placed_in(g: Graph, placement: Iterable[tuple[Any, int]]) -> None:
    """Check that placed instances are of operators of the graph."""
    if strange := sorted({repr(o) for o, _ in placement if o not in g.children}):
        raise DeploymentError(
            f"instances of {', '.join(strange[:3])}",
            expected=f"operators of the graph: {_shown(g)}",
            fix="name those of the graph",
        )


def require_nonempty(machines: Sequence[Any], what: str) -> None:
    """Raise a DeploymentError without machines."""
    if not machines:
        raise DeploymentError(f"{what} on no machine", expected="at least one machine", fix="name it")


def _shown(g: Graph) -> str:
    return ", ".join(map(repr, g.order[:10])) + (", …" if len(g.order) > 10 else "")
