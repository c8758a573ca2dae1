"""What goes wrong, and when: nodes that die and return, slow nodes, skewed keys, meters that fall silent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import KnobError
from ..knobs import Knobs, knob
from .cluster import Node


def _at() -> float:
    return knob(0.0, "when it begins", low=0.0, high=math.inf, unit="s")  # type: ignore[no-any-return]


def _lasting() -> float:
    return knob(math.inf, "how long it lasts", low=0.0, high=math.inf, unit="s", infinite=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Fault(Knobs):
    """Base of all faults: something that holds from `at_s` on, for `for_s` seconds."""

    def active(self, t: float) -> bool:
        """Whether it holds at `t`."""
        return self.at_s <= t < self.until_s

    @property
    def until_s(self) -> float:
        return self.at_s + self.for_s

    at_s: float = _at()
    for_s: float = _lasting()


@dataclass(frozen=True)
class NodeDown(Fault):
    """A node dies, and returns empty.

    Instances that a scheduler placed are started on the other nodes, after a pause like that of a rescale, and stay
    there until the next one; those that the deployment itself placed wait for their node. The log of a source outlives
    any node, and a micro-batch that was under way is run again from it.
    """

    node: str = ""
    loses: bool = knob(False, "records waiting inside the job there are lost, not replayed", choices=(False, True))


@dataclass(frozen=True)
class NodeSlow(Fault):
    """A node does everything at a part of its speed."""

    node: str = ""
    factor: float = knob(0.5, "part of its speed that is left", low=1e-3, high=1.0)


@dataclass(frozen=True)
class Skew(Fault):
    """A skewed key: the hottest instance gets this share of the operator's records, the others share the rest.

    From then on each instance has a queue of its own: a record of the hot key can go nowhere else. A share below
    that of an average instance is no skew.
    """

    operator: str = ""
    share: float = knob(0.5, "of the operator's records that go to its hottest instance", low=0.0, high=1.0)


@dataclass(frozen=True)
class Silence(Fault):
    """An operator's meters fall silent: it is missing from the snapshots, and works on."""

    operator: str = ""


def outages(nodes: Mapping[str, Node], until_s: float, repair_s: float = 60.0, seed: int = 0) -> tuple[NodeDown, ...]:
    """A timetable of failures in which each node is up its `availability` of the time, in the long run.

    Times to failure and to repair are exponential; the mean time up is $r\\,a/(1-a)$ for repair time r.
    """
    import numpy as np

    if not (0 < repair_s < math.inf and 0 < until_s < math.inf):
        raise KnobError(
            f"until_s={until_s!r}, repair_s={repair_s!r}", expected="finite times above 0", fix="as in repair_s=60"
        )
    random = np.random.default_rng(seed)
    downs = []
    for name, node in nodes.items():
        if node.availability <= 0:
            raise KnobError(
                f"availability {node.availability:g} of node {name!r}", expected="more than 0", fix="leave the node out"
            )
        t = 0.0
        while node.availability < 1:
            t += random.exponential(repair_s * node.availability / (1 - node.availability))
            if t >= until_s:
                break
            length = random.exponential(repair_s)
            downs.append(NodeDown(t, length, node=name))
            t += length
    return tuple(sorted(downs, key=lambda fault: fault.at_s))


def check(faults: Iterable[Fault], nodes: Mapping[str, Node], operators: Iterable[str]) -> tuple[Fault, ...]:
    """These faults, or an error that names what they hit and nobody has."""
    known = {"node": list(nodes), "operator": list(operators)}
    if isinstance(faults, Fault) or not isinstance(faults, Iterable):
        raise KnobError(f"faults = {faults!r}", expected="a tuple of faults", fix="as in faults=(NodeDown(60, 30),)")
    checked = tuple(faults)
    for fault in checked:
        if not isinstance(fault, Fault):
            raise KnobError(repr(fault), expected="a fault, such as NodeDown(60, 30, node='node-1')", fix="see faults")
        for what, names in known.items():
            if hasattr(fault, what) and getattr(fault, what) not in names:
                raise KnobError(
                    f"a fault of {what} {getattr(fault, what)!r}",
                    expected=f"one of {sorted(names)}",
                    fix="correct the name",
                )
    return checked
