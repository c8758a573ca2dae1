"""The rules that policies and backends keep, each as a check.

A policy takes pure steps, has frozen settings, makes decisions that fit, and tolerates missing metrics. A backend has
contiguous windows, complete snapshots, and deployments that take effect.
"""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any, TypeVar

from ..core import (
    Backend,
    BackendError,
    Decision,
    Deployment,
    DeploymentError,
    DspkitError,
    Policy,
    Snapshot,
    Topology,
    call,
    control_loop,
    knobs_of,
)
from ..core.policy import KNOBS, needs_of
from ..simulator import Node, Plant, Service, Simulator
from ..workload import Square

C = TypeVar("C", bound=Callable[..., None])

CHAIN = Topology.chain("source", "work", "sink", max_parallelism=6)
EXAMPLES = 15  # number of random jobs
_HEAD = 5  # windows before the state is pickled, or a knob changed
BUSY = 0.05  # tolerance of processing rate = true rate x busy share, as meters are read one after the other


class ContractError(DspkitError, AssertionError):
    """A policy or a backend that breaks a rule; the message names both."""


def require(kept: bool, got: str, *, expected: str, fix: str) -> None:
    """Raise a ContractError unless the rule is kept."""
    if not kept:
        raise ContractError(got, expected=expected, fix=fix)


def rule(check: C) -> C:
    """Add the name of the check and its rule to its failures, whatever exception is raised."""

    @functools.wraps(check)
    def named(thing: Any, *args: Any, **options: Any) -> None:
        try:
            check(thing, *args, **options)
        except ContractError as error:
            error.add_note(f"{_name(thing)} breaks the rule {check.__name__}: {_sentence(check)}")
            raise
        except Exception as error:
            broken = ContractError(
                f"{type(error).__name__} ({error}) from {_name(thing)}",
                expected=f"none: {check.__name__}",
                fix=_sentence(check),
            )
            raise broken from error

    return named  # type: ignore[return-value]


def _name(thing: Any) -> str:
    name = getattr(thing, "name", None)
    return repr(name) if isinstance(name, str) else type(thing).__name__


def _sentence(check: Any) -> str:
    return (check.__doc__ or "").partition("\n")[0].rstrip(".")


def check_policy(policy: Policy, *, examples: int = EXAMPLES, only: Sequence[str] = ()) -> None:
    """Raise a ContractError at the first rule that a policy breaks.

    Parameters
    ----------
    policy : Policy
        The policy; settings with which it decides within a few windows make the check more effective.
    examples : int
        Number of random jobs to run it on, which requires hypothesis; 0 for none.
    only : sequence of str
        Names of the rules to check, out of `POLICY_CHECKS`; by default all.

    Examples
    --------
    >>> from dspkit.policies import Static
    >>> check_policy(Static(), examples=0)
    """
    for check in POLICY_CHECKS:
        if only and check.__name__ not in only:
            continue
        if check is decisions_fit:
            if examples:
                decisions_fit(policy, examples)
        else:
            check(policy)


@rule
def declares_itself(policy: Any) -> None:
    """A policy is a frozen dataclass with a name in lower case, a docstring, and help on each knob."""
    require(
        isinstance(policy, Policy) and not isinstance(policy, type),
        f"{policy!r:.60}",
        expected="an instance of a policy: name, init() and step()",
        fix="see policies/_template.py",
    )
    require(is_dataclass(policy), f"{type(policy).__name__}", expected="a dataclass", fix="as @dataclass(frozen=True)")
    name = policy.name
    require(
        isinstance(name, str) and name == name.lower() and bool(name.strip()),
        f"name {name!r}",
        expected="a name in lower case",
        fix='as in name: ClassVar[str] = "mine"',
    )
    words = (type(policy).__doc__ or "").strip()
    require(
        bool(words) and not words.startswith(f"{type(policy).__name__}("),
        "no docstring",
        expected="the algorithm in a sentence",
        fix="notebooks show it",
    )
    for f in fields(policy):
        try:
            setattr(policy, f.name, getattr(policy, f.name))
        except FrozenInstanceError:
            continue
        raise ContractError(f"{f.name} can be set", expected="a frozen dataclass", fix="as @dataclass(frozen=True)")
    for k in knobs_of(policy):
        require(bool(k.help), f"knob {k.name} without help", expected="one sentence", fix="as in knob(0.7, '...')")
    needs_of(policy)
    reference = getattr(policy, "reference", ())
    keys = (reference,) if isinstance(reference, str) else reference
    require(
        isinstance(keys, tuple) and all(isinstance(key, str) for key in keys),
        f"reference {reference!r}",
        expected="a key of the bibliography, or a tuple of keys",
        fix='as in reference: ClassVar[str] = "kalavri2018ds2"',
    )
    require(call(policy).startswith(type(policy).__name__), call(policy), expected="code", fix="make it a dataclass")


