"""The monitor-analyse-plan-execute loop, which runs any policy on any backend:

observe -> Snapshot -> step -> Decision -> deploy -> Step
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from itertools import count
from typing import Any

from .errors import ArgumentError, DeploymentError, DspkitError, MetricError
from .history import History
from .metrics import Snapshot
from .parameters import call
from .policy import (
    Backend,
    Decision,
    Policy,
    PolicyError,
    PolicyKnobs,
    Step,
    changes,
    check_needs,
    why_text,
    words,
)
from .recovery import Recovery, RecoveryWatch
from .topology import Deployment, Topology
from .validation import choice

REFUSED = ("raise", "skip")  # what becomes of a run whose decision cannot be deployed
log = logging.getLogger("dspkit")

LONGEST_CHANGE_S = 300.0  # a change that takes longer is not waited for: it may never be over


def control_loop(
    policy: Policy,
    backend: Backend,
    *,
    steps: int | None = None,
    settle: int = 0,
    seed: int = 0,
    after: Step | None = None,
    act: bool = True,
    refused: str = "raise",
) -> Iterator[Step]:
    """Yield one Step per window: `steps` of them, or until the backend has no more.

    The backend must be able to change what the policy needs. A policy with several modes runs in the one for this
    backend (`PolicyKnobs.suited`); other requested changes that the backend does not support are left out of the
    decision, with a line in its `why`. With `act=False`, or on a backend that can change nothing, decisions
    are recorded and not deployed. The caller closes the backend.

    Parameters
    ----------
    policy : Policy
        The policy that decides from each window's snapshot.
    backend : Backend
        The job to observe and change.
    steps : int, optional
        Number of windows; by default, until the backend has no more.
    settle : int
        Windows after each change, also one from outside, that are observed without a decision: the papers' "policy
        running time".
    seed : int
        Seed of the policy's random choices.
    after : Step, optional
        An earlier step to continue from, with its index, its state and its remaining windows to settle.
    act : bool
        Whether to deploy the decisions.
    refused : {"raise", "skip"}
        Whether a deployment that does not fit the topology or the backend, such as one with too many slots, ends the
        run, or is skipped: then the present one is kept, and `why["refused"]` has the reason.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.ds2 import DS2
    >>> [step.rescaled for step in control_loop(DS2(), apps.word_count().simulator(), steps=4)]
    [True, False, False, False]
    """
    for name, value in (("steps", steps), ("settle", settle)):
        if value is not None and not (isinstance(value, int) and value >= 0):
            raise ArgumentError(f"{name}={value!r}", expected="a count from 0 up", fix="leave steps out for no end")
    choice(refused, "refused", REFUSED)
    act = act and bool(backend.knobs)
    if act:
        policy = _suited(policy, backend)
        check_needs(policy, backend)
    known = after.state if after else None
    state = policy.init(backend.topology, seed) if known is None else known
    return _mape(policy, backend, steps, settle, after, act, state, refused == "skip")


def _suited(policy: Policy, backend: Backend) -> Policy:
    """Return the policy in its mode for what the backend can change."""
    return policy.suited(backend.knobs) if isinstance(policy, PolicyKnobs) else policy


def _mape(
    policy: Policy,
    backend: Backend,
    steps: int | None,
    settle: int,
    after: Step | None,
    act: bool,
    state: Any,
    skips: bool,
) -> Iterator[Step]:
    first = after.index + 1 if after else 0
    waiting = min(after.settling, settle) if after else 0
    expected = after.deployment if after else None
    before = after.snapshot if after else None
    watch = RecoveryWatch()
    equal_t: float | None = None  # end of the last window with the deployment that was asked for
    for index in count(first) if steps is None else range(first, first + steps):
        snapshot = backend.observe()
        if snapshot is None:
            return
        _known(snapshot, backend.topology)
        snapshot = snapshot.following(before, backend.topology.edges)
        watch = watch.after(snapshot)
        watch = watch._replace(found=watch.found[-1:])
        before = snapshot = _with_last_change(snapshot, watch.last, before)
        if expected not in (None, snapshot.deployment):
            waiting = settle  # the deployment was changed from outside
        decision, rescaled = None, False
        if not backend.knobs or backend.deployment == snapshot.deployment:
            equal_t = snapshot.t
        elif equal_t is None:
            equal_t = snapshot.t - snapshot.window_s
        if snapshot.t - equal_t <= LONGEST_CHANGE_S and equal_t < snapshot.t:
            waiting = settle  # a change is still being carried out: the policy would ask for it again
        elif waiting:
            waiting -= 1
        else:
            where = f"{policy.name!r} in window {index} (t = {snapshot.t:g} s) on {type(backend).__name__}"
            try:
                state, decision = _answer(policy.step(state, snapshot), where)
                if act:
                    decision = _possible(decision, snapshot.deployment, backend)
                    decision = _fitting(decision, snapshot.deployment, backend, skips)
            except Exception as error:
                error.add_note(f"in step() of policy {where}")
                raise
            if act:
                decision, rescaled = _deploy(policy, backend, snapshot, decision, skips)
        waiting = settle if rescaled else waiting
        step = Step(index, snapshot, decision, rescaled, waiting, state)
        expected = step.deployment
        yield step


def _with_last_change(snapshot: Snapshot, last: Recovery | None, before: Snapshot | None) -> Snapshot:
    """Return the snapshot with the cost of the last change, which may be that of an earlier run's end."""
    if last is not None:
        return replace(snapshot, last_change_t=last.t, last_change_s=max(last.downtime_s, last.lost_s))
    if before is not None and before.last_change_t is not None:
        return replace(snapshot, last_change_t=before.last_change_t, last_change_s=before.last_change_s)
    return snapshot


