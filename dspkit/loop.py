"""The monitor-analyse-plan-execute loop: any policy on any backend.

observe -> Snapshot -> step -> Decision -> deploy -> Step
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from itertools import count, islice
from typing import Any

from .core import Backend, Decision, Policy, Snapshot, Step, Topology
from .errors import KnobError, MetricError
from .history import History, changes, why_text
from .knobs import call

log = logging.getLogger("dspkit")


def mape(
    policy: Policy,
    backend: Backend,
    *,
    steps: int | None = None,
    settle: int = 0,
    seed: int = 0,
    after: Step | None = None,
    act: bool = True,
) -> Iterator[Step]:
    """Yield one Step a window: `steps` of them, or until the backend has no more.

    `settle` windows after each change, whoever made it, are observed and not decided on: the papers' "policy running
    time". `after` goes on from an earlier step: its index, its state, and what it still had to settle. With
    `act=False`, or on a backend that can change nothing, decisions are recorded and not deployed. The backend is the
    caller's to close.
    """
    for name, value in (("steps", steps), ("settle", settle)):
        if value is not None and not (isinstance(value, int) and value >= 0):
            raise KnobError(f"{name}={value!r}", expected="a count from 0 up", fix="leave steps out for no end")
    known = after.state if after else None
    state = policy.init(backend.topology, seed) if known is None else known
    return _mape(policy, backend, steps, settle, after, act and bool(backend.knobs), state)


def _mape(
    policy: Policy, backend: Backend, steps: int | None, settle: int, after: Step | None, act: bool, state: Any
) -> Iterator[Step]:
    first = after.index + 1 if after else 0
    waiting = min(after.settling, settle) if after else 0
    expected = after.deployment if after else None
    for index in count(first) if steps is None else range(first, first + steps):
        snapshot = backend.observe()
        if snapshot is None:
            return
        _known(snapshot, backend.topology)
        if expected not in (None, snapshot.deployment):
            waiting = settle  # somebody else changed it
        decision, rescaled = None, False
        if waiting:
            waiting -= 1
        else:
            state, decision = policy.step(state, snapshot)
            rescaled = act and _deploy(policy, backend, snapshot, decision)
        waiting = settle if rescaled else waiting
        step = Step(index, snapshot, decision, rescaled, waiting, state)
        expected = step.deployment
        yield step


def _deploy(policy: Policy, backend: Backend, snapshot: Snapshot, decision: Decision) -> bool:
    """Carry a decision out; whether it changed anything."""
    before, after = snapshot.deployment, decision.deployment
    backend.topology.check(after)
    if after == before:
        return False
    said = f"t={snapshot.t:g} {policy.name}: {changes(before, after)} ({why_text(decision.why)})"
    try:
        backend.deploy(after)
    except Exception as error:
        error.add_note(f"while deploying {said}")
        raise
    log.info(said)
    return True


def run(
    policy: Policy,
    backend: Backend,
    *,
    steps: int | None = None,
    settle: int = 0,
    seed: int = 0,
    act: bool = True,
    history: History | None = None,
) -> History:
    """The steps of `mape` as a History; the backend stays open.

    Pass an empty `history` to keep what was recorded if the run is interrupted.
    """
    history = History(backend.topology) if history is None else history
    history.tell(describe(policy, backend, settle=settle, seed=seed))
    for step in mape(policy, backend, steps=steps, settle=settle, seed=seed, act=act):
        history.append(step)
    return history


def run_together(
    policies: Mapping[str, Policy], backends: Mapping[str, Backend], *, steps: int, settle: int = 0, seed: int = 0
) -> dict[str, History]:
    """Drive backends side by side, window by window, each by a policy of its own: the tenants of a cluster, say."""
    if set(policies) != set(backends) or not policies:
        raise KnobError(
            f"policies for {sorted(policies)}", expected=f"one for each of {sorted(backends)}", fix="name them so"
        )
    loops = {a: mape(p, backends[a], steps=steps, settle=settle, seed=seed) for a, p in policies.items()}
    histories = {a: History(backends[a].topology) for a in policies}
    for a, history in histories.items():
        history.tell(describe(policies[a], backends[a], settle=settle, seed=seed))
    for _ in range(steps):
        for a, loop in loops.items():
            for step in islice(loop, 1):  # none where a recording has ended
                histories[a].append(step)
    return histories


def describe(policy: Policy, backend: Backend, **more: Any) -> dict[str, Any]:
    """What a report has to say about a run."""
    from . import __version__

    shown = call(policy) if is_dataclass(policy) else repr(policy)
    told = {"policy": shown, "backend": repr(backend), **more, "dspkit": __version__}
    return told | ({"reference": policy.reference} if hasattr(policy, "reference") else {})


def _known(snapshot: Snapshot, topology: Topology) -> None:
    measured: dict[str, tuple[Iterable[Any], Iterable[Any]]] = {
        "operators": (snapshot.operators, topology.order),
        "sources": (snapshot.source_rates, topology.sources),
        "edges": (snapshot.edge_rates, topology.edges),
    }
    for what, (came, known) in measured.items():
        if unknown := set(came) - set(known):
            raise MetricError(
                f"metrics of unknown {what} {sorted(unknown)}",
                expected=f"some of {sorted(known)}",
                fix="make the backend report under the topology's names",
            )
