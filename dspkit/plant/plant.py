"""A simulated cluster: how fast each operator works, on which nodes, and what a change or a fault costs.

Policies never see a plant; they see what a backend measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from ..core import LAWS, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from . import faults as faulty
from .cluster import Link, Node
from .faults import Fault
from .service import Service

_WITHIN = Link()  # a node: records move at once
PAUSES = ("rebalance", "restart", "savepoint", "in-place", "migration", "instances")
JOINING = ("spread", "together", "apart")


@dataclass(frozen=True)
class Plant(Knobs):
    """A simulated cluster: a Service for each operator, nodes and links, the pause of a rescale, noise, faults.

    In a "pipeline" operators work at the same time. In "sequential" the job works in micro-batches: every `trigger_s`
    seconds, or as soon as the last one is done, what has come in goes through one operator after the other. There
    queues between operators play no part: records stay in the logs until their batch has ended.

    With `processes` instances share Storm's worker processes, whose receiving threads a full instance blocks (see
    `processes.py`); each then has a queue of its own. The "tuples" engine knows them, the fluid does not.
    """

    services: Mapping[str, Service]
    nodes: Mapping[str, Node] = field(default_factory=lambda: {f"node-{i}": Node() for i in range(1, 5)})
    pause_s: float = knob(10.0, "how long a rescale stops what it stops, state apart", low=0.0, high=3600.0, unit="s")
    noise: float = knob(0.0, "coefficient of variation of service times from window to window", low=0.0, high=1.0)
    pause_kind: str = knob("rebalance", "what a rescale stops, and which state it moves", choices=PAUSES)
    state_bytes_per_s: float = knob(
        math.inf, "speed at which state is saved, restored or moved", low=1.0, high=math.inf, unit="B/s", infinite=True
    )
    network: Link = field(default_factory=Link)  # between any two nodes that `links` does not name
    links: Mapping[tuple[str, str], Link] = field(default_factory=FrozenMap)  # either direction, unless both are given
    law: str = knob("pipeline", "how operators share the job's time", choices=LAWS)
    trigger_s: float = knob(0.1, "sequential: least time from batch to batch", low=1e-3, high=3600.0, unit="s")
    batch_overhead_s: float = knob(0.05, "sequential: time a batch takes beyond its work", low=0.0, high=60.0, unit="s")
    batch_records: float = knob(
        math.inf, "sequential: records that a batch takes at most", low=1.0, high=math.inf, infinite=True
    )
    processes: int = knob(0, "worker processes of a node, one receiving thread each; 0: without", low=0, high=64)
    joining: str = knob("spread", "which process of its node an instance joins that comes", choices=JOINING)
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("services", Service), ("nodes", Node)):
            object.__setattr__(self, name, _named(getattr(self, name), name, kind))
        if not self.nodes:
            raise KnobError("no nodes", expected="at least one", fix="leave nodes out for four of 16 cores")
        if self.processes and self.law != "pipeline":
            raise KnobError(
                f"processes={self.processes} with law={self.law!r}",
                expected="law='pipeline': micro-batches have no queues between operators",
                fix="leave processes out",
            )
        if not isinstance(self.network, Link):
            raise KnobError(f"network = {self.network!r}", expected="a Link", fix="as in Link(delay_s=0.001)")
        if not isinstance(self.links, Mapping):
            raise KnobError(
                f"links = {self.links!r}", expected="a mapping", fix="as in {('a', 'b'): Link(delay_s=0.01)}"
            )
        for ends, link in self.links.items():
            if not (
                isinstance(ends, tuple)
                and len(set(ends)) == 2
                and set(ends) <= set(self.nodes)
                and isinstance(link, Link)
            ):
                raise KnobError(
                    f"links with {ends!r}: {link!r}",
                    expected=f"a Link for two of the nodes {sorted(self.nodes)}",
                    fix="as in {('node-1', 'node-2'): Link(delay_s=0.01)}",
                )
        object.__setattr__(self, "links", FrozenMap(self.links))
        object.__setattr__(self, "faults", faulty.check(self.faults, self.nodes, self.services))

    def link(self, start: str, end: str) -> Link:
        """What lies between two nodes, named in either order."""
        if start == end:
            return _WITHIN
        return self.links.get((start, end)) or self.links.get((end, start)) or self.network

    def cost_per_hour(self, nodes: Any) -> float:
        """What these nodes cost while they are in use."""
        return sum(self.nodes[name].cost_per_hour for name in set(nodes))

    def check(self, topology: Topology) -> Plant:
        """This plant, or an error that says how it does not fit `topology`."""
        names = {o.name for o in topology.operators}
        if set(self.services) != names:
            raise KnobError(
                f"services for {sorted(self.services)}", expected=f"one for each of {sorted(names)}", fix="name them so"
            )
        for name, service in self.services.items():
            children = set(topology.downstream(name))
            if isinstance(service.selectivity, Mapping) and set(service.selectivity) != children:
                raise KnobError(
                    f"selectivity of {name!r} toward {sorted(service.selectivity)}",
                    expected=f"one toward each of {sorted(children)}",
                    fix="pass a single number, or one for each edge",
                )
            if children and service.results != 1:
                raise KnobError(
                    f"results={service.results:g} of {name!r}, which feeds {sorted(children)}",
                    expected="results of sinks only",
                    fix="what goes to other operators is its selectivity",
                )
        return self


def _named(things: Any, what: str, kind: type) -> FrozenMap[str, Any]:
    if not isinstance(things, Mapping):
        raise KnobError(
            f"{what} = {things!r}", expected="a mapping by name", fix=f"pass {{name: {kind.__name__}(...)}}"
        )
    for name, thing in things.items():
        if not isinstance(name, str) or not isinstance(thing, kind):
            raise KnobError(
                f"{what} with {name!r}: {thing!r}",
                expected=f"a {kind.__name__} for each name",
                fix=f"wrap it: {kind.__name__}({thing!r})" if isinstance(thing, Real) else "correct the mapping",
            )
    return FrozenMap(things)
