"""What one operator costs: time, variation, cores, state, room, and what it calls outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob

DISTRIBUTIONS = ("exponential", "deterministic", "gamma")


@dataclass(frozen=True)
class Service(Knobs):
    """One operator's true cost.

    With k instances a record takes $s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ seconds of one instance: the universal
    scalability law, so that k instances do $k/s$ over that factor records/s [gunther2007usl].

    A queue that is full either holds back who feeds it ("block") or refuses what comes ("drop"); an infinite one does
    neither. A source's queue is its log: endless, unless `overflow` is "drop", as where nothing keeps the input.
    """

    seconds_per_record: float = knob(1e-3, "$s$: time one instance spends on a record", low=1e-9, high=1e3, unit="s")
    selectivity: float | Mapping[str, float] = 1.0  # records sent for each processed, along each edge; or by its end
    contention: float = knob(0.0, "$\\sigma$: share of the work that instances queue for", low=0.0, high=1.0)
    coherency: float = knob(0.0, "$\\kappa$: cost of keeping instances in step", low=0.0, high=1.0)
    queue_records: float = knob(
        1000.0, "room in front of one instance; full, it holds back who feeds it", low=1.0, high=math.inf, infinite=True
    )
    results: float = knob(1.0, "of a sink only: results for each record processed", low=0.0, high=math.inf)
    distribution: str = knob("exponential", "how service times vary from record to record", choices=DISTRIBUTIONS)
    cv: float = knob(1.0, "coefficient of variation of gamma service times", low=1e-3, high=10.0)
    io_share: float = knob(0.0, "part of the time that takes no CPU", low=0.0, high=1.0)
    state_bytes: float = knob(0.0, "state of the whole operator, over all instances", low=0.0, high=1e15, unit="B")
    record_bytes: float = knob(100.0, "size of each record it sends", low=0.0, high=1e12, unit="B")
    overflow: str = knob("block", "what a full queue does", choices=("block", "drop"))
    ceiling_per_s: float = knob(
        math.inf,
        "calls/s that one external server takes; all instances call it for each record and wait for the answer",
        low=1e-6,
        high=math.inf,
        unit="records/s",
        infinite=True,
    )
    grouping: str = knob(
        "shared",
        "instances take from one queue, or each has its own and gets records at random",
        choices=("shared", "split"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.selectivity, Mapping):
            values = FrozenMap({child: _selectivity(value) for child, value in self.selectivity.items()})
            object.__setattr__(self, "selectivity", values)
        else:
            object.__setattr__(self, "selectivity", _selectivity(self.selectivity))
        if self.overflow == "drop" and math.isinf(self.queue_records):
            raise KnobError(
                "an endless queue that drops", expected="queue_records where overflow='drop'", fix="bound the queue"
            )

    def toward(self, child: str) -> float:
        """Records sent to `child` for each record processed."""
        return self.selectivity[child] if isinstance(self.selectivity, Mapping) else self.selectivity

    def seconds(self, parallelism: int) -> float:
        """Time of one instance for a record when `parallelism` instances run, external calls apart."""
        k = parallelism
        return self.seconds_per_record * (1 + self.contention * (k - 1) + self.coherency * k * (k - 1))

    @property
    def variation(self) -> float:
        """Coefficient of variation of service times."""
        return {"exponential": 1.0, "deterministic": 0.0, "gamma": self.cv}[self.distribution]


def _selectivity(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < math.inf:
        raise KnobError(f"selectivity {value!r}", expected="a finite number >= 0", fix="records out per in")
    return float(value)
