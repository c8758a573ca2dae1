"""Explanation of an operator's ETP: the sinks that it reaches unhindered, and the congested operators on its way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from ..core import NotFoundError
from .graph import Graph, as_graph
from .rates import congested, inputs, rates
from .share import etp


@dataclass(frozen=True)
class Why:
    """One operator's ETP with its reasons.

    Parameters
    ----------
    operator : hashable
        The operator.
    etp : float
        Its ETP, 0 to 1.
    congested : bool
        Whether it is congested itself.
    input_rate, processing_rate : float
        Records/s; the latter is None if it was not measured.
    sinks : tuple
        The sinks that it reaches unhindered.
    ways : tuple of tuple
        A path to each of `sinks`, over uncongested operators.
    blocked : tuple of tuple
        (sink, shortest path, first congested operator on it) for each sink that it does not reach unhindered.

    Examples
    --------
    >>> isinstance(explain([("a", "b")], {"a": (9, 9), "b": (9, 9)}, "a"), Why)
    True
    """

    operator: Any
    etp: float
    congested: bool
    input_rate: float
    processing_rate: float | None
    sinks: tuple[Any, ...]
    ways: tuple[tuple[Any, ...], ...]
    blocked: tuple[tuple[Any, tuple[Any, ...], Any], ...]

    def lines(self) -> list[str]:
        """Return the reasons as sentences.

        Examples
        --------
        >>> explain([("a", "b")], {"a": (9, 9), "b": (9, 9)}, "a").lines()
        ['a processes 9 of 9 records/s: not congested.', 'ETP 100.0%: its output reaches b unhindered.']
        """
        done = self.processing_rate
        state = "congested" if self.congested else "not congested"
        rate = "was not measured" if done is None else f"processes {_rate(done)} of {_rate(self.input_rate)} records/s"
        said = [f"{self.operator} {rate}: {state}."]
        if self.sinks:
            said.append(f"ETP {self.etp:.1%}: its output reaches {', '.join(map(str, self.sinks))} unhindered.")
        else:
            said.append(f"ETP {self.etp:.1%}: it reaches no sink unhindered.")
        for sink, way, by in self.blocked:
            said.append(f"{sink} is not reached: {by} is congested on {' → '.join(map(str, way))}.")
        return said

    def __str__(self) -> str:
        return "\n".join(self.lines())


def explain(topology: Any, measured: Any, operator: Any, congestion_rate: float = 1.2) -> Why:
    """Return the ETP of one operator with its reasons, from two walks down the graph: O(V+E).

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`.
    operator : hashable
        The operator.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.

    Examples
    --------
    >>> print(explain([("a", "b"), ("a", "c")], {"a": (9, 9), "b": (30, 30), "c": (40, 20)}, "a"))
    a processes 9 of 9 records/s: not congested.
    ETP 60.0%: its output reaches b unhindered.
    c is not reached: c is congested on a → c.
    """
    known, g = rates(measured), as_graph(topology)
    if operator not in g.children:
        shown = ", ".join(map(repr, g.order[:20]))
        raise NotFoundError(f"operator {operator!r}", expected=f"one of {shown}", fix="choose one")
    stuck = set(congested(g, known, congestion_rate))
    free, every = _walk(g, operator, stuck), _walk(g, operator, set())
    sinks = tuple(s for s in g.sinks if s in free)
    lost = [s for s in g.sinks if s in every and s not in free]
    ways = {s: _way(every, s) for s in lost}
    return Why(
        operator=operator,
        etp=etp(g, known, congestion_rate)[operator],
        congested=operator in stuck,
        input_rate=inputs(known).get(operator, 0.0),
        processing_rate=known.processing.get(operator),
        sinks=sinks,
        ways=tuple(_way(free, s) for s in sinks),
        blocked=tuple((s, ways[s], next(o for o in ways[s][1:] if o in stuck)) for s in lost),
    )


def _walk(g: Graph, start: Any, without: set[Any]) -> dict[Any, Any]:
    """Return the operators reached breadth first from `start`, each with its predecessor."""
    previous = {start: None}
    queue = deque([start])
    while queue:
        o = queue.popleft()
        for c in g.children[o]:
            if c not in previous and c not in without:
                previous[c] = o
                queue.append(c)
    return previous


def _way(previous: dict[Any, Any], end: Any) -> tuple[Any, ...]:
    way = [end]
    while previous[way[-1]] is not None:
        way.append(previous[way[-1]])
    return tuple(reversed(way))


def _rate(value: float) -> str:
    """
    >>> _rate(29990.4), _rate(9.126)
    ('29,990', '9.126')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
