"""Faults of a simulated cluster: nodes that fail and return, slow nodes, skewed keys, missing metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core import ArgumentError, Knobs, knob
from .nodes import Node


def _at() -> float:
    return knob(0.0, "time at which it begins", low=0.0, high=math.inf, unit="s")  # type: ignore[no-any-return]


def _lasting() -> float:
    return knob(math.inf, "duration", low=0.0, high=math.inf, unit="s", infinite=True)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Fault(Knobs):
    """Base of all faults, active from `at_s` on, for `duration_s` seconds.

    Examples
    --------
    >>> Fault(60, 30).until_s, Fault(60, 30).active(75)
    (90.0, True)
    """

    def active(self, t: float) -> bool:
        """Return whether the fault is active at time `t`.

        Parameters
        ----------
        t
            A time, in seconds.

        Examples
        --------
        >>> Fault(60, 30).active(90)
        False
        """
        return self.at_s <= t < self.until_s

    @property
    def until_s(self) -> float:
        """Time at which the fault ends."""
        return self.at_s + self.duration_s

    at_s: float = _at()
    duration_s: float = _lasting()


@dataclass(frozen=True)
class NodeDown(Fault):
    """Failure of a node, which returns empty.

    Instances that a scheduler placed are started on the other nodes, after a pause like that of a rescale, and stay
    there until the next change; those that the deployment itself placed wait for their node. The log of a source
    outlives any node, and a micro-batch in flight is run again from it.

    Parameters
    ----------
    node
        Name of the node.

    Examples
    --------
    >>> NodeDown(60, 30, node="node-1").loses
    False
    """

    node: str = ""
    loses: bool = knob(False, "records waiting inside the job there are lost, not replayed", choices=(False, True))


@dataclass(frozen=True)
class NodeSlow(Fault):
    """Slowdown of a node: everything on it runs at a fraction of its speed.

    Parameters
    ----------
    node
        Name of the node.

    Examples
    --------
    >>> NodeSlow(60, 30, node="node-1").factor
    0.5
    """

    node: str = ""
    factor: float = knob(0.5, "fraction of its speed that remains", low=1e-3, high=1.0)


@dataclass(frozen=True)
class Skew(Fault):
    """Skewed keys: the hottest instance gets this share of the operator's records, the others share the rest equally.

    While it is active each instance has a queue of its own, since a record of the hot key cannot go to another
    instance. A share below that of an average instance has no effect.

    Parameters
    ----------
    operator
        Name of the operator.

    Examples
    --------
    >>> Skew(60, operator="count", share=0.4).duration_s
    inf
    """

    operator: str = ""
    share: float = knob(0.5, "share of the operator's records that go to its hottest instance", low=0.0, high=1.0)


@dataclass(frozen=True)
class MetricsOutage(Fault):
    """Loss of an operator's metrics: it is missing from the snapshots, and continues to work.

    Parameters
    ----------
    operator
        Name of the operator.

    Examples
    --------
    >>> MetricsOutage(60, 30, operator="count").until_s
    90.0
    """

    operator: str = ""


def outages(nodes: Mapping[str, Node], until_s: float, repair_s: float = 60.0, seed: int = 0) -> tuple[NodeDown, ...]:
    """Draw random failures in which each node is up for its `availability` of the time, in the long run.

    Times to failure and to repair are exponential; the mean time up is $r\\,a/(1-a)$ for repair time r.

    Parameters
    ----------
    nodes
        The nodes by name, each with an availability above 0.
    until_s
        Time up to which failures begin, in seconds.
    repair_s
        Mean time to repair, in seconds.
    seed
        Seed of the random times.

    Examples
    --------
    >>> downs = outages({"n1": Node(availability=0.9), "n2": Node()}, until_s=6000)
    >>> {down.node for down in downs}, len(downs) > 3
    ({'n1'}, True)
    """
    import numpy as np

    if not (0 < repair_s < math.inf and 0 < until_s < math.inf):
        raise ArgumentError(
            f"until_s={until_s!r}, repair_s={repair_s!r}", expected="finite times above 0", fix="as in repair_s=60"
        )
    random = np.random.default_rng(seed)
    downs = []
    for name, node in nodes.items():
        if node.availability <= 0:
            raise ArgumentError(
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


def check_faults(faults: Iterable[Fault], nodes: Mapping[str, Node], operators: Iterable[str]) -> tuple[Fault, ...]:
    """Return these faults as a tuple, or raise an error that names an unknown node or operator."""
    known = {"node": list(nodes), "operator": list(operators)}
    if isinstance(faults, Fault) or not isinstance(faults, Iterable):
        raise ArgumentError(
            f"faults = {faults!r}", expected="a tuple of faults", fix="as in faults=(NodeDown(60, 30),)"
        )
    checked = tuple(faults)
    for fault in checked:
        if not isinstance(fault, Fault):
            raise ArgumentError(
                repr(fault), expected="a fault, such as NodeDown(60, 30, node='node-1')", fix="see faults"
            )
        for what, names in known.items():
            if hasattr(fault, what) and getattr(fault, what) not in names:
                raise ArgumentError(
                    f"a fault of {what} {getattr(fault, what)!r}",
                    expected=f"one of {sorted(names)}",
                    fix="use a name of the plant",
                )
    return checked