@rule
def answers_the_same_twice(policy: Policy) -> None:
    """The same snapshots lead to the same decisions: no clock, no global state, no randomness outside the state."""
    snapshots = _snapshots(policy)
    first, second = (_replay(policy, seen)[0] for seen in (snapshots, copy.deepcopy(snapshots)))
    _same(
        first,
        second,
        "when it saw the same snapshots again",
        "draw random numbers from the seed, keep the rest in the state",
    )


@rule
def changes_nothing_it_is_given(policy: Policy) -> None:
    """A step changes neither its state nor its snapshot."""
    state = policy.init(CHAIN, 3)
    for snapshot in _snapshots(policy):
        before = pickle.dumps((state, snapshot))
        after, _ = policy.step(state, snapshot)
        require(
            pickle.dumps((state, snapshot)) == before,
            f"a state or a snapshot changed by step() at t = {snapshot.t:g} s",
            expected="both unchanged",
            fix="return a new state; a NamedTuple with _replace() helps",
        )
        state = after


@rule
def resumes_from_a_pickled_state(policy: Policy) -> None:
    """A policy's entire memory is in its state, which can be pickled."""
    snapshots = _snapshots(policy)
    whole, _ = _replay(policy, snapshots)
    head, state = _replay(policy, snapshots[:_HEAD])
    tail, _ = _replay(copy.deepcopy(policy), snapshots[_HEAD:], pickle.loads(pickle.dumps(state)))
    _same(whole, head + tail, "when it continued from a pickled state", "keep all memory in the state")


@rule
def bears_turned_knobs(policy: Policy) -> None:
    """A policy whose knob is changed during a run continues with the former state."""
    snapshots = _snapshots(policy)
    _, state = _replay(policy, snapshots[:_HEAD])
    for k in knobs_of(policy):
        for value in k.choices or [v for v in (k.low, k.high) if v is not None and v < 1e9]:
            try:
                turned: Any = replace(policy, **{k.name: value})  # type: ignore[type-var]
            except DspkitError:
                continue  # conflicts with another knob
            _replay(turned, snapshots[_HEAD:], state)


@rule
def bears_silent_meters(policy: Policy) -> None:
    """Without metrics of an operator, of all operators, or of latency, the decision still fits the topology."""
    state = policy.init(CHAIN, 0)
    for snapshot in _snapshots(policy, 6):
        some = {n: m for n, m in snapshot.operators.items() if n != "work"}
        idle = {n: replace(m, true_rate=None, processing_rate=0.0) for n, m in snapshot.operators.items()}
        for operators in (some, {}, idle):
            gap = replace(snapshot, operators=operators, latency=None, event_latency=None, edge_rates={})
            state, decision = policy.step(state, gap)
            CHAIN.check(decision.deployment)


@rule
def leaves_what_it_does_not_steer(policy: Policy) -> None:
    """Workers and settings of the deployment pass through a first step, which starts from the present deployment."""
    snapshot = _snapshots(policy, 1)[0]
    deployment = Deployment(snapshot.deployment.parallelism, workers=3, settings={"queue": "fast"})
    _, decision = policy.step(policy.init(CHAIN, 0), replace(snapshot, deployment=deployment))
    kept = (decision.deployment.workers, dict(decision.deployment.settings))
    require(
        kept == (3, {"queue": "fast"}),
        f"workers and settings {kept}",
        expected="3 and {'queue': 'fast'}, as they ran",
        fix="start from snapshot.deployment: .scaled(...) or dataclasses.replace",
    )


