"""The monitor-analyse-plan-execute loop: any policy on any backend.

observe -> Snapshot -> step -> Decision -> deploy -> Step
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from .core import Backend, Policy, Snapshot, Step, Topology
from .errors import KnobError, MetricError
from .history import History, changes, why_text
from .knobs import call

log = logging.getLogger("dspkit")
_START = object()


def mape(
    policy: Policy, backend: Backend, *, steps: int | None, settle: int = 0, seed: int = 0, state: Any = _START
) -> Iterator[Step]:
    """Yield one Step a window, `steps` times or, with None, for ever.

    `settle` windows after each change are observed and not decided on: the papers' "policy running time". Pass the
    `state` of an earlier Step to go on from there. The backend is the caller's to close.
    """
    if settle < 0 or (steps is not None and steps < 0):
        raise KnobError(f"steps={steps}, settle={settle}", expected="counts >= 0", fix="pass None for endless steps")
    topology = backend.topology
    state = policy.init(topology, seed) if state is _START else state
    waiting, index = 0, 0
    while steps is None or index < steps:
        snapshot = backend.observe()
        _known(snapshot, topology)
        decision = None
        if waiting:
            waiting -= 1
        else:
            state, decision = policy.step(state, snapshot)
            topology.check(decision.deployment)
        step = Step(index, snapshot, decision, state)
        if decision is not None and step.rescaled:
            backend.deploy(decision.deployment)
            waiting = settle
            log.info(
                "t=%g %s: %s (%s)",
                snapshot.t,
                policy.name,
                changes(snapshot.deployment, decision.deployment),
                why_text(decision.why),
            )
        yield step
        index += 1


def run(policy: Policy, backend: Backend, *, steps: int, settle: int = 0, seed: int = 0) -> History:
    """All the steps of `mape` as a History; the backend stays open."""
    history = History(backend.topology, about=describe(policy, backend, settle=settle, seed=seed))
    for step in mape(policy, backend, steps=steps, settle=settle, seed=seed):
        history.append(step)
    return history


def describe(policy: Policy, backend: Backend, **more: Any) -> dict[str, Any]:
    """What a report has to say about a run."""
    from . import __version__

    shown = call(policy) if is_dataclass(policy) else repr(policy)
    told = {"policy": shown, "backend": repr(backend), **more, "dspkit": __version__}
    return told | ({"reference": policy.reference} if hasattr(policy, "reference") else {})


def _known(snapshot: Snapshot, topology: Topology) -> None:
    names = {o.name for o in topology.operators}
    if unknown := (set(snapshot.operators) | set(snapshot.source_rates)) - names:
        raise MetricError(
            f"metrics of unknown operators {sorted(unknown)}",
            expected=f"some of {sorted(names)}",
            fix="make the backend report under the topology's names",
        )
