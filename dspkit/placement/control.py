"""The loops around ODRP and EDRP: plan before rates are known (Algorithm 6), and follow them (chapter 8) [nardelli]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..errors import PlacementError
from .downtime import Downtime
from .elastic import ElasticAnswer, ElasticWeights, adapt
from .problem import Problem
from .replica_metrics import ReplicaRanges, ReplicaWeights
from .replica_problem import ReplicaProblem
from .replica_program import Limits
from .replicate import ReplicaAnswer, replicate

FIRST = ElasticWeights(0.5, 0.5, 0.0)


def with_rates(problem: ReplicaProblem, rate_per_s: Any, source_rate_per_s: Mapping[str, float]) -> ReplicaProblem:
    """The same problem with the rates of its streams (one for all, in order, or by ends) and of its sources.

    >>> from dspkit import placement
    >>> with_rates(placement.replica_example(), 0, {"1": 0}).load_per_s
    array([0., 0., 0.])
    """
    base = problem.problem
    application = replace(base.application, rate_per_s=rate_per_s)
    return replace(
        problem, problem=Problem(application, base.network, base.candidates), source_rate_per_s=source_rate_per_s
    )


def schedule(
    problem: ReplicaProblem,
    enact: Callable[[dict[str, tuple[str, ...]]], object],
    measure: Callable[[], tuple[Any, Mapping[str, float]]],
    weights: ReplicaWeights | str = "response_s",
    ranges: ReplicaRanges | None = None,
    *,
    early: ReplicaWeights | str = "cost",
    **limits: Any,
) -> tuple[ReplicaAnswer, ReplicaAnswer]:
    """Two phases: run the plan of an application without load, measure the rates of streams and sources, plan again.

    `enact` is given {operator: nodes}. Call it again when a worker has failed, with a problem without that node.
    """
    for name, given in (("enact", enact), ("measure", measure)):
        if not callable(given):
            raise PlacementError(f"{name} = {given!r}"[:80], expected="a function", fix="pass one")
    idle = with_rates(problem, 0.0, {})
    first = replicate(idle, early, **limits)
    enact(first.named)
    measured = measure()
    if not isinstance(measured, tuple) or len(measured) != 2 or not isinstance(measured[1], Mapping):
        raise PlacementError(
            f"measured {measured!r}"[:80], expected="(rates of streams, {source: rate})", fix="correct `measure`"
        )
    second = replicate(with_rates(problem, *measured), weights, ranges, **limits)
    enact(second.named)
    return first, second


def follow(
    moments: Iterable[Downtime],
    weights: ElasticWeights,
    limits: Limits,
    *,
    first: ElasticWeights = FIRST,
    **settings: Any,
) -> Iterator[ElasticAnswer]:
    """EDRP's control loop: each moment has the rates and delays of its time; what was decided runs at the next one.

    The first deployment is that of response time and cost alone. `settings` are those of `adapt`. A node that a later
    moment does not have counts as lost.
    """
    running = None
    for moment in moments:
        found = adapt(moment, running, first if running is None else weights, limits, **settings)
        running = found.named
        yield found
