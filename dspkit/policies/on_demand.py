"""Requests for machines by a person, a timetable or a trigger, and the base class of policies that answer them.

A request states how many machines are added or removed; the policy decides which operators get the new slots, and which
instances move. A backend needs the knob `workers`; if it has `placement` too, each instance is assigned to a machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

from ..core import ArgumentError, Decision, Deployment, Knobs, Policy, PolicyKnobs, Snapshot, Topology, knob
from ..etp import Rates, counting, held_back, mean, rates, rebalance, slots, unblocked


@dataclass(frozen=True)
class Request(Knobs):
    """Base class of requests: a number of machines, from a time on."""

    machines: int = knob(1, "number of machines", low=1, high=10_000)
    at_s: float = knob(0.0, "time of the request; handled in the next window", low=0.0, high=math.inf, unit="s")


@dataclass(frozen=True)
class ScaleOut(Request):
    """A request to add machines.

    Parameters
    ----------
    machines : int
        Number of machines.
    at_s : float
        Time of the request.
    names : tuple of str
        Names of the machines; by default the numbering of the known ones is continued.

    Examples
    --------
    >>> ScaleOut(2, names=("m7", "m8")).machines
    2
    """

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and len(set(self.names)) != self.machines:
            raise ArgumentError(
                f"names {self.names}", expected=f"{self.machines} different machines", fix="name all or none"
            )


@dataclass(frozen=True)
class ScaleIn(Request):
    """A request to remove machines, which the policy chooses."""


class Situation(NamedTuple):
    """The deployment when a request is answered, and the rates measured since the last change."""

    topology: Topology
    deployment: Deployment
    machines: tuple[str, ...]
    placement: Mapping[tuple[str, int], str]
    rates: Rates
    seed: int  # seed of this request


class OnDemandState(NamedTuple):
    """`served`: numbers of the requests carried out; `pending`: the last decided one, and the deployment before.

    `samples` are the rates of windows since the last change.
    """

    topology: Topology
    seed: int
    inner: Any = None
    served: tuple[int, ...] = ()
    pending: tuple[int, Deployment] | None = None
    answers: int = 0
    last_deployment: Deployment | None = None
    samples: tuple[Rates, ...] = ()
    per_machine: int = 0


@dataclass(frozen=True)
class OnDemand(PolicyKnobs):
    """Base class of policies that act on request; a subclass defines `scale_out` and `scale_in`."""

    reference: ClassVar[str] = "stela"
    requests: tuple[Request, ...] = ()
    trigger: Policy | None = None
    machines: tuple[str, ...] = ()
    metrics_windows: int = knob(
        20, "windows that rates are averaged over", low=1, high=200, source="the paper's 20 samples"
    )
    measure: str = knob(
        "auto",
        "rates as measured, or without back-pressure; auto: as measured unless an operator is back-pressured",
        choices=("auto", "measured", "unblocked"),
        source="the paper measures; Storm has no back-pressure",
    )
    places: str = knob(
        "auto", "whether to decide placements; auto: if machines have names", choices=("auto", "yes", "no")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("requests", "machines"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if wrong := [r for r in self.requests if not isinstance(r, (ScaleOut, ScaleIn))]:
            raise ArgumentError(
                f"request {wrong[0]!r}", expected="ScaleOut(...) or ScaleIn(...)", fix="pass one of these"
            )
        if self.trigger is not None and (isinstance(self.trigger, type) or not isinstance(self.trigger, Policy)):
            raise ArgumentError(
                f"trigger {self.trigger!r}", expected="an instance of a policy", fix="as in trigger=DS2()"
            )

    def ask(self, *requests: Request) -> Self:
        """Return the policy with further requests, with which a run can continue.

        Examples
        --------
        >>> from dspkit.policies.stela import Stela
        >>> len(Stela().ask(ScaleOut(1)).requests)
        1
        """
        return replace(self, requests=(*self.requests, *requests))

    def scale_out(self, situation: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        """Return the deployment after these machines were added, with places for all instances, and the reason.

        Parameters
        ----------
        situation : Situation
            The present deployment and its rates.
        new : sequence of str
            The new machines.

        Examples
        --------
        >>> from dspkit import Topology
        >>> from dspkit.policies.stela import Stela
        >>> places = {("a", 0): "m1", ("b", 0): "m2"}
        >>> now = Situation(Topology.chain("a", "b"), Deployment({"a": 1, "b": 1}), ("m1", "m2"), places, Rates({}), 0)
        >>> Stela().scale_out(now, ["m3"])[0].parallelism
        {'a': 2, 'b': 1}
        """
        raise NotImplementedError(f"{type(self).__name__} must define scale_out(situation, new)")

    def scale_in(self, situation: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        """Return the deployment after `count` machines were removed, and the reason.

        Parameters
        ----------
        situation : Situation
            The present deployment and its rates.
        count : int
            Number of machines to remove.

        Examples
        --------
        >>> from dspkit import Topology
        >>> from dspkit.policies.stela import Stela
        >>> places = {("a", 0): "m1", ("b", 0): "m2"}
        >>> now = Situation(Topology.chain("a", "b"), Deployment({"a": 1, "b": 1}), ("m1", "m2"), places, Rates({}), 0)
        >>> Stela().scale_in(now, 1)[1]["leave"]
        ['m1']
        """
        raise NotImplementedError(f"{type(self).__name__} must define scale_in(situation, count)")

    def init(self, topology: Topology, seed: int = 0) -> OnDemandState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return OnDemandState(topology, seed, self.trigger.init(topology, seed) if self.trigger else None)

    def step(self, state: OnDemandState, snapshot: Snapshot) -> tuple[OnDemandState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now = snapshot.deployment
        state = self._look(state, snapshot)
        due = [i for i, r in enumerate(self.requests) if i not in state.served and r.at_s <= snapshot.t]
        state, wished, why = self._triggered(state, snapshot)
        if not due and wished is None:
            later = [r.at_s for i, r in enumerate(self.requests) if i not in state.served]
            rule = f"waits for the request at t = {min(later):g} s" if later else "waits for a request for machines"
            return state, Decision(now, {"rule": rule, **why})
        if not state.samples:
            return state, Decision(now, {**why, "waits": "nothing measured since the last change"})
        wished = self.requests[due[0]] if due else wished
        assert wished is not None
        drawn = [state.seed, state.answers]
        target, reason = self.answer(wished, state.topology, snapshot, mean(state.samples), seed=drawn)
        if due and target == now:
            state = state._replace(served=(*state.served, due[0]), answers=state.answers + 1)
        elif due:  # a guard may withhold it: it is carried out once the deployment has changed
            state = state._replace(pending=(due[0], now))
        return state, Decision(target, {**reason, **why})

    def answer(
        self, request: Request, topology: Topology, snapshot: Snapshot, measured: Rates | None = None, *, seed: Any = 0
    ) -> tuple[Deployment, dict[str, Any]]:
        """Return the deployment that answers one request now, and the reason; an impossible request changes nothing.

        Parameters
        ----------
        request : Request
            The request.
        topology : Topology
            The operators.
        snapshot : Snapshot
            The measurements.
        measured : Rates, optional
            The rates; by default those of this window.
        seed : object
            Seed of random choices.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.stela import Stela
        >>> job = apps.star().simulator()
        >>> Stela().answer(ScaleOut(1), job.topology, job.observe())[1]["machines"]
        '+1'
        """
        deployment = snapshot.deployment
        machines = machines_in_use(snapshot)
        count = deployment.workers if deployment.workers is not None else len(machines)
        asked = f"{'+' if isinstance(request, ScaleOut) else '-'}{request.machines}"
        if not machines and count:  # a backend that counts workers and names none
            machines = tuple(f"worker-{i}" for i in range(1, count + 1))
        if not machines:
            return deployment, {"machines": asked, "refused": "it is not known how many machines there are"}
        if isinstance(request, ScaleIn) and request.machines >= len(machines):
            return deployment, {"machines": asked, "refused": f"there are {len(machines)}, and one must stay"}
        given = placed(topology, deployment, machines)
        situation = Situation(topology, deployment, machines, given, measured or self.sample(topology, snapshot), seed)
        count = max(count, len(machines))  # a machine that is down reports nothing, and still belongs to the job
        if isinstance(request, ScaleOut):
            target, why = self.scale_out(situation, request.names or self._new(machines, request.machines, snapshot))
            target = replace(target, workers=count + request.machines)
        else:
            target, why = self.scale_in(situation, request.machines)
            target = replace(target, workers=count - request.machines)
        tell = self.places == "yes" or (self.places == "auto" and bool(snapshot.nodes or deployment.placement))
        return target if tell else replace(target, placement={}), {"machines": asked, **why}

    def sample(self, topology: Topology, snapshot: Snapshot) -> Rates:
        """Return one window's rates, according to `measure`.

        Parameters
        ----------
        topology : Topology
            The operators.
        snapshot : Snapshot
            The measurements.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.stela import Stela
        >>> job = apps.star().simulator()
        >>> sorted(Stela().sample(job.topology, job.observe()).processing) == sorted(job.topology.order)
        True
        """
        free = self.measure == "unblocked" or (self.measure == "auto" and held_back(snapshot))
        return unblocked(topology, snapshot) if free else rates(snapshot)

    def _look(self, state: OnDemandState, snapshot: Snapshot) -> OnDemandState:
        if state.pending is not None and state.pending[1] != snapshot.deployment:
            served = (*state.served, state.pending[0])
            state = state._replace(served=served, pending=None, answers=state.answers + 1)
        if state.last_deployment != snapshot.deployment:
            state = state._replace(last_deployment=snapshot.deployment, samples=())
        if not state.per_machine and (machines := machines_in_use(snapshot)):
            state = state._replace(per_machine=max(1, slots(snapshot.deployment.instances, len(machines))))
        if snapshot.operators and not snapshot.downtime_s:  # windows with downtime have no typical rates
            samples = (*state.samples, self.sample(state.topology, snapshot))
            state = state._replace(samples=samples[-self.metrics_windows :])
        return state

    def _triggered(
        self, state: OnDemandState, snapshot: Snapshot
    ) -> tuple[OnDemandState, Request | None, dict[str, Any]]:
        """Return the trigger's decision as a request for machines of as many slots as one had at first."""
        if self.trigger is None:
            return state, None, {}
        inner = state.inner if state.inner is not None else self.trigger.init(state.topology, state.seed)
        inner, decision = self.trigger.step(inner, snapshot)
        state = state._replace(inner=inner)
        wanted, count = decision.deployment, len(machines_in_use(snapshot)) or snapshot.deployment.workers or 0
        if not count or not state.per_machine:
            return state, None, {"trigger": self.trigger.name}
        if wanted.workers is not None and wanted.workers != snapshot.deployment.workers:
            machines = wanted.workers
        elif wanted.parallelism == snapshot.deployment.parallelism:
            machines = count
        else:
            machines = max(1, math.ceil(wanted.instances / state.per_machine))
        why = {"trigger": f"{self.trigger.name} wants {wanted.instances} instances, so {machines} machines"}
        if machines == count:
            return state, None, why
        ask = ScaleOut(machines - count) if machines > count else ScaleIn(count - machines)
        return state, ask, why

    def _new(self, machines: Sequence[str], count: int, snapshot: Snapshot) -> tuple[str, ...]:
        """Return names of machines to add: the next known ones, then a continued numbering."""
        known = dict.fromkeys([*self.machines, *snapshot.nodes])
        found = [m for m in known if m not in machines][:count]
        stem, number = re.fullmatch(r"(.*?)(\d*)", machines[-1], re.DOTALL).groups()  # type: ignore[union-attr]
        n = int(number or 1)
        while len(found) < count:
            n += 1
            if (name := f"{stem}{n}") not in (*machines, *found):
                found.append(name)
        return tuple(found)


def machines_in_use(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the machines in use: the measured ones, or with a complete placement those in it and idle workers."""
    deployment = snapshot.deployment
    if len(deployment.placement) < deployment.instances:
        return tuple(dict.fromkeys([*snapshot.nodes, *deployment.placement.values()]))
    busy = set(deployment.placement.values())
    idle = [m for m in snapshot.nodes if m not in busy]
    return tuple(sorted([*busy, *idle[: max(0, (deployment.workers or 0) - len(busy))]], key=counting))


def placed(topology: Topology, deployment: Deployment, machines: Sequence[str]) -> dict[tuple[str, int], str]:
    """Return the machine of each instance; instances without a placement are where Storm's scheduler puts them."""
    return {**rebalance(topology, deployment.parallelism, machines), **deployment.placement}