@rule
def runs_with_no_more_than_it_needs(policy: Policy) -> None:
    """A policy runs on a backend that can change what it needs and nothing else."""
    for step in control_loop(policy, _job(needs_of(policy)), steps=12):
        CHAIN.check(step.deployment)


def decisions_fit(policy: Policy, examples: int = EXAMPLES) -> None:
    """On random jobs under random loads, each decision fits its topology; this requires hypothesis.

    Parameters
    ----------
    policy : Policy
        The policy.
    examples : int
        Number of jobs.

    Examples
    --------
    >>> from dspkit.policies import Static
    >>> decisions_fit(Static(), examples=1)
    """
    try:
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import strategies as st

        from .strategies import plants, topologies
    except ImportError as error:
        raise BackendError(
            "no hypothesis", expected="it installed", fix="pip install hypothesis, or pass examples=0"
        ) from error

    # Examples are not shrunk, as each attempt is a simulation. Draws count the time between them, in which the first
    # simulation is compiled: half a minute on a busy machine is not the policy's fault.
    @settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.reuse, Phase.generate),
        suppress_health_check=(HealthCheck.too_slow,),
    )
    @given(data=st.data())
    def tried(data: Any) -> None:
        topology = data.draw(topologies())
        plant = data.draw(plants(topology))
        load = Square(data.draw(st.floats(0, 100)), data.draw(st.floats(0, 1e5)), 40)
        with Simulator(topology, plant, load, tick_s=2.0, seed=data.draw(st.integers(0, 9))) as backend:
            for step in control_loop(policy, backend, steps=8):
                assert isinstance(step.decision, Decision)  # the loop has checked it against the topology

    @rule
    def decisions_fit(policy: Policy) -> None:
        """On random jobs under random loads every decision fits its topology."""
        tried()

    decisions_fit(policy)


POLICY_CHECKS: tuple[Callable[..., None], ...] = (
    declares_itself,
    answers_the_same_twice,
    changes_nothing_it_is_given,
    resumes_from_a_pickled_state,
    bears_turned_knobs,
    bears_silent_meters,
    leaves_what_it_does_not_steer,
    runs_with_no_more_than_it_needs,
    decisions_fit,
)


def _job(knobs: frozenset[str] = frozenset(KNOBS)) -> Backend:
    plant = Plant(
        {"source": Service(1e-4), "work": Service(1e-3), "sink": Service(5e-4)},
        pause_s=5,
        noise=0.1,
        nodes={f"node-{i}": Node(4) for i in (1, 2)},
    )
    job = Simulator(CHAIN, plant, Square(200, 4000, 80))
    job.knobs = job.knobs & knobs or frozenset({"settings"})  # no policy needs settings
    return job


def _snapshots(policy: Policy, steps: int = 12) -> list[Snapshot]:
    return [step.snapshot for step in control_loop(policy, _job(), steps=steps)]


def _replay(policy: Policy, snapshots: Sequence[Snapshot], state: Any = None) -> tuple[list[Decision], Any]:
    """Return the decisions over recorded snapshots, and the final state."""
    state = policy.init(CHAIN, 3) if state is None else state
    decisions = []
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
        decisions.append(decision)
    return decisions, state


def _same(first: Sequence[Decision], second: Sequence[Decision], when: str, fix: str) -> None:
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        require(a == b, f"another decision in window {i} {when}: {b} after {a}", expected="the same", fix=fix)


def check_backend(make: Callable[[], Backend], *, only: Sequence[str] = ()) -> None:
    """Raise a ContractError at the first rule that a backend breaks; each rule gets its own backend.

    Parameters
    ----------
    make : callable
        Makes a backend that runs a job under some load.
    only : sequence of str
        Names of the rules to check, out of `BACKEND_CHECKS`; by default all.

    Examples
    --------
    >>> from dspkit import apps
    >>> check_backend(lambda: apps.word_count().simulator(window_s=5.0))
    """
    for check in BACKEND_CHECKS:
        if not only or check.__name__ in only:
            with make() as backend:
                check(backend)


