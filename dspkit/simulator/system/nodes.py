"""Nodes, the links between them, and the schedulers that place instances on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...core import KnobError, Knobs, Topology, assign_in_turn, instances_of, knob

Places = Mapping[tuple[str, int], str]  # (operator, index of the instance) -> node
Scheduler = Callable[[Topology, Mapping[str, int], Sequence[str]], Places]


@dataclass(frozen=True)
class Node(Knobs):
    """A node whose cores are shared fairly by the instances on it.

    Examples
    --------
    >>> Node(cores=8, overhead_cores=1).cores_for_work
    7.0
    """

    cores: int = knob(16, "cores that instances share", low=1, high=4096)
    speed: float = knob(1.0, "speed relative to the machine that service times were measured on", low=1e-3, high=1e3)
    overhead_cores: float = knob(0.0, "cores that the engine uses for itself", low=0.0, high=4096.0)
    overhead_share: float = knob(0.0, "cores that the engine uses per core of work", low=0.0, high=100.0)
    availability: float = knob(1.0, "share of the time it is up; `outages` draws failures", low=0.0, high=1.0)
    cost_per_hour: float = knob(0.0, "cost while it is in use", low=0.0, high=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overhead_cores >= self.cores:
            raise KnobError(
                f"overhead_cores={self.overhead_cores:g} of {self.cores} cores",
                expected="less than all cores of the node",
                fix="give the node more cores",
            )

    @property
    def cores_for_work(self) -> float:
        """Cores left by the engine: with u cores of work it uses `overhead_cores` + u x `overhead_share` more."""
        return (self.cores - self.overhead_cores) / (1 + self.overhead_share)


@dataclass(frozen=True)
class Link(Knobs):
    """The network between two nodes. Within a node records move without delay.

    Examples
    --------
    >>> Link(delay_s=0.001).bandwidth_bytes_per_s
    inf
    """

    delay_s: float = knob(0.0, "time of a record from node to node", low=0.0, high=3600.0, unit="s")
    bandwidth_bytes_per_s: float = knob(math.inf, "bandwidth", low=1e-3, high=math.inf, unit="B/s", infinite=True)
    availability: float = knob(1.0, "share of the time it is up, for placement", low=0.0, high=1.0)


def round_robin(topology: Topology, parallelism: Mapping[str, int], nodes: Sequence[str]) -> dict[tuple[str, int], str]:
    """Assign instances to nodes in turn, operator by operator, as Storm's default scheduler does.

    Parameters
    ----------
    topology
        The operators.
    parallelism
        The number of instances per operator.
    nodes
        Names of the nodes, at least one.

    Examples
    --------
    >>> round_robin(Topology.chain("a", "b"), {"a": 1, "b": 2}, ["n1", "n2"])
    {('a', 0): 'n1', ('b', 0): 'n2', ('b', 1): 'n1'}
    """
    return assign_in_turn(instances_of(topology, parallelism), nodes)


def packed(topology: Topology, parallelism: Mapping[str, int], nodes: Sequence[str]) -> dict[tuple[str, int], str]:
    """Assign as many consecutive instances to one node as an equal share allows, for less traffic between nodes.

    Parameters
    ----------
    topology
        The operators.
    parallelism
        The number of instances per operator.
    nodes
        Names of the nodes, at least one.

    Examples
    --------
    >>> packed(Topology.chain("a", "b"), {"a": 2, "b": 2}, ["n1", "n2"])
    {('a', 0): 'n1', ('a', 1): 'n1', ('b', 0): 'n2', ('b', 1): 'n2'}
    """
    instances = instances_of(topology, parallelism)
    each = math.ceil(len(instances) / len(nodes))
    return {instance: nodes[j // each] for j, instance in enumerate(instances)}
