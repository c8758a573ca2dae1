"""Our claims on speed and size, measured by `make bench`; one file per topic, one function per claim.

To add a claim, write a public function in `benchmarks/<topic>.py` that returns a `Claim`, by which it is found.
Measure a rival in the same run (`side_by_side`) if there is one, and claim the ratio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Claim:
    """A measured value and its target; `detail` has the measurements that it was computed from.

    >>> Claim(131.0, "x", target=100).holds, Claim(0.4, "s", target=0.3, better="lower").holds
    (True, False)
    """

    value: float
    unit: str
    target: float
    better: Literal["higher", "lower"] = "higher"
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return self.value >= self.target if self.better == "higher" else self.value <= self.target


def side_by_side(rivals: Mapping[str, Callable[[], object]], repeats: int = 5) -> dict[str, float]:
    """Return the median seconds of each rival; they run in turns, so that other load on the machine affects all.

    The first turn is not counted: it fills caches, and compiles functions that are compiled on first use.
    """
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(repeats + 1):
        for name, rival in rivals.items():
            started = time.perf_counter()
            rival()
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}
