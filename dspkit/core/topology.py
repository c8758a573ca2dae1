"""The structure of a job: operators, the graph between them, and the number of instances of each.

A topology contains no speeds. How fast an operator works is a property of the simulated plant or of real machines, so
that no policy can look it up. Several applications that share a cluster merge into one graph:

>>> both = merge({"a": Topology.chain("read", "count"), "b": Topology.chain("read", "write")})
>>> both.sources, applications(both)["b"]
(('a/read', 'b/read'), ('b/read', 'b/write'))
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import cycle
from typing import Any, TypeVar

from .errors import DeploymentError, TopologyError
from .validation import FrozenMap, mapping, plain, whole

Edge = tuple[str, str]
_Thing = TypeVar("_Thing")
_Place = TypeVar("_Place")


@dataclass(frozen=True)
class Operator:
    """One step of a streaming job, of which several instances may run in parallel.

    Parameters
    ----------
    name : str
        Name of the operator, unique within its topology.
    max_parallelism, min_parallelism : int
        Bounds of the number of instances.
    stateful : bool
        Whether the operator keeps state between records, which a rescale has to move.

    Examples
    --------
    >>> Operator("count", max_parallelism=8, stateful=True).min_parallelism
    1
    """

    name: str
    max_parallelism: int = 64
    min_parallelism: int = 1
    stateful: bool = False

    def __post_init__(self) -> None:
        if not _is_text(self.name):
            raise TopologyError(f"operator name {self.name!r}", expected="a word", fix="give each operator a name")
        try:
            low, high = _index(self.min_parallelism), _index(self.max_parallelism)
        except TypeError:
            low, high = 0, 0
        if not 1 <= low <= high:
            raise TopologyError(
                f"{self.name!r} with parallelism from {self.min_parallelism!r} to {self.max_parallelism!r}",
                expected="whole numbers with 1 <= min_parallelism <= max_parallelism",
                fix="set min_parallelism >= 1 and max_parallelism >= it",
            )
        values = {"min_parallelism": low, "max_parallelism": high, "stateful": bool(self.stateful)}
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Topology:
    """A directed acyclic graph of operators, validated when it is created.

    Parameters
    ----------
    operators : tuple of Operator or str
        The operators; a name stands for an Operator with default bounds.
    edges : tuple of (str, str)
        The streams, from one operator's name to the next.

    Examples
    --------
    >>> t = Topology.chain("read", "count", "write")
    >>> t.sources, t.order, t.downstream("read")
    (('read',), ('read', 'count', 'write'), ('count',))
    """

    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()

    @classmethod
    def chain(cls, *names: str, max_parallelism: int = 64) -> Topology:
        """Return a topology in which each operator feeds the next.

        Parameters
        ----------
        *names : str
            The operators, from the source to the sink.
        max_parallelism : int
            Upper bound of the instances of each.

        Examples
        --------
        >>> Topology.chain("read", "write").edges
        (('read', 'write'),)
        """
        operators = tuple(Operator(n, max_parallelism) for n in names)
        return cls(operators, tuple(zip(names, names[1:], strict=False)))

    def __post_init__(self) -> None:
        operators = tuple(Operator(o) if isinstance(o, str) else o for o in _each(self.operators, "operators"))
        if wrong := [o for o in operators if not isinstance(o, Operator)]:
            raise TopologyError(
                f"operator {wrong[0]!r}", expected="an Operator or its name", fix="pass operators=(Operator('a'), ...)"
            )
        edges = tuple(_ends(edge) for edge in _each(self.edges, "edges"))
        object.__setattr__(self, "operators", operators)
        object.__setattr__(self, "edges", edges)
        names = [o.name for o in operators]
        if not names:
            raise TopologyError("no operator", expected="at least one", fix="pass operators=(Operator('source'), ...)")
        _once("operator", names)
        known = set(names)
        for edge in edges:
            if unknown := [n for n in edge if not isinstance(n, str) or n not in known]:
                raise TopologyError(
                    f"edge {edge!r} with unknown operator {unknown[0]!r}",
                    expected=f"operators {', '.join(map(repr, names))!s:.1000}",
                    fix="rename the end of the edge, or add an operator of that name",
                )
        _once("edge", edges)
        ends = {n for edge in edges for n in edge}
        if len(names) > 1 and (lone := [n for n in names if n not in ends]):
            raise TopologyError(
                f"isolated operator {lone[0]!r}", expected="an edge to or from it", fix="connect it or leave it out"
            )
        try:
            TopologicalSorter(self._parents).prepare()
        except CycleError as error:
            loop = " -> ".join(map(repr, error.args[1]))
            raise TopologyError(f"cycle {loop}", expected="no cycle", fix="remove one of these edges") from None

    @cached_property
    def _by_name(self) -> dict[str, Operator]:
        return {o.name: o for o in self.operators}

    @cached_property
    def _parents(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {o.name: [] for o in self.operators}
        for u, v in self.edges:
            found[v].append(u)
        return {name: tuple(others) for name, others in found.items()}

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {o.name: [] for o in self.operators}
        for u, v in self.edges:
            found[u].append(v)
        return {name: tuple(others) for name, others in found.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names in topological order; connected parts follow one another."""
        return tuple(name for part in self.parts for name in part)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The operators of each connected part, in topological order; merged applications have one part each."""
        part = {o.name: {o.name} for o in self.operators}
        for u, v in self.edges:
            if part[u] is not part[v]:
                small, large = sorted((part[u], part[v]), key=len)
                large |= small
                part.update(dict.fromkeys(small, large))
        whole, apart = tuple(TopologicalSorter(self._parents).static_order()), dict.fromkeys(map(id, part.values()))
        return tuple(tuple(n for n in whole if id(part[n]) == p) for p in apart) if len(apart) > 1 else (whole,)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Names of the operators without inputs."""
        return tuple(n for n in self.order if not self._parents[n])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        """Names of the operators without outputs."""
        return tuple(n for n in self.order if not self._children[n])

    def upstream(self, name: str) -> tuple[str, ...]:
        """Return the operators that `name` reads from directly.

        Parameters
        ----------
        name : str
            An operator.

        Examples
        --------
        >>> Topology.chain("read", "count").upstream("count")
        ('read',)
        """
        return self._parents[self[name].name]

    def downstream(self, name: str) -> tuple[str, ...]:
        """Return the operators that read from `name` directly.

        Parameters
        ----------
        name : str
            An operator.

        Examples
        --------
        >>> Topology.chain("read", "count").downstream("read")
        ('count',)
        """
        return self._children[self[name].name]

    def __getitem__(self, name: str) -> Operator:
        if name not in self._by_name:
            raise TopologyError(
                f"operator {name!r}",
                expected=f"one of {', '.join(map(repr, self._by_name))}",
                fix="choose one",
            )
        return self._by_name[name]

    def clip(self, parallelism: Mapping[str, float]) -> dict[str, int]:
        """Return the desired parallelism as whole numbers within the operators' bounds.

        Values are rounded up, except for rounding errors: 3.0000000001 becomes 3. Infinity becomes the upper bound.

        Parameters
        ----------
        parallelism : mapping
            Desired number of instances by operator; fractions are allowed.

        Examples
        --------
        >>> Topology.chain("read", "count").clip({"read": 0.2, "count": 2.5})
        {'read': 1, 'count': 3}
        """
        clipped = {}
        for name, k in parallelism.items():
            try:
                known = k > -math.inf
            except TypeError:
                known = False
            if not known:
                raise DeploymentError(
                    f"{k!r} instances of {name!r}", expected="a number", fix="choose a value where nothing was measured"
                )
            low, high = self[name].min_parallelism, self[name].max_parallelism
            clipped[name] = max(low, math.ceil(min(k, high) - 1e-9))
        return clipped

    def uniform(self, parallelism: int = 1) -> dict[str, int]:
        """Return the same parallelism for every operator, as far as their bounds allow.

        Parameters
        ----------
        parallelism : int
            Number of instances.

        Examples
        --------
        >>> Topology.chain("read", "count").uniform(2)
        {'read': 2, 'count': 2}
        """
        return self.clip({o.name: parallelism for o in self.operators})

    def check(self, deployment: Deployment) -> Deployment:
        """Return `deployment`, or raise a DeploymentError if it does not fit this topology.

        Parameters
        ----------
        deployment : Deployment
            The deployment to check.

        Examples
        --------
        >>> Topology.chain("read", "count").check(Deployment({"read": 1, "count": 2})).instances
        3
        """
        if not isinstance(deployment, Deployment):
            raise DeploymentError(
                repr(deployment), expected="a Deployment", fix="start from snapshot.deployment, or Deployment({...})"
            )
        given = deployment.parallelism
        if set(given) != set(self._by_name):
            missing, unknown = sorted(set(self._by_name) - set(given)), sorted(set(given) - set(self._by_name))
            raise DeploymentError(
                f"a deployment that misses {missing} and adds {unknown}",
                expected=f"a parallelism for each of {sorted(self._by_name)}",
                fix="start from snapshot.deployment and change the entries to be changed",
            )
        for name, k in given.items():
            low, high = self[name].min_parallelism, self[name].max_parallelism
            if not low <= k <= high:
                raise DeploymentError(
                    f"parallelism {k} for {name!r}",
                    expected=f"{low} to {high}",
                    fix="clip it with topology.clip() or widen the operator's bounds",
                )
        for name, index in deployment.placement:
            if index >= given.get(name, 0):
                raise DeploymentError(
                    f"a placement of instance {index} of {name!r}",
                    expected=f"instances of known operators, of which {name!r} has {given.get(name, 0)}",
                    fix="place only instances that run",
                )
        return deployment


