"""Machines, the links between them, and who puts which instance where."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..core import Topology
from ..errors import KnobError
from ..knobs import Knobs, knob

Places = Mapping[tuple[str, int], str]  # (operator, index of the instance) -> node
Scheduler = Callable[[Topology, Mapping[str, int], Sequence[str]], Places]


@dataclass(frozen=True)
class Node(Knobs):
    """A machine: instances on it share its cores fairly."""

    cores: int = knob(16, "cores that instances share", low=1, high=4096)
    speed: float = knob(1.0, "how much faster than the machine that service times were measured on", low=1e-3, high=1e3)
    overhead_cores: float = knob(0.0, "cores that the engine takes for itself", low=0.0, high=4096.0)
    overhead_share: float = knob(0.0, "cores that the engine takes for each core of work", low=0.0, high=100.0)
    availability: float = knob(1.0, "share of the time it is up; `faults.outages` makes a timetable", low=0.0, high=1.0)
    cost_per_hour: float = knob(0.0, "what it costs while it is in use", low=0.0, high=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overhead_cores >= self.cores:
            raise KnobError(
                f"overhead_cores={self.overhead_cores:g} of {self.cores} cores",
                expected="some part of a core left for the job",
                fix="give the node more cores",
            )

    @property
    def cores_for_work(self) -> float:
        """What the engine leaves: with u cores of work it takes `overhead_cores` + u x `overhead_share` more."""
        return (self.cores - self.overhead_cores) / (1 + self.overhead_share)


@dataclass(frozen=True)
class Link(Knobs):
    """What lies between two nodes. Within a node records move at once."""

    delay_s: float = knob(0.0, "time a record takes from node to node", low=0.0, high=3600.0, unit="s")
    bandwidth_bytes_per_s: float = knob(
        math.inf, "bytes a second that pass", low=1e-3, high=math.inf, unit="B/s", infinite=True
    )
    availability: float = knob(1.0, "share of the time it is up, for placement", low=0.0, high=1.0)


def round_robin(topology: Topology, parallelism: Mapping[str, int], nodes: Sequence[str]) -> dict[tuple[str, int], str]:
    """Instances in turn over the nodes, operator by operator, as Storm's default scheduler does.

    >>> round_robin(Topology.chain("a", "b"), {"a": 1, "b": 2}, ["n1", "n2"])
    {('a', 0): 'n1', ('b', 0): 'n2', ('b', 1): 'n1'}
    """
    instances = [(name, i) for name in topology.order for i in range(parallelism[name])]
    return {instance: nodes[j % len(nodes)] for j, instance in enumerate(instances)}


def packed(topology: Topology, parallelism: Mapping[str, int], nodes: Sequence[str]) -> dict[tuple[str, int], str]:
    """As many neighbours on one node as an equal share allows: fewer records cross the network."""
    instances = [(name, i) for name in topology.order for i in range(parallelism[name])]
    each = math.ceil(len(instances) / len(nodes))
    return {instance: nodes[j // each] for j, instance in enumerate(instances)}