def _answer(returned: Any, where: str) -> tuple[Any, Decision]:
    """Return the result of step() if it is a state and a Decision of a Deployment."""
    if isinstance(returned, tuple) and len(returned) == 2:
        state, decision = returned
        if isinstance(decision, Decision) and isinstance(decision.deployment, Deployment):
            return state, decision
        whole = isinstance(decision, Decision)
        got = f"a Decision of {_kind(decision.deployment)}" if whole else f"(state, {_kind(decision)})"
    else:
        got = _kind(returned)
    raise PolicyError(
        f"{got} from step() of policy {where}",
        expected="the next state and a Decision",
        fix="end step() with: return state, Decision(deployment, why)",
    )


def _kind(thing: Any) -> str:
    if thing is None:
        return "None"
    name = type(thing).__name__
    return f"a bare {name}" if isinstance(thing, (Decision, Deployment)) else f"{name} {thing!r:.60}"


def _possible(decision: Decision, before: Deployment, backend: Backend) -> Decision:
    """Return the decision without the changes that the backend does not support."""
    wanted = decision.deployment
    kept = {name: getattr(before, name) for name in ("workers", "settings") if name not in backend.knobs}
    if "parallelism" not in backend.knobs:
        kept["parallelism"] = before.parallelism
        runs = {
            place: node for place, node in wanted.placement.items() if place[1] < before.parallelism.get(place[0], 0)
        }
        kept["placement"] = runs
    if "placement" not in backend.knobs:
        kept["placement"] = before.scaled(kept.get("parallelism", wanted.parallelism)).placement
    possible = replace(wanted, **kept) if any(getattr(wanted, n) != value for n, value in kept.items()) else wanted
    if possible == wanted:
        return decision
    left = f"{changes(possible, wanted)}: {type(backend).__name__} can change {words(backend.knobs)} only"
    return Decision(possible, {**decision.why, "left out": left})


def _fitting(decision: Decision, before: Deployment, backend: Backend, skips: bool) -> Decision:
    """Return the decision if its deployment fits the topology; one that does not is refused."""
    try:
        backend.topology.check(decision.deployment)
    except DspkitError as error:
        if not skips:
            raise
        return _refusal(decision, before, error)
    return decision


def _refusal(decision: Decision, before: Deployment, error: DspkitError) -> Decision:
    """Return the decision to stay, with the refused wish and the reason in `why`."""
    log.warning("skipped %s: %s", changes(before, decision.deployment), error)
    return Decision(before, {**decision.why, "refused": f"{changes(before, decision.deployment)}: {error}"})


def _deploy(
    policy: Policy, backend: Backend, snapshot: Snapshot, decision: Decision, skips: bool
) -> tuple[Decision, bool]:
    """Deploy a decision; return it, or the refusal in its place, and whether it changed anything."""
    before, after = snapshot.deployment, decision.deployment
    if after == before:
        return decision, False
    said = f"t={snapshot.t:g} {policy.name}: {changes(before, after)} ({why_text(decision.why)})"
    try:
        backend.deploy(after)
    except DeploymentError as error:
        if skips:
            return _refusal(decision, before, error), False
        error.add_note(f"while deploying {said}")
        raise
    except Exception as error:
        error.add_note(f"while deploying {said}")
        raise
    log.info(said)
    return decision, True