@dataclass(frozen=True)
class Deployment:
    """The configuration that a job runs in: instances per operator and, if the backend has them, workers and placement.

    Parameters
    ----------
    parallelism : mapping
        Number of instances by operator.
    workers : int, optional
        Number of worker processes or machines; None if the backend does not model them.
    placement : mapping
        Node by (operator, index of the instance).
    settings : mapping
        Settings of the backend by name.

    Examples
    --------
    >>> Deployment({"read": 1, "count": 2}, placement={("count", 0): "n1"}).instances
    3
    """

    parallelism: Mapping[str, int]
    workers: int | None = None
    placement: Mapping[tuple[str, int], str] = field(default_factory=FrozenMap)
    settings: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        for name in ("parallelism", "placement", "settings"):
            mapping(getattr(self, name), name, "a mapping", error=DeploymentError, fix="pass {key: value}")
        object.__setattr__(self, "parallelism", FrozenMap(_counted(self.parallelism)))
        if self.workers is not None:
            object.__setattr__(self, "workers", _whole(self.workers, "workers"))
        object.__setattr__(self, "placement", FrozenMap(_placed(self.placement)))
        object.__setattr__(self, "settings", plain(self.settings))

    @property
    def instances(self) -> int:
        """Number of instances of all operators, which is the cost of the job in slots."""
        return sum(self.parallelism.values())

    def scaled(self, parallelism: Mapping[str, int]) -> Deployment:
        """Return a copy with another parallelism of some operators; placements of removed instances are dropped.

        Parameters
        ----------
        parallelism : mapping
            New number of instances by operator; other operators keep theirs.

        Examples
        --------
        >>> Deployment({"read": 1, "count": 2}).scaled({"count": 5}).parallelism["count"]
        5
        """
        counts = {**self.parallelism, **parallelism}
        placement = {place: node for place, node in self.placement.items() if place[1] < counts.get(place[0], 0)}
        return replace(self, parallelism=counts, placement=placement)


