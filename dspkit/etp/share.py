"""The effective throughput percentage: the share of throughput that an operator reaches unhindered, and why [stela].

$ETP_o = \\sum_{s \\in Eff(o)} proc(s) / \\sum_{s \\in Sinks} proc(s)$

| paper | here |
|---|---|
| $Eff(o)$, effective reachable sinks | sinks that o reaches over operators of which none after o is congested |
| $ETP_o$ | `etp(...)[o]`, a share 0..1 |
| $proc(s)$ | processing rate of sink s |

The congestion of o itself is irrelevant: the question is how much throughput a faster o would add. A reading not taken
by default is `tree_sum`: the printed Algorithm 1, which counts a sink once per path. `explain` names the sinks that an
operator reaches unhindered, and the congested operators on its way to the others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import MetricError, NotFoundError
from .graph import Graph, as_graph
from .rates import Rates, congested, inputs, rates

if TYPE_CHECKING:
    import pandas as pd


_CELLS = 4_000_000  # size of a table of operators by sinks that is summed at once
_NAMED = 3  # number of operators that a reason names


def etp(topology: Any, measured: Any, congestion_rate: float = 1.2, *, tree_sum: bool = False) -> dict[Any, float]:
    """Return the share of throughput that each operator reaches, from one pass over operators and edges, sinks first.

    Sets of sinks are bit sets, so that the pass costs $(V+E)\\,S/64$ steps for S sinks. All shares are 0 if the sinks
    process nothing.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.
    tree_sum : bool
        Whether a sink counts once per path.

    Examples
    --------
    >>> {o: round(x, 2) for o, x in etp([("a", "b"), ("a", "c")], {"a": (9, 9), "b": (30, 30), "c": (40, 20)}).items()}
    {'a': 0.6, 'b': 0.6, 'c': 0.4}
    """
    known, g = rates(measured), as_graph(topology)
    stuck = set(congested(g, known, congestion_rate))
    return _tree(g, known, stuck) if tree_sum else _sets(g, known, stuck)


def rank(topology: Any, measured: Any, congestion_rate: float = 1.2, *, tree_sum: bool = False) -> pd.DataFrame:
    """Return all operators, congested ones first, then by ETP, then in topological order; each with its reason.

    The reason names the first congested operators on the operator's paths to sinks.

    Parameters
    ----------
    topology, measured, congestion_rate, tree_sum
        As for `etp`.

    Examples
    --------
    >>> rank([("a", "b")], {"a": (9, 9), "b": (30, 20)}).operator.tolist()
    ['b', 'a']
    """
    import pandas as pd

    known, g = rates(measured), as_graph(topology)
    stuck = set(congested(g, known, congestion_rate))
    shares = _tree(g, known, stuck) if tree_sum else _sets(g, known, stuck)
    arriving, reached = inputs(known), _masks(g, stuck)
    at = {o: i for i, o in enumerate(g.order)}
    walls, every_sink = _walls(g, stuck, at), g.sinks
    rows = []
    for o in sorted(g.order, key=lambda o: (o not in stuck, -shares[o])):  # sorted() keeps the order of equals
        blockers = _bits(walls[o], g.order)
        sinks = _bits(reached[o], every_sink)
        done = known.processing.get(o)
        reason = (
            f"reaches {_names(sinks, reached[o].bit_count())} unhindered" if sinks else "reaches no sink unhindered"
        )
        reason += f"; blocked by {_names(blockers, walls[o].bit_count())}" if blockers else ""
        reason += "" if done is not None else "; not measured"
        rows.append((o, shares[o], o in stuck, arriving.get(o, 0.0), done, reached[o].bit_count(), reason))
    columns = ["operator", "etp", "congested", "input_rate", "processing_rate", "effective_sinks", "reason"]
    return pd.DataFrame(rows, columns=columns)


def machine_etp(placement: Mapping[tuple[Any, int], Any], shares: Mapping[Any, float]) -> dict[Any, float]:
    """$ETPSum(m) = \\sum_{\\tau\\ on\\ m} ETP_{op(\\tau)}$: two instances of an operator count twice.

    Parameters
    ----------
    placement : mapping
        Machine by (operator, index).
    shares : mapping
        ETP by operator.

    Examples
    --------
    >>> machine_etp({("a", 0): "m1", ("a", 1): "m1", ("b", 0): "m2"}, {"a": 0.25, "b": 1.0})
    {'m1': 0.5, 'm2': 1.0}
    """
    sums: dict[Any, float] = {}
    for (o, _), machine in placement.items():
        if not shares.get(o, math.nan) >= 0:
            raise MetricError(f"ETP {shares.get(o)!r} of {o!r}", expected="a share for each operator", fix="see etp")
        sums[machine] = sums.get(machine, 0.0) + shares[o]
    return sums


def _tree(g: Graph, known: Rates, stuck: set[Any]) -> dict[Any, float]:
    """Return the shares of Algorithm 1 as printed: a sink's share, or the sum over uncongested children."""
    total = sum(known.processing.get(s, 0.0) for s in g.sinks)
    found: dict[Any, float] = {}
    for o in reversed(g.order):
        children = g.children[o]
        if children:
            found[o] = sum(found[c] for c in children if c not in stuck)
        else:
            found[o] = known.processing.get(o, 0.0) / total if total > 0 else 0.0
    return {o: found[o] for o in g.order}


