"""What can run: operators, the graph between them, and how many instances of each.

Structure is here, speed is not: how fast an operator works lives in the plant of a simulator or in the real
machines, so that no policy can peek.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .errors import DeploymentError, TopologyError
from .frozen import FrozenMap, plain

Edge = tuple[str, str]


@dataclass(frozen=True)
class Operator:
    """One step of a streaming job; `parallelism` instances of it may run side by side."""

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
                fix="correct the bounds of the operator",
            )
        values = {"min_parallelism": low, "max_parallelism": high, "stateful": bool(self.stateful)}
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Topology:
    """A directed acyclic graph of operators, checked when it is made.

    >>> t = Topology.chain("read", "count", "write")
    >>> t.sources, t.order, t.downstream("read")
    (('read',), ('read', 'count', 'write'), ('count',))
    """

    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...] = ()

    @classmethod
    def chain(cls, *names: str, max_parallelism: int = 64) -> Topology:
        """One operator after the other."""
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
        checked: tuple[tuple[str, Sequence[Any]], ...] = (("operator", names), ("edge", edges))
        for what, things in checked:
            if twice := [x for x in things if things.count(x) > 1]:
                raise TopologyError(
                    f"{what} {twice[0]!r} twice", expected="each once", fix=f"drop or rename one {what}"
                )
        for edge in edges:
            if unknown := [n for n in edge if n not in names]:
                raise TopologyError(
                    f"edge {edge!r} with unknown operator {unknown[0]!r}",
                    expected=f"operators {', '.join(map(repr, names))}",
                    fix="correct the edge, or add an operator of that name",
                )
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
        return {o.name: tuple(u for u, v in self.edges if v == o.name) for o in self.operators}

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        return {o.name: tuple(v for u, v in self.edges if u == o.name) for o in self.operators}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Names, each after all it reads from; part after part, if no edge connects them."""
        return tuple(name for part in self.parts for name in part)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The operators of each connected part, in topological order: more than one if applications were merged."""
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
        return tuple(n for n in self.order if not self._parents[n])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        return tuple(n for n in self.order if not self._children[n])

    def upstream(self, name: str) -> tuple[str, ...]:
        """The operators that `name` reads from, directly."""
        return self._parents[self[name].name]

    def downstream(self, name: str) -> tuple[str, ...]:
        """The operators that read from `name`, directly."""
        return self._children[self[name].name]

    def __getitem__(self, name: str) -> Operator:
        if name not in self._by_name:
            raise TopologyError(
                f"operator {name!r}", expected=f"one of {', '.join(map(repr, self._by_name))}", fix="check the name"
            )
        return self._by_name[name]

    def clip(self, parallelism: Mapping[str, float]) -> dict[str, int]:
        """Wanted parallelism as whole numbers within bounds; 3.0000000001 is 3, not 4, and inf the maximum."""
        clipped = {}
        for name, k in parallelism.items():
            try:
                known = k > -math.inf
            except TypeError:
                known = False
            if not known:
                raise DeploymentError(
                    f"{k!r} instances of {name!r}", expected="a number", fix="decide what to do where nothing is known"
                )
            low, high = self[name].min_parallelism, self[name].max_parallelism
            clipped[name] = max(low, math.ceil(min(k, high) - 1e-9))
        return clipped

    def uniform(self, parallelism: int = 1) -> dict[str, int]:
        """The same parallelism everywhere, as far as the operators' bounds allow."""
        return self.clip({o.name: parallelism for o in self.operators})

    def check(self, deployment: Deployment) -> Deployment:
        """`deployment`, or a DeploymentError that says why it does not fit."""
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
                fix="start from snapshot.deployment and change what you want changed",
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
                    f"a place for instance {index} of {name!r}",
                    expected=f"instances of known operators, of which {name!r} has {given.get(name, 0)}",
                    fix="place only instances that run",
                )
        return deployment


@dataclass(frozen=True)
class Deployment:
    """How a job runs: instances per operator and, where the backend has them, workers, places, settings."""

    parallelism: Mapping[str, int]
    workers: int | None = None
    placement: Mapping[tuple[str, int], str] = field(default_factory=FrozenMap)
    settings: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        for name in ("parallelism", "placement", "settings"):
            if not isinstance(getattr(self, name), Mapping):
                raise DeploymentError(
                    f"{name} = {getattr(self, name)!r}", expected="a mapping", fix="pass {key: value}"
                )
        object.__setattr__(self, "parallelism", FrozenMap(_counted(self.parallelism)))
        if self.workers is not None:
            object.__setattr__(self, "workers", _whole(self.workers, "workers"))
        object.__setattr__(self, "placement", FrozenMap(_placed(self.placement)))
        object.__setattr__(self, "settings", plain(self.settings))

    @property
    def instances(self) -> int:
        """Instances of all operators together: what the job costs in slots."""
        return sum(self.parallelism.values())

    def scaled(self, parallelism: Mapping[str, int]) -> Deployment:
        """A copy in which the operators named run at another parallelism; places of instances that go are dropped."""
        counts = {**self.parallelism, **parallelism}
        placement = {place: node for place, node in self.placement.items() if place[1] < counts.get(place[0], 0)}
        return replace(self, parallelism=counts, placement=placement)


def _is_text(value: Any) -> bool:
    """Whether `value` names something, and can be written to a file: halves of a surrogate pair cannot."""
    try:
        return isinstance(value, str) and bool(value.strip()) and bool(value.encode())
    except UnicodeEncodeError:
        return False


def _each(value: Any, what: str) -> tuple[Any, ...]:
    """The items of `value`; one str is not taken for its letters."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TopologyError(f"{what} = {value!r}", expected=f"a tuple of {what}", fix=f"pass {what}=(..., ...)")
    return tuple(value)


def _ends(edge: Any) -> Edge:
    if not isinstance(edge, (tuple, list)) or len(edge) != 2:
        raise TopologyError(f"edge {edge!r}", expected="two names (start, end)", fix="write a -> b -> c as two edges")
    start, end = edge
    return start, end


def _index(value: Any) -> int:
    """A whole number, numpy's too, or TypeError; True is none."""
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _whole(value: Any, what: str, least: int = 1) -> int:
    try:
        number = _index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise DeploymentError(
            f"{what} = {value!r}", expected=f"a whole number from {least} up", fix="round it up first"
        )
    return number


def _counted(parallelism: Mapping[Any, Any]) -> Iterator[tuple[str, int]]:
    for name, k in parallelism.items():
        if not _is_text(name):
            raise DeploymentError(f"parallelism of {name!r}", expected="the name of an operator", fix="correct the key")
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
