"""The contract of policies: pure steps, frozen settings, decisions that fit, and tolerance of missing metrics."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from typing import Any

from ..core import (
    Backend,
    BackendError,
    Decision,
    Deployment,
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
from .contract import ContractError, require, rule

CHAIN = Topology.chain("source", "work", "sink", max_parallelism=6)
EXAMPLES = 15  # number of random jobs
_HEAD = 5  # windows before the state is pickled, or a knob changed


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
        from hypothesis import Phase, given, settings
        from hypothesis import strategies as st

        from .strategies import plants, topologies
    except ImportError as error:
        raise BackendError(
            "no hypothesis", expected="it installed", fix="pip install hypothesis, or pass examples=0"
        ) from error

    # Examples are not shrunk, as each attempt is a simulation.
    @settings(max_examples=examples, deadline=None, phases=(Phase.reuse, Phase.generate))
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