@rule
def says_what_it_can_change(backend: Backend) -> None:
    """It is a Backend with a topology, and its knobs are fields of a Deployment."""
    require(
        isinstance(backend, Backend), f"{backend!r:.60}", expected="a Backend", fix="see dspkit.core.policy.Backend"
    )
    require(
        isinstance(backend.knobs, frozenset) and backend.knobs <= set(KNOBS),
        f"knobs {backend.knobs!r}",
        expected=f"a frozenset of {', '.join(KNOBS)}",
        fix='as in knobs = frozenset({"parallelism"})',
    )
    require(bool(backend.topology.order), "a topology without operators", expected="at least one", fix="name them")


@rule
def windows_follow_one_another(backend: Backend) -> None:
    """Each window begins at the end of the previous one."""
    first, second = _window(backend), _window(backend)
    require(first.t > 0, f"a first window that ends at {first.t}", expected="a time above 0", fix="count from 0")
    require(
        math.isclose(second.t, first.t + second.window_s, rel_tol=1e-6),
        f"windows that end at {first.t:g} s and {second.t:g} s, the second {second.window_s:g} s long",
        expected="the second to begin where the first ended",
        fix="report t as the window's end",
    )


@rule
def snapshots_cover_the_topology(backend: Backend) -> None:
    """Every operator, source and edge is measured, and counts agree with the deployment."""
    snapshot, topology = _window(backend), backend.topology
    parts: tuple[tuple[str, Any, Any], ...] = (
        ("operators", snapshot.operators, topology.order),
        ("source_rates", snapshot.source_rates, topology.sources),
        ("edge_rates", snapshot.edge_rates, topology.edges),
    )
    for name, got, known in parts:
        require(set(got) == set(known), f"{name} of {sorted(got)}", expected=f"{sorted(known)}", fix="measure all")
    topology.check(snapshot.deployment)
    for name, metrics in snapshot.operators.items():
        runs = snapshot.deployment.parallelism[name]
        require(
            metrics.parallelism == runs,
            f"{metrics.parallelism} instances of {name!r} in its metrics",
            expected=f"{runs}, as in the deployment",
            fix="report both at the same moment",
        )


@rule
def rates_fit_together(backend: Backend) -> None:
    """Output is the sum over edges, lag the sources' backlog, and busy share times true rate the processing rate."""
    for _ in range(3):
        snapshot = _window(backend)
        for name, m in snapshot.operators.items():
            downstream = backend.topology.downstream(name)
            if downstream:
                sent = sum(snapshot.edge_rates[name, child] for child in downstream)
                _close(m.output_rate, sent, 1e-6, f"output rate of {name!r}", "the sum over its edges")
            if m.true_rate is not None:
                busy = m.true_rate * m.parallelism * m.utilisation
                what = "true rate x instances x utilisation"
                _close(m.processing_rate, busy, BUSY, f"processing rate of {name!r}", what)
        held = sum(snapshot.operators[s].backlog for s in backend.topology.sources)
        _close(snapshot.lag, held, 1e-6, "lag", "the sources' backlog")
        if snapshot.latency is not None and snapshot.event_latency is not None:
            latency = snapshot.latency
            require(
                latency.p50 <= latency.p95 <= latency.p99, f"{latency}", expected="p50 <= p95 <= p99", fix="sort them"
            )
            require(
                snapshot.event_latency.mean >= latency.mean,
                f"event latency {snapshot.event_latency.mean} below latency {latency.mean}",
                expected="the wait in the source's log on top",
                fix="measure event latency from the record's own time",
            )


@rule
def deploys_for_the_next_window(backend: Backend) -> None:
    """A deployment runs from the next window on."""
    if "parallelism" not in backend.knobs:
        return
    target = _changed(backend, _window(backend).deployment)
    backend.deploy(target)
    runs = _window(backend).deployment
    require(runs == target, f"{runs} in the next window", expected=f"{target}", fix="report a deployment once it runs")