def _sets(g: Graph, known: Rates, stuck: set[Any]) -> dict[Any, float]:
    """Return the shares from each operator's set of effective sinks; each distinct set is summed once."""
    import numpy as np

    masks = _masks(g, stuck)
    weights = np.array([known.processing.get(s, 0.0) for s in g.sinks])
    total = float(weights.sum())
    if total <= 0:
        return dict.fromkeys(g.order, 0.0)
    # The same order of additions for each set, over all sinks: a larger set never has a smaller sum.
    distinct = [m for m in dict.fromkeys(masks.values()) if m.bit_count() > 1]
    known_sums = {m: float(weights[m.bit_length() - 1]) for m in masks.values() if m.bit_count() == 1} | {0: 0.0}
    size = -(-len(weights) // 8)
    for first in range(0, len(distinct), rows := max(1, _CELLS // len(weights))):
        part = distinct[first : first + rows]
        packed = np.frombuffer(b"".join(m.to_bytes(size, "little") for m in part), np.uint8).reshape(len(part), size)
        there = np.unpackbits(packed, axis=1, count=len(weights), bitorder="little")
        known_sums |= zip(part, (there * weights).sum(axis=1).tolist(), strict=True)
    return {o: known_sums[masks[o]] / total for o in g.order}


def _masks(g: Graph, stuck: set[Any]) -> dict[Any, int]:
    """Return bit sets: bit i is set if the operator reaches sink i over uncongested operators."""
    masks: dict[Any, int] = {s: 1 << i for i, s in enumerate(g.sinks)}
    for o in reversed(g.order):
        if g.children[o]:
            mask = 0
            for c in g.children[o]:
                if c not in stuck:
                    mask |= masks[c]
            masks[o] = mask
    return masks


def _walls(g: Graph, stuck: set[Any], at: Mapping[Any, int]) -> dict[Any, int]:
    """Return bit sets: bit i is set if operator i is the first congested one on a path down."""
    walls: dict[Any, int] = {}
    for o in reversed(g.order):
        mask = 0
        for c in g.children[o]:
            mask |= 1 << at[c] if c in stuck else walls[c]
        walls[o] = mask
    return walls


def _bits(mask: int, names: Sequence[Any]) -> list[Any]:
    """Return the first few names whose bits are set."""
    found: list[Any] = []
    while mask and len(found) < _NAMED:
        low = mask & -mask
        found.append(names[low.bit_length() - 1])
        mask ^= low
    return found


def _names(names: Iterable[Any], count: int) -> str:
    shown = list(map(str, names))
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


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