def record(
    history: History,
    policy: Policy,
    backend: Backend,
    *,
    steps: int | None = None,
    settle: int = 0,
    seed: int = 0,
    act: bool = True,
    refused: str = "raise",
) -> Iterator[Step]:
    """Yield the steps of `control_loop`, each once the history contains it; the metadata is set from the start.

    Parameters
    ----------
    history : History
        The history to append to, which is complete also if the run is interrupted.
    policy, backend, steps, settle, seed, act, refused
        As for `control_loop`.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.static import Static
    >>> job = apps.star().simulator()
    >>> history = History(job.topology)
    >>> [len(history) for step in record(history, Static(), job, steps=3)]
    [1, 2, 3]
    """
    loop = control_loop(policy, backend, steps=steps, settle=settle, seed=seed, act=act, refused=refused)
    history.set_metadata(describe(policy, backend, settle=settle, seed=seed))
    return _record(history, loop)


def _record(history: History, loop: Iterator[Step]) -> Iterator[Step]:
    for step in loop:
        history.append(step)
        yield step


def run(policy: Policy, backend: Backend, *, history: History | None = None, **options: Any) -> History:
    """Return the steps of `control_loop` as a History; the backend stays open.

    `dspkit.run` also accepts names and applications.

    Parameters
    ----------
    policy : Policy
        The policy that decides from each window's snapshot.
    backend : Backend
        The job to observe and change.
    history : History, optional
        An empty history, which keeps the recorded steps if the run is interrupted.
    **options
        `steps`, `settle`, `seed`, `act` and `refused` of `control_loop`.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.ds2 import DS2
    >>> len(run(DS2(), apps.star().simulator(), steps=4))
    4
    """
    history = History(backend.topology) if history is None else history
    for _ in record(history, policy, backend, **options):
        pass
    return history


def run_together(
    policies: Mapping[str, Policy], backends: Mapping[str, Backend], *, steps: int, settle: int = 0, seed: int = 0
) -> dict[str, History]:
    """Run several backends window by window, each with its own policy, such as the tenants of a cluster.

    Parameters
    ----------
    policies, backends : mapping
        Policy and backend by name of the job.
    steps, settle, seed
        As for `control_loop`; the same for all jobs.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.static import Static
    >>> jobs = {"a": apps.star().simulator(), "b": apps.word_count().simulator()}
    >>> {name: len(h) for name, h in run_together(dict.fromkeys(jobs, Static()), jobs, steps=3).items()}
    {'a': 3, 'b': 3}
    """
    if set(policies) != set(backends) or not policies:
        raise ArgumentError(
            f"policies for {sorted(policies)}", expected=f"one for each of {sorted(backends)}", fix="use the same names"
        )
    histories = {name: History(backends[name].topology) for name in policies}
    loops = [
        record(histories[name], policy, backends[name], steps=steps, settle=settle, seed=seed)
        for name, policy in policies.items()
    ]
    for _ in range(steps):
        for loop in loops:
            next(loop, None)  # no step once a recording has ended
    return histories


def describe(policy: Policy, backend: Backend, **more: Any) -> dict[str, Any]:
    """Return the metadata of a run: policy, backend, version and further entries.

    Parameters
    ----------
    policy : Policy
        The policy that runs.
    backend : Backend
        The backend that it runs on.
    **more
        Further entries, such as the seed.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.static import Static
    >>> describe(Static(), apps.star().simulator(), seed=1)["policy"]
    'Static()'
    """
    from .. import __version__

    shown = call(policy) if is_dataclass(policy) else repr(policy)
    about = {"policy": shown, "backend": repr(backend), **more, "dspkit": __version__}
    return about | ({"reference": policy.reference} if hasattr(policy, "reference") else {})


def _known(snapshot: Snapshot, topology: Topology) -> None:
    measured: dict[str, tuple[Iterable[Any], Iterable[Any]]] = {
        "operators": (snapshot.operators, topology.order),
        "sources": (snapshot.source_rates, topology.sources),
        "edges": ({**snapshot.edge_rates, **snapshot.last_selectivities}, topology.edges),
    }
    for what, (got, known) in measured.items():
        if unknown := set(got) - set(known):
            raise MetricError(
                f"metrics of unknown {what} {sorted(unknown)}",
                expected=f"some of {sorted(known)}",
                fix="make the backend report under the topology's names",
            )
