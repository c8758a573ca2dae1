"""Why an operator has the ETP that it has: which sinks it feeds unhindered, and who stands in the way to the others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from ..errors import NotFoundError
from .graph import Graph, graph
from .rates import congested, inputs, rates
from .share import etp


@dataclass(frozen=True)
class Why:
    """One operator's ETP with its reasons. `blocked` has the shortest way to each sink out of reach."""

    operator: Any
    etp: float
    congested: bool
    input_rate: float
    processing_rate: float | None
    sinks: tuple[Any, ...]
    ways: tuple[tuple[Any, ...], ...]  # to each of `sinks`, over uncongested operators
    blocked: tuple[tuple[Any, tuple[Any, ...], Any], ...]  # (sink, way, the first congested operator on it)

    def lines(self) -> list[str]:
        """The reasons as sentences."""
        done = self.processing_rate
        state = "congested" if self.congested else "not congested"
        rate = "was not measured" if done is None else f"processes {_rate(done)} of {_rate(self.input_rate)} records/s"
        said = [f"{self.operator} {rate}: {state}."]
        if self.sinks:
            said.append(f"ETP {self.etp:.1%}: what it puts out reaches {', '.join(map(str, self.sinks))} unhindered.")
        else:
            said.append(f"ETP {self.etp:.1%}: it reaches no sink unhindered.")
        for sink, way, by in self.blocked:
            said.append(f"{sink} is out of reach: {by} is congested on {' → '.join(map(str, way))}.")
        return said

    def __str__(self) -> str:
        return "\n".join(self.lines())


def explain(topology: Any, measured: Any, operator: Any, congestion_rate: float = 1.2) -> Why:
    """Two walks down from one operator, with and without congested operators: O(V+E).

    >>> print(explain([("a", "b"), ("a", "c")], {"a": (9, 9), "b": (30, 30), "c": (40, 20)}, "a"))
    a processes 9 of 9 records/s: not congested.
    ETP 60.0%: what it puts out reaches b unhindered.
    c is out of reach: c is congested on a → c.
    """
    known, g = rates(measured), graph(topology)
    if operator not in g.children:
        shown = ", ".join(map(repr, g.order[:20]))
        raise NotFoundError(f"operator {operator!r}", expected=f"one of {shown}", fix="check the name")
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
    """Breadth first from `start`: each operator that is reached, and from where."""
    came = {start: None}
    queue = deque([start])
    while queue:
        o = queue.popleft()
        for c in g.children[o]:
            if c not in came and c not in without:
                came[c] = o
                queue.append(c)
    return came


def _way(came: dict[Any, Any], end: Any) -> tuple[Any, ...]:
    way = [end]
    while came[way[-1]] is not None:
        way.append(came[way[-1]])
    return tuple(reversed(way))


def _rate(value: float) -> str:
    """
    >>> _rate(29990.4), _rate(9.126)
    ('29,990', '9.126')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
