"""What a simulated cluster is: how fast each operator works, on which nodes, and what a change costs.

Policies never see a plant; they see what a backend measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from .core import Topology
from .errors import KnobError
from .frozen import FrozenMap
from .knobs import Knobs, knob


@dataclass(frozen=True)
class Service(Knobs):
    """One operator's true cost.

    With k instances a record takes $s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ seconds of one instance: the universal
    scalability law, so that k instances do $k/s$ over that factor records/s [gunther2007usl].
    """

    seconds_per_record: float = knob(1e-3, "$s$: time one instance spends on a record", low=1e-9, high=1e3, unit="s")
    selectivity: float | Mapping[str, float] = 1.0  # records sent for each processed, along each edge; or by its end
    contention: float = knob(0.0, "$\\sigma$: share of the work that instances queue for", low=0.0, high=1.0)
    coherency: float = knob(0.0, "$\\kappa$: cost of keeping instances in step", low=0.0, high=1.0)
    queue_records: float = knob(
        1000.0, "room in front of one instance; full, it holds back who feeds it", low=1.0, high=math.inf, infinite=True
    )
    results: float = knob(1.0, "of a sink only: results for each record processed", low=0.0, high=math.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.selectivity, Mapping):
            values = FrozenMap({child: _selectivity(value) for child, value in self.selectivity.items()})
            object.__setattr__(self, "selectivity", values)
        else:
            object.__setattr__(self, "selectivity", _selectivity(self.selectivity))

    def toward(self, child: str) -> float:
        """Records sent to `child` for each record processed."""
        return self.selectivity[child] if isinstance(self.selectivity, Mapping) else self.selectivity

    def seconds(self, parallelism: int) -> float:
        """Time of one instance for a record when `parallelism` instances run."""
        k = parallelism
        return self.seconds_per_record * (1 + self.contention * (k - 1) + self.coherency * k * (k - 1))


@dataclass(frozen=True)
class Node(Knobs):
    """A machine: instances on it share its cores fairly."""

    cores: int = knob(16, "cores that instances share", low=1, high=4096)


@dataclass(frozen=True)
class Plant(Knobs):
    """A simulated cluster: a Service for each operator, the nodes, the pause of a rescale, the noise."""

    services: Mapping[str, Service]
    nodes: Mapping[str, Node] = field(default_factory=lambda: {f"node-{i}": Node() for i in range(1, 5)})
    pause_s: float = knob(10.0, "how long a rescale stops the job", low=0.0, high=3600.0, unit="s")
    noise: float = knob(0.0, "coefficient of variation of service times from window to window", low=0.0, high=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("services", Service), ("nodes", Node)):
            object.__setattr__(self, name, _named(getattr(self, name), name, kind))
        if not self.nodes:
            raise KnobError("no nodes", expected="at least one", fix="leave nodes out for four of 16 cores")

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


def _selectivity(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise KnobError(f"selectivity {value!r}", expected="a finite number >= 0", fix="records out per in")
    return float(value)


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
