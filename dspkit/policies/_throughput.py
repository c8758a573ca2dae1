r"""The throughput base: the least parallelism whose true rates sustain the load (AuTraScale's Eq. 3 and its repair).

    | paper | here |
    |---|---|
    | $v_e$ | offered rate of a source |
    | $\bar v_i$ | `true_rate`: of one instance that never waits |
    | $k_i$, $k'_i$ | parallelism now, and recommended |

$v^*_{i-1}k'_{i-1}/k_{i-1}=\bar v_{i-1}k'_{i-1}$: Eq. 3 hands the rounded-up capacity of an operator down to the
next ("literal", with selectivities; "printed" without them; for several parents their sum). "demand" hands down what
must be done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..core import OperatorMetrics, Snapshot, Topology
from .ds2 import demands, instant

MODES = ("demand", "literal", "printed")


class Trial(NamedTuple):
    """A configuration that the throughput phase ran, and what it recommended next."""

    k: tuple[int, ...]
    throughput: float
    offered: float
    wanted: tuple[int, ...]


def recommend(topology: Topology, seen: Snapshot, mode: str = "demand") -> tuple[dict[str, float], list[str]]:
    """Instances that each operator needs, unrounded and unbounded, and the operators of which that is not known.

    Those keep what they have. One that is faster than its clock can tell needs one instance.
    """
    now = seen.deployment.parallelism
    if mode == "demand":
        asked: Mapping[str, float | None] = demands(topology, seen)
        found = {n: _instances(asked[n], seen.operators.get(n)) for n in topology.order}
    else:
        found = {}
        for name in topology.order:
            came = _capacity(topology, seen, name, found, mode)
            found[name] = _instances(came, seen.operators.get(name))
    unknown = [n for n, k in found.items() if k is None]
    return {n: float(now[n]) if k is None else k for n, k in found.items()}, unknown


def _instances(rate: float | None, metrics: OperatorMetrics | None) -> float | None:
    if rate == 0:
        return 1.0
    if rate is None or metrics is None:
        return None
    if metrics.true_rate:
        return rate / metrics.true_rate
    return 1.0 if instant(metrics) else None


def _capacity(
    topology: Topology, seen: Snapshot, name: str, found: Mapping[str, float | None], mode: str
) -> float | None:
    """What comes to an operator if those above it run at full speed."""
    if not topology.upstream(name):
        return seen.source_rates.get(name)
    total = 0.0
    for parent in topology.upstream(name):
        metrics, k = seen.operators.get(parent), found[parent]
        share = 1.0 if mode == "printed" else seen.selectivity((parent, name))
        if metrics is None or k is None or share is None or not metrics.true_rate:
            return None
        total += share * metrics.true_rate * max(1, math.ceil(k - 1e-9))
    return total


def best(trials: Sequence[Trial], near: float = 0.02) -> Trial:
    """Of all that ran, the greatest throughput; within `near` of it, the fewest slots.

    More than was offered is no merit: it is a queue that drains.
    """
    reached = [min(t.throughput, t.offered) for t in trials]
    close = [t for t, x in zip(trials, reached, strict=True) if x >= (1 - near) * max(reached)]
    return min(close, key=lambda t: (sum(t.k), -t.throughput, t.k))