@rule
def refuses_what_does_not_fit(backend: Backend) -> None:
    """A deployment that does not fit the topology raises a DeploymentError and changes nothing."""
    before = _window(backend).deployment
    name = next(iter(before.parallelism))
    for wrong in ({**before.parallelism, name: 10_000_000}, {**before.parallelism, "typo": 1}):
        _refused(backend, replace(before, parallelism=wrong), DeploymentError, f"parallelism {wrong}")
    if len(before.parallelism) > 1:
        _refused(backend, replace(before, parallelism={name: 1}), DeploymentError, f"parallelism of {name!r} alone")
    _unchanged(backend, before)


@rule
def refuses_what_is_no_knob(backend: Backend) -> None:
    """A change that the backend does not support is rejected by name, and changes nothing."""
    before = _window(backend).deployment
    name = next(iter(before.parallelism))
    other: dict[str, Any] = {"workers": 7, "settings": {"x": 1}, "placement": {(name, 0): "elsewhere"}}
    for field in sorted({"workers", "settings", "placement"} - backend.knobs):
        _refused(backend, replace(before, **{field: other[field]}), DspkitError, f"another {field}", field)
    _unchanged(backend, before)


@rule
def stays_closed(backend: Backend) -> None:
    """Closing twice is allowed, and no other call works afterwards."""
    last = _window(backend).deployment
    backend.close()
    backend.close()
    calls: dict[str, Callable[[], Any]] = {
        "observe": backend.observe,
        "deploy": lambda: backend.deploy(_changed(backend, last)),
    }
    for name, use in calls.items():
        try:
            use()
        except BackendError as error:
            require("after close" in str(error), str(error), expected='"after close" in it', fix="word it so")
        else:
            raise ContractError(f"{name}() after close()", expected="a BackendError", fix="reject the call")


@rule
def says_what_it_is(backend: Backend) -> None:
    """The repr names the first operator, so that runs can be distinguished."""
    first = backend.topology.order[0]
    require(first in repr(backend), repr(backend)[:100], expected=f"{first!r} in it", fix="write a __repr__")


BACKEND_CHECKS: tuple[Callable[[Backend], None], ...] = (
    says_what_it_can_change,
    windows_follow_one_another,
    snapshots_cover_the_topology,
    rates_fit_together,
    deploys_for_the_next_window,
    refuses_what_does_not_fit,
    refuses_what_is_no_knob,
    stays_closed,
    says_what_it_is,
)


def _window(backend: Backend) -> Snapshot:
    snapshot = backend.observe()
    require(
        isinstance(snapshot, Snapshot),
        f"{snapshot!r:.60} from observe()",
        expected="a Snapshot",
        fix="check a backend with at least three windows",
    )
    assert snapshot is not None
    return snapshot


def _changed(backend: Backend, deployment: Deployment) -> Deployment:
    """Return the deployment with one more instance of the first operator that allows it, or else one fewer."""
    for step in (1, -1):
        for name, k in deployment.parallelism.items():
            if backend.topology.clip({name: k + step})[name] == k + step:
                return deployment.scaled({name: k + step})
    return deployment


def _refused(backend: Backend, deployment: Deployment, kind: type[Exception], what: str, word: str = "") -> None:
    try:
        backend.deploy(deployment)
    except kind as error:
        require(word in str(error), str(error), expected=f"{word!r} in it", fix="name what cannot be changed")
    else:
        raise ContractError(f"{what} deployed", expected=f"a {kind.__name__}", fix="check it with topology.check()")


def _unchanged(backend: Backend, before: Deployment) -> None:
    runs = _window(backend).deployment
    require(runs == before, f"{runs} after that", expected=f"{before}, as before", fix="check before anything changes")


def _close(got: float, other: float, share: float, name: str, what: str) -> None:
    near = math.isclose(got, other, rel_tol=share, abs_tol=1e-9)
    require(near, f"{name} = {got:g}, but {what} = {other:g}", expected="the same", fix="measure both over one window")