def instances_of(topology: Topology, parallelism: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return all instances as (operator, index), in topological order.

    Parameters
    ----------
    topology : Topology
        The operators.
    parallelism : mapping
        Number of instances by operator.

    Examples
    --------
    >>> instances_of(Topology.chain("a", "b"), {"a": 1, "b": 2})
    [('a', 0), ('b', 0), ('b', 1)]
    """
    return [(name, i) for name in topology.order for i in range(parallelism[name])]


def assign_in_turn(things: Iterable[_Thing], places: Sequence[_Place]) -> dict[_Thing, _Place]:
    """Assign things to places round robin: the first to the first place, and after the last place from the first again.

    Parameters
    ----------
    things : iterable
        The things to assign, each once.
    places : sequence
        The places, at least one.

    Examples
    --------
    >>> assign_in_turn("abc", ["n1", "n2"])
    {'a': 'n1', 'b': 'n2', 'c': 'n1'}
    """
    return dict(zip(things, cycle(places), strict=False))


def _is_text(value: Any) -> bool:
    """Return whether `value` is a name that can be written to a file, which half of a surrogate pair cannot."""
    try:
        return isinstance(value, str) and bool(value.strip()) and bool(value.encode())
    except UnicodeEncodeError:
        return False


def _each(value: Any, what: str) -> tuple[Any, ...]:
    """Return the items of `value`; a single str is rejected rather than split into letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TopologyError(f"{what} = {value!r}", expected=f"a tuple of {what}", fix=f"pass {what}=(..., ...)")
    return tuple(value)


def _once(what: str, things: Sequence[Any]) -> None:
    if twice := [x for x, n in Counter(things).items() if n > 1]:
        raise TopologyError(f"{what} {twice[0]!r} twice", expected="each once", fix=f"drop or rename one {what}")


def _ends(edge: Any) -> Edge:
    if not isinstance(edge, (tuple, list)) or len(edge) != 2:
        raise TopologyError(f"edge {edge!r}", expected="two names (start, end)", fix="write a -> b -> c as two edges")
    start, end = edge
    return start, end


def _index(value: Any) -> int:
    """Return a whole number, also one of numpy's, or raise TypeError; True is rejected."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _whole(value: Any, what: str, least: int = 1) -> int:
    return whole(value, what, least, error=DeploymentError, fix="round it up first")


def _counted(parallelism: Mapping[Any, Any]) -> Iterator[tuple[str, int]]:
    for name, k in parallelism.items():
        if not _is_text(name):
            raise DeploymentError(
                f"parallelism of {name!r}", expected="the name of an operator", fix="write {name: instances}"
            )
        yield name, _whole(k, f"parallelism of {name!r}")


def _placed(placement: Mapping[Any, Any]) -> Iterator[tuple[tuple[str, int], str]]:
    for key, node in placement.items():
        if not (isinstance(key, tuple) and len(key) == 2 and _is_text(key[0]) and _is_text(node)):
            raise DeploymentError(
                f"placement {{{key!r}: {node!r}}}",
                expected="{(operator, index): node}",
                fix="place instance by instance",
            )
        yield (key[0], _whole(key[1], f"instance of {key[0]!r}", 0)), node


V = TypeVar("V")
MARK = "/"  # separates the name of an application from that of its operator


def named(application: str, operator: str) -> str:
    """Return an operator's name in a graph of several applications.

    Parameters
    ----------
    application : str
        Name of the application.
    operator : str
        Name of the operator in that application.

    Examples
    --------
    >>> named("a", "count")
    'a/count'
    """
    return f"{application}{MARK}{operator}"


def prefixed(application: str, things: Mapping[str, V]) -> dict[str, V]:
    """Return values by operator under the operators' names in a graph of several applications.

    Parameters
    ----------
    application : str
        Name of the application.
    things : mapping
        Values by the operators' own names.

    Examples
    --------
    >>> prefixed("a", {"count": 2})
    {'a/count': 2}
    """
    return {named(application, name): thing for name, thing in things.items()}


def merge(topologies: Mapping[str, Topology]) -> Topology:
    """Return one graph of several applications, in which operator o of application a is called "a/o".

    Parameters
    ----------
    topologies : mapping
        Topology by name of the application.

    Examples
    --------
    >>> merge({"a": Topology.chain("read", "count"), "b": Topology.chain("read", "write")}).sinks
    ('a/count', 'b/write')
    """
    if not isinstance(topologies, Mapping) or not topologies:
        raise TopologyError(f"applications {topologies!r}"[:100], expected="at least one by name", fix="pass {name: …}")
    for name, topology in topologies.items():
        if not isinstance(name, str) or not name.strip() or MARK in name or not isinstance(topology, Topology):
            raise TopologyError(
                f"application {name!r}: {topology!r}"[:100],
                expected=f"a Topology under a name without {MARK!r}",
                fix="rename it",
            )
        if len(topology.operators) == 1 < len(topologies):
            raise TopologyError(
                f"application {name!r} of a single operator", expected="two or more", fix="give it a source of its own"
            )
    operators = tuple(replace(o, name=named(a, o.name)) for a, t in topologies.items() for o in t.operators)
    edges = tuple((named(a, u), named(a, v)) for a, t in topologies.items() for u, v in t.edges)
    return Topology(operators, edges)


def applications(topology: Topology) -> dict[str, tuple[str, ...]]:
    """Return the operators of each application in topological order, one application per connected part of the graph.

    A part has the name that `merge` gave it, otherwise that of its first source.

    Parameters
    ----------
    topology : Topology
        A graph, merged or not.

    Examples
    --------
    >>> applications(Topology.chain("read", "count"))
    {'read': ('read', 'count')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in topology.parts:
        head = part[0].partition(MARK)[0]
        whole = MARK in part[0] and all(name.startswith(head + MARK) for name in part)
        found[head if whole and head not in found else part[0]] = part
    return found


def its_own(application: str, deployment: Deployment, topology: Topology) -> Deployment:
    """Return one application's part of a deployment of all applications, under its operators' own names.

    Parameters
    ----------
    application : str
        Name of the application.
    deployment : Deployment
        The deployment of the merged graph.
    topology : Topology
        The application's own topology.

    Examples
    --------
    >>> its_own("a", Deployment({"a/read": 1, "a/count": 2, "b/x": 1}), Topology.chain("read", "count")).parallelism
    {'read': 1, 'count': 2}
    """
    parallelism = {n: deployment.parallelism[named(application, n)] for n in topology.order}
    places = {
        (name, i): node
        for name, k in parallelism.items()
        for i in range(k)
        if (node := deployment.placement.get((named(application, name), i))) is not None
    }
    return Deployment(parallelism, deployment.workers, places, deployment.settings)
