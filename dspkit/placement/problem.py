"""Placement problems: an application's operators and streams, and a network's nodes and links [nardelli].

| here | thesis |
|---|---|
| `demand`, `time_s`, `rate_per_s` | C_i, R_i, lambda_(i,j) |
| `capacity`, `speed`, `availability` | C_u, S_u, A_u |
| `delay_s`, `link_availability`, `bandwidth_per_s` | d_(u,v), A_(u,v), B_(u,v) |
| `candidates` | V_res^i |

Within a node there is no delay, no failure and no limit of bandwidth. Two nodes without a link are infinitely far
apart. With a `Replication` operators may run as several replicas (`replication/problem.py`), with a `Downtime` a change
of the running deployment costs time (`replication/downtime.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core import FrozenMap, PlacementError
from ..core.typing import Array
from .arrays import names, square, vector
from .replication.downtime import Downtime, Running
from .replication.problem import Replicas, Replication

Placement = Array  # the node's index of each operator, both counted in the order of their names


@dataclass(frozen=True, eq=False)
class Application:
    """Operators with their demands, and the streams between them: an acyclic graph.

    Numbers are one for all, one each in order, or a mapping by name (streams: by their two ends).

    Parameters
    ----------
    operators
        Distinct names.
    streams
        Pairs of operators, the sender first.
    demand
        Resources that an instance of each operator takes of its node.
    time_s
        Seconds that each operator takes on a node of speed 1.
    rate_per_s
        Records/s of each stream.

    Examples
    --------
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
                    f"stream {stream!r}",
                    expected=f"two of the operators {operators[:6]}",
                    fix="name both ends as in operators",
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
        _ = self.order  # raises the error for a cycle

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each operator by name."""
        return {o: i for i, o in enumerate(self.operators)}

    @cached_property
    def ends(self) -> Array:
        """Indices of the two operators of each stream, one row per stream."""
        rows = [(self.index[a], self.index[b]) for a, b in self.streams]
        return np.array(rows, np.int64).reshape(-1, 2)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of operators, breadth first: each after all that feed it, ties by index."""
        waits = [0] * len(self.operators)
        for _, end in self.ends.tolist():
            waits[end] += 1
        order = [i for i, n in enumerate(waits) if not n]
        for i in order:  # the list grows during the loop
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
        """Indices of the operators that each operator feeds."""
        found: list[list[int]] = [[] for _ in self.operators]
        for a, b in self.ends.tolist():
            found[a].append(b)
        return tuple(tuple(sorted(f)) for f in found)

    @cached_property
    def upstream(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the operators that feed each operator."""
        found: list[list[int]] = [[] for _ in self.operators]
        for a, b in self.ends.tolist():
            found[b].append(a)
        return tuple(tuple(sorted(f)) for f in found)

    @property
    def sources(self) -> tuple[int, ...]:
        """Indices of the operators without inputs."""
        return tuple(i for i, up in enumerate(self.upstream) if not up)

    @property
    def sinks(self) -> tuple[int, ...]:
        """Indices of the operators without outputs."""
        return tuple(i for i, down in enumerate(self.downstream) if not down)

    @cached_property
    def path_count(self) -> int:
        """Number of paths from a source to a sink; it may be exponential."""
        ways = [1] * len(self.operators)
        for i in self.order:
            if self.upstream[i]:
                ways[i] = sum(ways[j] for j in self.upstream[i])
        return sum(ways[i] for i in self.sinks)

    def paths(self, most: int = 10_000) -> tuple[tuple[int, ...], ...]:
        """Return all paths from a source to a sink, as indices of operators.

        Parameters
        ----------
        most
            An error is raised if there are more paths.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("B").application.paths()
        ((0, 1, 3), (0, 2, 3))
        """
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
    """Nodes with their resources, and the logical link of each ordered pair of nodes.

    Numbers of nodes are one for all, one each in order, or a mapping by name.

    Parameters
    ----------
    nodes
        Distinct names.
    delay_s
        Seconds from node to node, one number or a row for each sending node; infinite where there is no link.
    capacity
        Resources that each node has for operators.
    speed
        Factor by which each node is faster than the node that `time_s` was measured on.
    availability
        Probability that each node is up.
    link_availability
        Probability that each link is up, one number or a row for each sending node.
    bandwidth_per_s
        Most records/s of each link.

    Examples
    --------
    >>> Network(("edge", "cloud"), 0.020, capacity=(1, 8)).delay_s.tolist()
    [[0.0, 0.02], [0.02, 0.0]]
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
        """Index of each node by name."""
        return {n: i for i, n in enumerate(self.nodes)}


@dataclass(frozen=True, eq=False)
class Problem:
    """An application to be placed on a network.

    Parameters
    ----------
    application
        The operators and streams to place.
    network
        The nodes and links to place them on.
    candidates
        Nodes that each operator may run on, by its name; a single node pins it. Other operators may run on any node.
    replication
        Replicas, their service rates and prices. Without, each operator runs once, and the availability counts every
        operator and stream (chapter 4). With it, even if no operator may run twice, the availability counts every used
        node and link once (chapter 6).
    downtime
        Downtime of a change of a running deployment; such a problem has replication.

    Examples
    --------
    >>> from dspkit import placement
    >>> problem = placement.example("A")
    >>> problem.place({"s": "0", "m": "1", "t": "2"}), problem.named((0, 1, 2))
    (array([0, 1, 2]), {'s': '0', 'm': '1', 't': '2'})
    """

    application: Application
    network: Network
    candidates: Mapping[str, str | Sequence[str]] = field(default_factory=FrozenMap)
    replication: Replication | None = None
    downtime: Downtime | None = None

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
                raise PlacementError(
                    f"candidates of {operator!r}",
                    expected="an operator",
                    fix="use the names of the application's operators",
                )
            if not chosen or (unknown := [n for n in chosen if n not in known]):
                raise PlacementError(
                    f"candidates {chosen!r} of {operator!r}",
                    expected="at least one node, all of this network",
                    fix=f"correct {unknown[0]!r}" if chosen else "leave the operator out, or name a node",
                )
            kept[operator] = tuple(dict.fromkeys(chosen))
        object.__setattr__(self, "candidates", FrozenMap(kept))
        for part, sort in ((self.replication, Replication), (self.downtime, Downtime)):
            if part is not None and not isinstance(part, sort):
                raise PlacementError(
                    f"{sort.__name__.lower()} {part!r}"[:100], expected=f"a {sort.__name__}", fix="make one, or None"
                )
        if self.downtime is not None and self.replication is None:
            object.__setattr__(self, "replication", Replication())
        if self.replication is not None:
            _ = self.replica_model, self.downtime_model  # raises the errors for invalid numbers

    @cached_property
    def allowed(self) -> Array:
        """Table of whether an operator (row) may run on a node (column)."""
        made = np.ones((len(self.application.operators), len(self.network.nodes)), bool)
        for operator, nodes in self.candidates.items():
            made[self.application.index[operator]] = False
            made[self.application.index[operator], [self.network.index[n] for n in nodes]] = True
        made.setflags(write=False)
        return made

    @cached_property
    def pinned(self) -> dict[int, int]:
        """Index of the node of each operator that has one candidate only, by the operator's index."""
        single = np.flatnonzero(self.allowed.sum(axis=1) == 1)
        return {int(i): int(self.allowed[i].argmax()) for i in single}

    @cached_property
    def times_s(self) -> Array:
        """R_i / S_u: seconds that an operator (row) takes on a node (column)."""
        made: Array = self.application.time_s[:, None] / self.network.speed[None, :]
        return made

    def place(self, placement: Any) -> Placement:
        """Return a placement as indices of nodes, in the order of operators.

        Parameters
        ----------
        placement
            {operator: node}, or indices of nodes in the order of operators.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("A").place({"s": "0", "m": "1", "t": "2"})
        array([0, 1, 2])
        """
        operators, nodes = self.application.operators, self.network.nodes
        if isinstance(placement, Mapping):
            wrong = [o for o in {**dict.fromkeys(operators), **placement} if o not in placement or o not in operators]
            wrong += [o for o in operators if o in placement and placement[o] not in self.network.index]
            if wrong:
                got = f"{wrong[0]!r} on {placement.get(wrong[0])!r}"
                raise PlacementError(
                    got, expected="a node of the network for each operator", fix="use names of the network's nodes"
                )
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
        """Return a placement as {operator: node}.

        Parameters
        ----------
        placement
            As of `place`.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("A").named((0, 1, 2))
        {'s': '0', 'm': '1', 't': '2'}
        """
        where = self.place(placement)
        return {o: self.network.nodes[u] for o, u in zip(self.application.operators, where, strict=True)}

    @cached_property
    def replica_model(self) -> Replication:
        """The replication with an array per number."""
        app = self.application
        sources = {app.operators[i] for i in app.sources}
        given = self.replication or Replication()
        return given.checked(app.operators, app.streams, sources, len(self.network.nodes))

    @cached_property
    def downtime_model(self) -> Downtime | None:
        """The downtime with an array per number."""
        if self.downtime is None:
            return None
        return self.downtime.checked(self.application.operators, self.network.nodes)

    @cached_property
    def load_per_s(self) -> Array:
        """lambda_i: records/s into each operator; of a source the given rate, or else the greatest of its streams."""
        app = self.application
        load = np.zeros(len(app.operators))
        np.add.at(load, app.ends[:, 1], app.rate_per_s)
        for i in app.sources:
            out = app.rate_per_s[app.ends[:, 0] == i]
            load[i] = self.replica_model.source_rate_per_s.get(app.operators[i], out.max() if len(out) else 0.0)
        load.setflags(write=False)
        return load

    def replica_times_s(self, i: int, replicas: int) -> Array:
        """Return the seconds that one of several replicas takes on each node; infinite where it cannot keep up.

        Parameters
        ----------
        i
            Index of the operator.
        replicas
            Number of its replicas, which share its load.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("replicas").replica_times_s(1, 2).round(4).tolist()
        [0.1111, 0.1111, 0.0556]
        """
        app, speed, model = self.application, self.network.speed, self.replica_model
        operator, rate = app.operators[i], float(self.load_per_s[i]) / replicas
        mu, factor = float(model.service_rate_per_s[i]), float(model.latency_factor[i])
        if operator in model.latency_s:
            found: Array = model.given_latency_s(operator, rate) / speed
        elif math.isinf(mu):
            found = app.time_s[i] / speed
        else:
            spare = speed * mu - rate if model.scale_service_rate else np.full(len(speed), mu - rate)
            per_node = np.ones(len(speed)) if model.scale_service_rate else speed
            with np.errstate(divide="ignore"):
                found = np.where(spare > 0, factor / (np.maximum(spare, 0) * per_node), np.inf)
        return found

    def deploy(self, deployment: Any) -> Replicas:
        """Return a deployment as counts of replicas: a row for each operator, a column for each node.

        Parameters
        ----------
        deployment
            {operator: node or nodes}, an index of a node for each operator, or counts.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("replicas").deploy({"1": "a", "2": ("b", "b"), "3": "c"}).tolist()
        [[1, 0, 0], [0, 2, 0], [0, 0, 1]]
        """
        app, net = self.application, self.network
        shape = (len(app.operators), len(net.nodes))
        if not isinstance(deployment, Mapping):
            try:
                made = np.asarray(deployment, np.float64)
                if made.ndim == 1:
                    return np.eye(shape[1], dtype=np.int64)[self.place(deployment)]
                fits = made.shape == shape and (made >= 0).all() and (made % 1 == 0).all() and made.any(axis=1).all()
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise PlacementError(
                    f"deployment {deployment!r}"[:120],
                    expected=f"{shape[0]} rows of {shape[1]} counts, at least one replica each, or operator: nodes",
                    fix="name the node of each replica",
                )
            return made.astype(np.int64)
        counts = np.zeros(shape, np.int64)
        if odd := set(deployment) ^ set(app.operators):
            came = f"{min(odd, key=str)!r} unknown or missing"
            raise PlacementError(came, expected="nodes for each operator", fix="correct it")
        for operator, where in deployment.items():
            nodes = where if isinstance(where, (list, tuple)) else (where,)
            unknown = [n for n in nodes if not isinstance(n, str) or n not in net.index]
            if unknown or not nodes:
                came = f"{operator!r} on {unknown[0]!r}" if nodes else f"no node for {operator!r}"
                raise PlacementError(came, expected="a node of the network for each replica", fix="correct the name")
            for node in nodes:
                counts[app.index[operator], net.index[node]] += 1
        return counts

    def nodes_of(self, deployment: Any) -> dict[str, tuple[str, ...]]:
        """Return a deployment as {operator: its nodes}, one for each replica.

        Parameters
        ----------
        deployment
            As of `deploy`.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("replicas").nodes_of([[1, 0, 0], [0, 2, 0], [0, 0, 1]])
        {'1': ('a',), '2': ('b', 'b'), '3': ('c',)}
        """
        counts, nodes = self.deploy(deployment), self.network.nodes
        return {
            o: tuple(nodes[u] for u in np.repeat(np.arange(len(nodes)), row))
            for o, row in zip(self.application.operators, counts, strict=True)
        }

    def running(self, deployment: Any) -> Running:
        """Return the running deployment; replicas on nodes that the network no longer has are lost.

        Parameters
        ----------
        deployment
            {operator: node or nodes}, or counts.

        Examples
        --------
        >>> from dspkit import placement
        >>> placement.example("replicas").running({"1": "a", "2": ("b", "gone"), "3": "c"}).lost.tolist()
        [False, True, False]
        """
        if isinstance(deployment, Running):
            return deployment
        size = len(self.application.operators)
        if not isinstance(deployment, Mapping):
            return Running(self.deploy(deployment), np.zeros(size, bool))
        known = self.network.index
        counts, lost = [], []
        for operator in self.application.operators:
            where = deployment.get(operator, ())
            nodes = where if isinstance(where, (list, tuple)) else (where,)
            if not nodes or any(not isinstance(n, str) for n in nodes):
                raise PlacementError(
                    f"{operator!r} running on {where!r}", expected="a node for each replica", fix="name its nodes"
                )
            row = [nodes.count(n) for n in known]
            counts.append(row)
            lost.append(sum(row) < len(nodes))
        if unknown := set(deployment) - set(self.application.operators):
            raise PlacementError(f"{min(unknown, key=str)!r} running", expected="an operator", fix="leave it out")
        return Running(np.array(counts, np.int64), np.array(lost))

    def downtime_s(self, running: Any, deployment: Any) -> float:
        """Return T_D: the downtime, in seconds, of the change from the running deployment to another.

        Parameters
        ----------
        running
            The running deployment: {operator: node or nodes}, or counts.
        deployment
            The new deployment, as of `deploy`.

        Examples
        --------
        >>> from dataclasses import replace
        >>> from dspkit import placement
        >>> problem = replace(placement.example("replicas"), downtime=Downtime())
        >>> running = {"1": "a", "2": "a", "3": "c"}
        >>> problem.downtime_s(running, running), problem.downtime_s(running, {**running, "2": "b"})
        (0.0, 0.784)
        """
        if self.downtime_model is None:
            raise PlacementError("a problem without downtime", expected="one with it", fix="Problem(..., downtime=)")
        return self.downtime_model.of(self.running(running), self.deploy(deployment))
