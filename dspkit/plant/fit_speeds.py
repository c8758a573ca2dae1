"""What operators cost on a machine of speed 1, from runs on machines that differ in speed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from ..core import Deployment, OperatorMetrics, Snapshot, Topology
from ..errors import KnobError
from .cluster import round_robin
from .fit_numbers import Array
from .plant import Plant

_ROUNDS = 40  # of a fixed point that nears its end from one side; each takes away most of what is left


class Speeds:
    """Where each operator's instances ran, and how fast these nodes are; without `start` all are of speed 1."""

    def __init__(self, topology: Topology, start: Plant | None):
        self.topology, self.start = topology, start
        self._same = len({node.speed for node in start.nodes.values()}) == 1 if start else True
        self._known: dict[Deployment, dict[str, tuple[Array, Array]]] = {}

    def at_one(self, name: str, s: Snapshot) -> OperatorMetrics:
        """What a window shows of an operator, its CPU work as long as on a machine of speed 1.

        Of $y$ seconds for a record $c$ take CPU; at the speed u that its instances have together, $y+c(u-1)$ at 1.
        """
        m = s.operators[name]
        if self.start is None or not m.true_rate or not m.processing_rate:
            return m
        speed, part = self._of(s.deployment)[name]
        if (speed == 1).all():
            return m
        y, even = 1 / m.true_rate, s.law == "sequential"  # each instance gets as many records, however fast it is
        if m.cpu is None:
            io = self.start.services[name].io_share
            slow = io + (1 - io) / speed
            return replace(m, true_rate=1 / (y / (part * slow).sum() if even else y * (part / slow).sum()))
        cpu = m.cpu / m.processing_rate
        u = together(speed, part, 0.0 if even else min(1.0, cpu / y))
        return replace(m, true_rate=1 / (y + cpu * (u - 1)), cpu=m.cpu * u)

    def _of(self, deployment: Deployment) -> dict[str, tuple[Array, Array]]:
        """Of each operator: the speeds of its nodes, and the part of its instances on each."""
        if deployment not in self._known:
            self._known[deployment] = self._find(deployment)
        return self._known[deployment]

    def _find(self, deployment: Deployment) -> dict[str, tuple[Array, Array]]:
        assert self.start is not None
        nodes = self.start.nodes
        if self._same:
            one = np.array([next(iter(nodes.values())).speed]), np.ones(1)
            return dict.fromkeys(self.topology.order, one)
        names = list(nodes)[: deployment.workers]
        where = {**round_robin(self.topology, deployment.parallelism, names), **deployment.placement}
        if odd := sorted(set(where.values()) - set(nodes)):
            raise KnobError(
                f"instances on {', '.join(map(repr, odd))}, and start with {', '.join(map(repr, nodes))}",
                expected="the speed of each node that the run used",
                fix="add it to the nodes of start, as in Node(16, speed=2.0)",
            )
        found = {}
        for name in self.topology.order:
            on = Counter(nodes[node].speed for (operator, _), node in where.items() if operator == name)
            found[name] = np.array(list(on)), np.array(list(on.values())) / on.total()
        return found


def together(speed: Array, part: Array, cpu: float) -> float:
    """The one speed that explains instances of which `part` run at each `speed`, with a share `cpu` of CPU work.

    Faster instances take more of the records. With $u$ that speed, those that take CPU work only are $v/u$ times as
    quick, and $\\sum f(u-v)/(cu+(1-c)v)=0$: the arithmetic mean if all is CPU work, the harmonic one if next to none.

    >>> [round(together(np.array([2.0, 0.5]), np.array([0.5, 0.5]), cpu), 3) for cpu in (1.0, 0.5, 0.0)]
    [1.25, 1.0, 0.8]
    """
    u = float((part * speed).sum())
    for _ in range(_ROUNDS if len(speed) > 1 else 0):
        weight = part / (cpu * u + (1 - cpu) * speed)
        u = float((weight * speed).sum() / weight.sum())
    return u
