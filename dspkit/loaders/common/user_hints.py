"""The arguments of loaders beside the metrics: their location, the graph of operators, the numbers of instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core import DspkitError, Operator, Topology, files
from ...core.validation import is_whole, mapping
from .base import LoaderError


@dataclass
class Given:
    """The topology, and instances by operator; "" stands for all other operators."""

    topology: Topology | None
    parallelism: dict[str, int] = field(default_factory=dict)

    @property
    def only(self) -> str | None:
        """The name of the only operator, if there is one."""
        order = self.topology.order if self.topology else ()
        return order[0] if len(order) == 1 else None

    def known(self, operator: str) -> bool:
        return self.topology is None or operator in self.topology.order

    def topology_for(self, names: Sequence[str]) -> Topology:
        """Return the given topology, or that of a single operator."""
        if self.topology is not None:
            return self.topology
        if len(names) == 1:
            return Topology((Operator(names[0]),))
        if not names:
            raise LoaderError(
                "no metrics of any operator", expected="metrics with the given names", fix="compare with the source"
            )
        raise LoaderError(
            f"operators {', '.join(map(repr, names))!s:.300} without their edges",
            expected="a topology",
            fix="pass topology=Topology.chain('read', 'work', 'write'), or the names in their order",
        )

    def parallelism_for(self, topology: Topology) -> dict[str, int]:
        """Return the given instances by operator."""
        if unknown := [n for n in self.parallelism if n and n not in topology.order]:
            raise LoaderError(
                f"parallelism of {unknown[0]!r}",
                expected=f"one of {', '.join(topology.order)}",
                fix="use names of the topology",
            )
        every = dict.fromkeys(topology.order, self.parallelism[""]) if "" in self.parallelism else {}
        return every | {n: k for n, k in self.parallelism.items() if n}


def given_path(path: object) -> Path:
    """Return the argument as a path, or raise a LoaderError."""
    return files.given_path(path, error=LoaderError)


def given_window(window_s: float | None) -> float | None:
    """Return the given length of a window, if any."""
    if window_s is not None and not (isinstance(window_s, (int, float)) and 0 < window_s < float("inf")):
        raise LoaderError(f"window_s={window_s!r}", expected="seconds above 0", fix="omit it if unknown")
    return window_s


def given_stages(names: Sequence[str] | None) -> list[str] | None:
    """Return the given names of stages, in the order of their ids."""
    if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
        raise LoaderError(f"names={names!r:.200}", expected="a name for each stage", fix="as in ['read', 'count']")
    return None if names is None else list(names)


def given_names(what: str, told: Mapping[str, str] | None) -> dict[str, str]:
    """Return a given mapping of text to text: `labels`, `rename`, `headers`."""
    if told is None:
        return {}
    return dict(mapping(told, what, "a mapping", error=LoaderError, fix=f"as in {what}={{'a': 'b'}}"))


def given_topology(topology: Topology | Sequence[str] | None) -> Topology | None:
    """Return a given Topology, or names as a chain in their order."""
    if topology is None or isinstance(topology, Topology):
        return topology
    if isinstance(topology, str) or not isinstance(topology, Sequence):
        raise LoaderError(f"topology={topology!r}", expected="a Topology, or names in their order", fix="pass one")
    return Topology.chain(*topology)


def given_parallelism(parallelism: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the given instances by operator."""
    told = {"": parallelism} if isinstance(parallelism, int) else parallelism or {}
    wrong = not isinstance(told, Mapping)
    if wrong or any(not is_whole(k) or k < 1 for k in told.values()):
        raise LoaderError(
            f"parallelism={parallelism!r}",
            expected="a whole number from 1 up, or one by operator",
            fix="as in parallelism=2, or {'map': 2}",
        )
    return dict(told)


def sized(names: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> Topology:
    """Return a topology of operators with their maximal observed instances."""
    try:
        return Topology(tuple(Operator(n, max(64, k)) for n, k in names.items()), tuple(edges))
    except DspkitError as error:
        raise LoaderError(
            f"a graph that is no topology: {error.got}", expected=error.expected, fix="pass topology="
        ) from error
