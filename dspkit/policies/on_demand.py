"""Requests for machines by a person, a timetable or a trigger, and what policies that answer them have in common.

How many machines join or leave is asked for; the policy says which operators get the new slots, and who moves. A
backend needs the knob `workers`; where it has `placement` too, each instance is told its machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

from ..core import Decision, Deployment, Policy, Snapshot, Topology
from ..errors import KnobError
from ..etp import Rates, counting, held_back, mean, rates, rebalance, slots, unblocked
from ..knobs import Knobs, knob


@dataclass(frozen=True)
class Request(Knobs):
    """Base of what can be asked for: a number of machines, from a moment on."""

    machines: int = knob(1, "how many machines", low=1, high=10_000)
    at_s: float = knob(0.0, "when it is asked; it is answered in the next window", low=0.0, high=math.inf, unit="s")


@dataclass(frozen=True)
class ScaleOut(Request):
    """So many machines join. `names` says which; without, the policy goes on counting from those it knows."""

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and len(set(self.names)) != self.machines:
            raise KnobError(
                f"names {self.names}", expected=f"{self.machines} different machines", fix="name each, or none"
            )


@dataclass(frozen=True)
class ScaleIn(Request):
    """So many machines leave; the policy says which."""


class Situation(NamedTuple):
    """What runs where when a request is answered, and the rates measured since the last change."""

    topology: Topology
    deployment: Deployment
    machines: tuple[str, ...]
    placement: Mapping[tuple[str, int], str]
    rates: Rates
    seed: int  # of this request


class State(NamedTuple):
    """`served`: numbers of the requests carried out; `asked`: the one decided last, and what ran then.

    `samples` are the rates of windows since the last change.
    """

    topology: Topology
    seed: int
    inner: Any = None
    served: tuple[int, ...] = ()
    asked: tuple[int, Deployment] | None = None
    answers: int = 0
    seen: Deployment | None = None
    samples: tuple[Rates, ...] = ()
    per_machine: int = 0


@dataclass(frozen=True)
class OnDemand(Knobs):
    """Base of policies that act on request; a subclass answers with `out` and `into`."""

    reference: ClassVar[str] = "stela"
    requests: tuple[Request, ...] = ()
    trigger: Policy | None = None  # its wishes for instances, or workers, become requests
    machines: tuple[str, ...] = ()  # all there are, in use or not, in the order in which they join
    window: int = knob(20, "windows that rates are averaged over", low=1, high=200, source="the paper's 20 samples")
    measure: str = knob(
        "auto",
        "rates as measured, or as if nobody were held back; auto: as measured unless somebody is",
        choices=("auto", "measured", "unblocked"),
        source="the paper measures; Storm has no back-pressure",
    )
    places: str = knob(
        "auto", "whether to say which instance runs where; auto: if machines have names", choices=("auto", "yes", "no")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("requests", "machines"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if wrong := [r for r in self.requests if not isinstance(r, (ScaleOut, ScaleIn))]:
            raise KnobError(f"request {wrong[0]!r}", expected="ScaleOut(...) or ScaleIn(...)", fix="make one of these")
        if self.trigger is not None and (isinstance(self.trigger, type) or not isinstance(self.trigger, Policy)):
            raise KnobError(f"trigger {self.trigger!r}", expected="a policy that is made", fix="as in trigger=DS2()")

    def ask(self, *requests: Request) -> Self:
        """This policy with more requests: what a button does. A run goes on with it where it is."""
        return replace(self, requests=(*self.requests, *requests))

    def out(self, now: Situation, new: Sequence[str]) -> tuple[Deployment, dict[str, Any]]:
        """What runs after these machines joined, and why; places for all instances."""
        raise NotImplementedError(f"{type(self).__name__} must give out(now, new)")

    def into(self, now: Situation, count: int) -> tuple[Deployment, dict[str, Any]]:
        """What runs after `count` machines left, and why."""
        raise NotImplementedError(f"{type(self).__name__} must give into(now, count)")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology, seed, self.trigger.init(topology, seed) if self.trigger else None)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now = snapshot.deployment
        state = self._look(state, snapshot)
        due = [i for i, r in enumerate(self.requests) if i not in state.served and r.at_s <= snapshot.t]
        state, wished, why = self._triggered(state, snapshot)
        if not due and wished is None:
            return state, Decision(now, {"rule": "nothing is asked for", **why})
        if not state.samples:
            return state, Decision(now, {**why, "waits": "nothing measured since the last change"})
        wished = self.requests[due[0]] if due else wished
        assert wished is not None
        drawn = [state.seed, state.answers]
        target, told = self.answer(wished, state.topology, snapshot, mean(state.samples), seed=drawn)
        if due and target == now:
            state = state._replace(served=(*state.served, due[0]), answers=state.answers + 1)
        elif due:  # a guard may hold it back: it is carried out when something has changed
            state = state._replace(asked=(due[0], now))
        return state, Decision(target, {**told, **why})

    def answer(
        self, request: Request, topology: Topology, snapshot: Snapshot, measured: Rates | None = None, *, seed: Any = 0
    ) -> tuple[Deployment, dict[str, Any]]:
        """What shall run if this is asked now, and why: one request without a loop. `measured` defaults to this window.

        What cannot be done changes nothing, and says so.
        """
        deployment = snapshot.deployment
        machines = used(snapshot)
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
        if isinstance(request, ScaleOut):
            target, why = self.out(situation, request.names or self._new(machines, request.machines, snapshot))
            target = replace(target, workers=len(machines) + request.machines)
        else:
            target, why = self.into(situation, request.machines)
            target = replace(target, workers=len(machines) - request.machines)
        tell = self.places == "yes" or (self.places == "auto" and bool(snapshot.nodes or deployment.placement))
        return target if tell else replace(target, placement={}), {"machines": asked, **why}

    def sample(self, topology: Topology, snapshot: Snapshot) -> Rates:
        """One window's rates, as `measure` says."""
        free = self.measure == "unblocked" or (self.measure == "auto" and held_back(snapshot))
        return unblocked(topology, snapshot) if free else rates(snapshot)

    def _look(self, state: State, snapshot: Snapshot) -> State:
        if state.asked is not None and state.asked[1] != snapshot.deployment:
            served = (*state.served, state.asked[0])
            state = state._replace(served=served, asked=None, answers=state.answers + 1)
        if state.seen != snapshot.deployment:
            state = state._replace(seen=snapshot.deployment, samples=())
        if not state.per_machine and (machines := used(snapshot)):
            state = state._replace(per_machine=max(1, slots(snapshot.deployment.instances, len(machines))))
        if snapshot.operators and not snapshot.downtime_s:  # a window that stood still says nothing of rates
            samples = (*state.samples, self.sample(state.topology, snapshot))
            state = state._replace(samples=samples[-self.window :])
        return state

    def _triggered(self, state: State, snapshot: Snapshot) -> tuple[State, Request | None, dict[str, Any]]:
        """The trigger's wish in machines of as many slots as one had at first."""
        if self.trigger is None:
            return state, None, {}
        inner = state.inner if state.inner is not None else self.trigger.init(state.topology, state.seed)
        inner, decision = self.trigger.step(inner, snapshot)
        state = state._replace(inner=inner)
        wanted, count = decision.deployment, len(used(snapshot)) or snapshot.deployment.workers or 0
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
        """Names of machines that join: the next of those that are known, or else counted on from the last."""
        known = dict.fromkeys([*self.machines, *snapshot.nodes])
        found = [m for m in known if m not in machines][:count]
        stem, number = re.fullmatch(r"(.*?)(\d*)", machines[-1], re.DOTALL).groups()  # type: ignore[union-attr]
        n = int(number or 1)
        while len(found) < count:
            n += 1
            if (name := f"{stem}{n}") not in (*machines, *found):
                found.append(name)
        return tuple(found)


def used(snapshot: Snapshot) -> tuple[str, ...]:
    """The machines in use: those that were measured; or, where all instances have places, those and any idle ones."""
    deployment = snapshot.deployment
    if len(deployment.placement) < deployment.instances:
        return tuple(dict.fromkeys([*snapshot.nodes, *deployment.placement.values()]))
    busy = set(deployment.placement.values())
    idle = [m for m in snapshot.nodes if m not in busy]
    return tuple(sorted([*busy, *idle[: max(0, (deployment.workers or 0) - len(busy))]], key=counting))


def placed(topology: Topology, deployment: Deployment, machines: Sequence[str]) -> dict[tuple[str, int], str]:
    """Where each instance runs; those that no placement names are where Storm's and our own scheduler deal them."""
    return {**rebalance(topology, deployment.parallelism, machines), **deployment.placement}
