"""What a user tells a loader beside the metrics: where they lie, the graph of operators, and how many instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core import Operator, Topology
from ..errors import DspkitError
from .base import LoaderError


@dataclass
class Given:
    """The topology, and instances by operator; "" stands for all that are not named."""

    topology: Topology | None
    parallelism: dict[str, int] = field(default_factory=dict)

    @property
    def only(self) -> str | None:
        """The name of the one operator, where there is but one."""
        order = self.topology.order if self.topology else ()
        return order[0] if len(order) == 1 else None

    def known(self, operator: str) -> bool:
        return self.topology is None or operator in self.topology.order

    def topology_for(self, names: Sequence[str]) -> Topology:
        """What was given; else, if there is but one operator, that one."""
        if self.topology is not None:
            return self.topology
        if len(names) == 1:
            return Topology((Operator(names[0]),))
        if not names:
            raise LoaderError(
                "nothing of any operator", expected="metrics of the names that were told", fix="compare with the source"
            )
        raise LoaderError(
            f"operators {', '.join(map(repr, names))!s:.300} without their edges",
            expected="a topology",
            fix="pass topology=Topology.chain('read', 'work', 'write'), or the names in their order",
        )

    def parallelism_for(self, topology: Topology) -> dict[str, int]:
        """Instances of the operators that are known beforehand."""
        if unknown := [n for n in self.parallelism if n and n not in topology.order]:
            raise LoaderError(
                f"parallelism of {unknown[0]!r}", expected=f"one of {', '.join(topology.order)}", fix="correct it"
            )
        every = dict.fromkeys(topology.order, self.parallelism[""]) if "" in self.parallelism else {}
        return every | {n: k for n, k in self.parallelism.items() if n}


def given_path(path: object) -> Path:
    """A path that can be one."""
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise LoaderError(f"{path!r:.200}", expected="a path", fix="pass that of a file or folder, or a url")
    return Path(path)


def given_window(window_s: float | None) -> float | None:
    """How long a window is, if that was told."""
    if window_s is not None and not (isinstance(window_s, (int, float)) and 0 < window_s < float("inf")):
        raise LoaderError(f"window_s={window_s!r}", expected="seconds above 0", fix="leave it out if unknown")
    return window_s


def given_stages(names: Sequence[str] | None) -> list[str] | None:
    """What stages are called, in the order of their ids."""
    if names is not None and (isinstance(names, str) or not isinstance(names, Sequence)):
        raise LoaderError(f"names={names!r:.200}", expected="a name for each stage", fix="as in ['read', 'count']")
    return None if names is None else list(names)


def given_names(what: str, told: Mapping[str, str] | None) -> dict[str, str]:
    """A mapping of text to text, as `labels`, `rename` and `headers` are."""
    if told is not None and not isinstance(told, Mapping):
        raise LoaderError(f"{what}={told!r:.200}", expected="a mapping", fix=f"as in {what}={{'a': 'b'}}")
    return dict(told or {})


def given_topology(topology: Topology | Sequence[str] | None) -> Topology | None:
    """A Topology as it is; names as a chain in their order."""
    if topology is None or isinstance(topology, Topology):
        return topology
    if isinstance(topology, str) or not isinstance(topology, Sequence):
        raise LoaderError(f"topology={topology!r}", expected="a Topology, or names in their order", fix="pass one")
    return Topology.chain(*topology)


def given_parallelism(parallelism: int | Mapping[str, int] | None) -> dict[str, int]:
    """Instances by operator."""
    told = {"": parallelism} if isinstance(parallelism, int) else parallelism or {}
    wrong = not isinstance(told, Mapping)
    if wrong or any(isinstance(k, bool) or not isinstance(k, int) or k < 1 for k in told.values()):
        raise LoaderError(
            f"parallelism={parallelism!r}", expected="a whole number from 1 up, or one by operator", fix="correct it"
        )
    return dict(told)


def sized(names: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> Topology:
    """A topology of operators that were seen with at most so many instances."""
    try:
        return Topology(tuple(Operator(n, max(64, k)) for n, k in names.items()), tuple(edges))
    except DspkitError as error:
        raise LoaderError(
            f"a graph that is no topology: {error.came}", expected=error.expected, fix="pass topology="
        ) from error
