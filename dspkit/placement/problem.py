"""What is placed, and where: an application's operators and streams, a network's nodes and links [nardelli].

| here | thesis |
|---|---|
| `demand`, `time_s`, `rate_per_s` | C_i, R_i, lambda_(i,j) |
| `capacity`, `speed`, `availability` | C_u, S_u, A_u |
| `delay_s`, `link_availability`, `bandwidth_per_s` | d_(u,v), A_(u,v), B_(u,v) |
| `candidates` | V_res^i |

Within a node all is perfect: no delay, always available, endless bandwidth. Two nodes without a link are infinitely far
apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import PlacementError
from ..frozen import FrozenMap
from .arrays import names, square, vector

Array = np.ndarray[Any, Any]
Placement = Array  # the node's index of each operator, both counted in the order of their names


@dataclass(frozen=True, eq=False)
class Application:
    """Operators with what they need, and the streams between them: a graph without a cycle.

    Numbers are one for all, one each in order, or a mapping by name (streams: by their two ends).

    >>> app = Application(("read", "count", "write"), (("read", "count"), ("count", "write")), rate_per_s=(100, 90))
    >>> app.sources, app.paths()
    ((0,), ((0, 1, 2),))
    """

    operators: tuple[str, ...]
    streams: tuple[tuple[str, str], ...] = ()
    demand: Any = 1.0
    time_s: Any = 0.0
    rate_per_s: Any = 1.0

    def __post_init__(self) -> None:
        operators = names(self.operators, "operator")
        at = {o: i for i, o in enumerate(operators)}
        streams = []
        if isinstance(self.streams, str) or not isinstance(self.streams, Iterable):
            raise PlacementError(f"streams {self.streams!r}"[:100], expected="pairs of operators", fix="pass a tuple")
        for stream in self.streams:
            pair = isinstance(stream, (tuple, list)) and len(stream) == 2
            if not pair or any(not isinstance(end, str) or end not in at for end in stream):
                raise PlacementError(
                    f"stream {stream!r}", expected=f"two of the operators {operators[:6]}", fix="correct its ends"
                )
            streams.append((stream[0], stream[1]))
        if twice := [s for s in streams if streams.count(s) > 1]:
            raise PlacementError(f"stream {twice[0]} twice", expected="each once", fix="add up their rates")
        values = {
            "operators": operators,
            "streams": tuple(streams),
            "demand": vector(self.demand, operators, "demand", low=0.0),
            "time_s": vector(self.time_s, operators, "time_s", low=0.0),
            "rate_per_s": vector(self.rate_per_s, tuple(streams), "rate_per_s", low=0.0),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _ = self.order  # a cycle is found now

    @cached_property
    def index(self) -> dict[str, int]:
        return {o: i for i, o in enumerate(self.operators)}

    @cached_property
    def ends(self) -> Array:
        """Indices of the two operators of each stream, one row a stream."""
        rows = [(self.index[a], self.index[b]) for a, b in self.streams]
        return np.array(rows, np.int64).reshape(-1, 2)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of operators, breadth first: each after all that feed it, ties by index."""
        waits = [0] * len(self.operators)
        for _, end in self.ends.tolist():
            waits[end] += 1
        order = [i for i, n in enumerate(waits) if not n]
        for i in order:  # it grows while we walk
            for j in self.downstream[i]:
                waits[j] -= 1
                if not waits[j]:
                    order.append(j)
        if len(order) < len(waits):
            left = [self.operators[i] for i, n in enumerate(waits) if n][:5]
            raise PlacementError(f"a cycle near {left}", expected="no cycle", fix="remove a stream of it")
        return tuple(order)

    @cached_property
    def downstream(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.operators]
        for a, b in self.ends.tolist():
            found[a].append(b)
        return tuple(tuple(sorted(f)) for f in found)

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.operators]
        for a, b in self.ends.tolist():
            found[b].append(a)
        return tuple(tuple(sorted(f)) for f in found)

    @property
    def sources(self) -> tuple[int, ...]:
        return tuple(i for i, up in enumerate(self.upstream) if not up)

    @property
    def sinks(self) -> tuple[int, ...]:
        return tuple(i for i, down in enumerate(self.downstream) if not down)

    @cached_property
    def path_count(self) -> int:
        """Paths from a source to a sink; they may be exponentially many."""
        ways = [1] * len(self.operators)
        for i in self.order:
            if self.upstream[i]:
                ways[i] = sum(ways[j] for j in self.upstream[i])
        return sum(ways[i] for i in self.sinks)

    def paths(self, most: int = 10_000) -> tuple[tuple[int, ...], ...]:
        """All ways from a source to a sink, as indices of operators."""
        if self.path_count > most:
            raise PlacementError(f"{self.path_count} paths", expected=f"at most {most}", fix="do not list them")
        found: list[tuple[int, ...]] = []
        open_ways: list[tuple[int, ...]] = [(i,) for i in reversed(self.sources)]
        while open_ways:
            way = open_ways.pop()
            onward = self.downstream[way[-1]]
            open_ways += [(*way, j) for j in reversed(onward)]
            found += [] if onward else [way]
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes with what they offer, and the logical link of each ordered pair of nodes.

    Matrices have a row for each sending node. `inf` in `delay_s` says that there is no link.
    """

    nodes: tuple[str, ...]
    delay_s: Any
    capacity: Any = 1.0
    speed: Any = 1.0
    availability: Any = 1.0
    link_availability: Any = 1.0
    bandwidth_per_s: Any = math.inf

    def __post_init__(self) -> None:
        nodes = names(self.nodes, "node")
        size = len(nodes)
        values = {
            "nodes": nodes,
            "capacity": vector(self.capacity, nodes, "capacity", low=0.0),
            "speed": vector(self.speed, nodes, "speed", low=0.0, open_low=True),
            "availability": vector(self.availability, nodes, "availability", low=0.0, high=1.0, open_low=True),
            "delay_s": square(self.delay_s, size, "delay_s", loop=0.0, low=0.0, high=math.inf),
            "link_availability": square(
                self.link_availability, size, "link_availability", loop=1.0, low=0.0, high=1.0, open_low=True
            ),
            "bandwidth_per_s": square(
                self.bandwidth_per_s, size, "bandwidth_per_s", loop=math.inf, low=0.0, high=math.inf
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def index(self) -> dict[str, int]:
        return {n: i for i, n in enumerate(self.nodes)}


@dataclass(frozen=True, eq=False)
class Problem:
    """An application to be placed on a network; `candidates` says where operators may run, a single node pins one.

    >>> from dspkit import placement
    >>> problem = placement.example("A")
    >>> problem.place({"s": "0", "m": "1", "t": "2"}), problem.named((0, 1, 2))
    (array([0, 1, 2]), {'s': '0', 'm': '1', 't': '2'})
    """

    application: Application
    network: Network
    candidates: Mapping[str, str | Sequence[str]] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        for value, kind in ((self.application, Application), (self.network, Network)):
            if not isinstance(value, kind):
                raise PlacementError(
                    repr(value)[:80], expected=f"an {kind.__name__}", fix="see dspkit.placement.problem"
                )
        known, kept = set(self.network.nodes), {}
        if not isinstance(self.candidates, Mapping):
            raise PlacementError(
                f"candidates {self.candidates!r}"[:100], expected="nodes by operator", fix="pass a mapping"
            )
        for operator, nodes in self.candidates.items():
            chosen = (nodes,) if isinstance(nodes, str) or not isinstance(nodes, Iterable) else tuple(nodes)
            if operator not in self.application.index:
                raise PlacementError(f"candidates of {operator!r}", expected="an operator", fix="correct the name")
            if not chosen or (unknown := [n for n in chosen if n not in known]):
                raise PlacementError(
                    f"candidates {chosen!r} of {operator!r}",
                    expected="at least one node, all of this network",
                    fix=f"correct {unknown[0]!r}" if chosen else "leave the operator out, or name a node",
                )
            kept[operator] = tuple(dict.fromkeys(chosen))
        object.__setattr__(self, "candidates", FrozenMap(kept))

    @cached_property
    def allowed(self) -> Array:
        """Which operator (row) may run on which node (column)."""
        made = np.ones((len(self.application.operators), len(self.network.nodes)), bool)
        for operator, nodes in self.candidates.items():
            made[self.application.index[operator]] = False
            made[self.application.index[operator], [self.network.index[n] for n in nodes]] = True
        made.setflags(write=False)
        return made

    @cached_property
    def pinned(self) -> dict[int, int]:
        """Operators with one candidate only, by index, and its index."""
        single = np.flatnonzero(self.allowed.sum(axis=1) == 1)
        return {int(i): int(self.allowed[i].argmax()) for i in single}

    @cached_property
    def times_s(self) -> Array:
        """R_i / S_u: seconds that an operator (row) takes on a node (column)."""
        made: Array = self.application.time_s[:, None] / self.network.speed[None, :]
        return made

    def place(self, placement: Any) -> Placement:
        """A placement as indices, from {operator: node} or from indices in order; an error if it is neither."""
        operators, nodes = self.application.operators, self.network.nodes
        if isinstance(placement, Mapping):
            wrong = [o for o in {**dict.fromkeys(operators), **placement} if o not in placement or o not in operators]
            wrong += [o for o in operators if o in placement and placement[o] not in self.network.index]
            if wrong:
                came = f"{wrong[0]!r} on {placement.get(wrong[0])!r}"
                raise PlacementError(came, expected="a node of the network for each operator", fix="correct the name")
            return np.array([self.network.index[placement[o]] for o in operators], np.int64)
        try:
            made = np.asarray(placement)
            with np.errstate(invalid="ignore"):
                whole = made.astype(np.int64)
            fits = made.shape == (len(operators),) and (whole == made).all()
            fits = fits and made.dtype != bool and whole.min() >= 0 and whole.max() < len(nodes)
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            raise PlacementError(
                f"placement {placement!r}"[:120],
                expected=f"{len(operators)} indices of nodes from 0 to {len(nodes) - 1}, or operator: node",
                fix="give each operator one node",
            )
        return whole

    def named(self, placement: Any) -> dict[str, str]:
        """A placement as {operator: node}."""
        where = self.place(placement)
        return {o: self.network.nodes[u] for o, u in zip(self.application.operators, where, strict=True)}
