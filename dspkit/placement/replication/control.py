"""The loops around ODRP and EDRP: planning without known rates (Algorithm 6), adaptation (chapter 8) [nardelli]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...core import PlacementError
from ..metrics import Limits, Ranges, Weights
from ..problem import Problem
from ..solution import Solution
from ..solvers.solve import solve
from .problem import Replication

FIRST = Weights(0.5, cost=0.5)


def with_rates(problem: Problem, rate_per_s: Any, source_rate_per_s: Mapping[str, float]) -> Problem:
    """Return the same problem with other rates.

    Parameters
    ----------
    problem
        A problem with replication.
    rate_per_s
        Records/s of its streams: one for all, in order, or by their ends.
    source_rate_per_s
        Records/s of its sources by name.

    Examples
    --------
    >>> from dspkit import placement
    >>> with_rates(placement.example("replicas"), 0, {"1": 0}).load_per_s
    array([0., 0., 0.])
    """
    return replace(
        problem,
        application=replace(problem.application, rate_per_s=rate_per_s),
        replication=replace(problem.replication or Replication(), source_rate_per_s=source_rate_per_s),
    )


def schedule(
    problem: Problem,
    enact: Callable[[dict[str, tuple[str, ...]]], object],
    measure: Callable[[], tuple[Any, Mapping[str, float]]],
    weights: Weights | str = "response_s",
    ranges: Ranges | None = None,
    *,
    early: Weights | str = "cost",
    **settings: Any,
) -> tuple[Solution, Solution]:
    """Deploy in two phases: run a plan for an application without load, measure its rates, and plan again.

    After the failure of a worker, call it again with a problem without that node.

    Parameters
    ----------
    problem
        A problem with replication.
    enact
        Function that deploys {operator: nodes}.
    measure
        Function that returns the rates of streams and {source: rate}.
    weights, ranges
        Objective of the second plan, as of `solve`.
    early
        Objective of the first plan.
    **settings
        As of `solve`.

    Examples
    --------
    >>> from dspkit import placement
    >>> deployed = []
    >>> first, second = schedule(placement.example("replicas"), deployed.append, lambda: (10, {"1": 10}))
    >>> [len(nodes["2"]) for nodes in deployed]
    [1, 2]
    """
    for name, given in (("enact", enact), ("measure", measure)):
        if not callable(given):
            raise PlacementError(f"{name} = {given!r}"[:80], expected="a function", fix="pass one")
    idle = with_rates(problem, 0.0, {})
    first = solve(idle, early, **settings)
    enact(first.nodes)
    measured = measure()
    if not isinstance(measured, tuple) or len(measured) != 2 or not isinstance(measured[1], Mapping):
        raise PlacementError(
            f"measured {measured!r}"[:80], expected="(rates of streams, {source: rate})", fix="correct `measure`"
        )
    second = solve(with_rates(problem, *measured), weights, ranges, **settings)
    enact(second.nodes)
    return first, second


def follow(
    moments: Iterable[Problem],
    weights: Weights,
    limits: Limits,
    *,
    first: Weights = FIRST,
    **settings: Any,
) -> Iterator[Solution]:
    """Yield EDRP's decisions, one per moment; each is the running deployment of the next moment.

    Parameters
    ----------
    moments
        Problems with downtime, each with the rates and delays of its moment. Replicas on a node that the next problem
        does not have count as lost.
    weights
        Weights of response time, cost and downtime.
    limits
        Values that must not be exceeded, and that normalise the weights.
    first
        Weights of the first deployment; by default response time and cost alone.
    **settings
        As of `solve`.

    Examples
    --------
    >>> from dspkit.placement.datasets import QUERY_LIMITS, SETTINGS, at_rate, taxi_query
    >>> hour = [at_rate(taxi_query(), rate) for rate in (70, 220)]
    >>> [sum(found.replicas.values()) for found in follow(hour, SETTINGS["balanced"], QUERY_LIMITS)]
    [8, 12]
    """
    running = None
    for moment in moments:
        found = solve(moment, first if running is None else weights, limits=limits, running=running, **settings)
        running = found.nodes
        yield found
